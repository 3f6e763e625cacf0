use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Fields of a stored value that this version does not know, kept so that load → save loses nothing.
///
/// Empty in everything the crate makes itself; one pointer wide. Written after the known fields, whose names do not
/// belong in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Map<String, Value>", into = "Map<String, Value>")]
pub struct Extra(Option<Box<Map<String, Value>>>);

impl Extra {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The value stored under `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.as_ref()?.get(key)
    }
}

impl From<Map<String, Value>> for Extra {
    fn from(map: Map<String, Value>) -> Self {
        if map.is_empty() { Self(None) } else { Self(Some(Box::new(map))) }
    }
}

impl From<Extra> for Map<String, Value> {
    fn from(extra: Extra) -> Self {
        extra.0.map(|map| *map).unwrap_or_default()
    }
}

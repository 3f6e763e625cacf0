use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ToolStateOp;

/// All committed state of a scope at one moment: keys in byte order, each with a JSON value.
///
/// Cloning shares it. Serializes as one JSON object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolStateSnapshot {
    entries: Arc<BTreeMap<Arc<str>, Arc<Value>>>,
}

impl ToolStateSnapshot {
    /// A snapshot with nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<Value>> {
        self.entries.get(key)
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All keys and values, in byte order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Applies writes, in order. What other handles of this snapshot show does not change.
    pub fn apply(&mut self, ops: &[ToolStateOp]) {
        if ops.is_empty() {
            return;
        }
        let entries = Arc::make_mut(&mut self.entries);
        for op in ops {
            match op {
                ToolStateOp::Set { key, value } => {
                    entries.insert(Arc::clone(key), Arc::clone(value));
                }
                ToolStateOp::Delete { key } => {
                    entries.remove(key);
                }
            }
        }
    }

    /// The keys that begin with `prefix`, in byte order.
    pub(super) fn keys<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        self.entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(key, _)| key)
            .take_while(move |key| key.starts_with(prefix))
    }
}

impl<K: Into<Arc<str>>> FromIterator<(K, Value)> for ToolStateSnapshot {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(entries: I) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), Arc::new(value))).collect();
        Self { entries: Arc::new(entries) }
    }
}

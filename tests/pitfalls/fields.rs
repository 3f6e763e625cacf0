//! Reading a JSON object so that what nobody reads is noticed.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::findings::Findings;

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

#[derive(Clone)]
pub struct Fields<'a> {
    place: String,
    map: &'a Map<String, Value>,
    read: BTreeSet<String>,
}

impl<'a> Fields<'a> {
    /// The fields of an object; of anything else, none.
    pub fn new(place: impl Into<String>, value: &'a Value) -> Self {
        Self { place: place.into(), map: value.as_object().unwrap_or_else(|| &*EMPTY), read: BTreeSet::new() }
    }

    pub fn take(&mut self, key: &str) -> Option<&'a Value> {
        self.read.insert(key.to_owned());
        self.map.get(key)
    }

    pub fn text(&mut self, key: &str) -> Option<&'a str> {
        self.take(key)?.as_str()
    }

    pub fn number(&mut self, key: &str) -> Option<u64> {
        self.take(key)?.as_u64()
    }

    /// Whether something is expected. That it is expected not to be is left unread.
    pub fn flag(&mut self, key: &str) -> bool {
        self.map.get(key) == Some(&Value::Bool(true)) && self.take(key).is_some()
    }

    /// Whether an option is on.
    pub fn switch(&mut self, key: &str) -> bool {
        self.take(key) == Some(&Value::Bool(true))
    }

    pub fn list(&mut self, key: &str) -> &'a [Value] {
        self.take(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub fn object(&mut self, key: &str) -> Option<Fields<'a>> {
        let value = self.take(key)?;
        let place = if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) };
        Some(Fields::new(place, value))
    }

    /// Counts everything as read: the whole has to wait for something that is already noted.
    pub fn skip(&mut self) {
        self.read.extend(self.map.keys().cloned());
    }

    pub fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.keys().map(String::as_str)
    }

    /// Everything must have been read; what was not keeps the case from passing.
    pub fn finish(self, findings: &mut Findings) {
        for key in self.map.keys().filter(|key| !self.read.contains(*key)) {
            let dot = if self.place.is_empty() { "" } else { "." };
            findings.need(format!("an adapter for `{}{dot}{key}`", self.place));
        }
    }
}

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::view::read_as;
use super::{ToolStateController, ToolStateError, ToolStateSnapshot};

/// A read-only window on an agent's tool state.
///
/// Reads are of the live state at the time of the call: inside a hook after a turn they show every commit of the turn.
/// What a call staged is invisible until it is committed. The state is loaded from the store at the start of a run, so
/// before the first run this shows only what this process committed. A sub-agent has its own state, which is not here.
///
/// There is no way to write: a write from outside a tool has no result to be recorded with, and would be lost in a
/// durable replay.
#[derive(Clone, Debug)]
pub struct ToolState {
    controller: ToolStateController,
}

impl ToolState {
    pub(super) const fn new(controller: ToolStateController) -> Self {
        Self { controller }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Value>> {
        self.controller.read(|snapshot| snapshot.get(key).cloned())
    }

    /// The value of a key as a type of the host's.
    ///
    /// # Errors
    /// [`ToolStateError::Type`] when the value does not fit.
    pub fn get_as<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ToolStateError> {
        self.get(key).map(|value| read_as(key, &value)).transpose()
    }

    /// The keys that begin with `prefix` (all for `""`), in byte order.
    #[must_use]
    pub fn keys(&self, prefix: &str) -> Vec<Arc<str>> {
        self.controller.read(|snapshot| snapshot.keys(prefix).cloned().collect())
    }

    /// All of it, as it is now.
    #[must_use]
    pub fn snapshot(&self) -> ToolStateSnapshot {
        self.controller.snapshot()
    }
}

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One staged write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolStateOp {
    /// The key gets this value, whatever it had.
    Set {
        /// The key.
        key: Arc<str>,
        /// Its new value.
        value: Arc<Value>,
    },
    /// The key goes away, if it is there.
    Delete {
        /// The key.
        key: Arc<str>,
    },
}

impl ToolStateOp {
    /// A write.
    pub fn set(key: impl Into<Arc<str>>, value: impl Into<Value>) -> Self {
        Self::Set { key: key.into(), value: Arc::new(value.into()) }
    }

    /// A removal.
    pub fn delete(key: impl Into<Arc<str>>) -> Self {
        Self::Delete { key: key.into() }
    }

    /// The key it touches.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Set { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// The writes of one tool call, as the store gets them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ToolStateCommit {
    /// Whose state it is; the host's key.
    pub scope: Arc<str>,
    /// Identifies this commit within the scope, the same each time it is tried again. Two calls never share one, also
    /// when they are committed in the same step.
    pub commit_id: Arc<str>,
    /// The run.
    pub run_id: Arc<str>,
    /// The call.
    pub call_id: Arc<str>,
    /// The writes, in the order the tool made them. Never empty when a store sees it.
    pub ops: Vec<ToolStateOp>,
}

impl ToolStateCommit {
    /// A commit.
    pub fn new(
        scope: impl Into<Arc<str>>,
        commit_id: impl Into<Arc<str>>,
        run_id: impl Into<Arc<str>>,
        call_id: impl Into<Arc<str>>,
        ops: Vec<ToolStateOp>,
    ) -> Self {
        Self { scope: scope.into(), commit_id: commit_id.into(), run_id: run_id.into(), call_id: call_id.into(), ops }
    }
}

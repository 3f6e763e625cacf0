use serde::{Deserialize, Serialize};

use super::child_id;
use crate::types::{AgentStats, DeferredCall, Extra, Timestamp};

/// The beginning of a run, or its end. An end says again what the beginning said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunEntry {
    /// The entry's id, derived from the run's.
    pub id: String,
    /// The run.
    pub run_id: String,
    /// The run that started it, for a sub-agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// A durable engine records it: until it has ended, what it left open is not to be repaired.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub durable: bool,
    /// Calls of an earlier run that the host answered: they are this run's to settle, and wait no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resumes: Vec<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; `None` on the entry of its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct RunEnd {
    /// When.
    pub at: Timestamp,
    /// The name of its stop cause, e.g. `max_turns`, or `error`.
    pub stop: String,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Calls that wait for the host. Calls of the same turn that are open beside them wait for these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<DeferredCall>,
    /// What it used, sub-agents and side requests included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Box<AgentStats>>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A run of a session, as far as its entries tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SessionRun {
    /// The run.
    pub id: String,
    /// The run that started it, for a sub-agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// A durable engine records it.
    pub durable: bool,
    /// Calls of an earlier run that the host answered, for this run to settle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resumes: Vec<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// How it ended; `None` while it runs, and for ever when it was dropped or its process died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<RunEnd>,
}

impl RunEntry {
    /// The beginning of a run.
    pub fn start(run_id: impl Into<String>, started_at: Timestamp) -> Self {
        let run_id = run_id.into();
        Self {
            id: child_id(&run_id, "start").to_string(),
            run_id,
            parent_run_id: None,
            durable: false,
            resumes: Vec::new(),
            started_at,
            end: None,
            extra: Extra::default(),
        }
    }

    /// The end of this run.
    #[must_use]
    pub fn ended(&self, end: RunEnd) -> Self {
        Self { id: child_id(&self.run_id, "end").to_string(), end: Some(end), ..self.clone() }
    }
}

impl RunEnd {
    /// An end with the name of a stop cause.
    pub fn new(at: Timestamp, stop: impl Into<String>) -> Self {
        Self { at, stop: stop.into(), error: None, deferred: Vec::new(), stats: None, extra: Extra::default() }
    }
}

impl From<RunEntry> for SessionRun {
    fn from(entry: RunEntry) -> Self {
        let RunEntry { run_id, parent_run_id, durable, resumes, started_at, end, .. } = entry;
        Self { id: run_id, parent_run_id, durable, resumes, started_at, end }
    }
}

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::types::Timestamp;

/// The format of a record.
pub const STEP_FORMAT: u32 = 1;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// The run's beginning: its prompt, its time, what it starts from.
    Start,
    /// A reading of the clock.
    Clock,
    /// Messages taken from a queue.
    Input,
    /// A model call, retries included.
    Model,
    /// The gates of a segment of calls.
    Gate,
    /// A tool call.
    Tool,
    /// The state commits of a segment.
    Commit,
    /// A decision.
    Decision,
    /// A sub-agent.
    Child,
    /// The host's own.
    Custom,
}

/// Names a step: what it does, and where in the run, e.g. `t3/tool/call_7/write_file`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepKey {
    /// What it does.
    pub kind: StepKind,
    /// Where in the run.
    pub name: String,
}

impl std::fmt::Display for StepKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} `{}`", self.kind, self.name)
    }
}

/// What a body is given.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StepCx {
    /// The engine stops this attempt: the body ends with [`StepError::Interrupted`]. `None`: nothing can.
    pub abort: Option<CancellationToken>,
    /// The largest record that the engine takes, in bytes of JSON. `None`: it does not say.
    pub max_record_bytes: Option<usize>,
}

/// Why a body has no value.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StepError {
    /// It failed for good; the failure is recorded and the same on replay.
    Fail(StepFailure),
    /// This attempt ends; nothing is recorded.
    Interrupted,
}

/// A recorded failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// What went wrong.
    pub message: String,
}

/// A step's body. `'static`: it owns what it needs, and its effect on the run is what it returns.
pub type StepBody = Box<dyn FnOnce(StepCx) -> BoxFuture<'static, Result<Value, StepError>> + Send>;

/// Told of a record.
pub type Settled = Box<dyn FnOnce(&StepRecord) + Send>;

/// How a step is done.
#[non_exhaustive]
pub enum Work {
    /// By a body in this process.
    Step(StepBody),
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(_) => f.write_str("Step"),
        }
    }
}

/// A step to be done, or replayed.
#[non_exhaustive]
pub struct Planned {
    /// Its key.
    pub key: StepKey,
    /// How it is done.
    pub work: Work,
    /// Called once with the record, as soon as it stands.
    pub settled: Option<Settled>,
}

impl Planned {
    /// A step with a body.
    #[must_use]
    pub fn new(key: StepKey, body: StepBody) -> Self {
        Self { key, work: Work::Step(body), settled: None }
    }
}

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planned").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What stands on record of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// [`STEP_FORMAT`] of the writer.
    pub v: u32,
    /// The step.
    pub key: StepKey,
    /// What it returned.
    pub outcome: Result<Value, StepFailure>,
    /// When its body began.
    pub started_at: Timestamp,
    /// When its body ended.
    pub ended_at: Timestamp,
    /// It was on record before. Not stored.
    #[serde(skip)]
    pub replayed: bool,
}

impl StepRecord {
    /// A fresh record.
    #[must_use]
    pub const fn new(
        key: StepKey,
        outcome: Result<Value, StepFailure>,
        started_at: Timestamp,
        ended_at: Timestamp,
    ) -> Self {
        Self { v: STEP_FORMAT, key, outcome, started_at, ended_at, replayed: false }
    }
}

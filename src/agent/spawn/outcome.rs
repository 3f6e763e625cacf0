use std::sync::Arc;

use serde_json::Value;

use crate::agent::outcome::{RunError, RunErrorKind, RunOutcome, StopCause};
use crate::agent::{BuildError, Limit};
use crate::hooks::ChildInfo;
use crate::tool::Settled;
use crate::types::{AgentStats, ChildStatus};

/// How a run that was spawned ended. What it used is in the tree of the run that spawned it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildOutcome {
    /// The run, and its place in the tree.
    pub child: Arc<ChildInfo>,
    /// How it ended, in a word.
    pub status: ChildStatus,
    /// What it said last; partial unless it completed.
    pub text: String,
    /// The answer as a value, where it was given an output schema and completed.
    pub output: Option<Value>,
    /// Why it ended, where it did not fail.
    pub stop: Option<StopCause>,
    /// Why it failed, for the host.
    pub error: Option<RunErrorKind>,
    /// What it used, with everything below it.
    pub stats: AgentStats,
}

impl ChildOutcome {
    /// Whether it ended by itself, with all it had to say.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.status == ChildStatus::Completed
    }

    pub(super) fn new(child: Arc<ChildInfo>, result: Result<RunOutcome, RunError>) -> Self {
        match result {
            Ok(outcome) => Self {
                child,
                status: status(&outcome.stop),
                text: outcome.text,
                output: outcome.output,
                stop: Some(outcome.stop),
                error: None,
                stats: outcome.stats,
            },
            Err(error) => {
                let said = error.turns.iter().rev().map(|turn| turn.text()).find(|text| !text.trim().is_empty());
                Self {
                    child,
                    status: ChildStatus::Failed,
                    text: said.unwrap_or_default(),
                    output: None,
                    stop: None,
                    error: Some(error.kind),
                    stats: *error.stats,
                }
            }
        }
    }

    /// What the model is told of an end that is not a completion. The cause of a failure is the host's.
    pub(super) fn shortfall(&self) -> String {
        let name = self.child.name();
        let how = match (&self.stop, self.status) {
            (Some(StopCause::Limit(limit)), _) => format!("was stopped at a limit of {}", limit.as_str()),
            (Some(StopCause::MaxTurns), _) => "was stopped at its turn limit".to_owned(),
            (Some(StopCause::Length), _) => "was cut by the output limit".to_owned(),
            (Some(StopCause::LoopGuard), _) => "was stopped: it went in circles".to_owned(),
            (Some(StopCause::PauseLimit), _) => "was paused too often and stopped".to_owned(),
            (Some(StopCause::ContentFilter), _) => "was stopped by a content filter".to_owned(),
            (Some(StopCause::ToolFailures), _) => "gave up: all its tool calls failed".to_owned(),
            (_, ChildStatus::Aborted) => "was aborted before it was done".to_owned(),
            (_, ChildStatus::Deferred) => "waits for an approval".to_owned(),
            _ => "failed before it was done".to_owned(),
        };
        match self.text.trim() {
            "" => format!("`{name}` {how}. It gave no answer."),
            said => format!("`{name}` {how}. What it said last, which is no final answer:\n\n{said}"),
        }
    }

    /// Why it did not complete, for the host.
    pub(super) fn cause(&self) -> Option<String> {
        match (&self.error, &self.stop) {
            (Some(error), _) => Some(error.to_string()),
            (None, Some(StopCause::Limit(limit))) => Some(format!("limit of {}", limit.as_str())),
            (None, Some(stop)) if !self.is_completed() => Some(stop.as_str().to_owned()),
            _ => None,
        }
    }
}

fn status(stop: &StopCause) -> ChildStatus {
    match stop {
        StopCause::Stop => ChildStatus::Completed,
        StopCause::Aborted | StopCause::Drained => ChildStatus::Aborted,
        StopCause::Deferred(_) => ChildStatus::Deferred,
        StopCause::MaxTurns
        | StopCause::Limit(_)
        | StopCause::Length
        | StopCause::LoopGuard
        | StopCause::PauseLimit => ChildStatus::Limit,
        StopCause::ContentFilter | StopCause::Other | StopCause::Paused | StopCause::ToolFailures => {
            ChildStatus::Failed
        }
    }
}

/// Why a run was not spawned. Its text may be shown to the model.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// The call that would have spawned it has ended, or there is no agent.
    #[error("only a tool call under way can start another agent")]
    Settled,
    /// The run was aborted.
    #[error("the run was aborted; no other agent was started")]
    Aborted,
    /// The tree is as deep as it may become.
    #[error("agents may be nested {max_depth} deep and no deeper; do the task yourself")]
    TooDeep {
        /// How deep.
        max_depth: u32,
    },
    /// As many runs as may be were spawned in the tree.
    #[error("{total} agents were started for this task, which is all there may be; do the rest yourself")]
    TooMany {
        /// How many.
        total: u64,
    },
    /// A limit of the run, or of one above it, is reached.
    #[error("no other agent was started: the limit of {} is reached", .0.as_str())]
    Limit(Limit),
    /// A gate refused; the reason.
    #[error("{0}")]
    Blocked(String),
    /// The child cannot be built.
    #[error("the agent is not set up right")]
    Build(#[source] BuildError),
}

impl From<Settled> for ChildError {
    fn from(Settled: Settled) -> Self {
        Self::Settled
    }
}

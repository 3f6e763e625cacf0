use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AnswerError, Limit};
use crate::control::QueuedMessage;
use crate::durable::DurableError;
use crate::provider::{HistoryTurn, ProviderError};
use crate::session::SessionError;
use crate::types::{AgentStats, DeferredCall, TranscriptError};

/// Why a run ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopCause {
    /// The model ended its turn.
    Stop,
    /// The output limit or the context window was reached; the partial answer is kept.
    Length,
    /// The model, or a filter of the provider, refused.
    ContentFilter,
    /// The provider gave a reason that this version does not know; the raw word is in the turn's usage.
    Other,
    /// The run was aborted.
    Aborted,
    /// The host asked to stop after the current turn.
    Drained,
    /// The turn limit was reached.
    MaxTurns,
    /// The model made the same call over and over; see [`LoopGuard`](super::LoopGuard).
    LoopGuard,
    /// A limit was reached.
    Limit(Limit),
    /// The provider waits for something that only the host can add to the conversation, such as an approval of a call
    /// of its own: an opaque block of the provider, in a user turn after the last one.
    Paused,
    /// The provider paused more often than the cap allows.
    PauseLimit,
    /// Too many batches of calls in a row brought nothing but failures.
    ToolFailures,
    /// Gates left these calls to the host. Nothing is sent before each is answered: [`Run::resume`](super::Run::resume).
    Deferred(Vec<DeferredCall>),
}

impl StopCause {
    /// A short name, e.g. `max_turns`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Other => "other",
            Self::Aborted => "aborted",
            Self::Drained => "drained",
            Self::MaxTurns => "max_turns",
            Self::LoopGuard => "loop_guard",
            Self::Limit(_) => "limit",
            Self::Paused => "paused",
            Self::PauseLimit => "pause_limit",
            Self::ToolFailures => "tool_failures",
            Self::Deferred(_) => "deferred",
        }
    }
}

/// A call that a gate refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Denial {
    /// The run that made the call: this one, or one that it spawned.
    pub run_id: String,
    /// The call.
    pub call_id: String,
    /// The canonical tool name.
    pub name: String,
    /// What the model was told.
    pub reason: String,
}

/// What a run came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunOutcome {
    /// The run.
    pub run_id: String,
    /// The text of its last answer; partial when it was cut.
    pub text: String,
    /// Why it ended.
    pub stop: StopCause,
    /// What it used.
    pub stats: AgentStats,
    /// The turns it added to the session, oldest first.
    pub turns: Vec<Arc<HistoryTurn>>,
    /// Messages that were queued and not delivered. They are still queued.
    pub undelivered: Vec<QueuedMessage>,
    /// Calls that gates refused, here and in what was spawned.
    pub denials: Vec<Denial>,
    /// The answer as a value, where the run was given an output schema and ended with `Stop`.
    pub output: Option<Value>,
}

/// A run that failed. It carries what there is: nothing that was said or paid for is lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunError {
    /// What went wrong.
    pub kind: RunErrorKind,
    /// The turns the run added to the session, oldest first.
    pub turns: Vec<Arc<HistoryTurn>>,
    /// What the run used.
    pub stats: Box<AgentStats>,
    /// Calls that gates refused, here and in what was spawned.
    pub denials: Vec<Denial>,
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// What went wrong with a run.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// The agent is at work; wait for it, steer it, or abort it.
    #[error("the agent is already running")]
    AlreadyRunning,
    /// There is no prompt, and the conversation does not end in anything to answer.
    #[error("nothing to do: no prompt was given and the conversation ends with the model's turn")]
    NothingToDo,
    /// The run was polled outside a tokio runtime.
    #[error("a run needs a tokio runtime with time enabled")]
    NoRuntime,
    /// The provider failed, or cannot take the prompt.
    #[error(transparent)]
    Provider(Box<ProviderError>),
    /// A hook that shapes the request failed.
    #[error("hook {hook} failed: {message}")]
    Hook {
        /// The event.
        hook: String,
        /// Why.
        message: String,
    },
    /// The turns to be sent do not pair calls and results; nothing was sent.
    #[error("the conversation to be sent is not valid: {0}")]
    Transcript(TranscriptError),
    /// The answer does not match the output schema, after the tries that were allowed; or the schema cannot be used.
    #[error("structured output: {0}")]
    Output(String),
    /// The tool state could not be loaded.
    #[error("tool state could not be loaded: {0}")]
    ToolState(String),
    /// The session could not be loaded or stored, or somebody else has appended to it. What is stored is valid; the next
    /// run reads it again and goes on from there, without what this run could not store.
    #[error(transparent)]
    Session(SessionError),
    /// Calls of the session wait for the host, or for a durable run that has not ended. Nothing was stored or sent.
    #[error("run `{run_id}` has calls that wait: {}", calls.join(", "))]
    Pending {
        /// The run that made them.
        run_id: String,
        /// Their ids.
        calls: Vec<String>,
    },
    /// An answer to a deferred call cannot be taken. Nothing was stored, and no call was run.
    #[error("call `{call_id}` cannot be answered: {error}")]
    Answer {
        /// The call.
        call_id: String,
        /// Why.
        error: AnswerError,
    },
    /// The durable engine cannot go on.
    #[error(transparent)]
    Durable(DurableError),
    /// A step came to nothing.
    #[error("{0}")]
    Step(String),
}

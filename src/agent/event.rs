use std::sync::Arc;

use super::{RunError, RunOutcome};
use crate::control::MessageId;
use crate::hooks::{ChildInfo, CompactionReason};
use crate::provider::HistoryTurn;
use crate::tool::ToolUpdate;
use crate::types::{ChildStatus, ToolResultBlock, TurnUsage};

/// What a streamed run tells, as it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AgentEvent {
    /// A model request is about to be made.
    TurnStart {
        /// The turn's number in the run, from 1.
        number: u32,
    },
    /// The model said something.
    Text {
        /// What is new.
        delta: String,
    },
    /// The model reasoned.
    Thinking {
        /// What is new.
        delta: String,
    },
    /// The model calls a tool; its arguments are still to come.
    ToolCall {
        /// The call; empty when the wire gave no id yet.
        call_id: String,
        /// The name as the model wrote it.
        name: String,
    },
    /// What was streamed of this turn is void.
    Reset,
    /// A request failed and is made again.
    Retry {
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Why.
        error: Box<crate::provider::ProviderError>,
    },
    /// A tool is about to run.
    ToolStart {
        /// The call.
        call_id: String,
        /// The canonical name.
        name: String,
    },
    /// A running tool reported progress.
    ToolUpdate {
        /// The call.
        call_id: String,
        /// What it reported.
        update: ToolUpdate,
    },
    /// The result of a call is final.
    ToolEnd {
        /// The result as it is stored.
        result: Arc<ToolResultBlock>,
    },
    /// A steering message became a turn.
    Steered {
        /// The message.
        id: MessageId,
    },
    /// A summary stands in for the older turns of the conversation from now on.
    Compacted {
        /// Why.
        reason: CompactionReason,
        /// The turn that stands in.
        summary: Arc<HistoryTurn>,
        /// The id of the last turn that it stands in for.
        through: String,
        /// Size of the conversation before, in tokens.
        before: u64,
        /// Size of the conversation now, in tokens; an estimate.
        after: u64,
    },
    /// The conversation was to be compacted and was not; it is as it was.
    CompactionFailed {
        /// Why it was to be.
        reason: CompactionReason,
        /// Why it was not.
        error: String,
    },
    /// A turn has settled, cut and failed ones included. One in which nothing was sent has none.
    TurnEnd {
        /// The turn's number in the run, from 1.
        number: u32,
        /// What it used.
        usage: Arc<TurnUsage>,
    },
    /// A tool spawned a run.
    ChildStart {
        /// The run.
        child: Arc<ChildInfo>,
        /// What it is to do.
        task: String,
    },
    /// Something happened in a run that was spawned, here or below.
    Child {
        /// The run, and its place in the tree.
        child: Arc<ChildInfo>,
        /// What happened. Never [`Child`](Self::Child), [`ChildStart`](Self::ChildStart), [`ChildEnd`](Self::ChildEnd)
        /// or [`Done`](Self::Done).
        event: Box<AgentEvent>,
    },
    /// A run that was spawned has ended.
    ChildEnd {
        /// The run.
        child: Arc<ChildInfo>,
        /// How.
        status: ChildStatus,
    },
    /// The run has ended. The last event of every stream.
    Done(Result<Box<RunOutcome>, Box<RunError>>),
}

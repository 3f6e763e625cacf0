use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Extra, SessionContentBlock, ToolCallBlock, ToolResultBlock, TurnFinishReason, TurnUsage};

/// Milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// Whose turn it is. Tool results are a user turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Role {
    /// The user, the host, or the results of tools.
    User,
    /// The model.
    Assistant,
}

/// Where a turn came from. Everything the loop adds is a stored turn with its origin; nothing exists on the wire only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnOrigin {
    /// The prompt of a run.
    Prompt,
    /// The model.
    Model,
    /// The results of a turn's calls.
    Results,
    /// A steering message.
    Steering,
    /// A follow-up message.
    FollowUp,
    /// The nudge after too much tool output.
    Budget,
    /// The continuation of a paused turn.
    Pause,
    /// The one continuation after an empty or cut answer.
    Continue,
    /// Synthesized by repair.
    Repair,
    /// The summary that stands for compacted turns.
    Summary,
    /// A newer format's.
    #[serde(other)]
    Unknown,
}

/// A call that is not answered yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingCall {
    /// The call.
    pub call_id: String,
    /// It waits for the host: a gate deferred it, or one that comes before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl PendingCall {
    /// A call whose body has not been answered yet.
    pub fn open(call_id: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), deferred: false, extra: Extra::default() }
    }

    /// A call that waits for the host.
    pub fn deferred(call_id: impl Into<String>) -> Self {
        Self { deferred: true, ..Self::open(call_id) }
    }
}

/// One turn of a conversation. A plain value that knows no wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionTurn {
    /// Unique in the session.
    pub id: String,
    /// The run that made it.
    pub run_id: String,
    /// Whose it is.
    pub role: Role,
    /// Where it came from.
    pub origin: TurnOrigin,
    /// Its blocks, in the order streamed.
    pub content: Vec<SessionContentBlock>,
    /// What it cost; on assistant turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Arc<TurnUsage>>,
    /// Why the model stopped; on assistant turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<TurnFinishReason>,
    /// When it was made, by the run's clock.
    pub created_at: Timestamp,
    /// Calls of this turn that are open or deferred. Empty once the results turn stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingCall>,
    /// The turn was cut by an abort or an error: what it holds is what had arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Rolling digest of everything the model had before it, where its reasoning is bound to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_digest: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl SessionTurn {
    /// A turn with the given content and nothing else known about it.
    pub fn new(id: impl Into<String>, role: Role, origin: TurnOrigin, content: Vec<SessionContentBlock>) -> Self {
        Self {
            id: id.into(),
            run_id: String::new(),
            role,
            origin,
            content,
            usage: None,
            finish_reason: None,
            created_at: Timestamp::default(),
            pending: Vec::new(),
            interrupted: false,
            prefix_digest: None,
            extra: Extra::default(),
        }
    }

    /// All text of the turn, blocks joined without a separator (they were one answer).
    #[must_use]
    pub fn text(&self) -> String {
        self.content.iter().filter_map(SessionContentBlock::as_text).collect()
    }

    /// The complete tool calls, in call order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCallBlock> {
        self.content.iter().filter_map(SessionContentBlock::as_tool_call)
    }

    /// The tool results, in call order.
    pub fn tool_results(&self) -> impl Iterator<Item = &ToolResultBlock> {
        self.content.iter().filter_map(SessionContentBlock::as_tool_result)
    }
}

//! Calls of tools that the provider runs itself. Their results come in the same answer or in its continuation; a call
//! that never got one must not be sent any more once the conversation went elsewhere.

use std::sync::Arc;

use serde_json::Value;

use super::super::HistoryTurn;
use crate::types::{Role, SessionContentBlock, SessionTurn, SignatureProducer};

/// What became of a server call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// It may still be answered: what follows so far continues the turn.
    Open,
    /// The conversation went on without an answer.
    Abandoned,
}

/// The id of a server call, if the block is one.
pub(super) fn call_of<'a>(block: &'a SessionContentBlock, producer: &SignatureProducer) -> Option<&'a str> {
    let SessionContentBlock::Opaque(opaque) = block else { return None };
    let kind = opaque.value.get("type").and_then(Value::as_str)?;
    let is_call = opaque.producer == *producer && matches!(kind, "server_tool_use" | "mcp_tool_use");
    is_call.then(|| opaque.value.get("id").and_then(Value::as_str)).flatten()
}

fn answers(turn: &SessionTurn, id: &str) -> bool {
    turn.content.iter().any(|block| match block {
        SessionContentBlock::Opaque(opaque) => opaque.value.get("tool_use_id").and_then(Value::as_str) == Some(id),
        _ => false,
    })
}

/// Whether a turn holds a server call without its result.
pub(super) fn has_unanswered(turn: &SessionTurn, producer: &SignatureProducer) -> bool {
    turn.content.iter().filter_map(|block| call_of(block, producer)).any(|id| !answers(turn, id))
}

/// What became of the call `id` of turn `index`. Continuations are further assistant turns, with nothing but tool
/// results in between.
pub(super) fn fate(turns: &[Arc<HistoryTurn>], index: usize, id: &str) -> Fate {
    for (place, turn) in turns.get(index..).unwrap_or_default().iter().enumerate() {
        match turn.role {
            Role::Assistant if answers(turn, id) => return Fate::Answered,
            Role::Assistant => {}
            Role::User if place > 0 && is_results_only(turn) => {}
            Role::User => return Fate::Abandoned,
        }
    }
    Fate::Open
}

/// Whether the encoding of turn `index` can still change with what follows.
pub(super) fn is_open(turns: &[Arc<HistoryTurn>], index: usize, producer: &SignatureProducer) -> bool {
    turns.get(index).is_some_and(|turn| {
        turn.content.iter().filter_map(|block| call_of(block, producer)).any(|id| fate(turns, index, id) == Fate::Open)
    })
}

fn is_results_only(turn: &SessionTurn) -> bool {
    turn.content.iter().all(|block| matches!(block, SessionContentBlock::ToolResult(_)))
}

use std::sync::Arc;

use super::HistoryTurn;
use crate::types::{Role, SessionContentBlock, SessionTurn, TurnFinishReason};

/// The blocks of turn `index` that may go on a wire, in order. Nothing left means that the turn is omitted.
///
/// A pure function of this turn and the one before it, so that what was encoded once stays as it is:
/// - cut calls and unknown blocks are never sent, nor is blank text without a signature;
/// - a refused answer (`content-filter`) is not sent, and neither are the results of its calls;
/// - in an interrupted turn, reasoning that nothing follows is cut: APIs refuse it.
pub(crate) fn outgoing(turns: &[Arc<HistoryTurn>], index: usize) -> Vec<&SessionContentBlock> {
    let Some(turn) = turns.get(index) else { return Vec::new() };
    match turn.role {
        Role::Assistant => outgoing_assistant(turn),
        Role::User => {
            let refused = index
                .checked_sub(1)
                .and_then(|before| turns.get(before))
                .is_some_and(|before| before.role == Role::Assistant && is_refused(before));
            turn.content
                .iter()
                .filter(|block| match block {
                    SessionContentBlock::ToolResult(_) => !refused,
                    other => is_sendable(other),
                })
                .collect()
        }
    }
}

fn outgoing_assistant(turn: &SessionTurn) -> Vec<&SessionContentBlock> {
    if is_refused(turn) {
        return Vec::new();
    }
    let mut blocks: Vec<_> = turn.content.iter().filter(|block| is_sendable(block)).collect();
    if turn.interrupted {
        while let Some(SessionContentBlock::Thinking(_) | SessionContentBlock::Opaque(_)) = blocks.last() {
            blocks.pop();
        }
    }
    blocks
}

fn is_refused(turn: &SessionTurn) -> bool {
    turn.finish_reason == Some(TurnFinishReason::ContentFilter)
}

fn is_sendable(block: &SessionContentBlock) -> bool {
    match block {
        SessionContentBlock::Text(text) => text.signature.is_some() || !text.text.trim().is_empty(),
        SessionContentBlock::PartialToolCall(_) | SessionContentBlock::Unknown(_) => false,
        _ => true,
    }
}

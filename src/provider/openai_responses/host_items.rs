//! Items that wait for the host: calls of tools that run on its side, and requests for its approval. They go back only
//! with their answer, an item that stands in the same turn or in the next; the API refuses them without.

use std::sync::Arc;

use serde_json::Value;

use crate::provider::HistoryTurn;
use crate::types::{SessionContentBlock, SessionTurn, SignatureProducer};

/// What became of an item that waits for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    /// No turn followed yet.
    Open,
    Unanswered,
}

fn text<'a>(item: &'a Value, field: &str) -> &'a str {
    item.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the answer to `item` is `other`. `None` when `item` waits for nobody.
fn answer_to(item: &Value) -> Option<impl Fn(&Value) -> bool> {
    let (answer, field, id) = match text(item, "type") {
        "computer_call" => ("computer_call_output", "call_id", text(item, "call_id")),
        "shell_call" => ("shell_call_output", "call_id", text(item, "call_id")),
        "apply_patch_call" => ("apply_patch_call_output", "call_id", text(item, "call_id")),
        // Its answer has the call's id for an id of its own.
        "local_shell_call" => ("local_shell_call_output", "id", text(item, "call_id")),
        "tool_search_call" if text(item, "execution") == "client" => {
            ("tool_search_output", "call_id", text(item, "call_id"))
        }
        "mcp_approval_request" => ("mcp_approval_response", "approval_request_id", text(item, "id")),
        _ => return None,
    };
    Some(move |other: &Value| {
        text(other, "type") == answer && (text(other, field) == id || text(other, "call_id") == id)
    })
}

/// What became of `item` of turn `index`. `None` when it waits for nobody.
pub(super) fn fate(
    turns: &[Arc<HistoryTurn>],
    index: usize,
    item: &Value,
    producer: &SignatureProducer,
) -> Option<Fate> {
    let is_answer = answer_to(item)?;
    let answers = |turn: &Arc<HistoryTurn>| {
        turn.content.iter().any(|block| match block {
            SessionContentBlock::Opaque(opaque) => opaque.producer == *producer && is_answer(&opaque.value),
            _ => false,
        })
    };
    let next = turns.get(index.saturating_add(1));
    if turns.get(index).is_some_and(answers) || next.is_some_and(answers) {
        return Some(Fate::Answered);
    }
    Some(if next.is_none() { Fate::Open } else { Fate::Unanswered })
}

/// Whether a turn holds an item that waits for the host, and not its answer.
pub(super) fn waits(turn: &SessionTurn, producer: &SignatureProducer) -> bool {
    let items = || {
        turn.content.iter().filter_map(|block| match block {
            SessionContentBlock::Opaque(opaque) if opaque.producer == *producer => Some(&opaque.value),
            _ => None,
        })
    };
    items().filter_map(answer_to).any(|is_answer| !items().any(is_answer))
}

/// Whether the encoding of turn `index` can still change with the next one.
pub(super) fn is_open(turns: &[Arc<HistoryTurn>], index: usize, producer: &SignatureProducer) -> bool {
    let Some(turn) = turns.get(index).filter(|_| turns.len() == index.saturating_add(1)) else { return false };
    turn.content.iter().any(|block| match block {
        SessionContentBlock::Opaque(opaque) => {
            opaque.producer == *producer && fate(turns, index, &opaque.value, producer) == Some(Fate::Open)
        }
        _ => false,
    })
}

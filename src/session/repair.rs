use std::sync::Arc;

use uuid::Uuid;

use crate::provider::{History, HistoryTurn};
use crate::types::{Extra, Role, SessionContentBlock, SessionTurn, Timestamp, ToolResultBlock, ToolStatus, TurnOrigin};

pub(crate) const INTERRUPTED: &str =
    "This call was interrupted before its result was recorded. It may or may not have taken effect.";

pub(crate) const ABANDONED: &str =
    "This call waited for the host, which gave it up. It was not started and had no effect.";

/// What was missing from a conversation, and the turn that settles it.
#[derive(Debug)]
pub(crate) struct Repair {
    pub(crate) turn: SessionTurn,
    /// Calls answered with a synthesized result.
    pub(crate) answered: Vec<String>,
}

/// Settles the calls of the last turn: results that were kept stay, calls that wait for the host are `not_started`, the
/// rest is `interrupted`. `None` when all is well. Deterministic in its ids and texts.
pub(crate) fn repair(
    history: &History,
    kept: Vec<Arc<ToolResultBlock>>,
    run_id: &str,
    at: Timestamp,
) -> Option<Repair> {
    let last: &HistoryTurn = history.last()?;
    if last.role != Role::Assistant || last.tool_calls().next().is_none() {
        return None;
    }
    let mut answered = Vec::new();
    let mut content = Vec::new();
    for call in last.tool_calls() {
        let result = match kept.iter().find(|result| result.call_id == call.id) {
            Some(result) => ToolResultBlock::clone(result),
            None => {
                answered.push(call.id.clone());
                let waits = last.pending.iter().any(|pending| pending.deferred && pending.call_id == call.id);
                let (text, status) = match waits {
                    true => (ABANDONED, ToolStatus::NotStarted),
                    false => (INTERRUPTED, ToolStatus::Interrupted),
                };
                ToolResultBlock {
                    call_id: call.id.clone(),
                    name: call.name.clone(),
                    input: None,
                    output: text.into(),
                    is_error: true,
                    status,
                    outcome: None,
                    structured: None,
                    extra: Extra::default(),
                }
            }
        };
        content.push(SessionContentBlock::ToolResult(result));
    }
    let origin = if answered.is_empty() { TurnOrigin::Results } else { TurnOrigin::Repair };
    let mut turn = SessionTurn::new(child_id(&last.id, "results").to_string(), Role::User, origin, content);
    turn.run_id = run_id.to_owned();
    turn.created_at = at;
    Some(Repair { turn, answered })
}

/// An id that belongs to a turn, the same whoever makes it.
pub(crate) fn child_id(turn_id: &str, what: &str) -> Uuid {
    let parent = Uuid::parse_str(turn_id).unwrap_or_else(|_| Uuid::new_v5(&Uuid::NAMESPACE_OID, turn_id.as_bytes()));
    Uuid::new_v5(&parent, what.as_bytes())
}

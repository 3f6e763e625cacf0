//! Call ids that are unique over a conversation, as the API wants them. Other vendors begin anew with every answer.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::HistoryTurn;
use super::super::names::call_id;
use crate::types::{Role, SessionTurn};

/// The vendor documents no length for call ids; nothing real is longer.
const MAX_CALL_ID: usize = 128;

/// The ids of the calls of one turn after the other.
#[derive(Debug, Default)]
pub(super) struct CallIds<'a> {
    /// Calls of the turn at hand whose id an earlier turn has.
    repeated: HashMap<&'a str, String>,
    /// The ids of the turns before this one, once they were needed.
    seen: HashSet<&'a str>,
    seen_turns: usize,
}

impl<'a> CallIds<'a> {
    /// Goes to assistant turn `index`. The results that follow it belong to it too.
    ///
    /// Turns of the `provider` itself are left as they are, so that its own conversations cost nothing here.
    pub(super) fn go_to(&mut self, turns: &'a [Arc<HistoryTurn>], index: usize, provider: &str) {
        self.repeated.clear();
        let Some(turn) = turns.get(index).filter(|turn| !is_own(turn, provider)) else { return };
        if turn.tool_calls().next().is_none() {
            return;
        }
        for before in turns.get(self.seen_turns..index).unwrap_or_default() {
            self.seen.extend(before.tool_calls().map(|call| call.id.as_str()));
        }
        self.seen_turns = self.seen_turns.max(index);
        for call in turn.tool_calls().filter(|call| self.seen.contains(call.id.as_str())) {
            let unique = format!("{}/{}", call.id, turn.id);
            self.repeated.insert(&call.id, call_id(&unique, MAX_CALL_ID).into_owned());
        }
    }

    /// Goes to the turn whose results turn `from` would hold.
    pub(super) fn go_before(&mut self, turns: &'a [Arc<HistoryTurn>], from: usize, provider: &str) {
        let before = turns.get(..from).unwrap_or_default();
        if let Some(index) = before.iter().rposition(|turn| turn.role == Role::Assistant) {
            self.go_to(turns, index, provider);
        }
    }

    /// The id that goes out.
    pub(super) fn wire_id<'i>(&'i self, id: &'i str) -> Cow<'i, str> {
        self.repeated.get(id).map_or_else(|| call_id(id, MAX_CALL_ID), |unique| Cow::Borrowed(unique))
    }
}

/// Turns that nobody is known to have made count as the provider's.
fn is_own(turn: &SessionTurn, provider: &str) -> bool {
    turn.usage.as_ref().is_none_or(|usage| *usage.provider == *provider)
}

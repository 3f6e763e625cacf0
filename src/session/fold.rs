use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Serialize;

use super::{ResultEntry, RunEntry, Session, SessionEntry, SessionRun, StoredSession, SummaryEntry, child_id};
use crate::provider::HistoryTurn;
use crate::types::{
    DeferredCall, PendingCall, Role, SessionContentBlock, SessionTurn, ToolCallBlock, ToolResultBlock, TurnOrigin,
};

/// Something in a log that was left out, because it can belong to no conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "note", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum FoldNote {
    /// An id is there twice; the first entry counts.
    DuplicateEntry {
        /// The id.
        id: String,
    },
    /// A result of a call that no turn has made.
    OrphanResult {
        /// The turn it names.
        turn_id: String,
        /// The call it names.
        call_id: String,
    },
    /// A summary of turns up to one that is not there.
    OrphanSummary {
        /// The summary.
        id: String,
        /// The turn it names.
        through: String,
    },
}

/// Makes the conversation of a log. Pure: the same log gives the same session, and a log that goes on gives one that
/// goes on.
///
/// The results of a turn's calls become one turn, in call order, right after it; its id is derived from the turn's, its
/// time is that of the last result. While calls of the last turn are open, their siblings' results are in
/// [`Session::open`] instead.
#[must_use]
pub fn fold(id: impl Into<String>, stored: StoredSession) -> Session {
    let mut session = Session::new(id);
    session.version = stored.version;
    let mut log = Log::default();
    for entry in stored.entries {
        log.take(entry, &mut session);
    }
    log.finish(&mut session);
    session
}

#[derive(Default)]
struct Log {
    slots: Vec<Slot>,
    /// Where each turn stands.
    places: HashMap<String, usize>,
    ids: HashSet<String>,
    runs: HashMap<String, usize>,
    summaries: Vec<SummaryEntry>,
    /// Calls of the last turn that were left to the host.
    deferred: Vec<DeferredCall>,
    /// Calls of the last turn that the host has answered.
    resumed: HashSet<String>,
}

/// A turn, and the results of its calls that are entries of their own.
struct Slot {
    turn: Arc<HistoryTurn>,
    results: Vec<ResultEntry>,
    repaired: bool,
}

impl Log {
    fn take(&mut self, entry: SessionEntry, session: &mut Session) {
        if !self.ids.insert(entry.id().to_owned()) {
            session.notes.push(FoldNote::DuplicateEntry { id: entry.id().to_owned() });
            return;
        }
        match entry {
            SessionEntry::Turn(turn) => {
                self.deferred.clear();
                self.resumed.clear();
                self.places.insert(turn.id.clone(), self.slots.len());
                self.slots.push(Slot { turn, results: Vec::new(), repaired: false });
            }
            SessionEntry::Result(entry) => self.take_result(entry, session),
            SessionEntry::Repair(entry) => {
                if let Some(slot) = self.slot(&entry.turn_id) {
                    slot.repaired = true;
                }
                session.repairs.push(entry);
            }
            SessionEntry::Run(entry) => self.take_run(*entry, session),
            SessionEntry::Summary(entry) => self.summaries.push(entry),
            SessionEntry::Vision(entry) => {
                session.visions.entry(entry.digest.clone()).or_insert(*entry);
            }
            SessionEntry::Metadata(entry) => {
                for (key, value) in entry.values {
                    if value.is_null() {
                        session.metadata.remove(&key);
                    } else {
                        session.metadata.insert(key, value);
                    }
                }
            }
            SessionEntry::Unknown(entry) => session.unknown.push(entry),
        }
    }

    fn slot(&mut self, turn_id: &str) -> Option<&mut Slot> {
        self.places.get(turn_id).and_then(|place| self.slots.get_mut(*place))
    }

    fn take_result(&mut self, entry: ResultEntry, session: &mut Session) {
        match self.slot(&entry.turn_id) {
            Some(slot) if slot.turn.tool_calls().any(|call| call.id == entry.result.call_id) => {
                slot.results.push(entry)
            }
            _ => session
                .notes
                .push(FoldNote::OrphanResult { turn_id: entry.turn_id, call_id: entry.result.call_id.clone() }),
        }
    }

    fn take_run(&mut self, entry: RunEntry, session: &mut Session) {
        match &entry.end {
            Some(end) => {
                self.deferred.clone_from(&end.deferred);
                self.resumed.retain(|id| !end.deferred.iter().any(|call| call.call_id == *id));
            }
            // Whatever became of them, nobody is asked about them again.
            None => {
                let goes_on = !entry.resumes.is_empty();
                self.deferred.retain(|call| goes_on && !entry.resumes.contains(&call.call_id));
                self.resumed.extend(entry.resumes.iter().cloned());
            }
        }
        let run = SessionRun::from(entry);
        let place = *self.runs.entry(run.id.clone()).or_insert(session.runs.len());
        match session.runs.get_mut(place) {
            Some(known) if run.end.is_some() => *known = run,
            Some(_) => {}
            None => session.runs.push(run),
        }
    }

    fn finish(self, session: &mut Session) {
        let Self { slots, deferred, resumed, summaries, .. } = self;
        let mut slots = slots.into_iter().peekable();
        while let Some(Slot { turn, results, repaired }) = slots.next() {
            // A results turn that is an entry itself, as in a conversation from elsewhere.
            let next = slots.peek().map(|slot| Arc::clone(&slot.turn));
            let whole = next.filter(|next| next.role == Role::User && next.tool_results().next().is_some());
            let answered: HashSet<&str> = results
                .iter()
                .map(|entry| entry.result.call_id.as_str())
                .chain(whole.iter().flat_map(|turn| turn.tool_results()).map(|result| result.call_id.as_str()))
                .collect();
            let last = slots.peek().is_none();
            let settled = turn.tool_calls().all(|call| answered.contains(call.id.as_str()));
            let turn_id = turn.id.clone();
            let calls: Vec<String> = turn.tool_calls().map(|call| call.id.clone()).collect();
            let waits = !deferred.is_empty();
            let turn = with_pending(turn, &answered, |call| {
                (call.deferred || (last && waits)) && !(last && resumed.contains(&call.call_id))
            });
            if last && !settled {
                session.deferred = waiting(&turn, &deferred);
            }
            session.turns.push(turn);
            if results.is_empty() || whole.is_some() {
                continue;
            }
            if last && !settled {
                session.open = in_call_order(&calls, results).into_iter().map(|entry| entry.result).collect();
            } else {
                // The run that settled the last of them.
                let run_id = results.last().map(|entry| entry.run_id.clone()).unwrap_or_default();
                session.turns.push(results_turn(&turn_id, in_call_order(&calls, results), repaired, run_id));
            }
        }
        // Only now: a summary may go through a results turn, which is no entry.
        let turns: HashSet<&str> = session.turns.iter().map(|turn| turn.id.as_str()).collect();
        for summary in summaries {
            if turns.contains(summary.through.as_str()) {
                session.summaries.push(summary);
            } else {
                session.notes.push(FoldNote::OrphanSummary { id: summary.id, through: summary.through });
            }
        }
    }
}

fn in_call_order(calls: &[String], mut results: Vec<ResultEntry>) -> Vec<ResultEntry> {
    if let [_, _, ..] = results.as_slice() {
        let places: BTreeMap<&str, usize> = calls.iter().zip(0..).map(|(call, place)| (call.as_str(), place)).collect();
        results.sort_by_key(|entry| places.get(entry.result.call_id.as_str()).copied());
    }
    results
}

/// The turn with its pending calls as they are now: what is answered is not pending any more.
pub(super) fn with_pending(
    turn: Arc<HistoryTurn>,
    answered: &HashSet<&str>,
    waits: impl Fn(&PendingCall) -> bool,
) -> Arc<HistoryTurn> {
    let is_answered = |pending: &PendingCall| answered.contains(pending.call_id.as_str());
    if !turn.pending.iter().any(|pending| is_answered(pending) || pending.deferred != waits(pending)) {
        return turn;
    }
    let mut turn = owned(turn);
    turn.pending.retain(|pending| !is_answered(pending));
    for pending in &mut turn.pending {
        pending.deferred = waits(pending);
    }
    Arc::new(HistoryTurn::new(turn))
}

/// The open calls of a turn that wait for an answer: those on record, or else those that the turn says so of.
pub(super) fn waiting(turn: &HistoryTurn, deferred: &[DeferredCall]) -> Vec<DeferredCall> {
    if deferred.is_empty() {
        return DeferredCall::of_turn(turn);
    }
    let open = |id: &str| turn.pending.iter().any(|pending| pending.deferred && pending.call_id == id);
    let on_record = |call: &ToolCallBlock| deferred.iter().find(|known| known.call_id == call.id);
    let calls = turn.tool_calls().filter(|call| open(&call.id));
    calls
        .filter_map(|call| {
            let mut known = on_record(call)?.clone();
            known.complete(call);
            Some(known)
        })
        .collect()
}

fn owned(turn: Arc<HistoryTurn>) -> SessionTurn {
    Arc::try_unwrap(turn).unwrap_or_else(|shared| HistoryTurn::clone(&shared)).into_inner()
}

fn results_turn(turn_id: &str, results: Vec<ResultEntry>, repaired: bool, run_id: String) -> Arc<HistoryTurn> {
    let origin = if repaired { TurnOrigin::Repair } else { TurnOrigin::Results };
    let at = results.iter().map(|entry| entry.at).max().unwrap_or_default();
    let content = results
        .into_iter()
        .map(|entry| {
            let result = Arc::try_unwrap(entry.result).unwrap_or_else(|shared| ToolResultBlock::clone(&shared));
            SessionContentBlock::ToolResult(result)
        })
        .collect();
    let mut turn = SessionTurn::new(child_id(turn_id, "results").to_string(), Role::User, origin, content);
    turn.run_id = run_id;
    turn.created_at = at;
    Arc::new(HistoryTurn::new(turn))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{MetadataEntry, RepairEntry, RunEnd};
    use crate::types::{Extra, Timestamp, ToolStatus, validate_transcript};

    fn user(id: &str, text: &str) -> SessionEntry {
        SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
    }

    fn calls(id: &str, calls: &[&str]) -> SessionEntry {
        let content = calls
            .iter()
            .map(|call| {
                let call = ToolCallBlock { id: (*call).into(), name: "look".into(), ..ToolCallBlock::default() };
                SessionContentBlock::ToolCall(call)
            })
            .collect();
        let mut turn = SessionTurn::new(id, Role::Assistant, TurnOrigin::Model, content);
        turn.pending = calls.iter().copied().map(PendingCall::open).collect();
        turn.into()
    }

    fn result(turn: &str, call: &str, run: &str, at: u64) -> SessionEntry {
        let result = ToolResultBlock {
            call_id: call.into(),
            name: "look".into(),
            input: None,
            output: format!("saw {call}").into(),
            is_error: false,
            status: ToolStatus::Ok,
            outcome: None,
            structured: None,
            extra: Extra::default(),
        };
        SessionEntry::Result(ResultEntry::new(turn, run, Timestamp(at), result))
    }

    fn folded(entries: Vec<SessionEntry>) -> Session {
        fold("s", StoredSession::new(entries))
    }

    fn valid(session: &Session) -> bool {
        validate_transcript(session.turns.iter().map(|turn| &***turn)).is_ok()
    }

    #[test]
    fn results_become_a_turn_in_call_order() {
        let session = folded(vec![
            user("u", "go"),
            calls("a", &["1", "2", "3"]),
            result("a", "3", "r", 10),
            result("a", "1", "r", 30),
            result("a", "2", "r", 20),
            user("u2", "and"),
        ]);
        assert_eq!((session.version, session.turns.len(), session.notes.len()), (6, 4, 0));
        let results = &session.turns[2];
        let order: Vec<_> = results.tool_results().map(|result| result.call_id.as_str()).collect();
        assert_eq!(order, ["1", "2", "3"]);
        assert_eq!(results.id, child_id("a", "results").to_string());
        assert_eq!(
            (results.run_id.as_str(), results.created_at, results.origin),
            ("r", Timestamp(30), TurnOrigin::Results)
        );
        assert!(session.turns[1].pending.is_empty(), "nothing is pending once the results stand");
        assert!(session.open.is_empty() && valid(&session));
    }

    #[test]
    fn results_wait_while_their_siblings_are_open() {
        let entries =
            vec![user("u", "go"), calls("a", &["1", "2", "3"]), result("a", "3", "r", 1), result("a", "1", "r", 2)];
        let session = folded(entries.clone());
        assert_eq!(session.turns.len(), 2);
        let open: Vec<_> = session.open.iter().map(|result| result.call_id.as_str()).collect();
        assert_eq!(open, ["1", "3"]);
        assert_eq!(session.turns[1].pending, [PendingCall::open("2")]);
        assert!(!valid(&session));

        let mut repaired = entries;
        repaired.push(SessionEntry::Repair(RepairEntry::new("a", "r2", Timestamp(9), vec!["2".into()], vec![])));
        repaired.push(result("a", "2", "r2", 9));
        let session = folded(repaired);
        assert!(session.open.is_empty() && valid(&session));
        let results = &session.turns[2];
        assert_eq!(
            (results.origin, results.run_id.as_str(), results.created_at),
            (TurnOrigin::Repair, "r2", Timestamp(9))
        );
        assert_eq!(session.repairs.len(), 1);
    }

    #[test]
    fn deferred_calls_are_those_of_the_last_end() {
        let run = RunEntry::start("r", Timestamp(1));
        let mut end = RunEnd::new(Timestamp(5), "deferred");
        end.deferred.push(DeferredCall::new("2"));
        let mut entries = vec![
            SessionEntry::Run(Box::new(run.clone())),
            user("u", "go"),
            calls("a", &["1", "2"]),
            result("a", "1", "r", 3),
            SessionEntry::Run(Box::new(run.ended(end))),
        ];
        let session = folded(entries.clone());
        assert_eq!(session.turns[1].pending, [PendingCall::deferred("2")]);
        assert_eq!(session.open.len(), 1);
        assert_eq!(session.runs.len(), 1);
        assert_eq!(session.runs[0].end.as_ref().map(|end| end.stop.as_str()), Some("deferred"));

        entries.push(SessionEntry::Run(Box::new(RunEntry::start("r2", Timestamp(8)))));
        entries.push(result("a", "2", "r2", 9));
        let session = folded(entries);
        assert_eq!((session.turns.len(), session.runs.len(), session.open.len()), (3, 2, 0));
        assert!(session.turns[1].pending.is_empty() && valid(&session));
    }

    #[test]
    fn what_belongs_nowhere_is_left_out_and_noted() {
        let session = folded(vec![
            user("u", "go"),
            user("u", "again"),
            calls("a", &["1"]),
            result("a", "1", "r", 1),
            result("a", "nobody", "r", 1),
            result("nowhere", "1", "r", 1),
            SessionEntry::Summary(SummaryEntry::new(
                "gone",
                Arc::new(HistoryTurn::new(SessionTurn::new(
                    "sum",
                    Role::User,
                    TurnOrigin::Summary,
                    vec![SessionContentBlock::text("short")],
                ))),
            )),
        ]);
        assert_eq!(session.turns[0].text(), "go", "the first counts");
        assert_eq!(session.turns.len(), 3);
        assert_eq!(
            session.notes,
            [
                FoldNote::DuplicateEntry { id: "u".into() },
                FoldNote::OrphanResult { turn_id: "a".into(), call_id: "nobody".into() },
                FoldNote::OrphanResult { turn_id: "nowhere".into(), call_id: "1".into() },
                FoldNote::OrphanSummary { id: "sum".into(), through: "gone".into() },
            ]
        );
        assert!(session.summaries.is_empty() && valid(&session));
    }

    #[test]
    fn a_results_turn_that_is_stored_whole_is_not_doubled() {
        let made = folded(vec![user("u", "go"), calls("a", &["1"]), result("a", "1", "r", 1)]);
        let whole: Vec<SessionEntry> = made.turns.iter().cloned().map(SessionEntry::Turn).collect();
        assert_eq!(folded(whole.clone()).turns, made.turns);
        let mut both = whole;
        both.push(result("a", "1", "r", 1));
        assert_eq!(folded(both).turns, made.turns);
    }

    #[test]
    fn later_notes_win_and_null_removes() {
        let note = |id: &str, values: serde_json::Value| {
            let values = values.as_object().cloned().unwrap_or_default();
            SessionEntry::Metadata(MetadataEntry { id: id.into(), values, extra: Extra::default() })
        };
        let session = folded(vec![
            note("m1", serde_json::json!({"title": "one", "tag": 1})),
            note("m2", serde_json::json!({"title": "two", "tag": null})),
        ]);
        assert_eq!(session.metadata.len(), 1);
        assert_eq!(session.metadata["title"], "two");
    }

    #[test]
    fn every_prefix_of_a_log_folds_to_a_beginning_of_the_whole() {
        let entries = vec![
            user("u", "go"),
            calls("a", &["1", "2"]),
            result("a", "2", "r", 1),
            result("a", "1", "r", 2),
            calls("b", &["1"]),
            result("b", "1", "r", 3),
            user("u2", "more"),
        ];
        let whole = folded(entries.clone());
        for length in 0..entries.len() {
            let part = folded(entries[..length].to_vec());
            assert!(part.notes.is_empty());
            let sure = part.turns.len().saturating_sub(1);
            assert_eq!(part.turns[..sure], whole.turns[..sure], "{length}");
            if let (Some(last), Some(same)) = (part.turns.last(), whole.turns.get(sure)) {
                assert_eq!((&last.id, &last.content), (&same.id, &same.content));
            }
        }
    }
}

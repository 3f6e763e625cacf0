use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fold::{waiting, with_pending};
use super::{Flushed, Keeper, SessionEntry, SessionError, SummaryEntry, Waiting, child_id};
use crate::provider::{BodyCache, History, HistoryTurn};
use crate::types::{DeferredCall, Role, SessionContentBlock, SessionTurn, ToolCallBlock, ToolResultBlock, TurnOrigin};

/// The conversation that the runs of an agent share: in memory, and in a store where there is one.
///
/// What is pushed is there at once, and waits to be stored; [`flush`](Self::flush) stores it. Nobody may act on it
/// before that. Where an append fails, what it would have stored is given up when the next run opens the session.
#[derive(Debug)]
pub(crate) struct LiveSession {
    id: String,
    state: Mutex<State>,
    body_cache: Arc<BodyCache>,
    pub(super) keeper: Option<Keeper>,
}

#[derive(Debug, Default)]
struct State {
    history: History,
    /// Results that are final, of calls whose turn is the last one.
    open: Vec<Arc<ToolResultBlock>>,
    /// Calls of the last turn that wait for the host's answer.
    deferred: Vec<DeferredCall>,
    /// Where the turns of this run begin.
    first: usize,
    /// Turns of this run that are not in the history any more.
    earlier: Vec<Arc<HistoryTurn>>,
}

impl LiveSession {
    pub(crate) fn new(id: String, history: History, keeper: Option<Keeper>) -> Self {
        let (history, open) = split(history);
        let deferred = history.last().map(|last| waiting(last, &[])).unwrap_or_default();
        let state = State { history, open, deferred, ..State::default() };
        Self { id, state: Mutex::new(state), body_cache: Arc::default(), keeper }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Whether there is a store. Without one nothing need be queued.
    pub(crate) const fn is_kept(&self) -> bool {
        self.keeper.is_some()
    }

    /// The conversation so far. The handle shares the turns; drop it before the next push, which would copy the list.
    pub(crate) fn history(&self) -> History {
        self.lock().history.clone()
    }

    /// The conversation as the host may see it, valid also while calls wait: results of other calls of their turn stand in
    /// a turn after it.
    pub(crate) fn shown(&self) -> History {
        let state = self.lock();
        let last = state.history.last().filter(|_| !state.deferred.is_empty() && !state.open.is_empty());
        let Some(last) = last else { return state.history.clone() };
        let result = |call: &ToolCallBlock| state.open.iter().find(|result| result.call_id == call.id);
        let results = last.tool_calls().filter_map(result);
        let results = results.map(|result| SessionContentBlock::ToolResult(ToolResultBlock::clone(result))).collect();
        let id = child_id(&last.id, "results").to_string();
        let mut turn = SessionTurn::new(id, Role::User, TurnOrigin::Results, results);
        turn.run_id.clone_from(&last.run_id);
        turn.created_at = last.created_at;
        let mut turns = state.history.turns().to_vec();
        turns.push(Arc::new(HistoryTurn::new(turn)));
        History::from_turns(turns)
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().history.len()
    }

    /// The turns from here on are those of a run.
    pub(crate) fn mark(&self) {
        let mut state = self.lock();
        state.first = state.history.len();
        state.earlier.clear();
    }

    /// The turns since the mark.
    pub(crate) fn added(&self) -> Vec<Arc<HistoryTurn>> {
        let mut state = self.lock();
        let mut added = std::mem::take(&mut state.earlier);
        added.extend_from_slice(state.history.turns().get(state.first..).unwrap_or_default());
        added
    }

    pub(crate) fn body_cache(&self) -> Arc<BodyCache> {
        Arc::clone(&self.body_cache)
    }

    /// Appends a turn; results kept for the turn before are settled by it.
    pub(crate) fn push(&self, turn: Arc<HistoryTurn>) {
        if let Some(keeper) = &self.keeper {
            keeper.queue(SessionEntry::Turn(Arc::clone(&turn)));
        }
        self.push_results(turn);
    }

    /// Appends a turn that is no entry of its own: what the results in the store come to.
    pub(crate) fn push_results(&self, turn: Arc<HistoryTurn>) {
        let mut state = self.lock();
        state.open.clear();
        state.deferred.clear();
        state.unmark(&turn);
        state.history.push(turn);
    }

    /// Keeps a result that is final, in case the run ends before all of its turn are.
    pub(crate) fn push_result(&self, result: Arc<ToolResultBlock>) {
        self.lock().open.push(result);
    }

    /// Takes the kept results out.
    pub(crate) fn take_results(&self) -> Vec<Arc<ToolResultBlock>> {
        std::mem::take(&mut self.lock().open)
    }

    /// The kept results.
    pub(crate) fn results(&self) -> Vec<Arc<ToolResultBlock>> {
        self.lock().open.clone()
    }

    /// Calls of the last turn that wait for the host's answer.
    pub(crate) fn deferred(&self) -> Vec<DeferredCall> {
        self.lock().deferred.clone()
    }

    /// What no new prompt may touch; `None` when nothing waits for the host.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let state = self.lock();
        let last = state.history.last().filter(|_| !state.deferred.is_empty())?;
        let calls = state.deferred.iter().map(|call| call.call_id.clone()).collect();
        Some(Waiting { run_id: last.run_id.clone(), calls, unfinished: false })
    }

    /// Leaves calls of the last turn to the host; its other open calls wait for these.
    pub(crate) fn defer(&self, calls: Vec<DeferredCall>) {
        let mut state = self.lock();
        state.deferred = calls;
        state.mark_pending(&[]);
    }

    /// The host has answered these calls: they wait no more.
    pub(crate) fn resume(&self, calls: &[String]) {
        let mut state = self.lock();
        state.deferred.retain(|call| !calls.contains(&call.call_id));
        state.mark_pending(calls);
    }

    /// Has an entry stored by the next flush that says more than the history does, or something else.
    pub(crate) fn queue(&self, entry: SessionEntry) {
        if let Some(keeper) = &self.keeper {
            keeper.queue(entry);
        }
    }

    /// Has something done as soon as all that is queued is stored, whoever is left to wait for it.
    pub(crate) fn once_saved(&self, then: impl FnOnce() + Send + 'static) {
        match &self.keeper {
            Some(keeper) => keeper.then(then),
            None => then(),
        }
    }

    /// Takes an entry back when nothing else is queued.
    pub(crate) fn withdraw(&self, id: &str) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.withdraw(id))
    }

    /// Whether nothing is queued.
    pub(crate) fn is_saved(&self) -> bool {
        self.keeper.as_ref().is_none_or(Keeper::is_idle)
    }

    /// Stores what is queued, in one append. Once `patience` has ended nobody waits for it any more: it comes to its end
    /// by itself, and the next run waits for that. Dropping the future does the same.
    pub(crate) async fn flush(&self, patience: impl Future<Output = ()>) -> Result<Flushed, SessionError> {
        match &self.keeper {
            Some(keeper) => keeper.flush(patience).await,
            None => Ok(Flushed::Nothing),
        }
    }

    /// Puts a summary in the place of the turns before `from`. The turns of this run are still its turns.
    pub(crate) fn summarize(&self, summary: Arc<HistoryTurn>, from: usize) {
        let mut state = self.lock();
        let (old, kept) = state.history.turns().split_at(from.min(state.history.len()));
        let Some(through) = old.last().map(|turn| turn.id.clone()) else { return };
        let mut turns = Vec::with_capacity(kept.len().saturating_add(1));
        turns.push(Arc::clone(&summary));
        turns.extend_from_slice(kept);
        let added = state.history.turns().get(state.first..).unwrap_or_default().to_vec();
        state.earlier.extend(added);
        state.earlier.push(Arc::clone(&summary));
        state.first = turns.len();
        state.history = History::from_turns(turns);
        drop(state);
        self.queue(SessionEntry::Summary(SummaryEntry::new(through, summary)));
    }

    /// Takes over what a store has.
    pub(super) fn restore(&self, history: History, open: Vec<Arc<ToolResultBlock>>, deferred: Vec<DeferredCall>) {
        let mut state = self.lock();
        state.history = history;
        state.open = open;
        state.deferred = deferred;
    }

    /// Whether calls of the last turn have no result yet.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.lock();
        let calls = |turn: &Arc<HistoryTurn>| turn.role == Role::Assistant && turn.tool_calls().next().is_some();
        state.history.last().is_some_and(calls)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Nothing of the last turn waits any more once its results stand.
    fn unmark(&mut self, results: &HistoryTurn) {
        let waits = |turn: &&Arc<HistoryTurn>| turn.pending.iter().any(|pending| pending.deferred);
        let Some(last) = self.history.last().filter(waits).cloned() else { return };
        let answered: HashSet<&str> = results.tool_results().map(|result| result.call_id.as_str()).collect();
        self.history.replace_last(with_pending(last, &answered, |pending| pending.deferred));
    }

    /// Has the last turn say which of its calls wait, but for those that are `taken`.
    fn mark_pending(&mut self, taken: &[String]) {
        let Some(last) = self.history.last().cloned() else { return };
        let answered: HashSet<&str> = self.open.iter().map(|result| result.call_id.as_str()).collect();
        let waits = !self.deferred.is_empty();
        let marked = with_pending(last, &answered, |call| waits && !taken.contains(&call.call_id));
        self.history.replace_last(marked);
    }
}

/// Takes a last turn off that answers some calls of the turn before, while others wait.
pub(super) fn split(history: History) -> (History, Vec<Arc<ToolResultBlock>>) {
    let [before @ .., calls, results] = history.turns() else { return (history, Vec::new()) };
    let waits = calls
        .pending
        .iter()
        .any(|pending| pending.deferred && results.tool_results().all(|result| result.call_id != pending.call_id));
    let whole = results.tool_results().count() == results.content.len();
    if !waits || !whole {
        return (history, Vec::new());
    }
    let open = results.tool_results().cloned().map(Arc::new).collect();
    let turns = before.iter().chain([calls]).cloned().collect();
    (History::from_turns(turns), open)
}

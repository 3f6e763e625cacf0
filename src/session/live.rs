use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::provider::{BodyCache, History, HistoryTurn};
use crate::types::ToolResultBlock;

/// The conversation that the runs of an agent share, in memory.
#[derive(Debug)]
pub(crate) struct LiveSession {
    id: String,
    state: Mutex<State>,
    body_cache: Arc<BodyCache>,
}

#[derive(Debug, Default)]
struct State {
    history: History,
    /// Results that are final, of calls whose turn is the last one.
    open: Vec<Arc<ToolResultBlock>>,
}

impl LiveSession {
    pub(crate) fn new(id: String, history: History) -> Self {
        Self { id, state: Mutex::new(State { history, open: Vec::new() }), body_cache: Arc::default() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The conversation so far. The handle shares the turns; drop it before the next push, which would copy the list.
    pub(crate) fn history(&self) -> History {
        self.lock().history.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().history.len()
    }

    /// The turns from `index` on.
    pub(crate) fn since(&self, index: usize) -> Vec<Arc<HistoryTurn>> {
        self.lock().history.turns().get(index..).unwrap_or_default().to_vec()
    }

    pub(crate) fn body_cache(&self) -> Arc<BodyCache> {
        Arc::clone(&self.body_cache)
    }

    /// Appends a turn; results kept for the turn before are settled by it.
    pub(crate) fn push(&self, turn: Arc<HistoryTurn>) {
        let mut state = self.lock();
        state.open.clear();
        state.history.push(turn);
    }

    /// Puts a summary in the place of the turns before `from`.
    pub(crate) fn summarize(&self, summary: Arc<HistoryTurn>, from: usize) {
        let mut state = self.lock();
        let kept = state.history.turns().get(from..).unwrap_or_default();
        let mut turns = Vec::with_capacity(kept.len().saturating_add(1));
        turns.push(summary);
        turns.extend_from_slice(kept);
        state.history = History::from_turns(turns);
    }

    /// Keeps a result that is final, in case the run ends before all of its turn are.
    pub(crate) fn push_result(&self, result: Arc<ToolResultBlock>) {
        self.lock().open.push(result);
    }

    /// Takes the kept results out.
    pub(crate) fn take_results(&self) -> Vec<Arc<ToolResultBlock>> {
        std::mem::take(&mut self.lock().open)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};

/// How many commit ids a scope remembers.
const REMEMBERED: usize = 65_536;

/// A store that lives as long as the process: for tests, and for agents that share state within one process.
///
/// Each scope remembers its last 65,536 commit ids; a repetition of an older one is applied again.
#[derive(Debug, Default)]
pub struct MemoryToolStateStore {
    scopes: Mutex<HashMap<Box<str>, Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    snapshot: ToolStateSnapshot,
    applied: HashSet<Arc<str>>,
    order: VecDeque<Arc<str>>,
}

impl MemoryToolStateStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What a scope holds now.
    #[must_use]
    pub fn snapshot(&self, scope: &str) -> ToolStateSnapshot {
        let scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.get(scope).map(|shelf| shelf.snapshot.clone()).unwrap_or_default()
    }
}

impl Shelf {
    fn apply(&mut self, commit: &ToolStateCommit, remembered: usize) {
        if !self.applied.insert(Arc::clone(&commit.commit_id)) {
            return;
        }
        self.order.push_back(Arc::clone(&commit.commit_id));
        if self.order.len() > remembered
            && let Some(oldest) = self.order.pop_front()
        {
            self.applied.remove(&oldest);
        }
        self.snapshot.apply(&commit.ops);
    }
}

#[async_trait]
impl ToolStateStore for MemoryToolStateStore {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        Ok(self.snapshot(scope))
    }

    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.entry((&*commit.scope).into()).or_default().apply(commit, REMEMBERED);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_state::ToolStateOp;

    fn commit(id: &str, value: u64) -> ToolStateCommit {
        ToolStateCommit::new("s", id, "r", "c", vec![ToolStateOp::set("k", value)])
    }

    #[test]
    fn an_old_commit_replayed_does_not_move_the_state_backwards() {
        let mut shelf = Shelf::default();
        shelf.apply(&commit("1", 1), 8);
        shelf.apply(&commit("2", 2), 8);
        shelf.apply(&commit("1", 1), 8);
        assert_eq!(shelf.snapshot.get("k").unwrap().as_u64(), Some(2));
    }

    #[test]
    fn remembered_ids_are_bounded() {
        let mut shelf = Shelf::default();
        for n in 0..20 {
            shelf.apply(&commit(&n.to_string(), n), 4);
        }
        assert_eq!((shelf.applied.len(), shelf.order.len()), (4, 4));
        assert!(shelf.applied.contains("19") && !shelf.applied.contains("15"));
    }
}

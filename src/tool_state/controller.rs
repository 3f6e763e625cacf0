use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    ToolState, ToolStateCommit, ToolStateError, ToolStateOp, ToolStateSnapshot, ToolStateStore, ToolStateView,
};

/// Owns the tool state of one agent: the committed snapshot, shared by the agent's runs, and the store behind it.
///
/// Cloning shares it. Without a store the state lives as long as the controller.
#[derive(Clone)]
pub struct ToolStateController {
    inner: Arc<Inner>,
}

struct Inner {
    scope: Arc<str>,
    store: Option<Arc<dyn ToolStateStore>>,
    live: Mutex<Live>,
    /// Held across the store's awaits, so that loads and commits of one controller never overlap. No reader takes it.
    turnstile: tokio::sync::Mutex<()>,
}

struct Live {
    snapshot: ToolStateSnapshot,
    /// The snapshot is what the store holds.
    loaded: bool,
}

impl ToolStateController {
    /// State that nothing backs.
    pub fn new(scope: impl Into<Arc<str>>) -> Self {
        Self::build(scope.into(), None)
    }

    /// State that a store backs.
    pub fn with_store(scope: impl Into<Arc<str>>, store: Arc<dyn ToolStateStore>) -> Self {
        Self::build(scope.into(), Some(store))
    }

    fn build(scope: Arc<str>, store: Option<Arc<dyn ToolStateStore>>) -> Self {
        let live = Mutex::new(Live { snapshot: ToolStateSnapshot::new(), loaded: false });
        Self { inner: Arc::new(Inner { scope, store, live, turnstile: tokio::sync::Mutex::new(()) }) }
    }

    /// The key under which the store keeps this state.
    #[must_use]
    pub fn scope(&self) -> &Arc<str> {
        &self.inner.scope
    }

    /// Reads the state from the store, unless that was done. Belongs before the first dispatch of every run.
    ///
    /// Done once; again only after a failure, and after a commit whose future was dropped half way: then nobody knows
    /// whether the store has it. Dropping this future changes nothing.
    ///
    /// # Errors
    /// [`ToolStateError::Load`] with what the store said; the snapshot is unchanged.
    pub async fn load(&self) -> Result<(), ToolStateError> {
        let _turn = self.inner.turnstile.lock().await;
        if self.live().loaded {
            return Ok(());
        }
        let loaded = match &self.inner.store {
            None => None,
            Some(store) => Some(
                store
                    .load(&self.inner.scope)
                    .await
                    .map_err(|source| ToolStateError::Load { scope: self.inner.scope.as_ref().into(), source })?,
            ),
        };
        let mut live = self.live();
        live.loaded = true;
        if let Some(snapshot) = loaded {
            live.snapshot = snapshot;
        }
        Ok(())
    }

    /// The committed state.
    #[must_use]
    pub fn snapshot(&self) -> ToolStateSnapshot {
        self.live().snapshot.clone()
    }

    /// A view for one call, on the state committed by now.
    #[must_use]
    pub fn view(&self) -> ToolStateView {
        ToolStateView::new(self.snapshot())
    }

    /// The read-only window.
    #[must_use]
    pub fn window(&self) -> ToolState {
        ToolState::new(self.clone())
    }

    /// Commits the writes of a segment's calls, one call after the other in the order given: first to the store, then
    /// to the snapshot. One result per commit, in the same order. A commit without ops touches nothing.
    ///
    /// A rejected one is dropped, its result says so, the snapshot stays as it was, and the next is tried. Overlapping
    /// calls wait for each other. If this future is dropped, what was committed stays, the commit under way may or may
    /// not be in the store, and the next [`load`](Self::load) reads the store again.
    pub async fn commit(&self, segment: &[ToolStateCommit]) -> Vec<Result<(), ToolStateError>> {
        if segment.iter().all(|commit| commit.ops.is_empty()) {
            return segment.iter().map(|_| Ok(())).collect();
        }
        let _turn = self.inner.turnstile.lock().await;
        let mut results = Vec::with_capacity(segment.len());
        for commit in segment {
            results.push(self.commit_one(commit).await);
        }
        results
    }

    async fn commit_one(&self, commit: &ToolStateCommit) -> Result<(), ToolStateError> {
        if commit.ops.is_empty() {
            return Ok(());
        }
        let rejected = |source| ToolStateError::Commit {
            commit_id: commit.commit_id.as_ref().into(),
            call_id: commit.call_id.as_ref().into(),
            source,
        };
        if commit.scope != self.inner.scope {
            return Err(rejected(format!("it is for scope `{}`, not `{}`", commit.scope, self.inner.scope).into()));
        }
        if let Some(store) = &self.inner.store {
            // Until the store has answered, what it holds is not known; a dropped future leaves it at that.
            let loaded = std::mem::replace(&mut self.live().loaded, false);
            let answer = store.commit(commit).await;
            self.live().loaded = loaded;
            answer.map_err(rejected)?;
        }
        self.live().snapshot.apply(&commit.ops);
        Ok(())
    }

    /// Takes over a recorded snapshot instead of loading: a resumed run that loaded again would see its own later
    /// commits.
    #[allow(dead_code, reason = "for resumed durable runs")]
    pub(crate) fn restore(&self, snapshot: ToolStateSnapshot) {
        *self.live() = Live { snapshot, loaded: true };
    }

    /// Applies ops whose commit is on record, without the store.
    pub(crate) fn replay(&self, ops: &[ToolStateOp]) {
        self.live().snapshot.apply(ops);
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&ToolStateSnapshot) -> T) -> T {
        read(&self.live().snapshot)
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        self.inner.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ToolStateController {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (keys, loaded) = {
            let live = self.live();
            (live.snapshot.len(), live.loaded)
        };
        f.debug_struct("ToolStateController")
            .field("scope", &self.inner.scope)
            .field("keys", &keys)
            .field("loaded", &loaded)
            .finish_non_exhaustive()
    }
}

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::hook::{AsyncHandler, Class, Handler, Hook, Scope, SyncHandler};
use super::{SLOTS, events};

/// Names a registered handler, for [`Hooks::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HookId {
    slot: usize,
    id: u64,
}

#[derive(Clone)]
pub(super) struct Entry {
    id: u64,
    scope: Scope,
    pub(super) timeout: Option<Duration>,
    pub(super) handler: Arc<dyn Any + Send + Sync>,
}

/// The handlers of one agent. Cloning gives another handle to the same ones.
#[derive(Clone)]
pub struct Hooks {
    bus: Arc<Bus>,
}

struct Bus {
    /// One bit per event that has a handler here: an event that nobody listens to costs this load and no more.
    present: AtomicU64,
    /// The same for handlers that reach down to agents below.
    reaching: AtomicU64,
    /// Counts the changes of the lists.
    version: AtomicU64,
    lists: Mutex<Vec<Arc<[Entry]>>>,
    parent: Option<Hooks>,
    /// The lists of this agent and those above it as one, by event, as of a count of changes. Empty at the root.
    merged: Mutex<Vec<Merged>>,
}

type Merged = Option<(u64, Arc<[Entry]>)>;

const _: () = assert!(SLOTS <= 64);

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Hooks {
    pub(crate) fn new(parent: Option<Self>) -> Self {
        let lists = (0..SLOTS).map(|_| Arc::from(Vec::new())).collect();
        let bus = Bus {
            present: AtomicU64::new(0),
            reaching: AtomicU64::new(0),
            version: AtomicU64::new(0),
            lists: Mutex::new(lists),
            parent,
            merged: Mutex::default(),
        };
        Self { bus: Arc::new(bus) }
    }

    /// Registers a handler, in the event's default scope and without a time limit.
    ///
    /// Handlers run in registration order, one after the other; each sees what the ones before it changed. They may
    /// register and remove handlers themselves; an event under way keeps the list it started with.
    ///
    /// Reach the agent through `cx.agent()`: a closure that owns a clone of the `Agent` whose hooks it sits in is
    /// never freed.
    pub fn on<H: Hook>(&self, f: impl SyncHandler<H>) -> HookId {
        Registration { hooks: self, scope: None, timeout: None }.on::<H>(f)
    }

    /// Registers an async handler: `|cx| Box::pin(async move { .. })`.
    ///
    /// It is dropped when the run is aborted and it does not finish within the run's cancel grace.
    pub fn on_async<H: Hook>(&self, f: impl AsyncHandler<H>) -> HookId {
        Registration { hooks: self, scope: None, timeout: None }.on_async::<H>(f)
    }

    /// Options for the next registration: where it applies.
    #[must_use]
    pub fn scope(&self, scope: Scope) -> Registration<'_> {
        Registration { hooks: self, scope: Some(scope), timeout: None }
    }

    /// Options for the next registration: how long an async handler may take.
    #[must_use]
    pub fn timeout(&self, timeout: Duration) -> Registration<'_> {
        Registration { hooks: self, scope: None, timeout: Some(timeout) }
    }

    /// Removes a handler. False when it is not there any more.
    pub fn remove(&self, id: HookId) -> bool {
        let mut lists = self.lock();
        let Some(list) = lists.get_mut(id.slot) else { return false };
        let kept: Vec<_> = list.iter().filter(|entry| entry.id != id.id).cloned().collect();
        let removed = kept.len() < list.len();
        if removed {
            self.replace(list, id.slot, kept);
        }
        removed
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<[Entry]>>> {
        self.bus.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, list: &mut Arc<[Entry]>, slot: usize, entries: Vec<Entry>) {
        let mark = |mask: &AtomicU64, any: bool| {
            if any {
                mask.fetch_or(1 << slot, Ordering::Relaxed);
            } else {
                mask.fetch_and(!(1 << slot), Ordering::Relaxed);
            }
        };
        mark(&self.bus.present, !entries.is_empty());
        mark(&self.bus.reaching, entries.iter().any(|entry| entry.scope == Scope::Tree));
        *list = entries.into();
        // After the list: who reads the new count reads the new list.
        self.bus.version.fetch_add(1, Ordering::Release);
    }

    fn register(
        &self,
        slot: usize,
        scope: Scope,
        timeout: Option<Duration>,
        handler: Arc<dyn Any + Send + Sync>,
    ) -> HookId {
        let id = next_id();
        let mut lists = self.lock();
        if let Some(list) = lists.get_mut(slot) {
            let mut entries = list.to_vec();
            entries.push(Entry { id, scope, timeout, handler });
            self.replace(list, slot, entries);
        }
        HookId { slot, id }
    }

    /// Whether anybody listens, here or above.
    pub(crate) fn has<H: Hook>(&self) -> bool {
        let bit = 1 << H::SLOT;
        self.bus.present.load(Ordering::Relaxed) & bit != 0
            || self.above().any(|hooks| hooks.bus.reaching.load(Ordering::Relaxed) & bit != 0)
    }

    /// The agents above, the nearest first.
    fn above(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(self.bus.parent.as_ref(), |hooks| hooks.bus.parent.as_ref())
    }

    /// The handlers of an event: this agent's, and those of its ancestors that reach down here.
    pub(super) fn listeners<H: Hook>(&self) -> Arc<[Entry]> {
        let list = |hooks: &Self| hooks.lock().get(H::SLOT).cloned().unwrap_or_default();
        if !self.above().any(|hooks| hooks.bus.reaching.load(Ordering::Relaxed) & (1 << H::SLOT) != 0) {
            return list(self);
        }
        // Counts only grow, so that their sum is the same only where each of them is.
        let version = |hooks: &Self| hooks.bus.version.load(Ordering::Acquire);
        let version = self.above().map(version).fold(version(self), u64::wrapping_add);
        let known = self.merged().get(H::SLOT).cloned().flatten();
        if let Some((_, merged)) = known.filter(|(of, _)| *of == version) {
            return merged;
        }
        let mut merged = list(self).to_vec();
        for hooks in self.above() {
            merged.extend(list(hooks).iter().filter(|entry| entry.scope == Scope::Tree).cloned());
        }
        merged.sort_by_key(|entry| entry.id);
        let merged: Arc<[Entry]> = merged.into();
        let mut all = self.merged();
        if all.is_empty() {
            all.resize(SLOTS, None);
        }
        if let Some(slot) = all.get_mut(H::SLOT) {
            *slot = Some((version, Arc::clone(&merged)));
        }
        merged
    }

    fn merged(&self) -> std::sync::MutexGuard<'_, Vec<Merged>> {
        self.bus.merged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the handlers that were registered for a run.
    pub(crate) fn end_run(&self) {
        if self.bus.present.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut lists = self.lock();
        for (slot, list) in lists.iter_mut().enumerate() {
            if list.iter().any(|entry| entry.scope == Scope::Run) {
                let kept = list.iter().filter(|entry| entry.scope != Scope::Run).cloned().collect();
                self.replace(list, slot, kept);
            }
        }
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self::new(None)
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lists = self.lock();
        f.debug_map()
            .entries(events::NAMES.iter().zip(lists.iter()).filter(|(_, l)| !l.is_empty()).map(|(n, l)| (n, l.len())))
            .finish()
    }
}

/// A registration with options: `hooks.scope(Scope::Tree).timeout(d).on::<ToolGate>(..)`.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'h> {
    hooks: &'h Hooks,
    scope: Option<Scope>,
    timeout: Option<Duration>,
}

impl Registration<'_> {
    /// Where it applies.
    #[must_use]
    pub const fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// How long an async handler may take; then it has failed. A sync handler cannot be stopped.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Registers a handler; see [`Hooks::on`].
    pub fn on<H: Hook>(self, f: impl SyncHandler<H>) -> HookId {
        self.register::<H>(Handler::sync(f))
    }

    /// Registers an async handler; see [`Hooks::on_async`].
    pub fn on_async<H: Hook>(self, f: impl AsyncHandler<H>) -> HookId {
        self.register::<H>(Handler::future(f))
    }

    fn register<H: Hook>(self, handler: Handler<H>) -> HookId {
        let default = if H::CLASS == Class::Gate { Scope::Tree } else { Scope::Agent };
        self.hooks.register(H::SLOT, self.scope.unwrap_or(default), self.timeout, Arc::new(handler))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{AgentDone, ToolGate};

    #[test]
    fn the_list_of_a_tree_follows_every_change_above_and_below() {
        let root = Hooks::default();
        let middle = Hooks::new(Some(root.clone()));
        let leaf = Hooks::new(Some(middle.clone()));
        let ids = |hooks: &Hooks| hooks.listeners::<AgentDone>().iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert!(!leaf.has::<AgentDone>() && ids(&leaf).is_empty());

        let own = root.on::<AgentDone>(|_| ());
        assert!(root.has::<AgentDone>() && !leaf.has::<AgentDone>(), "what stays above is nothing to those below");
        let first = root.scope(Scope::Tree).on::<AgentDone>(|_| ());
        let second = leaf.on::<AgentDone>(|_| ());
        let third = middle.scope(Scope::Tree).on::<AgentDone>(|_| ());
        for _ in 0..2 {
            assert_eq!(ids(&leaf), [first.id, second.id, third.id], "in the order in which they were registered");
            assert_eq!(ids(&middle), [first.id, third.id]);
            assert_eq!(ids(&root), [own.id, first.id]);
        }
        assert!(root.remove(first));
        assert_eq!(ids(&leaf), [second.id, third.id]);
        let run = middle.scope(Scope::Run).on::<AgentDone>(|_| ());
        assert_eq!((ids(&leaf), ids(&middle)), (vec![second.id, third.id], vec![third.id, run.id]));
        middle.end_run();
        assert!(middle.remove(third) && !middle.remove(run));
        assert_eq!((ids(&leaf), ids(&middle)), (vec![second.id], vec![]));
        assert!(!middle.has::<AgentDone>() && leaf.has::<AgentDone>());

        root.on::<ToolGate>(|_| ());
        assert!(leaf.has::<ToolGate>(), "gates reach down by default");
    }
}

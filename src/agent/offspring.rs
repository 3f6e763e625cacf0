use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Denial;
use crate::types::{AgentStats, ChildStats, ChildStatus, TurnUsage};

/// What a run that was spawned leaves to the one above: a part of the record of the call that spawned it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChildRecord {
    pub(super) child: ChildStats,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) denials: Vec<Denial>,
}

/// What a run that was spawned has used so far, where the run above reads it however the child ends: a child that is
/// dropped has been paid for all the same.
#[derive(Debug)]
pub(super) struct Ledger {
    /// The model's call that spawned it, of the run above.
    call: Arc<str>,
    run_id: Arc<str>,
    /// The call that spawned it; where a tool called that one, not the model's.
    call_id: Arc<str>,
    task: String,
    token: CancellationToken,
    pages: Mutex<Pages>,
    pub(super) below: Offspring,
}

#[derive(Debug, Default)]
struct Pages {
    stats: AgentStats,
    denials: Vec<Denial>,
    ended: Option<ChildStatus>,
}

impl Ledger {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_turn(&self, usage: Arc<TurnUsage>) {
        self.pages().stats.push_turn(usage);
    }

    pub(super) fn add_child(&self, child: ChildStats, denials: Vec<Denial>) {
        let mut pages = self.pages();
        pages.stats.push_child(child);
        pages.denials.extend(denials);
    }

    /// It has ended by itself.
    pub(super) fn end(&self, status: ChildStatus, stats: AgentStats, denials: Vec<Denial>) {
        *self.pages() = Pages { stats, denials, ended: Some(status) };
    }

    fn has_ended(&self) -> bool {
        self.pages().ended.is_some()
    }

    /// Closes it. A child that has not ended is stopped.
    fn close(&self) -> ChildRecord {
        if !self.has_ended() {
            self.token.cancel();
        }
        self.so_far()
    }

    /// What there is of it, with what is below it. Leaves nothing.
    pub(super) fn so_far(&self) -> ChildRecord {
        // As deep as runs may be spawned.
        let below = self.below.take(None);
        let mut pages = std::mem::take(&mut *self.pages());
        for ChildRecord { child, denials } in below {
            pages.stats.push_child(child);
            pages.denials.extend(denials);
        }
        let child = ChildStats {
            id: (*self.run_id).to_owned(),
            call_id: Some((*self.call_id).to_owned()),
            task: self.task.clone(),
            status: pages.ended.unwrap_or(ChildStatus::Aborted),
            stats: pages.stats,
        };
        ChildRecord { child, denials: pages.denials }
    }
}

/// The children of a run that are not filed yet: those at work, and those that have ended, in the order in which they
/// did.
#[derive(Debug, Default)]
pub(super) struct Offspring {
    ledgers: Mutex<Vec<Arc<Ledger>>>,
    at_work: AtomicU64,
    /// How many runs were spawned in the whole tree; counted at its root.
    spawned: AtomicU64,
    left: Notify,
}

/// A place among the children that are at work. Dropping it lets another in.
pub(super) struct Place<'a> {
    offspring: &'a Offspring,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.offspring.at_work.fetch_sub(1, Ordering::AcqRel);
        self.offspring.left.notify_waiters();
    }
}

impl Offspring {
    fn ledgers(&self) -> MutexGuard<'_, Vec<Arc<Ledger>>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until fewer than `cap` children are at work. Cancel safe.
    pub(super) async fn place(&self, cap: u64) -> Place<'_> {
        loop {
            let left = self.left.notified();
            let taken =
                self.at_work.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < cap.max(1)).then_some(n + 1));
            if taken.is_ok() {
                return Place { offspring: self };
            }
            left.await;
        }
    }

    /// Counts a run of the tree; false when there are `cap` already.
    pub(super) fn count(&self, cap: u64) -> bool {
        self.spawned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < cap).then_some(n + 1)).is_ok()
    }

    /// Opens the ledger of a child that the call `call_id`, a part of the model's `call`, spawns.
    pub(super) fn open(
        &self,
        call: &Arc<str>,
        run_id: &Arc<str>,
        call_id: &str,
        task: String,
        token: &CancellationToken,
    ) -> Arc<Ledger> {
        let ledger = Arc::new(Ledger {
            call: Arc::clone(call),
            run_id: Arc::clone(run_id),
            call_id: call_id.into(),
            task,
            token: token.clone(),
            pages: Mutex::default(),
            below: Self::default(),
        });
        self.ledgers().push(Arc::clone(&ledger));
        ledger
    }

    /// A child has ended: it comes after those that ended before it.
    pub(super) fn ended(&self, ledger: &Arc<Ledger>) {
        let mut ledgers = self.ledgers();
        if let Some(place) = ledgers.iter().position(|other| Arc::ptr_eq(other, ledger)) {
            let ledger = ledgers.remove(place);
            ledgers.push(ledger);
        }
    }

    /// Takes the children of one of the model's calls, or all of them. Those that have not ended are stopped, and come
    /// last.
    pub(super) fn take(&self, call: Option<&str>) -> Vec<ChildRecord> {
        let taken: Vec<_> = {
            let mut ledgers = self.ledgers();
            if ledgers.is_empty() {
                return Vec::new();
            }
            ledgers.extract_if(.., |ledger| call.is_none_or(|call| *ledger.call == *call)).collect()
        };
        let (ended, open): (Vec<_>, Vec<_>) = taken.into_iter().partition(|ledger| ledger.has_ended());
        ended.iter().chain(&open).map(|ledger| ledger.close()).collect()
    }

    /// How many levels of runs are at work below a call.
    pub(super) fn height(&self, call: &str) -> u32 {
        let open: Vec<_> = self.ledgers().iter().filter(|ledger| *ledger.call == *call).cloned().collect();
        open.iter().filter(|ledger| !ledger.has_ended()).map(|ledger| 1 + ledger.below.levels()).max().unwrap_or(0)
    }

    fn levels(&self) -> u32 {
        let open: Vec<_> = self.ledgers().clone();
        // As deep as runs may be spawned.
        open.iter().filter(|ledger| !ledger.has_ended()).map(|ledger| 1 + ledger.below.levels()).max().unwrap_or(0)
    }
}

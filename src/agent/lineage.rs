use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::context::RunCx;
use super::event::AgentEvent;
use super::nested::NestedReport;
use super::offspring::Ledger;
use super::sink::Sink;
use super::spawn::SpawnCaps;
use crate::hooks::ChildInfo;

/// What a run that was spawned has from the run that spawned it.
pub(super) struct Lineage {
    pub(super) parent: Arc<RunCx>,
    pub(super) child: Arc<ChildInfo>,
    /// The smallest of its ancestors' caps.
    pub(super) caps: SpawnCaps,
    /// What the parent sees of it.
    pub(super) ledger: Arc<Ledger>,
    /// Cancelled with the call that spawned it.
    pub(super) token: CancellationToken,
    /// Its ids are made of its own, so that they are the same when the call is made again.
    pub(super) ids: Ids,
}

/// Ids in a row.
pub(super) struct Ids {
    of: Uuid,
    made: AtomicU64,
}

impl Ids {
    pub(super) fn new(of: Uuid) -> Self {
        Self { of, made: AtomicU64::new(0) }
    }

    pub(super) fn next(&self) -> Uuid {
        Uuid::new_v5(&self.of, &self.made.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }
}

/// Where the events of a run go.
pub(super) enum Outlet {
    /// To the reader of its stream.
    Stream(Sink),
    /// To the run that spawned it.
    Parent(Upward),
}

impl Outlet {
    /// Waits for room, then puts the event. Cancel safe.
    pub(super) async fn send(&self, event: AgentEvent) {
        match self {
            Self::Stream(sink) => sink.send(event).await,
            Self::Parent(parent) => parent.send(event).await,
        }
    }
}

/// Sends events up the tree.
pub(super) struct Upward {
    pub(super) reports: mpsc::Sender<NestedReport>,
    pub(super) child: Arc<ChildInfo>,
}

impl Upward {
    /// Waits for room. Nobody listens any more only when the run above is gone.
    async fn send(&self, event: AgentEvent) {
        let event = match event {
            below @ (AgentEvent::Child { .. } | AgentEvent::ChildStart { .. } | AgentEvent::ChildEnd { .. }) => below,
            own => AgentEvent::Child { child: Arc::clone(&self.child), event: Box::new(own) },
        };
        drop(self.reports.send(NestedReport::Event(Box::new(event))).await);
    }
}

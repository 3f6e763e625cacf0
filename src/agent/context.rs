use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::event::AgentEvent;
use super::inner::AgentInner;
use super::limits::Meter;
use super::lineage::{Lineage, Outlet};
use super::offspring::{Ledger, Offspring};
use crate::clock::Clock;
use crate::hooks::{Firing, RunInfo};
use crate::provider::ReaderAway;
use crate::types::Timestamp;

/// What every step of a run may need. Shared by the loop and the bodies.
pub(super) struct RunCx {
    pub(super) agent: Arc<AgentInner>,
    /// For events that the loop tells, also from a record.
    pub(super) firing: Firing,
    /// For events within a step, whose body runs only when it is not on record.
    pub(super) live: Firing,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) info: Arc<RunInfo>,
    /// Where events go, when anybody reads them.
    pub(super) outlet: Option<Outlet>,
    pub(super) away: Arc<ReaderAway>,
    pub(super) abort: CancellationToken,
    pub(super) meter: Meter,
    /// The span of the run; nothing where nobody subscribes.
    pub(super) span: tracing::Span,
    /// What it has from the run that spawned it.
    pub(super) lineage: Option<Lineage>,
    /// The children of a run that nothing spawned; of others the ledger has them.
    pub(super) own_children: Offspring,
}

impl RunCx {
    /// Tells the stream's reader, when there is one. The event is built only then.
    pub(super) async fn emit(&self, event: impl FnOnce() -> AgentEvent) {
        if let Some(outlet) = &self.outlet {
            outlet.send(event()).await;
        }
    }

    /// What the run that spawned it sees of it.
    pub(super) fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.lineage.as_ref().map(|lineage| &lineage.ledger)
    }

    /// The runs that it spawned and that are not filed yet.
    pub(super) fn children(&self) -> &Offspring {
        self.ledger().map_or(&self.own_children, |ledger| &ledger.below)
    }

    /// The run that nothing spawned.
    pub(super) fn root(&self) -> &Self {
        let mut cx = self;
        // As deep as runs may be spawned.
        while let Some(lineage) = &cx.lineage {
            cx = &lineage.parent;
        }
        cx
    }

    /// The time of something: what is on record, else the clock's.
    pub(super) async fn time(&self, recorded: Option<Timestamp>) -> Timestamp {
        match recorded {
            Some(at) => at,
            // The clock itself: its handle is one too, and would box the future once more.
            None => (*self.clock).now().await,
        }
    }
}

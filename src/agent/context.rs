use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::event::AgentEvent;
use super::inner::AgentInner;
use super::limits::Meter;
use super::sink::Sink;
use crate::clock::Clock;
use crate::hooks::{Firing, RunInfo};
use crate::provider::ReaderAway;
use crate::types::Timestamp;

/// What every step of a run may need. Shared by the loop and the bodies.
pub(super) struct RunCx {
    pub(super) agent: Arc<AgentInner>,
    pub(super) firing: Firing,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) info: Arc<RunInfo>,
    pub(super) sink: Option<Sink>,
    pub(super) away: Arc<ReaderAway>,
    pub(super) abort: CancellationToken,
    pub(super) meter: Meter,
    /// The span of the run; nothing where nobody subscribes.
    pub(super) span: tracing::Span,
}

impl RunCx {
    /// Tells the stream's reader, when there is one. The event is built only then.
    pub(super) async fn emit(&self, event: impl FnOnce() -> AgentEvent) {
        if let Some(sink) = &self.sink {
            sink.send(event()).await;
        }
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

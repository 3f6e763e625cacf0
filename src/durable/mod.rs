//! Floor 3: the seam to durable engines.
//!
//! The loop does everything that must not be done twice in named steps. Without a durable runtime a step is a plain
//! call. With one, the runtime runs a step's body once, records what it returned, and hands out the record ever after.
//!
//! What is recorded never runs again; what was not recorded may.

mod error;
mod journal;
mod memory;
#[cfg(feature = "sqlite")]
mod sqlite;
mod step;

use std::sync::Arc;

use futures::future::BoxFuture;
use uuid::Uuid;

pub use error::DurableError;
pub use memory::MemoryDurable;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteDurable;
pub use step::{
    Planned, STEP_FORMAT, Settled, StepBody, StepCx, StepError, StepFailure, StepKey, StepKind, StepRecord, Work,
};

/// An engine that records runs.
pub trait DurableRuntime: Send + Sync {
    /// Opens a run, or takes it over: the holder before it can record nothing more.
    fn attach(&self, run_id: &str, parent: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>>;
}

/// One run in an engine.
pub trait DurableRun: Send + Sync {
    /// The run's id.
    fn run_id(&self) -> &str;

    /// Does, or replays, a batch of steps, and returns their records in batch order.
    ///
    /// A step's place in the run is taken in batch order when this is called, not when the future is first polled. A
    /// key that differs from the one recorded at its place is [`DurableError::Diverged`].
    ///
    /// The future is polled until it is done, or dropped with the run: it is never raced against anything.
    fn perform(&self, batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>>;

    /// An id that is the same on every replay, made of the run's id and a counter. Not recorded.
    fn uuid(&self) -> Uuid;

    /// The run has come to its end; left-over records are a divergence.
    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        Box::pin(async { Ok(()) })
    }
}

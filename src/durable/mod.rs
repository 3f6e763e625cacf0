//! Floor 3: durable engines, and the seam to them.
//!
//! The loop does everything that must not be done twice in named steps. Without a durable runtime a step is a plain
//! call. With one, the runtime runs a step's body once, records what it returned, and hands out the record ever after.
//!
//! What is recorded never runs again; what was not recorded may. Between a body's effect and its record there is always
//! a gap, so nothing here is done exactly once: a tool says by [`Repeat`](crate::tool::Repeat) what is to become of a
//! call that was cut in that gap, and is given a key by which the other side can tell a repetition.
//!
//! # After a crash
//!
//! A run is taken up by running it again under its id. What then becomes of a call, by when the process ended:
//!
//! | the process ended | the call |
//! |---|---|
//! | before its gate was recorded | is gated and made |
//! | after that, and before its result was recorded | `Repeat::Never`: is not made; its result is `interrupted`, and the model is told that the outcome is unknown. `Repeat::Safe`: is made again, with the same idempotency key |
//! | after its result was recorded, before its state writes were committed | is not made; the writes are committed |
//! | after the commit, before the commit was recorded | is not made; the commit is handed in once more under its id, which the store ignores |
//! | after that | is not made |
//! | after the run's end | nothing is done, the outcome is the one on record |
//!
//! Observing hooks are called on every attempt and told whether it is a replay; gates and hooks that shape a request or
//! a result are called live only, since what they decided is on record. A run that asks for another step than the one
//! on record is refused with [`DurableError::Diverged`], and so is one with another prompt. A process that was taken
//! for dead and was not is refused with [`DurableError::Fenced`] at its next step; a body that it has begun may end.
//!
//! [`MemoryDurable`] is always there; `SqliteDurable` comes with the feature `sqlite`. Another engine implements
//! [`DurableRuntime`] and is checked by `testing::durable_conformance!`.

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

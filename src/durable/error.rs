use super::StepKey;

/// Why a durable run cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableError {
    /// The run asks for another step than the one recorded at this place. Never retried.
    #[error("run {run_id} diverged at step {place}: recorded {recorded}, requested {requested}")]
    Diverged {
        /// The run.
        run_id: String,
        /// The place, from 0.
        place: u64,
        /// The key on record.
        recorded: StepKey,
        /// The key asked for.
        requested: StepKey,
    },
    /// Another process took the run over; nothing more is recorded from here.
    #[error("run {run_id} was taken over by another process")]
    Fenced {
        /// The run.
        run_id: String,
    },
    /// The record is of a format this version does not read.
    #[error("run {run_id}: {message}")]
    Version {
        /// The run.
        run_id: String,
        /// What was found and what is read.
        message: String,
    },
    /// This process must not run it: its hooks or tools are not those the run was started with.
    #[error("run {run_id}: {message}")]
    Policy {
        /// The run.
        run_id: String,
        /// What differs.
        message: String,
    },
    /// A record is larger than the engine takes.
    #[error("run {run_id}: step {key} is {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The run.
        run_id: String,
        /// The step.
        key: StepKey,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The engine was told to cancel the run.
    #[error("run {run_id} was cancelled")]
    Cancelled {
        /// The run.
        run_id: String,
    },
    /// This attempt ends here, as if it had crashed; the run can be resumed.
    #[error("run {run_id} was interrupted")]
    Interrupted {
        /// The run.
        run_id: String,
    },
    /// The engine's storage failed.
    #[error("run {run_id}: storage: {message}")]
    Storage {
        /// The run.
        run_id: String,
        /// What it said.
        message: String,
    },
}

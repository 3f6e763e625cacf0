//! Runs that tools spawn.
//!
//! A child has by construction what must hold everywhere: the gates and other `Tree` hooks above it, the abort of the
//! call that spawned it, the limits and caps of every run above, the clock. It has a session, a tool state and steering
//! of its own. What it does is a part of the record of the call that spawned it.
//!
//! For a child to be a recorded run of its own, three things are missing: a registry that finds its builder by name in
//! another process, shares of the limits that are handed out and come back with its stats (the meters are shared by
//! memory), and a `Work` of the engine for it. Its run id is the same on every attempt already, and what it leaves
//! ([`ChildRecord`](super::offspring::ChildRecord)) is what such a record would hold beside its result.

mod caps;
mod child_run;
mod outcome;
mod report;
mod tool;

pub(super) use caps::SpawnCaps;
pub use child_run::ChildRun;
pub use outcome::{ChildError, ChildOutcome};
pub(super) use report::SpawnReport;
pub use tool::{ChildSource, Spawn};

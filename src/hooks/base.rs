use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::control::AgentHandle;

/// Which run an event belongs to. Every context derefs to it.
#[derive(Clone, Debug)]
pub struct HookBase {
    pub(crate) run: Arc<RunInfo>,
    pub(crate) agent: AgentHandle,
    pub(crate) replaying: Arc<AtomicBool>,
}

/// The identity of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunInfo {
    /// The session it works on.
    pub session_id: Arc<str>,
    /// Its own id.
    pub run_id: Arc<str>,
    /// The run that spawned it.
    pub parent_run_id: Option<Arc<str>>,
    /// 0 at the root of the tree.
    pub depth: u32,
}

impl HookBase {
    /// The session the run works on.
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.run.session_id
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run.run_id
    }

    /// The run that spawned it.
    #[must_use]
    pub fn parent_run_id(&self) -> Option<&str> {
        self.run.parent_run_id.as_deref()
    }

    /// 0 at the root of the tree.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.run.depth
    }

    /// The event is told again from a recorded run; ids and times are those of the first telling.
    #[must_use]
    pub fn replaying(&self) -> bool {
        self.replaying.load(Ordering::Relaxed)
    }

    /// The agent: steer it, queue a follow-up, abort it.
    #[must_use]
    pub const fn agent(&self) -> &AgentHandle {
        &self.agent
    }
}

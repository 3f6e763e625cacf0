use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::control::AgentHandle;
use crate::decision::{
    Deciding, DecisionDesk, DecisionEvidence, DecisionFailureReason, DecisionRequest, Question, never,
};

/// Which run an event belongs to. Every context derefs to it.
#[derive(Clone, Debug)]
pub struct HookBase {
    pub(crate) run: Arc<RunInfo>,
    pub(crate) agent: AgentHandle,
    pub(crate) replaying: Arc<AtomicBool>,
    /// `None` where no decisions are made.
    pub(crate) desk: Option<Arc<DecisionDesk>>,
    /// Ends the run's decisions.
    pub(crate) abort: CancellationToken,
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

    /// Has the agent's decider answer questions about evidence. What that uses is filed with the run, and an abort of the
    /// run ends it.
    ///
    /// A durable run has it on record as a part of what the hook is a part of: the gate, the request, the result, and is
    /// not asked again on a replay. An event that is only watched, and told again from a record, gets `unavailable`; so
    /// do observers of decisions.
    pub fn decide(
        &self,
        evidence: impl Into<DecisionEvidence>,
        questions: impl IntoIterator<Item = Question>,
    ) -> Deciding {
        match &self.desk {
            None => never(DecisionFailureReason::Unavailable, "no decisions are made here"),
            Some(_) if self.replaying() => {
                never(DecisionFailureReason::Unavailable, "this event is told from a record: nothing is asked again")
            }
            Some(desk) => desk.decide(DecisionRequest::new(evidence, questions), self.abort.clone()),
        }
    }

    /// The agent: steer it, queue a follow-up, abort it.
    #[must_use]
    pub const fn agent(&self) -> &AgentHandle {
        &self.agent
    }
}

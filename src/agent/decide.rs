use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::inner::AgentInner;
use crate::decision::{Deciding, DecisionDesk, DecisionEvidence, DecisionRequest, Question};
use crate::hooks::{Firing, HookBase, RunInfo};

/// Fires the events of a run.
pub(super) fn firing(
    agent: &AgentInner,
    run: Arc<RunInfo>,
    abort: CancellationToken,
    desk: Option<Arc<DecisionDesk>>,
) -> Firing {
    Firing {
        hooks: agent.hooks.clone(),
        base: HookBase { run, agent: agent.handle.clone(), replaying: Arc::default(), desk, abort: abort.clone() },
        abort,
        grace: agent.options.cancel_grace,
    }
}

/// Makes the decisions of a run.
pub(super) fn desk(
    agent: &AgentInner,
    run: Arc<RunInfo>,
    abort: CancellationToken,
    used_up: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
) -> DecisionDesk {
    DecisionDesk {
        decider: agent.decider.clone(),
        ledger: agent.decisions.clone(),
        firing: firing(agent, run, abort, None),
        used_up: Box::new(used_up),
    }
}

/// A decision outside of any run.
pub(super) fn outside(agent: &AgentInner, evidence: DecisionEvidence, questions: Vec<Question>) -> Deciding {
    let run = RunInfo { session_id: agent.session.id().into(), run_id: "".into(), parent_run_id: None, depth: 0 };
    let never = CancellationToken::new();
    let desk = Arc::new(desk(agent, Arc::new(run), never.clone(), || None));
    desk.decide(DecisionRequest::new(evidence, questions), never)
}

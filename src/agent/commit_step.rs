use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::context::RunCx;
use super::seam::Job;
use crate::durable::{StepCx, StepError, StepKind};
use crate::tool_state::{ToolStateCommit, ToolStateOp};

/// Commits what the calls of a segment staged, in call order: store first, snapshot second.
pub(super) struct CommitJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) number: u32,
    pub(super) segment: usize,
    pub(super) staged: Vec<Staged>,
}

/// What one call staged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Staged {
    pub(super) call_id: String,
    pub(super) ops: Vec<ToolStateOp>,
}

/// Per call with staged writes: `None` when they were kept, else what the store said.
pub(super) type CommitOut = Vec<Option<String>>;

impl Job for CommitJob {
    type Out = CommitOut;
    const KIND: StepKind = StepKind::Commit;

    fn name(&self) -> String {
        format!("t{}/commit/{}", self.number, self.segment)
    }

    async fn run(self, _: StepCx) -> Result<CommitOut, StepError> {
        let name = self.name();
        let controller = &self.cx.agent.tool_state;
        let commits: Vec<_> = self
            .staged
            .into_iter()
            .map(|staged| {
                let commit_id = format!("{}:{name}:{}", self.cx.info.run_id, staged.call_id);
                let scope = Arc::clone(controller.scope());
                ToolStateCommit::new(scope, commit_id, Arc::clone(&self.cx.info.run_id), staged.call_id, staged.ops)
            })
            .collect();
        let kept = controller.commit(&commits).await;
        Ok(kept.into_iter().map(|kept| kept.err().map(|error| error.to_string())).collect())
    }
}

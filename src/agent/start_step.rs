use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::context::RunCx;
use super::seam::Job;
use crate::durable::{StepCx, StepError, StepKind};
use crate::types::SessionContentBlock;

/// The version of the loop's step order. A change of the order raises it.
pub(super) const LOOP_VERSION: u32 = 1;

/// Begins a run: what it starts from is on record.
pub(super) struct StartJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) prompt: Vec<SessionContentBlock>,
    pub(super) session_turns: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartOut {
    pub(super) loop_version: u32,
    pub(super) model: String,
    pub(super) prompt: Vec<SessionContentBlock>,
    pub(super) session_turns: usize,
}

impl Job for StartJob {
    type Out = StartOut;
    const KIND: StepKind = StepKind::Start;

    fn name(&self) -> String {
        "start".to_owned()
    }

    async fn run(self, _: StepCx) -> Result<StartOut, StepError> {
        let model = self.cx.agent.head.model.clone();
        Ok(StartOut { loop_version: LOOP_VERSION, model, prompt: self.prompt, session_turns: self.session_turns })
    }
}

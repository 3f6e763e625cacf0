use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::context::RunCx;
use super::seam::Job;
use crate::control::{Halt, QueueKind, QueuedMessage};
use crate::durable::{StepCx, StepError, StepKind};
use crate::types::{DecisionUsage, Document, Prompt, PromptPart, SessionContentBlock};

/// Reads what came from outside while a turn was under way. The loop removes a message once it is stored.
pub(super) struct BoundaryJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) number: u32,
    /// The run would end here: one follow-up is due when there is no steering.
    pub(super) ending: bool,
}

/// What came from outside.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct BoundaryOut {
    pub(super) steering: Vec<QueuedMessage>,
    pub(super) follow_up: Option<QueuedMessage>,
    pub(super) halt: Option<Halt>,
    pub(super) aborted: bool,
    /// What decisions have used meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionUsage>,
}

impl Job for BoundaryJob {
    type Out = BoundaryOut;
    const KIND: StepKind = StepKind::Input;

    fn name(&self) -> String {
        format!("t{}/input{}", self.number, if self.ending { "/end" } else { "" })
    }

    async fn run(self, _: StepCx) -> Result<BoundaryOut, StepError> {
        let handle = &self.cx.agent.handle;
        let steering = handle.queued(QueueKind::Steering);
        let follow_up = (self.ending && steering.is_empty())
            .then(|| handle.queued(QueueKind::FollowUp).into_iter().next())
            .flatten();
        let (halt, aborted) = (handle.halt(), self.cx.abort.is_cancelled());
        Ok(BoundaryOut { steering, follow_up, halt, aborted, decisions: self.cx.agent.decisions.take() })
    }
}

/// A prompt as the blocks of a turn; blank text is left out.
pub(super) fn prompt_blocks(prompt: Prompt) -> Vec<SessionContentBlock> {
    prompt
        .parts
        .into_iter()
        .filter_map(|part| match part {
            PromptPart::Text { text } => (!text.trim().is_empty()).then(|| SessionContentBlock::text(text)),
            PromptPart::Image(media) => Some(SessionContentBlock::Image(media)),
            PromptPart::Document(Document { name, media }) => {
                Some(SessionContentBlock::Document(Document { name, media }))
            }
        })
        .collect()
}

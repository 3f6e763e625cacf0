use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::compaction::Trigger;
use super::context::RunCx;
use super::deferral::DeferredResult;
use super::options::ToolExecution;
use super::seam::Job;
use crate::durable::{StepCx, StepError, StepKind};
use crate::hooks::{SystemBefore, SystemBeforeCx};
use crate::types::{DecisionUsage, SessionContentBlock};

/// The version of the loop's step order. A change of the order raises it.
pub(super) const LOOP_VERSION: u32 = 1;

/// Begins a run: what it starts from is on record.
pub(super) struct StartJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) prompt: Vec<SessionContentBlock>,
    pub(super) session_turns: usize,
    /// The version of the stored session.
    pub(super) session_version: Option<u64>,
    /// What the model is told about its answer's form, where the wire cannot hold it to that.
    pub(super) instruction: Option<String>,
    pub(super) compaction: Option<Trigger>,
    pub(super) answers: Vec<DeferredResult>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StartOut {
    pub(super) loop_version: u32,
    pub(super) model: String,
    pub(super) prompt: Vec<SessionContentBlock>,
    pub(super) session_turns: usize,
    /// The version of the stored session: a run that is taken up reads no further.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session_version: Option<u64>,
    /// The system text, as hooks left it.
    pub(super) system: Option<Arc<str>>,
    /// The hook that failed, and why.
    pub(super) failed: Option<(String, String)>,
    /// When the run compacts its conversation.
    #[serde(default)]
    pub(super) compaction: Option<Trigger>,
    /// What decisions have used since the run before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionUsage>,
    /// Answers of the host to calls that an earlier run left to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) answers: Vec<DeferredResult>,
    /// Which calls may run at the same time: it decides which steps there are.
    #[serde(default)]
    pub(super) execution: Option<ToolExecution>,
}

impl Job for StartJob {
    type Out = StartOut;
    const KIND: StepKind = StepKind::Start;

    fn name(&self) -> String {
        "start".to_owned()
    }

    async fn run(self, _: StepCx) -> Result<StartOut, StepError> {
        let Self { cx, prompt, session_turns, session_version, instruction, compaction, answers } = self;
        let mut system = cx.agent.head.system.clone();
        let mut failed = None;
        if cx.live.has::<SystemBefore>() {
            let mut hook_cx = SystemBeforeCx::new(&cx.live.base, &mut system);
            if let Err(failure) = cx.live.fire::<SystemBefore>(&mut hook_cx).await {
                failed = Some((failure.hook.to_owned(), failure.cause.to_string()));
            }
        }
        if let Some(instruction) = instruction {
            system = Some(match system.as_deref().filter(|text| !text.trim().is_empty()) {
                Some(text) => format!("{text}\n\n{instruction}").into(),
                None => instruction.into(),
            });
        }
        let model = cx.agent.head.model.clone();
        Ok(StartOut {
            loop_version: LOOP_VERSION,
            model,
            prompt,
            session_turns,
            session_version,
            system,
            failed,
            compaction,
            decisions: cx.agent.decisions.take(),
            answers,
            execution: Some(cx.agent.options.tool_execution),
        })
    }
}

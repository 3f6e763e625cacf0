use std::sync::Arc;

use super::compaction::Compacting;
use super::deferral::Answers;
use super::input_step::prompt_blocks;
use super::outcome::{RunErrorKind, StopCause};
use super::start_step::StartJob;
use super::structured::Output;
use super::turn_loop::{Boundary, TurnLoop, provider_error};
use crate::control::QueueKind;
use crate::durable::{DurableError, StepKey, StepKind};
use crate::hooks::{AgentStart, AgentStartCx, ToolStateLoadFailed, ToolStateLoadFailedCx};
use crate::session::Opened;
use crate::types::{Prompt, Role, SessionContentBlock, TurnFinishReason, TurnOrigin};

impl TurnLoop {
    /// Everything before the first turn. `Some` when the run is over already.
    pub(super) async fn begin(&mut self, prompt: Prompt) -> Result<Option<StopCause>, RunErrorKind> {
        let cx = Arc::clone(&self.cx);
        let blocks = prompt_blocks(prompt);
        if cx.firing.has::<AgentStart>() {
            cx.firing.observe::<AgentStart>(&mut AgentStartCx::new(&cx.firing.base, &blocks)).await;
        }
        // Checked before anything is stored, sent or recorded.
        self.check(&blocks)?;
        let mut opened = Opened::default();
        if self.is_kept() {
            match Box::pin(self.open_session()).await? {
                None => return Ok(Some(StopCause::Aborted)),
                Some(found) => opened = found,
            }
        }
        let waiting = if self.is_kept() { opened.waiting.take() } else { cx.agent.session.waiting() };
        self.admit(waiting, !blocks.is_empty())?;
        self.load_state().await?;
        let native = cx.agent.provider.capabilities(&self.head.model).native_structured_output;
        let instruction = self.output.as_ref().filter(|_| !native).map(Output::instruction);
        let session_turns = cx.agent.session.len();
        let policy = cx.agent.options.compaction.clone();
        let policy = if self.compact_first { Some(policy.unwrap_or_default()) } else { policy };
        let compaction =
            policy.as_ref().map(|policy| policy.trigger(&*cx.agent.provider, &self.head, self.compact_first));
        let session_version = self.is_kept().then_some(opened.version);
        let start = StartJob {
            cx: Arc::clone(&cx),
            prompt: blocks,
            session_turns,
            session_version,
            instruction,
            compaction,
            answers: std::mem::take(&mut self.answers),
        };
        // Kept only where another may be on record.
        let asked = self.seam.is_durable().then(|| start.prompt.clone());
        let mut started = self.step(start).await?;
        if started.replayed && asked.is_some_and(|asked| !asked.is_empty() && !is_recorded(&asked, &started.out.prompt))
        {
            return Err(self.another_prompt());
        }
        self.record_decisions(std::mem::take(&mut started.out.decisions));
        let at = cx.time(started.at).await;
        if let Some((hook, message)) = started.out.failed {
            return Err(RunErrorKind::Hook { hook, message });
        }
        if started.out.system != self.head.system {
            Arc::make_mut(&mut self.head).system = started.out.system;
        }
        let compacting = |trigger| Compacting::new(policy.unwrap_or_default(), trigger);
        self.compacting = started.out.compaction.map(compacting);
        self.at = at;
        self.execution = started.out.execution.unwrap_or(self.execution);
        if self.is_kept() {
            let head = started.out.session_version.unwrap_or(opened.version);
            if head != opened.version {
                opened = Opened { version: head, ..Opened::default() };
                Box::pin(self.rewind_session(head)).await?;
            }
        }
        let answers = match started.out.answers {
            answers if answers.is_empty() => None,
            answers => Some(self.take_answers(answers)?),
        };
        if self.is_kept() {
            self.queue_start(at, answers.as_ref().map(Answers::call_ids).unwrap_or_default());
        }
        if let Some(answers) = answers {
            return Box::pin(self.resume(answers)).await;
        }
        if cx.agent.session.is_open() {
            Box::pin(self.repair(at, opened.version, &opened.orphans)).await?;
        }
        if started.out.prompt.is_empty() {
            return self.begin_without_prompt().await;
        }
        let id = self.uuid();
        self.push(self.turn(id, Role::User, TurnOrigin::Prompt, started.out.prompt, at));
        Ok(None)
    }

    fn another_prompt(&self) -> RunErrorKind {
        let start = |name: &str| StepKey { kind: StepKind::Start, name: name.to_owned() };
        RunErrorKind::Durable(DurableError::Diverged {
            run_id: (*self.cx.info.run_id).to_owned(),
            place: 0,
            recorded: start("start"),
            requested: start("start with another prompt"),
        })
    }

    /// Without a prompt the run answers what the conversation ends in, or what waits in the queues.
    async fn begin_without_prompt(&mut self) -> Result<Option<StopCause>, RunErrorKind> {
        let history = self.cx.agent.session.history();
        let open = match history.last() {
            None => false,
            Some(last) => {
                last.role == Role::User
                    || (last.finish_reason == Some(TurnFinishReason::Pause)
                        && self.cx.agent.provider.resume(last).is_sent_again())
            }
        };
        drop(history);
        if open {
            return Ok(None);
        }
        let Boundary { at, input } = self.boundary(true).await?;
        if !input.steering.is_empty() {
            self.deliver(QueueKind::Steering, input.steering, at).await?;
            return Ok(None);
        }
        match input.follow_up {
            Some(message) => {
                self.deliver(QueueKind::FollowUp, vec![message], at).await?;
                Ok(None)
            }
            None => Err(RunErrorKind::NothingToDo),
        }
    }

    async fn load_state(&self) -> Result<(), RunErrorKind> {
        let cx = &self.cx;
        let Err(error) = cx.agent.tool_state.load().await else { return Ok(()) };
        let text = error.to_string();
        if cx.firing.has::<ToolStateLoadFailed>() {
            let mut hook_cx = ToolStateLoadFailedCx::new(&cx.firing.base, &text);
            cx.firing.observe::<ToolStateLoadFailed>(&mut hook_cx).await;
        } else {
            eprintln!("zidane: tool state could not be loaded: {text}");
        }
        match cx.agent.options.load_failure {
            super::LoadFailure::FailRun => Err(RunErrorKind::ToolState(text)),
            super::LoadFailure::ContinueEmpty => Ok(()),
        }
    }

    /// Checks that a user turn can be sent. Images need not, where another model describes them.
    pub(super) fn check(&self, blocks: &[SessionContentBlock]) -> Result<(), RunErrorKind> {
        let agent = &self.cx.agent;
        let model = &self.head.model;
        let described = agent.options.vision.is_some() && !agent.provider.capabilities(model).images;
        let checked = if described {
            let seen = |block: &&SessionContentBlock| !matches!(block, SessionContentBlock::Image(_));
            let rest: Vec<_> = blocks.iter().filter(seen).cloned().collect();
            agent.provider.check(model, &rest)
        } else {
            agent.provider.check(model, blocks)
        };
        checked.map_err(provider_error)
    }
}

/// Whether a prompt is the one on record. Media may come back in another form than they were given in.
fn is_recorded(asked: &[SessionContentBlock], recorded: &[SessionContentBlock]) -> bool {
    let json = |blocks| serde_json::to_value::<&[SessionContentBlock]>(blocks).ok();
    asked == recorded || json(asked) == json(recorded)
}

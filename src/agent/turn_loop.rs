use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use uuid::Uuid;

use super::batch::{BatchOut, Channels};
use super::compaction::Compacting;
use super::context::RunCx;
use super::deferral::DeferredResult;
use super::event::AgentEvent;
use super::input_step::{BoundaryJob, BoundaryOut, prompt_blocks};
use super::model_step::{Continuation, ModelEnd, ModelOut};
use super::options::ToolExecution;
use super::outcome::{Denial, RunErrorKind, StopCause};
use super::seam::{Done, Seam, SeamError};
use super::structured::Output;
use crate::control::{Halt, QueueKind, QueuedMessage};
use crate::durable::DurableRun;
use crate::hooks::{QueueUpdate, QueueUpdateCx, SteerInject, SteerInjectCx, TurnAfter, TurnAfterCx};
use crate::provider::{HistoryTurn, ProviderError, RequestHead};
use crate::session::{RunEntry, child_id};
use crate::types::{
    AgentStats, Extra, PendingCall, Prompt, Role, SessionContentBlock, SessionTurn, Timestamp, TurnFinishReason,
    TurnOrigin, TurnUsage,
};

const CONTINUE: &str = "Please continue.";

/// Tries at structured output after the first.
const MAX_REPAIRS: u32 = 1;

/// One run of the loop: what it has come to so far.
pub(super) struct TurnLoop {
    pub(super) cx: Arc<RunCx>,
    pub(super) seam: Seam,
    pub(super) head: Arc<RequestHead>,
    pub(super) max_turns: Option<u32>,
    pub(super) stats: AgentStats,
    /// Model turns made in this run.
    pub(super) number: u32,
    pub(super) text: String,
    pub(super) denials: Vec<Denial>,
    /// Steps on record say that the run was aborted.
    pub(super) aborted: bool,
    pub(super) failures: u32,
    pauses: u32,
    continued_length: bool,
    continued_empty: bool,
    /// A paused turn goes back as it is; no text may come between.
    pub(super) unresolved: bool,
    pub(super) compacting: Option<Compacting>,
    /// The host asks for a compaction before the first turn.
    pub(super) compact_first: bool,
    /// The host's answers to calls that an earlier run left to it.
    pub(super) answers: Vec<DeferredResult>,
    /// Calls that wait and have no answer are given up.
    pub(super) abandon: bool,
    pub(super) execution: ToolExecution,
    pub(super) output: Option<Output>,
    /// Tries at structured output after the first.
    pub(super) repairs: u32,
    /// The answer as a value.
    pub(super) value: Option<Value>,
    pub(super) channels: Option<Channels>,
    /// The entry of its beginning, once the session is kept and has it, or is to have it.
    pub(super) started: Option<RunEntry>,
    /// The time of the last step on record.
    pub(super) at: Timestamp,
}

/// An id as it is stored. Not by way of `Display`, whose machinery costs more than the text.
pub(super) fn id_text(id: Uuid) -> String {
    id.hyphenated().encode_lower(&mut Uuid::encode_buffer()).to_owned()
}

/// What came from outside at a boundary, and when.
#[derive(Default)]
pub(super) struct Boundary {
    pub(super) at: Timestamp,
    pub(super) input: BoundaryOut,
}

/// What the loop does after a turn.
enum Next {
    /// Another turn: results or text wait for an answer.
    Turn,
    /// The run would end here, but for what waits in the queues.
    Ending,
    Stop(StopCause),
}

impl TurnLoop {
    pub(super) fn new(cx: Arc<RunCx>, seam: Seam, max_turns: Option<u32>, output: Option<Output>) -> Self {
        let mut head = Arc::clone(&cx.agent.head);
        if let Some(output) = &output {
            Arc::make_mut(&mut head).output = Some(Arc::clone(&output.schema));
        }
        let execution = cx.agent.options.tool_execution;
        Self {
            cx,
            seam,
            head,
            max_turns,
            stats: AgentStats::default(),
            number: 0,
            text: String::new(),
            denials: Vec::new(),
            aborted: false,
            failures: 0,
            pauses: 0,
            continued_length: false,
            continued_empty: false,
            unresolved: false,
            compacting: None,
            compact_first: false,
            answers: Vec::new(),
            abandon: false,
            execution,
            output,
            repairs: 0,
            value: None,
            channels: None,
            started: None,
            at: Timestamp::default(),
        }
    }

    pub(super) fn uuid(&self) -> Uuid {
        match &self.seam {
            Seam::Direct => match &self.cx.lineage {
                None => self.cx.clock.random_uuid(),
                Some(lineage) => lineage.ids.next(),
            },
            Seam::Durable(run) => run.uuid(),
        }
    }

    /// Whether the run was aborted. Where steps are recorded only the record says so, or a replay would differ.
    pub(super) fn is_aborted(&self) -> bool {
        self.aborted || (!self.seam.is_durable() && self.cx.abort.is_cancelled())
    }

    pub(super) fn turn(
        &self,
        id: Uuid,
        role: Role,
        origin: TurnOrigin,
        content: Vec<SessionContentBlock>,
        at: Timestamp,
    ) -> SessionTurn {
        let mut turn = SessionTurn::new(id_text(id), role, origin, content);
        (*self.cx.info.run_id).clone_into(&mut turn.run_id);
        turn.created_at = at;
        turn
    }

    pub(super) fn push(&self, turn: SessionTurn) -> Arc<HistoryTurn> {
        let turn = Arc::new(HistoryTurn::new(turn));
        self.cx.agent.session.push(Arc::clone(&turn));
        turn
    }

    /// Runs to the end.
    pub(super) async fn run(&mut self, prompt: Prompt) -> Result<StopCause, RunErrorKind> {
        if let Some(stop) = self.begin(prompt).await? {
            return Ok(stop);
        }
        let mut boundary = self.boundary(false).await?;
        loop {
            if self.is_aborted() {
                return Ok(StopCause::Aborted);
            }
            if self.turns_are_up() {
                return Ok(StopCause::MaxTurns);
            }
            if !self.unresolved {
                self.deliver(QueueKind::Steering, std::mem::take(&mut boundary.input.steering), boundary.at).await?;
                self.compact_when_due().await?;
                if self.is_aborted() {
                    return Ok(StopCause::Aborted);
                }
            }
            let next = self.model_turn().await?;
            if self.is_aborted() && !matches!(next, Next::Stop(StopCause::Deferred(_))) {
                return Ok(StopCause::Aborted);
            }
            match next {
                Next::Stop(stop) => return Ok(stop),
                Next::Turn => {
                    boundary = self.boundary(false).await?;
                    match boundary.input.halt {
                        Some(Halt::Drain) => return Ok(StopCause::Drained),
                        Some(Halt::Loop) => return Ok(StopCause::LoopGuard),
                        None => {}
                    }
                }
                Next::Ending => {
                    boundary = self.boundary(true).await?;
                    let steered = !boundary.input.steering.is_empty();
                    if !steered && boundary.input.halt.is_none() && !self.is_aborted() && self.repair_output()? {
                        continue;
                    }
                    let follow_up = boundary.input.follow_up.take();
                    if boundary.input.halt.is_some()
                        || self.turns_are_up()
                        || (boundary.input.steering.is_empty() && follow_up.is_none())
                    {
                        return Ok(if self.is_aborted() { StopCause::Aborted } else { StopCause::Stop });
                    }
                    if self.is_aborted() {
                        return Ok(StopCause::Aborted);
                    }
                    self.deliver(QueueKind::FollowUp, follow_up.into_iter().collect(), boundary.at).await?;
                }
            }
        }
    }

    /// Reads the answer as what was asked for. True when the model is asked to mend it.
    fn repair_output(&mut self) -> Result<bool, RunErrorKind> {
        let Some(output) = &self.output else { return Ok(false) };
        let wrong = match output.read(&self.text) {
            Ok(value) => {
                self.value = Some(value);
                return Ok(false);
            }
            Err(wrong) => wrong,
        };
        if self.repairs >= MAX_REPAIRS || self.turns_are_up() {
            return Err(RunErrorKind::Output(wrong));
        }
        self.repairs += 1;
        let text = format!("{wrong}\n\n{}", output.instruction());
        let history = self.cx.agent.session.history();
        let Some(last) = history.last().cloned() else { return Err(RunErrorKind::Output(wrong)) };
        drop(history);
        self.push_text(&last, TurnOrigin::Repair, &text, last.created_at);
        Ok(true)
    }

    fn turns_are_up(&self) -> bool {
        self.max_turns.is_some_and(|max| self.number >= max)
    }

    pub(super) async fn step<J: super::seam::Job>(&self, job: J) -> Result<Done<J::Out>, RunErrorKind> {
        let done = self.seam.one(job).await.map_err(step_error)?;
        self.cx.firing.base.replaying.store(done.replayed, Ordering::Relaxed);
        Ok(done)
    }

    /// Reads what came from outside. Without a record to keep, nothing is done when nothing waits.
    pub(super) async fn boundary(&mut self, ending: bool) -> Result<Boundary, RunErrorKind> {
        let handle = &self.cx.agent.handle;
        let news = handle.has_queued(QueueKind::Steering)
            || handle.halt().is_some()
            || (ending && handle.has_queued(QueueKind::FollowUp));
        if !self.seam.is_durable() && !news {
            return Ok(Boundary::default());
        }
        let job = BoundaryJob { cx: Arc::clone(&self.cx), number: self.number, ending };
        let mut done = self.step(job).await?;
        self.aborted |= done.out.aborted;
        self.record_decisions(std::mem::take(&mut done.out.decisions));
        let at = self.cx.time(done.at).await;
        self.at = at;
        Ok(Boundary { at, input: done.out })
    }

    /// Makes turns of queued messages, then takes them off their queue.
    pub(super) async fn deliver(
        &mut self,
        kind: QueueKind,
        messages: Vec<QueuedMessage>,
        at: Timestamp,
    ) -> Result<(), RunErrorKind> {
        if messages.is_empty() {
            return Ok(());
        }
        let cx = Arc::clone(&self.cx);
        let origin = if kind == QueueKind::Steering { TurnOrigin::Steering } else { TurnOrigin::FollowUp };
        let ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        let mut turns = Vec::with_capacity(messages.len());
        for message in messages {
            let blocks = prompt_blocks(message.prompt);
            self.check(&blocks)?;
            if !blocks.is_empty() {
                turns.push((message.id, self.turn(self.uuid(), Role::User, origin, blocks, at)));
            }
        }
        // No await from here to `delivered`: a message is either queued or in the session, which is the stored one where
        // there is one.
        let turns: Vec<_> = turns.into_iter().map(|(id, turn)| (id, self.push(turn))).collect();
        if self.is_kept() && !turns.is_empty() {
            let (handle, ids) = (cx.agent.handle.clone(), ids.clone());
            cx.agent.session.once_saved(move || handle.delivered(kind, &ids));
            self.save().await?;
        } else {
            cx.agent.handle.delivered(kind, &ids);
        }
        for (id, turn) in &turns {
            if kind == QueueKind::Steering {
                if cx.firing.has::<SteerInject>() {
                    cx.firing.observe::<SteerInject>(&mut SteerInjectCx::new(&cx.firing.base, *id, turn)).await;
                }
                cx.emit(|| AgentEvent::Steered { id: *id }).await;
            }
        }
        if cx.firing.has::<QueueUpdate>() {
            let waiting = cx.agent.handle.queued(kind).len();
            cx.firing.observe::<QueueUpdate>(&mut QueueUpdateCx::new(&cx.firing.base, kind, &ids, waiting)).await;
        }
        Ok(())
    }

    /// One turn: the model, then its calls.
    async fn model_turn(&mut self) -> Result<Next, RunErrorKind> {
        self.number += 1;
        let cx = Arc::clone(&self.cx);
        cx.emit(|| AgentEvent::TurnStart { number: self.number }).await;
        // Nothing is sent that is not stored.
        self.save().await?;
        let turn_id = self.uuid();
        let (mut out, at) = self.ask(turn_id).await?;
        self.at = at;
        self.record_decisions(std::mem::take(&mut out.decisions));
        self.record_visions(turn_id, std::mem::take(&mut out.visions), at);
        let usage = self.record_usage(turn_id, &mut out).await;
        let failure = match std::mem::replace(&mut out.end, ModelEnd::Complete) {
            ModelEnd::Complete => None,
            ModelEnd::Aborted => {
                self.aborted = true;
                None
            }
            ModelEnd::Provider(error) => Some(RunErrorKind::Provider(error)),
            ModelEnd::Hook { hook, message } => return Err(RunErrorKind::Hook { hook, message }),
            ModelEnd::Transcript(error) => return Err(RunErrorKind::Transcript(error)),
            ModelEnd::NothingToSend => return Err(RunErrorKind::NothingToDo),
            ModelEnd::Limit(limit) => return Ok(Next::Stop(StopCause::Limit(limit))),
        };
        let cut = self.aborted || failure.is_some();
        let finish = if cut { None } else { out.finish };
        let resume = out.resume;
        let visible = out.visible_tools.take();
        let turn = self.store(turn_id, out, usage.clone(), cut, at);
        self.save().await?;
        let mut batch = BatchOut::default();
        if let Some(turn) = &turn {
            self.text = turn.text();
            batch = self.answer_calls(turn, visible.as_deref(), cut, finish).await?;
        }
        if let Some(usage) = usage {
            if let Some(turn) = turn.as_ref().filter(|_| cx.firing.has::<TurnAfter>()) {
                let mut hook_cx = TurnAfterCx::new(&cx.firing.base, self.number, turn, &usage, &batch.summaries);
                cx.firing.observe::<TurnAfter>(&mut hook_cx).await;
            }
            cx.emit(|| AgentEvent::TurnEnd { number: self.number, usage }).await;
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(self.after_turn(turn.as_deref(), finish, resume, batch, at)),
        }
    }

    /// Stores the assistant turn, before any of its calls starts. A cut turn with nothing in it is not stored, nor is
    /// one that the provider itself called failed.
    fn store(
        &self,
        turn_id: Uuid,
        out: ModelOut,
        usage: Option<Arc<TurnUsage>>,
        cut: bool,
        at: Timestamp,
    ) -> Option<Arc<HistoryTurn>> {
        if cut && (out.blocks.is_empty() || out.finish == Some(TurnFinishReason::Error)) {
            return None;
        }
        let mut turn = self.turn(turn_id, Role::Assistant, TurnOrigin::Model, out.blocks, at);
        turn.usage = usage;
        turn.prefix_digest = out.prefix_digest;
        turn.finish_reason = if cut { None } else { out.finish };
        turn.interrupted = cut;
        turn.pending = turn
            .tool_calls()
            .map(|call| PendingCall { call_id: call.id.clone(), deferred: false, extra: Extra::default() })
            .collect();
        Some(self.push(turn))
    }

    /// Decides by the finish reason what comes next.
    fn after_turn(
        &mut self,
        turn: Option<&HistoryTurn>,
        finish: Option<TurnFinishReason>,
        resume: Option<Continuation>,
        batch: BatchOut,
        at: Timestamp,
    ) -> Next {
        if !batch.deferred.is_empty() {
            return Next::Stop(StopCause::Deferred(batch.deferred));
        }
        let Some(turn) = turn.filter(|_| !self.aborted) else { return Next::Stop(StopCause::Aborted) };
        if let Some(limit) = batch.limit {
            return Next::Stop(StopCause::Limit(limit));
        }
        let called = batch.called;
        if finish != Some(TurnFinishReason::Pause) {
            self.pauses = 0;
            self.unresolved = false;
        }
        match finish {
            Some(TurnFinishReason::ContentFilter) => Next::Stop(StopCause::ContentFilter),
            Some(TurnFinishReason::Length) => {
                if !self.cx.agent.options.continue_after_length || std::mem::replace(&mut self.continued_length, true) {
                    return Next::Stop(StopCause::Length);
                }
                if !called {
                    self.push_text(turn, TurnOrigin::Continue, CONTINUE, at);
                }
                Next::Turn
            }
            Some(TurnFinishReason::Pause) => {
                self.pauses += 1;
                if self.pauses > self.cx.agent.options.max_pauses {
                    return Next::Stop(StopCause::PauseLimit);
                }
                if !called {
                    match resume {
                        Some(Continuation::Host) => return Next::Stop(StopCause::Paused),
                        Some(Continuation::AsIs) => self.unresolved = true,
                        Some(Continuation::UserText) | None => self.push_text(turn, TurnOrigin::Pause, CONTINUE, at),
                    }
                }
                Next::Turn
            }
            _ if called => {
                self.failures = if batch.all_failed { self.failures + 1 } else { 0 };
                if self.failures > self.cx.agent.options.max_consecutive_failures {
                    return Next::Stop(StopCause::ToolFailures);
                }
                self.continued_empty = false;
                match finish {
                    Some(TurnFinishReason::Stop | TurnFinishReason::ToolCalls) => Next::Turn,
                    _ => Next::Stop(StopCause::Other),
                }
            }
            Some(TurnFinishReason::Stop | TurnFinishReason::ToolCalls) => {
                if self.is_empty_answer(turn) && !std::mem::replace(&mut self.continued_empty, true) {
                    self.push_text(turn, TurnOrigin::Continue, CONTINUE, at);
                    return Next::Turn;
                }
                Next::Ending
            }
            _ => Next::Stop(StopCause::Other),
        }
    }

    /// The model said nothing although it was given results.
    fn is_empty_answer(&self, turn: &HistoryTurn) -> bool {
        let silent = turn.content.iter().all(|block| matches!(block, SessionContentBlock::Thinking(_)));
        silent && self.cx.agent.options.continue_after_empty && {
            let history = self.cx.agent.session.history();
            let before = history.len().checked_sub(2).and_then(|index| history.turns().get(index));
            before.is_some_and(|before| before.tool_results().next().is_some())
        }
    }

    fn push_text(&self, after: &HistoryTurn, origin: TurnOrigin, text: &str, at: Timestamp) {
        let id = child_id(&after.id, "continue");
        self.push(self.turn(id, Role::User, origin, vec![SessionContentBlock::text(text)], at));
    }
}

pub(super) fn provider_error(error: ProviderError) -> RunErrorKind {
    RunErrorKind::Provider(Box::new(error))
}

pub(super) fn step_error(error: SeamError) -> RunErrorKind {
    match error {
        SeamError::Durable(error) => RunErrorKind::Durable(error),
        other => RunErrorKind::Step(other.to_string()),
    }
}

/// Opens the seam of a run.
pub(super) fn seam(run: Option<Arc<dyn DurableRun>>) -> Seam {
    run.map_or(Seam::Direct, Seam::Durable)
}

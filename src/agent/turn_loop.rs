use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde_json::Value;
use uuid::Uuid;

use super::batch::{BatchOut, Channels};
use super::context::RunCx;
use super::event::AgentEvent;
use super::input_step::{BoundaryJob, BoundaryOut, prompt_blocks};
use super::model_step::{Continuation, ModelEnd, ModelJob, ModelOut};
use super::outcome::{Denial, RunErrorKind, StopCause};
use super::seam::{Done, Seam, SeamError};
use super::start_step::StartJob;
use super::structured::Output;
use super::vision::Description;
use crate::control::{Halt, QueueKind, QueuedMessage};
use crate::durable::DurableRun;
use crate::hooks::{
    AgentStart, AgentStartCx, QueueUpdate, QueueUpdateCx, SessionRepaired, SessionRepairedCx, SteerInject,
    SteerInjectCx, ToolStateLoadFailed, ToolStateLoadFailedCx, TurnAfter, TurnAfterCx, TurnUsageHook, TurnUsageHookCx,
};
use crate::provider::{HistoryTurn, ProviderError, RequestHead};
use crate::session::{child_id, repair};
use crate::types::{
    AgentStats, Extra, PendingCall, Prompt, Role, SessionContentBlock, SessionTurn, Timestamp, TurnFinishReason,
    TurnOrigin, TurnUsage, UsageKind,
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
    unresolved: bool,
    output: Option<Output>,
    /// Tries at structured output after the first.
    repairs: u32,
    /// The answer as a value.
    pub(super) value: Option<Value>,
    pub(super) channels: Option<Channels>,
}

/// What came from outside at a boundary, and when.
#[derive(Default)]
struct Boundary {
    at: Timestamp,
    input: BoundaryOut,
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
            output,
            repairs: 0,
            value: None,
            channels: None,
        }
    }

    pub(super) fn uuid(&self) -> Uuid {
        match &self.seam {
            Seam::Direct => self.cx.clock.random_uuid(),
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
        let mut turn = SessionTurn::new(id.to_string(), role, origin, content);
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
            }
            let next = self.model_turn().await?;
            if self.is_aborted() {
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

    /// Everything before the first turn. `Some` when the run is over already.
    async fn begin(&mut self, prompt: Prompt) -> Result<Option<StopCause>, RunErrorKind> {
        let cx = Arc::clone(&self.cx);
        let blocks = prompt_blocks(prompt);
        if cx.firing.has::<AgentStart>() {
            cx.firing.observe::<AgentStart>(&mut AgentStartCx::new(&cx.firing.base, &blocks)).await;
        }
        // Checked before anything is stored, sent or recorded.
        self.check(&blocks)?;
        self.load_state().await?;
        let native = cx.agent.provider.capabilities(&self.head.model).native_structured_output;
        let instruction = self.output.as_ref().filter(|_| !native).map(Output::instruction);
        let session_turns = cx.agent.session.len();
        let start = StartJob { cx: Arc::clone(&cx), prompt: blocks, session_turns, instruction };
        let started = self.step(start).await?;
        let at = cx.time(started.at).await;
        if let Some((hook, message)) = started.out.failed {
            return Err(RunErrorKind::Hook { hook, message });
        }
        if started.out.system != self.head.system {
            Arc::make_mut(&mut self.head).system = started.out.system;
        }
        self.repair(at).await;
        if started.out.prompt.is_empty() {
            return self.begin_without_prompt().await;
        }
        let id = self.uuid();
        self.push(self.turn(id, Role::User, TurnOrigin::Prompt, started.out.prompt, at));
        Ok(None)
    }

    /// Without a prompt the run answers what the conversation ends in, or what waits in the queues.
    async fn begin_without_prompt(&mut self) -> Result<Option<StopCause>, RunErrorKind> {
        let history = self.cx.agent.session.history();
        let open = match history.last() {
            None => false,
            Some(last) => {
                last.role == Role::User
                    || (last.finish_reason == Some(TurnFinishReason::Pause)
                        && self.cx.agent.provider.resume(last) != crate::provider::Resume::UserText)
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
    fn check(&self, blocks: &[SessionContentBlock]) -> Result<(), RunErrorKind> {
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

    /// Settles what an earlier run left open.
    async fn repair(&self, at: Timestamp) {
        let cx = &self.cx;
        let kept = cx.agent.session.take_results();
        let repaired = repair(&cx.agent.session.history(), kept, &cx.info.run_id, at);
        let Some(repaired) = repaired else { return };
        self.push(repaired.turn);
        if cx.firing.has::<SessionRepaired>() {
            let mut hook_cx = SessionRepairedCx::new(&cx.firing.base, &repaired.answered, &[]);
            cx.firing.observe::<SessionRepaired>(&mut hook_cx).await;
        }
    }

    pub(super) async fn step<J: super::seam::Job>(&self, job: J) -> Result<Done<J::Out>, RunErrorKind> {
        let done = self.seam.one(job).await.map_err(step_error)?;
        self.cx.firing.base.replaying.store(done.replayed, Ordering::Relaxed);
        Ok(done)
    }

    /// Reads what came from outside. Without a record to keep, nothing is done when nothing waits.
    async fn boundary(&mut self, ending: bool) -> Result<Boundary, RunErrorKind> {
        let handle = &self.cx.agent.handle;
        let news = handle.has_queued(QueueKind::Steering)
            || handle.halt().is_some()
            || (ending && handle.has_queued(QueueKind::FollowUp));
        if !self.seam.is_durable() && !news {
            return Ok(Boundary::default());
        }
        let job = BoundaryJob { cx: Arc::clone(&self.cx), number: self.number, ending };
        let done = self.step(job).await?;
        self.aborted |= done.out.aborted;
        let at = self.cx.time(done.at).await;
        Ok(Boundary { at, input: done.out })
    }

    /// Makes turns of queued messages, then takes them off their queue.
    async fn deliver(
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
        // No await from here to `delivered`: a message is either queued or in the session.
        let turns: Vec<_> = turns.into_iter().map(|(id, turn)| (id, self.push(turn))).collect();
        cx.agent.handle.delivered(kind, &ids);
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
        let turn_id = self.uuid();
        let job = ModelJob {
            cx: Arc::clone(&cx),
            number: self.number,
            turn_id,
            head: Arc::clone(&self.head),
            history: cx.agent.session.history(),
            body_cache: cx.agent.session.body_cache(),
        };
        let done = self.step(job).await?;
        let at = cx.time(done.at).await;
        let mut out = done.out;
        self.record_visions(turn_id, std::mem::take(&mut out.visions));
        let usage = self.record_usage(turn_id, &out).await;
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
        let mut batch = BatchOut::default();
        if let Some(turn) = &turn {
            self.text = turn.text();
            batch = self.answer_calls(turn, turn_id, visible.as_deref(), cut, finish).await?;
        }
        if let Some(usage) = usage {
            if let Some(turn) = turn.as_ref().filter(|_| cx.firing.has::<TurnAfter>()) {
                let mut hook_cx = TurnAfterCx::new(&cx.firing.base, self.number, turn, &usage, &batch.summaries);
                cx.firing.observe::<TurnAfter>(&mut hook_cx).await;
            }
            cx.emit(|| AgentEvent::TurnEnd { number: self.number, usage: Box::new(usage) }).await;
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(self.after_turn(turn.as_deref(), finish, resume, &batch, at)),
        }
    }

    /// Files what descriptions of images used, and keeps them: on a replay nobody asked for them here.
    fn record_visions(&mut self, turn_id: Uuid, visions: Vec<Description>) {
        for vision in visions {
            self.cx.agent.stand_ins.lock().unwrap_or_else(PoisonError::into_inner).learn(&vision);
            let usage = TurnUsage {
                tokens: vision.usage.tokens,
                cost: vision.cost,
                model_id: vision.model_id,
                requested_model: vision.requested_model,
                provider: vision.provider,
                finish_reason: Some(TurnFinishReason::Stop),
                kind: UsageKind::Vision,
                complete: true,
                attempts: 1,
                ..self.usage_base(turn_id)
            };
            self.cx.meter.count_side(&usage);
            self.stats.push_turn(usage);
        }
    }

    /// The part of a usage entry that says whose it is.
    fn usage_base(&self, turn_id: Uuid) -> TurnUsage {
        TurnUsage {
            run_id: (*self.cx.info.run_id).to_owned(),
            turn_id: turn_id.to_string(),
            parent_run_id: self.cx.info.parent_run_id.as_deref().map(ToOwned::to_owned),
            depth: self.cx.info.depth,
            ..TurnUsage::default()
        }
    }

    /// Files what the turn used; `None` when nothing was sent.
    async fn record_usage(&mut self, turn_id: Uuid, out: &ModelOut) -> Option<TurnUsage> {
        if out.attempts == 0 {
            return None;
        }
        let usage = TurnUsage {
            tokens: out.tokens,
            cost: out.cost,
            model_id: out.model_id.clone(),
            requested_model: out.requested_model.clone(),
            provider: out.provider.clone(),
            finish_reason: out.finish,
            raw_finish_reason: out.raw_finish.clone(),
            kind: if self.repairs > 0 && self.value.is_none() { UsageKind::Repair } else { UsageKind::Turn },
            complete: out.complete,
            attempts: out.attempts,
            ..self.usage_base(turn_id)
        };
        self.cx.meter.count_turn(&usage);
        self.stats.push_turn(usage.clone());
        let firing = &self.cx.firing;
        if firing.has::<TurnUsageHook>() {
            let mut hook_cx = TurnUsageHookCx::new(&firing.base, &usage, &self.stats);
            firing.observe::<TurnUsageHook>(&mut hook_cx).await;
        }
        Some(usage)
    }

    /// Stores the assistant turn, before any of its calls starts. A cut turn with nothing in it is not stored, nor is
    /// one that the provider itself called failed.
    fn store(
        &self,
        turn_id: Uuid,
        out: ModelOut,
        usage: Option<TurnUsage>,
        cut: bool,
        at: Timestamp,
    ) -> Option<Arc<HistoryTurn>> {
        if cut && (out.blocks.is_empty() || out.finish == Some(TurnFinishReason::Error)) {
            return None;
        }
        let mut turn = self.turn(turn_id, Role::Assistant, TurnOrigin::Model, out.blocks, at);
        turn.usage = usage;
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
        batch: &BatchOut,
        at: Timestamp,
    ) -> Next {
        let Some(turn) = turn.filter(|_| !self.aborted) else { return Next::Stop(StopCause::Aborted) };
        if let Some(limit) = batch.limit {
            return Next::Stop(StopCause::Limit(limit));
        }
        let called = !batch.summaries.is_empty();
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

fn provider_error(error: ProviderError) -> RunErrorKind {
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

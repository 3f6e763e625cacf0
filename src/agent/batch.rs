use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Limit;
use super::commit_step::{CommitJob, Staged};
use super::event::AgentEvent;
use super::gate_step::{GateJob, GateOut, Gated, NOT_STARTED};
use super::nested::NestedReport;
use super::outcome::{Denial, RunErrorKind};
use super::plan::{PlannedCall, plan, segments};
use super::seam::{Batch, Done, Settled};
use super::tool_step::{Reports, ToolJob, ToolOut, result_block};
use super::turn_loop::{TurnLoop, step_error};
use crate::hooks::{
    BudgetEntry, ToolAfter, ToolAfterCx, ToolBefore, ToolBeforeCx, ToolBudgetExceeded, ToolBudgetExceededCx,
    ToolCallInfo, ToolError, ToolErrorCx, ToolStateCommitFailed, ToolStateCommitFailedCx, ToolSummary, ToolUpdate,
    ToolUpdateCx, TurnAfter,
};
use crate::provider::HistoryTurn;
use crate::session::child_id;
use crate::tool::ToolProgress;
use crate::tool_state::ToolStateOp;
use crate::types::{
    DeferredCall, Role, SessionContentBlock, Timestamp, ToolResultBlock, ToolStatus, TurnFinishReason, TurnOrigin,
    tool_output_budget_byte_length,
};

const CUT: &str = "This call was not executed: the answer that made it was cut by the output limit. It had no effect.";

/// How many reports of running tools may wait for the loop.
const REPORTS_ROOM: usize = 32;

/// How running tools report to the loop.
pub(super) struct Channels {
    reports: Reports,
    progress: mpsc::Receiver<ToolProgress>,
    nested: mpsc::Receiver<NestedReport>,
}

impl Default for Channels {
    fn default() -> Self {
        let (progress_sender, progress) = mpsc::channel(REPORTS_ROOM);
        let (nested_sender, nested) = mpsc::channel(REPORTS_ROOM);
        Self { reports: Reports { progress: progress_sender, nested: nested_sender }, progress, nested }
    }
}

/// What the calls of a turn came to.
#[derive(Default)]
pub(super) struct BatchOut {
    /// Calls were answered.
    pub(super) called: bool,
    /// The same, for hooks that are to read it.
    pub(super) summaries: Vec<ToolSummary>,
    /// Every call failed for good.
    pub(super) all_failed: bool,
    /// The limit that kept the batch from running.
    pub(super) limit: Option<Limit>,
    /// Calls that wait for the host. With any the calls are not all answered, and there is no results turn.
    pub(super) deferred: Vec<DeferredCall>,
}

/// What calls came to.
struct Ran {
    /// In call order.
    results: Vec<Arc<ToolResultBlock>>,
    deferred: Vec<DeferredCall>,
    at: Timestamp,
}

/// A call that waits for the host.
struct Held {
    /// Its place among all.
    place: usize,
    info: Arc<ToolCallInfo>,
    call: DeferredCall,
}

/// A settled call whose result is kept.
struct Kept {
    result: Arc<ToolResultBlock>,
    ops: Vec<ToolStateOp>,
    error: Option<String>,
    panicked: bool,
    duration: Duration,
    replayed: bool,
}

/// The next call that has settled.
async fn next(ready: &mut VecDeque<Settled<ToolOut>>, batch: &mut Batch<ToolJob>) -> Option<Settled<ToolOut>> {
    match ready.pop_front() {
        Some(settled) => Some(settled),
        None => batch.next().await,
    }
}

/// What is told of a settled call beside its result.
struct Telling<'a> {
    error: Option<&'a str>,
    panicked: bool,
    duration: Duration,
}

fn deferred_call(info: &ToolCallInfo, input: Value, reason: String) -> DeferredCall {
    let mut call = DeferredCall::new(&**info.call_id());
    call.name = (**info.name()).to_owned();
    call.digest = DeferredCall::digest_of(info.name(), info.raw_arguments(), &input);
    (call.input, call.reason) = (input, reason);
    call
}

impl TurnLoop {
    /// Answers every call of a turn: by running it where the turn is whole, by saying why not otherwise.
    pub(super) async fn answer_calls(
        &mut self,
        turn: &Arc<HistoryTurn>,
        visible: Option<&[String]>,
        cut: bool,
        finish: Option<TurnFinishReason>,
    ) -> Result<BatchOut, RunErrorKind> {
        let calls = plan(turn, &self.cx.agent.tools, visible);
        if calls.is_empty() {
            return Ok(BatchOut::default());
        }
        let refusal = match finish {
            _ if cut => Some(NOT_STARTED),
            Some(TurnFinishReason::Stop | TurnFinishReason::ToolCalls | TurnFinishReason::Pause) => None,
            Some(TurnFinishReason::Length) => Some(CUT),
            _ => Some(NOT_STARTED),
        };
        match refusal {
            Some(text) => {
                let results: Vec<_> = calls
                    .iter()
                    .map(|call| Arc::new(result_block(&call.info, None, ToolStatus::NotStarted, text.into())))
                    .collect();
                if self.is_kept() {
                    results.iter().for_each(|result| self.queue_result(&turn.id, result, turn.created_at));
                    self.save().await?;
                }
                self.at = turn.created_at;
                Ok(self.settle(&turn.id, results, turn.created_at).await)
            }
            None => self.finish_calls(turn, calls, Vec::new()).await,
        }
    }

    /// Runs calls of the last turn, whose others have the results `kept`. Settles the turn when all are answered, and
    /// else leaves it open.
    pub(super) async fn finish_calls(
        &mut self,
        turn: &Arc<HistoryTurn>,
        calls: Vec<PlannedCall>,
        kept: Vec<Arc<ToolResultBlock>>,
    ) -> Result<BatchOut, RunErrorKind> {
        let mut limit = None;
        let Ran { mut results, deferred, at } = self.run_calls(&turn.id, calls, &mut limit).await?;
        self.at = at;
        if !deferred.is_empty() {
            self.cx.agent.session.defer(deferred.clone());
            let summaries = self.summaries(&results);
            return Ok(BatchOut { called: true, summaries, limit, deferred, ..BatchOut::default() });
        }
        if !kept.is_empty() {
            results.extend(kept);
            results.sort_by_cached_key(|result| turn.tool_calls().position(|call| call.id == result.call_id));
        }
        Ok(BatchOut { limit, ..self.settle(&turn.id, results, at).await })
    }

    /// Runs the calls, segment by segment. Once a call waits for the host, the segments after its own wait too.
    async fn run_calls(
        &mut self,
        turn_id: &str,
        calls: Vec<PlannedCall>,
        limited: &mut Option<Limit>,
    ) -> Result<Ran, RunErrorKind> {
        let cx = Arc::clone(&self.cx);
        let mut results = Vec::with_capacity(calls.len());
        let mut held: Vec<Held> = Vec::new();
        let mut recorded = None;
        let mut batch_size = Some(calls.iter().filter(|call| call.would_run()).count() as u64);
        // Made once per run: nothing is in them between batches, since a settled call reports no more.
        let Channels { reports, mut progress, mut nested } = self.channels.take().unwrap_or_default();
        for (number, mut calls) in segments(calls, self.execution).into_iter().enumerate() {
            // After an abort they are answered, as the rest is.
            if !held.is_empty() && !self.is_aborted() {
                break;
            }
            let inputs = calls.iter_mut().map(|call| call.input.take()).collect();
            let calls = Arc::new(calls);
            let batch = batch_size.take().filter(|_| limited.is_none());
            let gate = GateJob {
                cx: Arc::clone(&cx),
                number: self.number,
                segment: number,
                calls: Arc::clone(&calls),
                inputs,
                batch,
                limited: *limited,
            };
            let done = self.step(gate).await?;
            let retaken = done.replayed;
            let GateOut { calls: gated, aborted, limit, decisions } = done.out;
            self.record_decisions(decisions);
            self.aborted |= aborted;
            *limited = limit;
            if done.replayed && limit.is_none() {
                cx.meter.count_calls(batch.unwrap_or(0));
            }
            self.announce(&calls, &gated).await;
            let mut jobs = Vec::with_capacity(calls.len());
            let mut running = Vec::with_capacity(calls.len());
            for (call, gated) in calls.iter().zip(gated) {
                let (info, place) = (Arc::clone(&call.info), results.len() + held.len() + running.len());
                if let Gated::Deferred { input, reason } = gated {
                    held.push(Held { place, call: deferred_call(&info, input, reason), info });
                    continue;
                }
                running.push((place, call));
                jobs.push(ToolJob {
                    cx: Arc::clone(&cx),
                    number: self.number,
                    info,
                    entry: call.ready.as_ref().ok().map(Arc::clone),
                    gated,
                    key: call.key.clone(),
                    retaken,
                    state: cx.agent.tool_state.view(),
                    reports: reports.clone(),
                });
            }
            if jobs.is_empty() {
                continue;
            }
            let mut outs: Vec<Option<(Arc<ToolResultBlock>, Vec<_>)>> = running.iter().map(|_| None).collect();
            let mut batch = self.seam.batch(jobs, cx.agent.options.max_parallel_tools);
            // Calls that settled while others were stored.
            let mut ready = VecDeque::new();
            loop {
                tokio::select! {
                    biased;
                    Some(report) = nested.recv() => self.nested(report).await,
                    Some(update) = progress.recv() => self.progress(&calls, update).await,
                    settled = next(&mut ready, &mut batch) => {
                        let Some((index, done)) = settled else { break };
                        let first = self.keep(turn_id, done.map_err(step_error)?, &mut recorded).await;
                        cx.firing.base.replaying.store(first.replayed, Ordering::Relaxed);
                        let more = match self.is_kept() {
                            true => self.store_results(turn_id, &mut batch, &mut ready, &mut recorded).await?,
                            false => Vec::new(),
                        };
                        while let Ok(report) = nested.try_recv() {
                            self.nested(report).await;
                        }
                        while let Ok(update) = progress.try_recv() {
                            self.progress(&calls, update).await;
                        }
                        for (index, settled) in std::iter::once((index, first)).chain(more) {
                            let (Some(slot), Some((_, call))) = (outs.get_mut(index), running.get(index)) else {
                                continue;
                            };
                            self.settled(&call.info, &settled).await;
                            *slot = Some((settled.result, settled.ops));
                        }
                    }
                }
            }
            drop(batch);
            let mut staged = Vec::new();
            for ((place, call), out) in running.into_iter().zip(outs) {
                let Some((result, ops)) = out else {
                    return Err(RunErrorKind::Step(format!("call `{}` was never settled", call.info.call_id())));
                };
                if !ops.is_empty() {
                    staged.push(Staged { call_id: (**call.info.call_id()).to_owned(), ops });
                }
                results.push((place, result));
            }
            self.commit(number, staged).await?;
        }
        self.channels = Some(Channels { reports, progress, nested });
        let at = cx.time(recorded).await;
        if !held.is_empty() && self.is_aborted() {
            for held in held.drain(..) {
                let result = Arc::new(result_block(&held.info, None, ToolStatus::NotStarted, NOT_STARTED.into()));
                cx.agent.session.push_result(Arc::clone(&result));
                if self.is_kept() {
                    self.queue_result(turn_id, &result, at);
                }
                self.tell(&held.info, &result, &Telling { error: None, panicked: false, duration: Duration::ZERO })
                    .await;
                cx.emit(|| AgentEvent::ToolEnd { result: Arc::clone(&result) }).await;
                results.push((held.place, result));
            }
            results.sort_unstable_by_key(|(place, _)| *place);
        }
        let results = results.into_iter().map(|(_, result)| result).collect();
        Ok(Ran { results, deferred: held.into_iter().map(|held| held.call).collect(), at })
    }

    /// Tells that the calls which passed the gate are about to run.
    async fn announce(&self, calls: &[PlannedCall], gated: &[Gated]) {
        let cx = &self.cx;
        for (call, gated) in calls.iter().zip(gated) {
            let Gated::Run(input) = gated else { continue };
            if cx.firing.has::<ToolBefore>() {
                cx.firing.observe::<ToolBefore>(&mut ToolBeforeCx::new(&cx.firing.base, &call.info, input)).await;
            }
            cx.emit(|| AgentEvent::ToolStart {
                call_id: (**call.info.call_id()).to_owned(),
                name: (**call.info.name()).to_owned(),
            })
            .await;
        }
    }

    async fn progress(&self, calls: &[PlannedCall], update: ToolProgress) {
        let cx = &self.cx;
        let Some(call) = calls.iter().find(|call| *call.info.call_id() == update.call_id) else { return };
        if cx.firing.has::<ToolUpdate>() {
            let mut hook_cx = ToolUpdateCx::new(&cx.firing.base, &call.info, &update.update);
            cx.firing.observe::<ToolUpdate>(&mut hook_cx).await;
        }
        cx.emit(|| AgentEvent::ToolUpdate { call_id: (*update.call_id).to_owned(), update: update.update }).await;
    }

    /// Tells of a call that a tool made.
    async fn nested(&mut self, report: NestedReport) {
        let cx = Arc::clone(&self.cx);
        match report {
            NestedReport::Before { info, input } => {
                if cx.firing.has::<ToolBefore>() {
                    cx.firing.observe::<ToolBefore>(&mut ToolBeforeCx::new(&cx.firing.base, &info, &input)).await;
                }
            }
            NestedReport::After { info, out } => {
                let told = Telling { error: out.error.as_deref(), panicked: out.panicked, duration: out.duration };
                self.tell(&info, &out.result, &told).await;
            }
            NestedReport::Spawn(told) => told.tell(&cx).await,
            NestedReport::Event(event) => cx.emit(|| *event).await,
        }
    }

    /// A result is final: it is kept first, then stored, then told.
    async fn keep(&mut self, turn_id: &str, done: Done<ToolOut>, latest: &mut Option<Timestamp>) -> Kept {
        let Done { out, at, replayed } = done;
        let ToolOut { result, ops, error, panicked, aborted, duration, children, decisions } = out;
        if !children.is_empty() {
            self.file_children(children);
        }
        self.record_decisions(decisions);
        let result = Arc::new(result);
        self.cx.agent.session.push_result(Arc::clone(&result));
        self.aborted |= aborted;
        *latest = at.max(*latest);
        if self.is_kept() {
            let at = self.cx.time(at).await;
            *latest = Some(at).max(*latest);
            self.queue_result(turn_id, &result, at);
        }
        Kept { result, ops, error, panicked, duration, replayed }
    }

    /// Stores the results that are final by now, in one append. Meanwhile the other calls go on.
    async fn store_results(
        &mut self,
        turn_id: &str,
        batch: &mut Batch<ToolJob>,
        ready: &mut VecDeque<Settled<ToolOut>>,
        latest: &mut Option<Timestamp>,
    ) -> Result<Vec<(usize, Kept)>, RunErrorKind> {
        let mut more = Vec::new();
        while let Some(Some((index, done))) = next(ready, batch).now_or_never() {
            more.push((index, self.keep(turn_id, done.map_err(step_error)?, latest).await));
        }
        let mut save = pin!(self.save());
        loop {
            tokio::select! {
                biased;
                saved = &mut save => return saved.map(|()| more),
                Some(settled) = batch.next() => ready.push_back(settled),
            }
        }
    }

    async fn settled(&mut self, info: &ToolCallInfo, kept: &Kept) {
        let Kept { result, error, panicked, duration, replayed, .. } = kept;
        self.cx.firing.base.replaying.store(*replayed, Ordering::Relaxed);
        self.tell(info, result, &Telling { error: error.as_deref(), panicked: *panicked, duration: *duration }).await;
        self.cx.emit(|| AgentEvent::ToolEnd { result: Arc::clone(result) }).await;
    }

    async fn tell(&mut self, info: &ToolCallInfo, result: &ToolResultBlock, told: &Telling<'_>) {
        if result.status == ToolStatus::Blocked {
            let reason = crate::types::tool_result_to_text(&result.output).into_owned();
            self.denials.push(Denial {
                run_id: (*self.cx.info.run_id).to_owned(),
                call_id: result.call_id.clone(),
                name: result.name.clone(),
                reason,
            });
        }
        let firing = &self.cx.firing;
        if let Some(error) = told.error
            && firing.has::<ToolError>()
        {
            let mut hook_cx = ToolErrorCx::new(&firing.base, info, result.status, error, told.panicked);
            firing.observe::<ToolError>(&mut hook_cx).await;
        }
        if firing.has::<ToolAfter>() {
            let mut hook_cx = ToolAfterCx::new(&firing.base, info, result, told.duration);
            firing.observe::<ToolAfter>(&mut hook_cx).await;
        }
    }

    async fn commit(&self, segment: usize, staged: Vec<Staged>) -> Result<(), RunErrorKind> {
        if staged.is_empty() {
            return Ok(());
        }
        let cx = &self.cx;
        let job = CommitJob { cx: Arc::clone(cx), number: self.number, segment, staged: staged.clone() };
        let done = self.step(job).await?;
        for (staged, failed) in staged.into_iter().zip(done.out) {
            match failed {
                // The body did not run here, so the snapshot has not seen it.
                None if done.replayed => cx.agent.tool_state.replay(&staged.ops),
                None => {}
                Some(error) if cx.firing.has::<ToolStateCommitFailed>() => {
                    let mut hook_cx =
                        ToolStateCommitFailedCx::new(&cx.firing.base, &staged.call_id, &staged.ops, &error);
                    cx.firing.observe::<ToolStateCommitFailed>(&mut hook_cx).await;
                }
                Some(error) => {
                    eprintln!("zidane: tool state of call `{}` was not stored: {error}", staged.call_id);
                }
            }
        }
        Ok(())
    }

    /// Stores the results turn, and the nudge when there is too much to read.
    async fn settle(&mut self, turn_id: &str, results: Vec<Arc<ToolResultBlock>>, at: Timestamp) -> BatchOut {
        let over = self.over_budget(&results).await;
        let all_failed = results.iter().all(|result| {
            matches!(
                result.status,
                ToolStatus::Error | ToolStatus::Invalid | ToolStatus::UnknownTool | ToolStatus::Blocked
            )
        });
        let summaries = self.summaries(&results);
        // The session's own handles go first, so that the results are moved and not copied.
        drop(self.cx.agent.session.take_results());
        let content = results
            .into_iter()
            .map(|result| {
                let result = Arc::try_unwrap(result).unwrap_or_else(|shared| ToolResultBlock::clone(&shared));
                SessionContentBlock::ToolResult(result)
            })
            .collect();
        let id = child_id(turn_id, "results");
        let turn = self.turn(id, Role::User, TurnOrigin::Results, content, at);
        self.cx.agent.session.push_results(Arc::new(HistoryTurn::new(turn)));
        if let Some(text) = over {
            let id = child_id(turn_id, "budget");
            self.push(self.turn(id, Role::User, TurnOrigin::Budget, vec![SessionContentBlock::text(text)], at));
        }
        BatchOut { called: true, summaries, all_failed, ..BatchOut::default() }
    }

    /// What `turn:after` is told of the results, when anybody listens.
    fn summaries(&self, results: &[Arc<ToolResultBlock>]) -> Vec<ToolSummary> {
        let told = if self.cx.firing.has::<TurnAfter>() { results } else { &[] };
        told.iter()
            .map(|result| ToolSummary {
                call_id: result.call_id.clone(),
                name: result.name.clone(),
                status: result.status,
                outcome: result.outcome,
            })
            .collect()
    }

    /// The nudge, when the results are larger than the budget.
    async fn over_budget(&self, results: &[Arc<ToolResultBlock>]) -> Option<String> {
        let budget = self.cx.agent.options.tool_output_budget?;
        let tools: Vec<_> = results
            .iter()
            .map(|result| BudgetEntry {
                call_id: result.call_id.clone(),
                name: result.name.clone(),
                bytes: tool_output_budget_byte_length(&result.output),
            })
            .collect();
        let total = tools.iter().fold(0usize, |sum, tool| sum.saturating_add(tool.bytes));
        if total <= budget {
            return None;
        }
        let firing = &self.cx.firing;
        if firing.has::<ToolBudgetExceeded>() {
            let mut hook_cx = ToolBudgetExceededCx::new(&firing.base, budget, total, &tools);
            firing.observe::<ToolBudgetExceeded>(&mut hook_cx).await;
        }
        Some(format!(
            "The tool results above come to {total} bytes, {} over the budget of {budget} bytes per turn. \
             Ask for less at a time: narrow the query, or read a part.",
            total - budget
        ))
    }
}

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Limit;
use super::context::RunCx;
use super::options::SteerMode;
use super::plan::{Course, PlannedCall, Refusal};
use super::seam::Job;
use crate::control::QueueKind;
use crate::durable::{StepCx, StepError, StepKind};
use crate::hooks::{ToolCallInfo, ToolGate, ToolGateCx, Verdict};
use crate::tool::CompiledTool;
use crate::types::{DecisionUsage, ToolResultBody, ToolStatus};

/// Gates the calls of a segment, in call order.
pub(super) struct GateJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) number: u32,
    pub(super) segment: usize,
    pub(super) calls: Arc<Vec<PlannedCall>>,
    /// What each call would run with, in call order.
    pub(super) inputs: Vec<Value>,
    /// With the first segment: how many calls of the whole turn would run.
    pub(super) batch: Option<u64>,
    /// The limit that an earlier segment ran into.
    pub(super) limited: Option<Limit>,
}

/// What became of a call at the gate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Gated {
    /// It runs, with this input.
    Run(Value),
    /// It does not run; the model reads this.
    Refused { status: ToolStatus, text: String, input: Option<Value> },
    /// It waits for the host.
    Deferred { input: Value, reason: String },
    /// A gate answered it, or the host.
    Substituted { input: Value, output: ToolResultBody, is_error: bool, structured: Option<Value> },
}

/// What became of the segment's calls.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GateOut {
    pub(super) calls: Vec<Gated>,
    pub(super) aborted: bool,
    /// The limit that forbids the whole batch.
    pub(super) limit: Option<Limit>,
    /// What decisions have used meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionUsage>,
}

impl Job for GateJob {
    type Out = GateOut;
    const KIND: StepKind = StepKind::Gate;

    fn name(&self) -> String {
        format!("t{}/gate/{}", self.number, self.segment)
    }

    async fn run(self, _: StepCx) -> Result<GateOut, StepError> {
        let skip = self.segment > 0
            && self.cx.agent.options.steer_mode == SteerMode::SkipUnstarted
            && self.cx.agent.handle.has_queued(QueueKind::Steering);
        let limit = self.limited.or_else(|| self.batch.and_then(|calls| self.cx.meter.forbids_calls(calls)));
        let mut calls = Vec::with_capacity(self.calls.len());
        for (call, input) in self.calls.iter().zip(self.inputs) {
            if let Course::Decided(decided) = &call.course {
                calls.push(Gated::clone(decided));
                continue;
            }
            let approved = matches!(call.course, Course::Approved);
            calls.push(if self.cx.abort.is_cancelled() {
                refused(Refusal { status: ToolStatus::NotStarted, text: NOT_STARTED.to_owned() }, None)
            } else if let Some(limit) = limit {
                refused(over_limit(limit), None)
            } else if skip {
                refused(Refusal { status: ToolStatus::Skipped, text: SKIPPED.to_owned() }, None)
            } else {
                match &call.ready {
                    Err(refusal) => refused(refusal.clone(), None),
                    Ok(entry) => match gate(&self.cx, &call.info, entry, input, approved).await {
                        // Nobody could go on with the run of a sub-agent.
                        Gated::Deferred { input, reason } if self.cx.info.depth > 0 => {
                            let text = cannot_wait(&reason);
                            refused(Refusal { status: ToolStatus::Blocked, text }, Some(input))
                        }
                        gated => gated,
                    },
                }
            });
        }
        let decisions = self.cx.agent.decisions.take();
        Ok(GateOut { calls, aborted: self.cx.abort.is_cancelled(), limit, decisions })
    }
}

pub(super) const NOT_STARTED: &str = "This call was not started: the run was stopped. It had no effect.";
const CHANGED: &str = "A gate has changed the input that was approved.";
const SKIPPED: &str = "This call was skipped: a new message from the user came first. It had no effect.";

pub(super) fn over_limit(limit: Limit) -> Refusal {
    let text =
        format!("This call was not started: the run has reached its limit of {}. It had no effect.", limit.as_str());
    Refusal { status: ToolStatus::NotStarted, text }
}

/// What the model is told of a call that a gate defers where it cannot wait.
pub(super) fn cannot_wait(reason: &str) -> String {
    format!("This call was blocked: it would have to wait for the host ({reason}).")
}

fn refused(refusal: Refusal, input: Option<Value>) -> Gated {
    Gated::Refused { status: refusal.status, text: refusal.text, input }
}

/// Asks the gates. Where the host has `approved` the input, none of them defers the call again, but for a change of it.
pub(super) async fn gate(
    cx: &RunCx,
    info: &ToolCallInfo,
    entry: &CompiledTool,
    mut input: Value,
    approved: bool,
) -> Gated {
    if !cx.live.has::<ToolGate>() {
        return Gated::Run(input);
    }
    let before = approved.then(|| input.clone());
    let mut verdict = Verdict::Run;
    match pass(cx, info, &mut input, &mut verdict, approved).await {
        Ok(false) => {}
        Ok(true) if matches!(verdict, Verdict::Block(_)) => {}
        Ok(true) => {
            // What a gate made of the input is not what the gates before it allowed.
            if let Err(invalid) = entry.check(&input) {
                let refusal = Refusal { status: ToolStatus::Invalid, text: invalid.to_string() };
                return refused(refusal, Some(input));
            }
            match pass(cx, info, &mut input, &mut verdict, approved).await {
                Ok(false) => {}
                Ok(true) => {
                    verdict = Verdict::Block("This call was blocked: its gates do not agree on its input.".to_owned());
                }
                Err(text) => verdict = Verdict::Block(text),
            }
        }
        Err(text) => verdict = Verdict::Block(text),
    }
    match verdict {
        Verdict::Run if before.is_some_and(|before| before != input) => {
            Gated::Deferred { input, reason: CHANGED.to_owned() }
        }
        Verdict::Run => Gated::Run(input),
        Verdict::Defer(reason) => Gated::Deferred { input, reason },
        Verdict::Block(reason) => refused(Refusal { status: ToolStatus::Blocked, text: reason }, Some(input)),
        Verdict::Substitute(output) => {
            Gated::Substituted { input, output: output.body, is_error: output.is_error, structured: output.structured }
        }
    }
}

/// One pass over all gates. True when one rewrote the input; an error blocks.
async fn pass(
    cx: &RunCx,
    info: &ToolCallInfo,
    input: &mut Value,
    verdict: &mut Verdict,
    approved: bool,
) -> Result<bool, String> {
    let mut rewritten = false;
    let fired = {
        let mut hook_cx = ToolGateCx::new(&cx.live.base, info, input, verdict, &mut rewritten, approved);
        cx.live.fire_until::<ToolGate>(&mut hook_cx, |hook_cx| hook_cx.is_blocked()).await
    };
    match fired {
        Ok(()) => Ok(rewritten),
        Err(failure) => {
            cx.live.report(&failure).await;
            Err(format!("This call was blocked: its gate failed ({}).", failure.cause))
        }
    }
}

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::context::RunCx;
use super::gate_step::{Gated, NOT_STARTED};
use super::nested::{Nested, NestedReport};
use super::offspring::ChildRecord;
use super::record_limit;
use super::seam::Job;
use super::spans;
use crate::durable::{StepCx, StepError, StepKind};
use crate::hooks::{ToolCallInfo, ToolTransform, ToolTransformCx, panic_text};
use crate::tool::{CompiledTool, Repeat, ToolContext, ToolContextParts, ToolProgress};
use crate::tool_state::{ToolStateOp, ToolStateView};
use crate::types::{DecisionUsage, Extra, ToolResultBlock, ToolResultBody, ToolStatus};

/// Comes to the result of one call: runs the body where the gate let it, and the transforms in any case.
pub(super) struct ToolJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) number: u32,
    pub(super) info: Arc<ToolCallInfo>,
    pub(super) entry: Option<Arc<CompiledTool>>,
    pub(super) gated: Gated,
    /// Set where the call is one of an earlier run.
    pub(super) key: Option<Arc<str>>,
    /// An earlier attempt at the run let it through its gate: where its end is not on record, it may have run.
    pub(super) retaken: bool,
    pub(super) state: ToolStateView,
    pub(super) reports: Reports,
}

/// Where bodies report to while they run.
#[derive(Clone)]
pub(super) struct Reports {
    pub(super) progress: mpsc::Sender<ToolProgress>,
    pub(super) nested: mpsc::Sender<NestedReport>,
}

/// A settled call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToolOut {
    pub(super) result: ToolResultBlock,
    pub(super) ops: Vec<ToolStateOp>,
    /// Why it failed, for the host.
    pub(super) error: Option<String>,
    pub(super) panicked: bool,
    /// The run had been aborted by the time it settled.
    pub(super) aborted: bool,
    pub(super) duration: Duration,
    /// What it spawned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) children: Vec<ChildRecord>,
    /// What decisions have used meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionUsage>,
}

impl Job for ToolJob {
    type Out = ToolOut;
    const KIND: StepKind = StepKind::Tool;

    fn name(&self) -> String {
        format!("t{}/tool/{}/{}", self.number, self.info.call_id(), self.info.name())
    }

    #[allow(clippy::manual_async_fn, reason = "an async fn would hold the job twice")]
    fn run(self, step: StepCx) -> impl Future<Output = Result<ToolOut, StepError>> + Send + 'static {
        async move {
            let started = Instant::now();
            let (cx, info) = (&self.cx, &self.info);
            let mut out = match self.gated {
                Gated::Run(input) => match self.entry {
                    Some(entry) if self.retaken && entry.spec().repeat == Repeat::Never => {
                        let mut out = settled(info, Some(input), ToolStatus::Interrupted, OUTCOME_UNKNOWN.to_owned());
                        out.error =
                            Some("the process ended while the call was made, and it may not be repeated".into());
                        out
                    }
                    Some(entry) => {
                        let token = cx.abort.child_token();
                        let (cx, info) = (Arc::clone(cx), Arc::clone(info));
                        let call = Arc::clone(info.call_id());
                        let (state, reports, key) = (self.state, self.reports, self.key);
                        Body { cx, info, entry, state, reports, token, key, depth: 0, call }.run(input).await
                    }
                    None => settled(
                        info,
                        Some(input),
                        ToolStatus::UnknownTool,
                        "There is no such tool any more.".to_owned(),
                    ),
                },
                Gated::Refused { status, text, input } => {
                    let error = matches!(status, ToolStatus::Invalid | ToolStatus::UnknownTool).then(|| text.clone());
                    let mut out = settled(info, input, status, text);
                    out.error = error;
                    out
                }
                // Never asked for: such a call has no result yet.
                Gated::Deferred { input, .. } => {
                    settled(info, Some(input), ToolStatus::NotStarted, NOT_STARTED.to_owned())
                }
                Gated::Substituted { input, output, is_error, structured } => {
                    let mut out = settled(info, Some(input), ToolStatus::Ok, String::new());
                    out.result.output = output;
                    out.result.is_error = is_error;
                    out.result.structured = structured;
                    out
                }
            };
            // Boxed, since most calls do without: their futures stay small.
            if cx.live.has::<ToolTransform>() {
                Box::pin(transform(cx, info, &mut out)).await;
            }
            if let Some(spill) = &cx.agent.options.spill {
                Box::pin(spill.apply(&mut out.result)).await;
            }
            if let Some(limit) = step.max_record_bytes {
                record_limit::fit(&mut out, limit);
            }
            out.aborted = cx.abort.is_cancelled();
            out.duration = started.elapsed();
            out.decisions = cx.agent.decisions.take();
            Ok(out)
        }
    }
}

const OUTCOME_UNKNOWN: &str = "This call was interrupted by a crash before its end was recorded: its outcome is unknown. \
     It may or may not have taken effect, and it was not made again.";

pub(super) fn settled(info: &ToolCallInfo, input: Option<Value>, status: ToolStatus, text: String) -> ToolOut {
    ToolOut {
        result: result_block(info, input, status, text.into()),
        ops: Vec::new(),
        error: None,
        panicked: false,
        aborted: false,
        duration: Duration::ZERO,
        children: Vec::new(),
        decisions: Vec::new(),
    }
}

pub(super) fn result_block(
    info: &ToolCallInfo,
    input: Option<Value>,
    status: ToolStatus,
    output: ToolResultBody,
) -> ToolResultBlock {
    ToolResultBlock {
        call_id: (**info.call_id()).to_owned(),
        name: (**info.name()).to_owned(),
        input,
        output,
        is_error: status.is_error(),
        status,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    }
}

pub(super) async fn transform(cx: &RunCx, info: &ToolCallInfo, out: &mut ToolOut) {
    let fired = {
        let mut hook_cx = ToolTransformCx::new(&cx.live.base, info, &mut out.result);
        cx.live.fire::<ToolTransform>(&mut hook_cx).await
    };
    if let Err(failure) = fired {
        cx.live.report(&failure).await;
        out.result.output = ToolResultBody::Text("The result of this call was withheld: a hook failed.".to_owned());
        out.result.structured = None;
        out.result.is_error = true;
    }
}

/// A body about to run.
pub(super) struct Body {
    pub(super) cx: Arc<RunCx>,
    pub(super) info: Arc<ToolCallInfo>,
    pub(super) entry: Arc<CompiledTool>,
    pub(super) state: ToolStateView,
    pub(super) reports: Reports,
    /// The call's own token.
    pub(super) token: CancellationToken,
    /// Its idempotency key, where the call is one of an earlier run.
    pub(super) key: Option<Arc<str>>,
    /// How many calls it is nested in.
    pub(super) depth: u32,
    /// The model's call that it is a part of.
    pub(super) call: Arc<str>,
}

/// How a body's task ended.
enum Ended {
    Returned(std::thread::Result<Result<crate::tool::ToolOutput, crate::tool::ToolError>>),
    Lost(String),
    Aborted,
    TimedOut(Duration),
}

impl Body {
    pub(super) async fn run(self, input: Value) -> ToolOut {
        let Self { cx, info, entry, state, reports, token: cancel, key, depth, call } = self;
        let info = &*info;
        if cx.abort.is_cancelled() {
            return settled(info, Some(input), ToolStatus::NotStarted, NOT_STARTED.to_owned());
        }
        let nested = Nested::new(Arc::clone(&cx), reports.clone(), depth, Arc::clone(&call));
        let tool_cx = ToolContext::new(ToolContextParts {
            call_id: Arc::clone(info.call_id()),
            turn_id: Arc::clone(info.turn_id()),
            run_id: Arc::clone(&cx.info.run_id),
            session_id: Arc::clone(&cx.info.session_id),
            name: Arc::clone(info.name()),
            display_name: Arc::clone(info.display_name()),
            idempotency_key: key,
            cancel: cancel.clone(),
            state,
            progress: Some(reports.progress),
            extensions: Arc::clone(&cx.agent.extensions),
            agent: cx.agent.handle.clone(),
            nested: Some(Arc::new(nested)),
            desk: cx.live.base.desk.clone(),
        });
        let spec = entry.spec();
        let (timeout, grace) = (spec.timeout, spec.cancel_grace.unwrap_or(cx.agent.options.cancel_grace));
        let body = {
            let (tool, input, tool_cx) = (Arc::clone(entry.tool()), input.clone(), tool_cx.clone());
            async move { AssertUnwindSafe(async move { tool.call(input, tool_cx).await }).catch_unwind().await }
        };
        // Its own task, so that a body which never yields to the token is dropped all the same.
        let span = spans::execute_tool(&cx, info, spec, &input, depth);
        let task = match span.is_disabled() {
            true => tokio::spawn(body),
            false => tokio::spawn(body.instrument(span.clone())),
        };
        let task = AbortOnDropHandle::new(task);
        let grace = || grace.saturating_mul(1 + cx.children().height(&call));
        let ended = wait(task, &cancel, timeout, grace).await;
        let settlement = tool_cx.seal();
        let mut out = match ended {
            Ended::Returned(Ok(Ok(output))) => {
                let mut out = settled(info, Some(input), ToolStatus::Ok, String::new());
                out.result.output = output.body;
                out.result.is_error = output.is_error;
                out.result.structured = output.structured;
                out.ops = settlement.ops;
                out
            }
            Ended::Returned(Ok(Err(error))) => {
                let mut out = settled(info, Some(input), ToolStatus::Error, error.for_model(info.name()).into_owned());
                out.error = Some(host_text(&error));
                out
            }
            Ended::Returned(Err(panic)) => panicked(info, input, panic_text(&*panic)),
            Ended::Lost(text) => panicked(info, input, text),
            Ended::Aborted => settled(
                info,
                Some(input),
                ToolStatus::Interrupted,
                "This call was interrupted before it ended. It may or may not have taken effect.".to_owned(),
            ),
            Ended::TimedOut(after) => {
                let text = format!(
                    "This call took longer than {after:?} and was stopped. It may or may not have taken effect."
                );
                let mut out = settled(info, Some(input), ToolStatus::Interrupted, text);
                out.error = Some(format!("timed out after {after:?}"));
                out
            }
        };
        out.result.outcome = settlement.outcome;
        if settlement.interrupted {
            out.result.status = ToolStatus::Interrupted;
            out.result.is_error = true;
        }
        if !span.is_disabled() {
            spans::tool_ended(&cx, &span, &out);
        }
        if depth == 0 {
            out.children = cx.children().take(Some(&call));
        }
        out
    }
}

/// What the host is told of an error: the model's text, and the causes below it.
fn host_text(error: &crate::tool::ToolError) -> String {
    let mut text = error.to_string();
    let mut cause: Option<&dyn std::error::Error> = error.source().map(|source| source as _);
    // Chains are short; a cyclic one must not hang us.
    for _ in 0..16 {
        let Some(error) = cause else { break };
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn panicked(info: &ToolCallInfo, input: Value, text: String) -> ToolOut {
    let mut out = settled(
        info,
        Some(input),
        ToolStatus::Error,
        format!("The tool `{}` failed unexpectedly.", info.display_name()),
    );
    out.error = Some(text);
    out.panicked = true;
    out
}

/// Waits for a body; after a cancellation only for its grace, which is longer where runs it spawned have to end first.
async fn wait(
    mut task: AbortOnDropHandle<std::thread::Result<Result<crate::tool::ToolOutput, crate::tool::ToolError>>>,
    cancel: &CancellationToken,
    timeout: Option<Duration>,
    grace: impl FnOnce() -> Duration,
) -> Ended {
    let expired = async {
        match timeout {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let cut = tokio::select! {
        biased;
        joined = &mut task => return returned(joined),
        () = cancel.cancelled() => Ended::Aborted,
        () = expired => Ended::TimedOut(timeout.unwrap_or_default()),
    };
    cancel.cancel();
    match tokio::time::timeout(grace(), &mut task).await {
        Ok(joined) => returned(joined),
        Err(_) => cut,
    }
}

fn returned(
    joined: Result<
        std::thread::Result<Result<crate::tool::ToolOutput, crate::tool::ToolError>>,
        tokio::task::JoinError,
    >,
) -> Ended {
    match joined {
        Ok(result) => Ended::Returned(result),
        Err(error) => Ended::Lost(error.to_string()),
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::Value;

use super::context::RunCx;
use super::event::AgentEvent;
use super::gate_step::{Gated, cannot_wait, gate, over_limit};
use super::plan::{Refusal, unknown};
use super::spawn::SpawnReport;
use super::tool_step::{Body, Reports, ToolOut, settled, transform};
use crate::hooks::{ToolCallInfo, ToolTransform};
use crate::tool::{CompiledTool, NestedCalls, ToolContext, ToolOutput};
use crate::types::ToolStatus;

/// How deep calls may nest.
const MAX_DEPTH: u32 = 8;

/// What the loop is told of a call that a tool makes.
pub(super) enum NestedReport {
    Before {
        info: Arc<ToolCallInfo>,
        input: Value,
    },
    After {
        info: Arc<ToolCallInfo>,
        out: Box<ToolOut>,
    },
    /// A tool spawned a run, or it has ended.
    Spawn(Box<SpawnReport>),
    /// An event of a run that a tool spawned.
    Event(Box<AgentEvent>),
}

/// Runs tools on behalf of a call: the same gate, the same limits, as a part of that call's record.
#[derive(Clone)]
pub(super) struct Nested {
    pub(super) cx: Arc<RunCx>,
    pub(super) reports: Reports,
    depth: u32,
    /// The model's call that everything here is a part of.
    pub(super) call: Arc<str>,
    made: Arc<AtomicU64>,
}

impl Nested {
    /// For a body that is nested in `depth` calls.
    pub(super) fn new(cx: Arc<RunCx>, reports: Reports, depth: u32, call: Arc<str>) -> Self {
        Self { cx, reports, depth, call, made: Arc::default() }
    }

    /// Numbers what the tool does through its agent.
    pub(super) fn next_number(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn call(self, outer: ToolContext, name: String, input: Value) -> ToolOutput {
        let started = Instant::now();
        let number = self.next_number();
        let tools = &self.cx.agent.tools;
        let display_name = tools.names().display(&name).to_owned();
        let info = Arc::new(ToolCallInfo::nested(&outer, number, &name, &display_name, &input));
        let mut out = match self.ready(&info, input) {
            Err(refusal) => refused(&info, refusal),
            Ok((entry, input)) => match gate(&self.cx, &info, &entry, input, false).await {
                Gated::Run(input) => self.run(&outer, &info, entry, input).await,
                Gated::Refused { status, text, input } => settled(&info, input, status, text),
                Gated::Deferred { input, reason } => {
                    settled(&info, Some(input), ToolStatus::Blocked, cannot_wait(&reason))
                }
                Gated::Substituted { input, output, is_error, structured } => {
                    let mut out = settled(&info, Some(input), ToolStatus::Ok, String::new());
                    out.result.output = output;
                    out.result.is_error = is_error;
                    out.result.structured = structured;
                    out
                }
            },
        };
        if self.cx.live.has::<ToolTransform>() {
            transform(&self.cx, &info, &mut out).await;
        }
        out.duration = started.elapsed();
        let result = &out.result;
        let output = ToolOutput {
            body: result.output.clone(),
            is_error: result.is_error,
            structured: result.structured.clone(),
        };
        // Nobody listens any more only when the run is gone.
        drop(self.reports.nested.send(NestedReport::After { info, out: Box::new(out) }).await);
        output
    }

    fn ready(&self, info: &ToolCallInfo, input: Value) -> Result<(Arc<CompiledTool>, Value), Refusal> {
        let tools = &self.cx.agent.tools;
        let invalid = |text: String| Refusal { status: ToolStatus::Invalid, text };
        if self.depth >= MAX_DEPTH {
            return Err(invalid(format!("Calls nest at most {MAX_DEPTH} deep.")));
        }
        let Some(entry) = tools.get(info.name()) else { return Err(unknown(info.name(), tools, None)) };
        let input = entry.prepare_value(input).map_err(|error| invalid(error.to_string()))?;
        match self.cx.meter.forbids_calls(1) {
            Some(limit) => Err(over_limit(limit)),
            None => Ok((Arc::clone(entry), input)),
        }
    }

    async fn run(
        &self,
        outer: &ToolContext,
        info: &Arc<ToolCallInfo>,
        entry: Arc<CompiledTool>,
        input: Value,
    ) -> ToolOut {
        let before = NestedReport::Before { info: Arc::clone(info), input: input.clone() };
        drop(self.reports.nested.send(before).await);
        let body = Body {
            cx: Arc::clone(&self.cx),
            info: Arc::clone(info),
            entry,
            state: outer.state().nested(),
            reports: self.reports.clone(),
            token: outer.cancel_token().child_token(),
            key: None,
            depth: self.depth + 1,
            call: Arc::clone(&self.call),
        };
        let mut out = body.run(input).await;
        // A call that has ended takes nothing more over; its own writes are lost with it.
        let _ = outer.state().join(std::mem::take(&mut out.ops));
        out
    }
}

fn refused(info: &ToolCallInfo, refusal: Refusal) -> ToolOut {
    let mut out = settled(info, None, refusal.status, refusal.text.clone());
    out.error = Some(refusal.text);
    out
}

impl NestedCalls for Nested {
    fn run_tool(&self, outer: &ToolContext, name: String, input: Value) -> BoxFuture<'static, ToolOutput> {
        Box::pin(self.clone().call(outer.clone(), name, input))
    }
}

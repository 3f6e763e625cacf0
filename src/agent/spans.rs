//! Spans of runs, requests and calls, named as OpenTelemetry's conventions for generative AI name them (version 1.41,
//! `gen_ai.*`: agent, inference and tool spans). `tracing` makes them: where nobody subscribes nothing is built.

use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::context::RunCx;
use super::model_step::{ModelEnd, ModelOut};
use super::outcome::{RunErrorKind, StopCause};
use super::side_request::SideAnswer;
use super::tool_step::ToolOut;
use crate::hooks::{RunInfo, ToolCallInfo};
use crate::provider::{ModelRequest, RequestHead};
use crate::tool::ToolSpec;
use crate::types::{SessionContentBlock, SessionTurn, TokenUsage, TurnFinishReason, tool_result_to_text};

/// The run. Below what is current: in the body of a tool, its call.
pub(super) fn invoke_agent(info: &RunInfo, provider: &str, model: &str, name: Option<&str>) -> Span {
    let span = info_span!(
        target: "zidane::gen_ai",
        "invoke_agent",
        otel.name = Empty,
        otel.kind = "internal",
        otel.status_code = Empty,
        "error.type" = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = provider_name(provider),
        gen_ai.request.model = model,
        gen_ai.agent.name = name,
        gen_ai.conversation.id = &*info.session_id,
        zidane.run.id = &*info.run_id,
        zidane.run.depth = i64::from(info.depth),
        zidane.run.stop = Empty,
    );
    if let Some(name) = name {
        span.record("otel.name", format_args!("invoke_agent {name}"));
    }
    span
}

pub(super) fn run_ended(span: &Span, result: &Result<StopCause, RunErrorKind>) {
    match result {
        Ok(stop) => {
            span.record("zidane.run.stop", stop.as_str());
        }
        Err(error) => failed(
            span,
            match error {
                RunErrorKind::Provider(error) => error.kind.as_str(),
                RunErrorKind::Hook { .. } => "hook",
                RunErrorKind::Session(_) => "session",
                RunErrorKind::Durable(_) => "durable",
                RunErrorKind::Pending { .. } | RunErrorKind::Answer { .. } => "pending",
                _ => "_OTHER",
            },
        ),
    }
}

/// A request to a model, its retries included. Usage is here and nowhere else, so that sums over spans add up.
pub(super) fn chat(cx: &RunCx, provider: &str, request: &ModelRequest) -> Span {
    let head = &*request.head;
    let span = info_span!(
        target: "zidane::gen_ai",
        parent: &cx.span,
        "chat",
        otel.name = format_args!("chat {}", head.model),
        otel.kind = "client",
        otel.status_code = Empty,
        "error.type" = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider_name(provider),
        gen_ai.conversation.id = &*cx.info.session_id,
        gen_ai.request.model = head.model,
        gen_ai.request.max_tokens = head.max_tokens.map(i64::from),
        gen_ai.request.temperature = head.temperature,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        gen_ai.system_instructions = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        zidane.attempts = Empty,
    );
    if !span.is_disabled() && cx.agent.options.trace_content {
        asked(&span, head, request);
    }
    span
}

fn asked(span: &Span, head: &RequestHead, request: &ModelRequest) {
    if let Some(system) = &head.system {
        span.record("gen_ai.system_instructions", json!([{ "type": "text", "content": &**system }]).to_string());
    }
    let messages: Vec<Value> = request.history.iter().map(message).collect();
    span.record("gen_ai.input.messages", Value::from(messages).to_string());
}

/// What came of a turn's request.
pub(super) fn answered(cx: &RunCx, span: &Span, asked: &ModelRequest, out: &ModelOut) {
    used(span, &out.tokens, out.attempts, out.model_id.as_deref(), out.finish);
    // Another model has been asked in the end.
    if out.requested_model != asked.head.model {
        span.record("gen_ai.provider.name", provider_name(&out.provider));
        span.record("gen_ai.request.model", out.requested_model.as_str());
    }
    match &out.end {
        ModelEnd::Complete => {}
        ModelEnd::Aborted => failed(span, "aborted"),
        ModelEnd::Provider(error) => failed(span, error.kind.as_str()),
        _ => failed(span, "_OTHER"),
    }
    if cx.agent.options.trace_content {
        let finish = out.finish.map_or("error", TurnFinishReason::as_str);
        let parts: Vec<Value> = out.blocks.iter().filter_map(part).collect();
        let answer = json!([{ "role": "assistant", "parts": parts, "finish_reason": finish }]);
        span.record("gen_ai.output.messages", answer.to_string());
    }
}

/// What came of a request beside the turns.
pub(super) fn answered_aside(cx: &RunCx, span: &Span, out: &SideAnswer) {
    let finish = out.finish.as_ref().map(|(finish, _)| *finish);
    used(span, &out.tokens, out.attempts, out.model_id.as_deref(), finish);
    match &out.result {
        Err(error) => failed(span, error.kind.as_str()),
        Ok(text) if cx.agent.options.trace_content => {
            let parts = [json!({ "type": "text", "content": text })];
            let answer = json!([{ "role": "assistant", "parts": parts, "finish_reason": "stop" }]);
            span.record("gen_ai.output.messages", answer.to_string());
        }
        Ok(_) => {}
    }
}

fn used(span: &Span, tokens: &TokenUsage, attempts: u32, model: Option<&str>, finish: Option<TurnFinishReason>) {
    // The convention counts cached tokens among those of the input; here the buckets do not overlap.
    let input = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
    span.record("gen_ai.usage.input_tokens", count(input));
    span.record("gen_ai.usage.output_tokens", count(tokens.output));
    span.record("gen_ai.usage.cache_read.input_tokens", count(tokens.cache_read));
    span.record("gen_ai.usage.cache_creation.input_tokens", count(tokens.cache_write));
    span.record("zidane.attempts", i64::from(attempts));
    if let Some(model) = model {
        span.record("gen_ai.response.model", model);
    }
    if let Some(finish) = finish {
        span.record("gen_ai.response.finish_reasons", format_args!("[\"{}\"]", finish.as_str()));
    }
}

/// Signed, since OpenTelemetry knows no other integers.
fn count(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// A call whose body runs. Calls that tools make stand below the call that made them.
pub(super) fn execute_tool(cx: &RunCx, info: &ToolCallInfo, spec: &ToolSpec, input: &Value, depth: u32) -> Span {
    let make = || called(info, spec);
    // A nested call is made within the span of the call that makes it.
    let span = if depth == 0 { cx.span.in_scope(make) } else { make() };
    if !span.is_disabled() && cx.agent.options.trace_content {
        span.record("gen_ai.tool.call.arguments", input.to_string());
    }
    span
}

fn called(info: &ToolCallInfo, spec: &ToolSpec) -> Span {
    info_span!(
        target: "zidane::gen_ai",
        "execute_tool",
        otel.name = format_args!("execute_tool {}", info.name()),
        otel.kind = "internal",
        otel.status_code = Empty,
        "error.type" = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &**info.name(),
        gen_ai.tool.call.id = &**info.call_id(),
        "gen_ai.tool.type" = "function",
        gen_ai.tool.description = spec.description,
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
    )
}

pub(super) fn tool_ended(cx: &RunCx, span: &Span, out: &ToolOut) {
    if out.panicked {
        failed(span, "panic");
    } else if out.result.status.is_error() {
        failed(span, out.result.status.as_str());
    } else if out.result.is_error {
        failed(span, "tool_error");
    }
    if cx.agent.options.trace_content {
        span.record("gen_ai.tool.call.result", &*tool_result_to_text(&out.result.output));
    }
}

fn failed(span: &Span, error: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error);
}

/// The name the convention has for a provider, where it has one.
fn provider_name(id: &str) -> &str {
    match id {
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    }
}

fn message(turn: &SessionTurn) -> Value {
    let results_only = turn.content.iter().all(|block| block.as_tool_result().is_some());
    let role = match turn.role {
        crate::types::Role::Assistant => "assistant",
        crate::types::Role::User if results_only => "tool",
        crate::types::Role::User => "user",
    };
    json!({ "role": role, "parts": turn.content.iter().filter_map(part).collect::<Vec<_>>() })
}

/// A block as the convention writes it; the bytes of media are left out.
fn part(block: &SessionContentBlock) -> Option<Value> {
    Some(match block {
        SessionContentBlock::Text(text) => json!({ "type": "text", "content": text.text }),
        SessionContentBlock::Thinking(thinking) => json!({ "type": "reasoning", "content": thinking.text }),
        SessionContentBlock::ToolCall(call) => {
            json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments })
        }
        SessionContentBlock::ToolResult(result) => json!({
            "type": "tool_call_response",
            "id": result.call_id,
            "response": tool_result_to_text(&result.output),
        }),
        SessionContentBlock::Image(_) => json!({ "type": "image" }),
        SessionContentBlock::Document(document) => json!({ "type": "document", "name": document.name }),
        _ => return None,
    })
}

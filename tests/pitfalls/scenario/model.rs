//! The scripted model's answers.

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use zidane::provider::{ProviderError, ProviderErrorKind, RawResponse};
use zidane::testing::Reply;
use zidane::types::TurnFinishReason;

use super::super::body::plain;
use super::super::fields::Fields;
use super::super::findings::Findings;
use super::super::wires::{MODEL, Protocol};

pub fn replies(entries: &[Value], findings: &mut Findings) -> Vec<Reply> {
    entries.iter().map(|entry| reply(entry, findings)).collect()
}

fn reply(entry: &Value, findings: &mut Findings) -> Reply {
    let mut entry = Fields::new("model", entry);
    let mut reply = Reply::empty();
    if let Some(text) = entry.text("text").filter(|text| !text.is_empty()) {
        reply = reply.and_text(text);
    }
    if let Some(count) = entry.number("deltas") {
        reply = Reply::deltas((0..count).map(|number| format!("{number} ")));
    }
    for call in entry.list("tool_calls") {
        let text = |index: usize| call[index].as_str().unwrap_or_default();
        reply = reply.raw_call(Some(text(0)), text(1), plain(&call[2]));
    }
    if let Some(finish) = entry.take("finish") {
        let reason: TurnFinishReason = serde_json::from_value(finish.clone()).unwrap();
        reply = reply.finish(reason, None);
    }
    if entry.flag("stall") {
        reply = reply.then_stall();
    }
    if let Some(error) = entry.take("then_error") {
        reply = reply.then_error(failure(error));
    }
    if let Some(error) = entry.take("error") {
        reply = Reply::error(failure(error));
    }
    entry.finish(findings);
    reply
}

/// The error that a wire makes of a status and a body.
fn failure(error: &Value) -> ProviderError {
    let status = error["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
    let body = Bytes::from(error.get("body").map(plain).unwrap_or_default());
    let response = RawResponse::recorded(status, Vec::new(), [body]);
    let protocol = if error["body"]["type"] == "error" { Protocol::Anthropic } else { Protocol::Chat };
    let mut stream = protocol.decode(MODEL, response).unwrap();
    match stream.next().now_or_never() {
        Some(Some(Err(error))) => error,
        other => ProviderError::new(ProviderErrorKind::Protocol, "test", format!("no error but {other:?}")),
    }
}

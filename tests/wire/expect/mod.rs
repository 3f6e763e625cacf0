//! What a recorded answer means, read off the recording by simple means and none of the crate's.
//!
//! Everything is held in memory as a tree of JSON values and walked at leisure; only the tables are shared with the
//! references in spirit.

mod anthropic;
mod chat;
mod failure;
mod gemini;
mod responses;
mod sse;

use serde_json::Value;
use zidane::provider::ProviderErrorKind;
use zidane::types::TurnFinishReason;

use super::answer::{Answer, Block, End, Failure};
use super::corpus::{Exchange, Protocol};

pub fn answer(protocol: Protocol, vendor: &str, exchange: &Exchange) -> Answer {
    let sequence = match body(exchange) {
        Ok(sequence) => sequence,
        Err(failure) => return Answer { end: Some(End::Error(failure)), ..Answer::default() },
    };
    match protocol {
        Protocol::Anthropic => anthropic::answer(exchange, sequence),
        Protocol::Chat => chat::answer(vendor, exchange, sequence),
        Protocol::Responses => responses::answer(vendor, exchange, sequence),
        Protocol::Gemini => gemini::answer(exchange, sequence),
        Protocol::Left => Answer::default(),
    }
}

/// A body that was understood as far as JSON goes.
pub enum Body {
    Whole(Value),
    /// Events in order, and whether the body ended in the middle of one.
    Events(Vec<sse::Event>),
}

fn body(exchange: &Exchange) -> Result<Body, Failure> {
    let text = exchange.body.trim();
    if text.starts_with(['{', '[']) || exchange.status >= 400 {
        return match serde_json::from_str(text) {
            Ok(value) if exchange.status >= 400 => Err(failure::of_body(exchange, Some(exchange.status), &value)),
            Ok(value) => Ok(Body::Whole(value)),
            // Google's array of chunks is a stream that is read at its end.
            Err(error) if text.starts_with('[') && error.is_eof() => Err(truncation(exchange)),
            Err(_) => Err(failure::of_body(exchange, Some(exchange.status), &Value::String(text.to_owned()))),
        };
    }
    Ok(Body::Events(sse::events(&exchange.body)))
}

/// The stream ended before its time.
fn truncated(exchange: &Exchange) -> End {
    End::Error(truncation(exchange))
}

fn truncation(exchange: &Exchange) -> Failure {
    Failure {
        kinds: vec![ProviderErrorKind::TruncatedStream],
        retryable: Some(true),
        status: None,
        retry_after: None,
        request_ids: failure::request_ids(exchange),
    }
}

/// The rules that hold on every wire: complete calls beat a stop-like word, and no call beats "tool calls".
fn settle(class: TurnFinishReason, blocks: &[Block]) -> TurnFinishReason {
    let has_call = blocks.iter().any(|block| matches!(block, Block::Call(call) if call.complete != Some(false)));
    match class {
        TurnFinishReason::Stop if has_call => TurnFinishReason::ToolCalls,
        TurnFinishReason::ToolCalls if !has_call => TurnFinishReason::Stop,
        other => other,
    }
}

fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

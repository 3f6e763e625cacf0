//! Anthropic Messages.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use zidane::types::TurnFinishReason as Class;

use super::super::answer::{Answer, Arguments, Block, Call, End, Usage};
use super::super::corpus::Exchange;
use super::sse::{Data, Event};
use super::{Body, count, failure, settle, text, truncated};

pub fn answer(exchange: &Exchange, body: Body) -> Answer {
    match body {
        Body::Whole(value) => {
            if value["type"] == "error" || value["error"].is_object() {
                return ended(failure::of_body(exchange, None, &value));
            }
            let mut message = Message::default();
            message.whole(&value);
            message.answer(exchange)
        }
        Body::Events(events) => stream(exchange, events),
    }
}

fn ended(failure: super::super::answer::Failure) -> Answer {
    Answer { end: Some(End::Error(failure)), ..Answer::default() }
}

/// A message as it is being put together.
#[derive(Default)]
struct Message {
    model: Option<String>,
    /// By the wire's index, which is also their order: a whole message's blocks count from 0.
    blocks: BTreeMap<u64, Open>,
    usage: Option<Map<String, Value>>,
    stop: Option<String>,
    stopped: bool,
    error: Option<Value>,
}

/// A block and the text of its input, which arrives as JSON in pieces.
struct Open {
    block: Value,
    input: Option<String>,
    closed: bool,
}

fn stream(exchange: &Exchange, events: Vec<Event>) -> Answer {
    let mut message = Message::default();
    for event in events {
        let Data::Json(event) = event.data else { continue };
        match text(&event["type"]) {
            "message_start" => message.whole_start(&event["message"]),
            "content_block_start" => {
                let open = Open { block: event["content_block"].clone(), input: None, closed: false };
                message.blocks.insert(count(&event["index"]).unwrap_or(0), open);
            }
            "content_block_delta" => {
                if let Some(open) = message.blocks.get_mut(&count(&event["index"]).unwrap_or(0)) {
                    open.add(&event["delta"]);
                }
            }
            "content_block_stop" => {
                if let Some(open) = message.blocks.get_mut(&count(&event["index"]).unwrap_or(0)) {
                    open.closed = true;
                }
            }
            "message_delta" => {
                message.add_usage(&event["usage"]);
                message.set_stop(&event["delta"]["stop_reason"]);
            }
            "message_stop" => {
                message.stopped = true;
                break;
            }
            "error" => {
                message.error = Some(event);
                break;
            }
            _ => {}
        }
    }
    message.answer(exchange)
}

impl Open {
    fn add(&mut self, delta: &Value) {
        let append = |block: &mut Value, field: &str, more: &Value| {
            let joined = format!("{}{}", text(&block[field]), text(more));
            block[field] = Value::String(joined);
        };
        match text(&delta["type"]) {
            "text_delta" => append(&mut self.block, "text", &delta["text"]),
            "thinking_delta" => append(&mut self.block, "thinking", &delta["thinking"]),
            "signature_delta" => self.block["signature"] = delta["signature"].clone(),
            "input_json_delta" => {
                let input = self.input.get_or_insert_default();
                input.push_str(text(&delta["partial_json"]));
            }
            "compaction_delta" => {
                for (field, value) in delta.as_object().into_iter().flatten().filter(|(field, _)| *field != "type") {
                    self.block[field] = value.clone();
                }
            }
            _ => {}
        }
    }

    fn block(mut self) -> Option<Block> {
        let kind = text(&self.block["type"]).to_owned();
        let signature = Some(text(&self.block["signature"]).to_owned()).filter(|signature| !signature.is_empty());
        match kind.as_str() {
            "text" => Some(Block::Text(text(&self.block["text"]).to_owned())),
            "thinking" => Some(Block::Thinking { text: text(&self.block["thinking"]).to_owned(), signature }),
            "redacted_thinking" => Some(Block::Redacted(text(&self.block["data"]).to_owned())),
            "tool_use" => {
                let arguments = match self.input.filter(|input| !input.is_empty()) {
                    Some(input) => Arguments::parse(&input),
                    None if self.block["input"].is_null() => Arguments::parse(""),
                    None => Arguments::Json(self.block["input"].clone()),
                };
                let complete = Some(self.closed && matches!(arguments, Arguments::Json(_)));
                Some(Block::Call(Call {
                    id: text(&self.block["id"]).to_owned(),
                    name: text(&self.block["name"]).to_owned(),
                    arguments,
                    signature: caller(&self.block["caller"]),
                    complete,
                }))
            }
            "" => None,
            // An opaque block is worth keeping only whole.
            _ if !self.closed => None,
            _ => {
                if let Some(Ok(input)) =
                    self.input.filter(|input| !input.is_empty()).map(|input| serde_json::from_str(&input))
                {
                    self.block["input"] = input;
                }
                Some(Block::Opaque(self.block))
            }
        }
    }
}

/// A call that a program of the provider's made must go back with its caller; `direct` is what a call is anyway.
fn caller(caller: &Value) -> Option<String> {
    (caller.is_object() && caller["type"] != "direct").then(|| json!({ "caller": caller }).to_string())
}

impl Message {
    /// A whole body, or the start of a stream that may already hold everything.
    fn whole(&mut self, message: &Value) {
        self.whole_start(message);
        self.stopped = true;
    }

    fn whole_start(&mut self, message: &Value) {
        self.model = message["model"].as_str().map(str::to_owned);
        for (index, block) in (0..).zip(message["content"].as_array().into_iter().flatten()) {
            self.blocks.insert(index, Open { block: block.clone(), input: None, closed: true });
        }
        self.add_usage(&message["usage"]);
        self.set_stop(&message["stop_reason"]);
    }

    fn set_stop(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str() {
            self.stop = Some(reason.to_owned());
        }
    }

    /// Later numbers replace earlier ones; null keeps them.
    fn add_usage(&mut self, usage: &Value) {
        let Value::Object(usage) = usage else { return };
        let known = self.usage.get_or_insert_default();
        for (field, value) in usage.iter().filter(|(_, value)| !value.is_null()) {
            known.insert(field.clone(), value.clone());
        }
    }

    fn usage(&self) -> Option<Usage> {
        let all = Value::Object(self.usage.clone()?);
        let mut sum = pass(&all);
        sum.reasoning = count(&all["output_tokens_details"]["thinking_tokens"]).unwrap_or(0).min(sum.output);
        sum.cost_usd = all["cost"].as_f64();
        // The top-level numbers leave these passes out.
        for part in all["iterations"].as_array().into_iter().flatten() {
            if matches!(text(&part["type"]), "compaction" | "advisor_message") {
                let more = pass(part);
                sum.input += more.input;
                sum.output += more.output;
                sum.cache_read += more.cache_read;
                sum.cache_write += more.cache_write;
                sum.cache_write_1h += more.cache_write_1h;
            }
        }
        Some(sum)
    }

    fn answer(self, exchange: &Exchange) -> Answer {
        let usage = self.usage();
        let blocks: Vec<Block> = self.blocks.into_values().filter_map(Open::block).collect();
        let end = match (self.error, self.stop) {
            (Some(error), _) => End::Error(failure::of_body(exchange, None, &error)),
            // A stream that said why it stopped and then just closed is complete.
            (None, Some(raw)) => End::Finish { class: settle(class(&raw), &blocks), raw: Some(raw) },
            (None, None) if self.stopped => End::Finish { class: settle(Class::Other, &blocks), raw: None },
            (None, None) => truncated(exchange),
        };
        Answer { models: self.model.into_iter().collect(), blocks, usage, end: Some(end) }
    }
}

fn pass(usage: &Value) -> Usage {
    let get = |field: &str| count(&usage[field]).unwrap_or(0);
    Usage {
        input: get("input_tokens"),
        output: get("output_tokens"),
        cache_read: get("cache_read_input_tokens"),
        cache_write: get("cache_creation_input_tokens"),
        cache_write_1h: count(&usage["cache_creation"]["ephemeral_1h_input_tokens"]).unwrap_or(0),
        ..Usage::default()
    }
}

fn class(raw: &str) -> Class {
    match raw {
        "end_turn" | "stop_sequence" => Class::Stop,
        "tool_use" => Class::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Class::Length,
        "refusal" => Class::ContentFilter,
        "pause_turn" | "compaction" => Class::Pause,
        _ => Class::Other,
    }
}

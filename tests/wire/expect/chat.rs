//! OpenAI Chat Completions and what speaks it.

use serde_json::{Value, json};
use zidane::types::TurnFinishReason as Class;

use super::super::answer::{Answer, Arguments, Block, Call, End, Usage};
use super::super::corpus::Exchange;
use super::sse::Data;
use super::{Body, count, failure, settle, text, truncated};

pub fn answer(vendor: &str, exchange: &Exchange, body: Body) -> Answer {
    let mut message = Message { vendor: vendor.to_owned(), ..Message::default() };
    match body {
        Body::Whole(value) => {
            message.add(&value, "message");
            message.closed = true;
        }
        Body::Events(events) => {
            for event in events {
                match event.data {
                    Data::Json(chunk) => message.add(&chunk, "delta"),
                    Data::Done => message.closed = true,
                    Data::ErrorField(error) => message.error = Some(error),
                    Data::Broken => {}
                }
                if message.error.is_some() || message.closed {
                    break;
                }
            }
        }
    }
    message.answer(exchange)
}

#[derive(Default)]
struct Message {
    vendor: String,
    models: Vec<String>,
    /// Kinds of content in the order in which they first came.
    order: Vec<Kind>,
    text: String,
    thinking: String,
    details: Vec<Value>,
    refusal: String,
    calls: Vec<Fragments>,
    usage: Option<Value>,
    finish: Option<String>,
    closed: bool,
    error: Option<Value>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Thinking,
    Calls,
}

#[derive(Default)]
struct Fragments {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    signature: Option<String>,
}

impl Message {
    fn add(&mut self, chunk: &Value, field: &str) {
        if !chunk["error"].is_null() {
            self.error = Some(chunk.clone());
        }
        let model = text(&chunk["model"]);
        if !model.is_empty() && !self.models.iter().any(|known| known == model) {
            self.models.push(model.to_owned());
        }
        let choices = chunk["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let choice = choices.iter().find(|choice| count(&choice["index"]).unwrap_or(0) == 0);
        for usage in [&chunk["x_groq"]["usage"], &choice.unwrap_or(&Value::Null)["usage"], &chunk["usage"]] {
            if usage.is_object() {
                self.usage = Some(usage.clone());
            }
        }
        let Some(choice) = choice else { return };
        if let Some(reason) = choice["finish_reason"].as_str().filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        self.add_message(&choice[field]);
    }

    fn add_message(&mut self, message: &Value) {
        let mut thinking = ["reasoning_content", "reasoning", "reasoning_text"]
            .iter()
            .map(|field| text(&message[*field]))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned();
        let details = message["reasoning_details"].as_array().map(Vec::as_slice).unwrap_or_default();
        if thinking.is_empty() {
            thinking =
                details.iter().map(|detail| format!("{}{}", text(&detail["text"]), text(&detail["summary"]))).collect();
        }
        for detail in details {
            self.add_detail(detail);
        }
        let mut content = String::new();
        match &message["content"] {
            Value::String(text) => content.push_str(text),
            Value::Array(parts) => {
                for part in parts {
                    match &part["thinking"] {
                        Value::Array(inner) => thinking.extend(inner.iter().map(|part| text(&part["text"]))),
                        Value::String(inner) => thinking.push_str(inner),
                        _ => content.push_str(text(&part["text"])),
                    }
                }
            }
            _ => {}
        }
        self.refusal.push_str(text(&message["refusal"]));
        content.push_str(text(&message["refusal"]));
        if !thinking.is_empty() || !details.is_empty() {
            self.note(Kind::Thinking);
            self.thinking.push_str(&thinking);
        }
        if !content.is_empty() {
            self.note(Kind::Text);
            self.text.push_str(&content);
        }
        for fragment in message["tool_calls"].as_array().into_iter().flatten() {
            self.note(Kind::Calls);
            self.add_call(fragment);
        }
        let legacy = &message["function_call"];
        if !text(&legacy["name"]).is_empty() || !text(&legacy["arguments"]).is_empty() {
            self.note(Kind::Calls);
            self.add_call(&json!({ "index": 0, "function": legacy }));
        }
    }

    fn note(&mut self, kind: Kind) {
        if !self.order.contains(&kind) {
            self.order.push(kind);
        }
    }

    /// Neighbouring pieces of text or summary at one place are one item.
    fn add_detail(&mut self, detail: &Value) {
        let field = match text(&detail["type"]) {
            "reasoning.text" => "text",
            "reasoning.summary" => "summary",
            _ => {
                self.details.push(detail.clone());
                return;
            }
        };
        let last = self.details.last_mut();
        match last.filter(|last| last["type"] == detail["type"] && last["index"] == detail["index"]) {
            Some(last) => {
                last[field] = Value::String(format!("{}{}", text(&last[field]), text(&detail[field])));
                for (name, value) in detail.as_object().into_iter().flatten() {
                    if name != field && !value.is_null() {
                        last[name] = value.clone();
                    }
                }
            }
            None => self.details.push(detail.clone()),
        }
    }

    fn add_call(&mut self, fragment: &Value) {
        let index = count(&fragment["index"]);
        let id = text(&fragment["id"]);
        let is_custom = !text(&fragment["custom"]["name"]).is_empty();
        let function = if is_custom { &fragment["custom"] } else { &fragment["function"] };
        let name = text(&function["name"]);
        let known = match index {
            Some(_) => self.calls.iter().rposition(|call| call.index == index),
            None => self.calls.len().checked_sub(1).filter(|_| id.is_empty() && name.is_empty()),
        };
        // Some hosts number every call 0: another id is another call.
        let known = known.filter(|at| id.is_empty() || self.calls[*at].id.is_empty() || self.calls[*at].id == id);
        let call = match known {
            Some(at) => &mut self.calls[at],
            None => {
                self.calls.push(Fragments { index, ..Fragments::default() });
                self.calls.last_mut().unwrap()
            }
        };
        if !id.is_empty() {
            call.id = id.to_owned();
        }
        if !name.is_empty() {
            call.name = name.to_owned();
        }
        match &function["arguments"] {
            Value::String(arguments) => call.arguments.push_str(arguments),
            Value::Null => {}
            whole => call.arguments = whole.to_string(),
        }
        if is_custom {
            // The input is text and no JSON; as JSON it is a string.
            call.arguments = function["input"].to_string();
        }
        if let Some(signature) = fragment["extra_content"]["google"]["thought_signature"].as_str() {
            call.signature = Some(signature.to_owned());
        }
    }

    fn answer(mut self, exchange: &Exchange) -> Answer {
        let is_cut = self.finish.as_deref() == Some("length");
        let has_ended = self.closed || self.finish.is_some();
        let calls: Vec<Block> = self
            .calls
            .drain(..)
            .map(|call| {
                let complete = match Arguments::parse(&call.arguments) {
                    Arguments::Raw(_) => {
                        if is_cut || !has_ended {
                            Some(false)
                        } else {
                            None
                        }
                    }
                    // Nothing yet, or nothing at all: the limit makes it unknowable, and no such call is run.
                    Arguments::Json(_) if call.arguments.is_empty() && is_cut => None,
                    // Whether a call can be known to be complete before the stream's end depends on the vendor.
                    Arguments::Json(_) if !has_ended || self.error.is_some() => None,
                    Arguments::Json(_) => Some(true),
                };
                let arguments = Arguments::parse(&call.arguments);
                Block::Call(Call { id: call.id, name: call.name, arguments, signature: call.signature, complete })
            })
            .collect();
        let signature = (!self.details.is_empty()).then(|| Value::Array(self.details.clone()).to_string());
        let mut blocks = Vec::new();
        for kind in &self.order {
            match kind {
                Kind::Text => blocks.push(Block::Text(self.text.clone())),
                Kind::Thinking => {
                    blocks.push(Block::Thinking { text: self.thinking.clone(), signature: signature.clone() })
                }
                Kind::Calls => blocks.extend(calls.iter().cloned()),
            }
        }
        let usage = self.usage.as_ref().map(|all| usage(&self.vendor, all));
        let end = match (&self.error, self.finish) {
            (Some(error), _) => End::Error(failure::of_body(exchange, None, error)),
            (None, Some(raw)) => {
                let class = match class(&raw) {
                    Class::Stop if !self.refusal.is_empty() => Class::ContentFilter,
                    class => settle(class, &blocks),
                };
                End::Finish { class, raw: Some(raw) }
            }
            (None, None) if self.closed => End::Finish { class: settle(Class::Stop, &blocks), raw: None },
            (None, None) => truncated(exchange),
        };
        Answer { models: self.models, blocks, usage, end: Some(end) }
    }
}

fn class(raw: &str) -> Class {
    match raw.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" => Class::Stop,
        "tool_calls" | "function_call" => Class::ToolCalls,
        "length" | "model_length" | "model_context_window_exceeded" => Class::Length,
        "content_filter" | "sensitive" => Class::ContentFilter,
        "error" | "network_error" | "insufficient_system_resource" | "abort" => Class::Error,
        _ => Class::Other,
    }
}

fn usage(vendor: &str, all: &Value) -> Usage {
    let details = &all["prompt_tokens_details"];
    let prompt = count(&all["prompt_tokens"]).unwrap_or(0);
    let completion = count(&all["completion_tokens"]).unwrap_or(0);
    let total = count(&all["total_tokens"]).unwrap_or(0);
    let told = [&all["completion_tokens_details"]["reasoning_tokens"], &all["reasoning_tokens"]];
    let told = told.iter().find_map(|value| count(value)).unwrap_or(0);
    let (output, reasoning) = match vendor {
        // These count reasoning outside of the completion, and Google tells it only by the total.
        "xai" => (completion + told, told),
        "google" => {
            let output = completion.max(total.saturating_sub(prompt));
            (output, output - completion)
        }
        _ => (completion, told.min(completion)),
    };
    let cache_read = [
        &all["prompt_cache_hit_tokens"],
        &details["cached_tokens"],
        &all["cached_tokens"],
        &all["num_cached_tokens"],
        &all["cache_read_input_tokens"],
    ];
    let cache_read = cache_read.iter().filter_map(|value| count(value)).max().unwrap_or(0);
    // Grok on Azure reports more cached tokens than tokens.
    let cache_read = cache_read.min(prompt);
    let cache_write = [&details["cache_write_tokens"], &all["cache_creation_input_tokens"]];
    let cache_write = cache_write.iter().filter_map(|value| count(value)).max().unwrap_or(0);
    let cost = &all["cost"];
    let ticks = all["cost_in_usd_ticks"].as_f64().map(|ticks| ticks / 1e10);
    Usage {
        input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
        output,
        cache_read,
        cache_write,
        cache_write_1h: 0,
        reasoning,
        cost_usd: cost.as_f64().or_else(|| cost["total_cost"].as_f64()).or(ticks),
    }
}

//! Gemini, by the Gemini API and by Vertex.

use serde_json::{Map, Value, json};
use zidane::types::TurnFinishReason as Class;

use super::super::answer::{Answer, Arguments, Block, Call, End, Usage};
use super::super::corpus::Exchange;
use super::sse::Data;
use super::{Body, count, failure, settle, text, truncated};

pub fn answer(exchange: &Exchange, body: Body) -> Answer {
    let chunks: Vec<Value> = match body {
        Body::Whole(Value::Array(chunks)) => chunks,
        Body::Whole(chunk) => vec![chunk],
        Body::Events(events) => {
            let json = events.into_iter().filter_map(|event| match event.data {
                Data::Json(chunk) => Some(chunk),
                _ => None,
            });
            json.collect()
        }
    };
    let mut content = Content::default();
    for chunk in &chunks {
        content.add(chunk);
        if content.error.is_some() {
            break;
        }
    }
    content.answer(exchange)
}

#[derive(Default)]
struct Content {
    model: Option<String>,
    blocks: Vec<Block>,
    /// Arguments that come in pieces, and whether more of them come.
    streamed: Option<Value>,
    usage: Map<String, Value>,
    reason: Option<String>,
    blocked: Option<String>,
    error: Option<Value>,
}

impl Content {
    fn add(&mut self, chunk: &Value) {
        if chunk["error"].is_object() {
            self.error = Some(chunk.clone());
            return;
        }
        self.model = chunk["modelVersion"].as_str().map(str::to_owned).or(self.model.take());
        if let Some(reason) = word(&chunk["promptFeedback"]["blockReason"]) {
            self.blocked = Some(reason);
        }
        for (field, value) in chunk["usageMetadata"].as_object().into_iter().flatten() {
            if value.is_number() {
                self.usage.insert(field.clone(), value.clone());
            }
        }
        let candidates = chunk["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(first) = candidates.iter().find(|candidate| count(&candidate["index"]).unwrap_or(0) == 0) else {
            return;
        };
        for part in first["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part);
        }
        if let Some(reason) = word(&first["finishReason"]) {
            self.reason = Some(reason);
        }
    }

    fn part(&mut self, part: &Value) {
        let signature = part["thoughtSignature"].as_str().map(str::to_owned);
        if part["functionCall"].is_object() {
            return self.call(&part["functionCall"], signature);
        }
        let is_thought = part["thought"] == true;
        let is_other = part.as_object().into_iter().flatten().any(|(field, value)| {
            !matches!(field.as_str(), "text" | "thought" | "thoughtSignature" | "functionCall") && !value.is_null()
        });
        if is_other {
            self.end_call(true);
            self.blocks.push(Block::Opaque(part.clone()));
            return;
        }
        let more = text(&part["text"]);
        match (self.blocks.last_mut(), signature) {
            (_, None) if more.is_empty() => {}
            (Some(Block::Text(text)), None) if !is_thought => text.push_str(more),
            (Some(Block::Thinking { text, signature: None }), None) if is_thought => text.push_str(more),
            (_, signature) if is_thought => self.blocks.push(Block::Thinking { text: more.into(), signature }),
            (_, Some(signature)) => self.blocks.push(Block::Signed { text: more.into(), signature }),
            (_, None) => self.blocks.push(Block::Text(more.into())),
        }
    }

    fn call(&mut self, call: &Value, signature: Option<String>) {
        let name = text(&call["name"]);
        if !name.is_empty() {
            self.end_call(true);
            let arguments = if call["args"].is_object() { call["args"].clone() } else { json!({}) };
            self.blocks.push(Block::Call(Call {
                id: text(&call["id"]).into(),
                name: name.into(),
                arguments: Arguments::Json(arguments),
                signature,
                complete: Some(true),
            }));
            if call["willContinue"] == true {
                self.streamed = Some(json!({}));
            }
        }
        let Some(arguments) = &mut self.streamed else { return };
        for piece in call["partialArgs"].as_array().into_iter().flatten() {
            set(arguments, piece);
        }
        if call["willContinue"] != true {
            self.end_call(true);
        }
    }

    fn end_call(&mut self, is_complete: bool) {
        let Some(streamed) = self.streamed.take() else { return };
        if let Some(Block::Call(call)) = self.blocks.last_mut() {
            call.arguments = Arguments::Json(streamed);
            call.complete = Some(is_complete);
        }
    }

    fn usage(&self) -> Option<Usage> {
        let get = |field: &str| self.usage.get(field).and_then(count).unwrap_or(0);
        let cached = get("cachedContentTokenCount");
        (!self.usage.is_empty()).then(|| Usage {
            input: get("promptTokenCount").saturating_sub(cached) + get("toolUsePromptTokenCount"),
            output: get("candidatesTokenCount") + get("thoughtsTokenCount"),
            cache_read: cached,
            reasoning: get("thoughtsTokenCount"),
            ..Usage::default()
        })
    }

    fn answer(mut self, exchange: &Exchange) -> Answer {
        let is_stop = self.reason.as_deref().is_some_and(|raw| class(raw) == Class::Stop);
        self.end_call(is_stop && self.error.is_none());
        let end = match (&self.error, &self.reason, &self.blocked) {
            (Some(error), ..) => End::Error(failure::of_body(exchange, None, error)),
            (None, Some(raw), _) => End::Finish { class: settle(class(raw), &self.blocks), raw: Some(raw.clone()) },
            (None, None, Some(raw)) => End::Finish { class: Class::ContentFilter, raw: Some(raw.clone()) },
            (None, None, None) => truncated(exchange),
        };
        Answer {
            models: self.model.clone().into_iter().collect(),
            usage: self.usage(),
            blocks: self.blocks,
            end: Some(end),
        }
    }
}

/// The name of an enum's value, or its number.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(name) => Some(name.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn class(raw: &str) -> Class {
    match raw {
        "STOP" | "1" => Class::Stop,
        "MAX_TOKENS" | "2" => Class::Length,
        "CONTINUATION" => Class::Pause,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "MODEL_ARMOR" => {
            Class::ContentFilter
        }
        "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            Class::Error
        }
        _ => Class::Other,
    }
}

/// Puts a piece of streamed arguments where its path says: `$.a.b[0].c`, as all recorded ones are.
fn set(root: &mut Value, piece: &Value) {
    let path = text(&piece["jsonPath"]).trim_start_matches("$.").replace('[', ".[");
    let mut place = root;
    for step in path.split('.') {
        place = match step.strip_prefix('[').and_then(|step| step.strip_suffix(']')) {
            Some(index) => {
                let index: usize = index.parse().unwrap();
                if place.is_null() {
                    *place = json!([]);
                }
                let items = place.as_array_mut().unwrap();
                while items.len() <= index {
                    items.push(Value::Null);
                }
                &mut items[index]
            }
            None => &mut place[step],
        };
    }
    *place = match (piece["stringValue"].as_str(), &*place) {
        (Some(more), Value::String(known)) => format!("{known}{more}").into(),
        (Some(more), _) => more.into(),
        (None, _) if !piece["numberValue"].is_null() => piece["numberValue"].clone(),
        (None, _) => piece["boolValue"].clone(),
    };
}

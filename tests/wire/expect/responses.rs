//! OpenAI Responses and what speaks it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use zidane::types::TurnFinishReason as Class;

use super::super::answer::{Answer, Arguments, Block, Call, End, Usage};
use super::super::corpus::Exchange;
use super::sse::Data;
use super::{Body, count, failure, settle, text, truncated};

pub fn answer(vendor: &str, exchange: &Exchange, body: Body) -> Answer {
    let mut reader = Reader { vendor: vendor.to_owned(), ..Reader::default() };
    match body {
        Body::Whole(value) if value["output"].is_null() && !value["error"].is_null() => reader.error = Some(value),
        Body::Whole(value) => reader.end(&value),
        Body::Events(events) => {
            for event in events {
                let Data::Json(event) = event.data else { continue };
                reader.add(&event);
                if reader.error.is_some() || reader.response.is_some() {
                    break;
                }
            }
        }
    }
    reader.answer(exchange)
}

/// Output items by their number.
#[derive(Default)]
struct Reader {
    vendor: String,
    models: Vec<String>,
    items: BTreeMap<u64, Streamed>,
    /// The terminal one.
    response: Option<Value>,
    error: Option<Value>,
}

#[derive(Default)]
struct Streamed {
    announced: Value,
    /// What came in pieces, by the kind of event and the number of the part.
    pieces: BTreeMap<(String, u64), String>,
    done: Option<Value>,
}

impl Reader {
    fn add(&mut self, event: &Value) {
        let kind = text(&event["type"]);
        if kind == "error" {
            self.error = Some(event.clone());
            return;
        }
        self.model(&event["response"]);
        match kind {
            "response.completed" | "response.incomplete" | "response.failed" => self.end(&event["response"]),
            "response.output_item.added" => self.item(event).announced = event["item"].clone(),
            "response.output_item.done" => self.item(event).done = Some(event["item"].clone()),
            _ => {
                if let (Some(name), Some(delta)) = (kind.strip_suffix(".delta"), event["delta"].as_str()) {
                    let part = count(&event["summary_index"]).or_else(|| count(&event["content_index"])).unwrap_or(0);
                    self.item(event).pieces.entry((name.to_owned(), part)).or_default().push_str(delta);
                }
            }
        }
    }

    fn item(&mut self, event: &Value) -> &mut Streamed {
        self.items.entry(count(&event["output_index"]).unwrap_or(0)).or_default()
    }

    fn model(&mut self, response: &Value) {
        let model = text(&response["model"]);
        if !model.is_empty() && !self.models.iter().any(|known| known == model) {
            self.models.push(model.to_owned());
        }
    }

    fn end(&mut self, response: &Value) {
        self.model(response);
        for (at, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            let known = self.items.entry(u64::try_from(at).unwrap()).or_default();
            // Azure gives what is encrypted at the end only.
            let lacks = known.done.as_ref().is_none_or(|done| {
                text(&done["encrypted_content"]).is_empty() && !text(&item["encrypted_content"]).is_empty()
            });
            if lacks {
                known.done = Some(item.clone());
            }
        }
        self.response = Some(response.clone());
    }

    fn answer(self, exchange: &Exchange) -> Answer {
        let mut blocks = Vec::new();
        let mut items = Vec::new();
        for streamed in self.items.values() {
            match &streamed.done {
                Some(item) => {
                    blocks.extend(whole(&self.vendor, item));
                    items.push(item.clone());
                }
                None => blocks.extend(partial(streamed)),
            }
        }
        let response = self.response.unwrap_or_default();
        let usage = Some(&response["usage"]).filter(|usage| usage.is_object()).map(usage);
        let end = match self.error {
            Some(error) => End::Error(failure::of_body(exchange, None, &error)),
            None => match text(&response["status"]) {
                "" => truncated(exchange),
                "failed" => End::Error(failure::of_body(exchange, None, &response)),
                status => finish(status, &response, &blocks, &items),
            },
        };
        Answer { models: self.models, blocks, usage, end: Some(end) }
    }
}

fn finish(status: &str, response: &Value, blocks: &[Block], items: &[Value]) -> End {
    let reason = text(&response["incomplete_details"]["reason"]);
    let refused = items
        .iter()
        .any(|item| item["content"].as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "refusal")));
    let (class, raw) = match (status, reason) {
        ("completed", _) if refused => (Class::ContentFilter, status),
        ("completed", _) => match settle(Class::Stop, blocks) {
            Class::Stop if items.iter().any(|item| item["type"] == "mcp_approval_request") => (Class::Pause, status),
            class => (class, status),
        },
        ("queued" | "in_progress", _) => (Class::Pause, status),
        ("incomplete", "max_output_tokens") => (Class::Length, reason),
        ("incomplete", "content_filter") => (Class::ContentFilter, reason),
        _ => (Class::Other, reason),
    };
    End::Finish { class, raw: Some(raw.to_owned()) }
}

fn whole(vendor: &str, item: &Value) -> Vec<Block> {
    match text(&item["type"]) {
        "message" => item["content"].as_array().into_iter().flatten().map(|part| message_part(item, part)).collect(),
        "reasoning" => {
            let shown = [&item["summary"], &item["content"]].into_iter().map(texts).find(|text| !text.is_empty());
            // Elsewhere the server takes back only what it can decrypt.
            let is_wanted = vendor == "deepseek" || !text(&item["encrypted_content"]).is_empty();
            let signature = is_wanted.then(|| item.to_string());
            vec![Block::Thinking { text: shown.unwrap_or_default(), signature }]
        }
        kind @ ("function_call" | "custom_tool_call") => {
            let arguments = match kind {
                "custom_tool_call" => Arguments::Json(item["input"].clone()),
                _ => Arguments::parse(text(&item["arguments"])),
            };
            let mut rest = item.as_object().cloned().unwrap_or_default();
            rest.retain(|name, value| {
                let is_plain = name == "type" && value == "function_call";
                let known = ["call_id", "name", "arguments", "input", "status", "item_id", "output_index"];
                !known.contains(&name.as_str()) && !is_plain
            });
            rest.retain(|_, value| !value.is_null());
            let signature = (!rest.is_empty()).then(|| Value::Object(rest).to_string());
            vec![Block::Call(Call {
                id: text(&item["call_id"]).to_owned(),
                name: text(&item["name"]).to_owned(),
                arguments,
                signature,
                complete: Some(item["status"] != "incomplete"),
            })]
        }
        _ => vec![Block::Opaque(item.clone())],
    }
}

fn message_part(item: &Value, part: &Value) -> Block {
    match text(&part["type"]) {
        "output_text" => Block::Text(text(&part["text"]).to_owned()),
        "refusal" => Block::Text(text(&part["refusal"]).to_owned()),
        _ => {
            let mut message = Map::new();
            for (name, value) in item.as_object().into_iter().flatten() {
                if name != "status" && !value.is_null() {
                    message.insert(name.clone(), value.clone());
                }
            }
            message.insert("content".into(), json!([part]));
            Block::Opaque(Value::Object(message))
        }
    }
}

fn texts(parts: &Value) -> String {
    let texts: Vec<_> = parts.as_array().into_iter().flatten().map(|part| text(&part["text"])).collect();
    texts.join("\n\n")
}

/// An item that broke off.
fn partial(streamed: &Streamed) -> Option<Block> {
    let joined = |between: &str| streamed.pieces.values().map(String::as_str).collect::<Vec<_>>().join(between);
    Some(match text(&streamed.announced["type"]) {
        "message" => Block::Text(joined("")),
        "reasoning" => Block::Thinking { text: joined("\n\n"), signature: None },
        kind @ ("function_call" | "custom_tool_call") => Block::Call(Call {
            id: text(&streamed.announced["call_id"]).to_owned(),
            name: text(&streamed.announced["name"]).to_owned(),
            arguments: match (kind, joined("")) {
                // Free text becomes a JSON string, here one without its end.
                ("custom_tool_call", input) if !input.is_empty() => {
                    let quoted = Value::String(input).to_string();
                    Arguments::Raw(quoted.strip_suffix('"').unwrap_or(&quoted).to_owned())
                }
                (_, input) => Arguments::parse(&input),
            },
            signature: None,
            complete: Some(false),
        }),
        _ => return None,
    })
}

fn usage(all: &Value) -> Usage {
    let details = &all["input_tokens_details"];
    let input = count(&all["input_tokens"]).unwrap_or(0);
    let cache_read = count(&details["cached_tokens"]).unwrap_or(0);
    let cache_write = count(&details["cache_write_tokens"]).unwrap_or(0);
    let output = count(&all["output_tokens"]).unwrap_or(0);
    let ticks = all["cost_in_usd_ticks"].as_f64().map(|ticks| ticks / 1e10);
    Usage {
        input: input.saturating_sub(cache_read).saturating_sub(cache_write),
        output,
        cache_read,
        cache_write,
        cache_write_1h: 0,
        reasoning: count(&all["output_tokens_details"]["reasoning_tokens"]).unwrap_or(0).min(output),
        cost_usd: all["cost"].as_f64().or(ticks),
    }
}

//! Anthropic Messages. Source: the vendor's API reference and server errors in public issues, 2026-11.

use serde_json::Value;

use super::{Open, Report, Said};

const TOP: [&str; 16] = [
    "system",
    "cache_control",
    "container",
    "inference_geo",
    "metadata",
    "output_config",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "thinking",
    "tool_choice",
    "tools",
    "temperature",
    "top_p",
    "top_k",
];
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(crate) fn check(body: &Value) -> Report {
    let mut report = Report::default();
    let r = &mut report;
    r.object("request", body, &["model", "max_tokens", "messages"], &TOP);
    r.check(body["max_tokens"].as_u64().is_some_and(|tokens| tokens > 0), || "max_tokens".into());
    r.check(marks(body) <= 4, || "more than four cache marks".into());
    for block in body.get("system").and_then(Value::as_array).into_iter().flatten() {
        r.object("system", block, &["type", "text"], &["cache_control"]);
        r.not_blank("system", block["text"].as_str().unwrap_or_default());
    }
    tools(r, body);
    let messages = r.array("messages", &body["messages"]);
    r.check(messages.first().is_some_and(|first| first["role"] == "user"), || "the first message is no user's".into());
    r.check(messages.last().is_some_and(|last| last["role"] == "user"), || "must end with a user message".into());
    let mut open = Open::default();
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        r.object(&place, message, &["role", "content"], &[]);
        let content = r.array(&place, &message["content"]);
        r.check(!content.is_empty(), || format!("{place}: empty content"));
        match message["role"].as_str() {
            Some("user") => {
                user(r, &place, content, &mut open);
                open.settled(r, &place);
            }
            Some("assistant") => {
                open.settled(r, &place);
                assistant(r, &place, content, &mut open);
            }
            other => r.fault(format!("{place}: role {other:?}")),
        }
    }
    open.settled(r, "the end");
    report
}

fn marks(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(marks).sum(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| usize::from(name == "cache_control") + marks(value)).sum()
        }
        _ => 0,
    }
}

fn tools(r: &mut Report, body: &Value) {
    let tools = body.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default()).collect();
    r.names("tools", &names, "_-", 64);
    for (at, tool) in tools.iter().enumerate() {
        let place = format!("tools.{at}");
        r.object(&place, tool, &["name", "input_schema"], &["description", "strict", "cache_control"]);
        r.schema(&place, &tool["input_schema"], &["oneOf", "anyOf", "allOf"], &[]);
        for key in tool["input_schema"]["properties"].as_object().into_iter().flatten().map(|(key, _)| key) {
            r.name(&place, key, "_.-", 64);
        }
    }
    r.check(body.get("tool_choice").is_none() || !tools.is_empty(), || "tool_choice without tools".into());
}

fn user(r: &mut Report, place: &str, content: &[Value], open: &mut Open) {
    let mut other = false;
    for (at, block) in content.iter().enumerate() {
        let place = format!("{place}.content.{at}");
        if block["type"] == "tool_result" {
            r.check(!other, || format!("{place}: a result after other content"));
            r.object(&place, block, &["type", "tool_use_id"], &["content", "is_error", "cache_control"]);
            let id = r.string(&place, &block["tool_use_id"]).to_owned();
            open.result(r, &place, &id);
            let (mut text, mut media) = (Vec::new(), Vec::new());
            match &block["content"] {
                Value::Null => {}
                Value::String(whole) => {
                    r.not_blank(&place, whole);
                    text.push(whole.clone());
                }
                blocks => {
                    for inner in r.array(&place, blocks) {
                        match part(r, &place, inner) {
                            Some(Said::User(said)) => text.push(said),
                            Some(Said::Media(data)) => media.push(data),
                            _ => {}
                        }
                    }
                }
            }
            r.said.push(Said::Result(id, text.join("\n"), media));
        } else {
            other = true;
            if let Some(said) = part(r, &place, block) {
                r.said.push(said);
            }
        }
    }
}

/// What may stand in a user message and in a result.
fn part(r: &mut Report, place: &str, block: &Value) -> Option<Said> {
    match block["type"].as_str() {
        Some("text") => {
            r.object(place, block, &["type", "text"], &["cache_control"]);
            let text = r.string(place, &block["text"]);
            r.not_blank(place, text);
            Some(Said::User(text.to_owned()))
        }
        Some(kind @ ("image" | "document")) => {
            let optional: &[&str] = if kind == "image" { &["cache_control"] } else { &["title", "cache_control"] };
            r.object(place, block, &["type", "source"], optional);
            let source = &block["source"];
            if source["type"] == "url" {
                r.object(place, source, &["type", "url"], &[]);
                return Some(Said::Media(r.string(place, &source["url"]).to_owned()));
            }
            r.object(place, source, &["type", "media_type", "data"], &[]);
            r.check(source["type"] == "base64", || format!("{place}: source {source}"));
            let types: &[&str] = if kind == "image" { &IMAGES } else { &["application/pdf"] };
            let data = r.string(place, &source["data"]);
            r.bytes(place, source["media_type"].as_str().unwrap_or_default(), data, types);
            r.check(kind != "image" || data.len() <= 10_000_000, || format!("{place}: an image above 10 MB"));
            Some(Said::Media(data.to_owned()))
        }
        other => {
            r.fault(format!("{place}: a block {other:?} in a user message"));
            None
        }
    }
}

fn assistant(r: &mut Report, place: &str, content: &[Value], open: &mut Open) {
    for (at, block) in content.iter().enumerate() {
        let place = format!("{place}.content.{at}");
        match block["type"].as_str() {
            Some("text") => {
                r.object(&place, block, &["type", "text"], &["citations"]);
                let text = r.string(&place, &block["text"]);
                r.not_blank(&place, text);
                r.said.push(Said::Text(text.to_owned()));
            }
            Some("thinking") => {
                r.object(&place, block, &["type", "thinking", "signature"], &[]);
                let signature = r.string(&place, &block["signature"]);
                r.check(!signature.is_empty(), || format!("{place}: thinking without a signature"));
                let text = r.string(&place, &block["thinking"]);
                r.said.push(Said::Thinking(format!("{signature} {text}")));
            }
            Some("redacted_thinking") => {
                r.object(&place, block, &["type", "data"], &[]);
                let data = r.string(&place, &block["data"]);
                r.said.push(Said::Thinking(data.to_owned()));
            }
            Some("tool_use") => {
                r.object(&place, block, &["type", "id", "name", "input"], &["caller", "toolset_name"]);
                let id = r.string(&place, &block["id"]);
                r.name(&place, id, "_-", 128);
                r.check(block["input"].is_object(), || format!("{place}: input is no object"));
                let name = r.string(&place, &block["name"]);
                r.name(&place, name, "_-", 64);
                open.call(r, &place, id, true);
                let arguments = block["input"].clone();
                r.said.push(Said::Call { id: id.to_owned(), name: name.to_owned(), arguments });
            }
            Some("server_tool_use") => {
                r.object(&place, block, &["type", "id", "name", "input"], &["caller"]);
                let id = r.string(&place, &block["id"]);
                let answered = content.get(at + 1..).unwrap_or_default().iter().any(|later| later["tool_use_id"] == id);
                r.check(answered, || format!("{place}: without its server result"));
                r.said.push(Said::Own(id.to_owned()));
            }
            Some("web_search_tool_result") => {
                r.object(&place, block, &["type", "tool_use_id", "content"], &["caller"]);
                let encrypted = r.string(&place, &block["content"][0]["encrypted_content"]);
                r.said.push(Said::Own(encrypted.to_owned()));
            }
            other => r.fault(format!("{place}: a block {other:?} in an assistant message")),
        }
    }
}

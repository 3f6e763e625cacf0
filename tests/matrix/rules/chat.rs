//! OpenAI Chat Completions, as OpenAI and OpenRouter take it. Source: the vendors' references, 2026-11.

use serde_json::Value;

use super::{Open, Report, Said};

const TOP: [&str; 13] = [
    "stream",
    "stream_options",
    "max_completion_tokens",
    "reasoning_effort",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "prompt_cache_key",
];
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(crate) fn check(body: &Value, router: bool) -> Report {
    let mut report = Report::default();
    let r = &mut report;
    let mut top = TOP.to_vec();
    if router {
        top.extend(["reasoning", "cache_control", "provider", "usage"]);
    }
    r.object("request", body, &["model", "messages"], &top);
    let tools = body.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    r.check(body.get("tools").is_none() || !tools.is_empty(), || "an empty list of tools".into());
    r.check(tools.len() <= 128, || format!("{} tools", tools.len()));
    let names: Vec<_> = tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap_or_default()).collect();
    r.names("tools", &names, "_-", 64);
    for (at, tool) in tools.iter().enumerate() {
        let place = format!("tools.{at}");
        r.object(&place, tool, &["type", "function"], &[]);
        r.object(&place, &tool["function"], &["name"], &["description", "parameters", "strict"]);
        if let Some(schema) = tool["function"].get("parameters") {
            r.schema(&place, schema, &[], &[]);
        }
    }
    let mut open = Open::default();
    let messages = r.array("messages", &body["messages"]);
    let mut spoken = false;
    for (at, message) in messages.iter().enumerate() {
        let place = format!("messages.{at}");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" {
            open.settled(r, &place);
        }
        match role {
            "developer" | "system" => {
                r.object(&place, message, &["role", "content"], &[]);
                r.check(!spoken, || format!("{place}: {role} in the middle"));
                r.check(role == "system" || !router, || format!("{place}: `developer` is OpenAI's alone"));
                r.not_blank(&place, message["content"].as_str().unwrap_or_default());
            }
            "user" => user(r, &place, message),
            "assistant" => assistant(r, &place, message, &mut open, router),
            "tool" => {
                r.object(&place, message, &["role", "tool_call_id", "content"], &[]);
                let id = r.string(&place, &message["tool_call_id"]);
                open.result(r, &place, id);
                let text = r.string(&place, &message["content"]);
                r.not_blank(&place, text);
                r.said.push(Said::Result(id.to_owned(), text.to_owned(), Vec::new()));
            }
            other => r.fault(format!("{place}: role {other}")),
        }
        spoken |= !matches!(role, "developer" | "system");
    }
    open.settled(r, "the end");
    let last = messages.last().and_then(|last| last["role"].as_str());
    r.check(matches!(last, Some("user" | "tool")), || format!("the last message is {last:?}"));
    report
}

fn user(r: &mut Report, place: &str, message: &Value) {
    r.object(place, message, &["role", "content"], &[]);
    if let Some(text) = message["content"].as_str() {
        r.not_blank(place, text);
        r.said.push(Said::User(text.to_owned()));
        return;
    }
    let parts = r.array(place, &message["content"]);
    r.check(!parts.is_empty(), || format!("{place}: no parts"));
    for (at, part) in parts.iter().enumerate() {
        let place = format!("{place}.content.{at}");
        match part["type"].as_str() {
            Some("text") => {
                r.object(&place, part, &["type", "text"], &[]);
                let text = r.string(&place, &part["text"]);
                r.not_blank(&place, text);
                r.said.push(Said::User(text.to_owned()));
            }
            Some("image_url") => {
                r.object(&place, part, &["type", "image_url"], &[]);
                r.object(&place, &part["image_url"], &["url"], &["detail"]);
                let url = r.string(&place, &part["image_url"]["url"]);
                let data = r.url(&place, url, &IMAGES);
                r.said.push(Said::Media(data));
            }
            Some("file") => {
                r.object(&place, part, &["type", "file"], &[]);
                r.object(&place, &part["file"], &["file_data", "filename"], &[]);
                let url = r.string(&place, &part["file"]["file_data"]);
                let data = r.url(&place, url, &["application/pdf"]);
                r.not_blank(&place, part["file"]["filename"].as_str().unwrap_or_default());
                r.said.push(Said::Media(data));
            }
            other => r.fault(format!("{place}: a part {other:?}")),
        }
    }
}

fn assistant(r: &mut Report, place: &str, message: &Value, open: &mut Open, router: bool) {
    let mut optional = vec!["tool_calls", "content"];
    if router {
        optional.extend(["reasoning", "reasoning_details"]);
    }
    r.object(place, message, &["role"], &optional);
    for detail in message.get("reasoning_details").and_then(Value::as_array).into_iter().flatten() {
        let state = detail.get("signature").or_else(|| detail.get("data")).and_then(Value::as_str);
        r.said.push(Said::Thinking(state.unwrap_or_default().to_owned()));
    }
    let calls = message.get("tool_calls").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    r.check(message.get("tool_calls").is_none() || !calls.is_empty(), || format!("{place}: an empty list of calls"));
    match &message["content"] {
        Value::Null => r.check(!calls.is_empty(), || format!("{place}: says nothing")),
        Value::String(text) => {
            r.not_blank(place, text);
            r.said.push(Said::Text(text.clone()));
        }
        other => r.fault(format!("{place}: content {other}")),
    }
    for (at, call) in calls.iter().enumerate() {
        let place = format!("{place}.tool_calls.{at}");
        r.object(&place, call, &["id", "type", "function"], &[]);
        r.object(&place, &call["function"], &["name", "arguments"], &[]);
        let id = r.string(&place, &call["id"]);
        r.check((1..=40).contains(&id.len()), || format!("{place}: the id `{id}`"));
        let name = r.string(&place, &call["function"]["name"]);
        r.name(&place, name, "_-", 64);
        let text = r.string(&place, &call["function"]["arguments"]);
        let arguments = r.arguments(&place, text);
        open.call(r, &place, id, false);
        r.said.push(Said::Call { id: id.to_owned(), name: name.to_owned(), arguments });
    }
}

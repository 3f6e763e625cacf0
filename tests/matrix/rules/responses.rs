//! OpenAI Responses, stateless. Source: the vendor's SDK types and reference, 2026-11.

use std::collections::HashSet;

use serde_json::Value;

use super::{Open, Report, Said};

const TOP: [&str; 16] = [
    "instructions",
    "store",
    "include",
    "stream",
    "stream_options",
    "max_output_tokens",
    "reasoning",
    "text",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "truncation",
    "temperature",
    "top_p",
    "prompt_cache_key",
    "metadata",
];
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

pub(crate) fn check(body: &Value) -> Report {
    let mut report = Report::default();
    let r = &mut report;
    r.object("request", body, &["model", "input", "store"], &TOP);
    r.check(body["store"] == false, || "the request is stored".into());
    if let Some(text) = body.get("instructions") {
        r.not_blank("instructions", text.as_str().unwrap_or_default());
    }
    let tools = body.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    r.check(tools.len() <= 128, || format!("{} tools", tools.len()));
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default()).collect();
    r.names("tools", &names, "_-", 64);
    for (at, tool) in tools.iter().enumerate() {
        let place = format!("tools.{at}");
        // Left out, `strict` means "strict if the schema allows".
        r.object(&place, tool, &["type", "name", "parameters", "strict"], &["description"]);
        r.schema(&place, &tool["parameters"], &[], &[]);
    }
    let mut open = Open::default();
    let mut ids = HashSet::new();
    let mut reasoned = false;
    let items = r.array("input", &body["input"]);
    for (at, item) in items.iter().enumerate() {
        let place = format!("input.{at}");
        let kind = item["type"].as_str().unwrap_or("message");
        let own =
            matches!(kind, "function_call" | "web_search_call") || (kind == "message" && item["role"] == "assistant");
        r.check(!reasoned || own || kind == "reasoning", || format!("{place}: reasoning leads to nothing"));
        reasoned = kind == "reasoning";
        if kind != "function_call_output" && kind != "function_call" {
            open.settled(r, &place);
        }
        if let Some(id) = item.get("id") {
            let id = r.string(&place, id);
            let prefix = match kind {
                "reasoning" => "rs_",
                "function_call" => "fc_",
                "web_search_call" => "ws_",
                _ => "msg_",
            };
            r.check(id.starts_with(prefix) && id.len() <= 64, || format!("{place}: the id `{id}`"));
            r.check(ids.insert(id.to_owned()), || format!("{place}: the id `{id}` stands twice"));
        }
        match kind {
            "message" => message(r, &place, item),
            "reasoning" => {
                r.object(&place, item, &["type", "summary"], &["id", "encrypted_content", "content"]);
                let state = r.string(&place, &item["encrypted_content"]);
                r.said.push(Said::Thinking(state.to_owned()));
                for part in r.array(&place, &item["summary"]) {
                    r.object(&place, part, &["type", "text"], &[]);
                }
            }
            "function_call" => {
                r.object(&place, item, &["type", "call_id", "name", "arguments"], &["id", "namespace", "caller"]);
                let id = call_id(r, &place, item);
                let name = r.string(&place, &item["name"]);
                r.name(&place, name, "_-", 64);
                let text = r.string(&place, &item["arguments"]);
                let arguments = r.arguments(&place, text);
                open.call(r, &place, &id, false);
                let call = Said::Call { id, name: name.to_owned(), arguments };
                if let Some(id) = item["id"].as_str() {
                    r.state.push((id.to_owned(), call.clone()));
                }
                r.said.push(call);
            }
            "function_call_output" => {
                r.object(&place, item, &["type", "call_id", "output"], &["caller"]);
                let id = call_id(r, &place, item);
                open.result(r, &place, &id);
                let (mut text, mut media) = (Vec::new(), Vec::new());
                if let Some(whole) = item["output"].as_str() {
                    r.not_blank(&place, whole);
                    text.push(whole.to_owned());
                } else {
                    for part in r.array(&place, &item["output"]) {
                        match input_part(r, &place, part) {
                            Some(Said::User(said)) => text.push(said),
                            Some(Said::Media(data)) => media.push(data),
                            _ => {}
                        }
                    }
                }
                r.said.push(Said::Result(id, text.join("\n"), media));
            }
            "web_search_call" => {
                r.object(&place, item, &["type", "id", "status"], &["action"]);
                let id = r.string(&place, &item["id"]);
                r.said.push(Said::Own(id.to_owned()));
            }
            other => r.fault(format!("{place}: an item {other}")),
        }
    }
    r.check(!reasoned, || "reasoning at the end".into());
    open.settled(r, "the end");
    report
}

fn call_id(r: &mut Report, place: &str, item: &Value) -> String {
    let id = r.string(place, &item["call_id"]);
    r.check((1..=64).contains(&id.len()), || format!("{place}: the call id `{id}`"));
    id.to_owned()
}

fn message(r: &mut Report, place: &str, item: &Value) {
    match item["role"].as_str() {
        Some("user") => {
            r.object(place, item, &["role", "content"], &["type"]);
            if let Some(text) = item["content"].as_str() {
                r.not_blank(place, text);
                r.said.push(Said::User(text.to_owned()));
                return;
            }
            let parts = r.array(place, &item["content"]);
            r.check(!parts.is_empty(), || format!("{place}: no parts"));
            for part in parts {
                if let Some(said) = input_part(r, place, part) {
                    r.said.push(said);
                }
            }
        }
        Some("assistant") => {
            r.object(place, item, &["role", "content"], &["type", "id", "status", "phase"]);
            r.check(item.get("id").is_some() == item.get("status").is_some(), || format!("{place}: id or status"));
            let parts = r.array(place, &item["content"]);
            r.check(!parts.is_empty(), || format!("{place}: no parts"));
            for part in parts {
                let text = match part["type"].as_str() {
                    Some("output_text") => {
                        r.object(place, part, &["type", "text", "annotations"], &[]);
                        r.string(place, &part["text"])
                    }
                    Some("refusal") => r.string(place, &part["refusal"]),
                    other => {
                        r.fault(format!("{place}: a part {other:?}"));
                        ""
                    }
                };
                r.not_blank(place, text);
                let said = Said::Text(text.to_owned());
                for state in ["id", "phase"].iter().filter_map(|name| item[*name].as_str()) {
                    r.state.push((state.to_owned(), said.clone()));
                }
                r.said.push(said);
            }
        }
        other => r.fault(format!("{place}: role {other:?}")),
    }
}

fn input_part(r: &mut Report, place: &str, part: &Value) -> Option<Said> {
    match part["type"].as_str() {
        Some("input_text") => {
            r.object(place, part, &["type", "text"], &[]);
            let text = r.string(place, &part["text"]);
            r.not_blank(place, text);
            Some(Said::User(text.to_owned()))
        }
        Some("input_image") => {
            r.object(place, part, &["type", "image_url"], &["detail"]);
            let url = r.string(place, &part["image_url"]);
            Some(Said::Media(r.url(place, url, &IMAGES)))
        }
        Some("input_file") => {
            r.object(place, part, &["type"], &["file_data", "file_url", "filename"]);
            let url = r.string(place, part.get("file_data").or(part.get("file_url")).unwrap_or(&Value::Null));
            r.check(part.get("file_data").is_none() || part["filename"].is_string(), || {
                format!("{place}: no filename")
            });
            Some(Said::Media(r.url(place, url, &["application/pdf"])))
        }
        other => {
            r.fault(format!("{place}: a part {other:?}"));
            None
        }
    }
}

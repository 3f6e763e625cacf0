use serde_json::Value;

use super::meaning::{Media, Part, Request, Tool, text};

pub fn read(body: &Value) -> Request {
    let mut request = Request { system: joined(&body["system"]), ..Request::default() };
    for tool in body["tools"].as_array().into_iter().flatten() {
        let known = Tool { description: text(&tool["description"]), schema: tool["input_schema"].clone() };
        request.tools.insert(text(&tool["name"]), known);
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        request.say(message["role"] == "user", parts(&message["content"]));
    }
    request
}

fn joined(content: &Value) -> String {
    match content {
        Value::Array(blocks) => blocks.iter().map(|block| text(&block["text"])).collect::<Vec<_>>().join("\n\n"),
        other => text(other),
    }
}

fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        Value::Array(blocks) => blocks.iter().map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(block: &Value) -> Part {
    let signature = Some(text(&block["signature"])).filter(|signature| !signature.is_empty());
    match block["type"].as_str().unwrap_or_default() {
        "text" => Part::Text(text(&block["text"])),
        kind @ ("image" | "document") => Part::Media(media(kind, &block["source"])),
        "thinking" => Part::Thinking { text: text(&block["thinking"]), signature },
        "redacted_thinking" => Part::Redacted(text(&block["data"])),
        "tool_use" => {
            Part::Call { id: text(&block["id"]), name: text(&block["name"]), arguments: block["input"].clone() }
        }
        "tool_result" => Part::Result {
            id: text(&block["tool_use_id"]),
            content: parts(&block["content"]),
            is_error: block["is_error"] == true,
        },
        _ => Part::Opaque(without_marks(block)),
    }
}

fn media(kind: &str, source: &Value) -> Media {
    let is_url = source["type"] == "url";
    let data = if is_url { &source["url"] } else { &source["data"] };
    Media { kind: kind.into(), media_type: text(&source["media_type"]), data: text(data), is_url }
}

fn without_marks(block: &Value) -> Value {
    let mut block = block.clone();
    if let Value::Object(fields) = &mut block {
        fields.remove("cache_control");
    }
    block
}

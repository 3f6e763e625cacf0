use serde_json::{Map, Value, json};

use super::meaning::{Media, Part, Request, Tool, media_of_url, text};

pub fn read(body: &Value) -> Request {
    let mut request = Request { system: text(&body["instructions"]), ..Request::default() };
    for tool in body["tools"].as_array().into_iter().flatten().filter(|tool| tool["type"] == "function") {
        let known = Tool { description: text(&tool["description"]), schema: tool["parameters"].clone() };
        request.tools.insert(text(&tool["name"]), known);
    }
    if let Value::String(prompt) = &body["input"] {
        request.say(true, [Part::Text(prompt.clone())]);
    }
    for item in body["input"].as_array().into_iter().flatten() {
        match item["type"].as_str().unwrap_or("message") {
            "message" => message(&mut request, item),
            "function_call_output" | "custom_tool_call_output" => {
                let id = text(&item["call_id"]);
                request.say(true, [Part::Result { id, content: parts(&item["output"]), is_error: false }]);
            }
            _ => request.say(false, [output(item)]),
        }
    }
    request
}

fn message(request: &mut Request, item: &Value) {
    let content = parts(&item["content"]);
    match item["role"].as_str().unwrap_or_default() {
        "system" | "developer" => {
            for part in content {
                if let Part::Text(text) = part {
                    let between = if request.system.is_empty() { "" } else { "\n\n" };
                    request.system = format!("{}{between}{text}", request.system);
                }
            }
        }
        role => request.say(role == "user", content),
    }
}

fn output(item: &Value) -> Part {
    match item["type"].as_str().unwrap_or_default() {
        "function_call" => {
            let raw = text(&item["arguments"]);
            let arguments = match raw.trim() {
                "" => json!({}),
                raw => serde_json::from_str(raw).unwrap_or_else(|_| json!({ "INVALID_JSON": raw })),
            };
            Part::Call { id: text(&item["call_id"]), name: text(&item["name"]), arguments }
        }
        "custom_tool_call" => {
            Part::Call { id: text(&item["call_id"]), name: text(&item["name"]), arguments: item["input"].clone() }
        }
        "reasoning" => {
            let shown = [&item["summary"], &item["content"]].map(texts);
            Part::Thinking {
                text: shown.into_iter().find(|text| !text.is_empty()).unwrap_or_default(),
                signature: reasoning(item),
            }
        }
        _ => Part::Opaque(item.clone()),
    }
}

fn texts(parts: &Value) -> String {
    let texts: Vec<_> = parts.as_array().into_iter().flatten().map(|part| text(&part["text"])).collect();
    texts.join("\n\n")
}

/// What of a reasoning item the server reads: what is encrypted, or what is said in the open.
pub fn reasoning(item: &Value) -> Option<String> {
    let is_plain = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    if !item["encrypted_content"].is_string() && is_plain(&item["content"]) {
        return None;
    }
    let mut kept = Map::new();
    for name in ["encrypted_content", "content", "summary"] {
        kept.insert(name.to_owned(), item[name].clone());
    }
    kept.retain(|_, value| !value.is_null() && value != &json!([]));
    Some(Value::Object(kept).to_string())
}

fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(part: &Value) -> Part {
    match part["type"].as_str().unwrap_or_default() {
        "input_text" | "output_text" => Part::Text(text(&part["text"])),
        "refusal" => Part::Text(text(&part["refusal"])),
        "input_image" => Part::Media(media_of_url("image", &text(&part["image_url"]))),
        "input_file" => {
            let media = match part["file_url"].as_str() {
                Some(url) => media_of_url("document", url),
                None => media_of_url("document", &text(&part["file_data"])),
            };
            let kind = if media.media_type.starts_with("audio/") { "audio" } else { "document" };
            Part::Media(Media { kind: kind.into(), ..media })
        }
        _ => Part::Opaque(part.clone()),
    }
}

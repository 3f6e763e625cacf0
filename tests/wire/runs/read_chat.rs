use serde_json::{Value, json};

use super::meaning::{Media, Part, Request, Tool, media_of_url, text};

pub fn read(body: &Value) -> Request {
    let mut request = Request::default();
    for tool in body["tools"].as_array().into_iter().flatten() {
        let function = &tool["function"];
        let known = Tool { description: text(&function["description"]), schema: function["parameters"].clone() };
        request.tools.insert(text(&function["name"]), known);
    }
    for message in body["messages"].as_array().into_iter().flatten() {
        let content = parts(&message["content"]);
        match message["role"].as_str().unwrap_or_default() {
            "system" | "developer" => {
                for part in content {
                    if let Part::Text(text) = part {
                        let between = if request.system.is_empty() { "" } else { "\n\n" };
                        request.system = format!("{}{between}{text}", request.system);
                    }
                }
            }
            "tool" => {
                let id = text(&message["tool_call_id"]);
                request.say(true, [Part::Result { id, content, is_error: false }]);
            }
            "assistant" => request.say(false, assistant(message, content)),
            _ => request.say(true, content),
        }
    }
    request
}

fn assistant(message: &Value, content: Vec<Part>) -> Vec<Part> {
    let mut all = Vec::new();
    let thinking = ["reasoning_content", "reasoning"].iter().map(|field| text(&message[*field]));
    if let Some(text) = thinking.into_iter().find(|text| !text.is_empty()) {
        all.push(Part::Thinking { text, signature: None });
    }
    if message["reasoning_details"].as_array().is_some_and(|details| !details.is_empty()) {
        all.push(Part::Details(message["reasoning_details"].clone()));
    }
    all.extend(content);
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let raw = text(&function["arguments"]);
        let arguments = match raw.trim() {
            "" => json!({}),
            raw => serde_json::from_str(raw).unwrap_or_else(|_| json!({ "INVALID_JSON": raw })),
        };
        all.push(Part::Call { id: text(&call["id"]), name: text(&function["name"]), arguments });
    }
    all
}

fn parts(content: &Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text.clone())],
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(part: &Value) -> Part {
    let address = |value: &Value| value["url"].as_str().or(value.as_str()).unwrap_or_default().to_owned();
    match part["type"].as_str().unwrap_or_default() {
        "text" => Part::Text(text(&part["text"])),
        "image_url" => Part::Media(media_of_url("image", &address(&part["image_url"]))),
        "document_url" => Part::Media(media_of_url("document", &address(&part["document_url"]))),
        "file" => Part::Media(media_of_url("document", &text(&part["file"]["file_data"]))),
        "input_audio" => Part::Media(Media {
            kind: "audio".into(),
            media_type: format!("audio/{}", text(&part["input_audio"]["format"])),
            data: text(&part["input_audio"]["data"]),
            is_url: false,
        }),
        "thinking" => {
            let inner = part["thinking"].as_array().into_iter().flatten();
            Part::Thinking { text: inner.map(|part| text(&part["text"])).collect(), signature: None }
        }
        _ => Part::Opaque(part.clone()),
    }
}

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::meaning::{Media, Part, Request, Tool, text};

/// Stand-ins for signatures, which say nothing.
const DUMMIES: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

pub fn read(body: &Value) -> Request {
    let mut request = Request { system: joined(field(body, "systemInstruction")), ..Request::default() };
    for tool in body["tools"].as_array().into_iter().flatten() {
        for function in field(tool, "functionDeclarations").as_array().into_iter().flatten() {
            let schema = [&function["parametersJsonSchema"], &function["parameters"]]
                .into_iter()
                .find(|schema| schema.is_object());
            let known =
                Tool { description: text(&function["description"]), schema: plain(schema.unwrap_or(&Value::Null)) };
            request.tools.insert(text(&function["name"]), known);
        }
    }
    let mut names = Names::default();
    for content in body["contents"].as_array().into_iter().flatten() {
        let is_user = content["role"] != "model";
        let parts = content["parts"].as_array().into_iter().flatten();
        request.say(is_user, parts.flat_map(|part| read_part(part, &mut names)).collect::<Vec<_>>());
    }
    request
}

/// Clients write fields in either case.
fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    let snake: String = name
        .chars()
        .flat_map(|c| if c.is_ascii_uppercase() { vec!['_', c.to_ascii_lowercase()] } else { vec![c] })
        .collect();
    if value[name].is_null() { &value[snake.as_str()] } else { &value[name] }
}

fn joined(content: &Value) -> String {
    let parts = content["parts"].as_array().into_iter().flatten();
    parts.map(|part| text(&part["text"])).collect::<Vec<_>>().join("\n\n")
}

/// Calls have ids on newer models only; without, name and order tell which result is whose.
#[derive(Default)]
struct Names {
    counts: HashMap<String, usize>,
    waiting: HashMap<String, VecDeque<String>>,
}

impl Names {
    fn call(&mut self, call: &Value) -> String {
        let name = text(&call["name"]);
        let count = self.counts.entry(name.clone()).or_default();
        let made = format!("{name}#{count}");
        *count += 1;
        // One recorded client sends ids that it made itself.
        let given = Some(text(&call["id"])).filter(|id| !id.is_empty() && !id.starts_with("pyd_ai_"));
        let id = given.unwrap_or(made);
        self.waiting.entry(name).or_default().push_back(id.clone());
        id
    }

    fn result(&mut self, response: &Value) -> String {
        let waiting = self.waiting.entry(text(&response["name"])).or_default();
        let given = text(&response["id"]);
        match waiting.iter().position(|id| *id == given) {
            Some(at) => waiting.remove(at).unwrap_or_default(),
            None => waiting.pop_front().unwrap_or(given),
        }
    }
}

fn read_part(part: &Value, names: &mut Names) -> Vec<Part> {
    let signature = Some(text(field(part, "thoughtSignature")))
        .filter(|value| !value.is_empty() && !DUMMIES.contains(&value.as_str()));
    // A signature must come back, and on the part that it came with.
    let signed = |on: String| signature.clone().map(|value| Part::Thinking { text: on, signature: Some(value) });
    let call = field(part, "functionCall");
    if call.is_object() {
        let arguments = if call["args"].is_object() { call["args"].clone() } else { json!({}) };
        let name = text(&call["name"]);
        let on = signed(format!("call {name} {arguments}"));
        let call = Part::Call { id: names.call(call), name, arguments };
        return on.into_iter().chain([call]).collect();
    }
    let response = field(part, "functionResponse");
    if response.is_object() {
        return vec![result(response, names)];
    }
    for (name, kind) in [("inlineData", "data"), ("fileData", "fileUri")] {
        let media = field(part, name);
        if media.is_object() {
            return vec![Part::Media(blob(media, kind))];
        }
    }
    let is_other = part.as_object().into_iter().flatten().any(|(name, value)| {
        !matches!(name.as_str(), "text" | "thought" | "thoughtSignature" | "thought_signature") && !value.is_null()
    });
    if is_other {
        return vec![Part::Opaque(part.clone())];
    }
    let words = text(&part["text"]);
    if part["thought"] == true {
        return vec![Part::Thinking { text: words, signature: signature.clone() }];
    }
    signed("text".to_owned()).into_iter().chain([Part::Text(words)]).collect()
}

fn result(response: &Value, names: &mut Names) -> Part {
    let inner = &response["response"];
    let only = inner.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.iter().next());
    let (words, is_error) = match only {
        Some((name, Value::String(words)))
            if matches!(name.as_str(), "output" | "result" | "error" | "return_value") =>
        {
            (words.clone(), name == "error")
        }
        _ => (inner.to_string(), false),
    };
    let mut content = vec![Part::Text(words)];
    for part in response["parts"].as_array().into_iter().flatten() {
        for (name, kind) in [("inlineData", "data"), ("fileData", "fileUri")] {
            let media = field(part, name);
            if media.is_object() {
                content.push(Part::Media(blob(media, kind)));
            }
        }
    }
    Part::Result { id: names.result(response), content, is_error }
}

fn blob(media: &Value, data: &str) -> Media {
    let media_type = text(field(media, "mimeType"));
    let named = ["image", "audio", "video"].into_iter().find(|kind| media_type.starts_with(kind));
    let kind = named.unwrap_or("document");
    Media { kind: kind.into(), media_type, data: text(field(media, data)), is_url: data == "fileUri" }
}

/// A schema with types in lower case, and without the keyword that not all models take. One without properties is none.
fn plain(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            if fields.get("properties").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
                return Value::Null;
            }
            let kept = fields.iter().filter(|(name, value)| !value.is_null() && *name != "additionalProperties");
            let plain = kept.map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("type", Value::String(kind)) => Value::String(kind.to_lowercase()),
                    ("type", Value::Number(kind)) => Value::String(numbered(kind.as_u64()).to_owned()),
                    (_, value) => plain(value),
                };
                (name.clone(), value)
            });
            Value::Object(plain.collect())
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// Clients that speak numbers for enums.
fn numbered(kind: Option<u64>) -> &'static str {
    match kind {
        Some(1) => "string",
        Some(2) => "number",
        Some(3) => "integer",
        Some(4) => "boolean",
        Some(5) => "array",
        _ => "object",
    }
}

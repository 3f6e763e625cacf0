//! Gemini `streamGenerateContent`, Gemini 3 and later. Source: the vendor's SDK types and pages, 2026-11.

use serde_json::Value;

use super::{Report, Said};

const DATA: [&str; 8] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
];
const MEDIA: [&str; 6] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf"];
/// Keywords that a schema may not have anywhere.
const NOWHERE: [&str; 10] =
    ["$schema", "allOf", "not", "if", "then", "else", "patternProperties", "dependentRequired", "multipleOf", "const"];
/// Documented for calls that the model did not make.
pub(crate) const DUMMIES: [&str; 2] = ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"];

pub(crate) fn check(body: &Value) -> Report {
    let mut report = Report::default();
    let r = &mut report;
    let top = ["systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "continuationToken"];
    r.object("request", body, &["contents"], &top);
    if let Some(system) = body.get("systemInstruction") {
        r.object("systemInstruction", system, &["parts"], &["role"]);
        r.not_blank("systemInstruction", system["parts"][0]["text"].as_str().unwrap_or_default());
    }
    tools(r, body);
    let contents = r.array("contents", &body["contents"]);
    let role = |at: usize| contents.get(at).and_then(|content| content["role"].as_str());
    r.check(role(0) == Some("user"), || "the first content is not the user's".into());
    r.check(contents.last().is_some_and(|last| last["role"] == "user"), || "ends with a model turn".into());
    for (at, content) in contents.iter().enumerate() {
        let place = format!("contents.{at}");
        r.object(&place, content, &["role", "parts"], &[]);
        r.check(matches!(role(at), Some("user" | "model")), || format!("{place}: role"));
        r.check(at == 0 || role(at) != role(at - 1), || format!("{place}: two contents of one side"));
        let parts = r.array(&place, &content["parts"]);
        r.check(!parts.is_empty(), || format!("{place}: no parts"));
        let calls = |at: Option<usize>| match at.and_then(|at| contents.get(at)) {
            Some(content) if content["role"] == "model" => {
                let parts = content["parts"].as_array().into_iter().flatten();
                parts.filter_map(|part| part.get("functionCall")).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        if role(at) == Some("model") {
            model(r, &place, parts, at);
        } else {
            user(r, &place, parts, &calls(at.checked_sub(1)), at);
        }
    }
    report
}

fn tools(r: &mut Report, body: &Value) {
    let mut names = Vec::new();
    for tool in body.get("tools").and_then(Value::as_array).into_iter().flatten() {
        r.object("tools", tool, &["functionDeclarations"], &[]);
        for function in r.array("tools", &tool["functionDeclarations"]) {
            let name = function["name"].as_str().unwrap_or_default();
            names.push(name);
            r.object(name, function, &["name"], &["description", "parameters", "parametersJsonSchema"]);
            r.check(name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'), || format!("the name `{name}`"));
            let both = function.get("parameters").is_some() && function.get("parametersJsonSchema").is_some();
            r.check(!both, || format!("{name}: two schemas"));
            if let Some(schema) = function.get("parametersJsonSchema") {
                r.schema(name, schema, &["anyOf", "oneOf"], &NOWHERE);
            }
        }
    }
    r.names("tools", &names, "_.:-", 128);
    r.check(names.len() <= 512, || format!("{} functions", names.len()));
}

/// A part has exactly one data field. Gives it.
fn data<'v>(r: &mut Report, place: &str, part: &'v Value) -> (&'static str, &'v Value) {
    let found: Vec<_> = DATA.iter().filter(|name| part.get(**name).is_some()).copied().collect();
    r.check(found.len() == 1, || format!("{place}: {} data fields", found.len()));
    r.object(place, part, &[], &[&found[..], &["thought", "thoughtSignature"]].concat());
    let name = found.first().copied().unwrap_or_default();
    (name, part.get(name).unwrap_or(&Value::Null))
}

fn model(r: &mut Report, place: &str, parts: &[Value], content: usize) {
    let mut calls = 0;
    for (at, part) in parts.iter().enumerate() {
        let place = format!("{place}.parts.{at}");
        let (kind, value) = data(r, &place, part);
        let signature = part.get("thoughtSignature").and_then(Value::as_str);
        let said = match kind {
            "text" if part["thought"] == true => {
                let text = r.string(&place, value);
                Said::Thinking(format!("{} {text}", signature.unwrap_or_default()))
            }
            "text" => {
                let text = r.string(&place, value);
                r.check(signature.is_some() || !text.trim().is_empty(), || format!("{place}: blank text"));
                Said::Text(text.to_owned())
            }
            "functionCall" => {
                r.object(&place, value, &["name"], &["id", "args"]);
                r.check(calls > 0 || signature.is_some(), || format!("{place}: missing a thought_signature"));
                r.check(value.get("args").is_none_or(Value::is_object), || format!("{place}: args are no object"));
                let name = r.string(&place, &value["name"]);
                r.name(&place, name, "_.:-", 128);
                let id = format!("{content}.{calls}");
                calls += 1;
                let arguments = value.get("args").cloned().unwrap_or_else(|| serde_json::json!({}));
                Said::Call { id, name: name.to_owned(), arguments }
            }
            "executableCode" => {
                r.object(&place, value, &["language", "code"], &["id"]);
                Said::Own(r.string(&place, &value["code"]).to_owned())
            }
            "codeExecutionResult" => {
                r.object(&place, value, &["outcome", "output"], &["id"]);
                Said::Own(r.string(&place, &value["output"]).to_owned())
            }
            other => {
                r.fault(format!("{place}: `{other}` in a model content"));
                continue;
            }
        };
        if let Some(signature) = signature {
            r.check(!signature.is_empty(), || format!("{place}: an empty signature"));
            if !DUMMIES.contains(&signature) {
                r.state.push((signature.to_owned(), said.clone()));
            } else {
                r.check(kind == "functionCall", || format!("{place}: a dummy signature on {kind}"));
            }
        }
        r.said.push(said);
    }
}

fn user(r: &mut Report, place: &str, parts: &[Value], calls: &[&Value], content: usize) {
    let mut results = 0;
    for (at, part) in parts.iter().enumerate() {
        let place = format!("{place}.parts.{at}");
        r.check(part.get("thoughtSignature").is_none(), || format!("{place}: a signature on the user's part"));
        let (kind, value) = data(r, &place, part);
        match kind {
            "text" => {
                let text = r.string(&place, value);
                r.not_blank(&place, text);
                r.said.push(Said::User(text.to_owned()));
            }
            "inlineData" => {
                let data = inline(r, &place, value);
                r.said.push(Said::Media(data));
            }
            "functionResponse" => {
                r.object(&place, value, &["name", "response"], &["id", "parts"]);
                let call = calls.get(results).copied().unwrap_or(&Value::Null);
                r.check(call["name"] == value["name"], || format!("{place}: answers another call"));
                r.check(call.get("id") == value.get("id"), || format!("{place}: functionResponse.id does not match"));
                r.object(&place, &value["response"], &[], &["output", "error"]);
                let text = value["response"].get("output").or(value["response"].get("error"));
                let text = r.string(&place, text.unwrap_or(&Value::Null));
                r.not_blank(&place, text);
                let mut media = Vec::new();
                for inner in value.get("parts").and_then(Value::as_array).into_iter().flatten() {
                    r.object(&place, inner, &["inlineData"], &[]);
                    media.push(inline(r, &place, &inner["inlineData"]));
                }
                r.said.push(Said::Result(format!("{}.{results}", content.saturating_sub(1)), text.to_owned(), media));
                results += 1;
            }
            other => r.fault(format!("{place}: `{other}` in a user content")),
        }
    }
    r.check(results == calls.len(), || format!("{place}: {results} responses to {} calls", calls.len()));
}

fn inline(r: &mut Report, place: &str, value: &Value) -> String {
    r.object(place, value, &["mimeType", "data"], &[]);
    let data = r.string(place, &value["data"]);
    r.bytes(place, value["mimeType"].as_str().unwrap_or_default(), data, &MEDIA);
    data.to_owned()
}

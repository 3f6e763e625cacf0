//! Form `wire`: what a provider makes of a history.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zidane::provider::{
    History, ModelRequest, ProviderError, ProviderErrorKind, RequestContext, RequestHead, ToolDefinition, ToolNames,
};
use zidane::testing::{HttpReply, SseServer};

use super::fields::Fields;
use super::findings::Findings;
use super::wires::{self, MODEL, Protocol};
use super::{images, json_path, neutral};

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let protocols = wires::of(case.take("protocol"), findings);
    if case.keys().any(|key| key == "limits") {
        return images::judge(case, &protocols, findings);
    }
    if protocols.is_empty() {
        return case.skip();
    }
    // Nothing is stored at the server, whether the case says so or not.
    match case.take("options") {
        None => {}
        Some(options) if *options == json!({ "store": false }) => {}
        Some(_) => findings.need("an adapter for these `options`"),
    }
    let history = neutral::history(case.list("history"), findings);
    let expect = case.take("expect").unwrap_or(&Value::Null);
    let aliases: std::collections::HashMap<_, _> = case
        .take("aliases")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, alias)| Some((name.clone(), alias.as_str()?.to_owned())))
        .collect();
    let mut heads: Vec<_> = Vec::new();
    for build in case.list("builds") {
        let mut build = Fields::new("builds", build);
        heads.push(head(build.list("tools"), &aliases));
        build.finish(findings);
    }
    if heads.is_empty() {
        heads.push(head(&[], &aliases));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for protocol in protocols {
        findings.at(protocol.name());
        let sent: Vec<_> =
            heads.iter().map(|head| runtime.block_on(send(protocol, head.clone(), history.clone()))).collect();
        if let Some(prose) = expect.get("all").and_then(Value::as_str) {
            compare_prose(prose, &sent[0], findings);
        }
        let bodies: Vec<_> = sent
            .iter()
            .filter_map(|sent| match sent {
                Ok(body) => Some(body),
                Err(error) => {
                    if !matches!(expect.get("all"), Some(Value::String(_))) {
                        findings.wrong(format!("it cannot be sent: {error}"));
                    }
                    None
                }
            })
            .collect();
        if bodies.len() == sent.len() {
            for section in ["all", protocol.name()] {
                let Some(section) = expect.get(section).filter(|section| section.is_object()) else { continue };
                compare(protocol, section, &bodies, &history, findings);
            }
        }
    }
    findings.at("");
    known_sections(expect, findings);
}

fn known_sections(expect: &Value, findings: &mut Findings) {
    let mut sections = Fields::new("expect", expect);
    for known in ["all", "anthropic-messages", "openai-chat", "openai-responses", "gemini"] {
        sections.take(known);
    }
    // What the API says to each order: the reason for the case, not a property of the request.
    sections.take("table_of_legal_orders");
    sections.finish(findings);
}

fn head(tools: &[Value], aliases: &std::collections::HashMap<String, String>) -> RequestHead {
    let mut head = RequestHead::default();
    head.model = MODEL.to_owned();
    let schema = json!({ "type": "object", "properties": {} });
    let tools = tools.iter().filter_map(Value::as_str);
    head.tools = tools.map(|name| ToolDefinition::new(name, "A tool", schema.clone())).collect();
    head.names = ToolNames::new(aliases.clone()).into();
    head
}

/// Sends a request and gives its body. The answer does not matter.
pub async fn send(protocol: Protocol, head: RequestHead, history: History) -> Result<Value, ProviderError> {
    let server = SseServer::start([HttpReply::sse(protocol.answer("ok"))]).await.unwrap();
    let provider = protocol.provider(&server.url(), None);
    // As the loop does: what is in the history already is not checked again.
    if let Some(prompt) = history.last().filter(|turn| turn.role == zidane::types::Role::User) {
        provider.check(&head.model, &prompt.content)?;
    }
    let request = ModelRequest::new(head, history);
    provider.stream(request.into(), &RequestContext::default()).await?;
    Ok(server.requests()[0].json().unwrap())
}

/// `body contains <text> or error class <class>`.
fn compare_prose(prose: &str, sent: &Result<Value, ProviderError>, findings: &mut Findings) {
    let parts = prose.strip_prefix("body contains ").and_then(|rest| rest.split_once(" or error class "));
    let Some((text, class)) = parts else { return findings.need(format!("an adapter for `{prose}`")) };
    match sent {
        Ok(body) => findings.ensure(body.to_string().contains(text), || format!("the body does not contain {text}")),
        Err(error) => findings.ensure(super::outcome::is_class(error.kind, class), || format!("{error}")),
    }
    // An error must come from the provider's own check or builder, not from the server.
    if let Err(error) = sent {
        let is_early = error.status.is_none() && error.kind == ProviderErrorKind::Unsupported;
        findings.ensure(is_early, || format!("{error} is not found before sending"));
    }
}

fn compare(protocol: Protocol, section: &Value, bodies: &[&Value], history: &History, findings: &mut Findings) {
    let mut expect = Fields::new("expect", section);
    let body = bodies[0];
    let empty = Vec::new();
    let messages = body[protocol.messages()].as_array().unwrap_or(&empty);
    paths(&mut expect, body, findings);
    texts(&mut expect, body, findings);
    if let Some(roles) = expect.take("role_sequence") {
        let got: Vec<_> = messages
            .iter()
            .map(|message| if message["role"] == "model" { "assistant".into() } else { message["role"].clone() })
            .collect();
        findings.equal("roles", roles, &Value::from(got));
    }
    if let Some(expected) = expect.take("content_types") {
        let index = expected[0].as_u64().unwrap_or(0);
        let content = json_path::get(body, &format!("messages[{index}].content"));
        let parts = content.and_then(Value::as_array).into_iter().flatten();
        let got: Vec<_> = parts.map(|part| part["type"].clone()).collect();
        findings.equal(format!("types in message {index}"), &expected[1], &Value::from(got));
    }
    if let Some(expected) = expect.take("input_types") {
        let got: Vec<_> = messages.iter().map(|item| item["type"].clone()).collect();
        findings.equal("types of items", expected, &Value::from(got));
    }
    if let Some(wish) = expect.take("include_has") {
        let wishes = body["include"].as_array().unwrap_or(&empty);
        findings.ensure(wishes.contains(wish), || format!("include does not have {wish}"));
    }
    if let Some(store) = expect.take("store") {
        findings.equal("store", store, &body["store"]);
    }
    for name in ["message_count", "content_count"] {
        if let Some(count) = expect.number(name) {
            findings.equal(name, &count, &(messages.len() as u64));
        }
    }
    if let Some(absent) = expect.take("absent_block_types") {
        let types = types(&body[protocol.messages()]);
        for kind in absent.as_array().into_iter().flatten().filter_map(Value::as_str) {
            findings.ensure(!types.contains(kind), || format!("there is a block of type {kind}"));
        }
    }
    if let Some(part) = expect.take("some_part") {
        let mut found = false;
        json_path::walk(body, "", &mut |_, value| {
            found |= part.as_object().is_some_and(|part| part.iter().all(|(key, want)| value.get(key) == Some(want)));
        });
        findings.ensure(found, || format!("no part has {part}"));
    }
    if let Some(names) = expect.take("wire_names") {
        findings.equal("names of calls", names, &json!(call_names(protocol, messages)));
    }
    if expect.flag("messages_identical_between_builds") {
        findings.ensure(bodies.len() > 1, || "there is only one build".to_owned());
        for other in bodies.iter().skip(1) {
            let messages = |body: &Value| body[protocol.messages()].to_string();
            findings.equal("messages of another build", &messages(body), &messages(other));
        }
    }
    if expect.flag("tool_content_is_string") {
        let mut tools = messages.iter().filter(|message| message["role"] == "tool");
        findings.ensure(tools.all(|message| message["content"].is_string()), || "a tool's content is no text".into());
    }
    if expect.flag("no_blank_text_blocks") {
        no_blank_texts(messages, findings);
    }
    for name in ["every_call_answered", "every_call_answered_once", "no_orphan_results"] {
        if expect.flag(name) {
            pairing(protocol, messages, history, findings);
        }
    }
    expect.finish(findings);
}

fn paths(expect: &mut Fields<'_>, body: &Value, findings: &mut Findings) {
    for pair in expect.list("path_equals") {
        let path = pair[0].as_str().unwrap_or_default();
        findings.equal(path, &Some(&pair[1]), &json_path::get(body, path));
    }
    for path in expect.list("path_absent").iter().filter_map(Value::as_str) {
        findings.equal(path, &None, &json_path::get(body, path));
    }
    for path in expect.list("path_nonempty").iter().filter_map(Value::as_str) {
        let filled = match json_path::get(body, path) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(_) => true,
        };
        findings.ensure(filled, || format!("{path} is missing or empty"));
    }
}

fn texts(expect: &mut Fields<'_>, body: &Value, findings: &mut Findings) {
    let all = body.to_string();
    for (key, wanted) in [("contains", true), ("text_kept", true), ("not_contains", false)] {
        for part in expect.take(key).map(list).unwrap_or_default() {
            findings.ensure(all.contains(&part) == wanted, || format!("{key} {part:?} does not hold"));
        }
    }
    for sentinel in expect.take("sentinel_not_in_text_fields").map(list).unwrap_or_default() {
        findings.ensure(all.contains(&sentinel), || format!("{sentinel:?} is not in the body"));
        let mut leaks = Vec::new();
        json_path::walk(body, "", &mut |key, value| {
            let is_text = matches!(key, "text" | "content" | "output" | "arguments" | "name");
            if is_text && value.as_str().is_some_and(|text| text.contains(&sentinel)) {
                leaks.push(key.to_owned());
            }
        });
        findings.equal("text fields with the data", &Vec::<String>::new(), &leaks);
    }
    for part in expect.take("text_kept_inside_string").map(list).unwrap_or_default() {
        let mut found = false;
        json_path::walk(body, "", &mut |_, value| found |= value.as_str().is_some_and(|text| text.contains(&part)));
        findings.ensure(found, || format!("no string holds {part:?}"));
    }
    for name in expect.take("no_object_key_anywhere").map(list).unwrap_or_default() {
        let mut found = false;
        json_path::walk(body, "", &mut |key, _| found |= key == name);
        findings.ensure(!found, || format!("there is a key {name}"));
    }
}

fn list(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().map(super::body::plain).collect(),
        other => vec![super::body::plain(other)],
    }
}

fn types(messages: &Value) -> BTreeSet<&str> {
    let mut types = BTreeSet::new();
    json_path::walk(messages, "", &mut |key, value| {
        if key == "type" {
            types.extend(value.as_str());
        }
    });
    types
}

fn no_blank_texts(messages: &[Value], findings: &mut Findings) {
    for (number, message) in messages.iter().enumerate() {
        let mut blank = message["content"].as_str().is_some_and(|text| text.trim().is_empty());
        json_path::walk(message, "", &mut |key, value| {
            let is_part = value["type"] == "text" && value["text"].as_str().is_none_or(|text| text.trim().is_empty());
            let is_content = key == "content" && value.as_str().is_some_and(|text| text.trim().is_empty());
            // A part of Gemini's has no type; one that is signed may be blank.
            let is_bare = value["type"].is_null()
                && value["thoughtSignature"].is_null()
                && value["text"].as_str().is_some_and(|text| text.trim().is_empty());
            blank |= is_part || is_content || is_bare;
        });
        findings.ensure(!blank, || format!("message {number} has a blank text: {message}"));
    }
}

fn calls(protocol: Protocol, messages: &[Value]) -> Vec<&Value> {
    let mut calls = Vec::new();
    for message in messages {
        match protocol {
            Protocol::Anthropic => {
                let parts = message["content"].as_array().into_iter().flatten();
                calls.extend(parts.filter(|part| part["type"] == "tool_use"));
            }
            Protocol::Responses if message["type"] == "function_call" => calls.push(message),
            Protocol::Responses => {}
            Protocol::Chat => calls.extend(message["tool_calls"].as_array().into_iter().flatten()),
            Protocol::Gemini => {
                let parts = message["parts"].as_array().into_iter().flatten();
                calls.extend(parts.map(|part| &part["functionCall"]).filter(|call| call.is_object()));
            }
        }
    }
    calls
}

fn call_names(protocol: Protocol, messages: &[Value]) -> Vec<Value> {
    let name = |call: &&Value| match protocol {
        Protocol::Anthropic | Protocol::Responses | Protocol::Gemini => call["name"].clone(),
        Protocol::Chat => call["function"]["name"].clone(),
    };
    calls(protocol, messages).iter().map(name).collect()
}

/// Every call of the history is sent and answered once, and nothing else is answered.
fn pairing(protocol: Protocol, messages: &[Value], history: &History, findings: &mut Findings) {
    let key = match protocol {
        Protocol::Anthropic | Protocol::Chat => "id",
        Protocol::Responses => "call_id",
        // It knows only its own ids: the name tells there.
        Protocol::Gemini => "name",
    };
    let mut asked: Vec<_> = calls(protocol, messages).iter().map(|call| call[key].clone()).collect();
    let mut answered = Vec::new();
    for message in messages {
        match protocol {
            Protocol::Anthropic => {
                let parts = message["content"].as_array().into_iter().flatten();
                answered.extend(parts.filter(|part| part["type"] == "tool_result").map(|p| p["tool_use_id"].clone()));
            }
            Protocol::Responses if message["type"] == "function_call_output" => {
                answered.push(message["call_id"].clone());
            }
            Protocol::Responses => {}
            Protocol::Chat if message["role"] == "tool" => answered.push(message["tool_call_id"].clone()),
            Protocol::Chat => {}
            Protocol::Gemini => {
                let parts = message["parts"].as_array().into_iter().flatten();
                let responses = parts.map(|part| &part["functionResponse"]).filter(|response| response.is_object());
                answered.extend(responses.map(|response| response[key].clone()));
            }
        }
    }
    let stored: usize = history.iter().map(|turn| turn.tool_calls().count()).sum();
    findings.equal("calls sent", &stored, &asked.len());
    asked.sort_by_key(Value::to_string);
    answered.sort_by_key(Value::to_string);
    findings.equal("answered calls", &asked, &answered);
}

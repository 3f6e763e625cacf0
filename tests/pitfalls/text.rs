//! Form `text`: pure functions, by name. They are the crate's own business, so what they do is seen in requests.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;
use zidane::decision::{Decider, Question};
use zidane::provider::openai_chat::ChatProfile;
use zidane::provider::{
    Capabilities, History, HttpOptions, ModelRequest, Provider, ProviderError, ProviderErrorKind, RequestContext,
    RequestHead, ToolDefinition,
};
use zidane::session::{BlobStore as _, MemoryBlobStore};
use zidane::testing::{HttpReply, Reply, ScriptedProvider, SseServer};
use zidane::tool::{CompiledTool, tool_fn_value};
use zidane::types::{Media, Role, SessionContentBlock, SessionTurn, TurnOrigin, tool_result_to_text};
use zidane::{Agent, agent::OutputSpill};

use super::fields::Fields;
use super::findings::Findings;
use super::wires::{self, BUILT, MODEL, Protocol};
use super::{json_path, neutral, wire};

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match case.text("op").unwrap_or_default() {
        "wire_tool_names" => runtime.block_on(tool_names(case, findings)),
        "wire_call_ids" => runtime.block_on(call_ids(case, findings)),
        "sniff_media" => runtime.block_on(media(case, findings)),
        "truncate_utf8_prefix" => runtime.block_on(spill(case, findings)),
        "decision_json" => runtime.block_on(decisions(case, findings)),
        other => findings.need(format!("an adapter for op `{other}`")),
    }
}

/// A model that answers a decision with a text: what is read of it, on a wire with structured output and on one without.
async fn decisions(case: &mut Fields<'_>, findings: &mut Findings) {
    let schema = case.take("schema").cloned().unwrap_or_default();
    let ids: Vec<&String> = schema["properties"].as_object().map(|map| map.keys().collect()).unwrap_or_default();
    let mut native = Capabilities::TEXT;
    native.native_structured_output = true;
    for capabilities in [native, Capabilities::TEXT] {
        for (number, sample) in case.list("samples").iter().enumerate() {
            findings.at(format!("sample {}", number + 1));
            let (Some(text), expected) = (sample[0].as_str(), &sample[1]) else {
                findings.wrong("a sample is no text");
                continue;
            };
            let model = ScriptedProvider::repeating(Reply::text(text)).capabilities(capabilities);
            let questions = ids.iter().map(|id| Question::bool(id.as_str(), "Is it?"));
            let decision = Decider::of_model(model.clone(), MODEL).decide("Text", questions).await;
            let head = &model.requests()[0].head;
            let sent = head.output.as_ref().map_or_else(|| &*head.tools[0].input_schema, |output| &output.schema);
            findings.equal("the schema", &schema, sent);
            let got = match &decision {
                Ok(answers) => Value::Object(ids.iter().map(|id| ((*id).clone(), answers.bool(id).into())).collect()),
                Err(failure) => failure.reason.as_str().into(),
            };
            let may_be_invalid =
                expected.as_str().and_then(|text| text.strip_prefix("policy: ")?.split_once(" or invalid"));
            match may_be_invalid.and_then(|(json, _)| serde_json::from_str::<Value>(json).ok()) {
                Some(value) => findings.ensure(got == value || got == "invalid", || format!("a wrong value: {got}")),
                None => findings.equal("what is read", expected, &got),
            }
        }
    }
    findings.at("");
}

/// Cutting long tool output keeps a beginning and an end. Twice the limit is cut, so that each may have the limit.
async fn spill(case: &mut Fields<'_>, findings: &mut Findings) {
    const PAD: char = '\n';
    let input = case.text("input").unwrap_or_default();
    for (number, sample) in case.list("samples").iter().enumerate() {
        let mut sample = Fields::new("samples", sample);
        let limit = usize::try_from(sample.number("limit").unwrap_or_default()).unwrap();
        let expected = sample.text("kept").unwrap_or_default();
        findings.at(format!("sample {}", number + 1));
        // Padded, so that there is always something to cut.
        let pad = PAD.to_string().repeat(2 * limit + 1);
        let (whole, backward) = (format!("{input}{pad}"), format!("{pad}{input}"));
        let (cut, key) = spilled(&whole, 2 * limit).await;
        let head = cut.split_once("[").map_or("", |(head, _)| head);
        findings.equal("kept at the beginning", expected, head.trim_end_matches(PAD));
        findings.ensure(key == whole, || "what is kept as a blob is not the whole".to_owned());
        // The same from the end, where as much as fits need not be the same.
        let (cut, _) = spilled(&backward, 2 * limit).await;
        let tail = cut.rsplit_once("]").map_or("", |(_, tail)| tail).trim_start_matches(PAD);
        findings.ensure(input.ends_with(tail) && tail.len() <= limit, || format!("{tail:?} is kept of the end"));
        sample.finish(findings);
    }
    findings.at("");
}

/// A tool result as the model reads it once it is cut to so many bytes, and what is kept beside.
async fn spilled(output: &str, max_bytes: usize) -> (String, String) {
    let blobs = std::sync::Arc::new(MemoryBlobStore::new());
    let output = output.to_owned();
    let tool = tool_fn_value("dump", "A tool", Value::Bool(true), move |_, _| {
        let output = output.clone();
        async move { Ok(output) }
    });
    let model = ScriptedProvider::new([Reply::call("dump", serde_json::json!({})), Reply::text("Done")]);
    let spill = OutputSpill::new(max_bytes, std::sync::Arc::clone(&blobs));
    let agent = Agent::builder().provider(model).model(MODEL).tool(tool).output_spill(spill).build().unwrap();
    agent.run("Go").await.unwrap();
    let history = agent.history();
    let result = history.iter().find_map(|turn| turn.tool_results().next()).unwrap();
    let read = tool_result_to_text(&result.output).into_owned();
    let key = read.rsplit_once("kept as ref ").and_then(|(_, rest)| rest.split_once(']')).map(|(key, _)| key);
    let kept = match key {
        Some(key) => blobs.get(key, 1_000_000).await.unwrap().unwrap_or_default(),
        None => Vec::new(),
    };
    (read, String::from_utf8(kept).unwrap_or_default())
}

fn prompt() -> SessionTurn {
    SessionTurn::new("p", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Go")])
}

async fn tool_names(case: &mut Fields<'_>, findings: &mut Findings) {
    let names: Vec<_> = case.list("input").iter().filter_map(Value::as_str).collect();
    let Some(mut expect) = case.object("expect") else { return };
    let (blank, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.trim().is_empty());
    let pattern = expect.text("pattern");
    let fits = pattern.map(|pattern| (pattern, class(pattern)));
    let distinct = expect.flag("distinct");
    let stable = expect.flag("stable_across_order");
    match expect.text("empty_name") {
        None => {}
        Some("rejected at registration") => {
            for name in blank {
                let tool = tool_fn_value(name, "A tool", Value::Bool(true), |_, _| async { Ok("ok") });
                let compiled = CompiledTool::compile(std::sync::Arc::new(tool));
                findings.ensure(compiled.is_err(), || "a tool without a name is accepted".to_owned());
            }
        }
        Some(other) => findings.need(format!("an adapter for empty_name `{other}`")),
    }
    for protocol in BUILT {
        findings.at(protocol.name());
        let there = wire_names(protocol, &names).await;
        findings.equal("number of names", &names.len(), &there.len());
        match &fits {
            // Takes more than the pattern says, and its first character less.
            Some((_, Some(_))) if protocol == Protocol::Gemini => {
                for name in there.values() {
                    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
                    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c));
                    findings.ensure(first && rest && name.len() <= 128, || format!("{name:?} is refused"));
                }
            }
            Some((_, Some((allowed, range)))) => {
                for name in there.values() {
                    let is_right = range.contains(&name.len()) && name.chars().all(allowed);
                    findings.ensure(is_right, || format!("{name:?} does not match {pattern:?}"));
                }
            }
            Some((pattern, None)) => findings.need(format!("an adapter for the pattern `{pattern}`")),
            None => {}
        }
        if distinct {
            let different: BTreeSet<_> = there.values().collect();
            findings.equal("different names", &names.len(), &different.len());
        }
        if stable {
            let mut reversed = names.clone();
            reversed.reverse();
            findings.equal("names in another order", &there, &wire_names(protocol, &reversed).await);
            for name in &names {
                let alone = wire_names(protocol, &[name]).await;
                findings.equal("a name by itself", &there.get(*name), &alone.get(*name));
            }
        }
    }
    findings.at("");
    expect.finish(findings);
}

type Allowed = fn(char) -> bool;

/// `^[class]{from,to}$`, `^[class]{n}$` and `^[class]+$` for the two classes that APIs use.
fn class(pattern: &str) -> Option<(Allowed, std::ops::RangeInclusive<usize>)> {
    let rest = pattern.strip_prefix("^[")?.strip_suffix('$')?;
    let (class, count) = rest.split_once(']')?;
    let allowed: Allowed = match class {
        "a-zA-Z0-9_-" => |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'),
        "a-zA-Z0-9" => |c| c.is_ascii_alphanumeric(),
        _ => return None,
    };
    if count == "+" {
        return Some((allowed, 1..=usize::MAX));
    }
    let count = count.strip_prefix('{')?.strip_suffix('}')?;
    let (from, to) = count.split_once(',').unwrap_or((count, count));
    Some((allowed, from.parse().ok()?..=to.parse().ok()?))
}

/// What the wire calls each tool, by its own name. The description carries the name there and back.
async fn wire_names(protocol: Protocol, names: &[&str]) -> BTreeMap<String, String> {
    let mut head = RequestHead::default();
    head.model = MODEL.to_owned();
    let schema = serde_json::json!({ "type": "object", "properties": {} });
    head.tools = names.iter().map(|name| ToolDefinition::new(*name, *name, schema.clone())).collect();
    let body = wire::send(protocol, head, History::from_iter([prompt()])).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    protocol.tools(&body).iter().map(|tool| (text(&tool["description"]), text(&tool["name"]))).collect()
}

async fn call_ids(case: &mut Fields<'_>, findings: &mut Findings) {
    let ids: Vec<_> = case.list("input").iter().filter_map(Value::as_str).collect();
    let Some(mut expect) = case.object("expect") else { return };
    let distinct = expect.flag("distinct");
    let unchanged = expect.flag("legal_ids_unchanged");
    let vendors: Vec<_> = expect.keys().filter(|key| !["distinct", "legal_ids_unchanged"].contains(key)).collect();
    for vendor in vendors {
        let Some(rule) = expect.text(vendor) else { continue };
        let provider: fn(&str) -> Box<dyn Provider> = match vendor {
            "anthropic" => |url| Box::new(wires::anthropic(url, HttpOptions::default())),
            "openai-chat" => |url| Box::new(wires::chat(url, HttpOptions::default(), ChatProfile::openai())),
            "openai-responses" => |url| Box::new(wires::responses(url, HttpOptions::default())),
            "mistral" => |url| Box::new(wires::chat(url, HttpOptions::default(), ChatProfile::mistral())),
            other => {
                findings.need(format!("the wire {other}"));
                continue;
            }
        };
        findings.at(vendor);
        let rule = rule_of(rule);
        let Some(rule) = rule else { return findings.need(format!("an adapter for the ids of {vendor}")) };
        let there = wire_ids(provider, &ids, findings).await;
        findings.equal("number of ids", &ids.len(), &there.len());
        for (id, wire) in ids.iter().zip(&there) {
            findings.ensure(rule(wire), || format!("{id:?} becomes {wire:?}"));
            if unchanged && rule(id) && is_plain(id) {
                findings.equal("a legal id", *id, wire.as_str());
            }
        }
        if distinct {
            findings.equal("different ids", &there.len(), &there.iter().collect::<BTreeSet<_>>().len());
        }
    }
    findings.at("");
    expect.finish(findings);
}

/// Legal on every wire by its characters; one that only a length limits may still be cleaned.
fn is_plain(id: &str) -> bool {
    id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

type Rule = Box<dyn Fn(&str) -> bool>;

fn rule_of(rule: &str) -> Option<Rule> {
    if let Some(max) = rule.strip_prefix("<=").and_then(|rest| rest.strip_suffix(" chars")) {
        let max: usize = max.trim().parse().ok()?;
        return Some(Box::new(move |id| !id.is_empty() && id.chars().count() <= max));
    }
    let (allowed, range) = class(rule)?;
    Some(Box::new(move |id| range.contains(&id.chars().count()) && id.chars().all(allowed)))
}

/// The ids of calls as they are sent; their answers must carry the same.
async fn wire_ids(provider: fn(&str) -> Box<dyn Provider>, ids: &[&str], findings: &mut Findings) -> Vec<String> {
    let call = |id: &&str| serde_json::json!({ "type": "tool_call", "id": id, "name": "f", "input": {} });
    let result = |id: &&str| serde_json::json!({ "type": "tool_result", "call_id": id, "output": "x" });
    let turns = [
        serde_json::json!({ "role": "user", "blocks": [{ "type": "text", "text": "Go" }] }),
        serde_json::json!({ "role": "assistant", "blocks": ids.iter().map(call).collect::<Vec<_>>() }),
        serde_json::json!({ "role": "user", "blocks": ids.iter().map(result).collect::<Vec<_>>() }),
    ];
    let server = SseServer::start([HttpReply::json(400, "{}")]).await.unwrap();
    let mut head = RequestHead::default();
    head.model = MODEL.to_owned();
    let request = ModelRequest::new(head, neutral::history(&turns, findings));
    let _ = provider(&server.url()).stream(request.into(), &RequestContext::default()).await;
    let body = server.requests()[0].json().unwrap();
    let (mut asked, mut answered) = (Vec::new(), Vec::new());
    json_path::walk(&body, "", &mut |_, value| {
        let is_call = value["type"] == "tool_use" || value["type"] == "function";
        asked.extend(value["id"].as_str().filter(|_| is_call).map(str::to_owned));
        let item = value["call_id"].as_str().map(str::to_owned);
        if value["type"] == "function_call" {
            asked.extend(item);
        } else {
            answered.extend(item);
        }
        for key in ["tool_use_id", "tool_call_id"] {
            answered.extend(value[key].as_str().map(str::to_owned));
        }
    });
    findings.equal("ids of the answers", &asked, &answered);
    asked
}

async fn media(case: &mut Fields<'_>, findings: &mut Findings) {
    for (number, sample) in case.list("samples").iter().enumerate() {
        let mut sample = Fields::new("samples", sample);
        let data = sample.text("b64").unwrap_or_default();
        let declared = sample.text("declared").map(str::to_owned);
        let expected = sample.text("media_type").unwrap_or("error");
        for protocol in BUILT {
            findings.at(format!("sample {}, {}", number + 1, protocol.name()));
            let image = Media::new(declared.clone(), zidane::types::MediaSource::Data(data.to_owned()));
            let content = vec![SessionContentBlock::text("Look"), SessionContentBlock::Image(image)];
            let turn = SessionTurn::new("p", Role::User, TurnOrigin::Prompt, content);
            let mut head = RequestHead::default();
            head.model = MODEL.to_owned();
            let sent = wire::send(protocol, head, History::from_iter([turn])).await;
            compare_media(protocol, expected, &sent, findings);
        }
        findings.at("");
        sample.finish(findings);
    }
}

fn compare_media(protocol: Protocol, expected: &str, sent: &Result<Value, ProviderError>, findings: &mut Findings) {
    match (expected, sent) {
        ("error", Ok(body)) => findings.wrong(format!("it was sent: {body}")),
        ("error", Err(error)) => findings.ensure(error.status.is_none(), || format!("{error} came from the server")),
        // What is not an image does not go as one, whatever its type.
        ("application/pdf", Err(error)) => {
            findings.equal("kind of error", &ProviderErrorKind::Unsupported, &error.kind);
        }
        // Gemini takes no animations.
        ("image/gif", Err(error)) if protocol == Protocol::Gemini => {
            findings.equal("kind of error", &ProviderErrorKind::Unsupported, &error.kind);
        }
        (expected, Ok(body)) => {
            let mut types = Vec::new();
            json_path::walk(body, "", &mut |key, value| {
                if matches!(key, "media_type" | "mimeType") {
                    types.extend(value.as_str().map(str::to_owned));
                }
                let from_url = value.as_str().and_then(|text| text.strip_prefix("data:")?.split_once(';'));
                types.extend(from_url.map(|(media_type, _)| media_type.to_owned()));
            });
            findings.equal("media types", &vec![expected.to_owned()], &types);
        }
        (_, Err(error)) => findings.wrong(format!("it was not sent: {error}")),
    }
}

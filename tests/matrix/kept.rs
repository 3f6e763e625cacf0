//! What of a stored conversation must be found in a request, and what must not.

use std::collections::HashMap;

use serde_json::Value;
use zidane::types::{
    MediaSource, Role, SessionContentBlock as Block, SessionTurn, Signature, ToolResultBody, ToolResultContent,
    TurnFinishReason,
};

use super::pairs::{EMPTY, FAIL, LOOK, ODD};
use super::rules::{Report, Said};
use super::strict_json;
use super::wire::{End, WIRES, Wire, tool_name};

/// What is stored and not in the request, in the order of the conversation.
pub(crate) fn lost(end: End, request: &Value, report: &Report, turns: &[SessionTurn]) -> Vec<String> {
    let mut faults = Vec::new();
    compare("assistant", &assistant(end, request, turns), &said_by_assistant(report), &mut faults);
    compare("media", &media(turns), &media_sent(report), &mut faults);
    let sent = report.said.iter().filter_map(|said| if let Said::User(text) = said { Some(&**text) } else { None });
    let sent = sent.collect::<Vec<_>>().join("\n\n");
    let mut rest = sent.as_str();
    for text in user_texts(turns) {
        match rest.split_once(&text) {
            Some((_, after)) => rest = after,
            None => faults.push(format!("the user's text is lost or misplaced: {text:?} in {sent:?}")),
        }
    }
    results(report, turns, &mut faults);
    states(end, report, turns, &mut faults);
    faults
}

fn compare(what: &str, expected: &[String], sent: &[String], faults: &mut Vec<String>) {
    if expected != sent {
        let at = expected.iter().zip(sent).take_while(|(a, b)| a == b).count();
        faults.push(format!("{what} {at}: expected {:?}, sent {:?}", expected.get(at..), sent.get(at..)));
    }
}

fn own(end: End, signature: Option<&Signature>) -> Option<&Signature> {
    let signature = signature.filter(|signature| signature.producer.as_str() == end.producer())?;
    // Anthropic takes reasoning of any of its models, and drops what it cannot read.
    (end.wire == Wire::Anthropic || signature.model == end.model()).then_some(signature)
}

/// Reasoning, text and calls of the model, in order.
fn assistant(end: End, request: &Value, turns: &[SessionTurn]) -> Vec<String> {
    let names: HashMap<&str, String> = [("look", LOOK), ("fail", FAIL), ("nothing", EMPTY)]
        .into_iter()
        .map(|(canonical, what)| (canonical, tool_name(request, what).unwrap()))
        .collect();
    let odd = tool_name(request, ODD).unwrap();
    let mut all = Vec::new();
    for turn in turns.iter().filter(|turn| turn.role == Role::Assistant) {
        let mut said = Vec::new();
        for block in &turn.content {
            match block {
                Block::Thinking(thinking) => {
                    let Some(signature) = own(end, thinking.signature.as_ref()) else { continue };
                    said.push((
                        true,
                        match end.wire {
                            Wire::Anthropic if thinking.redacted => format!("thinks {}", signature.value),
                            Wire::Anthropic => format!("thinks {} {}", signature.value, thinking.text),
                            Wire::Responses | Wire::Router => {
                                let state: Value = serde_json::from_str(&signature.value).unwrap();
                                let item = state.get(0).unwrap_or(&state);
                                let token = item.get("signature").or(item.get("encrypted_content")).unwrap();
                                format!("thinks {}", token.as_str().unwrap())
                            }
                            _ => continue,
                        },
                    ));
                }
                // A signature without a text is Gemini's alone.
                Block::Text(text)
                    if text.text.is_empty()
                        && !(end.wire == Wire::Gemini && own(end, text.signature.as_ref()).is_some()) => {}
                // Items of the Responses wire go by their ids, which hold for one model.
                Block::Opaque(opaque)
                    if opaque.producer.as_str() == end.producer()
                        && (end.wire != Wire::Responses || opaque.model == end.model()) =>
                {
                    let value = &opaque.value;
                    let places =
                        ["/id", "/content/0/encrypted_content", "/executableCode/code", "/codeExecutionResult/output"];
                    let token = places.iter().find_map(|place| value.pointer(place)).unwrap();
                    said.push((false, format!("does {}", token.as_str().unwrap())));
                }
                Block::Text(text) => said.push((false, format!("says {}", text.text))),
                Block::ToolCall(call) => {
                    let name = names.get(call.name.as_str()).unwrap_or(&odd);
                    let arguments = arguments(&call.arguments);
                    said.push((false, format!("calls {name} {arguments}")));
                }
                _ => {}
            }
        }
        // Reasoning that leads to nothing is refused, or dropped, by every API.
        if turn.finish_reason != Some(TurnFinishReason::Pause) {
            while said.pop_if(|(thinking, _)| *thinking).is_some() {}
        }
        all.extend(said.into_iter().map(|(_, said)| said));
    }
    all
}

fn arguments(raw: &str) -> Value {
    if raw.is_empty() { serde_json::json!({}) } else { strict_json::parse(raw.as_bytes()).unwrap() }
}

fn said_by_assistant(report: &Report) -> Vec<String> {
    let said = report.said.iter().filter_map(|said| match said {
        Said::Thinking(state) => Some(format!("thinks {state}")),
        Said::Text(text) => Some(format!("says {text}")),
        Said::Own(token) => Some(format!("does {token}")),
        Said::Call { name, arguments, .. } => Some(format!("calls {name} {arguments}")),
        _ => None,
    });
    said.collect()
}

fn media(turns: &[SessionTurn]) -> Vec<String> {
    let data = |media: &zidane::types::Media| match &media.source {
        MediaSource::Data(data) => Some(data.clone()),
        _ => None,
    };
    let mut all = Vec::new();
    for turn in turns {
        for result in turn.tool_results() {
            let ToolResultBody::Blocks(blocks) = &result.output else { continue };
            let images = blocks.iter().filter_map(|block| match block {
                ToolResultContent::Image(image) => data(image),
                _ => None,
            });
            all.extend(images);
        }
        let own = turn.content.iter().filter_map(|block| match block {
            Block::Image(image) => data(image),
            Block::Document(document) => data(&document.media),
            _ => None,
        });
        all.extend(own);
    }
    all
}

fn media_sent(report: &Report) -> Vec<String> {
    let mut all = Vec::new();
    for said in &report.said {
        match said {
            Said::Media(data) => all.push(data.clone()),
            Said::Result(_, _, media) => all.extend(media.iter().cloned()),
            _ => {}
        }
    }
    all
}

fn user_texts(turns: &[SessionTurn]) -> Vec<String> {
    let mut all = Vec::new();
    for turn in turns.iter().filter(|turn| turn.role == Role::User) {
        for block in &turn.content {
            match block {
                Block::Text(text) => all.push(text.text.clone()),
                Block::Document(document) => {
                    if let MediaSource::Text(text) = &document.media.source {
                        all.push(text.clone());
                    }
                }
                _ => {}
            }
        }
    }
    all
}

/// Every call's result stands behind its own call.
fn results(report: &Report, turns: &[SessionTurn], faults: &mut Vec<String>) {
    let ids = report.said.iter().filter_map(|said| if let Said::Call { id, .. } = said { Some(id) } else { None });
    let calls = turns.iter().flat_map(SessionTurn::tool_calls);
    let sent: Vec<_> = report
        .said
        .iter()
        .filter_map(|said| if let Said::Result(id, text, _) = said { Some((id, text)) } else { None })
        .collect();
    let mut stored = turns.iter().flat_map(SessionTurn::tool_results);
    for ((id, call), (answered, text)) in ids.zip(calls).zip(&sent) {
        let Some(result) = stored.next() else { continue };
        if id != *answered || result.call_id != call.id {
            faults.push(format!("the call `{id}` is answered by `{answered}`"));
        }
        let own = match &result.output {
            ToolResultBody::Text(text) => text.clone(),
            ToolResultBody::Blocks(blocks) => blocks
                .iter()
                .filter_map(|block| match block {
                    ToolResultContent::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect(),
        };
        if !text.contains(&own) {
            faults.push(format!("the result {own:?} of `{id}` became {text:?}"));
        }
    }
    if stored.next().is_some() {
        faults.push("a result is lost".into());
    }
}

/// Signatures and ids that stand beside texts and calls.
fn states(end: End, report: &Report, turns: &[SessionTurn], faults: &mut Vec<String>) {
    let mut expected = Vec::new();
    for block in turns.iter().filter(|turn| turn.role == Role::Assistant).flat_map(|turn| &turn.content) {
        let (signature, what) = match block {
            Block::Text(text) => (&text.signature, text.text.clone()),
            Block::ToolCall(call) => (&call.signature, arguments(&call.arguments).to_string()),
            _ => continue,
        };
        match (end.wire, signature) {
            (Wire::Gemini, Some(signature)) if own(end, Some(signature)).is_some() => {
                expected.push(format!("{} {what}", signature.value));
            }
            (Wire::Responses, Some(signature)) if signature.producer.as_str() == end.producer() => {
                let state: Value = serde_json::from_str(&signature.value).unwrap();
                let kept = if signature.model == end.model() { &["id", "phase"][..] } else { &["phase"] };
                for token in kept.iter().filter_map(|name| state[*name].as_str()) {
                    expected.push(format!("{token} {what}"));
                }
            }
            _ => {}
        }
    }
    let sent = report.state.iter().map(|(token, said)| match said {
        Said::Call { arguments, .. } => format!("{token} {arguments}"),
        Said::Text(text) => format!("{token} {text}"),
        other => format!("{token} {other:?}"),
    });
    compare("state", &expected, &sent.collect::<Vec<_>>(), faults);
}

/// State of another vendor, or of a model that cannot read it. All of it is made to begin with `Sig` and its maker.
pub(crate) fn foreign(end: End, body: &[u8]) -> Vec<String> {
    let body = String::from_utf8_lossy(body);
    let maker = |end: End| format!("Sig{:?}{}", end.wire, if end.second { "Two" } else { "One" });
    let readable = |other: End| other == end || (end.wire == Wire::Anthropic && other.wire == Wire::Anthropic);
    let others = WIRES.iter().flat_map(|wire| [false, true].map(|second| End { wire: *wire, second }));
    let found = others.filter(|other| !readable(*other)).filter_map(|other| {
        let at = body.find(&maker(other))?;
        Some(format!("another's state: {}", body[at..].chars().take(40).collect::<String>()))
    });
    found.collect()
}

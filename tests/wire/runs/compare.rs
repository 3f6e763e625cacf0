//! What an agent sent, against what the recorded client sent.
//!
//! Differences on purpose, and why they do not count. Those of form are gone once both sides are in the neutral form:
//!
//! | difference | reason |
//! |---|---|
//! | cache marks, sampling, limits, `stream`, `tool_choice`, metadata | the host's choice, and no part of what is said |
//! | messages of one side in a row | servers read them as one turn |
//! | a text as a string or as a list of one | the same to every server |
//! | the order of keys in arguments and schemas | JSON objects have none |
//! | citations on text | they are output only; a replay without them is accepted |
//! | `caller` on `tool_use` | likewise |
//! | `name` on tool rows | optional on this wire |
//! | the system text as `instructions` or as a system or developer message | the same to the model |
//! | ids and states of Responses items | which of them a client keeps is its choice; what is encrypted is compared |
//! | what `include` asks for, `store`, `strict` | the host's choice, and no part of what is said |
//!
//! The rest is handled here:
//!
//! | difference | reason |
//! |---|---|
//! | call ids | some wires take only ids of a certain shape; which call a result answers is compared instead |
//! | order of results | ours come in call order, some clients send them as they finish |
//! | how text is divided into blocks | no meaning |
//! | leading and trailing white space of an answer's text | some clients trim it |
//! | text before a call that the recorded client dropped | ours sends back what the model said |
//! | reasoning that the recorded client dropped | ours goes back where the wire wants it; it must then be what the model said |
//! | Responses reasoning that is not encrypted, sent back by the recorded client | nothing is stored there, so the server could not read it |
//! | a provider's own blocks and details that the recorded client changed | ours are what the model said, byte for byte |
//! | media in a tool row, or in the user's message after it | what the vendor takes |
//! | audio in a tool result | OpenAI refuses it in every form (the recording ends in its 400): ours says that it is left out |
//! | tools declared although the recorded client had not yet | the recorded client switched tools; this replay declares all at once |
//! | the words for a call of an unknown tool or with invalid arguments | each client has its own |
//! | dummy signatures | the recorded clients used either of the two that are documented, or none; ours signs every step's first call |
//! | ids of calls on Gemini up to 2.5 | not known there: names and order tell which result is whose |
//! | `additionalProperties` in schemas for Gemini | ours keeps to what every model and gateway reads |
//! | Gemini's keys in a result (`result`, `output`, or a structure of the tool's) | ours is one text, so that the API does not read references in it |
//! | an empty answer | not sent: a turn with nothing in it is refused |

use serde_json::Value;

use super::meaning::{Media, Part, Request, Turn};

/// `said` is the recorded request with the model's turns as the model made them.
pub fn differences(recorded: &Request, said: &Request, sent: &Request) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.system.trim() != sent.system.trim() {
        found.push(format!("system: expected {:?}, sent {:?}", recorded.system, sent.system));
    }
    for (name, tool) in &recorded.tools {
        match sent.tools.get(name) {
            None => found.push(format!("tool {name} was not declared")),
            Some(sent) if sent != tool => found.push(format!("tool {name}: expected {tool:?}, sent {sent:?}")),
            Some(_) => {}
        }
    }
    if recorded.turns.len() != sent.turns.len() {
        found.push(format!("turns: expected {}, sent {}", outline(recorded), outline(sent)));
        return found;
    }
    let (mut calls, mut sent_calls) = (Vec::new(), Vec::new());
    for (at, (recorded, sent)) in recorded.turns.iter().zip(&sent.turns).enumerate() {
        if recorded.is_user != sent.is_user {
            found.push(format!("turn {at}: the wrong side speaks"));
        } else if recorded.is_user {
            user_turn(&mut found, at, (recorded, &calls), (sent, &sent_calls));
        } else {
            calls = recorded.calls().map(str::to_owned).collect();
            sent_calls = sent.calls().map(str::to_owned).collect();
            let said = said.turns.get(at).unwrap_or(recorded);
            model_turn(&mut found, at, &Parts::of(recorded), &Parts::of(said), &Parts::of(sent));
        }
    }
    found
}

fn outline(request: &Request) -> String {
    let turn = |turn: &Turn| {
        let parts: Vec<_> = turn.parts.iter().map(kind).collect();
        format!("{}({})", if turn.is_user { "user" } else { "model" }, parts.join(","))
    };
    request.turns.iter().map(turn).collect::<Vec<_>>().join(" ")
}

fn kind(part: &Part) -> &'static str {
    match part {
        Part::Text(_) => "text",
        Part::Media(_) => "media",
        Part::Thinking { .. } | Part::Redacted(_) | Part::Details(_) => "reasoning",
        Part::Call { .. } => "call",
        Part::Result { .. } => "result",
        Part::Opaque(_) => "own",
    }
}

/// A user's turn, taken apart.
#[derive(Default)]
struct UserTurn {
    /// In call order.
    results: Vec<ResultRow>,
    text: String,
    /// Those inside results included.
    media: Vec<(String, String)>,
}

#[derive(Debug)]
struct ResultRow {
    /// The position of the call among those of the turn before.
    call: Option<usize>,
    text: String,
    is_error: bool,
}

impl UserTurn {
    fn of(turn: &Turn, calls: &[String]) -> Self {
        let mut all = Self::default();
        for part in &turn.parts {
            match part {
                Part::Result { id, content, is_error } => {
                    let mut text = String::new();
                    for part in content {
                        all.add(part, &mut text);
                    }
                    let call = calls.iter().position(|call| call == id);
                    all.results.push(ResultRow { call, text, is_error: *is_error });
                }
                part => {
                    let mut text = std::mem::take(&mut all.text);
                    all.add(part, &mut text);
                    all.text = text;
                }
            }
        }
        all.results.sort_by_key(|result| result.call);
        all.media.sort();
        all
    }

    fn add(&mut self, part: &Part, text: &mut String) {
        match part {
            Part::Text(more) => text.push_str(more),
            Part::Opaque(value) => text.push_str(&value.to_string()),
            Part::Media(Media { kind, data, .. }) => self.media.push((kind.clone(), data.clone())),
            other => text.push_str(&format!("{other:?}")),
        }
    }
}

fn user_turn(found: &mut Vec<String>, at: usize, recorded: (&Turn, &[String]), sent: (&Turn, &[String])) {
    let (mut expected, got) = (UserTurn::of(recorded.0, recorded.1), UserTurn::of(sent.0, sent.1));
    if expected.results.len() != got.results.len() {
        found.push(format!("turn {at}: expected {} results, sent {}", expected.results.len(), got.results.len()));
    }
    // Where media are taken out of a tool row, a marker stands for them there and a caption may go before them.
    let has_moved_media = !expected.media.is_empty() && !expected.results.is_empty();
    if !expected.results.is_empty() && got.results.iter().any(|result| result.text.contains("audio")) {
        expected.media.retain(|(kind, _)| kind != "audio");
    }
    for (expected, got) in expected.results.iter().zip(&got.results) {
        if expected.call.is_none() || (expected.call, expected.is_error) != (got.call, got.is_error) {
            found.push(format!("turn {at}: expected {expected:?}, sent {got:?}"));
        }
        let is_same = match expected.text.trim() {
            // An empty row is refused by several servers, so that ours says something.
            "" => true,
            text if expected.is_error && got.is_error && is_client_made(text) => true,
            text if has_moved_media => got.text.contains(text),
            _ => got.text == expected.text,
        };
        if !is_same {
            let (call, expected, got) = (expected.call, &expected.text, &got.text);
            found.push(format!("turn {at}: result of call {call:?}: expected {expected:?}, sent {got:?}"));
        }
    }
    if expected.media != got.media {
        found.push(format!("turn {at}: media: expected {:?}, sent {:?}", expected.media, got.media));
    }
    let is_same = if has_moved_media { got.text.contains(&expected.text) } else { got.text == expected.text };
    if !is_same {
        found.push(format!("turn {at}: expected {:?}, sent {:?}", expected.text, got.text));
    }
}

/// What the recorded client itself said of a call that it did not run.
fn is_client_made(text: &str) -> bool {
    text.starts_with("Unknown tool name") || text.contains("validation error")
}

/// A model's turn, taken apart.
#[derive(Default)]
struct Parts {
    text: String,
    calls: Vec<(String, Value)>,
    own: Vec<Value>,
    thinking: Vec<Part>,
    details: Option<Value>,
}

impl Parts {
    fn of(turn: &Turn) -> Self {
        let mut all = Self::default();
        for part in &turn.parts {
            match part {
                Part::Text(text) => all.text.push_str(text),
                Part::Call { name, arguments, .. } => all.calls.push((name.clone(), arguments.clone())),
                Part::Opaque(value) => all.own.push(plain(value)),
                Part::Thinking { .. } | Part::Redacted(_) => all.thinking.push(part.clone()),
                Part::Details(value) => all.details = Some(plain(value)),
                Part::Media(_) | Part::Result { .. } => all.own.push(Value::String(format!("{part:?}"))),
            }
        }
        all
    }
}

fn model_turn(found: &mut Vec<String>, at: usize, recorded: &Parts, said: &Parts, sent: &Parts) {
    let is_signed = |part: &Part| matches!(part, Part::Thinking { signature: Some(_), .. } | Part::Redacted(_));
    let same_text = |other: &Parts| other.text.trim() == sent.text.trim();
    if !(same_text(recorded) || recorded.text.trim().is_empty() && same_text(said)) {
        found.push(format!("turn {at}: expected text {:?}, sent {:?}", recorded.text, sent.text));
    }
    if recorded.calls != sent.calls {
        found.push(format!("turn {at}: expected calls {:?}, sent {:?}", recorded.calls, sent.calls));
    }
    if sent.own != recorded.own && sent.own != said.own {
        found.push(format!("turn {at}: expected own blocks {:?}, sent {:?}", recorded.own, sent.own));
    }
    let said_signed: Vec<_> = said.thinking.iter().filter(|part| is_signed(part)).cloned().collect();
    if !sent.thinking.is_empty() && sent.thinking != said.thinking && sent.thinking != said_signed {
        found.push(format!("turn {at}: the model thought {:?}, sent {:?}", said.thinking, sent.thinking));
    }
    if sent.thinking.is_empty() && recorded.thinking.iter().any(is_signed) {
        found.push(format!("turn {at}: signed reasoning was not sent back"));
    }
    let is_right = match &sent.details {
        Some(_) => sent.details == recorded.details || sent.details == said.details,
        None => recorded.details.is_none(),
    };
    if !is_right {
        found.push(format!("turn {at}: expected details {:?}, sent {:?}", said.details, sent.details));
    }
}

/// Without nulls and without what is output only.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, value)| !value.is_null() && *name != "caller");
            Value::Object(kept.map(|(name, value)| (name.clone(), plain(value))).collect())
        }
        other => other.clone(),
    }
}

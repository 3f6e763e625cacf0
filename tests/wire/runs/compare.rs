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
//!
//! The rest is handled here:
//!
//! | difference | reason |
//! |---|---|
//! | call ids | some wires take only ids of a certain shape; which call a result answers is compared instead |
//! | order of results | ours come in call order, some clients send them as they finish |
//! | how text is divided into blocks | no meaning |
//! | leading and trailing white space of an answer's text | some clients trim it |
//! | reasoning that the recorded client dropped | ours goes back where the wire wants it; it must then be what the model said |
//! | media in a tool row, or in the user's message after it | what the vendor takes |
//! | tools declared although the recorded client had not yet | the recorded client switched tools; this replay declares all at once |
//! | an empty answer | not sent: a turn with nothing in it is refused |

use serde_json::Value;

use super::super::answer::Block;
use super::meaning::{Media, Part, Request, Turn};

pub fn differences(recorded: &Request, sent: &Request, answers: &[Vec<Block>]) -> Vec<String> {
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
    let mut answers = answers.iter();
    let (mut calls, mut sent_calls) = (Vec::new(), Vec::new());
    for (at, (recorded, sent)) in recorded.turns.iter().zip(&sent.turns).enumerate() {
        if recorded.is_user != sent.is_user {
            found.push(format!("turn {at}: the wrong side speaks"));
        } else if recorded.is_user {
            user_turn(&mut found, at, (recorded, &calls), (sent, &sent_calls));
        } else {
            calls = recorded.calls().map(str::to_owned).collect();
            sent_calls = sent.calls().map(str::to_owned).collect();
            model_turn(&mut found, at, recorded, sent, answers.next().map(Vec::as_slice).unwrap_or_default());
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
    let (expected, got) = (UserTurn::of(recorded.0, recorded.1), UserTurn::of(sent.0, sent.1));
    if expected.results.len() != got.results.len() {
        found.push(format!("turn {at}: expected {} results, sent {}", expected.results.len(), got.results.len()));
    }
    // Where media are taken out of a tool row, a marker stands for them there and a caption may go before them.
    let has_moved_media = !expected.media.is_empty() && !expected.results.is_empty();
    for (expected, got) in expected.results.iter().zip(&got.results) {
        if expected.call.is_none() || (expected.call, expected.is_error) != (got.call, got.is_error) {
            found.push(format!("turn {at}: expected {expected:?}, sent {got:?}"));
        }
        let is_same = match expected.text.trim() {
            // An empty row is refused by several servers, so that ours says something.
            "" => true,
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

fn model_turn(found: &mut Vec<String>, at: usize, recorded: &Turn, sent: &Turn, answer: &[Block]) {
    let text = |turn: &Turn| {
        let texts =
            turn.parts.iter().filter_map(|part| if let Part::Text(text) = part { Some(text.as_str()) } else { None });
        texts.collect::<String>().trim().to_owned()
    };
    if text(recorded) != text(sent) {
        found.push(format!("turn {at}: expected text {:?}, sent {:?}", text(recorded), text(sent)));
    }
    let calls = |turn: &Turn| -> Vec<(String, Value)> {
        let call = |part: &Part| match part {
            Part::Call { name, arguments, .. } => Some((name.clone(), arguments.clone())),
            _ => None,
        };
        turn.parts.iter().filter_map(call).collect()
    };
    if calls(recorded) != calls(sent) {
        found.push(format!("turn {at}: expected calls {:?}, sent {:?}", calls(recorded), calls(sent)));
    }
    let own = |turn: &Turn| -> Vec<Value> {
        let own = |part: &Part| if let Part::Opaque(value) = part { Some(plain(value)) } else { None };
        turn.parts.iter().filter_map(own).collect()
    };
    if own(recorded) != own(sent) {
        found.push(format!("turn {at}: expected own blocks {:?}, sent {:?}", own(recorded), own(sent)));
    }
    reasoning(found, at, recorded, sent, answer);
}

/// What goes back must be what the model said, or what the recorded client sent back.
fn reasoning(found: &mut Vec<String>, at: usize, recorded: &Turn, sent: &Turn, answer: &[Block]) {
    let of_turn = |turn: &Turn| -> Vec<Part> {
        let parts = turn.parts.iter();
        parts.filter(|part| matches!(part, Part::Thinking { .. } | Part::Redacted(_))).cloned().collect()
    };
    let said: Vec<Part> = answer
        .iter()
        .filter_map(|block| match block {
            Block::Thinking { text, signature } => {
                Some(Part::Thinking { text: text.clone(), signature: signature.clone() })
            }
            Block::Redacted(data) => Some(Part::Redacted(data.clone())),
            _ => None,
        })
        .collect();
    let (expected, got) = (of_turn(recorded), of_turn(sent));
    // The Chat wire has no signature beside the text; its details are compared below.
    let is_said = got.len() == said.len()
        && got.iter().zip(&said).all(|(got, said)| match (got, said) {
            (Part::Thinking { text, signature: None }, Part::Thinking { text: said, .. }) => text == said,
            (got, said) => got == said,
        });
    if !got.is_empty() && !is_said && got != expected {
        found.push(format!("turn {at}: sent reasoning {got:?}, said {said:?}"));
    }
    let is_signed = |part: &Part| matches!(part, Part::Thinking { signature: Some(_), .. } | Part::Redacted(_));
    if got.is_empty() && expected.iter().any(is_signed) {
        found.push(format!("turn {at}: signed reasoning was not sent back"));
    }
    let details = |turn: &Turn| {
        let details = |part: &Part| if let Part::Details(value) = part { Some(plain(value)) } else { None };
        turn.parts.iter().find_map(details)
    };
    if details(recorded).is_some() && details(recorded) != details(sent) {
        found.push(format!("turn {at}: expected details {:?}, sent {:?}", details(recorded), details(sent)));
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

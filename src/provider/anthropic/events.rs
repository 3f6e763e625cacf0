//! The wire's events as they are parsed: borrowed where that saves a copy, and lenient about what is absent.

use std::borrow::Cow;

use memchr::memchr2;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::usage::Usage;

/// A text that borrows where JSON allows it.
#[derive(Debug, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

#[derive(Debug, Deserialize)]
pub(super) struct Tag<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(default)]
    pub(super) index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow, default)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) thinking: Option<String>,
    #[serde(default)]
    pub(super) partial_json: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<String>,
    #[serde(default)]
    pub(super) citation: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) stop_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message<'a> {
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(borrow, default)]
    pub(super) content: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    pub(super) stop_reason: Option<String>,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Block<'a> {
    #[serde(default)]
    pub(super) text: Option<String>,
    #[serde(default)]
    pub(super) thinking: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<String>,
    #[serde(default)]
    pub(super) data: Option<String>,
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) citations: Option<Vec<Box<RawValue>>>,
    #[serde(borrow, default)]
    pub(super) caller: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) toolset_name: Option<&'a RawValue>,
}

/// Events that must be readable.
pub(super) fn is_known(kind: &str) -> bool {
    matches!(
        kind,
        "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop"
    )
}

pub(super) enum PlainDelta {
    Text,
    Thinking,
}

/// The commonest events, read without a parser: deltas as the vendor spells them, whose text has no escapes. Anything
/// that differs in the least is left to the parser.
pub(super) fn plain_delta(data: &str) -> Option<(PlainDelta, u64, &str)> {
    let rest = data.strip_prefix(r#"{"type":"content_block_delta","index":"#)?;
    let comma = rest.find(',')?;
    let (index, rest) = rest.split_at_checked(comma)?;
    if index.is_empty() || index.len() > 9 || !index.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let rest = rest.strip_prefix(r#","delta":{"type":""#)?;
    let (kind, rest) = match rest.strip_prefix(r#"text_delta","text":""#) {
        Some(rest) => (PlainDelta::Text, rest),
        None => (PlainDelta::Thinking, rest.strip_prefix(r#"thinking_delta","thinking":""#)?),
    };
    let (text, end) = rest.split_at_checked(memchr2(b'"', b'\\', rest.as_bytes())?)?;
    // The vendor pads the end with spaces.
    let mut braces = 0;
    for byte in end.strip_prefix('"')?.bytes() {
        match byte {
            b'}' => braces += 1,
            b' ' => {}
            _ => return None,
        }
    }
    let legal = braces == 2 && text.bytes().all(|byte| byte >= b' ');
    legal.then_some((kind, index.parse().ok()?, text))
}

//! The wire's events as they are parsed: borrowed where that saves a copy, and lenient about what is absent.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::json_string::json_string;
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

#[derive(Debug, Default, Deserialize)]
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

/// An event that is read without a parser.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plain {
    Text(String),
    Thinking(String),
    Input(String),
    /// A text begins, without any yet.
    TextStart,
    /// A call begins, its input to come.
    CallStart {
        id: String,
        name: String,
    },
    BlockStop,
}

/// The commonest events, read without a parser, with the number of their block: deltas, and beginnings and ends of
/// blocks, as the vendor spells them. Anything that differs in the least is left to the parser.
pub(super) fn plain(data: &[u8]) -> Option<(u64, Plain)> {
    let rest = data.strip_prefix(br#"{"type":"content_block_"#)?;
    let Some(rest) = rest.strip_prefix(br#"delta","index":"#) else {
        if let Some(rest) = rest.strip_prefix(br#"start","index":"#) {
            return start(rest);
        }
        let (index, rest) = number(rest.strip_prefix(br#"stop","index":"#)?)?;
        return is_end(rest, 1).then_some((index, Plain::BlockStop));
    };
    let (index, rest) = number(rest)?;
    let rest = rest.strip_prefix(br#","delta":{"type":""#)?;
    let (kind, rest): (fn(String) -> Plain, _) = if let Some(rest) = rest.strip_prefix(br#"text_delta","text":""#) {
        (Plain::Text, rest)
    } else if let Some(rest) = rest.strip_prefix(br#"thinking_delta","thinking":""#) {
        (Plain::Thinking, rest)
    } else {
        (Plain::Input, rest.strip_prefix(br#"input_json_delta","partial_json":""#)?)
    };
    let (text, rest) = json_string(rest)?;
    is_end(rest.strip_prefix(b"\"")?, 2).then(|| (index, kind(text)))
}

fn start(bytes: &[u8]) -> Option<(u64, Plain)> {
    let (index, rest) = number(bytes)?;
    let rest = rest.strip_prefix(br#","content_block":{"type":""#)?;
    let Some(rest) = rest.strip_prefix(br#"tool_use","id":""#) else {
        let rest = rest.strip_prefix(br#"text","text":"""#)?;
        return is_end(rest, 2).then_some((index, Plain::TextStart));
    };
    let (id, rest) = json_string(rest)?;
    let (name, rest) = json_string(rest.strip_prefix(br#"","name":""#)?)?;
    is_end(rest.strip_prefix(br#"","input":{}"#)?, 2).then_some((index, Plain::CallStart { id, name }))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let (digits, rest) = bytes.split_at_checked(digits)?;
    Some((digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit & 0xf)), rest))
}

/// Whether that many braces are all there is. The vendor pads the end with spaces.
fn is_end(bytes: &[u8], braces: usize) -> bool {
    bytes.iter().all(|byte| matches!(byte, b'}' | b' ')) && bytes.iter().filter(|byte| **byte == b'}').count() == braces
}

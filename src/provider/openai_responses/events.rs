//! What the wire sends, read as far as it is needed.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::provider::lenient::{Few, Index, Str};

/// An event of a stream. Texts are borrowed where they hold no escapes.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) r#type: Str<'a>,
    pub(super) output_index: Index,
    #[serde(borrow)]
    pub(super) item_id: Str<'a>,
    pub(super) content_index: Index,
    pub(super) summary_index: Index,
    #[serde(borrow)]
    pub(super) delta: Str<'a>,
    #[serde(borrow)]
    pub(super) text: Str<'a>,
    #[serde(borrow)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Str<'a>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A response, as it stands in events and as a whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) object: Str<'a>,
    #[serde(borrow)]
    pub(super) model: Str<'a>,
    #[serde(borrow)]
    pub(super) status: Str<'a>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<Few<&'a RawValue>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// `incomplete_details`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Details<'a> {
    #[serde(borrow)]
    pub(super) reason: Str<'a>,
}

/// An output item.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub(super) r#type: Str<'a>,
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) status: Str<'a>,
    #[serde(borrow)]
    pub(super) phase: Str<'a>,
    #[serde(borrow)]
    pub(super) call_id: Str<'a>,
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Str<'a>,
    /// Parts; at some servers a string.
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary: Few<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Str<'a>,
}

/// A part of a message, a summary or of reasoning.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) r#type: Str<'a>,
    #[serde(borrow)]
    pub(super) text: Str<'a>,
    #[serde(borrow)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow)]
    pub(super) annotations: Option<Few<&'a RawValue>>,
}

/// What a server means by a field that should be a JSON text: some send the value itself.
pub(super) fn json_text(raw: Option<&RawValue>) -> Cow<'_, str> {
    let raw = raw.map_or("", RawValue::get);
    match raw.as_bytes().first() {
        Some(b'"') => parse::<Str<'_>>(raw).0,
        None | Some(b'n') => Cow::Borrowed(""),
        Some(_) => Cow::Borrowed(raw),
    }
}

/// What can be read of `json`; nothing when it is of another shape.
pub(super) fn parse<'a, T: Deserialize<'a> + Default>(json: &'a str) -> T {
    serde_json::from_str(json).unwrap_or_default()
}

//! Input items as this wire writes them, borrowed from the session's blocks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::state::CallState;
use crate::provider::openai_chat::parts::{Part, PartsOrText, Url};

/// A user message.
#[derive(Serialize)]
pub(super) struct UserMessage<'a> {
    r#type: &'static str,
    role: &'static str,
    content: Content<'a>,
}

impl<'a> UserMessage<'a> {
    pub(super) const fn new(content: PartsOrText<'a>) -> Self {
        Self { r#type: "message", role: "user", content: Content(content) }
    }
}

/// The output of a call.
#[derive(Serialize)]
pub(super) struct CallOutput<'a> {
    pub(super) r#type: &'static str,
    pub(super) call_id: Cow<'a, str>,
    pub(super) output: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<&'a RawValue>,
}

/// What a user message or an output holds: a string where it is text alone, as some servers take nothing else.
pub(super) struct Content<'a>(pub(super) PartsOrText<'a>);

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            PartsOrText::Text(text) => serializer.serialize_str(text),
            PartsOrText::Parts(parts) => serializer.collect_seq(parts.iter().map(InputPart)),
        }
    }
}

struct InputPart<'p, 'a>(&'p Part<'a>);

impl Serialize for InputPart<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const UNNAMED: &str = "document.pdf";
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Part::Text { text } => {
                map.serialize_entry("type", "input_text")?;
                map.serialize_entry("text", text)?;
            }
            Part::ImageUrl { image_url } => {
                map.serialize_entry("type", "input_image")?;
                map.serialize_entry("image_url", &image_url.url)?;
            }
            Part::File { file } => {
                map.serialize_entry("type", "input_file")?;
                map.serialize_entry("filename", file.filename)?;
                map.serialize_entry("file_data", &file.file_data)?;
            }
            Part::DocumentUrl { document_url: url @ Url::Plain(_), .. } => {
                map.serialize_entry("type", "input_file")?;
                map.serialize_entry("file_url", url)?;
            }
            Part::DocumentUrl { document_url: url @ Url::Data { .. }, document_name } => {
                let name = document_name.filter(|name| !name.trim().is_empty()).unwrap_or(UNNAMED);
                map.serialize_entry("type", "input_file")?;
                map.serialize_entry("filename", name)?;
                map.serialize_entry("file_data", url)?;
            }
        }
        map.end()
    }
}

/// An item of an assistant turn.
pub(super) enum Item<'a> {
    /// Reasoning as it came, but for what only answers have.
    Reasoning(BTreeMap<Cow<'a, str>, &'a RawValue>),
    /// Encrypted reasoning of which only this is known.
    Encrypted {
        summary: &'a str,
        content: &'a str,
    },
    Message(Message<'a>),
    Call(Call<'a>),
    /// An item as it came, with or without its id.
    Verbatim {
        value: &'a Value,
        id: bool,
    },
}

pub(super) struct Message<'a> {
    /// The id under which it was stored; tells which parts belong together.
    pub(super) key: Option<Cow<'a, str>>,
    /// The id that goes out.
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) phase: Option<Cow<'a, str>>,
    pub(super) parts: Vec<MessagePart<'a>>,
}

pub(super) enum MessagePart<'a> {
    Text { text: &'a str, annotations: Vec<&'a RawValue> },
    Refusal(&'a str),
    Verbatim(&'a Value),
}

pub(super) struct Call<'a> {
    pub(super) call_id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Cow<'a, str>,
    /// Further fields of the item, `type` aside.
    pub(super) state: CallState<'a>,
    pub(super) custom: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Reasoning(fields) => fields.serialize(serializer),
            Self::Encrypted { summary, content } => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("type", "reasoning")?;
                let summary = Some(SummaryText { r#type: "summary_text", text: summary });
                map.serialize_entry("summary", &summary.filter(|part| !part.text.is_empty()).as_slice())?;
                map.serialize_entry("encrypted_content", content)?;
                map.end()
            }
            Self::Message(message) => message.serialize(serializer),
            Self::Call(call) => call.serialize(serializer),
            Self::Verbatim { value: Value::Object(fields), id: false } => {
                serializer.collect_map(fields.iter().filter(|(name, _)| *name != "id"))
            }
            Self::Verbatim { value, .. } => value.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
struct SummaryText<'a> {
    r#type: &'static str,
    text: &'a str,
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "message")?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("role", "assistant")?;
        if self.id.is_some() {
            map.serialize_entry("status", "completed")?;
        }
        map.serialize_entry("content", &Parts(&self.parts))?;
        if let Some(phase) = &self.phase {
            map.serialize_entry("phase", phase)?;
        }
        map.end()
    }
}

struct Parts<'p, 'a>(&'p [MessagePart<'a>]);

impl Serialize for Parts<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.0.len()))?;
        for part in self.0 {
            match part {
                MessagePart::Text { text, annotations } => {
                    seq.serialize_element(&OutputText { r#type: "output_text", text, annotations })?;
                }
                MessagePart::Refusal(refusal) => seq.serialize_element(&Refusal { r#type: "refusal", refusal })?,
                MessagePart::Verbatim(value) => seq.serialize_element(value)?,
            }
        }
        seq.end()
    }
}

#[derive(Serialize)]
struct OutputText<'a> {
    r#type: &'static str,
    text: &'a str,
    annotations: &'a [&'a RawValue],
}

#[derive(Serialize)]
struct Refusal<'a> {
    r#type: &'static str,
    refusal: &'a str,
}

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", if self.custom { "custom_tool_call" } else { "function_call" })?;
        map.serialize_entry("call_id", &self.call_id)?;
        map.serialize_entry("name", &self.name)?;
        map.serialize_entry(if self.custom { "input" } else { "arguments" }, &self.arguments)?;
        for (name, value) in &self.state {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

//! Parts as this wire writes them, borrowed from the session's blocks.

use std::borrow::Cow;

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::arguments::object;
use super::super::names::NameRule;
use super::super::{RequestHead, media};
use super::models::Family;
use super::{TOKEN, Wire};
use crate::types::{
    Document, Media, MediaSource, OpaqueBlock, SessionContentBlock, Signature, TextBlock, ThinkingBlock, ToolCallBlock,
};

/// The documented stand-in for a signature that the model did not make: of calls that another model made, or that were
/// written by hand. This one passes on both APIs.
const DUMMY_SIGNATURE: &str = "skip_thought_signature_validator";

const IMAGE_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];
pub(super) const PDF: &str = "application/pdf";

/// Data fields that every model takes back, whichever made them.
const PORTABLE_FIELDS: [&str; 4] = ["executableCode", "codeExecutionResult", "inlineData", "fileData"];

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        thought: bool,
        #[serde(rename = "thoughtSignature", skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
    },
    Media(MediaPart<'a>),
    FunctionCall {
        #[serde(rename = "functionCall")]
        call: FunctionCall<'a>,
        #[serde(rename = "thoughtSignature", skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
    },
    FunctionResponse {
        #[serde(rename = "functionResponse")]
        response: FunctionResponse<'a>,
    },
    Verbatim(&'a Value),
    Unsigned(Unsigned<'a>),
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum MediaPart<'a> {
    #[serde(rename_all = "camelCase")]
    InlineData { mime_type: &'a str, data: &'a str },
    #[serde(rename_all = "camelCase")]
    FileData {
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<&'a str>,
        file_uri: &'a str,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: Cow<'a, str>,
    args: Cow<'a, RawValue>,
}

#[derive(Debug, Serialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    pub(super) name: Cow<'a, str>,
    pub(super) response: ResponseText<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<MediaPart<'a>>,
}

/// A response has to be an object. It holds one text under the keys that have a meaning: a structure of the tool's own
/// would be read for `$ref`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ResponseText<'a> {
    Output(Cow<'a, str>),
    Error(Cow<'a, str>),
}

/// A part without its signature.
#[derive(Debug)]
pub(super) struct Unsigned<'a>(&'a serde_json::Map<String, Value>);

impl Serialize for Unsigned<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter().filter(|(name, _)| *name != "thoughtSignature") {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Writes blocks for one model.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) wire: &'a Wire,
    pub(super) family: Family,
    pub(super) head: &'a RequestHead,
}

/// The turn that a call is written in.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPlace {
    /// No call stands before it in its content.
    pub(super) first: bool,
    /// This API made the turn, so that the call's id is its own.
    pub(super) own: bool,
}

impl<'a> Parts<'a> {
    /// A block of an assistant or user turn, results excepted. `None` when it is not for this wire.
    ///
    /// # Errors
    /// What the block is, when the wire cannot say it.
    pub(super) fn part(self, block: &'a SessionContentBlock, call: CallPlace) -> Result<Option<Part<'a>>, String> {
        Ok(match block {
            SessionContentBlock::Text(text) => self.text(text),
            SessionContentBlock::Image(image) => match (self.image_fault(image), media_part(image, is_image)) {
                (None, Some(part)) => Some(Part::Media(part)),
                (Some(fault), _) => return Err(format!("{}: {fault}", describe("image", image))),
                (None, None) => return Err(describe("image", image)),
            },
            SessionContentBlock::Document(document) if self.document_fault(document).is_some() => {
                let fault = self.document_fault(document).unwrap_or_default();
                return Err(format!("{}: {fault}", describe("document", &document.media)));
            }
            SessionContentBlock::Document(document) => match self.document(document) {
                Some(part) => Some(part),
                None => return Err(describe("document", &document.media)),
            },
            SessionContentBlock::Thinking(thinking) => self.thinking(thinking),
            SessionContentBlock::ToolCall(block) => Some(self.call(block, call)),
            SessionContentBlock::Opaque(opaque) => self.opaque(opaque),
            _ => None,
        })
    }

    /// Why the API would refuse an image.
    pub(super) fn image_fault(self, image: &Media) -> Option<&'static str> {
        match &image.source {
            MediaSource::Data(data) => self.wire.media.image_fault(data),
            _ => None,
        }
    }

    fn document_fault(self, document: &Document) -> Option<&'static str> {
        match &document.media.source {
            MediaSource::Data(data) => self.wire.media.document_fault(data),
            _ => None,
        }
    }

    /// The signature, if this API made it for this very model: others refuse it.
    fn own(self, signature: Option<&'a Signature>) -> Option<&'a str> {
        signature
            .filter(|signature| signature.producer == self.wire.producer && signature.model == self.head.model)
            .map(|signature| signature.value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn text(self, text: &'a TextBlock) -> Option<Part<'a>> {
        let signature = self.own(text.signature.as_ref());
        let worth = signature.is_some() || !text.text.trim().is_empty();
        worth.then(|| Part::Text { text: Cow::Borrowed(&text.text), thought: false, signature })
    }

    /// Summaries of thoughts are not wanted back, unless one is signed.
    fn thinking(self, thinking: &'a ThinkingBlock) -> Option<Part<'a>> {
        let signature = Some(self.own(thinking.signature.as_ref())?);
        Some(Part::Text { text: Cow::Borrowed(&thinking.text), thought: true, signature })
    }

    /// The first call of a step must be signed while its turn is the current one. Which one that is, later turns
    /// decide; so that what was sent stays as it was, every step's first call is signed.
    fn call(self, call: &'a ToolCallBlock, place: CallPlace) -> Part<'a> {
        let dummy = (place.first && self.family.wants_signatures()).then_some(DUMMY_SIGNATURE);
        Part::FunctionCall {
            call: FunctionCall {
                id: self.call_id(&call.id, place.own),
                name: NameRule::GEMINI.wire_name(self.head.names.display(&call.name)),
                args: object(&call.arguments),
            },
            signature: self.own(call.signature.as_ref()).or(dummy),
        }
    }

    /// The id to send: one that this API gave, to a model that knows ids.
    pub(super) fn call_id(self, id: &'a str, own: bool) -> Option<&'a str> {
        (own && self.family.call_ids() && !is_made_here(id)).then_some(id)
    }

    fn opaque(self, opaque: &'a OpaqueBlock) -> Option<Part<'a>> {
        let Value::Object(fields) = &opaque.value else { return None };
        if opaque.producer != self.wire.producer || fields.contains_key(TOKEN) {
            return None;
        }
        if opaque.model == self.head.model {
            return Some(Part::Verbatim(&opaque.value));
        }
        let portable = fields.keys().any(|name| PORTABLE_FIELDS.contains(&name.as_str()));
        portable.then_some(Part::Unsigned(Unsigned(fields)))
    }

    fn document(self, document: &'a Document) -> Option<Part<'a>> {
        if let Some(text) = media::document_text(document) {
            return Some(Part::Text { text: Cow::Owned(text), thought: false, signature: None });
        }
        let takes = |media_type: &str| {
            let plays = media_type.starts_with("audio/") || media_type.starts_with("video/");
            let documents = self.family.capabilities().documents;
            let office = is_office(media_type) && self.family.office_documents();
            is_image(media_type) || documents && (media_type == PDF || plays) || office
        };
        media_part(&document.media, takes).map(Part::Media)
    }
}

/// Ids that the loop makes where the wire gave none: `call_` and 32 hex digits.
fn is_made_here(id: &str) -> bool {
    id.is_empty()
        || id
            .strip_prefix("call_")
            .is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')))
}

pub(super) fn is_image(media_type: &str) -> bool {
    IMAGE_TYPES.contains(&media_type)
}

fn is_office(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.openxmlformats-officedocument.")
        || media_type.starts_with("application/vnd.oasis.opendocument.")
        || matches!(media_type, "application/msword" | "application/vnd.ms-excel" | "application/vnd.ms-powerpoint")
}

/// Media as a part, if their type is taken. Addresses are fetched by the provider, whose answer says what it takes.
pub(super) fn media_part<'a>(media: &'a Media, takes: impl Fn(&str) -> bool) -> Option<MediaPart<'a>> {
    match &media.source {
        MediaSource::Data(data) => {
            let mime_type = plain_type(media::media_type(media)?);
            takes(mime_type).then_some(MediaPart::InlineData { mime_type, data })
        }
        MediaSource::Url(url) => {
            let mime_type = media::media_type(media).map(plain_type).or_else(|| type_of_name(url));
            Some(MediaPart::FileData { mime_type, file_uri: url })
        }
        _ => None,
    }
}

fn plain_type(media_type: &str) -> &str {
    if media_type == "image/jpg" { "image/jpeg" } else { media_type }
}

/// The type that an address ends in: Vertex wants one.
fn type_of_name(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let (_, ending) = path.rsplit('/').next()?.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => PDF,
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    })
}

fn describe(what: &str, media: &Media) -> String {
    match (&media.source, media::media_type(media)) {
        (MediaSource::Ref(_), _) => format!("{what}, unresolved ref"),
        (_, Some(media_type)) => format!("{what}, {media_type}"),
        (_, None) => format!("{what}, unknown type"),
    }
}

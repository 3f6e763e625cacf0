//! Content blocks as this wire writes them, borrowed from the session's.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::arguments::object;
use super::super::names::NameRule;
use super::super::{ToolNames, media};
use super::Wire;
use super::call_ids::CallIds;
use super::models::Family;
use crate::types::{
    Document, Media, MediaSource, Resource, ResourceContent, SessionContentBlock, Signature, TextBlock, ThinkingBlock,
    ToolCallBlock, ToolResultBlock, ToolResultBody, ToolResultContent, tool_result_to_text,
};

const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
const PDF: &str = "application/pdf";

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        citations: Option<&'a RawValue>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, RawValue>,
        #[serde(flatten)]
        state: BTreeMap<&'a str, &'a RawValue>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: ResultContent<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    #[serde(untagged)]
    Verbatim(&'a Value),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
    Url { url: &'a str },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum ResultContent<'a> {
    Text(&'a str),
    Blocks(Vec<Block<'a>>),
}

/// Writes blocks for one model.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) wire: &'a Wire,
    pub(super) family: &'a Family,
    pub(super) names: &'a ToolNames,
    pub(super) ids: &'a CallIds<'a>,
}

impl<'a> Blocks<'a> {
    /// A session block on the wire. `None` when it is not for this wire.
    ///
    /// # Errors
    /// What the block is, when the wire cannot say it.
    pub(super) fn block(self, block: &'a SessionContentBlock) -> Result<Option<Block<'a>>, String> {
        Ok(match block {
            SessionContentBlock::Text(text) => self.text(text),
            SessionContentBlock::Image(image) => match (self.image_fault(image), image_source(image)) {
                (None, Some(source)) => Some(Block::Image { source }),
                (Some(fault), _) => return Err(format!("{}: {fault}", describe("image", image))),
                (None, None) => return Err(describe("image", image)),
            },
            SessionContentBlock::Document(document) if self.document_fault(document).is_some() => {
                let fault = self.document_fault(document).unwrap_or_default();
                return Err(format!("{}: {fault}", describe("document", &document.media)));
            }
            SessionContentBlock::Document(document) => match self.document(document) {
                Some(block) => Some(block),
                None => return Err(describe("document", &document.media)),
            },
            SessionContentBlock::Thinking(thinking) => self.thinking(thinking),
            SessionContentBlock::ToolCall(call) => Some(self.call(call)),
            SessionContentBlock::ToolResult(result) => Some(self.result(result)),
            SessionContentBlock::Opaque(opaque) if opaque.producer == self.wire.producer => {
                Some(Block::Verbatim(&opaque.value))
            }
            _ => None,
        })
    }

    fn image_fault(self, image: &Media) -> Option<&'static str> {
        match &image.source {
            MediaSource::Data(data) => self.family.media().image_fault(data),
            _ => None,
        }
    }

    fn document_fault(self, document: &Document) -> Option<&'static str> {
        match &document.media.source {
            MediaSource::Data(data) => self.family.media().document_fault(data),
            _ => None,
        }
    }

    fn own(self, signature: Option<&Signature>) -> Option<&str> {
        signature.filter(|signature| signature.producer == self.wire.producer).map(|signature| signature.value.as_str())
    }

    fn text(self, text: &'a TextBlock) -> Option<Block<'a>> {
        // A signature alone does not make blank text legal here.
        if text.text.trim().is_empty() {
            return None;
        }
        let citations = self.own(text.signature.as_ref()).filter(|citations| is_portable(citations));
        let citations = citations.and_then(|citations| serde_json::from_str(citations).ok());
        Some(Block::Text { text: Cow::Borrowed(&text.text), citations })
    }

    /// Signed reasoning goes back as it came; a block without its signature would be refused.
    fn thinking(self, thinking: &'a ThinkingBlock) -> Option<Block<'a>> {
        let signature = self.own(thinking.signature.as_ref()).filter(|signature| !signature.is_empty())?;
        Some(if thinking.redacted {
            Block::RedactedThinking { data: signature }
        } else {
            Block::Thinking { thinking: &thinking.text, signature }
        })
    }

    fn call(self, call: &'a ToolCallBlock) -> Block<'a> {
        let state = self.own(call.signature.as_ref()).unwrap_or("{}");
        let mut state: BTreeMap<&str, &RawValue> = serde_json::from_str(state).unwrap_or_default();
        state.retain(|key, _| matches!(*key, "caller" | "toolset_name"));
        Block::ToolUse {
            id: self.ids.wire_id(&call.id),
            name: NameRule::PORTABLE.wire_name(self.names.display(&call.name)),
            input: object(&call.arguments),
            state,
        }
    }

    fn result(self, result: &'a ToolResultBlock) -> Block<'a> {
        let placeholder = if result.is_error { "(failed without a message)" } else { "(no output)" };
        let content = match &result.output {
            ToolResultBody::Text(text) if !text.trim().is_empty() => ResultContent::Text(text),
            ToolResultBody::Text(_) => ResultContent::Text(placeholder),
            ToolResultBody::Blocks(blocks) => {
                let blocks: Vec<_> = blocks.iter().filter_map(|block| self.result_block(block)).collect();
                if blocks.is_empty() { ResultContent::Text(placeholder) } else { ResultContent::Blocks(blocks) }
            }
        };
        Block::ToolResult { tool_use_id: self.ids.wire_id(&result.call_id), content, is_error: result.is_error }
    }

    /// What the wire has no block for becomes a marker, so that the model knows there was something.
    fn result_block(self, block: &'a ToolResultContent) -> Option<Block<'a>> {
        let native = match block {
            ToolResultContent::Text { text } => return plain_text(Cow::Borrowed(text)),
            ToolResultContent::Image(image) if let Some(fault) = self.image_fault(image) => return left_out(fault),
            ToolResultContent::Image(image) => image_source(image).map(|source| Block::Image { source }),
            ToolResultContent::Resource(resource) => self.resource(resource),
            _ => None,
        };
        native.or_else(|| {
            let marker = tool_result_to_text(&ToolResultBody::Blocks(vec![block.clone()])).into_owned();
            plain_text(Cow::Owned(marker)).or_else(|| plain_text("(an attachment that cannot be shown)".into()))
        })
    }

    fn resource(self, resource: &'a Resource) -> Option<Block<'a>> {
        let title = resource.uri.as_deref();
        match &resource.content {
            ResourceContent::Text(text) => plain_text(Cow::Borrowed(text)).or_else(|| plain_text("(empty)".into())),
            ResourceContent::Blob(data) => {
                let declared = resource.media_type.as_deref();
                match media::sniff(data).or(declared)? {
                    PDF if self.family.media().document_fault(data).is_some() => {
                        plain_text("[document left out: it has more bytes than are taken]".into())
                    }
                    PDF if self.family.capabilities().documents_in_tool_results => {
                        Some(Block::Document { source: Source::Base64 { media_type: PDF, data }, title })
                    }
                    media_type
                        if media_type.starts_with("image/") && self.family.media().image_fault(data).is_some() =>
                    {
                        left_out(self.family.media().image_fault(data).unwrap_or_default())
                    }
                    media_type if IMAGE_TYPES.contains(&media_type) => {
                        Some(Block::Image { source: Source::Base64 { media_type, data } })
                    }
                    media_type if media::is_text_type(media_type) => {
                        media::decode_text(data).and_then(|text| plain_text(Cow::Owned(text)))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn document(self, document: &'a Document) -> Option<Block<'a>> {
        if let Some(text) = media::document_text(document) {
            return plain_text(Cow::Owned(text));
        }
        if !self.family.capabilities().documents {
            return None;
        }
        let media_type = media::media_type(&document.media);
        let source = match &document.media.source {
            MediaSource::Data(data) if media_type == Some(PDF) => Source::Base64 { media_type: PDF, data },
            MediaSource::Url(url) if media_type.is_none_or(|declared| declared == PDF) => Source::Url { url },
            _ => return None,
        };
        Some(Block::Document { source, title: document.name.as_deref().filter(|name| !name.trim().is_empty()) })
    }
}

fn plain_text(text: Cow<'_, str>) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text, citations: None })
}

fn image_source(image: &Media) -> Option<Source<'_>> {
    match &image.source {
        MediaSource::Url(url) => Some(Source::Url { url }),
        MediaSource::Data(data) => {
            let media_type = media::media_type(image)?;
            let media_type = if media_type == "image/jpg" { "image/jpeg" } else { media_type };
            IMAGE_TYPES.contains(&media_type).then_some(Source::Base64 { media_type, data })
        }
        _ => None,
    }
}

/// What stands for an image of a result that the API would refuse.
fn left_out<'a>(fault: &str) -> Option<Block<'a>> {
    plain_text(Cow::Owned(format!("[image left out: {fault}]")))
}

fn describe(what: &str, media: &Media) -> String {
    match (&media.source, media::media_type(media)) {
        (MediaSource::Ref(_), _) => format!("{what}, unresolved ref"),
        (_, Some(media_type)) => format!("{what}, {media_type}"),
        (_, None) => format!("{what}, unknown type"),
    }
}

/// Citations of web searches belong to the conversation and must go back. Those that count documents break when the
/// documents are no longer there, and nothing asks for them.
fn is_portable(citations: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Citation<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_str::<Vec<Citation<'_>>>(citations)
        .is_ok_and(|citations| citations.iter().all(|citation| citation.kind == "web_search_result_location"))
}

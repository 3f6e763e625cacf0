//! Tool results as function responses.

use std::borrow::Cow;

use super::super::media;
use super::super::names::NameRule;
use super::parts::{FunctionResponse, MediaPart, PDF, Part, Parts, ResponseText, is_image, media_part};
use crate::types::{
    Resource, ResourceContent, ToolResultBlock, ToolResultBody, ToolResultContent, tool_result_to_text,
};

/// A block of a result, as the wire takes it.
enum Piece<'a> {
    Text(Cow<'a, str>),
    /// May stand inside a function response, where the model takes any there.
    Inside(MediaPart<'a>),
    /// Stands beside the function responses.
    Beside(MediaPart<'a>),
}

impl<'a> Parts<'a> {
    /// A result as its part. What cannot stand inside goes to `beside`, with a marker in its place.
    ///
    /// `own` says whether this API made the call, so that the id is its own.
    pub(super) fn response(self, result: &'a ToolResultBlock, own: bool, beside: &mut Vec<MediaPart<'a>>) -> Part<'a> {
        let mut parts = Vec::new();
        let text = match &result.output {
            ToolResultBody::Text(text) => Cow::Borrowed(text.as_str()),
            ToolResultBody::Blocks(blocks) => {
                let mut texts = Vec::new();
                for block in blocks {
                    match self.piece(block) {
                        Piece::Text(text) => texts.push(text),
                        Piece::Inside(part) if self.family.media_in_results() => parts.push(part),
                        Piece::Inside(part) | Piece::Beside(part) => {
                            beside.push(part);
                            let marker = format!("[attachment {} follows the results]", beside.len());
                            texts.push(Cow::Owned(marker));
                        }
                    }
                }
                texts.retain(|text| !text.trim().is_empty());
                match <[Cow<'a, str>; 1]>::try_from(texts) {
                    Ok([text]) => text,
                    Err(texts) => Cow::Owned(texts.join("\n")),
                }
            }
        };
        let text = match (text.trim().is_empty(), result.is_error) {
            (false, _) => text,
            (true, true) => Cow::Borrowed("(failed without a message)"),
            (true, false) if parts.is_empty() => Cow::Borrowed("(no output)"),
            (true, false) => Cow::Borrowed("(see the attachments)"),
        };
        Part::FunctionResponse {
            response: FunctionResponse {
                id: self.call_id(&result.call_id, own),
                name: NameRule::GEMINI.wire_name(self.head.names.display(&result.name)),
                response: if result.is_error { ResponseText::Error(text) } else { ResponseText::Output(text) },
                parts,
            },
        }
    }

    /// What the wire has no part for becomes a marker, so that the model knows there was something.
    fn piece(self, block: &'a ToolResultContent) -> Piece<'a> {
        let native = match block {
            ToolResultContent::Text { text } => return Piece::Text(Cow::Borrowed(text)),
            ToolResultContent::Image(image) if let Some(fault) = self.image_fault(image) => {
                return Piece::Text(Cow::Owned(format!("[image left out: {fault}]")));
            }
            ToolResultContent::Image(image) => media_part(image, is_image).map(Piece::Inside),
            ToolResultContent::Audio(sound) => media_part(sound, |kind| kind.starts_with("audio/")).map(Piece::Beside),
            ToolResultContent::Video(video) => media_part(video, |kind| kind.starts_with("video/")).map(Piece::Beside),
            ToolResultContent::Resource(resource) => self.resource(resource),
            ToolResultContent::Unknown(_) => None,
        };
        native.unwrap_or_else(|| {
            Piece::Text(Cow::Owned(tool_result_to_text(&ToolResultBody::Blocks(vec![block.clone()])).into_owned()))
        })
    }

    fn resource(self, resource: &'a Resource) -> Option<Piece<'a>> {
        match &resource.content {
            ResourceContent::Text(text) => Some(Piece::Text(Cow::Borrowed(text))),
            ResourceContent::Blob(data) => {
                let mime_type = media::sniff(data).or(resource.media_type.as_deref())?;
                let limits = self.wire.media;
                let fault = if is_image(mime_type) { limits.image_fault(data) } else { limits.document_fault(data) };
                if let Some(fault) = fault {
                    return Some(Piece::Text(Cow::Owned(format!("[{mime_type} left out: {fault}]"))));
                }
                let part = MediaPart::InlineData { mime_type, data };
                match mime_type {
                    PDF if self.family.capabilities().documents => Some(Piece::Inside(part)),
                    image if is_image(image) => Some(Piece::Inside(part)),
                    plays if plays.starts_with("audio/") || plays.starts_with("video/") => Some(Piece::Beside(part)),
                    text if media::is_text_type(text) => {
                        media::decode_text(data).map(|text| Piece::Text(Cow::Owned(text)))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

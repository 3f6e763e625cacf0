use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};

use super::profile::{ChatProfile, DocumentStyle};
use crate::provider::limits::{MediaLimits, RequestLimits};
use crate::provider::media::{decode_text, document_text, is_text_type, media_type, sniff};
use crate::provider::media_fit::{Rules, check_whole};
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::types::{
    Document, Media, MediaSource, Resource, ResourceContent, Role, SessionContentBlock, ToolResultBlock,
    ToolResultBody, ToolResultContent,
};

/// A part of a user message.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::provider) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
    },
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
    File {
        file: File<'a>,
    },
    DocumentUrl {
        document_url: Url<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        document_name: Option<&'a str>,
    },
}

#[derive(Debug, Serialize)]
pub(in crate::provider) struct ImageUrl<'a> {
    pub(in crate::provider) url: Url<'a>,
}

#[derive(Debug, Serialize)]
pub(in crate::provider) struct File<'a> {
    pub(in crate::provider) filename: &'a str,
    pub(in crate::provider) file_data: Url<'a>,
}

/// An address, or a data URL that is put together while it is written.
#[derive(Debug)]
pub(in crate::provider) enum Url<'a> {
    Plain(&'a str),
    Data { media_type: &'a str, base64: &'a str },
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(url) => f.write_str(url),
            Self::Data { media_type, base64 } => write!(f, "data:{media_type};base64,{base64}"),
        }
    }
}

impl Serialize for Url<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The content of a user or tool message: a string where it is text alone, as some vendors take nothing else.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(in crate::provider) enum PartsOrText<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl<'a> PartsOrText<'a> {
    /// `None` when there is nothing.
    pub(in crate::provider) fn of(mut parts: Vec<Part<'a>>) -> Option<Self> {
        if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
            return Some(Self::Parts(parts));
        }
        if parts.len() < 2 {
            return match parts.pop()? {
                Part::Text { text } => Some(Self::Text(text)),
                other => Some(Self::Parts(vec![other])),
            };
        }
        let texts = parts.iter().map(|part| match part {
            Part::Text { text } => &**text,
            _ => "",
        });
        Some(Self::Text(texts.collect::<Vec<_>>().join("\n\n").into()))
    }
}

/// Why a part cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::provider) struct Refused {
    kind: &'static str,
    why: &'static str,
}

/// What a vendor's model takes in user messages and tool results.
#[derive(Clone, Copy, Debug)]
pub(in crate::provider) struct Accepts<'p> {
    pub(in crate::provider) provider: &'p str,
    pub(in crate::provider) images: bool,
    /// `None`: whatever is an image.
    pub(in crate::provider) image_types: Option<&'p [&'static str]>,
    pub(in crate::provider) image_urls: bool,
    pub(in crate::provider) documents: DocumentStyle,
    pub(in crate::provider) images_in_tool_results: bool,
    pub(in crate::provider) documents_in_tool_results: bool,
    pub(in crate::provider) limits: MediaLimits,
    pub(in crate::provider) whole: RequestLimits,
}

impl<'p> Accepts<'p> {
    pub(super) fn new(profile: &'p ChatProfile, model: &str) -> Self {
        Self {
            provider: &profile.id,
            images: profile.images.contains(model),
            image_types: profile.image_types.as_deref(),
            image_urls: profile.image_urls,
            documents: profile.documents,
            images_in_tool_results: profile.images_in_tool_results,
            documents_in_tool_results: false,
            limits: MediaLimits::bytes(profile.max_media_bytes),
            whole: RequestLimits::of(profile.max_images, profile.max_request_media_bytes),
        }
    }

    /// What may be sent of a conversation's media.
    pub(in crate::provider) fn with_rules<T>(&self, with: impl FnOnce(&Rules<'_>) -> T) -> T {
        // An assistant message takes no parts, and so none is refused there.
        let fault = |role: Role, block: &SessionContentBlock| match self.part(block) {
            Err(refused) if role == Role::User => Some(format!("{}: {}", refused.kind, refused.why)),
            _ => None,
        };
        with(&Rules { provider: self.provider, part: self.limits, whole: self.whole, fault: &fault })
    }

    /// Checks that the blocks of a user turn can be sent.
    ///
    /// # Errors
    /// `Unsupported`, naming the first part that cannot.
    pub(in crate::provider) fn check(&self, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        for (index, block) in content.iter().enumerate() {
            self.part(block).map_err(|refused| self.unsupported(&format!("part {index}"), &refused))?;
        }
        self.with_rules(|rules| check_whole(content, rules))
    }

    /// A block of a user turn as a part. `None` for blocks that are no parts.
    pub(in crate::provider) fn part<'a>(&self, block: &'a SessionContentBlock) -> Result<Option<Part<'a>>, Refused> {
        let refused = |kind| move |why| Refused { kind, why };
        match block {
            SessionContentBlock::Text(text) => Ok(Some(Part::Text { text: (&*text.text).into() })),
            SessionContentBlock::Image(media) => self.image(media).map(Some).map_err(refused("image")),
            SessionContentBlock::Document(document) => self.document(document).map(Some).map_err(refused("document")),
            _ => Ok(None),
        }
    }

    /// The error of a part that cannot be sent.
    pub(in crate::provider) fn unsupported(&self, place: &str, refused: &Refused) -> ProviderError {
        let message = format!("{place} ({}) cannot be sent: {}", refused.kind, refused.why);
        ProviderError::new(ProviderErrorKind::Unsupported, self.provider, message)
    }

    fn image<'a>(&self, media: &'a Media) -> Result<Part<'a>, &'static str> {
        if !self.images {
            return Err("this model takes no images");
        }
        let url = match &media.source {
            MediaSource::Data(base64) => {
                let Some(media_type) = media_type(media).filter(|known| known.starts_with("image/")) else {
                    return Err("its bytes are no image");
                };
                if self.image_types.is_some_and(|types| !types.contains(&media_type)) {
                    return Err("this vendor does not take images of its type");
                }
                if let Some(fault) = self.limits.image_fault(base64) {
                    return Err(fault);
                }
                Url::Data { media_type, base64 }
            }
            MediaSource::Url(url) if url.starts_with("data:") || self.image_urls => Url::Plain(url),
            MediaSource::Url(_) => return Err("this vendor fetches no addresses"),
            MediaSource::Text(_) => return Err("it is text"),
            MediaSource::Ref(_) => return Err("its stored bytes were not loaded"),
        };
        Ok(Part::ImageUrl { image_url: ImageUrl { url } })
    }

    fn document<'a>(&self, document: &'a Document) -> Result<Part<'a>, &'static str> {
        let name = document.name.as_deref();
        match &document.media.source {
            MediaSource::Data(base64) => match media_type(&document.media) {
                Some("application/pdf") => self.pdf(name, base64),
                Some(media_type) if media_type.starts_with("image/") => self.image(&document.media),
                Some(media_type) if is_text_type(media_type) => match document_text(document) {
                    Some(text) => Ok(Part::Text { text: text.into() }),
                    None => Err("its bytes are not UTF-8 text"),
                },
                _ => Err("only PDF and text documents can be sent on this wire"),
            },
            MediaSource::Text(_) => Ok(Part::Text { text: document_text(document).unwrap_or_default().into() }),
            MediaSource::Url(url) if self.documents == DocumentStyle::DocumentUrl => {
                Ok(Part::DocumentUrl { document_url: Url::Plain(url), document_name: name })
            }
            MediaSource::Url(_) => Err("this vendor fetches no documents"),
            MediaSource::Ref(_) => Err("its stored bytes were not loaded"),
        }
    }

    fn pdf<'a>(&self, name: Option<&'a str>, base64: &'a str) -> Result<Part<'a>, &'static str> {
        if let Some(fault) = self.limits.document_fault(base64) {
            return Err(fault);
        }
        let url = Url::Data { media_type: "application/pdf", base64 };
        match self.documents {
            DocumentStyle::Unsupported => Err("this vendor takes no PDF documents"),
            DocumentStyle::File => {
                let filename = name.filter(|name| !name.trim().is_empty()).unwrap_or("document.pdf");
                Ok(Part::File { file: File { filename, file_data: url } })
            }
            DocumentStyle::DocumentUrl => Ok(Part::DocumentUrl { document_url: url, document_name: name }),
        }
    }

    /// A tool result as the content of its message. What cannot stand there goes to `attached`, with a marker in its
    /// place; what the model cannot take at all leaves a marker that says so.
    pub(in crate::provider) fn result<'a>(
        &self,
        result: &'a ToolResultBlock,
        attached: &mut Vec<Part<'a>>,
    ) -> PartsOrText<'a> {
        let blocks = match &result.output {
            ToolResultBody::Text(text) if text.trim().is_empty() => return placeholder(result),
            ToolResultBody::Text(text) => return PartsOrText::Text(text.into()),
            ToolResultBody::Blocks(blocks) => blocks,
        };
        let mut parts = Vec::new();
        for block in blocks {
            match self.result_part(block) {
                Ok(Part::Text { text }) if text.trim().is_empty() => {}
                Ok(part @ Part::Text { .. }) => parts.push(part),
                Ok(part @ Part::ImageUrl { .. }) if self.images_in_tool_results => parts.push(part),
                Ok(part @ (Part::File { .. } | Part::DocumentUrl { .. })) if self.documents_in_tool_results => {
                    parts.push(part);
                }
                Ok(part) => {
                    attached.push(part);
                    parts.push(marker(format_args!("[attachment {} follows in the next message]", attached.len())));
                }
                Err((kind, why)) => parts.push(marker(format_args!("[{kind} left out: {why}]"))),
            }
        }
        let inline = parts.iter().any(|part| !matches!(part, Part::Text { .. }));
        if inline {
            return PartsOrText::Parts(parts);
        }
        let texts: Vec<_> = parts
            .into_iter()
            .filter_map(|part| if let Part::Text { text } = part { Some(text) } else { None })
            .collect();
        match <[Cow<'a, str>; 1]>::try_from(texts) {
            Ok([text]) => PartsOrText::Text(text),
            Err(texts) if texts.is_empty() => placeholder(result),
            Err(texts) => PartsOrText::Text(texts.join("\n").into()),
        }
    }

    fn result_part<'a>(&self, block: &'a ToolResultContent) -> Result<Part<'a>, (&'static str, &'static str)> {
        match block {
            ToolResultContent::Text { text } => Ok(Part::Text { text: text.into() }),
            ToolResultContent::Image(media) => self.image(media).map_err(|why| ("image", why)),
            ToolResultContent::Audio(_) => Err(("audio", "this wire takes none in tool results")),
            ToolResultContent::Video(_) => Err(("video", "this wire takes none in tool results")),
            ToolResultContent::Resource(resource) => self.resource(resource).map_err(|why| ("resource", why)),
            ToolResultContent::Unknown(_) => Err(("content", "its type is not known")),
        }
    }

    fn resource<'a>(&self, resource: &'a Resource) -> Result<Part<'a>, &'static str> {
        let uri = resource.uri.as_deref();
        match &resource.content {
            ResourceContent::Text(text) => Ok(Part::Text { text: text.into() }),
            ResourceContent::Link(name) => {
                Ok(Part::Text { text: format!("[link: {name} {}]", uri.unwrap_or_default()).into() })
            }
            ResourceContent::Ref(_) => Err("its stored bytes were not loaded"),
            ResourceContent::Blob(base64) => {
                let media_type = sniff(base64).or(resource.media_type.as_deref()).unwrap_or_default();
                if media_type == "application/pdf" {
                    self.pdf(uri, base64)
                } else if media_type.starts_with("image/") && self.images {
                    if let Some(fault) = self.limits.image_fault(base64) {
                        return Err(fault);
                    }
                    Ok(Part::ImageUrl { image_url: ImageUrl { url: Url::Data { media_type, base64 } } })
                } else if is_text_type(media_type) {
                    decode_text(base64).map(|text| Part::Text { text: text.into() }).ok_or("it is not UTF-8 text")
                } else {
                    Err("this model does not take its type")
                }
            }
        }
    }
}

fn marker<'a>(text: fmt::Arguments<'_>) -> Part<'a> {
    Part::Text { text: text.to_string().into() }
}

/// What stands for a result without text: vendors refuse blank content.
fn placeholder<'a>(result: &ToolResultBlock) -> PartsOrText<'a> {
    if result.is_error {
        PartsOrText::Text(format!("(failed without a message: {})", result.status.as_str()).into())
    } else {
        PartsOrText::Text("(no output)".into())
    }
}

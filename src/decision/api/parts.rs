//! The parts of evidence, as both contracts need them.

use super::profile::DecisionProfile;
use crate::decision::{DecisionFailure, DecisionFailureReason};
use crate::provider::media::{document_text, media_type};
use crate::types::{Media, MediaSource, PromptPart};

/// A part that can be sent.
pub(super) enum Part<'a> {
    Text(std::borrow::Cow<'a, str>),
    /// An image with its media type and base64 data.
    Image {
        media_type: &'a str,
        data: &'a str,
    },
    /// An image that the server fetches.
    Url(&'a str),
}

impl Part<'_> {
    /// The image as an address.
    pub(super) fn url(&self) -> Option<String> {
        match self {
            Self::Text(_) => None,
            Self::Image { media_type, data } => Some(format!("data:{media_type};base64,{data}")),
            Self::Url(url) => Some((*url).to_owned()),
        }
    }
}

/// The parts that are not blank.
///
/// # Errors
/// `unsupported`, naming the part that the wire cannot carry.
pub(super) fn parts<'a>(profile: &DecisionProfile, parts: &'a [PromptPart]) -> Result<Vec<Part<'a>>, DecisionFailure> {
    let mut read = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let fault = |what: &str| {
            let message = format!("part {index} of the evidence {what}");
            DecisionFailure::new(DecisionFailureReason::Unsupported, message)
        };
        match part {
            PromptPart::Text { text } if text.trim().is_empty() => {}
            PromptPart::Text { text } => read.push(Part::Text(text.into())),
            PromptPart::Image(media) => read.push(image(profile, media).map_err(fault)?),
            PromptPart::Document(document) => match document_text(document) {
                Some(text) => read.push(Part::Text(text.into())),
                None => return Err(fault("is a document that is no text, which decisions do not take")),
            },
        }
    }
    Ok(read)
}

fn image<'a>(profile: &DecisionProfile, media: &'a Media) -> Result<Part<'a>, &'static str> {
    match &media.source {
        MediaSource::Data(data) => match media_type(media) {
            Some(media_type) if media_type.starts_with("image/") => Ok(Part::Image { media_type, data }),
            _ => Err("is called an image, and its bytes are none"),
        },
        MediaSource::Url(url) if profile.image_urls => Ok(Part::Url(url)),
        MediaSource::Url(_) => Err("is the address of an image, which this wire does not take"),
        MediaSource::Text(_) | MediaSource::Ref(_) => Err("is an image without its bytes"),
    }
}

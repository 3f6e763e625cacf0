use serde::{Deserialize, Serialize};

use super::Extra;

/// Where the bytes of a piece of media are. Serializes as one field of the block that holds it: `data`, `text`,
/// `url` or `ref`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum MediaSource {
    /// Base64 (standard alphabet, padded).
    Data(String),
    /// Plain text, for text documents.
    Text(String),
    /// An address that the provider fetches.
    Url(String),
    /// A key into the host's blob store.
    Ref(String),
}

/// An image, audio or video, with its media type where known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// E.g. `image/png`. When missing or wrong it is read off the bytes before sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The bytes, or where they are.
    #[serde(flatten)]
    pub source: MediaSource,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Media {
    /// Media of a type, from a source.
    #[must_use]
    pub fn new(media_type: Option<String>, source: MediaSource) -> Self {
        Self { media_type, source, extra: Extra::default() }
    }

    /// Media from base64 text.
    pub fn base64(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::new(Some(media_type.into()), MediaSource::Data(data.into()))
    }

    /// Media from raw bytes; they are base64-encoded here, once.
    pub fn bytes(media_type: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        use base64::Engine as _;
        Self::base64(media_type, base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    /// Media that the provider fetches by itself.
    pub fn url(url: impl Into<String>) -> Self {
        Self::new(None, MediaSource::Url(url.into()))
    }
}

/// A document: PDF as base64, or text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// The file name or title, shown to the model where the wire has a place for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The bytes, or where they are.
    #[serde(flatten)]
    pub media: Media,
}

impl Document {
    /// A text document.
    pub fn text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: Some(name.into()), media: Media::new(Some("text/plain".into()), MediaSource::Text(text.into())) }
    }

    /// A PDF from raw bytes.
    pub fn pdf(name: impl Into<String>, bytes: impl AsRef<[u8]>) -> Self {
        Self { name: Some(name.into()), media: Media::bytes("application/pdf", bytes) }
    }
}

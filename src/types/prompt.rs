use serde::{Deserialize, Serialize};

use super::{Document, Media};

/// One block of a multimodal user prompt.
///
/// Documents are routed per provider: PDFs natively where the wire takes them, text inlined with an attachment
/// header. A part that the provider cannot take is a typed error naming its index, before anything is sent or stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(Media),
    /// A document.
    Document(Document),
}

impl PromptPart {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// What the user says: one or more parts. A plain string is one text part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prompt {
    /// The parts, in order. Blank text parts are dropped when the prompt is stored.
    pub parts: Vec<PromptPart>,
}

impl Prompt {
    /// No prompt: the run continues from what the session holds.
    #[must_use]
    pub const fn none() -> Self {
        Self { parts: Vec::new() }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self { parts: vec![PromptPart::text(text)] }
    }
}

impl From<String> for Prompt {
    fn from(text: String) -> Self {
        Self { parts: vec![PromptPart::text(text)] }
    }
}

impl From<&String> for Prompt {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<PromptPart> for Prompt {
    fn from(part: PromptPart) -> Self {
        Self { parts: vec![part] }
    }
}

impl From<Vec<PromptPart>> for Prompt {
    fn from(parts: Vec<PromptPart>) -> Self {
        Self { parts }
    }
}

impl<const N: usize> From<[PromptPart; N]> for Prompt {
    fn from(parts: [PromptPart; N]) -> Self {
        Self { parts: parts.into() }
    }
}

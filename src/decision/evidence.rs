use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::{Document, Media, MediaSource, Prompt, PromptPart};

/// What the questions are about. It is material to judge, sent whole: what a wire cannot carry is refused before
/// anything is sent, and nothing is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionEvidence {
    /// Text.
    Text(String),
    /// A JSON object of related context.
    Json(Value),
    /// Text and images. Documents are taken where they are text, or where the model reads them.
    Parts(Vec<PromptPart>),
}

impl DecisionEvidence {
    /// Size in bytes: text, JSON as it is sent, and media in base64.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Json(value) => json_bytes(value),
            Self::Parts(parts) => parts.iter().map(part_bytes).fold(0, usize::saturating_add),
        }
    }

    /// Whether there is nothing to judge: blank text, an object without fields, no parts but blank ones.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Json(Value::Object(map)) => map.is_empty(),
            Self::Json(value) => value.is_null(),
            Self::Parts(parts) => parts.iter().all(|part| match part {
                PromptPart::Text { text } => text.trim().is_empty(),
                PromptPart::Image(_) | PromptPart::Document(_) => false,
            }),
        }
    }

    /// The images, in order.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Media> {
        let parts = match self {
            Self::Parts(parts) => parts.as_slice(),
            Self::Text(_) | Self::Json(_) => &[],
        };
        parts.iter().filter_map(|part| match part {
            PromptPart::Image(media) => Some(media),
            _ => None,
        })
    }
}

impl From<&str> for DecisionEvidence {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for DecisionEvidence {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for DecisionEvidence {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<Value> for DecisionEvidence {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

impl From<Vec<PromptPart>> for DecisionEvidence {
    fn from(parts: Vec<PromptPart>) -> Self {
        Self::Parts(parts)
    }
}

impl<const N: usize> From<[PromptPart; N]> for DecisionEvidence {
    fn from(parts: [PromptPart; N]) -> Self {
        Self::Parts(parts.into())
    }
}

impl From<Prompt> for DecisionEvidence {
    fn from(prompt: Prompt) -> Self {
        Self::Parts(prompt.parts)
    }
}

/// How large a value is as JSON, without writing it down.
pub(crate) fn json_bytes(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither the values nor the counter can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

fn part_bytes(part: &PromptPart) -> usize {
    match part {
        PromptPart::Text { text } => text.len(),
        PromptPart::Image(media) | PromptPart::Document(Document { media, .. }) => match &media.source {
            MediaSource::Data(text) | MediaSource::Text(text) | MediaSource::Url(text) | MediaSource::Ref(text) => {
                text.len()
            }
        },
    }
}

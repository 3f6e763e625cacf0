use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Extra, Media};

/// A tool's output as it is stored and sent: a string, or a list of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolResultBody {
    /// The common text-only case.
    Text(String),
    /// Structured blocks, in order.
    Blocks(Vec<ToolResultContent>),
}

impl Default for ToolResultBody {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<String> for ToolResultBody {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for ToolResultBody {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<ToolResultContent>> for ToolResultBody {
    fn from(blocks: Vec<ToolResultContent>) -> Self {
        Self::Blocks(blocks)
    }
}

/// A single block of structured tool-result content. A block that this version cannot read is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolResultContent {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(Media),
    /// A sound.
    Audio(Media),
    /// A video.
    Video(Media),
    /// A resource, as MCP servers give them; PDFs and other documents are resources with a blob.
    Resource(Resource),
    /// A stored block that this version cannot read; survives load → save. On a wire its marker (see
    /// [`tool_result_to_text`](super::tool_result_to_text)) stands in for it.
    #[serde(untagged)]
    Unknown(Value),
}

impl ToolResultContent {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A resource inside a tool result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Its address, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Its media type, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// What it holds.
    #[serde(flatten)]
    pub content: ResourceContent,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Resource {
    /// A resource with nothing known but its address and what it holds.
    pub fn new(uri: impl Into<String>, content: ResourceContent) -> Self {
        Self { uri: Some(uri.into()), media_type: None, content, extra: Extra::default() }
    }
}

/// What a [`Resource`] holds. Serializes as one field: `text`, `blob`, `ref`, or `link`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ResourceContent {
    /// Text.
    Text(String),
    /// Base64 bytes.
    Blob(String),
    /// A key into the host's blob store.
    Ref(String),
    /// Only a link, with its name; never fetched by the crate.
    Link(String),
}

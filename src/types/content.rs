use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Document, Extra, Media, ToolOutcome, ToolResultBody, ToolStatus};

/// The API that made a piece of opaque state, and the only one that gets it back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SignatureProducer(Cow<'static, str>);

impl SignatureProducer {
    /// Anthropic Messages.
    pub const ANTHROPIC: Self = Self(Cow::Borrowed("anthropic"));
    /// OpenAI Responses.
    pub const OPENAI_RESPONSES: Self = Self(Cow::Borrowed("openai-responses"));
    /// Gemini.
    pub const GEMINI: Self = Self(Cow::Borrowed("gemini"));

    /// A producer by name; on the Chat wire it is the vendor's name.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Self {
        Self(name.into())
    }

    /// Its name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Opaque state that the producing API wants back with the block it came on, byte for byte.
///
/// Closed: it has no room for unknown fields, what a newer format adds belongs in the block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// Who made it.
    pub producer: SignatureProducer,
    /// The model id that was requested.
    pub model: String,
    /// The state itself.
    pub value: String,
}

/// A text block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextBlock {
    /// The text. Blank text is stored only when it is signed.
    pub text: String,
    /// Opaque state of the producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A block of the model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingBlock {
    /// The reasoning, or its summary; empty when the provider keeps it to itself.
    #[serde(default)]
    pub text: String,
    /// Opaque state of the producer. For a redacted block it is all there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// The provider encrypted the whole block.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A call of a tool, as the model made it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallBlock {
    /// The provider's call id, as given.
    pub id: String,
    /// The canonical tool name, or what the model wrote when there is no such tool.
    pub name: String,
    /// The model's raw argument text, never changed. May be empty or broken JSON.
    #[serde(default)]
    pub arguments: String,
    /// Opaque state of the producer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The answer to a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultBlock {
    /// The call it answers.
    pub call_id: String,
    /// The canonical tool name.
    pub name: String,
    /// The input the tool saw, normalised and as hooks rewrote it. `None` when it never came to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the model reads.
    pub output: ToolResultBody,
    /// Whether the model is told that it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// How it ended.
    pub status: ToolStatus,
    /// What the tool says it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ToolOutcome>,
    /// Structured content that a server sent beside the blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A provider's own block (server tool use and result, compaction, code parts), kept verbatim and in place and sent
/// only to its producer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpaqueBlock {
    /// Who made it.
    pub producer: SignatureProducer,
    /// The model id that was requested.
    pub model: String,
    /// The block as the wire had it.
    pub value: Value,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl OpaqueBlock {
    /// A block of `producer`, made for the model id `model`.
    pub fn new(producer: SignatureProducer, model: impl Into<String>, value: Value) -> Self {
        Self { producer, model: model.into(), value, extra: Extra::default() }
    }
}

/// Content block of a session turn.
///
/// Order is the order streamed; blocks are never merged or regrouped across a signature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SessionContentBlock {
    /// Text.
    Text(TextBlock),
    /// An image from the user.
    Image(Media),
    /// A document from the user.
    Document(Document),
    /// A tool call.
    ToolCall(ToolCallBlock),
    /// A tool call that was cut while it streamed: stored, never sent.
    PartialToolCall(ToolCallBlock),
    /// The answer to a tool call.
    ToolResult(ToolResultBlock),
    /// The model's reasoning.
    Thinking(ThinkingBlock),
    /// A provider's own block.
    Opaque(OpaqueBlock),
    /// A stored block that this version cannot read, of a newer format or broken; survives load → save, never sent.
    #[serde(untagged)]
    Unknown(Value),
}

impl Signature {
    /// State that `producer` made for the model id `model`.
    pub fn new(producer: SignatureProducer, model: impl Into<String>, value: impl Into<String>) -> Self {
        Self { producer, model: model.into(), value: value.into() }
    }
}

impl SessionContentBlock {
    /// An unsigned text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), ..TextBlock::default() })
    }

    /// The text of a text block.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            _ => None,
        }
    }

    /// The call of a complete tool-call block.
    #[must_use]
    pub fn as_tool_call(&self) -> Option<&ToolCallBlock> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The result of a tool-result block.
    #[must_use]
    pub fn as_tool_result(&self) -> Option<&ToolResultBlock> {
        match self {
            Self::ToolResult(result) => Some(result),
            _ => None,
        }
    }
}

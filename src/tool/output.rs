use serde::Serialize;
use serde_json::Value;

use super::ToolError;
use crate::types::{ToolResultBody, ToolResultContent};

/// What a tool gives back.
///
/// Made from text, JSON (sent as compact JSON text; a JSON string as its text), blocks, or `()` for nothing to say.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// What the model reads. May be empty.
    pub body: ToolResultBody,
    /// The model is told that the call failed. The call still ended well: staged state is committed.
    pub is_error: bool,
    /// Structured content beside the body, for hosts. The model does not read it.
    pub structured: Option<Value>,
}

impl ToolOutput {
    /// An error in the answer: the model reads it as a failure, the body's staged writes are kept.
    pub fn error(text: impl Into<String>) -> Self {
        Self { body: ToolResultBody::Text(text.into()), is_error: true, structured: None }
    }

    /// Any value as JSON text.
    ///
    /// # Errors
    /// When the value cannot be JSON (a map with keys that are not text, or a `Serialize` that fails).
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        Ok(serde_json::to_string(value)?.into())
    }

    /// The same output with structured content beside it.
    #[must_use]
    pub fn with_structured(self, value: impl Into<Value>) -> Self {
        Self { structured: Some(value.into()), ..self }
    }
}

impl From<ToolResultBody> for ToolOutput {
    fn from(body: ToolResultBody) -> Self {
        Self { body, is_error: false, structured: None }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        ToolResultBody::Text(text).into()
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => text.into(),
            other => other.to_string().into(),
        }
    }
}

impl From<Vec<ToolResultContent>> for ToolOutput {
    fn from(blocks: Vec<ToolResultContent>) -> Self {
        ToolResultBody::Blocks(blocks).into()
    }
}

impl From<ToolResultContent> for ToolOutput {
    fn from(block: ToolResultContent) -> Self {
        vec![block].into()
    }
}

impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        Self::default()
    }
}

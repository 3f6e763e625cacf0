//! What a request says, in the terms of no wire.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::corpus::Protocol;
use super::{read_anthropic, read_chat, read_gemini, read_responses};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    pub system: String,
    /// By name. Tools that the provider defines or runs have no description and no schema.
    pub tools: BTreeMap<String, Tool>,
    /// Roles alternate: messages of one side in a row are one turn, as every server reads them.
    pub turns: Vec<Turn>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tool {
    pub description: String,
    pub schema: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    pub is_user: bool,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    Media(Media),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Redacted(String),
    /// What the Chat wire calls `reasoning_details`.
    Details(Value),
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    Result {
        id: String,
        content: Vec<Part>,
        is_error: bool,
    },
    /// A block of the provider's own.
    Opaque(Value),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Media {
    /// `image`, `document` or `audio`.
    pub kind: String,
    pub media_type: String,
    /// Base64, or an address.
    pub data: String,
    pub is_url: bool,
}

pub fn read(protocol: Protocol, body: &Value) -> Request {
    match protocol {
        Protocol::Anthropic => read_anthropic::read(body),
        Protocol::Chat => read_chat::read(body),
        Protocol::Responses => read_responses::read(body),
        Protocol::Gemini => read_gemini::read(body),
        Protocol::Left => Request::default(),
    }
}

impl Request {
    pub fn say(&mut self, is_user: bool, parts: impl IntoIterator<Item = Part>) {
        let parts = parts.into_iter().filter(|part| !matches!(part, Part::Text(text) if text.trim().is_empty()));
        match self.turns.last_mut() {
            Some(turn) if turn.is_user == is_user => turn.parts.extend(parts),
            _ => self.turns.push(Turn { is_user, parts: parts.collect() }),
        }
    }
}

impl Turn {
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    pub fn has_results(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Result { .. }))
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `data:image/png;base64,…` or an address.
pub fn media_of_url(kind: &str, url: &str) -> Media {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((media_type, data)) => {
            Media { kind: kind.into(), media_type: media_type.into(), data: data.into(), is_url: false }
        }
        None => Media { kind: kind.into(), media_type: String::new(), data: url.into(), is_url: true },
    }
}

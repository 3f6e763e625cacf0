//! What an answer means, in the terms of no wire.

use std::time::Duration;

use serde_json::Value;
use zidane::provider::ProviderErrorKind;
use zidane::types::TurnFinishReason;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub models: Vec<String>,
    pub blocks: Vec<Block>,
    /// `None`: the wire said nothing.
    pub usage: Option<Usage>,
    pub end: Option<End>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    Text(String),
    /// Text with state that goes back on exactly this text.
    Signed {
        text: String,
        signature: String,
    },
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Redacted(String),
    Call(Call),
    Opaque(Value),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub arguments: Arguments,
    pub signature: Option<String>,
    /// Whether it may be run; `None` where both are right.
    pub complete: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    Json(Value),
    Raw(String),
}

impl Arguments {
    /// Empty text means no arguments, on every wire.
    pub fn parse(text: &str) -> Self {
        if text.trim().is_empty() {
            return Self::Json(Value::Object(serde_json::Map::new()));
        }
        serde_json::from_str(text).map_or_else(|_| Self::Raw(text.to_owned()), Self::Json)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cache_write_1h: u64,
    /// Never more than `output`: some vendors count wrongly.
    pub reasoning: u64,
    pub cost_usd: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Finish { class: TurnFinishReason, raw: Option<String> },
    Error(Failure),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Several where the references leave it open; the reason stands where the list is made.
    pub kinds: Vec<ProviderErrorKind>,
    /// `None` where both are right.
    pub retryable: Option<bool>,
    pub status: Option<u16>,
    pub retry_after: Option<Duration>,
    /// Any of these; none where there is none.
    pub request_ids: Vec<String>,
}

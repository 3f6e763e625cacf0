use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::types::{NanoUsd, SignatureProducer, TokenUsage, TurnFinishReason};

/// One event of a model's answer.
///
/// Blocks are numbered from 0 in the order in which they first appear; numbers are dense, and events of different
/// blocks may interleave.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StreamEvent {
    /// The answer began.
    Start {
        /// The model that answers, as it names itself.
        model: Option<String>,
        /// The provider's id of the response.
        response_id: Option<String>,
    },
    /// What the answer's reasoning is bound to, where the API refuses it after anything else: kept with the turn, and
    /// compared when the turn is sent again.
    PrefixDigest(String),
    /// More text of a text block. The first one opens the block.
    Text {
        /// The block.
        block: u32,
        /// The text.
        delta: String,
    },
    /// More reasoning of a thinking block. The first one, possibly empty, opens the block.
    Thinking {
        /// The block.
        block: u32,
        /// The text.
        delta: String,
    },
    /// A thinking block that the provider encrypted whole.
    RedactedThinking {
        /// The block.
        block: u32,
        /// Who made it.
        producer: SignatureProducer,
        /// The data.
        data: String,
    },
    /// Opaque state for a text, thinking or tool-call block. Replaces an earlier one of the same block.
    Signature {
        /// The block. When it was not opened yet, an empty text block is.
        block: u32,
        /// Who made it.
        producer: SignatureProducer,
        /// The state.
        value: String,
    },
    /// A tool call opens.
    ToolCallStart {
        /// The block.
        block: u32,
        /// The call id; empty when the wire gave none (the loop makes one).
        id: String,
        /// The tool's name as the model wrote it.
        name: String,
    },
    /// More of a call's argument text.
    ToolCallDelta {
        /// The block.
        block: u32,
        /// The text.
        delta: String,
    },
    /// The call is complete. A call without this event is a partial one.
    ToolCallEnd {
        /// The block.
        block: u32,
    },
    /// A block of the provider's own, whole.
    Opaque {
        /// The block.
        block: u32,
        /// Who made it.
        producer: SignatureProducer,
        /// The block as the wire had it.
        value: Value,
    },
    /// Usage so far: a snapshot that replaces the one before.
    Usage(UsageSnapshot),
    /// What the provider says of the end in words, before [`Finish`](Self::Finish): with the class `error` it is the
    /// text of that error.
    FinishMessage(String),
    /// The answer is complete. Nothing follows.
    Finish {
        /// The class.
        reason: TurnFinishReason,
        /// The provider's own word.
        raw: Option<String>,
    },
}

/// Usage as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct UsageSnapshot {
    /// The tokens.
    pub tokens: TokenUsage,
    /// The part of `tokens.cache_write` that is kept for an hour (Anthropic prices it apart).
    pub cache_write_1h: u64,
    /// What the provider itself says it cost.
    pub cost: Option<NanoUsd>,
}

impl UsageSnapshot {
    /// A snapshot of tokens alone.
    #[must_use]
    pub const fn new(tokens: TokenUsage) -> Self {
        Self { tokens, cache_write_1h: 0, cost: None }
    }
}

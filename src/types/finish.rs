use serde::{Deserialize, Serialize};

/// Why the provider stopped the turn. The provider's own string always stands beside it
/// ([`TurnUsage::raw_finish_reason`](super::TurnUsage::raw_finish_reason)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TurnFinishReason {
    /// The model ended its turn, or hit a stop sequence.
    Stop,
    /// The model asked for tools.
    ToolCalls,
    /// The output limit or the context window was reached; the partial answer is kept.
    Length,
    /// The model, or a filter of the provider, refused.
    ContentFilter,
    /// The provider paused a long turn on its side; the loop continues it.
    Pause,
    /// The provider classified the turn as failed.
    Error,
    /// Anything this version does not know. Never treated as success of a kind it is not.
    #[serde(other)]
    Other,
}

impl TurnFinishReason {
    /// The serialized name, e.g. `tool-calls`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool-calls",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::Pause => "pause",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}

impl std::fmt::Display for TurnFinishReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

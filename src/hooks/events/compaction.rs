use serde::{Deserialize, Serialize};

use super::{context, marker};
use crate::types::{SessionTurn, TurnUsage};

/// Why a conversation is compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionReason {
    /// It has reached the threshold.
    Threshold,
    /// The provider refused it as too long.
    Overflow,
    /// The host asked for it.
    Manual,
}

impl CompactionReason {
    /// The name used in text and events, e.g. `threshold`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
            Self::Manual => "manual",
        }
    }
}

marker! {
    /// `history:replaced`: a summary stands in for the older turns of the conversation from now on.
    HistoryReplaced
}
context! {
    /// Context of [`HistoryReplaced`].
    HistoryReplacedCx {
        reason: CompactionReason,
        summary: &'a SessionTurn,
        through: &'a str,
        before: u64,
        after: u64,
        usage: &'a TurnUsage,
    }
}
impl HistoryReplacedCx<'_> {
    /// Why.
    #[must_use]
    pub const fn reason(&self) -> CompactionReason {
        self.reason
    }

    /// The turn that stands in.
    #[must_use]
    pub const fn summary(&self) -> &SessionTurn {
        self.summary
    }

    /// The id of the last turn that it stands in for.
    #[must_use]
    pub const fn through(&self) -> &str {
        self.through
    }

    /// Size of the conversation before, in tokens: as last reported, the rest estimated.
    #[must_use]
    pub const fn tokens_before(&self) -> u64 {
        self.before
    }

    /// Size of the conversation now, in tokens; an estimate.
    #[must_use]
    pub const fn tokens_after(&self) -> u64 {
        self.after
    }

    /// What the summary used.
    #[must_use]
    pub const fn usage(&self) -> &TurnUsage {
        self.usage
    }
}

marker! {
    /// `compaction:failed`: a conversation was to be compacted and was not; it is as it was.
    CompactionFailed
}
context! {
    /// Context of [`CompactionFailed`].
    CompactionFailedCx { reason: CompactionReason, error: &'a str, usage: Option<&'a TurnUsage> }
}
impl CompactionFailedCx<'_> {
    /// Why it was to be compacted.
    #[must_use]
    pub const fn reason(&self) -> CompactionReason {
        self.reason
    }

    /// Why it was not.
    #[must_use]
    pub const fn error(&self) -> &str {
        self.error
    }

    /// What was used for nothing; `None` when no model was asked.
    #[must_use]
    pub const fn usage(&self) -> Option<&TurnUsage> {
        self.usage
    }
}

use serde::{Deserialize, Serialize};

/// What a mutating tool says it did, through `ToolContext::report_outcome`. The last report wins.
///
/// Advisory: never inferred from text, never terminal, and `Failed` beside an `Ok` body does not make the result an
/// error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ToolOutcome {
    /// A new resource was written.
    Created,
    /// An existing resource changed.
    Updated,
    /// An in-place change applied at least one replacement.
    Edited,
    /// The call succeeded and changed nothing.
    Noop,
    /// The mutation was attempted and did not take effect.
    Failed,
    /// A newer format's: something was reported, this version cannot say what.
    #[serde(other)]
    Unknown,
}

impl ToolOutcome {
    /// The serialized name, e.g. `created`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Edited => "edited",
            Self::Noop => "noop",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}

/// How a tool call ended, set by the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolStatus {
    /// The body ran and returned `Ok` (an in-band error included).
    Ok,
    /// The body returned `Err` or panicked.
    Error,
    /// A gate, or a gate that failed, blocked it. It did not run.
    Blocked,
    /// Its arguments did not parse or did not match the schema. It did not run.
    Invalid,
    /// No tool has that name. It did not run.
    UnknownTool,
    /// Steering arrived and the host asked to skip what had not started. It did not run.
    Skipped,
    /// The run ended before it started. It did not run.
    NotStarted,
    /// It was cut by an abort, a timeout or a crash: it may or may not have taken effect.
    Interrupted,
    /// A newer format's. Nothing is known about whether it took effect; what the model was told stands in
    /// [`ToolResultBlock::is_error`](super::ToolResultBlock::is_error).
    #[serde(other)]
    Unknown,
}

impl ToolStatus {
    /// Whether the model is told that the call failed.
    #[must_use]
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Ok)
    }

    /// The serialized name, e.g. `not_started`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Blocked => "blocked",
            Self::Invalid => "invalid",
            Self::UnknownTool => "unknown_tool",
            Self::Skipped => "skipped",
            Self::NotStarted => "not_started",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

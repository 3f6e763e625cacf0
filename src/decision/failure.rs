use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::types::DecisionUsage;

/// Why a decision produced no answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionFailureReason {
    /// Decisions are disabled, no provider can make them, the credential is missing, or the model is not known. Nothing
    /// was sent.
    Unavailable,
    /// The provider rejected the credential: 401, 403.
    Auth,
    /// The input cannot be expressed on this provider's wire: images, a kind of question.
    Unsupported,
    /// It took longer than we allow.
    Timeout,
    /// The caller or the run was cancelled.
    Aborted,
    /// Too much for now: 429, 529. A spend cap has its code, and no time after which to try again.
    RateLimited,
    /// Out of money: 402.
    Quota,
    /// The request failed validation, limits included, or the response was malformed or incomplete.
    Invalid,
    /// Anything else: other 5xx, 408, 504, the network.
    Error,
}

impl DecisionFailureReason {
    /// All nine.
    pub const ALL: [Self; 9] = [
        Self::Unavailable,
        Self::Auth,
        Self::Unsupported,
        Self::Timeout,
        Self::Aborted,
        Self::RateLimited,
        Self::Quota,
        Self::Invalid,
        Self::Error,
    ];

    /// The name used in text and events, e.g. `rate_limited`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Auth => "auth",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::Aborted => "aborted",
            Self::RateLimited => "rate_limited",
            Self::Quota => "quota",
            Self::Invalid => "invalid",
            Self::Error => "error",
        }
    }
}

impl std::fmt::Display for DecisionFailureReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a decision produced no answers, with what a host needs to go on. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[error("{reason}: {message}")]
pub struct DecisionFailure {
    /// Why.
    pub reason: DecisionFailureReason,
    /// In words: what, and where. Names the question where it is about one.
    pub message: String,
    /// The provider's own code or type.
    pub code: Option<String>,
    /// The HTTP status, when there was one.
    pub http_status: Option<u16>,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// Whether a request may have reached a provider, and so may be billed.
    pub sent: bool,
    /// What was used all the same, one entry for each provider that was asked and said so.
    pub usage: Vec<DecisionUsage>,
}

impl DecisionFailure {
    /// A failure for a reason; nothing was sent.
    pub fn new(reason: DecisionFailureReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            code: None,
            http_status: None,
            retry_after: None,
            sent: false,
            usage: Vec::new(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(DecisionFailureReason::Invalid, message)
    }
}

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What kind of failure a provider had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The credential was missing or refused (401, 403, and what vendors send instead).
    Auth,
    /// Money or a hard allowance ran out: waiting does not help (402, spend caps, `insufficient_quota`).
    Quota,
    /// Too many requests or tokens for now (429).
    RateLimited,
    /// The provider sheds load (529, 503, `overloaded_error`).
    Overloaded,
    /// The conversation does not fit the model's context window.
    ContextOverflow,
    /// The request was refused as it stands (400, 404, 413, 422), or would be: nothing to retry.
    Invalid,
    /// The input cannot be expressed on this wire. Found before anything was sent.
    Unsupported,
    /// Connect, first byte or idle time ran out, ours or theirs (408, 504).
    Timeout,
    /// The caller aborted.
    Aborted,
    /// The stream ended before the protocol's own terminal event.
    TruncatedStream,
    /// The answer is not what the protocol says.
    Protocol,
    /// The provider failed (500, 502, in-stream server errors).
    Server,
    /// The connection failed.
    Transport,
}

impl ProviderErrorKind {
    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::Timeout
                | Self::TruncatedStream
                | Self::Server
                | Self::Transport
        )
    }

    /// The name used in text and events, e.g. `rate_limited`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::ContextOverflow => "context_overflow",
            Self::Invalid => "invalid",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::Aborted => "aborted",
            Self::TruncatedStream => "truncated_stream",
            Self::Protocol => "protocol",
            Self::Server => "server",
            Self::Transport => "transport",
        }
    }
}

impl std::fmt::Display for ProviderErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed request, with what a host needs to decide and never a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[error("{provider}: {kind}{}: {message}", self.status_text())]
pub struct ProviderError {
    /// What kind of failure.
    pub kind: ProviderErrorKind,
    /// The provider's id.
    pub provider: String,
    /// The HTTP status, when there was one.
    pub status: Option<u16>,
    /// The provider's own code or type, e.g. `overloaded_error`.
    pub code: Option<String>,
    /// What went wrong, in words.
    pub message: String,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
    /// The server's word on whether to retry (`x-should-retry`, details in the body); wins over the kind.
    pub should_retry: Option<bool>,
    /// The provider's request id.
    pub request_id: Option<String>,
    /// The start of the body, for what could not be parsed.
    pub body_excerpt: Option<String>,
}

impl ProviderError {
    /// An error of a kind, with its text.
    pub fn new(kind: ProviderErrorKind, provider: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind,
            provider: provider.into(),
            status: None,
            code: None,
            message: message.into(),
            retry_after: None,
            should_retry: None,
            request_id: None,
            body_excerpt: None,
        }
    }

    /// Whether the same request may succeed later: the server's word, else the kind's.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.should_retry.unwrap_or_else(|| self.kind.is_retryable())
    }

    /// Whether the API refuses reasoning of an earlier turn: its signature does not fit the conversation, the account
    /// or the model.
    #[must_use]
    pub fn refuses_reasoning(&self) -> bool {
        // Texts of the vendors, 2026: Anthropic, OpenAI, Google.
        const TEXTS: [&str; 7] = [
            "invalid `signature` in `thinking`",
            "bound to a different conversation",
            "blocks in the latest assistant message cannot be modified",
            "invalid_encrypted_content",
            "encrypted content could not be",
            "thought signature is not valid",
            "corrupted thought signature",
        ];
        let holds = |text: &str| TEXTS.iter().any(|known| text.to_ascii_lowercase().contains(known));
        self.kind == ProviderErrorKind::Invalid && (holds(&self.message) || self.code.as_deref().is_some_and(holds))
    }

    fn status_text(&self) -> String {
        match (self.status, &self.code) {
            (Some(status), Some(code)) => format!(" ({status}, {code})"),
            (Some(status), None) => format!(" ({status})"),
            (None, Some(code)) => format!(" ({code})"),
            (None, None) => String::new(),
        }
    }
}

//! How an answer ended.

use super::profile::ResponsesProfile;
use crate::provider::openai_error;
use crate::provider::{ProviderError, ProviderErrorKind};
use crate::types::TurnFinishReason;

/// What the terminal status of a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Completed,
    Incomplete,
    Failed,
    Cancelled,
    /// In the background: not finished.
    Pending,
}

impl Status {
    /// A status word, or the end of a terminal event's name.
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "completed" => Self::Completed,
            "incomplete" => Self::Incomplete,
            "failed" => Self::Failed,
            "cancelled" | "canceled" => Self::Cancelled,
            "queued" | "in_progress" => Self::Pending,
            _ => return None,
        })
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Pending => "in_progress",
        }
    }
}

/// What an answer holds that its class depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// A complete call of a client-side tool.
    pub(super) calls: bool,
    pub(super) refusal: bool,
    /// A hosted tool waits for an approval.
    pub(super) approval: bool,
}

/// The class of an answer that did not fail. There is no status for calls: they are seen in the output.
pub(super) fn class(status: Status, reason: &str, seen: Seen) -> TurnFinishReason {
    match status {
        Status::Completed if seen.refusal => TurnFinishReason::ContentFilter,
        Status::Completed if seen.calls => TurnFinishReason::ToolCalls,
        Status::Completed if seen.approval => TurnFinishReason::Pause,
        Status::Completed => TurnFinishReason::Stop,
        Status::Pending => TurnFinishReason::Pause,
        Status::Incomplete => match reason.to_ascii_lowercase().as_str() {
            "max_output_tokens" | "max_tokens" | "max_messages" | "length" => TurnFinishReason::Length,
            "content_filter" => TurnFinishReason::ContentFilter,
            "steered" => TurnFinishReason::Pause,
            _ => TurnFinishReason::Other,
        },
        Status::Failed | Status::Cancelled => TurnFinishReason::Error,
    }
}

/// Codes by which a policy ended the answer: nothing failed, and another try ends the same way.
const POLICY_CODES: [&str; 5] = [
    "bio_policy",
    "misalignment_policy_violation",
    "image_content_policy_violation",
    "content_filter",
    "content_policy_violation",
];

/// How a response that says that it failed ended.
#[derive(Debug)]
pub(super) enum Failure {
    /// A policy stopped it; the code.
    Policy(String),
    Error(ProviderError),
}

/// Reads the error of a stream: an `error` event, or the error object of a failed response.
pub(super) fn failure(profile: &ResponsesProfile, json: &str) -> Failure {
    let mut error = openai_error::from_stream(profile, json);
    match &error.code {
        Some(code) if POLICY_CODES.contains(&code.as_str()) => return Failure::Policy(code.clone()),
        // Of the codes that are left only these are worth another try; the others name what is wrong with the request.
        Some(code)
            if error.kind == ProviderErrorKind::Server
                && error.status.is_none()
                && !matches!(
                    code.as_str(),
                    "server_error" | "internal_error" | "internal_server_error" | "processing_error" | "api_error"
                ) =>
        {
            error.kind = ProviderErrorKind::Invalid;
        }
        _ => {}
    }
    Failure::Error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_decides_what_completed_means() {
        use TurnFinishReason as R;
        let calls = Seen { calls: true, ..Seen::default() };
        let refusal = Seen { refusal: true, ..calls };
        let approval = Seen { approval: true, ..Seen::default() };
        assert_eq!(class(Status::Completed, "", Seen::default()), R::Stop);
        assert_eq!(class(Status::Completed, "", calls), R::ToolCalls);
        assert_eq!(class(Status::Completed, "", refusal), R::ContentFilter);
        assert_eq!(class(Status::Completed, "", approval), R::Pause);
        assert_eq!(class(Status::Incomplete, "max_output_tokens", calls), R::Length);
        assert_eq!(class(Status::Incomplete, "content_filter", calls), R::ContentFilter);
        assert_eq!(class(Status::Incomplete, "dancing", calls), R::Other);
        assert_eq!(class(Status::Incomplete, "", calls), R::Other);
        assert_eq!(class(Status::Pending, "", Seen::default()), R::Pause);
    }

    #[test]
    fn codes_of_a_failed_response_say_whether_to_try_again() {
        use ProviderErrorKind as Kind;
        let kind =
            |code: &str| match failure(&ResponsesProfile::openai(), &format!(r#"{{"code":"{code}","message":"m"}}"#)) {
                Failure::Error(error) => Some(error.kind),
                Failure::Policy(_) => None,
            };
        for (code, expected) in [
            ("server_error", Kind::Server),
            ("rate_limit_exceeded", Kind::RateLimited),
            ("insufficient_quota", Kind::Quota),
            ("context_length_exceeded", Kind::ContextOverflow),
            ("server_is_overloaded", Kind::Overloaded),
            ("invalid_prompt", Kind::Invalid),
            ("vector_store_timeout", Kind::Invalid),
            ("image_too_large", Kind::Invalid),
        ] {
            assert_eq!(kind(code), Some(expected), "{code}");
        }
        assert_eq!(kind("bio_policy"), None);
        let nothing = failure(&ResponsesProfile::openai(), "null");
        assert!(matches!(nothing, Failure::Error(error) if error.kind == Kind::Server));
    }
}

//! From what went wrong to one of the nine reasons.

use super::{DecisionFailure, DecisionFailureReason};
use crate::provider::{ProviderError, ProviderErrorKind};

/// The reason that a status stands for.
pub(super) const fn reason_of_status(status: u16) -> DecisionFailureReason {
    match status {
        401 | 403 => DecisionFailureReason::Auth,
        402 => DecisionFailureReason::Quota,
        429 | 529 => DecisionFailureReason::RateLimited,
        // The request is at fault, its size and its model included.
        400 | 404 | 405 | 411 | 413 | 414 | 415 | 422 | 431 => DecisionFailureReason::Invalid,
        _ => DecisionFailureReason::Error,
    }
}

/// The failure that an error of a provider is.
pub(super) fn failure(error: ProviderError) -> DecisionFailure {
    let reason = match (error.kind, error.status) {
        // Some vendors answer 400 to a bad key.
        (ProviderErrorKind::Auth, Some(400 | 404)) => DecisionFailureReason::Auth,
        (ProviderErrorKind::Unsupported, _) => DecisionFailureReason::Unsupported,
        (ProviderErrorKind::Aborted, _) => DecisionFailureReason::Aborted,
        // The status was fine and the body was not.
        (ProviderErrorKind::Protocol | ProviderErrorKind::TruncatedStream, Some(200..=299) | None) => {
            DecisionFailureReason::Invalid
        }
        (ProviderErrorKind::Timeout, Some(200..=299) | None) => DecisionFailureReason::Timeout,
        (_, Some(status)) if status >= 300 => reason_of_status(status),
        (ProviderErrorKind::Auth, None) => DecisionFailureReason::Unavailable,
        (ProviderErrorKind::Auth, _) => DecisionFailureReason::Auth,
        (ProviderErrorKind::Quota, _) => DecisionFailureReason::Quota,
        (ProviderErrorKind::RateLimited | ProviderErrorKind::Overloaded, _) => DecisionFailureReason::RateLimited,
        (ProviderErrorKind::ContextOverflow | ProviderErrorKind::Invalid, _) => DecisionFailureReason::Invalid,
        _ => DecisionFailureReason::Error,
    };
    // Waiting does not lift a spend cap, whatever the header says.
    let capped = error.kind == ProviderErrorKind::Quota;
    DecisionFailure {
        code: error.code,
        http_status: error.status,
        retry_after: error.retry_after.filter(|_| !capped),
        ..DecisionFailure::new(reason, error.message)
    }
}

/// Whether an error was found before anything was sent.
pub(super) fn is_unsent(error: &ProviderError) -> bool {
    use ProviderErrorKind::{Auth, Invalid, Unsupported};
    error.status.is_none() && matches!(error.kind, Auth | Invalid | Unsupported)
}

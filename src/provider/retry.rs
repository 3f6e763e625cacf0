use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use super::ProviderError;

/// When and how failed requests are made again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Requests made again after the first. Default 3; 0 never retries.
    pub max_retries: u32,
    /// The longest random delay before the first retry; doubles with each. Default 1 s.
    pub base_delay: Duration,
    /// What the doubling stops at. Default 16 s.
    pub max_delay: Duration,
    /// The longest delay of a server's asking that is waited for. It is never shortened: a longer one ends the run
    /// with the error that carries it. Default 60 s.
    pub max_server_delay: Duration,
    /// Retry too when part of the answer has already been streamed: `stream:reset` tells that it is void. Default
    /// false.
    pub after_output: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(16),
            max_server_delay: Duration::from_secs(60),
            after_output: false,
        }
    }
}

impl RetryPolicy {
    /// Never retries.
    #[must_use]
    pub fn never() -> Self {
        Self { max_retries: 0, ..Self::default() }
    }

    /// Sets the number of retries.
    #[must_use]
    pub const fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the longest random delay before the first retry.
    #[must_use]
    pub const fn base_delay(mut self, delay: Duration) -> Self {
        self.base_delay = delay;
        self
    }

    /// Sets the longest server's delay that is waited for.
    #[must_use]
    pub const fn max_server_delay(mut self, delay: Duration) -> Self {
        self.max_server_delay = delay;
        self
    }

    /// Sets whether a half-streamed answer is asked for again.
    #[must_use]
    pub const fn after_output(mut self, retry: bool) -> Self {
        self.after_output = retry;
        self
    }

    /// How long to wait after attempt `attempt` (from 1) failed; `None` when it is not made again.
    ///
    /// A server's delay is taken as it is; otherwise the delay is random between zero and the doubled base.
    #[must_use]
    pub fn delay(&self, attempt: u32, error: &ProviderError, output: bool) -> Option<Duration> {
        if attempt > self.max_retries || !error.is_retryable() || (output && !self.after_output) {
            return None;
        }
        if let Some(asked) = error.retry_after {
            return (asked <= self.max_server_delay).then_some(asked);
        }
        let doubled = self.base_delay.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
        Some(doubled.min(self.max_delay).mul_f64(random_fraction()))
    }
}

/// A number in `[0, 1)`; the standard library seeds each `RandomState` anew.
#[allow(clippy::cast_precision_loss)]
fn random_fraction() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ProviderErrorKind;

    fn error(kind: ProviderErrorKind) -> ProviderError {
        ProviderError::new(kind, "test", "x")
    }

    #[test]
    fn backs_off_at_random_within_a_doubling_bound() {
        let policy = RetryPolicy::default();
        for attempt in 1..=3 {
            let bound = Duration::from_secs(1 << (attempt - 1));
            for _ in 0..50 {
                let delay = policy.delay(attempt, &error(ProviderErrorKind::Server), false).unwrap();
                assert!(delay <= bound, "attempt {attempt}: {delay:?}");
            }
        }
        assert_eq!(policy.delay(4, &error(ProviderErrorKind::Server), false), None);
    }

    #[test]
    fn never_shortens_a_servers_delay() {
        let policy = RetryPolicy::default();
        let mut limited = error(ProviderErrorKind::RateLimited);
        limited.retry_after = Some(Duration::from_secs(59));
        assert_eq!(policy.delay(1, &limited, false), Some(Duration::from_secs(59)));
        limited.retry_after = Some(Duration::from_secs(61));
        assert_eq!(policy.delay(1, &limited, false), None);
    }

    #[test]
    fn a_servers_word_wins_over_the_kind() {
        let policy = RetryPolicy::default();
        let mut server = error(ProviderErrorKind::Server);
        server.should_retry = Some(false);
        assert_eq!(policy.delay(1, &server, false), None);
        let mut invalid = error(ProviderErrorKind::Invalid);
        assert_eq!(policy.delay(1, &invalid, false), None);
        invalid.should_retry = Some(true);
        assert!(policy.delay(1, &invalid, false).is_some());
    }

    #[test]
    fn a_half_streamed_answer_is_asked_for_again_only_on_request() {
        let cut = error(ProviderErrorKind::TruncatedStream);
        assert_eq!(RetryPolicy::default().delay(1, &cut, true), None);
        assert!(RetryPolicy::default().after_output(true).delay(1, &cut, true).is_some());
    }
}

use std::time::Duration;

use super::{context, marker};
use crate::provider::ProviderError;

marker! {
    /// `attempt:start`: a request is about to be made, or made again. Live only.
    AttemptStart
}
context! {
    /// Context of [`AttemptStart`].
    AttemptStartCx { attempt: u32, provider: &'a str, model: &'a str }
}
impl AttemptStartCx<'_> {
    /// 1 for the first try.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The provider's id.
    #[must_use]
    pub const fn provider(&self) -> &str {
        self.provider
    }

    /// The model asked for.
    #[must_use]
    pub const fn model(&self) -> &str {
        self.model
    }
}

marker! {
    /// `attempt:failed`: a request failed. Live only.
    AttemptFailed
}
context! {
    /// Context of [`AttemptFailed`].
    AttemptFailedCx { attempt: u32, error: &'a ProviderError, delay: Option<Duration> }
}
impl AttemptFailedCx<'_> {
    /// 1 for the first try.
    #[must_use]
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Why.
    #[must_use]
    pub const fn error(&self) -> &ProviderError {
        self.error
    }

    /// How long until the next try; `None` when there is none.
    #[must_use]
    pub const fn delay(&self) -> Option<Duration> {
        self.delay
    }
}

marker! {
    /// `provider:request`: a request goes out. Live only, told when the response's head is there.
    ProviderRequest
}
context! {
    /// Context of [`ProviderRequest`].
    ProviderRequestCx { url: &'a str, headers: &'a [(String, String)], body_bytes: usize }
}
impl ProviderRequestCx<'_> {
    /// The address, without query.
    #[must_use]
    pub const fn url(&self) -> &str {
        self.url
    }

    /// The headers; secret values are `***`.
    #[must_use]
    pub const fn headers(&self) -> &[(String, String)] {
        self.headers
    }

    /// Size of the body in bytes.
    #[must_use]
    pub const fn body_bytes(&self) -> usize {
        self.body_bytes
    }
}

marker! {
    /// `provider:response`: the head of a response arrived. Live only.
    ProviderResponse
}
context! {
    /// Context of [`ProviderResponse`].
    ProviderResponseCx { status: u16, request_id: Option<&'a str>, elapsed: Duration }
}
impl ProviderResponseCx<'_> {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The provider's request id.
    #[must_use]
    pub const fn request_id(&self) -> Option<&str> {
        self.request_id
    }

    /// Time from sending to the head.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

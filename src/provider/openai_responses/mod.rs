//! OpenAI Responses, and everything that speaks it.
//!
//! [`OpenAi`] is the provider. What differs between vendors is data: a [`ResponsesProfile`].
//!
//! ```no_run
//! use zidane::provider::openai_responses::{OpenAi, ResponsesProfile};
//!
//! let openai = OpenAi::from_env()?;
//! let grok = OpenAi::builder().profile(ResponsesProfile::xai()).build()?;
//! let local = OpenAi::compatible("http://localhost:8000/v1")?;
//! # Ok::<(), zidane::provider::ProviderError>(())
//! ```
//!
//! Nothing is kept at the vendor: every request holds the whole conversation, says `store: false` and asks for the
//! model's reasoning in encrypted form, which goes back as it came. On a change of model reasoning and item ids are left
//! out. The wire has no stop sequences; those of a request are not sent.
//!
//! Hosted tools are declared by [`RequestHead::extra`](crate::provider::RequestHead::extra). Their items, and whatever
//! else is new in an answer, are kept in place as opaque blocks and sent back. Items that wait for the host, such as a
//! client-side tool search, a shell command or a request for approval, go back only together with their answer: an
//! opaque block in the same or in the next turn.

mod builder;
mod conversation;
mod events;
mod finish;
mod host_items;
mod items;
mod output;
mod profile;
mod request;
mod state;
mod stream;
mod usage;
mod vendors;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;

pub use builder::OpenAiBuilder;
pub use profile::ResponsesProfile;

use self::stream::ResponsesDecoder;
use super::http::Http;
use super::names::{NameRule, NameTable};
use super::response::RawResponse;
use super::{Capabilities, ModelRequest, Provider, ProviderError, ProviderStream, RequestContext, Resume, wire};
use crate::types::{SessionContentBlock, SessionTurn};

/// A model behind the Responses wire.
///
/// A clone shares everything. Dropping a request or its stream closes the connection.
#[derive(Clone)]
pub struct OpenAi {
    profile: Arc<ResponsesProfile>,
    http: Http,
    url: Url,
    headers: HeaderMap,
    /// Stands for the profile in kept request bodies.
    wire: Arc<str>,
}

impl OpenAi {
    /// OpenAI with the key of `OPENAI_API_KEY`, at the address of `OPENAI_BASE_URL` if that is set.
    ///
    /// # Errors
    /// `Auth` without a key, `Invalid` with an address that is none.
    pub fn from_env() -> Result<Self, ProviderError> {
        let mut builder = Self::builder();
        if let Some(url) = std::env::var("OPENAI_BASE_URL").ok().filter(|url| !url.trim().is_empty()) {
            builder = builder.base_url(url);
        }
        builder.build()
    }

    /// Builds a provider; without a profile it is OpenAI.
    pub fn builder() -> OpenAiBuilder {
        OpenAiBuilder::new()
    }

    /// A server that needs no key, e.g. a local one.
    ///
    /// # Errors
    /// `Invalid` with an address that is none.
    pub fn compatible(base_url: impl Into<String>) -> Result<Self, ProviderError> {
        Self::builder().profile(ResponsesProfile::custom(base_url.into())).build()
    }

    /// The vendor's profile.
    #[must_use]
    pub fn profile(&self) -> &ResponsesProfile {
        &self.profile
    }

    /// The body that a request is sent with, without sending it. Takes from the request's body cache what is there, and
    /// leaves in it what the conversation's next request can take.
    ///
    /// # Errors
    /// `Unsupported`, naming turn and block, for what this wire cannot say of the last turn; `Invalid` for more tools than
    /// it takes.
    pub fn encode(&self, request: &ModelRequest) -> Result<Bytes, ProviderError> {
        request::body(&self.profile, &self.wire, request)
    }

    /// Decodes a recorded response, without a network. `model` is the one that was asked for.
    ///
    /// # Errors
    /// None yet; errors of the response come through the stream.
    pub fn decode(&self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        let _ = model;
        let decoder = ResponsesDecoder::new(Arc::clone(&self.profile), NameTable::default());
        Ok(wire::decode(&self.http.origin, self.http.options.max_event_bytes, response, decoder))
    }
}

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAi").field("id", &self.profile.id).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for OpenAi {
    fn id(&self) -> &str {
        &self.profile.id
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        self.profile.capabilities(model)
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let body = request::body(&self.profile, &self.wire, &request)?;
        let response = self.http.post(&self.url, &self.headers, body, cx).await?;
        let names = NameTable::new(&request.head, NameRule::PORTABLE);
        let decoder = ResponsesDecoder::new(Arc::clone(&self.profile), names).limited(request.head.max_tokens);
        wire::open(&self.http.origin, self.http.options.max_event_bytes, response, decoder).await
    }

    fn resume(&self, turn: &SessionTurn) -> Resume {
        if host_items::waits(turn, &self.profile.producer()) { Resume::Host } else { Resume::UserText }
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        self.profile.accepts(model).check(content)
    }
}

#[cfg(test)]
mod tests;

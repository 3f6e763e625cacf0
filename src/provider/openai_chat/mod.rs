//! OpenAI Chat Completions, and everything that speaks it.
//!
//! [`OpenAiChat`] is the provider. What differs between vendors is data: a [`ChatProfile`].
//!
//! ```no_run
//! use zidane::provider::openai_chat::{ChatProfile, OpenAiChat};
//!
//! let openai = OpenAiChat::from_env()?;
//! let groq = OpenAiChat::builder().profile(ChatProfile::groq()).build()?;
//! let local = OpenAiChat::compatible("http://localhost:8000/v1")?;
//! # Ok::<(), zidane::provider::ProviderError>(())
//! ```
//!
//! Reasoning becomes thinking blocks wherever a vendor puts it in a field. `<think>` tags inside the text stay text:
//! they cannot be told from a model writing about them.

mod builder;
mod calls;
mod chunk;
mod details;
mod error;
mod fast;
mod finish;
mod json_scan;
mod lenient;
mod messages;
mod parts;
mod profile;
mod request;
mod stream;
mod thinking;
mod usage;
mod vendors;

use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::HeaderMap;

pub use builder::OpenAiChatBuilder;
pub use profile::{
    CallIds, ChatProfile, DocumentStyle, KeyHeader, MaxTokensField, Models, ReasoningEcho, ReasoningField, SystemRole,
    ToolChoiceSupport, UsageStyle,
};
pub use thinking::{Effort, ThinkingRule, ThinkingSwitch};

use self::parts::Accepts;
use self::profile::DocumentStyle as Documents;
use self::stream::ChatDecoder;
use super::http::{Http, RawResponse};
use super::names::{NameRule, NameTable};
use super::{Capabilities, ModelRequest, Provider, ProviderError, ProviderStream, RequestContext, wire};
use crate::types::SessionContentBlock;

/// A model behind the Chat Completions wire.
///
/// A clone shares everything. Dropping a request or its stream closes the connection.
#[derive(Clone)]
pub struct OpenAiChat {
    profile: Arc<ChatProfile>,
    http: Http,
    url: Url,
    headers: HeaderMap,
    /// Stands for the profile in kept request bodies.
    wire: Arc<str>,
}

impl OpenAiChat {
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
    pub fn builder() -> OpenAiChatBuilder {
        OpenAiChatBuilder::new()
    }

    /// A server that needs no key, e.g. a local one.
    ///
    /// # Errors
    /// `Invalid` with an address that is none.
    pub fn compatible(base_url: impl Into<String>) -> Result<Self, ProviderError> {
        Self::builder().profile(ChatProfile::custom(base_url.into())).build()
    }

    /// The vendor's profile.
    #[must_use]
    pub fn profile(&self) -> &ChatProfile {
        &self.profile
    }

    /// Decodes a recorded response, without a network. `model` is the one that was asked for.
    ///
    /// # Errors
    /// None yet; errors of the response come through the stream.
    pub fn decode(&self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        let _ = model;
        let decoder = self.decoder(NameTable::default(), &response);
        Ok(wire::decode(&self.http.origin, self.http.options.max_event_bytes, response, decoder))
    }

    fn decoder(&self, names: NameTable, response: &RawResponse) -> ChatDecoder {
        ChatDecoder::new(Arc::clone(&self.profile), names, response.header("retry-after").is_some())
    }
}

impl std::fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiChat").field("id", &self.profile.id).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for OpenAiChat {
    fn id(&self) -> &str {
        &self.profile.id
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        let images = self.profile.images.contains(model);
        Capabilities {
            images,
            documents: self.profile.documents != Documents::Unsupported,
            images_in_tool_results: images && self.profile.images_in_tool_results,
            documents_in_tool_results: false,
            thinking: self.profile.thinking.iter().any(|rule| profile::matches(&rule.models, model)),
            decisions: false,
            native_structured_output: self.profile.structured_output,
        }
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let body = request::body(&self.profile, &self.wire, &request)?;
        let response = self.http.post(&self.url, &self.headers, body, cx).await?;
        let decoder = self.decoder(NameTable::new(&request.head, NameRule::PORTABLE), &response);
        wire::open(&self.http.origin, self.http.options.max_event_bytes, response, decoder).await
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        let accepts = Accepts::new(&self.profile, model);
        content.iter().enumerate().try_for_each(|(index, block)| match accepts.part(block) {
            Ok(_) => Ok(()),
            Err(refused) => Err(accepts.unsupported(&format!("part {index}"), &refused)),
        })
    }
}

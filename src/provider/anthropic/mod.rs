//! The Anthropic Messages wire, which other vendors speak as well.
//!
//! In goes a [`ModelRequest`], encoded append-only; out comes the answer, streamed or whole. What a model family takes
//! is data in `models`. Facts: the vendor's reference and SDK of 2026-11, and recorded traffic.

mod blocks;
mod call_ids;
mod error;
mod events;
mod fields;
mod models;
mod request;
mod schema;
mod server_calls;
mod stream;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::HeaderMap;

use self::models::family;
use self::request::Encoded;
use self::stream::MessageDecoder;
use super::http::Http;
use super::names::{NameRule, NameTable};
use super::{
    Capabilities, HttpOptions, ModelRequest, Provider, ProviderError, ProviderErrorKind, ProviderStream, RawResponse,
    RequestContext, Resume, Secret, wire,
};
use crate::types::{SessionContentBlock, SessionTurn, SignatureProducer};

const DEFAULT_ID: &str = "anthropic";
const DEFAULT_BASE_URL: &str = "https://api.anthropic.com";
/// Newer versions only take things away (sampling parameters, documents in assistant messages); this one works
/// everywhere, compatible endpoints included.
const DEFAULT_VERSION: &str = "2023-06-01";
const VERSION_WITH_SAMPLING: &str = DEFAULT_VERSION;

/// Claude by the Messages API, and every endpoint that speaks it.
///
/// Cloning is cheap. Nothing is sent, and no TLS is set up, before the first request.
///
/// The models of the 5.1 generation and later bind their reasoning to the system text, the tools and all messages
/// before it, and the API refuses it after anything else. Each answer's turn keeps a digest of these; once one differs, the
/// reasoning up to that turn is left out. To have the API itself leave out exactly what it must, send
/// `thinking.block_binding` as a request field, with the beta header that it needs.
///
/// ```no_run
/// use zidane::provider::Anthropic;
///
/// let claude = Anthropic::from_env()?;
/// let local = Anthropic::builder().id("llamacpp").base_url("http://127.0.0.1:8080").build()?;
/// # Ok::<(), zidane::provider::ProviderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    wire: Wire,
    http: Http,
    url: reqwest::Url,
    headers: HeaderMap,
}

/// What besides the request decides how it is encoded and its answer read.
#[derive(Clone, Debug)]
struct Wire {
    id: Arc<str>,
    producer: SignatureProducer,
    /// The API version still takes sampling parameters, where the model does.
    sampling: bool,
}

impl Wire {
    fn new(id: &str, version: &str) -> Self {
        let producer =
            if id == DEFAULT_ID { SignatureProducer::ANTHROPIC } else { SignatureProducer::new(id.to_owned()) };
        Self { id: id.into(), producer, sampling: version == VERSION_WITH_SAMPLING }
    }

    fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(kind, &*self.id, message)
    }
}

/// Settings of an [`Anthropic`] provider.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct AnthropicBuilder {
    id: Option<String>,
    api_key: Option<Secret>,
    bearer: Option<Secret>,
    base_url: Option<String>,
    version: Option<String>,
    http: HttpOptions,
}

impl Anthropic {
    /// The first-party API with a key.
    ///
    /// # Errors
    /// `Auth` for a blank key; `Invalid` for one that cannot be a header.
    pub fn new(api_key: impl Into<Secret>) -> Result<Self, ProviderError> {
        let key = api_key.into();
        if key.is_empty() {
            return Err(ProviderError::new(ProviderErrorKind::Auth, DEFAULT_ID, "the API key is blank"));
        }
        Self::builder().api_key(key).build()
    }

    /// Reads `ANTHROPIC_API_KEY`, or `ANTHROPIC_AUTH_TOKEN` for a bearer token, and `ANTHROPIC_BASE_URL` if it is set.
    ///
    /// # Errors
    /// `Auth` when neither key is set; `Invalid` for an address that is none.
    pub fn from_env() -> Result<Self, ProviderError> {
        let var = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let builder = match (var("ANTHROPIC_API_KEY"), var("ANTHROPIC_AUTH_TOKEN")) {
            (Some(key), _) => Self::builder().api_key(key),
            (None, Some(token)) => Self::builder().bearer(token),
            (None, None) => {
                let message = "neither ANTHROPIC_API_KEY nor ANTHROPIC_AUTH_TOKEN is set";
                return Err(ProviderError::new(ProviderErrorKind::Auth, DEFAULT_ID, message));
            }
        };
        match var("ANTHROPIC_BASE_URL") {
            Some(url) => builder.base_url(url).build(),
            None => builder.build(),
        }
    }

    /// Starts from defaults: the first-party address, no key.
    pub fn builder() -> AnthropicBuilder {
        AnthropicBuilder::default()
    }

    /// The body that a request is sent with, without sending it. Takes from the request's body cache what is there, and
    /// leaves in it what the conversation's next request can take.
    ///
    /// # Errors
    /// `Unsupported`, naming turn and block, for what this wire cannot say of the last turn.
    pub fn encode(&self, request: &ModelRequest) -> Result<Bytes, ProviderError> {
        request::encode(&self.inner.wire, request).map(|encoded| encoded.bytes)
    }

    /// Decodes a response that was got elsewhere or recorded, without a network. Only the names of the error and of
    /// opaque state depend on this provider's settings.
    ///
    /// # Errors
    /// None today; what the response says, a failed status included, comes through the stream.
    pub fn decode(&self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        let _ = model;
        let decoder = MessageDecoder::new(self.inner.wire.clone(), NameTable::default());
        Ok(wire::decode(&self.inner.http.origin, self.inner.http.options.max_event_bytes, response, decoder))
    }
}

impl AnthropicBuilder {
    /// The name under which usage, errors and opaque state are filed. Default `anthropic`.
    ///
    /// Give another vendor's endpoint its own: signed reasoning is sent back only to the name it came from.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The key, sent as `x-api-key`.
    pub fn api_key(mut self, key: impl Into<Secret>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// A token, sent as `authorization: Bearer`, in place of a key.
    pub fn bearer(mut self, token: impl Into<Secret>) -> Self {
        self.bearer = Some(token.into());
        self
    }

    /// The address to which `/v1/messages` is added; with a trailing `/v1`, only `/messages`.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The value of `anthropic-version`. Default `2023-06-01`, the one that every endpoint takes.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The HTTP client. See [`HttpOptions::client`].
    pub fn client(mut self, client: reqwest::Client) -> Self {
        self.http.client = Some(client);
        self
    }

    /// One more header, e.g. `anthropic-beta`. Treated as a secret unless its name is known to hold none.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.http.headers.push((name.into(), value.into()));
        self
    }

    /// Timeouts and limits; replaces client and headers set before.
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Checks the settings. Does no I/O.
    ///
    /// # Errors
    /// `Invalid` when the address is none, or when a key or header cannot be sent by HTTP.
    pub fn build(self) -> Result<Anthropic, ProviderError> {
        let id = self.id.as_deref().unwrap_or(DEFAULT_ID);
        let version = self.version.as_deref().unwrap_or(DEFAULT_VERSION);
        let key = self.api_key.as_ref().or(self.bearer.as_ref()).filter(|key| !key.is_empty());
        let http = Http::new(id, self.http, key);
        let bearer = self.bearer.as_ref().map(|token| Secret::new(format!("Bearer {}", token.expose())));
        let version_value = Secret::from(version);
        let mut headers = vec![("anthropic-version", &version_value)];
        match (&key, &self.api_key, &bearer) {
            (Some(key), Some(_), _) => headers.push(("x-api-key", key)),
            (Some(_), None, Some(bearer)) => headers.push(("authorization", bearer)),
            _ => {}
        }
        let base = self.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL).trim().trim_end_matches('/');
        let path = if base.ends_with("/v1") { "messages" } else { "v1/messages" };
        let url = http.url(&format!("{base}/{path}"))?;
        let headers = http.headers(&headers)?;
        Ok(Anthropic { inner: Arc::new(Inner { wire: Wire::new(id, version), http, url, headers }) })
    }
}

#[async_trait]
impl Provider for Anthropic {
    fn id(&self) -> &str {
        &self.inner.wire.id
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        family(model).capabilities()
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let Inner { wire: settings, http, url, headers } = &*self.inner;
        let Encoded { bytes, digest } = request::encode(settings, &request)?;
        let response = http.post(url, headers, bytes, cx).await?;
        let names = NameTable::new(&request.head, NameRule::PORTABLE);
        let decoder = MessageDecoder::new(settings.clone(), names).bound(digest);
        wire::open(&http.origin, http.options.max_event_bytes, response, decoder).await
    }

    fn resume(&self, turn: &SessionTurn) -> Resume {
        let compacted = turn.usage.as_ref().and_then(|usage| usage.raw_finish_reason.as_deref()) == Some("compaction");
        let waiting = server_calls::has_unanswered(turn, &self.inner.wire.producer);
        if compacted || waiting { Resume::AsIs } else { Resume::UserText }
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        request::check(&self.inner.wire, family(model), content)
    }
}

#[cfg(test)]
mod tests;

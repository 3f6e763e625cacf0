//! The Gemini wire: `streamGenerateContent` of the Gemini API, and of Vertex.
//!
//! In goes a [`ModelRequest`], encoded append-only; out comes the answer, streamed or whole. What a model takes is read
//! off its id in `models`. Facts: the vendor's SDK and pages of 2026-11, and recorded traffic.

mod arguments;
mod chunk;
mod contents;
mod error;
mod fast;
mod finish;
mod models;
mod parts;
mod request;
mod results;
mod schema;
mod stream;
mod usage;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::header::HeaderMap;

use self::models::family;
use self::stream::ContentDecoder;
use super::http::Http;
use super::limits::{MediaLimits, RequestLimits, base64_length};
use super::names::{NameRule, NameTable};
use super::{
    Capabilities, HttpOptions, ModelRequest, Provider, ProviderError, ProviderErrorKind, ProviderStream, RawResponse,
    RequestContext, Resume, Secret, wire,
};
use crate::types::{SessionContentBlock, SessionTurn, SignatureProducer};

const DEFAULT_ID: &str = "gemini";
const VERTEX_ID: &str = "vertex";
const DEFAULT_BASE_URL: &str = "https://generativelanguage.googleapis.com";
const DEFAULT_VERSION: &str = "v1beta";
/// The field of a request and of a candidate that takes a long answer up again; also the only field of the block that
/// keeps it in the paused turn.
const TOKEN: &str = "continuationToken";

/// Gemini by its native API, with a key, and on Vertex.
///
/// Cloning is cheap. Nothing is sent, and no TLS is set up, before the first request.
///
/// The fields `generationConfig` and `toolConfig` of [`extra`](super::RequestHead::extra) are merged into what the wire
/// sends, field by field; all others replace it.
///
/// ```no_run
/// use zidane::provider::Gemini;
///
/// let gemini = Gemini::from_env()?;
/// let vertex = Gemini::builder()
///     .base_url("https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google")
///     .bearer("token")
///     .build()?;
/// # Ok::<(), zidane::provider::ProviderError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gemini {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    wire: Wire,
    http: Http,
    /// The address up to and without `/models`.
    base: reqwest::Url,
    headers: HeaderMap,
}

/// What besides the request decides how it is encoded and its answer read.
#[derive(Clone, Debug)]
struct Wire {
    id: Arc<str>,
    producer: SignatureProducer,
    media: MediaLimits,
    request_media: RequestLimits,
}

/// A request of the Gemini API may have 100 MB, and a PDF 50. Source: the vendor's pages, 2026-09.
const MEDIA: MediaLimits =
    MediaLimits { image: Some(base64_length(100 << 20)), side: None, document: Some(base64_length(50 << 20)) };
/// Vertex takes 7 MB of one part that is sent inline. Source: the vendor's pages, 2026.
const VERTEX_MEDIA: MediaLimits =
    MediaLimits { image: Some(base64_length(7 << 20)), side: None, document: Some(base64_length(7 << 20)) };
/// Of all media of a request, which may have 100 MB with its text. Source: the vendor's pages, 2025 and 2026-09.
const REQUEST_MEDIA: RequestLimits = RequestLimits { images: Some(3_600), many: None, bytes: Some(98 << 20) };
/// Source: the vendor's pages, 2026.
const VERTEX_REQUEST_MEDIA: RequestLimits = RequestLimits { images: Some(3_000), ..REQUEST_MEDIA };
/// Function declarations of a request. Source: the vendor's SDK, 2026-11.
const MAX_TOOLS: usize = 512;

impl Wire {
    fn new(id: &str) -> Self {
        let producer = if id == DEFAULT_ID { SignatureProducer::GEMINI } else { SignatureProducer::new(id.to_owned()) };
        Self { id: id.into(), producer, media: MEDIA, request_media: REQUEST_MEDIA }
    }

    fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(kind, &*self.id, message)
    }
}

/// Settings of a [`Gemini`] provider.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct GeminiBuilder {
    id: Option<String>,
    api_key: Option<Secret>,
    bearer: Option<Secret>,
    base_url: Option<String>,
    http: HttpOptions,
}

impl Gemini {
    /// The Gemini API with a key.
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

    /// Reads `GEMINI_API_KEY`, else `GOOGLE_API_KEY`.
    ///
    /// # Errors
    /// `Auth` when neither is set; `Invalid` for a key that cannot be a header.
    pub fn from_env() -> Result<Self, ProviderError> {
        let key = ["GEMINI_API_KEY", "GOOGLE_API_KEY"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()));
        match key {
            Some(key) => Self::new(key),
            None => {
                let message = "neither GEMINI_API_KEY nor GOOGLE_API_KEY is set";
                Err(ProviderError::new(ProviderErrorKind::Auth, DEFAULT_ID, message))
            }
        }
    }

    /// Starts from defaults: the Gemini API's address, no key.
    pub fn builder() -> GeminiBuilder {
        GeminiBuilder::default()
    }

    /// The body that a request is sent with, without sending it. Takes from the request's body cache what is there, and
    /// leaves in it what the conversation's next request can take.
    ///
    /// # Errors
    /// `Unsupported`, naming turn and block, for what this wire cannot say of the last turn; `Invalid` for more tools than
    /// it takes.
    pub fn encode(&self, request: &ModelRequest) -> Result<Bytes, ProviderError> {
        request::encode(&self.inner.wire, request)
    }

    /// Decodes a response that was got elsewhere or recorded, without a network. Only the names of the error and of
    /// opaque state depend on this provider's settings.
    ///
    /// # Errors
    /// None today; what the response says, a failed status included, comes through the stream.
    pub fn decode(&self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        let _ = model;
        let decoder = ContentDecoder::new(self.inner.wire.clone(), NameTable::default());
        Ok(wire::decode(&self.inner.http.origin, self.inner.http.options.max_event_bytes, response, decoder))
    }
}

impl Inner {
    fn url(&self, model: &str) -> Result<reqwest::Url, ProviderError> {
        let invalid = |what: &str| self.wire.error(ProviderErrorKind::Invalid, what);
        let model = model.trim().trim_matches('/');
        if model.is_empty() {
            return Err(invalid("no model was named"));
        }
        let mut url = self.base.clone();
        {
            let mut path = url.path_segments_mut().map_err(|()| invalid("the base URL is not an http(s) address"))?;
            path.pop_if_empty();
            // `models/x` and `tunedModels/x` are names too.
            if !model.contains('/') {
                path.push("models");
            }
            path.extend(format!("{model}:streamGenerateContent").split('/'));
        }
        url.set_query(Some("alt=sse"));
        Ok(url)
    }
}

impl GeminiBuilder {
    /// The name under which usage, errors and opaque state are filed. Default `gemini`, or `vertex` at an address of
    /// Vertex: signed parts are sent back only to the name they came from, and the two take only their own.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The key, sent as `x-goog-api-key` and never in the address.
    pub fn api_key(mut self, key: impl Into<Secret>) -> Self {
        self.api_key = Some(key.into());
        self
    }

    /// An OAuth token, sent as `authorization: Bearer`, in place of a key.
    pub fn bearer(mut self, token: impl Into<Secret>) -> Self {
        self.bearer = Some(token.into());
        self
    }

    /// The address to which `/models/…` is added. `/v1beta` goes before it unless the address names a version.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// The HTTP client. See [`HttpOptions::client`].
    pub fn client(mut self, client: reqwest::Client) -> Self {
        self.http.client = Some(client);
        self
    }

    /// One more header. Treated as a secret unless its name is known to hold none.
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
    pub fn build(self) -> Result<Gemini, ProviderError> {
        let base = self.base_url.as_deref().unwrap_or(DEFAULT_BASE_URL).trim();
        let host = base.split_once("://").map_or(base, |(_, rest)| rest).split('/').next().unwrap_or_default();
        let vertex = host.contains("aiplatform");
        let default_id = if vertex { VERTEX_ID } else { DEFAULT_ID };
        let (media, request_media) = if vertex { (VERTEX_MEDIA, VERTEX_REQUEST_MEDIA) } else { (MEDIA, REQUEST_MEDIA) };
        let id = self.id.as_deref().unwrap_or(default_id);
        let key = self.api_key.as_ref().or(self.bearer.as_ref()).filter(|key| !key.is_empty());
        let http = Http::new(id, self.http, key);
        let bearer = self.bearer.as_ref().map(|token| Secret::new(format!("Bearer {}", token.expose())));
        let mut headers = Vec::new();
        match (&key, &self.api_key, &bearer) {
            (Some(key), Some(_), _) => headers.push(("x-goog-api-key", *key)),
            (Some(_), None, Some(bearer)) => headers.push(("authorization", bearer)),
            _ => {}
        }
        let mut base = http.url(base)?;
        base.set_query(None);
        base.set_fragment(None);
        let versioned = base.path_segments().into_iter().flatten().any(is_version);
        if let (false, Ok(mut path)) = (versioned, base.path_segments_mut()) {
            path.pop_if_empty().push(DEFAULT_VERSION);
        }
        let headers = http.headers(&headers)?;
        Ok(Gemini {
            inner: Arc::new(Inner { wire: Wire { media, request_media, ..Wire::new(id) }, http, base, headers }),
        })
    }
}

/// `v1`, `v1beta`, `v1beta1`.
fn is_version(segment: &str) -> bool {
    let digit = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    segment.strip_prefix('v').is_some_and(digit) && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[async_trait]
impl Provider for Gemini {
    fn id(&self) -> &str {
        &self.inner.wire.id
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        family(model).capabilities()
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let Inner { wire: settings, http, headers, .. } = &*self.inner;
        let url = self.inner.url(&request.head.model)?;
        let body = request::encode(settings, &request)?;
        let response = http.post(&url, headers, body, cx).await?;
        let names = NameTable::new(&request.head, NameRule::GEMINI);
        let decoder = ContentDecoder::new(settings.clone(), names);
        wire::open(&http.origin, http.options.max_event_bytes, response, decoder).await
    }

    fn resume(&self, turn: &SessionTurn) -> Resume {
        let token = contents::token(&self.inner.wire, turn.content.iter());
        if token.is_some() { Resume::Token } else { Resume::UserText }
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        request::check(&self.inner.wire, model, content)
    }
}

#[cfg(test)]
mod tests;

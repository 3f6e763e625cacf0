//! Servers that make decisions: one request, one body of answers, over HTTP.

mod answer;
mod distribution;
mod openai;
mod parts;
mod profile;
mod system_one;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::status::failure;
use super::{
    DecisionCall, DecisionFailure, DecisionFailureReason, DecisionLimits, DecisionProvider, DecisionReply,
    DecisionRequest,
};
use crate::provider::http::{Http, HttpOptions};
use crate::provider::openai_error::{ErrorSource, from_body};
use crate::provider::response::{RawResponse, is_html};
use crate::provider::{ProviderError, ProviderErrorKind, RequestContext, Secret, UsageSnapshot};
use crate::types::{NanoUsd, TokenUsage};

pub use profile::{DecisionContract, DecisionImages, DecisionProfile};

/// Bytes of an answer that are read: 400 questions with 255 options each take less.
const MAX_BODY: usize = 16 << 20;

/// Codes of a limit that waiting does not lift, beside those that all wires know: Cloudflare's of the day.
const CAPS: [&str; 1] = ["3036"];

/// Decisions of a server that makes them, by its profile.
///
/// ```no_run
/// use zidane::decision::{Decider, DecisionApi, DecisionProfile, Question};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let openai = DecisionApi::builder(DecisionProfile::openai()).build()?;
/// let local = DecisionApi::builder(DecisionProfile::llama_cpp()).model("any").build()?;
/// let decider = Decider::new(openai).fallback(local);
/// let answers = decider.decide("Parcel 88 arrived soaked.", [Question::bool("damage", "Is it damaged?")]).await?;
/// println!("{:?}", answers.get("damage"));
/// # Ok(()) }
/// ```
///
/// A clone shares everything. Dropping a request closes its connection.
#[derive(Clone)]
pub struct DecisionApi {
    inner: Arc<Inner>,
}

struct Inner {
    profile: DecisionProfile,
    model: String,
    http: Http,
    url: Url,
    headers: HeaderMap,
    /// The same with what opts in to images.
    image_headers: HeaderMap,
    has_key: bool,
}

/// Builds a [`DecisionApi`].
#[derive(Clone, Debug)]
pub struct DecisionApiBuilder {
    profile: DecisionProfile,
    model: Option<String>,
    key: Option<Secret>,
    http: HttpOptions,
}

impl DecisionApi {
    /// Builds one for a server.
    pub fn builder(profile: DecisionProfile) -> DecisionApiBuilder {
        DecisionApiBuilder { profile, model: None, key: None, http: HttpOptions::default() }
    }

    /// The server's profile.
    #[must_use]
    pub fn profile(&self) -> &DecisionProfile {
        &self.inner.profile
    }

    /// The body that a request is sent with, without sending it.
    ///
    /// # Errors
    /// `unsupported`, naming the part of the evidence that this wire cannot carry.
    pub fn encode(&self, request: &DecisionRequest) -> Result<Bytes, DecisionFailure> {
        let Inner { profile, model, .. } = &*self.inner;
        let encoded = match profile.contract {
            DecisionContract::OpenAi => openai::encode(profile, model, request),
            DecisionContract::SystemOne => system_one::encode(profile, model, request),
        };
        match encoded? {
            Ok(body) => Ok(body.into()),
            Err(error) => Err(DecisionFailure::invalid(format!("the request is no JSON: {error}"))),
        }
    }

    async fn send(&self, request: &DecisionRequest, body: Bytes) -> Result<RawResponse, ProviderError> {
        let Inner { http, url, headers, image_headers, .. } = &*self.inner;
        let headers = if request.evidence.images().next().is_some() { image_headers } else { headers };
        let cx = RequestContext { attempt: 1, ..RequestContext::default() };
        http.post(url, headers, body, &cx).await
    }

    /// The whole body of an answer.
    async fn body(&self, response: &mut RawResponse) -> Result<Vec<u8>, ProviderError> {
        let http = &self.inner.http;
        let most = MAX_BODY.min(http.options.max_event_bytes);
        let mut body = Vec::new();
        while let Some(chunk) = response.body.next().await {
            let chunk = chunk?;
            if body.len().saturating_add(chunk.len()) > most {
                let message = format!("the response exceeds {most} bytes");
                return Err(http.origin.error(ProviderErrorKind::Protocol, message));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn malformed(&self, message: impl Into<String>, response: &RawResponse) -> DecisionFailure {
        self.fails(self.inner.http.origin.error(ProviderErrorKind::Protocol, message), response)
    }

    /// The failure of an error that came with a response.
    fn fails(&self, mut error: ProviderError, response: &RawResponse) -> DecisionFailure {
        response.annotate(&mut error);
        if error.code.as_deref().is_some_and(|code| CAPS.contains(&code)) {
            error.kind = ProviderErrorKind::Quota;
        }
        let error = self.inner.http.origin.scrub(error);
        // llama.cpp says so when the model sees nothing.
        let blind = error.status == Some(501) && error.message.to_ascii_lowercase().contains("image");
        let mut failure = failure(error);
        if blind {
            failure.reason = DecisionFailureReason::Unsupported;
        }
        failure
    }

    /// The error that a body tells of.
    fn told(&self, status: Option<u16>, body: &[u8]) -> ProviderError {
        let source = ErrorSource { provider: &self.inner.profile.id, overflow_texts: &[] };
        let mut error = from_body(source, status, body);
        error.code = error.code.or_else(|| code(body));
        error
    }

    async fn refused(&self, mut response: RawResponse) -> DecisionFailure {
        let status = response.status;
        if (300..400).contains(&status) {
            let message = "redirected to another host, which is not followed";
            return self.malformed(message, &response);
        }
        let body = response.read_error_body().await;
        let mut error = self.told(Some(status), &body);
        error.status = Some(status);
        self.fails(error, &response)
    }

    fn read(
        &self,
        request: &DecisionRequest,
        call: &DecisionCall,
        response: &RawResponse,
        body: &[u8],
    ) -> Result<DecisionReply, DecisionFailure> {
        let Inner { profile, model, .. } = &*self.inner;
        let parsed: Value = match serde_json::from_slice(body) {
            Ok(parsed) => parsed,
            Err(_) if is_html(body) => return Err(self.malformed("the response is a web page", response)),
            Err(error) => return Err(self.malformed(format!("the response is not valid JSON: {error}"), response)),
        };
        let Some(object) = answer_object(&parsed) else {
            // A refusal can come with any status.
            let told = match parsed.get("error").or_else(|| parsed.get("errors")).or_else(|| parsed.get("detail")) {
                Some(Value::Null) | None => return Err(self.malformed("the response has no answers", response)),
                Some(_) => self.told(None, body),
            };
            return Err(self.fails(told, response));
        };
        let model_id = object.get("model").and_then(Value::as_str).filter(|id| !id.is_empty()).map(ToOwned::to_owned);
        // Before anything is made of the answers: bad ones are billed too.
        if let Some(usage) = object.get("usage").or_else(|| parsed.get("usage")).and_then(usage) {
            if profile.free_output {
                call.used_with_free_output(&profile.id, model, model_id.as_deref(), &usage);
            } else {
                call.used(&profile.id, model, model_id.as_deref(), &usage);
            }
        }
        let decoded = match profile.contract {
            DecisionContract::OpenAi => openai::decode(&request.questions, object),
            DecisionContract::SystemOne => system_one::decode(&request.questions, object),
        };
        match decoded {
            Ok(answers) => Ok(DecisionReply::new(answers, model_id)),
            Err(fault) => Err(self.malformed(format!("the answers do not fit: {fault}"), response)),
        }
    }
}

#[async_trait]
impl DecisionProvider for DecisionApi {
    fn id(&self) -> &str {
        &self.inner.profile.id
    }

    fn model(&self) -> &str {
        &self.inner.model
    }

    fn limits(&self) -> DecisionLimits {
        self.inner.profile.checked_limits()
    }

    async fn ask(&self, request: &DecisionRequest, call: &DecisionCall) -> Result<DecisionReply, DecisionFailure> {
        let Inner { profile, has_key, .. } = &*self.inner;
        if profile.key_required && !has_key {
            let name = profile.key_var.as_deref().unwrap_or("the key");
            let message = format!("no API key: {name} is not set");
            return Err(DecisionFailure::new(DecisionFailureReason::Unavailable, message));
        }
        let body = self.encode(request)?;
        call.sending();
        let mut response = self.send(request, body).await.map_err(failure)?;
        if !response.is_success() {
            return Err(self.refused(response).await);
        }
        match self.body(&mut response).await {
            Ok(body) => self.read(request, call, &response, &body),
            Err(error) => Err(self.fails(error, &response)),
        }
    }
}

impl fmt::Debug for DecisionApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionApi")
            .field("id", &self.inner.profile.id)
            .field("model", &self.inner.model)
            .finish_non_exhaustive()
    }
}

impl DecisionApiBuilder {
    /// The model. Default: the profile's.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// The key. Default: what the profile's environment variable holds.
    #[must_use]
    pub fn api_key(mut self, key: impl Into<Secret>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The address without the profile's path. Default: the profile's.
    #[must_use]
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.profile.base_url = url.into().into();
        self
    }

    /// Adds a header to every request. Its value is treated as a secret.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Secret>) -> Self {
        self.http.headers.push((name.into(), value.into()));
        self
    }

    /// Timeouts, client and headers, all at once.
    #[must_use]
    pub fn http(mut self, options: HttpOptions) -> Self {
        self.http = options;
        self
    }

    /// Builds it. Nothing is sent. Without a key where one is needed, every decision is `unavailable`.
    ///
    /// # Errors
    /// `Invalid` when there is no model, or the address or a header is none.
    pub fn build(self) -> Result<DecisionApi, ProviderError> {
        let Self { profile, model, key, http } = self;
        let model = model.unwrap_or_else(|| profile.model.clone().into_owned());
        if model.trim().is_empty() {
            let message = "decisions need a model: `.model(..)`";
            return Err(ProviderError::new(ProviderErrorKind::Invalid, &*profile.id, message));
        }
        let from_env = || profile.key_var.as_deref().and_then(|name| std::env::var(name).ok()).map(Secret::new);
        let key = key.or_else(from_env).filter(|key| !key.is_empty());
        let http = Http::new(&profile.id, http, key.as_ref());
        let mut url = http.url(profile.base_url.trim())?;
        let path = format!("{}/{}", url.path().trim_end_matches('/'), profile.path.trim_start_matches('/'));
        url.set_path(&path);
        let has_key = key.is_some();
        let header = key.map(|key| match &*profile.key_header {
            "authorization" => Secret::new(format!("Bearer {}", key.expose())),
            _ => key,
        });
        let headers: Vec<_> = header.iter().map(|value| (&*profile.key_header, value)).collect();
        let headers = http.headers(&headers)?;
        let mut image_headers = headers.clone();
        if let Some((name, value)) = &profile.image_header
            && let (Ok(name), Ok(value)) = (HeaderName::try_from(&**name), HeaderValue::try_from(&**value))
        {
            image_headers.insert(name, value);
        }
        Ok(DecisionApi { inner: Arc::new(Inner { profile, model, http, url, headers, image_headers, has_key }) })
    }
}

/// The object with the answers: the whole, or what Cloudflare and Databricks wrap it in.
fn answer_object(body: &Value) -> Option<&Map<String, Value>> {
    [Some(body), body.get("result"), body.get("response")]
        .into_iter()
        .flatten()
        .filter_map(Value::as_object)
        .find(|object| object.contains_key("answers"))
}

/// The code of an error in a shape that only decision servers have: TypeSafe's, Cloudflare's.
fn code(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let code = body.pointer("/detail/error_type").or_else(|| body.pointer("/errors/0/code"))?;
    match code {
        Value::String(code) => Some(code.clone()),
        Value::Number(code) => Some(code.to_string()),
        _ => None,
    }
}

/// Usage in either contract. OpenAI counts what is cached within the input.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn usage(usage: &Value) -> Option<UsageSnapshot> {
    // Some servers count in fractions.
    let count = |path: &str| {
        let value = usage.pointer(path)?;
        value.as_u64().or_else(|| Some(value.as_f64().filter(|count| *count >= 0.0)?.round() as u64))
    };
    let whole = count("/input_tokens");
    let cache_read = count("/input_tokens_details/cached_tokens").or_else(|| count("/cached_input_tokens"));
    let cache_write = count("/input_tokens_details/cache_write_tokens");
    let (cache_read, cache_write) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0));
    let mut snapshot = UsageSnapshot::new(TokenUsage {
        input: whole.unwrap_or(0).saturating_sub(cache_read).saturating_sub(cache_write),
        output: count("/output_tokens").unwrap_or(0),
        cache_read,
        cache_write,
        reasoning: count("/output_tokens_details/reasoning_tokens"),
    });
    let cost = usage.get("cost").and_then(Value::as_f64).filter(|cost| cost.is_finite() && *cost >= 0.0);
    snapshot.cost = cost.map(NanoUsd::from_usd);
    (whole.is_some() || snapshot.cost.is_some()).then_some(snapshot)
}

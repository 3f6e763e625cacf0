//! The HTTP that the wires share: one client, timeouts, headers, and what a response looks like to a decoder.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use reqwest::redirect::Policy;
use tokio::time::{Instant, Sleep};

use super::link::{self, LinkBody, LinkError};
use super::{ProviderError, ProviderErrorKind, ReaderAway, RequestContext, Secret, WireRequest, WireResponse};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const MAX_ERROR_BODY: usize = 1024 * 1024;
const EXCERPT_BYTES: usize = 512;
const AGENT: &str = concat!("zidane/", env!("CARGO_PKG_VERSION"));

/// A response as the network gave it, before anything is decoded.
pub struct RawResponse {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it arrives. Its errors are final.
    pub body: BoxStream<'static, Result<Bytes, ProviderError>>,
}

impl RawResponse {
    /// A response. Headers that HTTP refuses are left out.
    pub fn new(
        status: u16,
        headers: impl IntoIterator<Item = (String, String)>,
        body: BoxStream<'static, Result<Bytes, ProviderError>>,
    ) -> Self {
        let header = |(name, value)| Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?));
        Self { status, headers: headers.into_iter().filter_map(header).collect(), body }
    }

    /// A recorded response, its body in the chunks given.
    pub fn recorded(
        status: u16,
        headers: Vec<(String, String)>,
        chunks: impl IntoIterator<Item = Bytes, IntoIter: Send + 'static>,
    ) -> Self {
        Self::new(status, headers, stream::iter(chunks.into_iter().map(Ok)).boxed())
    }

    /// The first header of a name, case-insensitively, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(crate) fn request_id(&self) -> Option<&str> {
        ["request-id", "x-request-id", "x-amzn-requestid", "apim-request-id", "cf-ray"]
            .iter()
            .find_map(|name| self.header(name))
            .filter(|id| !id.is_empty())
    }

    /// Adds to an error what only the head of the response says. What the error already has stays.
    pub(crate) fn annotate(&self, error: &mut ProviderError) {
        error.status.get_or_insert(self.status);
        if error.retry_after.is_none() {
            error.retry_after = retry_after(&self.headers);
        }
        match self.header("x-should-retry").map(str::trim) {
            Some(word) if word.eq_ignore_ascii_case("true") => error.should_retry = Some(true),
            Some(word) if word.eq_ignore_ascii_case("false") => error.should_retry = Some(false),
            // A conflict is over the next time, and "too early" is over soon; their kinds alone would not say so.
            _ if matches!(self.status, 409 | 425) => error.should_retry = error.should_retry.or(Some(true)),
            _ => {}
        }
        if error.request_id.is_none() {
            error.request_id = self.request_id().map(str::to_owned);
        }
    }

    /// Reads the body of a failed request, up to 1 MiB. What breaks on the way ends it.
    pub(crate) async fn read_error_body(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(Ok(chunk)) = self.body.next().await {
            let room = MAX_ERROR_BODY.saturating_sub(bytes.len());
            bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            if bytes.len() >= MAX_ERROR_BODY {
                break;
            }
        }
        bytes
    }
}

impl fmt::Debug for RawResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawResponse")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// How a provider speaks HTTP.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpOptions {
    /// The client to use. Default: one that all providers of the process share, with a connect timeout of 10 s,
    /// `TCP_NODELAY`, and redirects followed only within the same host.
    ///
    /// An injected client keeps its own redirect policy; reqwest's default one carries key headers other than
    /// `authorization` to other hosts, so give it `redirect::Policy::none()`.
    pub client: Option<reqwest::Client>,
    /// How long to wait for the head of the response, connecting included. Default 120 s.
    pub first_byte_timeout: Duration,
    /// How long a body may stay silent while somebody waits for it. Default 120 s. There is no limit on the whole.
    pub idle_timeout: Duration,
    /// The limit of one server-sent event and of a body that is not a stream, in bytes. Default 64 MiB.
    pub max_event_bytes: usize,
    /// Further headers. They win over those of the wire.
    pub headers: Vec<(String, Secret)>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            client: None,
            first_byte_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(120),
            max_event_bytes: super::sse::DEFAULT_MAX_EVENT_BYTES,
            headers: Vec::new(),
        }
    }
}

/// Who is spoken to, and what must not be repeated of it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) provider: Arc<str>,
    secrets: Arc<[Secret]>,
}

impl Origin {
    pub(crate) fn new(provider: &str, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self { provider: provider.into(), secrets: secrets.into_iter().filter(|secret| !secret.is_empty()).collect() }
    }

    pub(crate) fn error(&self, kind: ProviderErrorKind, message: impl Into<String>) -> ProviderError {
        ProviderError::new(kind, &*self.provider, message)
    }

    /// Removes secrets that a server echoed.
    pub(crate) fn scrub(&self, mut error: ProviderError) -> ProviderError {
        for secret in self.secrets.iter() {
            secret.scrub(&mut error.message);
            for text in [&mut error.code, &mut error.body_excerpt, &mut error.request_id].into_iter().flatten() {
                secret.scrub(text);
            }
        }
        error
    }
}

/// One endpoint of a provider, ready to be posted to.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    pub(crate) origin: Origin,
    pub(crate) options: HttpOptions,
}

impl Http {
    /// The secrets are the key and the values of the options' headers.
    pub(crate) fn new(provider: &str, options: HttpOptions, key: Option<&Secret>) -> Self {
        let secret = |(name, value): &(String, Secret)| (!is_plain(&name.to_ascii_lowercase())).then(|| value.clone());
        let secrets = key.cloned().into_iter().chain(options.headers.iter().filter_map(secret));
        Self { origin: Origin::new(provider, secrets), options }
    }

    /// Parses an address.
    pub(crate) fn url(&self, url: &str) -> Result<Url, ProviderError> {
        match Url::parse(url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
            _ => Err(self.origin.error(ProviderErrorKind::Invalid, "the base URL is not an http(s) address")),
        }
    }

    /// Builds the headers of all requests: JSON content, then the given ones, then the options'.
    pub(crate) fn headers(&self, wire: &[(&str, &Secret)]) -> Result<HeaderMap, ProviderError> {
        let mut map = HeaderMap::new();
        map.insert(reqwest::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.options.client.is_none() {
            map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
            map.insert(ACCEPT, HeaderValue::from_static("*/*"));
        }
        let own = self.options.headers.iter().map(|(name, value)| (name.as_str(), value));
        for (name, value) in wire.iter().copied().chain(own) {
            let invalid = || {
                self.origin
                    .error(ProviderErrorKind::Invalid, format!("header {name:?} has a name or value that HTTP refuses"))
            };
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
            value.set_sensitive(!is_plain(key.as_str()));
            map.insert(key, value);
        }
        Ok(map)
    }

    /// Posts a body and waits for the head of the response. Never retries.
    pub(crate) async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        body: Bytes,
        cx: &RequestContext,
    ) -> Result<RawResponse, ProviderError> {
        if let Some(observer) = &cx.observer {
            let shown = shown_headers(headers);
            observer.request(&WireRequest { url: &shown_url(url), headers: &shown, body_bytes: body.len() });
        }
        let started = Instant::now();
        let response = match tokio::time::timeout(self.options.first_byte_timeout, self.send(url, headers, body)).await
        {
            Ok(sent) => sent?,
            Err(_) => {
                let message = format!("no response within {:?}", self.options.first_byte_timeout);
                return Err(self.origin.error(ProviderErrorKind::Timeout, message));
            }
        };
        let Sent { status, headers, body } = response;
        let status = status.as_u16();
        let body = IdleBody {
            inner: body,
            idle: self.options.idle_timeout,
            sleep: None,
            sleeper: None,
            waiting: None,
            reader_away: cx.reader_away.clone(),
            origin: self.origin.clone(),
        };
        let response = RawResponse { status, headers, body: body.boxed() };
        if let Some(observer) = &cx.observer {
            let request_id = response.request_id();
            observer.response(&WireResponse { status, request_id, elapsed: started.elapsed() });
        }
        Ok(response)
    }

    async fn send(&self, url: &Url, headers: &HeaderMap, body: Bytes) -> Result<Sent, ProviderError> {
        if self.options.client.is_none() && link::serves(url) {
            return self.send_plain(url.clone(), headers, body).await;
        }
        let client = match &self.options.client {
            Some(client) => client.clone(),
            None => shared_client(url.scheme() == "http")
                .await
                .map_err(|error| self.origin.error(ProviderErrorKind::Transport, error))?,
        };
        let sent = client.post(url.clone()).headers(headers.clone()).body(body).send();
        let mut response = sent.await.map_err(|error| self.origin.scrub(send_error(&self.origin, error)))?;
        let headers = std::mem::take(response.headers_mut());
        Ok(Sent { status: response.status(), headers, body: RawBody::Client(response.bytes_stream().boxed()) })
    }

    /// As [`send`](Self::send), to a plain address, redirects as in [`redirects`]. A redirect that would not repeat the
    /// request is not followed.
    async fn send_plain(&self, mut url: Url, headers: &HeaderMap, body: Bytes) -> Result<Sent, ProviderError> {
        let mut redirects = 0;
        loop {
            let response = link::post(&url, headers.clone(), body.clone(), CONNECT_TIMEOUT)
                .await
                .map_err(|error| self.origin.scrub(link_error(&self.origin, &error)))?;
            let (head, body) = response.into_parts();
            if matches!(head.status.as_u16(), 307 | 308) && redirects < MAX_REDIRECTS {
                let location = head.headers.get(LOCATION).and_then(|value| value.to_str().ok());
                if let Some(next) = location.and_then(|to| url.join(to).ok()).filter(|next| same_host(&url, next)) {
                    url = next;
                    redirects += 1;
                    continue;
                }
            }
            return Ok(Sent { status: head.status, headers: head.headers, body: RawBody::Link(body) });
        }
    }
}

struct Sent {
    status: reqwest::StatusCode,
    headers: HeaderMap,
    body: RawBody,
}

/// A body as it comes, whoever brings it.
enum RawBody {
    Client(BoxStream<'static, Result<Bytes, reqwest::Error>>),
    Link(LinkBody),
}

impl RawBody {
    fn poll_next(&mut self, cx: &mut Context<'_>, origin: &Origin) -> Poll<Option<Result<Bytes, ProviderError>>> {
        match self {
            Self::Link(body) => body.poll_next_unpin(cx).map_err(|error| link_error(origin, &error)),
            Self::Client(body) => body.poll_next_unpin(cx).map_err(|error| send_error(origin, error)),
        }
    }
}

/// The client of the process. A second one without certificate roots serves plain addresses: reading the system's
/// roots costs milliseconds that a local server need not pay.
pub(crate) async fn shared_client(plain: bool) -> Result<reqwest::Client, String> {
    static TLS: OnceLock<reqwest::Client> = OnceLock::new();
    static PLAIN: OnceLock<reqwest::Client> = OnceLock::new();
    let slot = if plain { &PLAIN } else { &TLS };
    if let Some(client) = slot.get() {
        return Ok(client.clone());
    }
    // Reads files; and panics when TLS has no crypto provider, which must not take the caller down.
    match tokio::task::spawn_blocking(move || build_client(plain)).await {
        Ok(Ok(client)) => Ok(slot.get_or_init(|| client).clone()),
        Ok(Err(error)) => Err(describe(error)),
        Err(_) => Err("the HTTP client cannot be built: is a TLS crypto provider installed?".to_owned()),
    }
}

fn build_client(plain: bool) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .redirect(redirects());
    #[cfg(any(feature = "rustls", feature = "rustls-no-provider", feature = "native-tls"))]
    let builder = if plain { builder.tls_certs_only([]) } else { builder };
    #[cfg(not(any(feature = "rustls", feature = "rustls-no-provider", feature = "native-tls")))]
    let _ = plain;
    builder.build()
}

/// Follows within a host only, and never from https to http: key headers would go along. What is not followed comes
/// back as the 3xx response that it is.
fn redirects() -> Policy {
    Policy::custom(|attempt| {
        let same = attempt.previous().last().is_some_and(|last| same_host(last, attempt.url()));
        if same && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
    })
}

fn same_host(a: &Url, b: &Url) -> bool {
    a.scheme() == b.scheme() && a.host_str() == b.host_str() && a.port_or_known_default() == b.port_or_known_default()
}

fn is_plain(name: &str) -> bool {
    matches!(name, "content-type" | "accept" | "anthropic-version" | "anthropic-beta" | "user-agent")
}

fn shown_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let shown = |value: &HeaderValue| {
        if value.is_sensitive() { "***".to_owned() } else { String::from_utf8_lossy(value.as_bytes()).into_owned() }
    };
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), shown(value))).collect()
}

fn shown_url(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}

fn send_error(origin: &Origin, error: reqwest::Error) -> ProviderError {
    let kind = if error.is_timeout() {
        ProviderErrorKind::Timeout
    } else if error.is_builder() {
        ProviderErrorKind::Invalid
    } else if error.is_redirect() {
        ProviderErrorKind::Protocol
    } else {
        ProviderErrorKind::Transport
    };
    origin.error(kind, describe(error))
}

fn link_error(origin: &Origin, error: &LinkError) -> ProviderError {
    let kind = match error {
        LinkError::Address(_) => ProviderErrorKind::Invalid,
        LinkError::Connect(_) | LinkError::Http(_) => ProviderErrorKind::Transport,
    };
    origin.error(kind, causes(error))
}

/// The error and its causes, without the address.
fn describe(error: reqwest::Error) -> String {
    causes(&error.without_url())
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// A body whose silence is bounded. The clock runs only while somebody waits, and one timer serves the whole body.
struct IdleBody {
    inner: RawBody,
    idle: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes already, so that it need not be asked at every chunk.
    sleeper: Option<Waker>,
    /// Since when this body is asked for more, where no reader tells that itself.
    waiting: Option<Instant>,
    reader_away: Option<Arc<ReaderAway>>,
    origin: Origin,
}

/// How long somebody has waited for the next bytes. A reader's wait is never older than the last bytes: it begins anew
/// whenever those came to nothing.
fn silence(reader: Option<&ReaderAway>, since: Option<Instant>) -> Duration {
    match (reader, since) {
        (Some(reader), _) => reader.waiting(),
        (None, Some(since)) => since.elapsed(),
        (None, None) => Duration::ZERO,
    }
}

impl Stream for IdleBody {
    type Item = Result<Bytes, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Poll::Ready(item) = this.inner.poll_next(cx, &this.origin) {
            this.waiting = None;
            return Poll::Ready(item.map(|item| item.map_err(|error| this.origin.scrub(error))));
        }
        if this.reader_away.is_none() {
            this.waiting.get_or_insert_with(Instant::now);
        }
        loop {
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.idle)));
            let waits = this.sleeper.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if waits && !sleep.is_elapsed() {
                return Poll::Pending;
            }
            if sleep.as_mut().poll(cx).is_pending() {
                this.sleeper = Some(cx.waker().clone());
                return Poll::Pending;
            }
            this.sleeper = None;
            let silence = silence(this.reader_away.as_deref(), this.waiting);
            let left = this.idle.saturating_sub(silence);
            if left.is_zero() {
                this.sleep = None;
                let message = format!("the response was silent for {:?}", this.idle);
                return Poll::Ready(Some(Err(this.origin.error(ProviderErrorKind::Timeout, message))));
            }
            sleep.as_mut().reset(Instant::now() + left);
        }
    }
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// `retry-after-ms`, else `retry-after` in seconds or as an HTTP date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| header(headers, name)?.trim().parse::<f64>().ok();
    let seconds = number("retry-after");
    // Azure sends "0 ms" beside "1 s": a delay is never shortened.
    if let Some(millis) = number("retry-after-ms").filter(|millis| *millis > 0.0 || seconds.is_none()) {
        return Duration::try_from_secs_f64(millis / 1e3).ok();
    }
    if let Some(seconds) = seconds {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = httpdate::parse_http_date(header(headers, "retry-after")?.trim()).ok()?;
    let now = match header(headers, "date").and_then(|date| httpdate::parse_http_date(date.trim()).ok()) {
        Some(date) => date,
        None => crate::clock::wall_time(),
    };
    Some(until.duration_since(now).unwrap_or(Duration::ZERO))
}

/// What a status means when the body says nothing better.
pub(crate) const fn kind_of_status(status: u16) -> ProviderErrorKind {
    match status {
        401 | 403 => ProviderErrorKind::Auth,
        402 => ProviderErrorKind::Quota,
        408 | 504 => ProviderErrorKind::Timeout,
        429 => ProviderErrorKind::RateLimited,
        503 | 529 => ProviderErrorKind::Overloaded,
        // What a server never does it will not do the next time.
        400..=499 | 501 => ProviderErrorKind::Invalid,
        500..=599 => ProviderErrorKind::Server,
        _ => ProviderErrorKind::Protocol,
    }
}

/// The start of a body as text, at most 512 bytes.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let start = body.trim_ascii_start();
    let cut = start.get(..EXCERPT_BYTES).unwrap_or(start);
    let mut text = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < start.len() {
        while text.ends_with('\u{fffd}') {
            text.pop();
        }
        text.push('…');
    }
    text
}

/// Whether a body is a web page, as proxies send them.
pub(crate) fn is_html(body: &[u8]) -> bool {
    body.trim_ascii_start().first() == Some(&b'<')
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn retry_after_in_all_its_spellings() {
        let of = |pairs: &[(&str, &str)]| retry_after(&headers(pairs));
        assert_eq!(of(&[("Retry-After", " 3 ")]), Some(Duration::from_secs(3)));
        assert_eq!(of(&[("retry-after", "0.5")]), Some(Duration::from_millis(500)));
        assert_eq!(of(&[("retry-after-ms", "250"), ("retry-after", "9")]), Some(Duration::from_millis(250)));
        assert_eq!(of(&[("retry-after-ms", "0"), ("retry-after", "1")]), Some(Duration::from_secs(1)));
        assert_eq!(of(&[("retry-after-ms", "0")]), Some(Duration::ZERO));
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of(&[date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), Some(Duration::from_secs(30)));
        assert_eq!(of(&[date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), Some(Duration::ZERO));
        assert_eq!(of(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), Some(Duration::ZERO));
        for bad in ["-1", "soon", "NaN", "1e300", ""] {
            assert_eq!(of(&[("retry-after", bad)]), None, "{bad}");
        }
    }

    #[test]
    fn an_excerpt_is_short_and_whole() {
        assert_eq!(excerpt(b"  hi"), "hi");
        let long = "é".repeat(400);
        let cut = excerpt(&[b"x", long.as_bytes()].concat());
        assert!(cut.len() <= EXCERPT_BYTES + '…'.len_utf8());
        assert!(cut.ends_with("é…") && !cut.contains('\u{fffd}'));
    }

    #[test]
    fn nothing_secret_is_shown() {
        let key = Secret::from("sk-secret-value");
        let options =
            HttpOptions { headers: vec![("x-extra".into(), "also-a-secret".into())], ..HttpOptions::default() };
        let http = Http::new("test", options, Some(&key));
        let map = http.headers(&[("x-api-key", &key), ("anthropic-version", &"2023-06-01".into())]).unwrap();
        let shown = format!("{http:?} {map:?} {:?}", shown_headers(&map));
        assert!(!shown.contains("sk-secret") && !shown.contains("also-a-secret"), "{shown}");
        assert!(shown.contains("2023-06-01"));
        let url = http.url("http://user:pass@host.test:81/v1/x?key=sk-secret-value").unwrap();
        assert_eq!(shown_url(&url), "http://host.test:81/v1/x");
        let error = http.headers(&[("bad name", &key)]).unwrap_err();
        assert!(error.kind == ProviderErrorKind::Invalid && !error.to_string().contains("secret"));
        assert!(http.headers(&[("x-api-key", &"a\nb".into())]).is_err());
        for bad in ["", "ftp://x", "no url", "http://"] {
            assert_eq!(http.url(bad).unwrap_err().kind, ProviderErrorKind::Invalid, "{bad}");
        }
    }

    fn body(inner: BoxStream<'static, Result<Bytes, reqwest::Error>>, away: Option<Arc<ReaderAway>>) -> IdleBody {
        let origin = Origin::new("test", []);
        IdleBody {
            inner: RawBody::Client(inner),
            idle: Duration::from_secs(10),
            sleep: None,
            sleeper: None,
            waiting: None,
            reader_away: away,
            origin,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_bounded_and_every_byte_starts_it_anew() {
        let ticks = stream::unfold(0u32, |count| async move {
            let wait = if count < 20 { 9 } else { 1000 };
            tokio::time::sleep(Duration::from_secs(wait)).await;
            Some((Ok(Bytes::from_static(b".")), count + 1))
        });
        let started = Instant::now();
        let items: Vec<_> = body(ticks.boxed(), None).take(21).collect().await;
        assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 20);
        assert_eq!(items[20].as_ref().unwrap_err().kind, ProviderErrorKind::Timeout);
        assert_eq!(started.elapsed().as_secs(), 20 * 9 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_the_reader_was_away_is_not_silence() {
        let away = Arc::new(ReaderAway::default());
        let mut body = body(stream::pending().boxed(), Some(Arc::clone(&away)));
        assert!(futures::poll!(body.next()).is_pending());
        away.left();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(futures::poll!(body.next()).is_pending(), "the reader is only just back");
        away.waits();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(futures::poll!(body.next()).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(futures::poll!(body.next()), Poll::Ready(Some(Err(_)))));
    }

    /// Answers every request on its own connection with the given bytes; gives the requests.
    async fn serve(answers: Vec<String>) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&seen);
        tokio::spawn(async move {
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"{\"q\":1}") {
                    let mut buffer = [0; 1024];
                    let read = socket.read(&mut buffer).await.unwrap();
                    assert!(read > 0);
                    request.extend_from_slice(&buffer[..read]);
                }
                requests.lock().unwrap().push(String::from_utf8(request).unwrap());
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (base, seen)
    }

    async fn post(url: &str, options: HttpOptions, cx: &RequestContext) -> Result<RawResponse, ProviderError> {
        let key = Secret::from("sk-secret-value");
        let http = Http::new("test", options, Some(&key));
        let headers = http.headers(&[("x-api-key", &key)])?;
        http.post(&http.url(url)?, &headers, Bytes::from_static(b"{\"q\":1}"), cx).await
    }

    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl crate::provider::WireObserver for Log {
        fn request(&self, request: &WireRequest<'_>) {
            self.0.lock().unwrap().push(format!("{request:?}"));
        }
        fn response(&self, response: &WireResponse<'_>) {
            self.0.lock().unwrap().push(format!("{response:?}"));
        }
    }

    #[tokio::test]
    async fn a_post_carries_key_and_length_and_is_observed() {
        let answer = "HTTP/1.1 200 OK\r\nrequest-id: r1\r\ncontent-length: 2\r\n\r\nhi".to_owned();
        let (base, seen) = serve(vec![answer]).await;
        let log = Arc::new(Log::default());
        let cx = RequestContext { observer: Some(log.clone()), ..RequestContext::default() };
        let mut response = post(&format!("{base}/v1/x?k=v"), HttpOptions::default(), &cx).await.unwrap();
        assert_eq!((response.status, response.request_id()), (200, Some("r1")));
        assert_eq!(response.read_error_body().await, b"hi");
        let request = seen.lock().unwrap().remove(0).to_lowercase();
        for part in ["post /v1/x?k=v http/1.1", "x-api-key: sk-secret-value", "content-length: 7", "application/json"] {
            assert!(request.contains(part), "{part} is not in {request}");
        }
        let log = log.0.lock().unwrap().join("\n");
        assert!(log.contains("/v1/x\"") && log.contains("***") && log.contains("r1"), "{log}");
        assert!(!log.contains("secret"), "{log}");
    }

    #[tokio::test]
    async fn redirects_stay_within_the_host() {
        let (other, other_seen) = serve(vec!["HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".into()]).await;
        let away = format!("HTTP/1.1 307 Go\r\nlocation: {other}/x\r\ncontent-length: 0\r\n\r\n");
        let within = "HTTP/1.1 307 Go\r\nlocation: /y\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned();
        let (base, seen) = serve(vec![within, away]).await;
        let response = post(&base, HttpOptions::default(), &RequestContext::default()).await.unwrap();
        assert_eq!(response.status, 307);
        assert!(seen.lock().unwrap()[1].starts_with("POST /y"));
        assert!(other_seen.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn connection_failures_are_typed_and_name_no_address() {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            listener.local_addr().unwrap().port()
        };
        let url = format!("http://127.0.0.1:{port}/secret-path");
        let error = post(&url, HttpOptions::default(), &RequestContext::default()).await.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Transport);
        assert!(!error.message.contains("secret-path"), "{error}");
        let (base, _) = serve(vec!["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".into()]).await;
        let response = post(&base, HttpOptions::default(), &RequestContext::default()).await.unwrap();
        let items: Vec<_> = response.body.collect().await;
        assert_eq!(items.last().unwrap().as_ref().unwrap_err().kind, ProviderErrorKind::Transport);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = HttpOptions { first_byte_timeout: Duration::from_millis(20), ..HttpOptions::default() };
        let url = format!("http://{}", listener.local_addr().unwrap());
        let error = post(&url, options, &RequestContext::default()).await.unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Timeout);
    }
}

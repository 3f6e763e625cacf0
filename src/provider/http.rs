//! The HTTP that the wires share: one client, timeouts, headers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use reqwest::Url;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use reqwest::redirect::Policy;
use tokio::time::Instant;

use super::idle_body::IdleBody;
use super::link::{self, LinkBody, LinkError};
use super::response::RawResponse;
use super::{ProviderError, ProviderErrorKind, RequestContext, Secret, WireRequest, WireResponse};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 5;
const AGENT: &str = concat!("zidane/", env!("CARGO_PKG_VERSION"));

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
        let body = RawBody { inner: body, origin: self.origin.clone() };
        let body = IdleBody::new(body, self.options.idle_timeout, cx.reader_away.clone(), self.origin.clone());
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
        Ok(Sent { status: response.status(), headers, body: Body::Client(response.bytes_stream().boxed()) })
    }

    /// As [`send`](Self::send), to a plain address, redirects as in [`redirects`]. A redirect that would not repeat the
    /// request is not followed.
    async fn send_plain(&self, mut url: Url, headers: &HeaderMap, body: Bytes) -> Result<Sent, ProviderError> {
        let mut redirects = 0;
        loop {
            let response = link::post(&url, headers, body.clone(), CONNECT_TIMEOUT)
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
            return Ok(Sent { status: head.status, headers: head.headers, body: Body::Link(body) });
        }
    }
}

struct Sent {
    status: reqwest::StatusCode,
    headers: HeaderMap,
    body: Body,
}

/// A body as it comes, whoever brings it.
enum Body {
    Client(BoxStream<'static, Result<Bytes, reqwest::Error>>),
    Link(LinkBody),
}

/// A body whose errors are the provider's.
struct RawBody {
    inner: Body,
    origin: Origin,
}

impl Stream for RawBody {
    type Item = Result<Bytes, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { inner, origin } = &mut *self;
        match inner {
            Body::Link(body) => body.poll_next_unpin(cx).map_err(|error| origin.scrub(link_error(origin, &error))),
            Body::Client(body) => body.poll_next_unpin(cx).map_err(|error| origin.scrub(send_error(origin, error))),
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

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

//! What a response says before anything of its body is decoded.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::{ProviderError, ProviderErrorKind};

const MAX_ERROR_BODY: usize = 1024 * 1024;
const EXCERPT_BYTES: usize = 512;

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
}

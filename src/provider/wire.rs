//! From a response to the events of an answer: what all HTTP wires share.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use serde::de::IgnoredAny;

use super::http::Origin;
use super::response::{RawResponse, excerpt};
use super::sse::{SseEvent, SseFramer};
use super::{ProviderError, ProviderErrorKind, ProviderStream, StreamEvent};

/// Events that wait to be read.
pub(crate) type Events = VecDeque<StreamEvent>;

/// What was read to find out how a body is framed, or to show it in an error.
const HEAD_BYTES: usize = 1024;
/// How much may follow the terminal event for the connection to be kept, and how long that may take.
const TAIL_BYTES: usize = 64 * 1024;
const TAIL_TIME: Duration = Duration::from_millis(500);
/// How long an answer that gave its end is waited for, where more may follow.
const END_TIME: Duration = Duration::from_secs(5);

/// Reads one answer of a wire.
///
/// Every method puts what it read into `out` and may fail; events that were put there before are delivered first.
/// A decoder ends an answer by putting [`StreamEvent::Finish`] and being finished.
pub(crate) trait Decoder: Send + Unpin + 'static {
    /// A first look at an event's data, for what can be read without a parser and the check for UTF-8 that it needs:
    /// the deltas, which most events are. False leaves it to [`event`](Self::event).
    fn plain(&mut self, data: &[u8], out: &mut Events) -> bool {
        let _ = (data, out);
        false
    }

    /// One server-sent event. `data` is never blank. An `error:` field comes as an event named `error`, and so do
    /// `event: error` events; JSON that stood in the stream without a field comes without a name.
    fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError>;

    /// The whole body, when it was JSON and not a stream.
    fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError>;

    /// The stream ended and the decoder was not finished. Either it can be counted as finished, or it was cut.
    fn eof(&mut self, out: &mut Events) -> Result<(), ProviderError>;

    /// The terminal event was seen.
    fn is_finished(&self) -> bool;

    /// The answer gave its end, on a wire where more may follow: a body that breaks off then, or is silent for 5 s, is
    /// whole.
    fn has_ended(&self) -> bool {
        self.is_finished()
    }

    /// The error of a response whose status is no success. The caller adds status, request id and what headers say.
    fn status_error(&self, status: u16, body: &[u8]) -> ProviderError;
}

/// Decodes a response. The error of a failed request is the stream's only item.
pub(crate) fn decode(
    origin: &Origin,
    max_event: usize,
    mut response: RawResponse,
    decoder: impl Decoder,
) -> ProviderStream {
    if response.is_success() {
        return ProviderStream::new(Driver::new(origin.clone(), max_event, response, decoder));
    }
    let origin = origin.clone();
    ProviderStream::new(futures::stream::once(async move { Err(status_error(&origin, &mut response, decoder).await) }))
}

/// Decodes a response of a request. The error of a failed request is the result.
pub(crate) async fn open(
    origin: &Origin,
    max_event: usize,
    mut response: RawResponse,
    decoder: impl Decoder,
) -> Result<ProviderStream, ProviderError> {
    if response.is_success() {
        Ok(ProviderStream::new(Driver::new(origin.clone(), max_event, response, decoder)))
    } else {
        Err(status_error(origin, &mut response, decoder).await)
    }
}

async fn status_error(origin: &Origin, response: &mut RawResponse, decoder: impl Decoder) -> ProviderError {
    let body = response.read_error_body().await;
    let mut error = decoder.status_error(response.status, event_data(&body));
    if (300..400).contains(&response.status) {
        error = origin.error(ProviderErrorKind::Protocol, "redirected to another host, which is not followed");
    }
    if error.body_excerpt.is_none() && !body.is_empty() {
        error.body_excerpt = Some(excerpt(&body));
    }
    response.annotate(&mut error);
    origin.scrub(error)
}

/// What the first event says, of a body that is an event stream although the request failed; else the body.
fn event_data(body: &[u8]) -> &[u8] {
    let start = body.trim_ascii_start();
    if ![&b"data:"[..], b"event:"].iter().any(|field| start.starts_with(field)) {
        return body;
    }
    let data = start.split(|byte| matches!(byte, b'\n' | b'\r')).find_map(|line| line.strip_prefix(b"data:"));
    data.map_or(body, <[u8]>::trim_ascii)
}

/// The text of bytes that should be UTF-8. What is not becomes U+FFFD.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    // Checking alone is several times as fast as the lossy conversion, which looks at every character.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The error of JSON that does not parse. JSON that merely ends too early was cut.
pub(crate) fn json_error(provider: &str, error: &serde_json::Error, json: &[u8]) -> ProviderError {
    let kind = if error.is_eof() { ProviderErrorKind::TruncatedStream } else { ProviderErrorKind::Protocol };
    let mut result = ProviderError::new(kind, provider, format!("unreadable JSON: {error}"));
    result.body_excerpt = Some(excerpt(json));
    result
}

/// JSON that strict parsers refuse but servers send, made legal: raw control characters in strings are escaped and
/// halves of surrogate pairs become U+FFFD. `None` when there was nothing to repair.
pub(crate) fn repair(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len() + 16);
    let mut in_string = false;
    let mut changed = false;
    let mut chars = json.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                let rest = json.get(at..).unwrap_or_default();
                let (keep, skip) = escape(rest);
                changed |= keep != rest.get(..skip).unwrap_or_default();
                out.push_str(keep);
                for _ in 1..rest.get(..skip).unwrap_or_default().chars().count() {
                    chars.next();
                }
                continue;
            }
            control if in_string && control < ' ' => {
                changed = true;
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
                continue;
            }
            _ => {}
        }
        out.push(char);
    }
    changed.then_some(out)
}

/// What to write for the escape that `text` begins with, and how many bytes it takes there.
fn escape(text: &str) -> (&str, usize) {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    match unit(text) {
        Some(0xD800..=0xDBFF) => match text.get(6..).and_then(unit) {
            Some(0xDC00..=0xDFFF) => (text.get(..12).unwrap_or_default(), 12),
            _ => ("\\ufffd", 6),
        },
        Some(0xDC00..=0xDFFF) => ("\\ufffd", 6),
        Some(_) => (text.get(..6).unwrap_or_default(), 6),
        None => {
            let length = 1 + text.get(1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
            (text.get(..length).unwrap_or_default(), length)
        }
    }
}

enum Mode {
    /// Nothing but white space so far.
    Sniff,
    Sse(SseFramer),
    Json(Vec<u8>),
    Html(Vec<u8>),
}

/// The stream of a response's events.
struct Driver<D> {
    /// `None` once it ended or is of no more use.
    body: Option<BoxStream<'static, Result<Bytes, ProviderError>>>,
    mode: Mode,
    decoder: D,
    out: Events,
    error: Option<ProviderError>,
    /// Nothing more is read for events.
    ended: bool,
    /// Runs while nothing follows an answer that gave its end.
    ending: Option<Pin<Box<tokio::time::Sleep>>>,
    events_seen: bool,
    /// The start of a body that gave no event yet.
    head: Vec<u8>,
    request_id: Option<String>,
    origin: Origin,
    max_event: usize,
}

impl<D: Decoder> Driver<D> {
    fn new(origin: Origin, max_event: usize, response: RawResponse, decoder: D) -> Self {
        Self {
            request_id: response.request_id().map(str::to_owned),
            body: Some(response.body),
            mode: Mode::Sniff,
            decoder,
            out: Events::new(),
            error: None,
            ended: false,
            ending: None,
            events_seen: false,
            head: Vec::new(),
            origin,
            max_event,
        }
    }

    fn fail(&mut self, mut error: ProviderError) {
        if error.request_id.is_none() {
            error.request_id.clone_from(&self.request_id);
        }
        self.error = Some(self.origin.scrub(error));
        self.ended = true;
        self.body = None;
    }

    fn settle(&mut self, result: Result<(), ProviderError>) {
        match result {
            Ok(()) => self.ended |= self.decoder.is_finished(),
            Err(error) => self.fail(error),
        }
    }

    fn chunk(&mut self, mut chunk: Bytes) {
        if matches!(self.mode, Mode::Sniff) {
            // Gateways pad bodies with kilobytes of white space to keep the connection alive.
            let blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0xEF | 0xBB | 0xBF);
            let Some(start) = chunk.iter().position(|byte| !blank(byte)) else { return };
            let chunk_text = chunk.split_off(start);
            self.mode = match chunk_text.first() {
                Some(b'{' | b'[') => Mode::Json(Vec::new()),
                Some(b'<') => Mode::Html(Vec::new()),
                _ => Mode::Sse(SseFramer::with_limit(self.max_event)),
            };
            chunk = chunk_text;
        }
        match &mut self.mode {
            Mode::Sniff => {}
            Mode::Sse(framer) => {
                if !self.events_seen && self.head.len() < HEAD_BYTES {
                    let room = HEAD_BYTES - self.head.len();
                    self.head.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
                }
                framer.feed(chunk);
                self.frames();
            }
            Mode::Json(body) if body.len().saturating_add(chunk.len()) > self.max_event => {
                let message = format!("the response exceeds {} bytes", self.max_event);
                self.fail(self.origin.error(ProviderErrorKind::Protocol, message));
            }
            Mode::Json(body) => body.extend_from_slice(&chunk),
            Mode::Html(body) => {
                body.extend_from_slice(chunk.get(..HEAD_BYTES.min(chunk.len())).unwrap_or_default());
                if body.len() >= HEAD_BYTES {
                    self.html();
                }
            }
        }
    }

    fn html(&mut self) {
        let Mode::Html(body) = &self.mode else { return };
        let mut error = self.origin.error(ProviderErrorKind::Protocol, "the response is a web page");
        error.body_excerpt = Some(excerpt(body));
        self.fail(error);
    }

    /// Decodes the whole events that are there.
    fn frames(&mut self) {
        let Mode::Sse(framer) = &mut self.mode else { return };
        let result = loop {
            match framer.next_event() {
                Ok(None) => break Ok(()),
                Ok(Some(event)) => {
                    self.events_seen = true;
                    if let Err(error) = deliver(&mut self.decoder, event, &mut self.out) {
                        break Err(error);
                    }
                    if self.decoder.is_finished() {
                        break Ok(());
                    }
                }
                Err(error) => break Err(self.origin.error(ProviderErrorKind::Protocol, error.to_string())),
            }
        };
        self.settle(result);
    }

    fn end(&mut self) {
        self.body = None;
        self.ended = true;
        let result = match std::mem::replace(&mut self.mode, Mode::Sniff) {
            Mode::Sniff => Err(self.origin.error(ProviderErrorKind::TruncatedStream, "the response was empty")),
            Mode::Json(body) => {
                let result = self.decoder.body(&body, &mut self.out);
                if result.is_ok() && !self.decoder.is_finished() { self.decoder.eof(&mut self.out) } else { result }
            }
            Mode::Html(body) => {
                self.mode = Mode::Html(body);
                return self.html();
            }
            Mode::Sse(mut framer) => self.end_of_stream(framer.finish()),
        };
        self.settle(result);
    }

    fn end_of_stream(&mut self, last: Option<SseEvent<'_>>) -> Result<(), ProviderError> {
        // Some servers leave out the last blank line. Half an event looks the same, but its JSON is not whole.
        if let Some(event) = last.filter(|event| is_whole(event.data)) {
            self.events_seen = true;
            deliver(&mut self.decoder, event, &mut self.out)?;
            if self.decoder.is_finished() {
                return Ok(());
            }
        }
        let begins_as_stream = |field: &&[u8]| self.head.starts_with(field);
        if !self.events_seen && ![&b":"[..], b"data", b"event", b"id", b"retry"].iter().any(begins_as_stream) {
            let what = "the response is neither an event stream nor JSON";
            let mut error = self.origin.error(ProviderErrorKind::Protocol, what);
            error.body_excerpt = Some(excerpt(&self.head));
            return Err(error);
        }
        self.decoder.eof(&mut self.out)
    }

    /// The body's next piece. An answer that gave its end does not wait for more as long as another would.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ProviderError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        if let Poll::Ready(piece) = body.poll_next_unpin(cx) {
            self.ending = None;
            return Poll::Ready(piece);
        }
        if !self.decoder.has_ended() || tokio::runtime::Handle::try_current().is_err() {
            return Poll::Pending;
        }
        self.ending.get_or_insert_with(|| Box::pin(tokio::time::sleep(END_TIME))).as_mut().poll(cx).map(|()| None)
    }

    /// Takes what is already there of the rest of a finished body.
    fn drain(&mut self, cx: &mut Context<'_>) {
        let mut taken = 0;
        while let Some(body) = &mut self.body {
            match body.poll_next_unpin(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    taken += chunk.len().max(1);
                    if taken > TAIL_BYTES {
                        self.body = None;
                    }
                }
                Poll::Ready(_) => self.body = None,
                Poll::Pending => return,
            }
        }
    }
}

fn deliver(decoder: &mut impl Decoder, event: SseEvent<'_>, out: &mut Events) -> Result<(), ProviderError> {
    use super::sse::SseKind;
    if event.kind == SseKind::Data && event.name != b"error" && decoder.plain(event.data, out) {
        return Ok(());
    }
    if event.data.trim_ascii().is_empty() {
        return Ok(());
    }
    let data = text(event.data);
    match event.kind {
        SseKind::Error => decoder.event("error", &data, out),
        SseKind::Data | SseKind::Raw => decoder.event(&text(event.name), &data, out),
    }
}

fn is_whole(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]" || serde_json::from_slice::<IgnoredAny>(data).is_ok()
}

impl<D: Decoder> Stream for Driver<D> {
    type Item = Result<StreamEvent, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(event) = this.out.pop_front() {
                if matches!(event, StreamEvent::Finish { .. }) {
                    this.ended = true;
                    this.out.clear();
                    this.drain(cx);
                }
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            if this.ended {
                this.drain(cx);
                return Poll::Ready(None);
            }
            if this.body.is_none() {
                return Poll::Ready(None);
            }
            match std::task::ready!(this.poll_body(cx)) {
                Some(Ok(chunk)) => this.chunk(chunk),
                Some(Err(_)) | None if this.decoder.has_ended() => this.end(),
                Some(Err(error)) => this.fail(error),
                None => this.end(),
            }
        }
    }
}

impl<D> Drop for Driver<D> {
    /// An answer that is complete leaves at most an end marker on the connection. Reading it keeps the connection for
    /// the next request; a tail that is long or does not end is given up.
    fn drop(&mut self) {
        if !self.ended || self.error.is_some() {
            return;
        }
        if let (Some(body), Ok(runtime)) = (self.body.take(), tokio::runtime::Handle::try_current()) {
            let tail = body
                .scan(0, |taken, chunk| {
                    *taken += chunk.map_or(TAIL_BYTES, |chunk| chunk.len().max(1));
                    std::future::ready((*taken < TAIL_BYTES).then_some(()))
                })
                .for_each(|()| std::future::ready(()));
            runtime.spawn(async move {
                let _ = tokio::time::timeout(TAIL_TIME, tail).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{FutureExt as _, stream};

    use super::*;
    use crate::provider::Secret;
    use crate::types::TurnFinishReason;

    const SECRET: &str = "sk-secret-value";

    /// Every event is a text; `end` is the terminal event.
    #[derive(Default)]
    struct Echo {
        finished: bool,
    }

    impl Echo {
        fn finish(&mut self, out: &mut Events) {
            self.finished = true;
            out.push_back(StreamEvent::Finish { reason: TurnFinishReason::Stop, raw: None });
        }
    }

    impl Decoder for Echo {
        fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError> {
            match (name, data) {
                ("error", text) => Err(ProviderError::new(ProviderErrorKind::Server, "echo", text)),
                (_, "end") => {
                    self.finish(out);
                    Ok(())
                }
                (_, text) => {
                    out.push_back(StreamEvent::Text { block: 0, delta: text.to_owned() });
                    Ok(())
                }
            }
        }
        fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError> {
            serde_json::from_slice::<IgnoredAny>(body).map_err(|error| json_error("echo", &error, body))?;
            out.push_back(StreamEvent::Text { block: 0, delta: text(body).into_owned() });
            self.finish(out);
            Ok(())
        }
        fn eof(&mut self, _: &mut Events) -> Result<(), ProviderError> {
            Err(ProviderError::new(ProviderErrorKind::TruncatedStream, "echo", "cut"))
        }
        fn is_finished(&self) -> bool {
            self.finished
        }
        fn status_error(&self, status: u16, body: &[u8]) -> ProviderError {
            ProviderError::new(super::super::response::kind_of_status(status), "echo", text(body))
        }
    }

    fn response(status: u16, headers: &[(&str, &str)], chunks: &[&[u8]]) -> RawResponse {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        RawResponse::recorded(
            status,
            headers,
            chunks.iter().map(|chunk| Bytes::copy_from_slice(chunk)).collect::<Vec<_>>(),
        )
    }

    fn run(response: RawResponse) -> (Vec<StreamEvent>, Option<ProviderError>) {
        let origin = Origin::new("echo", [Secret::from(SECRET)]);
        let mut items: Vec<_> = decode(&origin, 1024, response, Echo::default()).collect().now_or_never().unwrap();
        let error = items.pop_if(|item| item.is_err()).and_then(Result::err);
        (items.into_iter().map(Result::unwrap).collect(), error)
    }

    fn every_cut(body: &[u8]) -> (String, bool, Option<(ProviderErrorKind, String)>) {
        let cut = |chunks: &[&[u8]]| {
            let (events, error) = run(response(200, &[], chunks));
            let finished = matches!(events.last(), Some(StreamEvent::Finish { .. }));
            let texts = events.iter().filter_map(|event| match event {
                StreamEvent::Text { delta, .. } => Some(delta.as_str()),
                _ => None,
            });
            (texts.collect::<Vec<_>>().join("|"), finished, error.map(|error| (error.kind, error.message)))
        };
        let whole = cut(&[body]);
        for at in 0..=body.len() {
            assert_eq!(cut(&[&body[..at], &body[at..]]), whole, "cut at {at}");
        }
        assert_eq!(cut(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
        whole
    }

    #[test]
    fn a_stream_ends_at_its_terminal_event_whatever_follows() {
        let (text, finished, error) = every_cut(b"data: a\n\ndata: end\n\ndata: b\n\n<garbage");
        assert_eq!((text.as_str(), finished, error), ("a", true, None));
    }

    #[test]
    fn a_stream_without_its_end_was_cut() {
        for body in [&b"data: [1]\n\n"[..], b"data: [1]\n\ndata: {\"half\": ", b": waiting\n\ndata: [1]"] {
            let (text, finished, error) = every_cut(body);
            assert_eq!((text.as_str(), finished), ("[1]", false));
            assert_eq!(error.unwrap().0, ProviderErrorKind::TruncatedStream);
        }
        for body in [&b""[..], b" \n ", b": waiting\n\n", b"da"] {
            let kind = every_cut(body).2.unwrap().0;
            let expected = if body == b"da" { ProviderErrorKind::Protocol } else { ProviderErrorKind::TruncatedStream };
            assert_eq!(kind, expected, "{body:?}");
        }
    }

    #[test]
    fn the_body_decides_between_stream_json_and_page() {
        assert_eq!(every_cut(b"\n\n   {\"a\": 1}").0, "{\"a\": 1}");
        assert_eq!(every_cut(b"\xEF\xBB\xBF{}").0, "{}");
        assert_eq!(every_cut(b"{\"a\":").2.unwrap().0, ProviderErrorKind::TruncatedStream);
        assert_eq!(every_cut(b"{]").2.unwrap().0, ProviderErrorKind::Protocol);
        assert_eq!(every_cut(b" <html>oops</html>").2.unwrap().1, "the response is a web page");
        assert_eq!(every_cut(b"upstream gone").2.unwrap().0, ProviderErrorKind::Protocol);
    }

    #[test]
    fn stray_errors_reach_the_decoder() {
        assert_eq!(every_cut(b"data: [1]\n\nerror: {\"code\":1}\n\n").2.unwrap().1, "{\"code\":1}");
        assert_eq!(every_cut(b"data: [1]\n\n{\n\"error\": 1\n}\n").0, "[1]|{\n\"error\": 1\n}");
    }

    #[test]
    fn bad_utf8_is_replaced_wherever_it_is_cut() {
        assert_eq!(every_cut("data: é\n\ndata: end\n\n".as_bytes()).0, "é");
        assert_eq!(every_cut(b"data: a\xffb\n\ndata: end\n\n").0, "a\u{fffd}b");
    }

    #[test]
    fn too_much_is_an_error() {
        let long = [b"{\"a\": \"".as_slice(), &[b'x'; 2000], b"\"}"].concat();
        assert_eq!(run(response(200, &[], &[&long])).1.unwrap().kind, ProviderErrorKind::Protocol);
        let long = [b"data: ".as_slice(), &[b'x'; 2000], b"\n\n"].concat();
        assert_eq!(run(response(200, &[], &[&long])).1.unwrap().kind, ProviderErrorKind::Protocol);
    }

    #[test]
    fn a_failed_request_says_what_body_and_headers_say() {
        let headers = [("retry-after", "7"), ("X-Should-Retry", "false"), ("request-id", "req_1")];
        let body = format!("key {SECRET} is bad");
        let (events, error) = run(response(429, &headers, &[body.as_bytes()]));
        let error = error.unwrap();
        assert!(events.is_empty());
        assert_eq!((error.kind, error.status), (ProviderErrorKind::RateLimited, Some(429)));
        assert_eq!((error.retry_after, error.should_retry), (Some(Duration::from_secs(7)), Some(false)));
        assert_eq!((error.request_id.as_deref(), error.message.as_str()), (Some("req_1"), "key *** is bad"));
        assert_eq!(error.body_excerpt.as_deref(), Some("key *** is bad"));
        let conflict = run(response(409, &[], &[b"{}"])).1.unwrap();
        assert!(conflict.is_retryable());
    }

    #[test]
    fn a_failed_request_may_say_it_in_an_event() {
        let message = |body: &[u8]| run(response(400, &[], &[body])).1.unwrap().message;
        assert_eq!(message(b"event: error\r\ndata: {\"a\":1}\r\n\r\ndata: [DONE]\r\n\r\n"), "{\"a\":1}");
        assert_eq!(message(b"data:{}\n\n"), "{}");
        assert_eq!(message(b"event: error\n\n"), "event: error\n\n");
        assert_eq!(message(b"database: gone"), "database: gone");
    }

    #[test]
    fn a_tail_that_never_ends_holds_nothing() {
        let chunks = stream::iter([Ok(Bytes::from_static(b"data: a\n\ndata: end\n\n"))]).chain(stream::pending());
        let raw = RawResponse { status: 200, headers: Default::default(), body: chunks.boxed() };
        assert_eq!(run(raw).0.len(), 2);
        let flood = stream::iter([Ok(Bytes::from_static(b"data: end\n\n"))])
            .chain(stream::repeat_with(|| Ok(Bytes::from_static(&[b'x'; 1000]))));
        assert_eq!(run(RawResponse { status: 200, headers: Default::default(), body: flood.boxed() }).0.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_is_read_after_the_stream_is_dropped() {
        let reads = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = futures::channel::mpsc::unbounded::<Result<Bytes, ProviderError>>();
        sender.unbounded_send(Ok(Bytes::from_static(b"data: end\n\n"))).unwrap();
        let counted = Arc::clone(&reads);
        let body = receiver.inspect(move |_| _ = counted.fetch_add(1, Ordering::SeqCst)).boxed();
        let origin = Origin::new("echo", []);
        let raw = RawResponse { status: 200, headers: Default::default(), body };
        let mut stream = decode(&origin, 1024, raw, Echo::default());
        assert!(matches!(stream.next().await, Some(Ok(StreamEvent::Finish { .. }))));
        assert!(stream.next().await.is_none());
        drop(stream);
        sender.unbounded_send(Ok(Bytes::from_static(b"\n"))).unwrap();
        tokio::task::yield_now().await;
        assert_eq!(reads.load(Ordering::SeqCst), 2);
        // Nobody ends the body; the time limit does.
        tokio::time::sleep(TAIL_TIME * 2).await;
        assert!(sender.is_closed());
    }

    #[test]
    fn broken_json_of_real_servers_is_repaired() {
        let half = r#"{"a":"x\ud83d","b":"\udf0dy","c":"\ud83c\udf0d","d":"\\ud83d\"","e\n":1}"#;
        let fixed: serde_json::Value = serde_json::from_str(&repair(half).unwrap()).unwrap();
        let expected = serde_json::json!({"a": "x\u{fffd}", "b": "\u{fffd}y", "c": "🌍", "d": "\\ud83d\"", "e\n": 1});
        assert_eq!(fixed, expected);
        let control = "{\"a\":\"1\u{c}2\"}";
        assert_eq!(repair(control).unwrap(), r#"{"a":"1\u000c2"}"#);
        for fine in [r#"{"a":"\u00e9\n"}"#, "{\n}", "", "\\", "\"\\", "\"\\u12"] {
            assert_eq!(repair(fine), None, "{fine}");
        }
    }
}

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

/// How the end of a body is told to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpFraming {
    /// `transfer-encoding: chunked`, one HTTP chunk per body chunk.
    #[default]
    Chunked,
    /// `content-length`, the sum of all body chunks.
    ContentLength,
    /// Neither: the body ends where the connection does.
    CloseDelimited,
}

/// What happens after the last body chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpEnd {
    /// The body is complete and the connection stays open for the next request (closed if the framing asks for it).
    #[default]
    Complete,
    /// The body is complete and the connection is closed after it.
    Close,
    /// The connection is closed in order, but before the body's end was told: a chunked body lacks its last chunk, and
    /// a body with a length is announced longer than it is.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more is sent and the connection stays open, until the client leaves or the server is dropped.
    Stall,
}

/// Opened by a test to let a reply go on. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self { open: watch::Sender::new(false) }
    }

    /// Opens it, for good.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn wait(&self) {
        // The sender lives in `self`, so that waiting cannot fail.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Bytes),
    Delay(Duration),
    Hold(Gate),
}

/// One scripted response of an [`SseServer`](super::SseServer).
///
/// The body is a list of chunks, each written and flushed by itself, with delays and gates between them. Small chunks
/// written without a pause may still reach the client in one read: where a test needs exact reads it puts a
/// [`Gate`] or a delay between them.
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpReply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) before_head: Vec<Step>,
    pub(super) body: Vec<Step>,
    pub(super) framing: HttpFraming,
    pub(super) end: HttpEnd,
}

impl HttpReply {
    /// A response with a status and no body.
    pub const fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            before_head: Vec::new(),
            body: Vec::new(),
            framing: HttpFraming::Chunked,
            end: HttpEnd::Complete,
        }
    }

    /// A 200 of type `text/event-stream`, the body in one chunk.
    pub fn sse(body: impl Into<Bytes>) -> Self {
        Self::new(200).header("content-type", "text/event-stream").chunk(body)
    }

    /// A response of type `application/json` with its length.
    pub fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status).header("content-type", "application/json").chunk(body).framing(HttpFraming::ContentLength)
    }

    /// Adds a header. Those that frame the body are the server's own: `content-length`, `transfer-encoding` and
    /// `connection` are dropped.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a body chunk, written by itself.
    pub fn chunk(mut self, bytes: impl Into<Bytes>) -> Self {
        self.body.push(Step::Send(bytes.into()));
        self
    }

    /// Adds a body, cut into chunks of at most `size` bytes (0 counts as 1).
    pub fn cut_every(mut self, body: impl Into<Bytes>, size: usize) -> Self {
        let mut rest: Bytes = body.into();
        while !rest.is_empty() {
            let chunk = rest.split_to(size.clamp(1, rest.len()));
            self.body.push(Step::Send(chunk));
        }
        self
    }

    /// The same body in chunks of at most `size` bytes (0 counts as 1).
    pub fn recut(mut self, size: usize) -> Self {
        let steps = std::mem::take(&mut self.body);
        for step in steps {
            match step {
                Step::Send(bytes) => self = self.cut_every(bytes, size),
                other => self.body.push(other),
            }
        }
        self
    }

    /// Waits at this place of the body.
    pub fn delay(mut self, time: Duration) -> Self {
        self.body.push(Step::Delay(time));
        self
    }

    /// Waits at this place of the body until the gate is opened.
    pub fn hold(mut self, gate: &Gate) -> Self {
        self.body.push(Step::Hold(gate.clone()));
        self
    }

    /// Waits before the status line is sent.
    pub fn delay_head(mut self, time: Duration) -> Self {
        self.before_head.push(Step::Delay(time));
        self
    }

    /// Waits before the status line is sent until the gate is opened.
    pub fn hold_head(mut self, gate: &Gate) -> Self {
        self.before_head.push(Step::Hold(gate.clone()));
        self
    }

    /// How the body's end is told. Default: chunked.
    pub const fn framing(mut self, framing: HttpFraming) -> Self {
        self.framing = framing;
        self
    }

    /// What happens after the body. Default: [`HttpEnd::Complete`].
    pub const fn end(mut self, end: HttpEnd) -> Self {
        self.end = end;
        self
    }

    pub(super) fn head(&self) -> String {
        use std::fmt::Write as _;
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            let name = name.trim();
            if ["content-length", "transfer-encoding", "connection"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
                continue;
            }
            // A line break inside would end the header early; a test would then chase a ghost.
            let _ = write!(head, "{}: {}\r\n", one_line(name), one_line(value));
        }
        match self.framing {
            HttpFraming::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            HttpFraming::ContentLength => {
                let length: usize = self.body.iter().map(Step::len).sum();
                let announced = if self.end == HttpEnd::Cut { length.saturating_add(1) } else { length };
                let _ = write!(head, "content-length: {announced}\r\n");
            }
            HttpFraming::CloseDelimited => {}
        }
        if self.closes() {
            head.push_str("connection: close\r\n");
        }
        head.push_str("\r\n");
        head
    }

    pub(super) const fn closes(&self) -> bool {
        matches!(self.framing, HttpFraming::CloseDelimited) || matches!(self.end, HttpEnd::Close)
    }
}

impl Step {
    const fn len(&self) -> usize {
        match self {
            Self::Send(bytes) => bytes.len(),
            Self::Delay(_) | Self::Hold(_) => 0,
        }
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c == '\r' || c == '\n' { ' ' } else { c }).collect()
}

const fn reason(status: u16) -> &'static str {
    match status {
        200..=299 => "OK",
        300..=399 => "Redirect",
        400..=499 => "Client Error",
        500..=599 => "Server Error",
        _ => "Status",
    }
}

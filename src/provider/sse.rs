//! Server-sent events, framed on bytes.
//!
//! In go the chunks of a body as they arrive, out come its events, borrowed from the buffer. Lines end in LF, CRLF or
//! CR in any mix, wherever the network cut them; nothing else ends a line. Work is linear in the bytes.
//!
//! Source: the WHATWG HTML standard, "Server-sent events", with two additions that real servers need: an `error:` field
//! (llama.cpp and what is built on it) and JSON text that stands between events without a field name (Google's
//! endpoints report failures that way) are events of their own kind.

use std::ops::Range;

use bytes::Bytes;
use memchr::memchr2;

/// The default limit of one event: 64 MiB.
pub const DEFAULT_MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

const BOM: &[u8] = b"\xEF\xBB\xBF";
/// A buffer that one huge event blew up is given back beyond this size.
const KEEP_CAPACITY: usize = 1024 * 1024;

/// What an event was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SseKind {
    /// One or more `data` fields.
    #[default]
    Data,
    /// An `error` field, which the standard does not know. `data` is its value.
    Error,
    /// Lines of JSON without a field name. `data` is those lines as they came.
    Raw,
}

/// An event, borrowed from the framer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseEvent<'a> {
    /// The `event` field; empty when there was none.
    pub name: &'a [u8],
    /// The `data` fields, joined by LF.
    pub data: &'a [u8],
    /// What it was made of.
    pub kind: SseKind,
}

/// The stream cannot be framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SseError {
    /// One event is larger than the limit.
    #[error("a server-sent event exceeds {limit} bytes")]
    EventTooLarge {
        /// The limit in bytes.
        limit: usize,
    },
}

/// Splits a body into events.
///
/// ```
/// use zidane::provider::sse::SseFramer;
///
/// let mut framer = SseFramer::new();
/// framer.feed("data: one\n\ndata: t".into());
/// assert_eq!(framer.next_event()?.map(|event| event.data), Some(&b"one"[..]));
/// assert_eq!(framer.next_event()?, None);
/// framer.feed("wo\r\n\r\n".into());
/// assert_eq!(framer.next_event()?.map(|event| event.data), Some(&b"two"[..]));
/// # Ok::<(), zidane::provider::sse::SseError>(())
/// ```
#[derive(Debug)]
pub struct SseFramer {
    /// The last chunk, parsed in place while nothing is carried over.
    chunk: Bytes,
    /// An unfinished event and the chunks after it. When it is empty, `chunk` is read.
    carry: Vec<u8>,
    /// Start of the current event, of the current line, and of what was not scanned for line ends yet.
    event_start: usize,
    line_start: usize,
    scanned: usize,
    pending: Pending,
    /// Data of an event with more than one `data` line.
    joined: Vec<u8>,
    after_cr: bool,
    bom_done: bool,
    max_event: usize,
}

/// Fields of the event that is being read, as ranges of the buffer.
#[derive(Debug, Default)]
struct Pending {
    name: Range<usize>,
    data: Range<usize>,
    data_lines: usize,
    kind: SseKind,
    /// Any line that counts was seen.
    open: bool,
}

/// Where an event that is written as usual stands in the buffer.
struct Usual {
    name: Range<usize>,
    data: Range<usize>,
    /// What follows it.
    end: usize,
}

impl Default for SseFramer {
    fn default() -> Self {
        Self::new()
    }
}

impl SseFramer {
    /// A framer with the default limit.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_MAX_EVENT_BYTES)
    }

    /// A framer that refuses events of more than `max_event` bytes, field names included.
    #[must_use]
    pub fn with_limit(max_event: usize) -> Self {
        Self {
            chunk: Bytes::new(),
            carry: Vec::new(),
            event_start: 0,
            line_start: 0,
            scanned: 0,
            pending: Pending::default(),
            joined: Vec::new(),
            after_cr: false,
            bom_done: false,
            max_event,
        }
    }

    /// Adds what the network gave. Call [`next_event`](Self::next_event) until it gives `None` before the next chunk.
    pub fn feed(&mut self, chunk: Bytes) {
        let rest = self.event_start.min(self.buffer().len());
        if self.carry.is_empty() {
            self.carry.extend_from_slice(self.chunk.get(rest..).unwrap_or_default());
        } else {
            self.carry.drain(..rest);
        }
        self.rebase(rest);
        if self.carry.is_empty() {
            if self.carry.capacity() > KEEP_CAPACITY {
                self.carry = Vec::new();
            }
            self.chunk = chunk;
        } else {
            self.chunk = Bytes::new();
            self.carry.extend_from_slice(&chunk);
        }
    }

    /// The next whole event, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`SseError::EventTooLarge`]; the framer is of no further use then.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, SseError> {
        if !self.skip_bom(false) {
            return Ok(None);
        }
        if let Some(usual) = self.usual() {
            self.check_size(usual.data.end)?;
            self.event_start = usual.end;
            self.line_start = usual.end;
            self.scanned = usual.end;
            let buffer = self.buffer();
            let part = |range| buffer.get(range).unwrap_or_default();
            return Ok(Some(SseEvent { name: part(usual.name), data: part(usual.data), kind: SseKind::Data }));
        }
        while let Some(line) = self.next_line() {
            self.check_size(line.end)?;
            if !line.is_empty() {
                self.field(line);
            } else if self.pending.open {
                return Ok(Some(self.dispatch()));
            } else {
                self.event_start = self.line_start;
            }
        }
        self.check_size(self.buffer().len())?;
        Ok(None)
    }

    /// The event that the end of the body left without its blank line, if there is one.
    ///
    /// The standard drops it. Some servers end without the last blank line, so it is given here; but a connection
    /// that was cut leaves half an event in the same place, and only the caller can tell (is the JSON whole?).
    pub fn finish(&mut self) -> Option<SseEvent<'_>> {
        self.skip_bom(true);
        self.skip_lf();
        let end = self.buffer().len();
        let line = self.line_start..end;
        self.line_start = end;
        self.scanned = end;
        if !line.is_empty() {
            self.field(line);
        }
        self.pending.open.then(|| self.dispatch())
    }

    fn buffer(&self) -> &[u8] {
        if self.carry.is_empty() { &self.chunk } else { &self.carry }
    }

    fn rebase(&mut self, by: usize) {
        self.event_start = self.event_start.saturating_sub(by);
        self.line_start = self.line_start.saturating_sub(by);
        self.scanned = self.scanned.saturating_sub(by);
        for range in [&mut self.pending.name, &mut self.pending.data] {
            *range = range.start.saturating_sub(by)..range.end.saturating_sub(by);
        }
    }

    fn check_size(&self, end: usize) -> Result<(), SseError> {
        if end.saturating_sub(self.event_start) > self.max_event {
            return Err(SseError::EventTooLarge { limit: self.max_event });
        }
        Ok(())
    }

    /// Whether reading can go on.
    fn skip_bom(&mut self, at_end: bool) -> bool {
        if !self.bom_done {
            let buffer = self.buffer();
            if buffer.len() < BOM.len() && BOM.starts_with(buffer) && !at_end {
                return false;
            }
            if buffer.starts_with(BOM) {
                self.event_start = BOM.len();
                self.line_start = BOM.len();
                self.scanned = BOM.len();
            }
            self.bom_done = true;
        }
        true
    }

    /// Passes over the LF of a CRLF whose CR ended the last line.
    fn skip_lf(&mut self) {
        if !self.after_cr {
            return;
        }
        if let Some(&first) = self.buffer().get(self.line_start) {
            self.after_cr = false;
            if first == b'\n' {
                self.line_start += 1;
                self.scanned = self.line_start;
                if !self.pending.open {
                    self.event_start = self.line_start;
                }
            }
        }
    }

    /// A whole event as nearly all are written: perhaps `event: ` and a line, `data: ` and a line, a blank line; LF only.
    /// Anything else is read line by line.
    fn usual(&self) -> Option<Usual> {
        let fresh = !self.pending.open && self.scanned == self.event_start && self.line_start == self.event_start;
        if !fresh || self.after_cr {
            return None;
        }
        let buffer = self.buffer();
        let mut at = self.event_start;
        let mut name = 0..0;
        if buffer.get(at..)?.starts_with(b"event: ") {
            let start = at + b"event: ".len();
            // Names are short.
            let end = start + buffer.get(start..)?.iter().position(|byte| matches!(byte, b'\n' | b'\r'))?;
            if buffer.get(end) != Some(&b'\n') {
                return None;
            }
            name = start..end;
            at = end + 1;
        }
        let rest = buffer.get(at..)?.strip_prefix(b"data: ")?;
        let length = memchr2(b'\n', b'\r', rest)?;
        if rest.get(length..length + 2)? != b"\n\n" {
            return None;
        }
        let start = at + b"data: ".len();
        Some(Usual { name, data: start..start + length, end: start + length + 2 })
    }

    fn next_line(&mut self) -> Option<Range<usize>> {
        self.skip_lf();
        let buffer = self.buffer();
        let rest = buffer.get(self.scanned..).unwrap_or_default();
        // Every other line or so is blank: that is seen at once.
        let offset = if rest.first() == Some(&b'\n') { Some(0) } else { memchr2(b'\n', b'\r', rest) };
        let Some(offset) = offset else {
            self.scanned = buffer.len();
            return None;
        };
        let end = self.scanned + offset;
        self.after_cr = buffer.get(end) == Some(&b'\r');
        let line = self.line_start..end;
        self.line_start = end + 1;
        self.scanned = self.line_start;
        Some(line)
    }

    fn field(&mut self, line: Range<usize>) {
        let buffer = if self.carry.is_empty() { &self.chunk[..] } else { &self.carry[..] };
        let text = buffer.get(line.clone()).unwrap_or_default();
        let pending = &mut self.pending;
        if pending.kind == SseKind::Raw {
            pending.data.end = line.end;
            return;
        }
        let colon = match text {
            [b'd', b'a', b't', b'a', b':', ..] => 4,
            [b'e', b'v', b'e', b'n', b't', b':', ..] => 5,
            _ => memchr::memchr(b':', text).unwrap_or(text.len()),
        };
        let mut value = (line.start + colon + 1).min(line.end)..line.end;
        if buffer.get(value.clone()).is_some_and(|value| value.starts_with(b" ")) {
            value.start += 1;
        }
        match text.get(..colon).unwrap_or_default() {
            b"data" => {
                match pending.data_lines {
                    0 => pending.data = value,
                    lines => {
                        if lines == 1 {
                            self.joined.clear();
                            self.joined.extend_from_slice(buffer.get(pending.data.clone()).unwrap_or_default());
                        }
                        self.joined.push(b'\n');
                        self.joined.extend_from_slice(buffer.get(value).unwrap_or_default());
                    }
                }
                pending.data_lines += 1;
                pending.open = true;
            }
            b"event" => {
                pending.name = value;
                pending.open = true;
            }
            b"error" => {
                pending.kind = SseKind::Error;
                pending.data = value;
                pending.data_lines = 1;
                pending.open = true;
            }
            _ if !pending.open && matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) => {
                pending.kind = SseKind::Raw;
                pending.data = line;
                pending.data_lines = 1;
                pending.open = true;
            }
            // Comments and unknown fields. They are not held on to, so that hours of keep-alive comments stay small.
            _ if !pending.open => self.event_start = self.line_start,
            _ => {}
        }
    }

    fn dispatch(&mut self) -> SseEvent<'_> {
        let pending = std::mem::take(&mut self.pending);
        self.event_start = self.line_start;
        let buffer = self.buffer();
        let data = if pending.data_lines > 1 && pending.kind == SseKind::Data {
            &self.joined
        } else {
            buffer.get(pending.data).unwrap_or_default()
        };
        SseEvent { name: buffer.get(pending.name).unwrap_or_default(), data, kind: pending.kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Owned = (String, String, SseKind);

    fn owned(event: SseEvent<'_>) -> Owned {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(event.name), text(event.data), event.kind)
    }

    fn frame(chunks: &[&[u8]]) -> Vec<Owned> {
        let mut framer = SseFramer::new();
        let mut events = Vec::new();
        for chunk in chunks {
            framer.feed(Bytes::copy_from_slice(chunk));
            while let Some(event) = framer.next_event().unwrap() {
                events.push(owned(event));
            }
        }
        events.extend(framer.finish().map(owned));
        assert_eq!(framer.finish(), None);
        events
    }

    fn every_cut(body: &[u8]) -> Vec<Owned> {
        let whole = frame(&[body]);
        for at in 0..=body.len() {
            assert_eq!(frame(&[&body[..at], &body[at..]]), whole, "cut at {at}");
        }
        assert_eq!(frame(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
        whole
    }

    fn data(text: &str) -> Owned {
        (String::new(), text.to_owned(), SseKind::Data)
    }

    #[test]
    fn any_line_end_in_any_mix() {
        let body = "data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\rdata: e\n\ndata: f\r\n\r\n";
        assert_eq!(every_cut(body.as_bytes()), [data("a\nb\nc"), data("d"), data("e"), data("f")]);
    }

    #[test]
    fn only_cr_and_lf_end_a_line() {
        let body = "data: a\u{2028}b\u{2029}c\u{85}d\u{c}e\u{b}f\n\n";
        assert_eq!(every_cut(body.as_bytes()), [data("a\u{2028}b\u{2029}c\u{85}d\u{c}e\u{b}f")]);
    }

    #[test]
    fn comments_and_unknown_fields_are_nothing() {
        let body = ": hi\n\n:\nid: 3\nretry: 5\nwhat\n\n: x\ndata: a\n: y\nfoo: {\n\n: z\n";
        assert_eq!(every_cut(body.as_bytes()), [data("a")]);
    }

    #[test]
    fn one_space_is_optional_and_the_second_is_data() {
        assert_eq!(every_cut(b"data:a\n\ndata:  b\n\ndata\n\n"), [data("a"), data(" b"), data("")]);
    }

    #[test]
    fn one_bom_at_the_start_is_dropped() {
        let body = "\u{feff}data: a\n\ndata: \u{feff}b\n\n\u{feff}data: c\n\n";
        assert_eq!(every_cut(body.as_bytes()), [data("a"), data("\u{feff}b")]);
    }

    #[test]
    fn names_and_error_fields_and_bare_json() {
        let body = "event: ping\ndata: {}\n\nerror: {\"code\":500}\n\n{\n \"error\": {\n}\n}\n\ndata: x\n\n";
        let expected = [
            ("ping".to_owned(), "{}".to_owned(), SseKind::Data),
            (String::new(), "{\"code\":500}".to_owned(), SseKind::Error),
            (String::new(), "{\n \"error\": {\n}\n}".to_owned(), SseKind::Raw),
            data("x"),
        ];
        assert_eq!(every_cut(body.as_bytes()), expected);
    }

    #[test]
    fn what_the_end_leaves_is_given() {
        assert_eq!(every_cut(b"data: a\n\ndata: b\n"), [data("a"), data("b")]);
        assert_eq!(every_cut(b"data: a\n\ndata: b"), [data("a"), data("b")]);
        assert_eq!(every_cut(b"data: b\r"), [data("b")]);
        assert_eq!(every_cut(b""), []);
        assert_eq!(every_cut(b"\xEF\xBB"), []);
    }

    #[test]
    fn too_large_is_an_error_wherever_it_is_cut() {
        let body = [b"data: ".as_slice(), &[b'x'; 100], b"\n\n"].concat();
        for size in [1, 7, 50, 1000] {
            let mut framer = SseFramer::with_limit(60);
            let mut result = Ok(None);
            for chunk in body.chunks(size) {
                framer.feed(Bytes::copy_from_slice(chunk));
                result = framer.next_event().map(|event| event.map(owned));
                if result.is_err() {
                    break;
                }
            }
            assert_eq!(result, Err(SseError::EventTooLarge { limit: 60 }), "{size}");
        }
    }

    #[test]
    fn keep_alive_comments_are_not_kept() {
        let mut framer = SseFramer::with_limit(60);
        for _ in 0..1000 {
            framer.feed(Bytes::from_static(b": keep-alive\n"));
            assert_eq!(framer.next_event(), Ok(None));
        }
        assert!(framer.carry.len() < 60);
    }

    #[test]
    fn whole_events_are_borrowed_from_the_chunk() {
        let chunk = Bytes::from_static(b"data: abc\n\n");
        let mut framer = SseFramer::new();
        framer.feed(chunk.clone());
        let event = framer.next_event().unwrap().unwrap();
        assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_cut_give_the_same_events(
            body in proptest::collection::vec(
                prop_oneof![Just("data"), Just("event"), Just("error"), Just(":"), Just(" "), Just("\r"), Just("\n"),
                    Just("\n\n"), Just("{"), Just("x"), Just("\u{feff}"), Just("é")],
                0..60,
            ),
            cut in 0usize..200,
        ) {
            let body = body.concat();
            let at = cut.min(body.len());
            let whole = frame(&[body.as_bytes()]);
            prop_assert_eq!(&frame(&[&body.as_bytes()[..at], &body.as_bytes()[at..]]), &whole);
            prop_assert_eq!(&frame(&body.as_bytes().chunks(1).collect::<Vec<_>>()), &whole);
        }
    }
}

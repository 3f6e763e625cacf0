use super::json_string::{json_string, plain_string};

/// Recognises a chunk of a stream that differs from the one before in its delta alone.
///
/// The chunks of an answer are the same byte for byte but for the delta, a running number at some vendors, and padding
/// against traffic analysis. The bytes around these are remembered; a chunk with the same bytes around its own needs no
/// parser. Whatever differs goes to serde, which learns the shape anew. `K` is what such a delta does.
#[derive(Debug)]
pub(crate) struct Shape<K> {
    kind: Option<K>,
    prefix: Vec<u8>,
    /// What follows each piece that differs; the delta is the only piece with text that counts.
    pieces: Vec<(Piece, Vec<u8>)>,
}

/// What differs from chunk to chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    /// The delta: the inside of a JSON string.
    Delta,
    /// The inside of a JSON string without escapes that means nothing.
    Padding,
    /// Digits that mean nothing.
    Number,
}

/// Beginnings of the fields that differ besides: padding of OpenAI and Azure, of Mistral; the number of an event.
const FIELDS: [(&[u8], Piece); 3] =
    [(b"\"obfuscation\":\"", Piece::Padding), (b"\"p\":\"", Piece::Padding), (b"\"sequence_number\":", Piece::Number)];

impl<K> Default for Shape<K> {
    fn default() -> Self {
        Self { kind: None, prefix: Vec::new(), pieces: Vec::new() }
    }
}

impl<K: Copy> Shape<K> {
    pub(crate) fn forget(&mut self) {
        self.kind = None;
    }

    /// Remembers the bytes around `text`, if it is a piece of `chunk`.
    pub(crate) fn learn(&mut self, chunk: &[u8], text: &str, kind: K) {
        self.kind = None;
        let Some(start) = (text.as_ptr() as usize).checked_sub(chunk.as_ptr() as usize) else { return };
        let Some(end) = start.checked_add(text.len()) else { return };
        let (Some(before), Some(after)) = (chunk.get(..start), chunk.get(end..)) else { return };
        if !before.ends_with(b"\"") || !after.starts_with(b"\"") {
            return;
        }
        // The names of fields cannot stand inside the delta: a quote is escaped there.
        let mut pieces = vec![(start, end, Piece::Delta)];
        for (field, piece) in FIELDS {
            let Some(at) = memchr::memmem::find(chunk, field) else { continue };
            let value = at.saturating_add(field.len());
            let rest = chunk.get(value..).unwrap_or_default();
            if let Some(length) = piece.length(rest) {
                pieces.push((value, value.saturating_add(length), piece));
            }
        }
        pieces.sort_unstable_by_key(|(start, ..)| *start);
        self.prefix.clear();
        self.pieces.clear();
        let mut from = 0;
        for (start, end, piece) in pieces {
            let Some(literal) = chunk.get(from..start) else { return };
            self.after_last().extend_from_slice(literal);
            self.pieces.push((piece, Vec::new()));
            from = end;
        }
        let rest = chunk.get(from..).unwrap_or_default();
        self.after_last().extend_from_slice(rest);
        self.kind = Some(kind);
    }

    fn after_last(&mut self) -> &mut Vec<u8> {
        match self.pieces.last_mut() {
            Some((_, literal)) => literal,
            None => &mut self.prefix,
        }
    }

    /// The delta of `chunk`, if it has the remembered shape. Never empty.
    pub(crate) fn read(&self, chunk: &[u8]) -> Option<(K, String)> {
        let kind = self.kind?;
        let mut rest = chunk.strip_prefix(&*self.prefix)?;
        let mut delta = None;
        for (piece, literal) in &self.pieces {
            rest = match piece {
                Piece::Delta => {
                    let (text, rest) = json_string(rest)?;
                    delta = Some(text);
                    rest
                }
                piece => rest.get(piece.length(rest)?..)?,
            };
            rest = rest.strip_prefix(&**literal)?;
        }
        delta.filter(|text| rest.is_empty() && !text.is_empty()).map(|text| (kind, text))
    }
}

impl Piece {
    /// How many bytes of `rest` the piece takes. `None` where there is none.
    fn length(self, rest: &[u8]) -> Option<usize> {
        match self {
            Self::Delta => None,
            Self::Padding => plain_string(rest),
            Self::Number => rest.iter().position(|byte| !byte.is_ascii_digit()).filter(|length| *length > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, tail: &str) -> String {
        format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]{tail}}}"#)
    }

    fn learned(text: &str, tail: &str) -> Shape<u8> {
        learned_from(&chunk(text, tail), "\"content\":\"", text)
    }

    fn learned_from(chunk: &str, field: &str, text: &str) -> Shape<u8> {
        let start = chunk.find(field).unwrap() + field.len();
        let mut shape = Shape::default();
        shape.learn(chunk.as_bytes(), &chunk[start..start + text.len()], 0);
        shape
    }

    fn read(shape: &Shape<u8>, chunk: &str) -> Option<String> {
        shape.read(chunk.as_bytes()).map(|(_, text)| text)
    }

    #[test]
    fn the_same_shape_is_read_without_a_parser() {
        let shape = learned("one", "");
        assert_eq!(read(&shape, &chunk("two", "")).as_deref(), Some("two"));
        assert_eq!(read(&shape, &chunk(r#"a\n\"b\\é"#, "")).as_deref(), Some("a\n\"b\\é"));
        assert_eq!(read(&shape, &chunk(r"\n", "")).as_deref(), Some("\n"));
    }

    #[test]
    fn whatever_differs_goes_to_the_parser() {
        let shape = learned("one", "");
        for other in [chunk("", ""), chunk("x", ",\"usage\":1"), chunk(r"\u00e9", ""), chunk("a\u{1}b", "")] {
            assert_eq!(read(&shape, &other), None, "{other}");
        }
        assert_eq!(read(&shape, &chunk("two", "")[..30]), None);
        let bytes = [chunk("", "").into_bytes()].concat();
        assert_eq!(shape.read(&bytes[1..]), None);
        let mut forgotten = learned("one", "");
        forgotten.forget();
        assert_eq!(read(&forgotten, &chunk("two", "")), None);
    }

    #[test]
    fn padding_may_differ() {
        let shape = learned("one", r#","obfuscation":"abc""#);
        assert_eq!(read(&shape, &chunk("two", r#","obfuscation":"defghi""#)).as_deref(), Some("two"));
        assert_eq!(read(&shape, &chunk("two", r#","obfuscation":"""#)).as_deref(), Some("two"));
        assert_eq!(read(&shape, &chunk("two", r#","obfuscation":"x","more":1"#)), None);
    }

    #[test]
    fn a_running_number_may_stand_before_or_after() {
        let before = |n: u32, text: &str| format!(r#"{{"sequence_number":{n},"delta":"{text}","obfuscation":"xy"}}"#);
        let shape = learned_from(&before(9, "one"), "\"delta\":\"", "one");
        assert_eq!(read(&shape, &before(10, "two")).as_deref(), Some("two"));
        assert_eq!(read(&shape, &before(10, "two").replace("10", "\"10\"")), None);
        let after = |n: u32, text: &str| format!(r#"{{"obfuscation":"x","delta":"{text}","sequence_number":{n}}}"#);
        let shape = learned_from(&after(9, "one"), "\"delta\":\"", "one");
        assert_eq!(read(&shape, &after(10, r#"\"sequence_number\":7"#)).as_deref(), Some("\"sequence_number\":7"));
        assert_eq!(read(&shape, &(after(10, "two") + " ")), None);
    }

    #[test]
    fn text_from_elsewhere_teaches_nothing() {
        let mut shape = Shape::default();
        shape.learn(b"{\"content\":\"one\"}", "one", 0);
        assert_eq!(read(&shape, "{\"content\":\"one\"}"), None);
    }
}

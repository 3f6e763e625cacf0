use crate::provider::json_string::{json_string, plain_string};

/// What a delta of the remembered shape does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeltaKind {
    /// Text of a block.
    Text(u32),
    /// Reasoning of a block.
    Thinking(u32),
    /// Arguments of the last call.
    Arguments(u32),
}

/// Recognises a chunk that differs from the one before in its delta alone.
///
/// The chunks of an answer are the same byte for byte but for the delta, and at some vendors for padding against traffic
/// analysis. The bytes around the delta of the last chunk are remembered; a chunk with the same bytes around its own
/// needs no parser. Whatever differs goes to serde, which learns the shape anew.
#[derive(Debug, Default)]
pub(super) struct Shape {
    kind: Option<DeltaKind>,
    prefix: Vec<u8>,
    suffix: Vec<u8>,
    /// Where in `suffix` the padding's value is cut out.
    padding: Option<usize>,
}

/// Beginnings of the fields that hold padding: OpenAI and Azure, Mistral.
const PADDING: [&[u8]; 2] = [b"\"obfuscation\":\"", b"\"p\":\""];

impl Shape {
    pub(super) fn forget(&mut self) {
        self.kind = None;
    }

    /// Remembers the bytes around `text`, if it is a piece of `chunk`.
    pub(super) fn learn(&mut self, chunk: &[u8], text: &str, kind: DeltaKind) {
        self.kind = None;
        let Some(start) = (text.as_ptr() as usize).checked_sub(chunk.as_ptr() as usize) else { return };
        let Some(end) = start.checked_add(text.len()) else { return };
        let (Some(prefix), Some(suffix)) = (chunk.get(..start), chunk.get(end..)) else { return };
        if !prefix.ends_with(b"\"") || !suffix.starts_with(b"\"") {
            return;
        }
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.suffix.clear();
        self.padding = None;
        for field in PADDING {
            let Some(at) = memchr::memmem::find(suffix, field) else { continue };
            let value = at.saturating_add(field.len());
            let rest = suffix.get(value..).unwrap_or_default();
            let Some(length) = plain_string(rest) else { continue };
            self.suffix.extend_from_slice(suffix.get(..value).unwrap_or_default());
            self.suffix.extend_from_slice(rest.get(length..).unwrap_or_default());
            self.padding = Some(value);
            break;
        }
        if self.padding.is_none() {
            self.suffix.extend_from_slice(suffix);
        }
        self.kind = Some(kind);
    }

    /// The delta of `chunk`, if it has the remembered shape. Never empty.
    pub(super) fn read(&self, chunk: &[u8]) -> Option<(DeltaKind, String)> {
        let kind = self.kind?;
        let rest = chunk.strip_prefix(&*self.prefix)?;
        let (text, suffix) = json_string(rest)?;
        let same = match self.padding {
            None => suffix == self.suffix,
            Some(at) => {
                let (before, after) = self.suffix.split_at_checked(at)?;
                let rest = suffix.strip_prefix(before)?;
                rest.get(plain_string(rest)?..)? == after
            }
        };
        (same && !text.is_empty()).then_some((kind, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, tail: &str) -> String {
        format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}]{tail}}}"#)
    }

    fn learned(text: &str, tail: &str) -> Shape {
        let chunk = chunk(text, tail);
        let start = chunk.find("\"content\":\"").unwrap() + 11;
        let mut shape = Shape::default();
        shape.learn(chunk.as_bytes(), &chunk[start..start + text.len()], DeltaKind::Text(0));
        shape
    }

    fn read(shape: &Shape, chunk: &str) -> Option<String> {
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
    fn text_from_elsewhere_teaches_nothing() {
        let mut shape = Shape::default();
        shape.learn(b"{\"content\":\"one\"}", "one", DeltaKind::Text(0));
        assert_eq!(read(&shape, "{\"content\":\"one\"}"), None);
    }
}

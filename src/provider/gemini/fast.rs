use super::super::json_string::json_string;
use super::usage::Usage;

/// Recognises a chunk that differs from the one before in its text and its usage alone.
///
/// Most chunks of an answer do. The bytes around both are remembered; a chunk with the same bytes around its own needs
/// no parser but for the counts. Whatever differs goes to serde, which learns the shape anew.
#[derive(Debug, Default)]
pub(super) struct Shape {
    known: bool,
    before: Vec<u8>,
    /// From the text to the usage, or to the end.
    between: Vec<u8>,
    /// Behind the usage, where there is one.
    after: Option<Vec<u8>>,
}

impl Shape {
    pub(super) fn forget(&mut self) {
        self.known = false;
    }

    /// Remembers the bytes around `text` and `usage`, if they are pieces of `chunk` in this order.
    pub(super) fn learn(&mut self, chunk: &str, text: &str, usage: Option<&str>) {
        self.known = false;
        let bytes = chunk.as_bytes();
        let place = |piece: &str| {
            let start = (piece.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
            Some((start, start.checked_add(piece.len())?))
        };
        let Some((text_start, text_end)) = place(text) else { return };
        let (usage_start, usage_end) = match usage {
            None => (bytes.len(), None),
            Some(usage) => match place(usage) {
                Some((start, end)) => (start, Some(end)),
                None => return,
            },
        };
        let (Some(before), Some(between)) = (bytes.get(..text_start), bytes.get(text_end..usage_start)) else { return };
        let after = usage_end.map(|end| bytes.get(end..).unwrap_or_default());
        if !before.ends_with(b"\"") || !between.starts_with(b"\"") {
            return;
        }
        fill(&mut self.before, before);
        fill(&mut self.between, between);
        match (&mut self.after, after) {
            (Some(kept), Some(after)) => fill(kept, after),
            (kept, after) => *kept = after.map(<[u8]>::to_vec),
        }
        self.known = true;
    }

    /// The text and the usage of `chunk`, if it has the remembered shape. The text is never empty.
    pub(super) fn read(&self, chunk: &str) -> Option<(String, Option<Usage>)> {
        if !self.known {
            return None;
        }
        let rest = chunk.as_bytes().strip_prefix(&*self.before)?;
        let (text, rest) = json_string(rest)?;
        if text.is_empty() {
            return None;
        }
        let Some(after) = &self.after else { return (rest == self.between).then_some((text, None)) };
        let rest = rest.strip_prefix(&*self.between)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<Usage>();
        let usage = values.next()?.ok()?;
        (rest.get(values.byte_offset()..)? == after).then_some((text, Some(usage)))
    }
}

fn fill(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str, usage: &str, tail: &str) -> String {
        format!(r#"{{"candidates": [{{"content": {{"parts": [{{"text": "{text}"}}]}}}}]{usage}{tail}}}"#)
    }

    fn learned(usage: &str, tail: &str) -> Shape {
        let chunk = chunk("one", usage, tail);
        let start = chunk.find("one").unwrap();
        let counts = chunk.find("{\"prompt").map(|at| &chunk[at..=at + chunk[at..].find('}').unwrap()]);
        let mut shape = Shape::default();
        shape.learn(&chunk, &chunk[start..start + 3], counts);
        shape
    }

    #[test]
    fn the_same_shape_is_read_and_another_is_not() {
        let usage = r#", "usageMetadata": {"promptTokenCount": 3}"#;
        let more = r#", "usageMetadata": {"promptTokenCount": 4, "x": [{"y": 1}]}"#;
        let tail = r#", "modelVersion": "m""#;
        let shape = learned(usage, tail);
        let (text, counts) = shape.read(&chunk(r"t\nwo", more, tail)).unwrap();
        assert_eq!(text, "t\nwo");
        assert_eq!(format!("{counts:?}").matches("Some(4)").count(), 1);
        let ended = chunk("two", usage, tail).replace("}]}}]", r#"}]},"finishReason":"STOP"}]"#);
        for other in [chunk("", usage, tail), chunk("two", "", tail), chunk("two", usage, ""), ended] {
            assert!(shape.read(&other).is_none(), "{other}");
        }
        let bare = learned("", "");
        assert!(bare.read(&chunk("two", "", "")).is_some_and(|(_, usage)| usage.is_none()));
        assert!(bare.read(&chunk("two", usage, "")).is_none());
    }

    #[test]
    fn text_from_elsewhere_teaches_nothing() {
        let mut shape = Shape::default();
        shape.learn(r#"{"text":"one"}"#, "one", None);
        assert!(shape.read(r#"{"text":"one"}"#).is_none());
    }
}

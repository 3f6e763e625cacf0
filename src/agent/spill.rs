use std::sync::Arc;

use crate::session::BlobStore;
use crate::types::{ToolResultBlock, ToolResultBody, ToolResultContent};

/// Cuts long tool output, as an opt-in: the model reads its beginning and its end, and the whole is kept as a blob whose
/// key it is told.
///
/// Applied to each text of a result after `tool:transform`. What cannot be kept is not cut.
#[derive(Clone)]
#[must_use]
pub struct OutputSpill {
    max_bytes: usize,
    blobs: Arc<dyn BlobStore>,
}

impl OutputSpill {
    /// Cuts texts of more than `max_bytes` bytes to about that.
    pub fn new(max_bytes: usize, blobs: impl BlobStore + 'static) -> Self {
        Self { max_bytes, blobs: Arc::new(blobs) }
    }

    pub(super) async fn apply(&self, result: &mut ToolResultBlock) {
        match &mut result.output {
            ToolResultBody::Text(text) => self.cut(text).await,
            ToolResultBody::Blocks(blocks) => {
                for block in blocks {
                    if let ToolResultContent::Text { text } = block {
                        self.cut(text).await;
                    }
                }
            }
        }
    }

    async fn cut(&self, text: &mut String) {
        if text.len() <= self.max_bytes {
            return;
        }
        let key = match self.blobs.put(text.clone().into_bytes()).await {
            Ok(key) => key,
            Err(error) => {
                tracing::warn!(%error, "long tool output could not be kept, and so is not cut");
                return;
            }
        };
        let Some(Ends { head, left_out, tail }) = Ends::of(text, self.max_bytes) else { return };
        *text = format!("{head}\n[{left_out} bytes left out here; all {} are kept as ref {key}]\n{tail}", text.len());
    }
}

/// The beginning and the end of a long text.
pub(super) struct Ends<'a> {
    head: &'a str,
    left_out: usize,
    tail: &'a str,
}

impl<'a> Ends<'a> {
    /// Half of `max_bytes` of each end, cut between characters, and not within a line's end. `None` when all of it fits.
    pub(super) fn of(text: &'a str, max_bytes: usize) -> Option<Self> {
        if text.len() <= max_bytes {
            return None;
        }
        let half = max_bytes / 2;
        let within =
            |place: usize| text.as_bytes().get(place.saturating_sub(1)..).is_some_and(|b| b.starts_with(b"\r\n"));
        let mut head = text.floor_char_boundary(half);
        head -= usize::from(head > 0 && within(head));
        let mut tail = text.ceil_char_boundary(text.len().saturating_sub(half));
        tail += usize::from(tail > 0 && within(tail));
        let left_out = tail.saturating_sub(head);
        Some(Self { head: text.get(..head).unwrap_or_default(), left_out, tail: text.get(tail..).unwrap_or_default() })
    }
}

impl std::fmt::Display for Ends<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n[{} bytes left out here]\n{}", self.head, self.left_out, self.tail)
    }
}

impl std::fmt::Debug for OutputSpill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSpill").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_whole_characters_and_lines() {
        let ends =
            |text, max| Ends::of(text, max).map(|ends| (ends.head.to_owned(), ends.left_out, ends.tail.to_owned()));
        assert_eq!(ends("aé中🌍b", 11), None);
        assert_eq!(ends("aé中🌍b", 10), Some(("aé".into(), 3, "🌍b".into())));
        assert_eq!(ends("aé中🌍b", 0), Some((String::new(), 11, String::new())));
        assert_eq!(ends("a\r\nbcd\r\ne", 4), Some(("a".into(), 7, "e".into())));
        assert_eq!(ends("\r\n\r\n", 2), Some((String::new(), 4, String::new())));
        for text in ["a\r\nb\r\nc\r\n", "中\r\n🌍", "\r\r\n\n"] {
            for max in 0..text.len() {
                let (head, left_out, tail) = ends(text, max).unwrap();
                assert!(head.len() <= max && tail.len() <= max && head.len() + left_out + tail.len() == text.len());
                assert!(text.starts_with(&head) && text.ends_with(&tail), "{text:?} {max}");
            }
        }
    }
}

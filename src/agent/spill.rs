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
    /// Half of `max_bytes` of each end, cut between characters. `None` when all of it fits.
    pub(super) fn of(text: &'a str, max_bytes: usize) -> Option<Self> {
        if text.len() <= max_bytes {
            return None;
        }
        let half = max_bytes / 2;
        let head = text.floor_char_boundary(half);
        let tail = text.ceil_char_boundary(text.len().saturating_sub(half));
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

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{BlobError, BlobStore};
use crate::types::{MediaSource, ResourceContent, SessionContentBlock, ToolResultBody, ToolResultContent};

/// Whether there is media of more than `threshold` base64 characters.
pub(crate) fn is_large(content: &[SessionContentBlock], threshold: usize) -> bool {
    content.iter().any(|block| holds(block, &|held| matches!(held, Held::Inline(data) if data.len() > threshold)))
}

/// Whether the output of a call has media of more than `threshold` base64 characters.
pub(crate) fn is_large_output(output: &ToolResultBody, threshold: usize) -> bool {
    output_holds(output, &|held| matches!(held, Held::Inline(data) if data.len() > threshold))
}

/// Whether there are references to blobs.
pub(crate) fn refers(content: &[SessionContentBlock]) -> bool {
    content.iter().any(|block| holds(block, &|held| matches!(held, Held::Ref)))
}

/// Whether the output of a call refers to blobs.
pub(crate) fn output_refers(output: &ToolResultBody) -> bool {
    output_holds(output, &|held| matches!(held, Held::Ref))
}

/// What a place for media has in it.
enum Held<'a> {
    Inline(&'a str),
    Ref,
    Other,
}

impl<'a> From<&'a MediaSource> for Held<'a> {
    fn from(source: &'a MediaSource) -> Self {
        match source {
            MediaSource::Data(data) => Self::Inline(data),
            MediaSource::Ref(_) => Self::Ref,
            _ => Self::Other,
        }
    }
}

fn holds(block: &SessionContentBlock, test: &impl Fn(Held<'_>) -> bool) -> bool {
    match block {
        SessionContentBlock::Image(media) => test((&media.source).into()),
        SessionContentBlock::Document(document) => test((&document.media.source).into()),
        SessionContentBlock::ToolResult(result) => output_holds(&result.output, test),
        _ => false,
    }
}

fn output_holds(output: &ToolResultBody, test: &impl Fn(Held<'_>) -> bool) -> bool {
    let ToolResultBody::Blocks(blocks) = output else { return false };
    blocks.iter().any(|block| match block {
        ToolResultContent::Image(media) | ToolResultContent::Audio(media) | ToolResultContent::Video(media) => {
            test((&media.source).into())
        }
        ToolResultContent::Resource(resource) => test(match &resource.content {
            ResourceContent::Blob(data) => Held::Inline(data),
            ResourceContent::Ref(_) => Held::Ref,
            _ => Held::Other,
        }),
        _ => false,
    })
}

/// Moves media of more than `threshold` base64 characters into a blob store; the content keeps references. Returns how
/// many were moved.
///
/// Base64 that is not in its one canonical form stays where it is, so that what comes back is what went in, byte for
/// byte. When it fails, or the future is dropped, what was moved by then is moved, and the rest is as it was.
///
/// # Errors
/// As [`BlobStore::put`].
pub async fn offload_media(
    content: &mut [SessionContentBlock],
    blobs: &dyn BlobStore,
    threshold: usize,
) -> Result<usize, BlobError> {
    let mut moved = 0_usize;
    for mut slot in content.iter_mut().flat_map(slots) {
        let bytes = slot.inline().filter(|data| data.len() > threshold).and_then(|data| STANDARD.decode(data).ok());
        let Some(bytes) = bytes else { continue };
        let key = blobs.put(bytes).await?;
        slot.refer_to(key);
        moved = moved.saturating_add(1);
    }
    Ok(moved)
}

/// Replaces references by what they refer to, of `limit` bytes each at most, for a request that is to be sent. Returns
/// the keys of which the store has nothing; those references stay.
///
/// When it fails, or the future is dropped, what was loaded by then is loaded, and the rest is as it was.
///
/// # Errors
/// As [`BlobStore::get`].
pub async fn restore_media(
    content: &mut [SessionContentBlock],
    blobs: &dyn BlobStore,
    limit: u64,
) -> Result<Vec<String>, BlobError> {
    let mut missing = Vec::new();
    for mut slot in content.iter_mut().flat_map(slots) {
        let Some(key) = slot.key() else { continue };
        match blobs.get(key, limit).await? {
            Some(bytes) => slot.hold(STANDARD.encode(bytes)),
            None => missing.push(key.to_owned()),
        }
    }
    Ok(missing)
}

/// A place that holds bytes or a reference to them.
enum Slot<'a> {
    Media(&'a mut MediaSource),
    Resource(&'a mut ResourceContent),
}

fn slots(block: &mut SessionContentBlock) -> Vec<Slot<'_>> {
    match block {
        SessionContentBlock::Image(media) => vec![Slot::Media(&mut media.source)],
        SessionContentBlock::Document(document) => vec![Slot::Media(&mut document.media.source)],
        SessionContentBlock::ToolResult(result) => match &mut result.output {
            ToolResultBody::Blocks(blocks) => blocks.iter_mut().filter_map(slot).collect(),
            ToolResultBody::Text(_) => Vec::new(),
        },
        _ => Vec::new(),
    }
}

fn slot(block: &mut ToolResultContent) -> Option<Slot<'_>> {
    match block {
        ToolResultContent::Image(media) | ToolResultContent::Audio(media) | ToolResultContent::Video(media) => {
            Some(Slot::Media(&mut media.source))
        }
        ToolResultContent::Resource(resource) => Some(Slot::Resource(&mut resource.content)),
        _ => None,
    }
}

impl Slot<'_> {
    fn inline(&self) -> Option<&str> {
        match self {
            Self::Media(MediaSource::Data(data)) | Self::Resource(ResourceContent::Blob(data)) => Some(data),
            _ => None,
        }
    }

    fn key(&self) -> Option<&str> {
        match self {
            Self::Media(MediaSource::Ref(key)) | Self::Resource(ResourceContent::Ref(key)) => Some(key),
            _ => None,
        }
    }

    fn refer_to(&mut self, key: String) {
        match self {
            Self::Media(source) => **source = MediaSource::Ref(key),
            Self::Resource(content) => **content = ResourceContent::Ref(key),
        }
    }

    fn hold(&mut self, data: String) {
        match self {
            Self::Media(source) => **source = MediaSource::Data(data),
            Self::Resource(content) => **content = ResourceContent::Blob(data),
        }
    }
}

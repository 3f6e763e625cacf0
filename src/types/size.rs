use std::borrow::Cow;
use std::fmt::{self, Write};

use super::{Media, MediaSource, Resource, ResourceContent, ToolResultBody, ToolResultContent};

/// A borrowed tool output: what the three size functions take.
#[derive(Clone, Copy, Debug)]
pub enum ToolOutputRef<'a> {
    /// A plain string.
    Text(&'a str),
    /// Structured blocks.
    Blocks(&'a [ToolResultContent]),
}

impl<'a> From<&'a ToolResultBody> for ToolOutputRef<'a> {
    fn from(body: &'a ToolResultBody) -> Self {
        match body {
            ToolResultBody::Text(text) => Self::Text(text),
            ToolResultBody::Blocks(blocks) => Self::Blocks(blocks),
        }
    }
}

impl<'a> From<&'a str> for ToolOutputRef<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for ToolOutputRef<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [ToolResultContent]> for ToolOutputRef<'a> {
    fn from(blocks: &'a [ToolResultContent]) -> Self {
        Self::Blocks(blocks)
    }
}

impl<'a> From<&'a Vec<ToolResultContent>> for ToolOutputRef<'a> {
    fn from(blocks: &'a Vec<ToolResultContent>) -> Self {
        Self::Blocks(blocks)
    }
}

impl<'a, const N: usize> From<&'a [ToolResultContent; N]> for ToolOutputRef<'a> {
    fn from(blocks: &'a [ToolResultContent; N]) -> Self {
        Self::Blocks(blocks)
    }
}

/// Approximate size of a tool output on the wire, in bytes: `outputBytes` of the hooks.
///
/// Text and text resources count their UTF-8 bytes, base64 data its characters. What only points somewhere (a ref, a
/// URL, a link) counts as the marker that [`tool_result_to_text`] prints for it.
///
/// Says nothing about tokens: vision models count pixels, not base64.
#[must_use]
pub fn tool_output_byte_length<'a>(output: impl Into<ToolOutputRef<'a>>) -> usize {
    sum(output.into(), |block| match Shown::of(block) {
        Shown::Text(text) => text.len(),
        Shown::Marker(Marker { amount: Amount::Base64(characters), .. }) => characters,
        Shown::Marker(marker) => marker.byte_length(),
    })
}

/// Approximate reading size of a tool output, in bytes: what the output budget of a turn counts.
///
/// Text and text resources count their UTF-8 bytes, any other attachment the marker that [`tool_result_to_text`]
/// prints for it: a model that sees an image need not read its base64.
#[must_use]
pub fn tool_output_budget_byte_length<'a>(output: impl Into<ToolOutputRef<'a>>) -> usize {
    sum(output.into(), |block| match Shown::of(block) {
        Shown::Text(text) => text.len(),
        Shown::Marker(marker) => marker.byte_length(),
    })
}

/// Flattens a tool output to one string. Lossy: for the edges of a user interface only, never for a session or a
/// provider.
///
/// Text and text resources stand as they are, anything else as a marker such as `[image: image/png, 1234 b64 bytes]`,
/// `[image: image/png, ref KEY]`, `[image: image/png, url ADDRESS]`, `[resource: URI, 1234 b64 bytes]` or
/// `[resource: URI, link]`; without a media type it says `application/octet-stream`. Blocks are joined with `\n`,
/// which neither size counts. A plain string, and a lone text, is borrowed.
#[must_use]
pub fn tool_result_to_text<'a>(output: impl Into<ToolOutputRef<'a>>) -> Cow<'a, str> {
    let blocks = match output.into() {
        ToolOutputRef::Text(text) => return Cow::Borrowed(text),
        ToolOutputRef::Blocks(blocks) => blocks,
    };
    if let [block] = blocks
        && let Shown::Text(text) = Shown::of(block)
    {
        return Cow::Borrowed(text);
    }
    let separators = blocks.len().saturating_sub(1);
    let mut flat = String::with_capacity(tool_output_budget_byte_length(blocks).saturating_add(separators));
    for (place, block) in blocks.iter().enumerate() {
        if place > 0 {
            flat.push('\n');
        }
        match Shown::of(block) {
            Shown::Text(text) => flat.push_str(text),
            Shown::Marker(marker) => marker.write(&mut flat),
        }
    }
    Cow::Owned(flat)
}

fn sum(output: ToolOutputRef<'_>, length: impl Fn(&ToolResultContent) -> usize) -> usize {
    match output {
        ToolOutputRef::Text(text) => text.len(),
        ToolOutputRef::Blocks(blocks) => blocks.iter().map(length).fold(0, usize::saturating_add),
    }
}

/// How a block reads as text.
enum Shown<'a> {
    Text(&'a str),
    Marker(Marker<'a>),
}

struct Marker<'a> {
    kind: &'a str,
    subject: &'a str,
    amount: Amount<'a>,
}

enum Amount<'a> {
    Base64(usize),
    Ref(&'a str),
    Url(&'a str),
    Link,
    Unsupported,
}

const NO_MEDIA_TYPE: &str = "application/octet-stream";

impl<'a> Shown<'a> {
    fn of(block: &'a ToolResultContent) -> Self {
        match block {
            ToolResultContent::Text { text } => Self::Text(text),
            ToolResultContent::Image(media) => Self::media("image", media),
            ToolResultContent::Audio(media) => Self::media("audio", media),
            ToolResultContent::Video(media) => Self::media("video", media),
            ToolResultContent::Resource(resource) => Self::resource(resource),
            ToolResultContent::Unknown(value) => {
                let subject = value.get("type").and_then(serde_json::Value::as_str).unwrap_or(NO_MEDIA_TYPE);
                Self::Marker(Marker { kind: "block", subject, amount: Amount::Unsupported })
            }
        }
    }

    fn media(kind: &'a str, media: &'a Media) -> Self {
        let amount = match &media.source {
            MediaSource::Text(text) => return Self::Text(text),
            MediaSource::Data(data) => Amount::Base64(data.len()),
            MediaSource::Ref(key) => Amount::Ref(key),
            MediaSource::Url(url) => Amount::Url(url),
        };
        Self::Marker(Marker { kind, subject: media.media_type.as_deref().unwrap_or(NO_MEDIA_TYPE), amount })
    }

    fn resource(resource: &'a Resource) -> Self {
        let amount = match &resource.content {
            ResourceContent::Text(text) => return Self::Text(text),
            ResourceContent::Blob(data) => Amount::Base64(data.len()),
            ResourceContent::Ref(key) => Amount::Ref(key),
            ResourceContent::Link(_) => Amount::Link,
        };
        let subject = resource.uri.as_deref().or(resource.media_type.as_deref()).unwrap_or(NO_MEDIA_TYPE);
        Self::Marker(Marker { kind: "resource", subject, amount })
    }
}

impl Marker<'_> {
    fn byte_length(&self) -> usize {
        struct Counter(usize);
        impl Write for Counter {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0 = self.0.saturating_add(text.len());
                Ok(())
            }
        }
        let mut counter = Counter(0);
        self.write(&mut counter);
        counter.0
    }

    /// To a string or a counter, neither of which can fail.
    fn write(&self, to: &mut impl Write) {
        let Self { kind, subject, amount } = self;
        let _ = match amount {
            Amount::Base64(characters) => write!(to, "[{kind}: {subject}, {characters} b64 bytes]"),
            Amount::Ref(key) => write!(to, "[{kind}: {subject}, ref {key}]"),
            Amount::Url(url) => write!(to, "[{kind}: {subject}, url {url}]"),
            Amount::Link => write!(to, "[{kind}: {subject}, link]"),
            Amount::Unsupported => write!(to, "[{kind}: {subject}, not supported]"),
        };
    }
}

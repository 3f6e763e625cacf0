//! The answer as it is on the wire: a streamed chunk and a whole response have one shape, but for `delta` and `message`.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::provider::lenient::{Few, Index, Str};

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) model: Str<'a>,
    #[serde(borrow)]
    pub(super) choices: Few<Choice<'a>>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) x_groq: Option<XGroq<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct XGroq<'a> {
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Index,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Str<'a>,
    /// Moonshot, at times.
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Content<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning_text: Str<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Few<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Few<ToolCall<'a>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Function<'a>>,
    /// Google's compatible endpoint: signatures.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ToolCall<'a> {
    pub(super) index: Index,
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
    #[serde(borrow)]
    pub(super) custom: Option<Custom<'a>>,
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    /// A string of JSON; some servers send the object itself.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Custom<'a> {
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) input: Str<'a>,
}

/// `content`: a string, or a list of parts (Mistral while it thinks).
#[derive(Debug, Default)]
pub(super) enum Content<'a> {
    #[default]
    None,
    Text(Cow<'a, str>),
    Parts(Few<Part<'a>>),
}

/// A part of a content list. Parts of other types have neither text and are passed over.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) r#type: Str<'a>,
    #[serde(borrow)]
    pub(super) text: Str<'a>,
    #[serde(borrow)]
    pub(super) refusal: Str<'a>,
    #[serde(borrow)]
    pub(super) thinking: PartText<'a>,
    #[serde(borrow)]
    pub(super) signature: Str<'a>,
}

/// The text of a thinking part: a string, or a list of text parts.
#[derive(Debug, Default)]
pub(super) struct PartText<'a>(pub(super) Few<Cow<'a, str>>);

#[derive(Deserialize, Default)]
#[serde(default)]
struct TextPart<'a> {
    #[serde(borrow)]
    text: Str<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

macro_rules! text_or_nothing {
    ($text:expr, $none:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text or a list of parts")
        }
        fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
            Ok($text(Cow::Borrowed(value)))
        }
        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            Ok($text(Cow::Owned(value.to_owned())))
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($none)
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($none)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($none)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($none)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($none)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok($none)
        }
    };
}

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;
    text_or_nothing!(Content::Text, Content::None);
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content<'de>, A::Error> {
        let mut parts = Few::default();
        while let Some(part) = seq.next_element()? {
            parts.push(part);
        }
        Ok(Content::Parts(parts))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for PartText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartTextVisitor)
    }
}

struct PartTextVisitor;

fn one(text: Cow<'_, str>) -> PartText<'_> {
    let mut few = Few::default();
    few.push(text);
    PartText(few)
}

impl<'de> Visitor<'de> for PartTextVisitor {
    type Value = PartText<'de>;
    text_or_nothing!(one, PartText::default());
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PartText<'de>, A::Error> {
        let mut few = Few::default();
        while let Some(part) = seq.next_element::<TextPart<'de>>()? {
            few.push(part.text.0);
        }
        Ok(PartText(few))
    }
}

impl<'a> Function<'a> {
    /// The argument text of this piece.
    pub(super) fn arguments(&self) -> Cow<'a, str> {
        let Some(raw) = self.arguments.map(RawValue::get) else { return Cow::Borrowed("") };
        match raw.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Str<'a>>(raw).unwrap_or_default().0,
            Some(b'{' | b'[') => Cow::Borrowed(raw),
            _ => Cow::Borrowed(""),
        }
    }
}

impl<'a> Choice<'a> {
    /// Whether this is the answer. Of several choices only the first is one.
    pub(super) fn is_first(&self) -> bool {
        matches!(self.index.0, None | Some(0))
    }
}

//! A response as it is parsed: streamed chunks and whole answers have one shape. Borrowed where that saves a copy, and
//! lenient about what is absent or odd.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use super::super::lenient::{Count, Few, Str};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Few<Candidate<'a>>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<PromptFeedback<'a>>,
    /// Raw, so that its place in the chunk is known.
    #[serde(borrow)]
    pub(super) usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model_version: Str<'a>,
    #[serde(borrow)]
    pub(super) response_id: Str<'a>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Candidate<'a> {
    pub(super) index: Count,
    #[serde(borrow)]
    pub(super) content: Option<Content<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) continuation_token: Str<'a>,
    #[serde(borrow)]
    pub(super) finish_message: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Content<'a> {
    /// Raw, since a part of a kind that is not known goes back as it is.
    #[serde(borrow)]
    pub(super) parts: Few<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Option<Word<'a>>,
    #[serde(borrow)]
    pub(super) block_reason_message: Str<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<Str<'a>>,
    pub(super) thought: Option<bool>,
    #[serde(borrow)]
    pub(super) thought_signature: Str<'a>,
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionCall<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FunctionCall<'a> {
    #[serde(borrow)]
    pub(super) id: Str<'a>,
    #[serde(borrow)]
    pub(super) name: Str<'a>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_args: Few<PartialArg<'a>>,
    pub(super) will_continue: Option<bool>,
}

/// A piece of streamed arguments (Vertex). A string may come in several.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PartialArg<'a> {
    #[serde(borrow)]
    pub(super) json_path: Str<'a>,
    #[serde(borrow)]
    pub(super) string_value: Option<Str<'a>>,
    pub(super) number_value: Option<Number>,
    pub(super) bool_value: Option<bool>,
    /// More of the string comes.
    pub(super) will_continue: Option<bool>,
}

/// An enum's value: its name, or its number from servers that were asked for numbers.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Word<'a> {
    Number(Number),
    Name(#[serde(borrow)] Cow<'a, str>),
    Other(serde::de::IgnoredAny),
}

impl Word<'_> {
    /// `None` for what is neither, and for a blank.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Number(number) => Some(number.to_string()),
            Self::Name(name) if !name.trim().is_empty() => Some(name.clone().into_owned()),
            Self::Name(_) | Self::Other(_) => None,
        }
    }
}

use std::borrow::Cow;

use super::thinking::ThinkingRule;
use crate::provider::names;
use crate::provider::openai_error::ErrorSource;
use crate::types::TurnFinishReason;

/// What one vendor of the Chat Completions wire expects and gives. Data only: every vendor runs through the same code.
///
/// Take a vendor's profile ([`ChatProfile::groq`]) or [`ChatProfile::custom`], and change what differs:
///
/// ```
/// use zidane::provider::openai_chat::{CallIds, ChatProfile};
///
/// let mut profile = ChatProfile::custom("http://localhost:9000/v1");
/// profile.id = "lab".into();
/// profile.call_ids = CallIds::MaxLength(40);
/// ```
///
/// Vendor facts are as of November 2026, from the vendors' references and from recorded traffic.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChatProfile {
    /// The provider's id, e.g. `groq`. Also names the producer of reasoning state: only the same id gets it back.
    pub id: Cow<'static, str>,
    /// The address up to and without `/chat/completions`. A query string is kept.
    pub base_url: Cow<'static, str>,
    /// The environment variable that holds the key.
    pub key_var: Option<Cow<'static, str>>,
    /// Whether building without a key is an error.
    pub key_required: bool,
    /// How the key is sent.
    pub key_header: KeyHeader,
    /// The field that limits output.
    pub max_tokens_field: MaxTokensField,
    /// The role of the system message.
    pub system_role: SystemRole,
    /// How thinking is asked for, by model; the first rule that matches decides, none sends nothing.
    pub thinking: Cow<'static, [ThinkingRule]>,
    /// Where reasoning goes in an assistant message that is sent back.
    pub reasoning_field: ReasoningField,
    /// Which reasoning is sent back.
    pub reasoning_echo: ReasoningEcho,
    /// What stands in the reasoning field of a message with calls when its reasoning is lost, for vendors that refuse
    /// such a message without the field.
    pub missing_reasoning: Option<Cow<'static, str>>,
    /// How usage counts are read.
    pub usage: UsageStyle,
    /// Which models take images in user messages.
    pub images: Models,
    /// The media types of images that are taken. `None`: whatever is an image, for the server to judge.
    pub image_types: Option<Cow<'static, [&'static str]>>,
    /// Images may be given as an address that the vendor fetches.
    pub image_urls: bool,
    /// How PDF documents are given.
    pub documents: DocumentStyle,
    /// `tool` messages may hold images. Without it they follow in one user message after all of them.
    pub images_in_tool_results: bool,
    /// `tool` messages carry the tool's name.
    pub name_in_tool_results: bool,
    /// The form of call ids that the vendor accepts.
    pub call_ids: CallIds,
    /// Tools may be declared `strict`.
    pub strict_tools: bool,
    /// The root of a tool's schema must be an object without `anyOf`, `oneOf`, `allOf`, `enum` and `not`. What the
    /// tool has of these goes into its description; arguments are checked against the real schema either way.
    pub plain_schema_root: bool,
    /// Whether `tool_choice` is understood.
    pub tool_choice: ToolChoiceSupport,
    /// `stream_options` is understood; without it the vendor sends usage by itself.
    pub stream_options: bool,
    /// The vendor pads chunks unless told not to (`stream_options.include_obfuscation`).
    pub obfuscation: bool,
    /// Models that refuse `temperature`; it is not sent to them.
    pub fixed_temperature: Models,
    /// Models for which the vendor wants a top-level `cache_control` mark when caching is on.
    pub cache_control: Models,
    /// Output can be held to a JSON schema.
    pub structured_output: bool,
    /// The most bytes of one image or document. `None`: for the server to judge.
    pub max_media_bytes: Option<usize>,
    /// The most images of a request: of more the oldest are left out, and in one prompt they are an `Unsupported` error
    /// before anything is sent. `None`: for the server to judge.
    pub max_images: Option<usize>,
    /// The most bytes of all images and documents of a request, as [`max_images`](Self::max_images).
    pub max_request_media_bytes: Option<usize>,
    /// The most tools of a request; more are an `Invalid` error before anything is sent. `None`: for the server to judge.
    pub max_tools: Option<usize>,
    /// Finish words beside the wire's own, lower case.
    pub finish_words: Cow<'static, [(Cow<'static, str>, TurnFinishReason)]>,
    /// Parts of error texts that mean that the prompt was too long, lower case, beside those every vendor is checked for.
    pub overflow_texts: Cow<'static, [Cow<'static, str>]>,
}

impl<'a> From<&'a ChatProfile> for ErrorSource<'a> {
    fn from(profile: &'a ChatProfile) -> Self {
        Self { provider: &profile.id, overflow_texts: &profile.overflow_texts }
    }
}

/// How the key is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyHeader {
    /// `Authorization: Bearer …`.
    #[default]
    Bearer,
    /// `api-key: …` (Azure).
    ApiKey,
}

/// The name of the field that limits output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MaxTokensField {
    /// `max_tokens`.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

impl MaxTokensField {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The role of the system message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SystemRole {
    /// `system`, which every vendor takes.
    #[default]
    System,
    /// `developer`, which OpenAI has instead since o1.
    Developer,
}

/// Where reasoning goes in an assistant message that is sent back. Answers are read under every name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningField {
    /// `reasoning_content`.
    #[default]
    ReasoningContent,
    /// `reasoning`.
    Reasoning,
    /// Parts of type `thinking` inside `content` (Mistral).
    ContentPart,
}

/// Which reasoning is sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningEcho {
    /// None.
    #[default]
    Never,
    /// That of messages with tool calls.
    WithCalls,
    /// All of it.
    Always,
    /// Only what the vendor signed (`reasoning_details`), as it came.
    Signed,
}

/// How usage counts are read. Either way `total_tokens` decides where it settles the question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageStyle {
    /// `completion_tokens` includes reasoning.
    #[default]
    Inclusive,
    /// `completion_tokens` leaves reasoning out (xAI).
    ReasoningBeside,
    /// Reasoning shows only in `total_tokens` (Google's compatible endpoint).
    ReasoningInTotal,
}

/// How PDF documents are given in user messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DocumentStyle {
    /// Not at all: a PDF is an error before anything is sent.
    #[default]
    Unsupported,
    /// A `file` part with a data URL.
    File,
    /// A `document_url` part with an address or a data URL (Mistral).
    DocumentUrl,
}

/// The form of call ids that a vendor accepts. Others are mapped by a pure, collision-free function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallIds {
    /// Any string.
    #[default]
    Free,
    /// At most this many characters.
    MaxLength(usize),
    /// Exactly nine of `[A-Za-z0-9]` (Mistral).
    Nine,
}

impl CallIds {
    /// The id as the vendor accepts it. One that it accepts stays as it is.
    pub(in crate::provider) fn wire_id(self, id: &str) -> Cow<'_, str> {
        match self {
            Self::Nine => names::call_id_nine(id),
            Self::MaxLength(max) if id.chars().count() > max => names::call_id(id, max),
            Self::MaxLength(_) | Self::Free => Cow::Borrowed(id),
        }
    }
}

/// Whether `tool_choice` is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoiceSupport {
    /// All of it.
    #[default]
    Full,
    /// Only `auto`: a forced choice is not sent, and for no calls the tools are left out.
    AutoOnly,
}

/// A set of models, by what their ids contain or how they begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Models {
    /// No model.
    #[default]
    None,
    /// Every model.
    All,
    /// Models whose id matches one of these patterns: `^x` begins with x after any vendor prefix (`openai/`), else
    /// contains it. Lower case.
    Matching(Cow<'static, [Cow<'static, str>]>),
    /// Models whose id matches none of these patterns.
    Except(Cow<'static, [Cow<'static, str>]>),
}

impl Models {
    /// Whether `model` is one of them.
    #[must_use]
    pub fn contains(&self, model: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Matching(patterns) => patterns.iter().any(|pattern| matches(pattern, model)),
            Self::Except(patterns) => !patterns.iter().any(|pattern| matches(pattern, model)),
        }
    }
}

/// `^x`: the id, or what follows its last `/`, begins with x; otherwise x occurs in it. Case does not matter.
pub(super) fn matches(pattern: &str, model: &str) -> bool {
    let bytes = model.as_bytes();
    match pattern.strip_prefix('^') {
        Some(start) => {
            let name = model.rsplit_once('/').map_or(model, |(_, name)| name);
            [model, name].iter().any(|id| {
                id.as_bytes().get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start.as_bytes()))
            })
        }
        None if pattern.is_empty() => true,
        None => bytes.windows(pattern.len()).any(|window| window.eq_ignore_ascii_case(pattern.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_a_vendor_accepts_stay() {
        assert_eq!(CallIds::Free.wire_id("functions.get:0"), "functions.get:0");
        assert_eq!(CallIds::MaxLength(40).wire_id("functions.get:0"), "functions.get:0");
        assert!(CallIds::MaxLength(40).wire_id(&"x".repeat(41)).len() <= 40);
        assert_eq!(CallIds::Nine.wire_id("aB3dE6gH9"), "aB3dE6gH9");
        assert_eq!(CallIds::Nine.wire_id("call_1").len(), 9);
    }

    #[test]
    fn a_pattern_is_a_beginning_or_a_part() {
        assert!(matches("^gpt-5", "gpt-5-mini"));
        assert!(matches("^gpt-5", "openai/GPT-5.2"));
        assert!(matches("^openai/", "openai/gpt-5.2"));
        assert!(!matches("^gpt-5", "not-gpt-5"));
        assert!(matches("gpt-oss", "openai/gpt-oss-20b"));
        assert!(matches("", "anything"));
        assert!(!matches("longer than the id", "x"));
    }
}

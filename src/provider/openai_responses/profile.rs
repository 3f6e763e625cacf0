use std::borrow::Cow;

use crate::provider::limits::{MediaLimits, RequestLimits};
use crate::provider::openai_chat::parts::Accepts;
use crate::provider::openai_chat::{
    DocumentStyle, KeyHeader, Models, ReasoningEcho, ThinkingRule, ToolChoiceSupport, effort_word,
};
use crate::provider::openai_error::ErrorSource;
use crate::provider::{Capabilities, ThinkingLevel};
use crate::types::SignatureProducer;

/// What one vendor of the Responses wire expects and gives. Data only: every vendor runs through the same code.
///
/// Take a vendor's profile ([`ResponsesProfile::xai`]) or [`ResponsesProfile::custom`], and change what differs:
///
/// ```
/// use zidane::provider::openai_responses::ResponsesProfile;
///
/// let mut profile = ResponsesProfile::custom("http://localhost:9000/v1");
/// profile.id = "lab".into();
/// profile.documents = true;
/// ```
///
/// Vendor facts are as of November 2026, from the vendors' references and from recorded traffic.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ResponsesProfile {
    /// The provider's id, e.g. `xai`. Also names the producer of reasoning and other items: only the same id gets them
    /// back.
    pub id: Cow<'static, str>,
    /// The address up to and without `/responses`. A query string is kept.
    pub base_url: Cow<'static, str>,
    /// The environment variable that holds the key.
    pub key_var: Option<Cow<'static, str>>,
    /// Whether building without a key is an error.
    pub key_required: bool,
    /// How the key is sent.
    pub key_header: KeyHeader,
    /// The efforts of each model; the first rule that matches decides, none sends nothing. Rules that send anything but
    /// an effort send nothing here.
    pub thinking: Cow<'static, [ThinkingRule]>,
    /// Ask for a summary of the reasoning when thinking is asked for.
    pub reasoning_summary: bool,
    /// Models that are asked for encrypted reasoning. Some refuse the wish.
    pub encrypted_reasoning: Models,
    /// Which reasoning goes back: `Signed`, only what is encrypted; `Always`, all of it; anything else, none.
    pub reasoning_echo: ReasoningEcho,
    /// An output limit is understood.
    pub max_output_tokens: bool,
    /// Models that refuse `temperature`; it is not sent to them.
    pub fixed_temperature: Models,
    /// Which models take images.
    pub images: Models,
    /// The media types of images that are taken. `None`: whatever is an image, for the server to judge.
    pub image_types: Option<Cow<'static, [&'static str]>>,
    /// PDF documents are taken.
    pub documents: bool,
    /// Images and documents may be given as an address that the vendor fetches.
    pub urls: bool,
    /// The outputs of calls may hold what user messages may: images, and documents if there are any. Without it they
    /// follow in one user message after all of them.
    pub media_in_tool_results: bool,
    /// Tools are declared with `strict`. Left out it means different things at different vendors.
    pub strict_tools: bool,
    /// Whether `tool_choice` is understood.
    pub tool_choice: ToolChoiceSupport,
    /// Calls go after everything else of their turn: nothing may stand between a call and its output (DeepSeek).
    pub calls_last: bool,
    /// Assistant messages need an id; those that have none get one.
    pub needs_message_ids: bool,
    /// Call ids begin anew with every response. They are made unique when they are read.
    pub repeats_call_ids: bool,
    /// An answer that the output limit cut says that it is complete. It is told by its size (llama.cpp).
    pub cut_looks_complete: bool,
    /// The vendor pads events unless told not to (`stream_options.include_obfuscation`).
    pub obfuscation: bool,
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
    /// Parts of error texts that mean that the prompt was too long, lower case, beside those every vendor is checked for.
    pub overflow_texts: Cow<'static, [Cow<'static, str>]>,
}

impl ResponsesProfile {
    /// Who gets back what this vendor made. The Chat wire's vendors have the bare names.
    pub(super) fn producer(&self) -> SignatureProducer {
        match &*self.id {
            "openai" => SignatureProducer::OPENAI_RESPONSES,
            id => SignatureProducer::new(format!("{}/{id}", SignatureProducer::OPENAI_RESPONSES.as_str())),
        }
    }

    pub(super) fn accepts(&self, model: &str) -> Accepts<'_> {
        Accepts {
            provider: &self.id,
            images: self.images.contains(model),
            image_types: self.image_types.as_deref(),
            image_urls: self.urls,
            documents: match (self.documents, self.urls) {
                (true, true) => DocumentStyle::DocumentUrl,
                (true, false) => DocumentStyle::File,
                (false, _) => DocumentStyle::Unsupported,
            },
            images_in_tool_results: self.media_in_tool_results,
            documents_in_tool_results: self.media_in_tool_results,
            limits: MediaLimits::bytes(self.max_media_bytes),
            whole: RequestLimits::of(self.max_images, self.max_request_media_bytes),
        }
    }

    pub(super) fn effort(&self, model: &str, level: ThinkingLevel) -> Option<&'static str> {
        effort_word(&self.thinking, model, level)
    }

    pub(super) fn capabilities(&self, model: &str) -> Capabilities {
        let images = self.images.contains(model);
        Capabilities {
            images,
            documents: self.documents,
            images_in_tool_results: images && self.media_in_tool_results,
            documents_in_tool_results: self.documents && self.media_in_tool_results,
            thinking: self.effort(model, ThinkingLevel::High).is_some(),
            decisions: false,
            native_structured_output: self.structured_output,
        }
    }
}

impl<'a> From<&'a ResponsesProfile> for ErrorSource<'a> {
    fn from(profile: &'a ResponsesProfile) -> Self {
        Self { provider: &profile.id, overflow_texts: &profile.overflow_texts }
    }
}

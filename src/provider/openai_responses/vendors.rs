use std::borrow::Cow;

use super::profile::ResponsesProfile;
use crate::provider::openai_chat::{
    ChatProfile, Effort, KeyHeader, Models, ReasoningEcho, ThinkingRule, ThinkingSwitch, ToolChoiceSupport,
};

macro_rules! models {
    ($set:ident: $($pattern:literal),+) => { Models::$set(Cow::Borrowed(const { &[$(Cow::Borrowed($pattern)),+] })) };
}

/// Models that do not reason refuse to be asked for their encrypted reasoning.
const REASONING: Models = models!(Except: "gpt-4", "gpt-3.5", "gpt-5-chat", "o1-mini", "o1-preview", "computer-use");

/// What nearly all have: the least any server is known to refuse.
fn vendor(id: &'static str, base_url: &'static str, key_var: &'static str) -> ResponsesProfile {
    ResponsesProfile {
        id: Cow::Borrowed(id),
        base_url: Cow::Borrowed(base_url),
        key_var: Some(Cow::Borrowed(key_var)),
        key_required: true,
        key_header: KeyHeader::Bearer,
        thinking: Cow::Borrowed(&[]),
        reasoning_summary: false,
        encrypted_reasoning: Models::None,
        reasoning_echo: ReasoningEcho::Signed,
        max_output_tokens: true,
        fixed_temperature: Models::None,
        images: Models::All,
        image_types: Some(Cow::Borrowed(&["image/png", "image/jpeg", "image/webp", "image/gif"])),
        documents: false,
        urls: true,
        media_in_tool_results: false,
        strict_tools: true,
        tool_choice: ToolChoiceSupport::Full,
        calls_last: false,
        needs_message_ids: false,
        repeats_call_ids: false,
        cut_looks_complete: false,
        obfuscation: false,
        structured_output: true,
        max_media_bytes: None,
        max_images: None,
        max_request_media_bytes: None,
        max_tools: None,
        overflow_texts: Cow::Borrowed(&[]),
    }
}

/// A server on the user's own machine: no key is needed, and it fetches nothing.
fn local(id: &'static str, base_url: &'static str, key_var: Option<&'static str>) -> ResponsesProfile {
    ResponsesProfile {
        key_var: key_var.map(Cow::Borrowed),
        key_required: false,
        image_types: None,
        urls: false,
        strict_tools: false,
        ..vendor(id, base_url, "")
    }
}

/// A vendor whose key is a token that the host gets by signing in.
fn signed_in(id: &'static str, base_url: &'static str) -> ResponsesProfile {
    ResponsesProfile { key_var: None, ..vendor(id, base_url, "") }
}

const DEEPSEEK_THINKING: &[ThinkingRule] =
    &[ThinkingRule::new("", ThinkingSwitch::Effort(&[Effort::None, Effort::Low, Effort::High, Effort::Max]))];
const OPEN_WEIGHTS_THINKING: &[ThinkingRule] =
    &[ThinkingRule::new("gpt-oss", ThinkingSwitch::Effort(&[Effort::Low, Effort::Medium, Effort::High]))];

impl ResponsesProfile {
    /// OpenAI. `OPENAI_API_KEY`.
    #[must_use]
    pub fn openai() -> Self {
        let chat = ChatProfile::openai();
        Self {
            thinking: chat.thinking,
            reasoning_summary: true,
            encrypted_reasoning: REASONING,
            fixed_temperature: chat.fixed_temperature,
            documents: true,
            media_in_tool_results: true,
            obfuscation: true,
            max_media_bytes: chat.max_media_bytes,
            max_images: chat.max_images,
            max_request_media_bytes: chat.max_request_media_bytes,
            max_tools: chat.max_tools,
            ..vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
        }
    }

    /// Azure OpenAI at the resource's `…/openai/v1` address. `AZURE_OPENAI_API_KEY`, sent as `api-key`. The model is
    /// the name of a deployment; what a model takes is told from it, so name deployments after their models.
    #[must_use]
    pub fn azure(base_url: impl Into<Cow<'static, str>>) -> Self {
        Self {
            id: "azure-openai".into(),
            base_url: base_url.into(),
            key_var: Some("AZURE_OPENAI_API_KEY".into()),
            key_header: KeyHeader::ApiKey,
            ..Self::openai()
        }
    }

    /// xAI. `XAI_API_KEY`.
    #[must_use]
    pub fn xai() -> Self {
        Self {
            thinking: ChatProfile::xai().thinking,
            encrypted_reasoning: Models::All,
            ..vendor("xai", "https://api.x.ai/v1", "XAI_API_KEY")
        }
    }

    /// OpenRouter. `OPENROUTER_API_KEY`.
    #[must_use]
    pub fn openrouter() -> Self {
        Self {
            thinking: ChatProfile::openrouter().thinking,
            encrypted_reasoning: REASONING,
            documents: true,
            needs_message_ids: true,
            ..vendor("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")
        }
    }

    /// DeepSeek. `DEEPSEEK_API_KEY`. Its reasoning is in the open and goes back; nothing may stand between a call and
    /// its output.
    #[must_use]
    pub fn deepseek() -> Self {
        Self {
            thinking: Cow::Borrowed(DEEPSEEK_THINKING),
            reasoning_echo: ReasoningEcho::Always,
            images: models!(Matching: "flash"),
            calls_last: true,
            structured_output: false,
            ..vendor("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY")
        }
    }

    /// Moonshot, whose newest model alone is on this wire. `MOONSHOT_API_KEY`.
    #[must_use]
    pub fn moonshot() -> Self {
        let chat = ChatProfile::moonshot();
        Self {
            thinking: chat.thinking,
            reasoning_echo: ReasoningEcho::Always,
            fixed_temperature: chat.fixed_temperature,
            structured_output: false,
            ..vendor("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY")
        }
    }

    /// Groq. `GROQ_API_KEY`.
    #[must_use]
    pub fn groq() -> Self {
        let chat = ChatProfile::groq();
        Self {
            thinking: chat.thinking,
            images: chat.images,
            ..vendor("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY")
        }
    }

    /// Amazon Bedrock's endpoint for this wire, at the region's address. `AWS_BEARER_TOKEN_BEDROCK`. Call ids begin
    /// anew with every response there.
    #[must_use]
    pub fn bedrock_mantle(base_url: impl Into<Cow<'static, str>>) -> Self {
        let openai = ChatProfile::openai();
        Self {
            base_url: base_url.into(),
            thinking: Cow::Borrowed(OPEN_WEIGHTS_THINKING),
            encrypted_reasoning: models!(Matching: "gpt-5", "gpt-6"),
            fixed_temperature: openai.fixed_temperature,
            repeats_call_ids: true,
            ..vendor("bedrock-mantle", "", "AWS_BEARER_TOKEN_BEDROCK")
        }
    }

    /// GitHub Copilot, with the token of a sign-in as key.
    #[must_use]
    pub fn copilot() -> Self {
        let openai = Self::openai();
        Self {
            thinking: openai.thinking,
            reasoning_summary: true,
            encrypted_reasoning: REASONING,
            fixed_temperature: openai.fixed_temperature,
            media_in_tool_results: true,
            ..signed_in("copilot", "https://api.githubcopilot.com")
        }
    }

    /// The backend of Codex, with the token of a ChatGPT sign-in as key. It refuses an output limit and a temperature.
    #[must_use]
    pub fn codex() -> Self {
        let openai = Self::openai();
        Self {
            thinking: openai.thinking,
            reasoning_summary: true,
            encrypted_reasoning: Models::All,
            max_output_tokens: false,
            fixed_temperature: Models::All,
            documents: true,
            media_in_tool_results: true,
            ..signed_in("chatgpt-codex", "https://chatgpt.com/backend-api/codex")
        }
    }

    /// A local Ollama, no key.
    #[must_use]
    pub fn ollama() -> Self {
        Self {
            thinking: Cow::Borrowed(OPEN_WEIGHTS_THINKING),
            tool_choice: ToolChoiceSupport::AutoOnly,
            ..local("ollama", "http://localhost:11434/v1", None)
        }
    }

    /// A local llama.cpp server on its old default port 8080; key (`--api-key`) optional. Newer builds listen on 9931.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self { cut_looks_complete: true, ..local("llamacpp", "http://127.0.0.1:8080/v1", Some("LLAMA_API_KEY")) }
    }

    /// A local LM Studio, no key.
    #[must_use]
    pub fn lm_studio() -> Self {
        Self { thinking: Cow::Borrowed(OPEN_WEIGHTS_THINKING), ..local("lmstudio", "http://localhost:1234/v1", None) }
    }

    /// A vLLM server; key (`--api-key`) optional in `VLLM_API_KEY`.
    #[must_use]
    pub fn vllm() -> Self {
        Self {
            thinking: Cow::Borrowed(OPEN_WEIGHTS_THINKING),
            ..local("vllm", "http://localhost:8000/v1", Some("VLLM_API_KEY"))
        }
    }

    /// Any server that speaks the wire: nothing is sent that some server is known to refuse, and no thinking field at
    /// all. Its id is `custom`; give it one of its own when several are in use.
    #[must_use]
    pub fn custom(base_url: impl Into<Cow<'static, str>>) -> Self {
        Self { base_url: base_url.into(), urls: true, ..local("custom", "", None) }
    }

    /// The profile of a vendor by name, as vendors are called in catalogues (`xai`, `moonshotai`, `azure-openai`, …).
    /// `None` when the name is unknown. Where the address depends on the customer it is empty.
    #[must_use]
    pub fn by_vendor(name: &str) -> Option<Self> {
        Some(match name {
            "openai" => Self::openai(),
            "azure" | "azure-openai" | "azure-ai-foundry" => Self { id: name.to_owned().into(), ..Self::azure("") },
            "xai" => Self::xai(),
            "openrouter" => Self::openrouter(),
            "deepseek" => Self::deepseek(),
            "moonshot" | "moonshotai" => Self::moonshot(),
            "groq" => Self::groq(),
            "bedrock-mantle" => Self::bedrock_mantle(""),
            "copilot" => Self::copilot(),
            "codex" | "chatgpt-codex" => Self::codex(),
            "ollama" => Self::ollama(),
            "llamacpp" | "llama.cpp" => Self::llama_cpp(),
            "lmstudio" => Self::lm_studio(),
            "vllm" => Self::vllm(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::ThinkingLevel;

    #[test]
    fn every_named_profile_has_an_address_and_is_found_under_its_id() {
        for profile in [
            ResponsesProfile::openai(),
            ResponsesProfile::xai(),
            ResponsesProfile::openrouter(),
            ResponsesProfile::deepseek(),
            ResponsesProfile::moonshot(),
            ResponsesProfile::groq(),
            ResponsesProfile::copilot(),
            ResponsesProfile::codex(),
            ResponsesProfile::ollama(),
            ResponsesProfile::llama_cpp(),
            ResponsesProfile::lm_studio(),
            ResponsesProfile::vllm(),
        ] {
            assert!(profile.base_url.starts_with("http") && !profile.base_url.ends_with('/'), "{}", profile.id);
            assert_eq!(ResponsesProfile::by_vendor(&profile.id), Some(profile.clone()), "{}", profile.id);
        }
        assert_eq!(ResponsesProfile::by_vendor("nobody"), None);
    }

    #[test]
    fn a_level_is_a_word_that_the_model_takes() {
        let openai = ResponsesProfile::openai();
        assert_eq!(openai.effort("gpt-5.4", ThinkingLevel::Off), Some("none"));
        assert_eq!(openai.effort("gpt-5", ThinkingLevel::Off), Some("minimal"));
        assert_eq!(openai.effort("gpt-6.2", ThinkingLevel::Off), Some("low"));
        assert_eq!(openai.effort("gpt-4o", ThinkingLevel::High), None);
        assert_eq!(ResponsesProfile::deepseek().effort("deepseek-v4-pro", ThinkingLevel::Medium), Some("high"));
        assert_eq!(ResponsesProfile::custom("").effort("any", ThinkingLevel::High), None);
    }

    #[test]
    fn only_models_that_reason_are_asked_for_their_reasoning() {
        let asked = |model: &str| ResponsesProfile::openai().encrypted_reasoning.contains(model);
        assert!(asked("gpt-5.5") && asked("o3-deep-research") && asked("gpt-6.2"));
        assert!(
            !asked("gpt-4o") && !asked("chatgpt-4o-latest") && !asked("ft:gpt-4.1-mini") && !asked("gpt-5-chat-latest")
        );
    }

    #[test]
    fn each_vendor_has_a_producer_of_its_own() {
        assert_eq!(ResponsesProfile::openai().producer().as_str(), "openai-responses");
        assert_eq!(ResponsesProfile::xai().producer().as_str(), "openai-responses/xai");
    }
}

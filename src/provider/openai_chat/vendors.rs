use std::borrow::Cow;

use super::profile::{
    CallIds, ChatProfile, DocumentStyle, KeyHeader, MaxTokensField, Models, ReasoningEcho, ReasoningField, SystemRole,
    ToolChoiceSupport, UsageStyle,
};
use super::thinking::{Effort, ThinkingRule, ThinkingSwitch};

use Effort::{Default as Auto, High, Low, Max, Medium, Minimal, None as Off};
use ThinkingSwitch as Switch;

macro_rules! matching {
    ($($pattern:literal),+) => { Models::Matching(Cow::Borrowed(const { &[$(Cow::Borrowed($pattern)),+] })) };
}

macro_rules! rules {
    ($($models:literal => $switch:expr),+ $(,)?) => {
        Cow::Borrowed(const { &[$(ThinkingRule::new($models, $switch)),+] })
    };
}

/// What nearly all have: the least any server is known to refuse.
fn vendor(id: &'static str, base_url: &'static str, key_var: &'static str) -> ChatProfile {
    ChatProfile {
        id: Cow::Borrowed(id),
        base_url: Cow::Borrowed(base_url),
        key_var: Some(Cow::Borrowed(key_var)),
        key_required: true,
        key_header: KeyHeader::Bearer,
        max_tokens_field: MaxTokensField::MaxTokens,
        system_role: SystemRole::System,
        thinking: Cow::Borrowed(&[]),
        reasoning_field: ReasoningField::ReasoningContent,
        reasoning_echo: ReasoningEcho::Never,
        missing_reasoning: None,
        usage: UsageStyle::Inclusive,
        images: Models::All,
        image_types: Some(Cow::Borrowed(&["image/png", "image/jpeg", "image/gif", "image/webp"])),
        image_urls: true,
        documents: DocumentStyle::Unsupported,
        images_in_tool_results: false,
        name_in_tool_results: false,
        call_ids: CallIds::Free,
        strict_tools: false,
        plain_schema_root: false,
        tool_choice: ToolChoiceSupport::Full,
        stream_options: true,
        obfuscation: false,
        fixed_temperature: Models::None,
        cache_control: Models::None,
        structured_output: true,
        max_media_bytes: None,
        max_images: None,
        max_request_media_bytes: None,
        max_tools: None,
        finish_words: Cow::Borrowed(&[]),
        overflow_texts: Cow::Borrowed(&[]),
    }
}

/// A server on the user's own machine: no key is needed.
fn local(id: &'static str, base_url: &'static str, key_var: Option<&'static str>) -> ChatProfile {
    ChatProfile {
        key_var: key_var.map(Cow::Borrowed),
        key_required: false,
        image_types: None,
        ..vendor(id, base_url, "")
    }
}

const OPENAI_THINKING: &[ThinkingRule] = &[
    ThinkingRule::new("^gpt-6-astra", Switch::Effort(&[Low, Medium, High, Max])),
    ThinkingRule::new("^gpt-6.1-sol", Switch::Effort(&[Low, Medium, High, Max])),
    ThinkingRule::new("^gpt-6.2", Switch::Effort(&[Low, Medium, High, Max])),
    ThinkingRule::new("^gpt-6", Switch::Effort(&[Off, Low, Medium, High, Max])),
    ThinkingRule::new("^gpt-5.", Switch::Effort(&[Off, Low, Medium, High])),
    ThinkingRule::new("^gpt-5-chat", Switch::Fixed),
    ThinkingRule::new("^gpt-5", Switch::Effort(&[Minimal, Low, Medium, High])),
    ThinkingRule::new("^o1-mini", Switch::Fixed),
    ThinkingRule::new("^o1-preview", Switch::Fixed),
    ThinkingRule::new("^o1", Switch::Effort(&[Low, Medium, High])),
    ThinkingRule::new("^o3", Switch::Effort(&[Low, Medium, High])),
    ThinkingRule::new("^o4", Switch::Effort(&[Low, Medium, High])),
];

impl ChatProfile {
    /// OpenAI. `OPENAI_API_KEY`.
    #[must_use]
    pub fn openai() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            system_role: SystemRole::Developer,
            thinking: Cow::Borrowed(OPENAI_THINKING),
            documents: DocumentStyle::File,
            call_ids: CallIds::MaxLength(40),
            strict_tools: true,
            plain_schema_root: true,
            obfuscation: true,
            max_media_bytes: Some(50 << 20),
            max_images: Some(500),
            max_request_media_bytes: Some(50 << 20),
            max_tools: Some(128),
            fixed_temperature: matching!("^o1", "^o3", "^o4", "^gpt-5", "^gpt-6"),
            ..vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY")
        }
    }

    /// Azure OpenAI at the resource's `…/openai/v1` address. `AZURE_OPENAI_API_KEY`, sent as `api-key`.
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

    /// OpenRouter. `OPENROUTER_API_KEY`.
    #[must_use]
    pub fn openrouter() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: rules![
                // These refuse to be switched off.
                "^openai/gpt-6-astra" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "^openai/gpt-6.1-sol" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "^openai/gpt-6.2" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "^openai/gpt-5." => Switch::ReasoningEffort(&[Off, Low, Medium, High]),
                "^openai/gpt-5" => Switch::ReasoningEffort(&[Minimal, Low, Medium, High]),
                "^openai/o" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "gpt-oss" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "^x-ai/grok-4" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "^moonshotai/kimi-k3" => Switch::ReasoningEffort(&[Low, High, Max]),
                "^z-ai/glm-5.3" => Switch::ReasoningEffort(&[Low, High, Max]),
                "^minimax/" => Switch::ReasoningEffort(&[Low, Medium, High]),
                "" => Switch::ReasoningEffort(&[Off, Minimal, Low, Medium, High]),
            ],
            reasoning_field: ReasoningField::Reasoning,
            reasoning_echo: ReasoningEcho::Signed,
            documents: DocumentStyle::File,
            call_ids: CallIds::MaxLength(40),
            strict_tools: true,
            plain_schema_root: true,
            cache_control: matching!("^anthropic/"),
            ..vendor("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY")
        }
    }

    /// Groq. `GROQ_API_KEY`.
    #[must_use]
    pub fn groq() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: rules![
                "gpt-oss" => Switch::Effort(&[Low, Medium, High]),
                "qwen3.8" => Switch::Effort(&[Off, Low, Medium, High]),
                "qwen3" => Switch::Effort(&[Off, Auto]),
            ],
            reasoning_field: ReasoningField::Reasoning,
            reasoning_echo: ReasoningEcho::WithCalls,
            images: matching!("llama-4", "vision", "-vl", "qwen3.8"),
            ..vendor("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY")
        }
    }

    /// Cerebras. `CEREBRAS_API_KEY`.
    #[must_use]
    pub fn cerebras() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: rules![
                "gpt-oss" => Switch::Effort(&[Low, Medium, High]),
                "glm" => Switch::Effort(&[Off, Low, Medium, High]),
            ],
            reasoning_field: ReasoningField::Reasoning,
            reasoning_echo: ReasoningEcho::WithCalls,
            strict_tools: true,
            ..vendor("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY")
        }
    }

    /// Mistral. `MISTRAL_API_KEY`.
    #[must_use]
    pub fn mistral() -> Self {
        Self {
            thinking: rules![
                "^magistral" => Switch::PromptMode,
                "^mistral-large-4" => Switch::Effort(&[Low, Medium, High]),
                "^mistral-small" => Switch::Effort(&[Off, High]),
                "^mistral-medium" => Switch::Effort(&[Off, High]),
            ],
            reasoning_field: ReasoningField::ContentPart,
            reasoning_echo: ReasoningEcho::Always,
            documents: DocumentStyle::DocumentUrl,
            name_in_tool_results: true,
            call_ids: CallIds::Nine,
            strict_tools: true,
            stream_options: false,
            ..vendor("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY")
        }
    }

    /// DeepSeek. `DEEPSEEK_API_KEY`.
    ///
    /// A message with calls that lacks its reasoning is refused with a 400, in every later request of the
    /// conversation; elsewhere reasoning is ignored (api-docs.deepseek.com, autumn 2026).
    #[must_use]
    pub fn deepseek() -> Self {
        Self {
            thinking: rules![
                "v4-pro" => Switch::ThinkingType(&[High, Max]),
                "" => Switch::ThinkingType(&[Low, High, Max]),
            ],
            reasoning_echo: ReasoningEcho::WithCalls,
            missing_reasoning: Some("".into()),
            images: matching!("flash"),
            structured_output: false,
            ..vendor("deepseek", "https://api.deepseek.com", "DEEPSEEK_API_KEY")
        }
    }

    /// xAI. `XAI_API_KEY`.
    #[must_use]
    pub fn xai() -> Self {
        Self {
            thinking: rules![
                "^grok-4.5" => Switch::Effort(&[Low, Medium, High]),
                "^grok-4.6" => Switch::Effort(&[Low, Medium, High]),
                "^grok-4.7" => Switch::Effort(&[Low, Medium, High]),
            ],
            usage: UsageStyle::ReasoningBeside,
            images_in_tool_results: true,
            ..vendor("xai", "https://api.x.ai/v1", "XAI_API_KEY")
        }
    }

    /// Together. `TOGETHER_API_KEY`.
    #[must_use]
    pub fn together() -> Self {
        Self {
            thinking: rules![
                "glm-5.3" => Switch::Effort(&[Low, Medium, High, Max]),
                "gpt-oss" => Switch::Effort(&[Low, Medium, High]),
                "" => Switch::ReasoningEnabled(&[Low, Medium, High]),
            ],
            reasoning_echo: ReasoningEcho::WithCalls,
            ..vendor("together", "https://api.together.ai/v1", "TOGETHER_API_KEY")
        }
    }

    /// Fireworks. `FIREWORKS_API_KEY`.
    #[must_use]
    pub fn fireworks() -> Self {
        Self {
            thinking: rules![
                "gpt-oss" => Switch::Effort(&[Low, Medium, High]),
                "" => Switch::Effort(&[Off, Low, Medium, High]),
            ],
            reasoning_echo: ReasoningEcho::WithCalls,
            images_in_tool_results: true,
            ..vendor("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY")
        }
    }

    /// Moonshot. `MOONSHOT_API_KEY`. Unknown fields are ignored there without a word, and a message with calls that
    /// lacks its reasoning is refused.
    #[must_use]
    pub fn moonshot() -> Self {
        Self {
            max_tokens_field: MaxTokensField::MaxCompletionTokens,
            thinking: rules![
                "k3" => Switch::Effort(&[Low, High, Max]),
                "k2.7" => Switch::Fixed,
                "k2.6" => Switch::ThinkingType(&[]),
                "k2.5" => Switch::ThinkingType(&[]),
            ],
            reasoning_echo: ReasoningEcho::WithCalls,
            missing_reasoning: Some(" ".into()),
            images_in_tool_results: true,
            fixed_temperature: matching!("k3", "k2.7", "k2.6", "k2.5", "thinking"),
            structured_output: false,
            ..vendor("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY")
        }
    }

    /// Z.ai. `ZAI_API_KEY`.
    #[must_use]
    pub fn zai() -> Self {
        Self {
            thinking: rules![
                "glm-5.3" => Switch::Effort(&[Low, High, Max]),
                "glm-4-" => Switch::Fixed,
                "" => Switch::ThinkingType(&[]),
            ],
            reasoning_echo: ReasoningEcho::Always,
            images_in_tool_results: true,
            tool_choice: ToolChoiceSupport::AutoOnly,
            structured_output: false,
            ..vendor("zai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY")
        }
    }

    /// Qwen at Alibaba Cloud's international address. `DASHSCOPE_API_KEY`.
    #[must_use]
    pub fn qwen() -> Self {
        Self {
            image_types: None,
            thinking: rules!["" => Switch::EnableThinking],
            images: matching!("vl", "qwen3.5", "qwen3.6", "qwen3.7", "qwen3.8", "qwen4", "omni"),
            structured_output: false,
            ..vendor("qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY")
        }
    }

    /// A local Ollama, no key.
    #[must_use]
    pub fn ollama() -> Self {
        Self {
            thinking: rules!["" => Switch::Effort(&[Off, Minimal, Low, Medium, High, Max])],
            reasoning_field: ReasoningField::Reasoning,
            reasoning_echo: ReasoningEcho::WithCalls,
            image_urls: false,
            tool_choice: ToolChoiceSupport::AutoOnly,
            ..local("ollama", "http://localhost:11434/v1", None)
        }
    }

    /// A local llama.cpp server on its old default port 8080; key (`--api-key`) optional. Newer builds listen on 9931.
    #[must_use]
    pub fn llama_cpp() -> Self {
        Self {
            thinking: rules!["" => Switch::Effort(&[Off, Minimal, Low, Medium, High])],
            reasoning_echo: ReasoningEcho::WithCalls,
            ..local("llamacpp", "http://127.0.0.1:8080/v1", Some("LLAMA_API_KEY"))
        }
    }

    /// A local LM Studio, no key.
    #[must_use]
    pub fn lm_studio() -> Self {
        Self {
            thinking: rules!["" => Switch::Effort(&[Off, Low, Medium, High])],
            reasoning_echo: ReasoningEcho::WithCalls,
            ..local("lmstudio", "http://localhost:1234/v1", None)
        }
    }

    /// A vLLM server; key (`--api-key`) optional in `VLLM_API_KEY`.
    #[must_use]
    pub fn vllm() -> Self {
        Self {
            thinking: rules!["" => Switch::Template(&[Low, Medium, High])],
            reasoning_field: ReasoningField::Reasoning,
            reasoning_echo: ReasoningEcho::WithCalls,
            ..local("vllm", "http://localhost:8000/v1", Some("VLLM_API_KEY"))
        }
    }

    /// Google's compatible endpoint for Gemini. `GEMINI_API_KEY`. The Gemini wire itself carries more.
    #[must_use]
    pub fn google() -> Self {
        Self {
            thinking: rules![
                "gemini-2.5-flash" => Switch::Effort(&[Off, Low, Medium, High]),
                "gemini-2.0" => Switch::Fixed,
                "" => Switch::Effort(&[Low, Medium, High]),
            ],
            usage: UsageStyle::ReasoningInTotal,
            ..vendor("google", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY")
        }
    }

    /// Any server that speaks the wire: nothing is sent that some server is known to refuse, and no thinking field at
    /// all. Its id is `custom`; give it one of its own when several are in use.
    #[must_use]
    pub fn custom(base_url: impl Into<Cow<'static, str>>) -> Self {
        Self { base_url: base_url.into(), ..local("custom", "", None) }
    }

    /// The profile of a vendor by name, as vendors are called in catalogues (`xai`, `moonshotai`, `azure-openai`, …).
    ///
    /// `None` when the name is unknown. Hosts that are known but have no profile of their own get the custom one under
    /// their name, without an address.
    #[must_use]
    pub fn by_vendor(name: &str) -> Option<Self> {
        Some(match name {
            "openai" => Self::openai(),
            "azure" | "azure-openai" | "azure-ai-foundry" => Self { id: name.to_owned().into(), ..Self::azure("") },
            "openrouter" => Self::openrouter(),
            "groq" => Self::groq(),
            "cerebras" => Self::cerebras(),
            "mistral" => Self::mistral(),
            "deepseek" => Self::deepseek(),
            "xai" => Self::xai(),
            "together" => Self::together(),
            "fireworks" => Self::fireworks(),
            "moonshot" | "moonshotai" => Self::moonshot(),
            "zai" => Self::zai(),
            "qwen" | "alibaba" => Self::qwen(),
            "ollama" => Self::ollama(),
            "ollama-cloud" => Self {
                id: "ollama-cloud".into(),
                base_url: "https://ollama.com/v1".into(),
                key_var: Some("OLLAMA_API_KEY".into()),
                key_required: true,
                ..Self::ollama()
            },
            "llamacpp" | "llama.cpp" => Self::llama_cpp(),
            "gpustack" => Self { id: "gpustack".into(), base_url: "".into(), ..Self::llama_cpp() },
            "lmstudio" => Self::lm_studio(),
            "vllm" => Self::vllm(),
            "google" => Self::google(),
            // Gateways that speak OpenRouter's reasoning_details.
            "vercel-gateway" | "avian" | "doubleword" | "snowflake" => Self {
                id: name.to_owned().into(),
                reasoning_field: ReasoningField::Reasoning,
                reasoning_echo: ReasoningEcho::Signed,
                ..Self::custom("")
            },
            "ai21" | "bedrock-mantle" | "copilot" | "crusoe" | "heroku" | "huggingface" | "litellm-proxy"
            | "mistralrs" | "perplexity" | "venice" => Self { id: name.to_owned().into(), ..Self::custom("") },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_profile_has_an_address_and_is_found_under_its_id() {
        let profiles = [
            ChatProfile::openai(),
            ChatProfile::openrouter(),
            ChatProfile::groq(),
            ChatProfile::cerebras(),
            ChatProfile::mistral(),
            ChatProfile::deepseek(),
            ChatProfile::xai(),
            ChatProfile::together(),
            ChatProfile::fireworks(),
            ChatProfile::moonshot(),
            ChatProfile::zai(),
            ChatProfile::qwen(),
            ChatProfile::ollama(),
            ChatProfile::llama_cpp(),
            ChatProfile::lm_studio(),
            ChatProfile::vllm(),
            ChatProfile::google(),
        ];
        for profile in profiles {
            assert!(profile.base_url.starts_with("http"), "{}", profile.id);
            assert!(!profile.base_url.ends_with('/'), "{}", profile.id);
            assert_eq!(ChatProfile::by_vendor(&profile.id).as_ref(), Some(&profile));
            assert_ne!(profile.key_var.as_deref(), Some(""), "{}", profile.id);
            assert!(!profile.key_required || profile.key_var.is_some(), "{}", profile.id);
        }
        assert_eq!(ChatProfile::by_vendor("nobody"), None);
    }
}

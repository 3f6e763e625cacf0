//! The crate's own wires, by the names that cases use.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use zidane::provider::openai_chat::{ChatProfile, OpenAiChat};
use zidane::provider::{Anthropic, Gemini, HttpOptions, OpenAi, Provider, ProviderError, ProviderStream, RawResponse};

use super::findings::Findings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

pub const BUILT: [Protocol; 4] = [Protocol::Anthropic, Protocol::Chat, Protocol::Responses, Protocol::Gemini];

pub const MODEL: &str = "test-model";
pub const KEY: &str = "test-key-of-the-pitfalls";

/// The protocols that a case names, or all when it names none. What is not built is noted as needed.
pub fn of(value: Option<&Value>, findings: &mut Findings) -> Vec<Protocol> {
    let names = match value {
        None | Some(Value::Null) => return BUILT.to_vec(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(name) => vec![name.as_str().unwrap_or_default()],
    };
    names.into_iter().filter_map(|name| by_name(name, findings)).collect()
}

pub fn by_name(name: &str, findings: &mut Findings) -> Option<Protocol> {
    match name {
        "anthropic-messages" | "anthropic" => Some(Protocol::Anthropic),
        "openai-chat" => Some(Protocol::Chat),
        "openai-responses" => Some(Protocol::Responses),
        "gemini" => Some(Protocol::Gemini),
        _ => {
            findings.need(format!("the wire {name}"));
            None
        }
    }
}

impl Protocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic-messages",
            Self::Chat => "openai-chat",
            Self::Responses => "openai-responses",
            Self::Gemini => "gemini",
        }
    }

    /// The field of a request that holds the conversation.
    pub const fn messages(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Chat => "messages",
            Self::Responses => "input",
            Self::Gemini => "contents",
        }
    }

    /// The tools that a request declares.
    pub fn tools(self, body: &Value) -> Vec<Value> {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Anthropic | Self::Responses => list(&body["tools"]),
            Self::Chat => list(&body["tools"]).iter().map(|tool| tool["function"].clone()).collect(),
            Self::Gemini => list(&body["tools"][0]["functionDeclarations"]),
        }
    }

    /// A provider that talks to a server at `url`.
    pub fn provider(self, url: &str, idle: Option<Duration>) -> Arc<dyn Provider> {
        let mut options = HttpOptions::default();
        if let Some(idle) = idle {
            options.idle_timeout = idle;
        }
        match self {
            Self::Anthropic => Arc::new(anthropic(url, options)),
            Self::Chat => Arc::new(chat(url, options, ChatProfile::openai())),
            Self::Responses => Arc::new(responses(url, options)),
            Self::Gemini => Arc::new(gemini(url, options)),
        }
    }

    /// A provider with this key, and what it shows of itself.
    pub fn with_key(self, url: &str, key: &str) -> (Arc<dyn Provider>, String) {
        match self {
            Self::Anthropic => {
                let provider = Anthropic::builder().base_url(url).api_key(key).build().unwrap();
                (Arc::new(provider.clone()), format!("{provider:?} {provider:#?}"))
            }
            Self::Chat => {
                let provider = OpenAiChat::builder().base_url(format!("{url}/v1")).api_key(key).build().unwrap();
                (Arc::new(provider.clone()), format!("{provider:?} {provider:#?}"))
            }
            Self::Responses => {
                let provider = OpenAi::builder().base_url(format!("{url}/v1")).api_key(key).build().unwrap();
                (Arc::new(provider.clone()), format!("{provider:?} {provider:#?}"))
            }
            Self::Gemini => {
                let provider = Gemini::builder().base_url(url).api_key(key).build().unwrap();
                (Arc::new(provider.clone()), format!("{provider:?} {provider:#?}"))
            }
        }
    }

    /// Decodes a response that was not fetched by the provider.
    pub fn decode(self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        const NOWHERE: &str = "http://127.0.0.1:9";
        match self {
            Self::Anthropic => anthropic(NOWHERE, HttpOptions::default()).decode(model, response),
            Self::Chat => chat(NOWHERE, HttpOptions::default(), ChatProfile::openai()).decode(model, response),
            Self::Responses => responses(NOWHERE, HttpOptions::default()).decode(model, response),
            Self::Gemini => gemini(NOWHERE, HttpOptions::default()).decode(model, response),
        }
    }

    /// A whole answer of one text.
    pub fn answer(self, text: &str) -> String {
        let text = Value::from(text);
        match self {
            Self::Anthropic => format!(
                concat!(
                    "data: {{\"type\":\"message_start\",\"message\":{{\"model\":\"test\",\"content\":[],",
                    "\"usage\":{{\"input_tokens\":1,\"output_tokens\":1}}}}}}\n\n",
                    "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"text\",\"text\":\"\"}}}}\n\n",
                    "data: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":{}}}}}\n\n",
                    "data: {{\"type\":\"content_block_stop\",\"index\":0}}\n\n",
                    "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{{\"output_tokens\":2}}}}\n\n",
                    "data: {{\"type\":\"message_stop\"}}\n\n",
                ),
                text
            ),
            Self::Chat => format!(
                concat!(
                    "data: {{\"model\":\"test\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{}}},\"finish_reason\":\"stop\"}}],",
                    "\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":2}}}}\n\n",
                    "data: [DONE]\n\n",
                ),
                text
            ),
            Self::Responses => format!(
                concat!(
                    "data: {{\"type\":\"response.created\",\"response\":{{\"model\":\"test\"}}}}\n\n",
                    "data: {{\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":{}}}\n\n",
                    "data: {{\"type\":\"response.completed\",\"response\":{{\"status\":\"completed\",",
                    "\"usage\":{{\"input_tokens\":1,\"output_tokens\":2}}}}}}\n\n",
                ),
                text
            ),
            Self::Gemini => format!(
                concat!(
                    "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":{}}}]}},\"finishReason\":\"STOP\"}}],",
                    "\"usageMetadata\":{{\"promptTokenCount\":1,\"candidatesTokenCount\":2}}}}\r\n\r\n",
                ),
                text
            ),
        }
    }
}

pub fn gemini(url: &str, options: HttpOptions) -> Gemini {
    Gemini::builder().http(options).base_url(url).api_key(KEY).build().unwrap()
}

pub fn anthropic(url: &str, options: HttpOptions) -> Anthropic {
    Anthropic::builder().http(options).base_url(url).api_key(KEY).build().unwrap()
}

pub fn responses(url: &str, options: HttpOptions) -> OpenAi {
    OpenAi::builder().http(options).base_url(format!("{url}/v1")).api_key(KEY).build().unwrap()
}

pub fn chat(url: &str, options: HttpOptions, profile: ChatProfile) -> OpenAiChat {
    OpenAiChat::builder().profile(profile).http(options).base_url(format!("{url}/v1")).api_key(KEY).build().unwrap()
}

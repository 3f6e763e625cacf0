//! OpenAI Chat Completions, and everything that speaks it.
//!
//! [`OpenAiChat`] is the provider. What differs between vendors is data: a [`ChatProfile`].
//!
//! ```no_run
//! use zidane::provider::openai_chat::{ChatProfile, OpenAiChat};
//!
//! let openai = OpenAiChat::from_env()?;
//! let groq = OpenAiChat::builder().profile(ChatProfile::groq()).build()?;
//! let local = OpenAiChat::compatible("http://localhost:8000/v1")?;
//! # Ok::<(), zidane::provider::ProviderError>(())
//! ```
//!
//! Reasoning becomes thinking blocks wherever a vendor puts it in a field. `<think>` tags inside the text stay text:
//! they cannot be told from a model writing about them.

mod builder;
mod calls;
mod chunk;
mod details;
mod finish;
mod json_scan;
mod local;
mod messages;
pub(super) mod parts;
mod profile;
mod request;
pub(super) mod schema;
mod stream;
mod thinking;
mod usage;
mod vendors;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Url;
use reqwest::header::HeaderMap;

pub use builder::OpenAiChatBuilder;
pub use local::LocalServer;
pub use profile::{
    CallIds, ChatProfile, DocumentStyle, KeyHeader, MaxTokensField, Models, ReasoningEcho, ReasoningField, SystemRole,
    ToolChoiceSupport, UsageStyle,
};
pub use thinking::{Effort, ThinkingRule, ThinkingSwitch};

pub(super) use thinking::effort_word;
pub(super) use usage::reported_cost;

use self::parts::Accepts;
use self::profile::DocumentStyle as Documents;
use self::stream::ChatDecoder;
use super::http::Http;
use super::names::{NameRule, NameTable};
use super::response::RawResponse;
use super::{Capabilities, ModelRequest, Provider, ProviderError, ProviderStream, RequestContext, wire};
use crate::types::SessionContentBlock;

/// A model behind the Chat Completions wire.
///
/// A clone shares everything. Dropping a request or its stream closes the connection.
#[derive(Clone)]
pub struct OpenAiChat {
    profile: Arc<ChatProfile>,
    http: Http,
    url: Url,
    headers: HeaderMap,
    /// Stands for the profile in kept request bodies.
    wire: Arc<str>,
}

impl OpenAiChat {
    /// OpenAI with the key of `OPENAI_API_KEY`, at the address of `OPENAI_BASE_URL` if that is set.
    ///
    /// # Errors
    /// `Auth` without a key, `Invalid` with an address that is none.
    pub fn from_env() -> Result<Self, ProviderError> {
        let mut builder = Self::builder();
        if let Some(url) = std::env::var("OPENAI_BASE_URL").ok().filter(|url| !url.trim().is_empty()) {
            builder = builder.base_url(url);
        }
        builder.build()
    }

    /// Builds a provider; without a profile it is OpenAI.
    pub fn builder() -> OpenAiChatBuilder {
        OpenAiChatBuilder::new()
    }

    /// A server that needs no key, e.g. a local one.
    ///
    /// # Errors
    /// `Invalid` with an address that is none.
    pub fn compatible(base_url: impl Into<String>) -> Result<Self, ProviderError> {
        Self::builder().profile(ChatProfile::custom(base_url.into())).build()
    }

    /// The vendor's profile.
    #[must_use]
    pub fn profile(&self) -> &ChatProfile {
        &self.profile
    }

    /// The body that a request is sent with, without sending it. Takes from the request's body cache what is there, and
    /// leaves in it what the conversation's next request can take.
    ///
    /// # Errors
    /// `Unsupported`, naming turn and block, for what this vendor's wire cannot say of the last turn; `Invalid` for
    /// more tools than it takes.
    pub fn encode(&self, request: &ModelRequest) -> Result<Bytes, ProviderError> {
        request::body(&self.profile, &self.wire, request)
    }

    /// Decodes a recorded response, without a network. `model` is the one that was asked for.
    ///
    /// # Errors
    /// None yet; errors of the response come through the stream.
    pub fn decode(&self, model: &str, response: RawResponse) -> Result<ProviderStream, ProviderError> {
        let _ = model;
        let decoder = self.decoder(NameTable::default(), &response);
        Ok(wire::decode(&self.http.origin, self.http.options.max_event_bytes, response, decoder))
    }

    fn decoder(&self, names: NameTable, response: &RawResponse) -> ChatDecoder {
        ChatDecoder::new(Arc::clone(&self.profile), names, response.header("retry-after").is_some())
    }
}

impl std::fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiChat").field("id", &self.profile.id).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for OpenAiChat {
    fn id(&self) -> &str {
        &self.profile.id
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        let images = self.profile.images.contains(model);
        Capabilities {
            images,
            documents: self.profile.documents != Documents::Unsupported,
            images_in_tool_results: images && self.profile.images_in_tool_results,
            documents_in_tool_results: false,
            thinking: self.profile.thinking.iter().any(|rule| profile::matches(&rule.models, model)),
            decisions: false,
            native_structured_output: self.profile.structured_output,
        }
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let body = request::body(&self.profile, &self.wire, &request)?;
        let response = self.http.post(&self.url, &self.headers, body, cx).await?;
        let decoder = self.decoder(NameTable::new(&request.head, NameRule::PORTABLE), &response);
        wire::open(&self.http.origin, self.http.options.max_event_bytes, response, decoder).await
    }

    fn check(&self, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
        Accepts::new(&self.profile, model).check(content)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::provider::{History, ProviderErrorKind, RequestHead, StreamEvent, ToolDefinition};
    use crate::types::{Role, SessionTurn, TurnOrigin};

    /// Answers one request with `answer`; gives the address and, when done, the request.
    async fn serve(answer: String) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1/?version=2", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            // The test's bodies end so, and nothing before does.
            while !request.ends_with(b"]}") {
                assert!(socket.read_buf(&mut request).await.unwrap() > 0);
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(request).unwrap()
        });
        (address, served)
    }

    fn request(head: RequestHead) -> Arc<ModelRequest> {
        let prompt = vec![SessionContentBlock::text("hi")];
        let turn = SessionTurn::new("t", Role::User, TurnOrigin::Prompt, prompt);
        Arc::new(ModelRequest::new(head, History::from_iter([turn])))
    }

    #[tokio::test]
    async fn a_request_goes_out_and_its_answer_comes_back() {
        let wire_name = NameRule::PORTABLE.wire_name("mcp/ls").into_owned();
        let call = serde_json::json!({"index": 0, "id": "c", "function": {"name": wire_name, "arguments": "{}"}});
        let choice = serde_json::json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"});
        let chunk = serde_json::json!({"model": "m-1", "choices": [choice]});
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let (address, served) = serve(format!("{head}data: {chunk}\n\ndata: [DONE]\n\n")).await;
        let provider = OpenAiChat::builder().base_url(address).api_key("sk-test-key").build().unwrap();
        let tool = ToolDefinition::new("mcp/ls", "", serde_json::json!({"type": "object"}));
        let head = RequestHead { model: "m".into(), tools: [tool].into(), ..RequestHead::default() };
        let stream = provider.stream(request(head), &RequestContext::default()).await.unwrap();
        let events: Vec<_> = stream.map(Result::unwrap).collect().await;
        let sent = served.await.unwrap();
        assert!(sent.starts_with("POST /v1/chat/completions?version=2 HTTP/1.1\r\n"), "{sent}");
        assert!(sent.contains("authorization: Bearer sk-test-key\r\n") && sent.contains(&wire_name), "{sent}");
        let started = StreamEvent::ToolCallStart { block: 0, id: "c".into(), name: "mcp/ls".into() };
        assert!(events.contains(&started), "{events:?}");
        assert!(matches!(events.last(), Some(StreamEvent::Finish { .. })), "{events:?}");
    }

    #[tokio::test]
    async fn a_refused_request_is_an_error_without_the_key() {
        let head = "HTTP/1.1 402 Payment Required\r\nretry-after: 2\r\nconnection: close\r\n\r\n";
        let answer = head.to_owned() + r#"{"error":{"message":"no credit for sk-test-key"}}"#;
        let (address, _served) = serve(answer).await;
        let provider = OpenAiChat::builder().base_url(address).api_key("sk-test-key").build().unwrap();
        let head = RequestHead { model: "m".into(), ..RequestHead::default() };
        let error = provider.stream(request(head), &RequestContext::default()).await.unwrap_err();
        assert_eq!((error.kind, error.status), (ProviderErrorKind::RateLimited, Some(402)), "it names a time to wait");
        assert!(!format!("{error:?} {provider:?}").contains("sk-test-key"));
    }

    #[test]
    fn building_checks_key_and_address() {
        let profile = ChatProfile { key_var: None, ..ChatProfile::openai() };
        let error = OpenAiChat::builder().profile(profile.clone()).build().unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Auth);
        assert!(OpenAiChat::builder().profile(profile).api_key(" ").build().is_err(), "a blank key is none");
        assert_eq!(OpenAiChat::compatible("localhost").unwrap_err().kind, ProviderErrorKind::Invalid);
        let local = OpenAiChat::compatible("http://localhost:1/v1").unwrap();
        assert_eq!((local.id(), local.url.as_str()), ("custom", "http://localhost:1/v1/chat/completions"));
    }

    #[test]
    fn media_are_checked_by_model() {
        let groq = OpenAiChat::builder().profile(ChatProfile::groq()).api_key("sk-test-key").build().unwrap();
        let image = SessionContentBlock::Image(crate::types::Media::url("https://example.com/a.png"));
        let prompt = [SessionContentBlock::text("see"), image];
        assert!(groq.check("llama-4-scout", &prompt).is_ok() && groq.capabilities("llama-4-scout").images);
        let error = groq.check("gpt-oss-20b", &prompt).unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Unsupported);
        assert!(error.message.starts_with("part 1 (image)"), "{}", error.message);
        assert!(groq.capabilities("gpt-oss-20b").thinking && !groq.capabilities("llama-4-scout").thinking);
    }
}

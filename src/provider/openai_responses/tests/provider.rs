use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::json;

use super::super::{OpenAi, ResponsesProfile};
use crate::provider::names::NameRule;
use crate::provider::{
    History, ModelRequest, Provider as _, ProviderErrorKind, RequestContext, RequestHead, Resume, StreamEvent,
    ToolDefinition,
};
use crate::testing::{HttpReply, SseServer};
use crate::types::{OpaqueBlock, Role, SessionContentBlock, SessionTurn, SignatureProducer, TurnOrigin};

fn request(head: RequestHead) -> Arc<ModelRequest> {
    let prompt = vec![SessionContentBlock::text("hi")];
    let turn = SessionTurn::new("t", Role::User, TurnOrigin::Prompt, prompt);
    Arc::new(ModelRequest::new(head, History::from_iter([turn])))
}

#[tokio::test]
async fn a_request_goes_out_and_its_answer_comes_back() {
    let name = NameRule::PORTABLE.wire_name("mcp/ls").into_owned();
    let call = json!({"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"});
    let done = json!({"type": "response.output_item.done", "output_index": 0, "item": call});
    let end = json!({"type": "response.completed", "response": {"status": "completed", "model": "m-1"}});
    let reply = HttpReply::new(200)
        .header("content-type", "text/event-stream")
        .chunk(format!("data: {done}\n\ndata: {end}\n\n"));
    let server = SseServer::start([reply]).await.unwrap();
    let url = format!("{}/v1/?version=2", server.url());
    let provider = OpenAi::builder().base_url(url).api_key("sk-test-key").build().unwrap();
    let tool = ToolDefinition::new("mcp/ls", "", json!({"type": "object"}));
    let head = RequestHead { model: "m".into(), tools: [tool].into(), ..RequestHead::default() };
    let stream = provider.stream(request(head), &RequestContext::default()).await.unwrap();
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;
    let started = StreamEvent::ToolCallStart { block: 0, id: "c".into(), name: "mcp/ls".into() };
    assert!(events.contains(&started), "{events:?}");
    assert!(matches!(events.last(), Some(StreamEvent::Finish { .. })), "{events:?}");
    let sent = &server.requests()[0];
    assert_eq!(sent.path, "/v1/responses?version=2");
    assert_eq!(sent.header("authorization"), Some("Bearer sk-test-key"));
    assert_eq!(sent.json().unwrap()["tools"][0]["name"], name);
}

#[tokio::test]
async fn a_refused_request_is_an_error_without_the_key() {
    let body = json!({"error": {"code": "rate_limit_exceeded", "message": "sk-test-key must wait"}});
    let reply = HttpReply::new(429).header("retry-after", "2").chunk(body.to_string());
    let server = SseServer::start([reply]).await.unwrap();
    let provider = OpenAi::builder().base_url(server.url()).api_key("sk-test-key").build().unwrap();
    let head = RequestHead { model: "m".into(), ..RequestHead::default() };
    let error = provider.stream(request(head), &RequestContext::default()).await.unwrap_err();
    assert_eq!((error.kind, error.status), (ProviderErrorKind::RateLimited, Some(429)));
    assert_eq!(error.retry_after, Some(std::time::Duration::from_secs(2)));
    assert!(!format!("{error:?} {provider:?}").contains("sk-test-key"));
}

#[test]
fn building_checks_key_and_address() {
    let error = OpenAi::builder().profile(ResponsesProfile::codex()).build().unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Auth);
    let blank = OpenAi::builder().profile(ResponsesProfile::codex()).api_key(" ").build();
    assert!(blank.is_err(), "a blank key is none");
    assert_eq!(OpenAi::compatible("localhost").unwrap_err().kind, ProviderErrorKind::Invalid);
    let local = OpenAi::compatible("http://localhost:1/v1").unwrap();
    assert_eq!((local.id(), local.url.as_str()), ("custom", "http://localhost:1/v1/responses"));
    let azure = ResponsesProfile::azure("https://r.example.com/openai/v1");
    let azure = OpenAi::builder().profile(azure).api_key("k").build().unwrap();
    assert!(azure.headers.contains_key("api-key") && !azure.headers.contains_key("authorization"));
}

#[test]
fn capabilities_are_those_of_the_vendor() {
    let of = |profile: ResponsesProfile, model: &str| {
        OpenAi::builder().profile(profile).api_key("k").build().unwrap().capabilities(model)
    };
    let openai = of(ResponsesProfile::openai(), "gpt-5.5");
    assert!(openai.images_in_tool_results && openai.documents_in_tool_results && openai.thinking);
    assert!(!of(ResponsesProfile::openai(), "gpt-4.1").thinking);
    let xai = of(ResponsesProfile::xai(), "grok-4.5");
    assert!(xai.images && !xai.images_in_tool_results && !xai.documents);
}

#[test]
fn a_request_for_approval_is_not_answered_with_text() {
    let openai = OpenAi::builder().api_key("k").build().unwrap();
    let opaque = |value: serde_json::Value| {
        SessionContentBlock::Opaque(OpaqueBlock::new(SignatureProducer::OPENAI_RESPONSES, "m", value))
    };
    let resume = |content| openai.resume(&SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, content));
    let approval = || opaque(json!({"type": "mcp_approval_request", "id": "ar_1", "name": "n"}));
    let yes = opaque(json!({"type": "mcp_approval_response", "approval_request_id": "ar_1", "approve": true}));
    assert_eq!(resume(vec![SessionContentBlock::text("hm"), approval()]), Resume::Host);
    assert_eq!(resume(vec![approval(), yes]), Resume::UserText);
    assert_eq!(resume(vec![opaque(json!({"type": "mcp_call", "id": "m_1"}))]), Resume::UserText);
}

use std::sync::Arc;

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::super::{
    Anthropic, AnthropicBuilder, ModelRequest, Provider as _, ProviderErrorKind, RequestContext, RequestHead,
    StreamEvent,
};
use crate::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

/// Answers one connection with the given response; gives the address and the request.
async fn serve(response: String) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"]}") {
            let mut buffer = [0; 4096];
            let read = socket.read(&mut buffer).await.unwrap();
            assert!(read > 0);
            request.extend_from_slice(&buffer[..read]);
        }
        socket.write_all(response.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    });
    (base, served)
}

fn http(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn request() -> Arc<ModelRequest> {
    let turn = SessionTurn::new("u", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("hi")]);
    let head = RequestHead { model: "claude-haiku-4-5".into(), ..RequestHead::default() };
    Arc::new(ModelRequest::new(head, [turn].into_iter().collect()))
}

const ANSWER: &str = concat!(
    "data: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"yes\"}}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
);

async fn ask(builder: AnthropicBuilder) -> (Vec<StreamEvent>, String) {
    let (base, served) = serve(http("200 OK", "", ANSWER)).await;
    let provider = builder.base_url(base).build().unwrap();
    let stream = provider.stream(request(), &RequestContext::default()).await.unwrap();
    let events = stream.map(Result::unwrap).collect().await;
    (events, served.await.unwrap())
}

#[tokio::test]
async fn a_request_goes_out_with_key_and_version_and_the_answer_comes_back() {
    let (events, sent) = ask(Anthropic::builder().api_key("sk-test").header("anthropic-beta", "x-1")).await;
    let text = StreamEvent::Text { block: 0, delta: "yes".into() };
    assert!(events.contains(&text) && matches!(events.last(), Some(StreamEvent::Finish { .. })));
    assert!(sent.starts_with("POST /v1/messages HTTP/1.1"));
    for header in ["x-api-key: sk-test", "anthropic-version: 2023-06-01", "anthropic-beta: x-1"] {
        assert!(sent.contains(header), "{header} is not in {sent}");
    }
    assert!(!sent.contains("authorization"));
    let (_, sent) = ask(Anthropic::builder().bearer("tok-test").version("2026-10-21")).await;
    assert!(sent.contains("authorization: Bearer tok-test") && sent.contains("anthropic-version: 2026-10-21"));
    assert!(!sent.contains("x-api-key"));
}

#[tokio::test]
async fn a_refused_request_is_an_error_of_the_call() {
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down sk-test-key"}}"#;
    let (base, served) = serve(http("429 Too Many", "retry-after: 12\r\nrequest-id: r1\r\n", body)).await;
    let provider = Anthropic::builder().api_key("sk-test-key").base_url(base).build().unwrap();
    let error = provider.stream(request(), &RequestContext::default()).await.unwrap_err();
    served.await.unwrap();
    assert_eq!((error.kind, error.status), (ProviderErrorKind::RateLimited, Some(429)));
    assert_eq!(error.retry_after.map(|time| time.as_secs()), Some(12));
    assert_eq!((error.message.as_str(), error.request_id.as_deref()), ("slow down ***", Some("r1")));
}

#[test]
fn settings_are_checked_without_io() {
    assert_eq!(Anthropic::new(" ").unwrap_err().kind, ProviderErrorKind::Auth);
    assert_eq!(Anthropic::new("a\nb").unwrap_err().kind, ProviderErrorKind::Invalid);
    assert_eq!(Anthropic::builder().base_url("nowhere").build().unwrap_err().kind, ProviderErrorKind::Invalid);
    let path = |base: &str| Anthropic::builder().base_url(base).build().unwrap().inner.url.path().to_owned();
    assert_eq!(path("https://x.test/anthropic/"), "/anthropic/v1/messages");
    assert_eq!(path("https://x.test/api/v1"), "/api/v1/messages");
    let provider = Anthropic::new("sk-very-secret").unwrap();
    assert!(!format!("{provider:?}").contains("sk-very-secret"));
}

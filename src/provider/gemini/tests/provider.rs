use std::sync::Arc;

use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::super::{
    Gemini, GeminiBuilder, ModelRequest, Provider as _, ProviderErrorKind, RequestContext, StreamEvent,
};
use super::turns::{head, says};

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

fn http(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn request() -> Arc<ModelRequest> {
    Arc::new(ModelRequest::new(head(), [says("hi")].into_iter().collect()))
}

const ANSWER: &str =
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"yes\"}]},\"finishReason\":\"STOP\"}]}\r\n\r\n";

async fn ask(builder: GeminiBuilder) -> (Vec<StreamEvent>, String) {
    let (base, served) = serve(http("200 OK", ANSWER)).await;
    let provider = builder.base_url(base).build().unwrap();
    let stream = provider.stream(request(), &RequestContext::default()).await.unwrap();
    let events = stream.map(Result::unwrap).collect().await;
    (events, served.await.unwrap())
}

#[tokio::test]
async fn a_request_goes_out_with_its_key_in_a_header_and_the_answer_comes_back() {
    let (events, sent) = ask(Gemini::builder().api_key("key-test").header("x-other", "1")).await;
    let text = StreamEvent::Text { block: 0, delta: "yes".into() };
    assert!(events.contains(&text) && matches!(events.last(), Some(StreamEvent::Finish { .. })));
    assert!(sent.starts_with("POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse HTTP/1.1"), "{sent}");
    assert!(sent.contains("x-goog-api-key: key-test") && sent.contains("x-other: 1"));
    assert_eq!(sent.matches("key-test").count(), 1);
    let (_, sent) = ask(Gemini::builder().bearer("tok-test")).await;
    assert!(sent.contains("authorization: Bearer tok-test") && !sent.contains("x-goog-api-key"));
}

#[tokio::test]
async fn a_refused_request_is_an_error_of_the_call_and_holds_no_key() {
    let body = r#"{"error":{"code":400,"message":"API key not valid: key-test","status":"INVALID_ARGUMENT",
        "details":[{"reason":"API_KEY_INVALID"}]}}"#;
    let (base, served) = serve(http("400 Bad", body)).await;
    let provider = Gemini::builder().api_key("key-test").base_url(base).build().unwrap();
    let error = provider.stream(request(), &RequestContext::default()).await.unwrap_err();
    served.await.unwrap();
    assert_eq!((error.kind, error.status), (ProviderErrorKind::Auth, Some(400)));
    assert!(!format!("{error:?} {error}").contains("key-test"), "{error:?}");
}

#[test]
fn addresses_are_put_together() {
    let path = |base: &str, model: &str| {
        let provider = Gemini::builder().base_url(base).build().unwrap();
        provider.inner.url(model).map(|url| url.as_str().trim_end_matches(":streamGenerateContent?alt=sse").to_owned())
    };
    let vertex = "https://x-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google";
    for (base, model, expected) in [
        ("https://x.test", "m", "https://x.test/v1beta/models/m"),
        ("https://x.test/gemini/", "m", "https://x.test/gemini/v1beta/models/m"),
        ("https://x.test/v1", "models/m", "https://x.test/v1/models/m"),
        ("https://x.test/v1beta/?key=k#f", "tunedModels/m", "https://x.test/v1beta/tunedModels/m"),
        (vertex, "m", &format!("{vertex}/models/m")),
        ("https://x.test", "a?b#c/../d", "https://x.test/v1beta/a%3Fb%23c/d"),
    ] {
        assert_eq!(path(base, model).unwrap(), expected);
    }
    assert_eq!(path("https://x.test", " ").unwrap_err().kind, ProviderErrorKind::Invalid);
    let id = |base: &str| Gemini::builder().base_url(base).build().unwrap().id().to_owned();
    assert_eq!((id(vertex), id("https://x.test")), ("vertex".to_owned(), "gemini".to_owned()));
}

#[test]
fn settings_are_checked_without_io() {
    assert_eq!(Gemini::new(" ").unwrap_err().kind, ProviderErrorKind::Auth);
    assert_eq!(Gemini::new("a\nb").unwrap_err().kind, ProviderErrorKind::Invalid);
    assert_eq!(Gemini::builder().base_url("nowhere").build().unwrap_err().kind, ProviderErrorKind::Invalid);
    let provider = Gemini::new("key-very-secret").unwrap();
    assert!(!format!("{provider:?}").contains("key-very-secret"));
    let new = provider.capabilities("gemini-3.8-flash");
    assert!(new.images && new.documents && new.images_in_tool_results && new.thinking);
    assert!(!provider.capabilities("gemini-2.0-flash").images_in_tool_results);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_ended_does_not_wait_for_the_connection_to_close() {
    use bytes::Bytes;
    use futures::stream;

    let raw = |body: &'static str, idle| super::super::super::RawResponse {
        status: 200,
        headers: Default::default(),
        body: stream::iter([Ok(Bytes::from_static(body.as_bytes()))]).chain(idle).boxed(),
    };
    let provider = Gemini::new("k").unwrap();
    let started = tokio::time::Instant::now();
    let events: Vec<_> = provider.decode("m", raw(ANSWER, stream::pending().boxed())).unwrap().collect().await;
    assert!(matches!(events.last(), Some(Ok(StreamEvent::Finish { .. }))));
    assert_eq!(started.elapsed().as_secs(), 5);

    // What does follow in time is read.
    let late = stream::once(async {
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        Ok(Bytes::from_static(ANSWER.as_bytes()))
    });
    let events: Vec<_> = provider.decode("m", raw(ANSWER, late.boxed())).unwrap().collect().await;
    let texts = events.iter().filter(|event| matches!(event, Ok(StreamEvent::Text { .. }))).count();
    assert_eq!((texts, started.elapsed().as_secs()), (2, 9));
}

#![allow(clippy::panic, clippy::expect_used, reason = "a test suite fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::agent::{Agent, StopCause};
use crate::provider::{
    History, ModelRequest, Provider, ProviderError, ProviderErrorKind, RequestContext, RequestHead, RetryPolicy,
    StreamEvent, ToolDefinition,
};
use crate::testing::{HttpEnd, HttpReply, SseServer};
use crate::tool::tool_fn_value;
use crate::types::{
    Document, Media, MediaSource, Role, SessionContentBlock, SessionTurn, SignatureProducer, TokenUsage, ToolStatus,
    TurnFinishReason, TurnOrigin, tool_result_to_text,
};

/// What the suite needs to know of a provider: how to build one, and how its API says things.
pub trait ProviderFixture: Send + Sync {
    /// A provider that talks to a server at this address, with the key `conformance-key` where it needs one.
    fn provider(&self, base_url: &str) -> Arc<dyn Provider>;

    /// A model id it takes.
    fn model(&self) -> &str {
        "model"
    }

    /// The response by which the API says this. `None` when it has no way to; the test is then passed over, and a line
    /// says so.
    fn reply(&self, saying: Saying) -> Option<HttpReply>;
}

/// Things that an API can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Saying {
    /// The text `Hello, wörld 🌍`, in several deltas, the model's turn over; usage 7 fresh input, 9 output.
    Text,
    /// The text `Let me.`, then a call with id `call-1` of the tool `echo` with the arguments `{"n": 1}`.
    Call,
    /// Two calls of `echo`, with the arguments `{"n": 1}` and `{"n": 2}`.
    TwoCalls,
    /// A call of `echo` without arguments, the way the API writes that.
    EmptyCall,
    /// The text `Half`, cut by the output limit.
    Length,
    /// The text `Half` and a call of `echo` whose arguments are cut by the output limit after `{"n": `.
    CutCall,
    /// Reasoning `Hm.` with `conformance-state` as the API's opaque state of it (a signature, or the reasoning in
    /// encrypted form), then the text `Done.`.
    Thinking,
    /// A refusal.
    Refusal,
    /// A finish reason that nobody knows, after the text `Hm`.
    UnknownFinish,
    /// An event of a type that nobody knows, between the two halves of the text `Hello`.
    UnknownEvent,
    /// The text `Half`, then the end of the body without the end of the answer.
    Truncated,
    /// The text `Half`, then an error that says the server is overloaded, inside the 200.
    OverloadedInStream,
    /// The key is refused.
    Unauthorized,
    /// There is no such model.
    NoSuchModel,
    /// Too many requests; come back in 3 seconds.
    RateLimited,
    /// The server is overloaded.
    Overloaded,
    /// The conversation is too long for the model.
    ContextOverflow,
}

/// One test of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderTest {
    /// Text, usage and finish arrive, whole and in reads of one byte.
    Text,
    /// Calls arrive whole, with their ids and arguments.
    Calls,
    /// Reasoning arrives, its state goes back as it came, and no other provider's does.
    Thinking,
    /// An image or a document is sent, or refused before that with its place; in the history it never stops a request.
    Media,
    /// A cut answer is `length`, and a cut call is not complete.
    Length,
    /// A refusal is `content-filter`; an unknown reason is `other`, an unknown event nothing.
    Finishes,
    /// A body that ends early is `truncated_stream`; an error inside a 200 is that error.
    Broken,
    /// Refusals of the API have their kinds, and whether to retry.
    Errors,
    /// Dropping the stream closes the connection.
    Drop,
    /// A conversation with a tool goes through an agent; each request begins with the one before it.
    Conversation,
    /// The key appears in no error and no debug output.
    Secrets,
}

/// Runs one test of the suite; `provider_conformance!` makes tests of all of them.
///
/// # Panics
/// Where the provider falls short.
pub async fn check_provider(fixture: &dyn ProviderFixture, test: ProviderTest) {
    let suite = Suite { fixture };
    match test {
        ProviderTest::Text => suite.text().await,
        ProviderTest::Calls => suite.calls().await,
        ProviderTest::Thinking => suite.thinking().await,
        ProviderTest::Media => suite.media().await,
        ProviderTest::Length => suite.length().await,
        ProviderTest::Finishes => suite.finishes().await,
        ProviderTest::Broken => suite.broken().await,
        ProviderTest::Errors => suite.errors().await,
        ProviderTest::Drop => suite.drop_closes().await,
        ProviderTest::Conversation => suite.conversation().await,
        ProviderTest::Secrets => suite.secrets().await,
    }
}

/// Makes tests of a provider: `provider_conformance!(name, fixture)`, where `fixture` is an expression of a type that
/// implements [`ProviderFixture`](crate::testing::ProviderFixture). Needs `tokio` with its macros.
#[macro_export]
macro_rules! provider_conformance {
    ($name:ident, $fixture:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use $crate::testing::{ProviderTest, check_provider};

            $crate::provider_conformance! { @tests $fixture;
                text Text, calls Calls, thinking Thinking, media Media, length Length, finishes Finishes, broken Broken, errors Errors, drop Drop,
                conversation Conversation, secrets Secrets
            }
        }
    };
    (@tests $fixture:expr; $($test:ident $variant:ident),*) => {
        $(#[tokio::test]
        async fn $test() {
            check_provider(&$fixture, ProviderTest::$variant).await;
        })*
    };
}

struct Suite<'f> {
    fixture: &'f dyn ProviderFixture,
}

/// What an answer came to.
#[derive(Default)]
struct Answer {
    text: String,
    calls: Vec<Call>,
    usage: Option<TokenUsage>,
    finish: Option<(TurnFinishReason, Option<String>)>,
    error: Option<ProviderError>,
}

#[derive(Default)]
struct Call {
    block: u32,
    id: String,
    name: String,
    arguments: String,
    complete: bool,
}

impl Call {
    fn value(&self) -> Value {
        if self.arguments.trim().is_empty() {
            return json!({});
        }
        serde_json::from_str(&self.arguments).expect("the arguments are JSON")
    }
}

fn echo_definition() -> ToolDefinition {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    ToolDefinition::new("echo", "Gives its input back", schema)
}

impl Suite<'_> {
    fn says(&self, saying: Saying) -> Option<HttpReply> {
        let reply = self.fixture.reply(saying);
        if reply.is_none() {
            eprintln!("passed over: this API has no way to say {saying:?}");
        }
        reply
    }

    fn request(&self) -> Arc<ModelRequest> {
        let prompt = vec![SessionContentBlock::text("Hi")];
        let history = History::from_iter([SessionTurn::new("1", Role::User, TurnOrigin::Prompt, prompt)]);
        let head = RequestHead {
            model: self.fixture.model().to_owned(),
            tools: Arc::from([echo_definition()]),
            ..RequestHead::default()
        };
        Arc::new(ModelRequest::new(head, history))
    }

    /// An agent with the `echo` tool.
    fn agent(&self, server: &SseServer) -> Agent {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let echo = tool_fn_value("echo", "Gives its input back", schema, |input: Value, _cx| async move { Ok(input) });
        Agent::builder()
            .provider(self.fixture.provider(&server.url()))
            .model(self.fixture.model())
            .retry(RetryPolicy::never())
            .tool(echo)
            .build()
            .expect("an agent")
    }

    async fn answer_to(&self, reply: HttpReply) -> Answer {
        let server = SseServer::start([reply]).await.expect("a loopback server");
        let provider = self.fixture.provider(&server.url());
        let asked = async {
            let mut answer = Answer::default();
            let mut events = match provider.stream(self.request(), &RequestContext::default()).await {
                Ok(events) => events,
                Err(error) => return Answer { error: Some(error), ..answer },
            };
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => take(&mut answer, event),
                    Err(error) => answer.error = Some(error),
                }
            }
            answer
        };
        tokio::time::timeout(Duration::from_secs(20), asked).await.expect("the answer ends")
    }

    async fn answer(&self, saying: Saying) -> Option<Answer> {
        Some(self.answer_to(self.says(saying)?).await)
    }

    async fn text(&self) {
        let Some(reply) = self.says(Saying::Text) else { panic!("every API says text") };
        for reply in [reply.clone(), reply.recut(1)] {
            let answer = self.answer_to(reply).await;
            assert_eq!(answer.error, None);
            assert_eq!(answer.text, "Hello, wörld 🌍");
            assert_eq!(answer.finish.expect("an end").0, TurnFinishReason::Stop);
            let usage = answer.usage.expect("usage");
            assert_eq!((usage.input, usage.output, usage.cache_read, usage.cache_write), (7, 9, 0, 0));
        }
    }

    async fn calls(&self) {
        if let Some(answer) = self.answer(Saying::Call).await {
            assert_eq!(answer.error, None);
            assert_eq!(answer.text, "Let me.");
            assert_eq!(answer.finish.expect("an end").0, TurnFinishReason::ToolCalls);
            let [call] = &answer.calls[..] else { panic!("one call, not {}", answer.calls.len()) };
            assert_eq!((call.id.as_str(), call.name.as_str(), call.complete), ("call-1", "echo", true));
            assert_eq!(call.value(), json!({"n": 1}));
        }
        if let Some(answer) = self.answer(Saying::TwoCalls).await {
            let [one, two] = &answer.calls[..] else { panic!("two calls, not {}", answer.calls.len()) };
            assert_eq!((one.value(), two.value()), (json!({"n": 1}), json!({"n": 2})));
            assert!(one.complete && two.complete);
            assert!(one.id != two.id || one.id.is_empty(), "both calls are {}", one.id);
        }
        if let Some(answer) = self.answer(Saying::EmptyCall).await {
            let [call] = &answer.calls[..] else { panic!("one call, not {}", answer.calls.len()) };
            assert_eq!(call.value(), json!({}));
            assert!(call.complete);
        }
    }

    async fn thinking(&self) {
        let (Some(thinking), Some(text)) = (self.says(Saying::Thinking), self.says(Saying::Text)) else { return };
        let server = SseServer::start([thinking, text.clone(), text]).await.expect("a loopback server");
        let agent = self.agent(&server);
        let outcome = agent.run("Hi").await.expect("the run succeeds");
        assert_eq!(outcome.text, "Done.");
        let mut blocks = outcome.turns.iter().flat_map(|turn| &turn.content);
        let thought = blocks.find_map(|block| match block {
            SessionContentBlock::Thinking(thinking) => Some(thinking.text.as_str()),
            _ => None,
        });
        assert_eq!(thought, Some("Hm."));
        agent.run("And?").await.expect("the run succeeds");
        // As if somebody else had made it.
        let mut turns: Vec<_> = agent.history().iter().cloned().collect();
        for block in turns.iter_mut().flat_map(|turn| &mut turn.content) {
            let signature = match block {
                SessionContentBlock::Thinking(thinking) => thinking.signature.as_mut(),
                SessionContentBlock::Text(text) => text.signature.as_mut(),
                _ => None,
            };
            if let Some(signature) = signature {
                signature.producer = SignatureProducer::new("somebody-else");
            }
        }
        turns.push(SessionTurn::new("last", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("On.")]));
        self.send(&server, turns).await.expect("the answer begins");
        let sent: Vec<_> = server.requests().iter().map(|request| holds(&request.body, "conformance-state")).collect();
        assert_eq!(sent, [false, true, false], "the state is in the wrong requests");
    }

    async fn media(&self) {
        let png = Media::bytes("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x0a\0\0\0\x0a conformance");
        let pdf = Document::pdf("a.pdf", b"%PDF-1.7 conformance");
        for block in [SessionContentBlock::Image(png), SessionContentBlock::Document(pdf)] {
            let data = match &block {
                SessionContentBlock::Image(Media { source: MediaSource::Data(data), .. })
                | SessionContentBlock::Document(Document {
                    media: Media { source: MediaSource::Data(data), .. },
                    ..
                }) => data.clone(),
                _ => continue,
            };
            let Some(text) = self.says(Saying::Text) else { return };
            let server = SseServer::start([text.clone(), text]).await.expect("a loopback server");
            let user = |content| SessionTurn::new("u", Role::User, TurnOrigin::Prompt, content);
            let content = vec![SessionContentBlock::text("Look"), block];
            let provider = self.fixture.provider(&server.url());
            match provider.check(self.fixture.model(), &content) {
                Ok(()) => {
                    self.send(&server, vec![user(content)]).await.expect("the answer begins");
                    let request = server.requests().pop().expect("a request");
                    assert!(holds(&request.body, &data), "a part is lost on the way");
                }
                Err(error) => {
                    assert_eq!(error.kind, ProviderErrorKind::Unsupported, "{error}");
                    assert!(error.message.contains('1'), "the error does not name the part: {error}");
                    let more = user(vec![SessionContentBlock::text("Go on")]);
                    let sent = self.send(&server, vec![user(content), more]).await;
                    sent.expect("what is in the history already stops no request");
                }
            }
        }
    }

    /// Sends a conversation.
    async fn send(&self, server: &SseServer, turns: Vec<SessionTurn>) -> Result<(), ProviderError> {
        let head = RequestHead { model: self.fixture.model().to_owned(), ..RequestHead::default() };
        let request = Arc::new(ModelRequest::new(head, turns.into_iter().collect()));
        self.fixture.provider(&server.url()).stream(request, &RequestContext::default()).await.map(drop)
    }

    async fn length(&self) {
        if let Some(answer) = self.answer(Saying::Length).await {
            assert_eq!(answer.finish.expect("an end").0, TurnFinishReason::Length);
            assert_eq!(answer.text, "Half");
        }
        if let Some(reply) = self.says(Saying::CutCall) {
            let server = SseServer::start([reply]).await.expect("a loopback server");
            let outcome = self.agent(&server).run("Hi").await.expect("the run succeeds");
            assert_eq!(outcome.stop, StopCause::Length);
            // Whether the API ended the call or not: nothing of it runs, and what stands is answered.
            let calls = outcome.turns.iter().flat_map(|turn| turn.tool_calls()).count();
            let results: Vec<_> = outcome.turns.iter().flat_map(|turn| turn.tool_results()).collect();
            assert_eq!(results.len(), calls);
            assert!(results.iter().all(|result| result.status == ToolStatus::NotStarted), "a cut call ran");
        }
    }

    async fn finishes(&self) {
        if let Some(answer) = self.answer(Saying::Refusal).await {
            assert_eq!(answer.finish.expect("an end").0, TurnFinishReason::ContentFilter);
        }
        if let Some(answer) = self.answer(Saying::UnknownFinish).await {
            let (reason, raw) = answer.finish.expect("an end");
            assert_eq!(reason, TurnFinishReason::Other);
            assert!(raw.is_some(), "the provider's word is kept");
        }
        if let Some(answer) = self.answer(Saying::UnknownEvent).await {
            assert_eq!(answer.error, None);
            assert_eq!(answer.text, "Hello");
        }
    }

    async fn broken(&self) {
        if let Some(answer) = self.answer(Saying::Truncated).await {
            let error = answer.error.expect("an error");
            assert_eq!(error.kind, ProviderErrorKind::TruncatedStream, "{error}");
            assert!(error.is_retryable());
            assert_eq!(answer.text, "Half", "what had come is lost");
        }
        if let Some(answer) = self.answer(Saying::OverloadedInStream).await {
            let error = answer.error.expect("an error");
            assert!(error.is_retryable(), "{error}");
            assert_eq!(answer.text, "Half", "what had come is lost");
        }
    }

    async fn errors(&self) {
        for (saying, kinds, retryable) in [
            (Saying::Unauthorized, &[ProviderErrorKind::Auth][..], false),
            (Saying::NoSuchModel, &[ProviderErrorKind::Invalid], false),
            (Saying::RateLimited, &[ProviderErrorKind::RateLimited], true),
            (Saying::Overloaded, &[ProviderErrorKind::Overloaded, ProviderErrorKind::Server], true),
            (Saying::ContextOverflow, &[ProviderErrorKind::ContextOverflow], false),
        ] {
            let Some(answer) = self.answer(saying).await else { continue };
            let error = answer.error.expect("an error");
            assert!(kinds.contains(&error.kind), "{saying:?}: {error}");
            assert_eq!(error.is_retryable(), retryable, "{saying:?}: {error}");
            if saying == Saying::RateLimited {
                assert_eq!(error.retry_after, Some(Duration::from_secs(3)));
            }
        }
    }

    async fn drop_closes(&self) {
        let Some(reply) = self.says(Saying::Truncated) else { return };
        let server = SseServer::start([reply.end(HttpEnd::Stall)]).await.expect("a loopback server");
        let provider = self.fixture.provider(&server.url());
        let mut events = provider.stream(self.request(), &RequestContext::default()).await.expect("the answer begins");
        while let Some(Ok(event)) = events.next().await {
            if matches!(event, StreamEvent::Text { .. }) {
                break;
            }
        }
        assert!(server.open_connections() > 0);
        drop(events);
        let closed = tokio::time::timeout(Duration::from_secs(10), server.wait_for_connections(0)).await;
        assert!(closed.is_ok(), "the connection stays open");
    }

    async fn conversation(&self) {
        let (Some(call), Some(text)) = (self.says(Saying::Call), self.says(Saying::Text)) else { return };
        let server = SseServer::start([call.clone(), call, text]).await.expect("a loopback server");
        let agent = self.agent(&server);
        let outcome = agent.run("Hi").await.expect("the run succeeds");
        assert_eq!(outcome.stop, StopCause::Stop);
        assert_eq!(outcome.stats.turns, 3);
        let results: Vec<_> = outcome.turns.iter().flat_map(|turn| turn.tool_results()).collect();
        assert!(results.iter().all(|result| result.status == ToolStatus::Ok));
        assert_eq!(tool_result_to_text(&results.first().expect("a result").output), "{\"n\":1}");
        let bodies: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
        for pair in bodies.windows(2) {
            let [one, two] = pair else { continue };
            let shared = one.iter().zip(two.iter()).take_while(|(a, b)| a == b).count();
            let tail = one.len().saturating_sub(shared);
            // What follows the conversation in a body may differ; the conversation may not.
            assert!(tail <= 256, "a request does not begin with the one before it: {tail} bytes differ");
        }
    }

    async fn secrets(&self) {
        let provider = self.fixture.provider("http://127.0.0.1:1");
        let failed = provider.stream(self.request(), &RequestContext::default()).await;
        let error = failed.expect_err("nobody listens there");
        assert_eq!(error.kind, ProviderErrorKind::Transport, "{error}");
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(!text.contains("conformance-key"), "the key leaks: {text}");
        }
        if let Some(answer) = self.answer(Saying::Unauthorized).await {
            assert!(!format!("{:?}", answer.error).contains("conformance-key"), "the key leaks");
        }
    }
}

fn holds(body: &[u8], text: &str) -> bool {
    memchr::memmem::find(body, text.as_bytes()).is_some()
}

fn take(answer: &mut Answer, event: StreamEvent) {
    match event {
        StreamEvent::Text { delta, .. } => answer.text.push_str(&delta),
        StreamEvent::ToolCallStart { block, id, name } => {
            match answer.calls.iter_mut().find(|call| call.block == block) {
                None => answer.calls.push(Call { block, id, name, ..Call::default() }),
                Some(call) => {
                    if !id.is_empty() {
                        call.id = id;
                    }
                    if !name.is_empty() {
                        call.name = name;
                    }
                }
            }
        }
        StreamEvent::ToolCallDelta { block, delta } => {
            if let Some(call) = answer.calls.iter_mut().find(|call| call.block == block) {
                call.arguments.push_str(&delta);
            }
        }
        StreamEvent::ToolCallEnd { block } => {
            if let Some(call) = answer.calls.iter_mut().find(|call| call.block == block) {
                call.complete = true;
            }
        }
        StreamEvent::Usage(usage) => answer.usage = Some(usage.tokens),
        StreamEvent::Finish { reason, raw } => answer.finish = Some((reason, raw)),
        _ => {}
    }
}

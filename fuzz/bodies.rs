//! What the fuzz targets do with their bytes. `tests/fuzz_corpus.rs` does the same with the stored ones.
#![allow(dead_code, reason = "each target uses its own")]

use bytes::Bytes;
use futures::StreamExt as _;
use futures::executor::block_on;
use serde_json::{Value, json};
use zidane::provider::openai_chat::{ChatProfile, OpenAiChat};
use zidane::provider::openai_responses::{OpenAi, ResponsesProfile};
use zidane::provider::sse::SseFramer;
use zidane::provider::{Anthropic, Gemini, ProviderError, ProviderStream, RawResponse, StreamEvent};
use zidane::session::{SessionEntry, StoredSession, fold};
use zidane::testing::validate_transcript;
use zidane::tool::{NoInput, tool_fn_value};

const LIMIT: usize = 64 * 1024;

/// The body in pieces: its first byte says how long they are.
fn pieces(data: &[u8]) -> (Vec<Bytes>, Vec<u8>) {
    let (size, body) = data.split_first().map_or((1, data), |(size, body)| (usize::from(*size).max(1), body));
    (body.chunks(size).map(Bytes::copy_from_slice).collect(), body.to_vec())
}

/// Events are the same however the bytes are cut.
pub(crate) fn sse(data: &[u8]) {
    let read = |pieces: Vec<Bytes>| {
        let (mut framer, mut out) = (SseFramer::with_limit(LIMIT), Vec::new());
        for piece in pieces {
            framer.feed(piece);
            loop {
                match framer.next_event() {
                    Ok(Some(event)) => out.push((event.name.to_vec(), event.data.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (out, Some(error.to_string())),
                }
            }
        }
        out.extend(framer.finish().map(|event| (event.name.to_vec(), event.data.to_vec())));
        (out, None)
    };
    let (cut, whole) = pieces(data);
    let whole = read(vec![Bytes::from(whole)]);
    let cut = read(cut);
    assert_eq!(cut.0, whole.0);
    assert_eq!(cut.1.is_some(), whole.1.is_some());
}

type Read = (Vec<StreamEvent>, Option<ProviderError>);

fn drain(stream: Result<ProviderStream, ProviderError>) -> Read {
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut events = Vec::new();
    while let Some(event) = block_on(stream.next()) {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

fn wire(data: &[u8], decode: impl Fn(RawResponse) -> Result<ProviderStream, ProviderError>) {
    let (cut, whole) = pieces(data);
    let read = |pieces| drain(decode(RawResponse::recorded(200, Vec::new(), pieces)));
    let (events, error) = read(cut);
    let finished = matches!(events.last(), Some(StreamEvent::Finish { .. }));
    assert!(finished || error.is_some(), "neither an end nor an error");
    assert!(!finished || error.is_none(), "an end and an error");
    let again = read(vec![Bytes::from(whole.clone())]);
    assert_eq!(matches!(again.0.last(), Some(StreamEvent::Finish { .. })), finished, "where it is cut must not matter");
    let (_, error) = drain(decode(RawResponse::recorded(429, Vec::new(), [Bytes::from(whole)])));
    assert!(error.is_some(), "a failed request is an error");
}

pub(crate) fn anthropic(data: &[u8]) {
    let provider = Anthropic::builder().base_url("http://127.0.0.1:9").api_key("test").build().unwrap();
    wire(data, |response| provider.decode("claude-test", response));
}

pub(crate) fn chat(data: &[u8]) {
    let profile = ChatProfile::custom("http://127.0.0.1:9/v1".to_owned());
    let provider = OpenAiChat::builder().profile(profile).api_key("test").build().unwrap();
    wire(data, |response| provider.decode("gpt-test", response));
}

pub(crate) fn responses(data: &[u8]) {
    let profile = ResponsesProfile::custom("http://127.0.0.1:9/v1".to_owned());
    let provider = OpenAi::builder().profile(profile).api_key("test").build().unwrap();
    wire(data, |response| provider.decode("gpt-test", response));
}

pub(crate) fn gemini(data: &[u8]) {
    let provider = Gemini::builder().base_url("http://127.0.0.1:9").api_key("test").build().unwrap();
    wire(data, |response| provider.decode("gemini-test", response));
}

/// Entries, one JSON object a line: what can be read folds, comes back the same, and can be forked anywhere.
pub(crate) fn session(data: &[u8]) {
    let entries: Vec<SessionEntry> =
        data.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    for entry in &entries {
        let text = serde_json::to_vec(entry).unwrap();
        let back: SessionEntry = serde_json::from_slice(&text).unwrap();
        assert!(entry.same_content(&back), "{entry:?}");
    }
    let session = fold("fuzz", StoredSession::new(entries));
    let _ = session.history();
    let _ = validate_transcript(session.turns.iter().map(|turn| &***turn));
    for turn in &session.turns {
        let entries = session.fork(&turn.id).unwrap();
        let _ = fold("fork", StoredSession::new(entries));
    }
}

/// A schema on the first line, arguments on the rest: a tool that can be built checks them to an end.
pub(crate) fn arguments(data: &[u8]) {
    let mut halves = data.splitn(2, |byte| *byte == b'\n');
    let (Some(schema), Some(arguments)) = (halves.next(), halves.next()) else { return };
    let Ok(schema) = serde_json::from_slice::<Value>(schema) else { return };
    let Ok(arguments) = std::str::from_utf8(arguments) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let model = zidane::testing::ScriptedProvider::new([
        zidane::testing::Reply::empty().raw_call(Some("c"), "look", arguments),
        zidane::testing::Reply::text("Done."),
    ]);
    let tool = tool_fn_value("look", "Looks", schema, |input: Value, _| async move { Ok(json!(input).to_string()) });
    let Ok(agent) = zidane::Agent::builder().provider(model).model("any").tool(tool).build() else { return };
    let outcome = runtime.block_on(agent.run("Go")).unwrap();
    let answered: usize = outcome.turns.iter().map(|turn| turn.tool_results().count()).sum();
    assert_eq!(answered, 1);
    let _ = NoInput::default();
}

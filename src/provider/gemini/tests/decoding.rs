use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, stream};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::super::names::{NameRule, NameTable};
use super::super::super::wire::{Decoder as _, Events};
use super::super::super::{
    Gemini, ProviderError, ProviderErrorKind, RawResponse, RequestHead, StreamEvent, ToolDefinition,
};
use super::super::Wire;
use super::super::stream::ContentDecoder;
use crate::types::{SignatureProducer, TurnFinishReason};

type Read = (Vec<StreamEvent>, Option<ProviderError>);

fn read(response: RawResponse) -> Read {
    let stream = Gemini::new("key").unwrap().decode("gemini-3.8-flash", response).unwrap();
    let mut items: Vec<_> = stream.collect().now_or_never().unwrap();
    let error = items.pop_if(|item| item.is_err()).and_then(Result::err);
    (items.into_iter().map(Result::unwrap).collect(), error)
}

/// The events of one body, cut in several ways, and the error that ended it.
fn decode(body: &[u8]) -> Read {
    let run = |size: usize| {
        let chunks: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        read(RawResponse::recorded(200, Vec::new(), chunks))
    };
    let whole = run(body.len().max(1));
    for size in [1, 13] {
        let (events, error) = run(size);
        assert_eq!(events, whole.0);
        assert_eq!(error.map(|error| error.to_string()), whole.1.as_ref().map(ToString::to_string));
    }
    whole
}

fn sse(chunks: &[Value]) -> Vec<u8> {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect::<String>().into_bytes()
}

fn says(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 1}, "modelVersion": "m-001", "responseId": "r"})
}

fn ends(parts: Value, reason: &str) -> Value {
    let mut chunk = says(parts);
    chunk["candidates"][0]["finishReason"] = reason.into();
    chunk
}

/// Everything but `Start` and `Usage`.
fn content(read: &Read) -> Vec<StreamEvent> {
    let beside = |event: &&StreamEvent| !matches!(event, StreamEvent::Start { .. } | StreamEvent::Usage(_));
    read.0.iter().filter(beside).cloned().collect()
}

fn text(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Text { block, delta: delta.into() }
}

fn thought(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Thinking { block, delta: delta.into() }
}

fn signature(block: u32, value: &str) -> StreamEvent {
    StreamEvent::Signature { block, producer: SignatureProducer::GEMINI, value: value.into() }
}

fn call(block: u32, id: &str, name: &str) -> StreamEvent {
    StreamEvent::ToolCallStart { block, id: id.into(), name: name.into() }
}

fn arguments(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::ToolCallDelta { block, delta: delta.into() }
}

fn called(block: u32) -> StreamEvent {
    StreamEvent::ToolCallEnd { block }
}

fn opaque(block: u32, value: Value) -> StreamEvent {
    StreamEvent::Opaque { block, producer: SignatureProducer::GEMINI, value }
}

fn finish(reason: TurnFinishReason, raw: &str) -> StreamEvent {
    StreamEvent::Finish { reason, raw: Some(raw.into()) }
}

#[test]
fn thoughts_text_and_a_signed_empty_end_are_blocks_of_their_own() {
    let body = sse(&[
        says(json!([{"text": "hm", "thought": true}])),
        says(json!([{"text": " hm", "thought": true}])),
        says(json!([{"text": "Hel"}])),
        says(json!([{"text": "lo \u{1F30D}\n"}])),
        ends(json!([{"text": "", "thoughtSignature": "sig=="}]), "STOP"),
    ]);
    let read = decode(&body);
    assert!(read.1.is_none());
    let expected = [
        thought(0, "hm"),
        thought(0, " hm"),
        text(1, "Hel"),
        text(1, "lo \u{1F30D}\n"),
        signature(2, "sig=="),
        finish(TurnFinishReason::Stop, "STOP"),
    ];
    assert_eq!(content(&read), expected);
    let start = StreamEvent::Start { model: Some("m-001".into()), response_id: Some("r".into()) };
    assert_eq!(read.0.first(), Some(&start));
    assert_eq!(read.0.iter().filter(|event| matches!(event, StreamEvent::Usage(_))).count(), 5);
}

#[test]
fn signed_and_unsigned_text_are_never_joined() {
    let parts = json!([
        {"text": "a"}, {"text": "b", "thoughtSignature": "s1"}, {"text": "c"}, {"text": ""},
        {"text": "d"}, {"text": "t", "thought": true, "thoughtSignature": "s2"}, {"thoughtSignature": "s3"}, {},
    ]);
    let read = decode(&sse(&[ends(parts, "STOP")]));
    let expected = [
        text(0, "a"),
        text(1, "b"),
        signature(1, "s1"),
        text(2, "c"),
        text(2, "d"),
        thought(3, "t"),
        signature(3, "s2"),
        signature(4, "s3"),
        finish(TurnFinishReason::Stop, "STOP"),
    ];
    assert_eq!(content(&read), expected);
}

#[test]
fn parallel_calls_keep_their_order_ids_and_the_one_signature() {
    let body = sse(&[
        says(json!([{"functionCall": {"id": "f1", "name": "get", "args": {"a": [1, "x"]}}, "thoughtSignature": "s"}])),
        says(json!([{"functionCall": {"name": "get", "args": {}}}, {"functionCall": {"name": "put", "args": null}}])),
        ends(json!([{"functionCall": {}}]), "STOP"),
    ]);
    let expected = [
        call(0, "f1", "get"),
        signature(0, "s"),
        arguments(0, r#"{"a":[1,"x"]}"#),
        called(0),
        call(1, "", "get"),
        called(1),
        call(2, "", "put"),
        called(2),
        finish(TurnFinishReason::ToolCalls, "STOP"),
    ];
    assert_eq!(content(&decode(&body)), expected);
}

#[test]
fn streamed_arguments_are_put_together() {
    let piece = |path: &str, value: &str| json!([{"functionCall": {"partialArgs": [{"jsonPath": path, "stringValue": value}], "willContinue": true}}]);
    let start = says(json!([{"functionCall": {"name": "cook", "willContinue": true}, "thoughtSignature": "s"}]));
    let body = [start.clone(), says(piece("$.a[0].b", "x")), says(piece("$.a[0].b", "y")), says(piece("$.c", "z"))];
    let built = arguments(0, r#"{"a":[{"b":"xy"}],"c":"z"}"#);
    for end in [json!([{"functionCall": {}}]), json!([])] {
        let chunks = [&body[..], &[ends(end, "STOP")]].concat();
        let expected = [
            call(0, "", "cook"),
            signature(0, "s"),
            built.clone(),
            called(0),
            finish(TurnFinishReason::ToolCalls, "STOP"),
        ];
        assert_eq!(content(&decode(&sse(&chunks))), expected);
    }
    // The limit cut the call: what came of it is there, and it is not complete.
    let cut = content(&decode(&sse(&[&body[..], &[ends(json!([]), "MAX_TOKENS")]].concat())));
    assert_eq!(cut[2..], [built.clone(), finish(TurnFinishReason::Length, "MAX_TOKENS")]);
    // So is what came before the stream broke off, or failed.
    let error = json!({"error": {"code": 500}});
    for rest in [&[][..], &[error]] {
        let broken = content(&decode(&sse(&[&body[..], rest].concat())));
        assert_eq!(broken[2..], *std::slice::from_ref(&built));
    }
    // Another call begins without an end of the first.
    let second = says(json!([{"functionCall": {"name": "eat", "willContinue": true}}]));
    let two = content(&decode(&sse(&[start, second, ends(json!([]), "STOP")])));
    assert_eq!(two[2..5], [called(0), call(1, "", "eat"), called(1)]);
}

#[test]
fn parts_of_other_kinds_stay_as_they_are_and_in_place() {
    let code = json!({"executableCode": {"id": "c", "language": "PYTHON", "code": "1"}, "thoughtSignature": "s"});
    let future = json!({"hologram": {"depth": 3}});
    let body = sse(&[says(json!([{"text": "a"}, code, {"text": "b"}])), ends(json!([future]), "STOP")]);
    let expected =
        [text(0, "a"), opaque(1, code), text(2, "b"), opaque(3, future), finish(TurnFinishReason::Stop, "STOP")];
    assert_eq!(content(&decode(&body)), expected);
}

#[test]
fn nothing_said_and_nothing_sent_are_read() {
    use TurnFinishReason as R;
    for (candidate, expected) in [
        (json!({"finishReason": "RECITATION", "index": 0}), R::ContentFilter),
        (json!({"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}), R::Error),
        (json!({"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}), R::Length),
        (json!({"content": {"parts": []}, "finishReason": "STOP"}), R::Stop),
        (json!({"content": null, "finishReason": 1}), R::Stop),
        (json!({"finishReason": "BRAND_NEW"}), R::Other),
    ] {
        let read = decode(&sse(&[json!({"candidates": [candidate]})]));
        assert!(matches!(&content(&read)[..], [StreamEvent::Finish { reason, .. }] if *reason == expected), "{read:?}");
    }
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 12}});
    let read = decode(&sse(std::slice::from_ref(&blocked)));
    assert_eq!(content(&read), [finish(R::ContentFilter, "SAFETY")]);
    assert!(matches!(read.0.first(), Some(StreamEvent::Usage(usage)) if usage.tokens.input == 12));
    assert_eq!(content(&decode(blocked.to_string().as_bytes())), [finish(R::ContentFilter, "SAFETY")]);
}

#[test]
fn a_call_that_the_api_reports_as_broken_is_not_given() {
    let broken = json!([{"functionCall": {"name": "made_up", "args": {}}}]);
    let read = decode(&sse(&[ends(broken, "UNEXPECTED_TOOL_CALL")]));
    assert_eq!(content(&read), [finish(TurnFinishReason::Error, "UNEXPECTED_TOOL_CALL")]);
    let (_, error) = decode(&sse(&[ends(json!([]), "MISSING_THOUGHT_SIGNATURE")]));
    let error = error.unwrap();
    assert!(!error.is_retryable());
    assert_eq!((error.kind, error.code.as_deref()), (ProviderErrorKind::Invalid, Some("MISSING_THOUGHT_SIGNATURE")));
}

#[test]
fn a_long_answer_pauses_with_its_token() {
    let mut chunk = ends(json!([{"text": "part"}]), "CONTINUATION");
    chunk["candidates"][0]["continuationToken"] = "tok".into();
    let expected = [
        text(0, "part"),
        opaque(1, json!({"continuationToken": "tok"})),
        finish(TurnFinishReason::Pause, "CONTINUATION"),
    ];
    assert_eq!(content(&decode(&sse(&[chunk.clone()]))), expected);
    // At the limit of all hops there is a token too, which nobody asked for.
    chunk["candidates"][0]["finishReason"] = "MAX_TOKENS".into();
    assert_eq!(content(&decode(&sse(&[chunk]))).len(), 2);
}

#[test]
fn only_the_first_candidate_counts_and_the_last_reason() {
    let two = json!({"candidates": [
        {"content": {"parts": [{"text": "b"}]}, "index": 1, "finishReason": "SAFETY"},
        {"content": {"parts": [{"text": "a"}]}, "index": 0, "finishReason": "STOP"},
    ]});
    let read = decode(&sse(&[two.clone(), ends(json!([{"text": "c"}]), "MAX_TOKENS")]));
    assert_eq!(content(&read), [text(0, "a"), text(0, "c"), finish(TurnFinishReason::Length, "MAX_TOKENS")]);
    assert_eq!(content(&decode(two.to_string().as_bytes())).len(), 2);
}

#[test]
fn whole_bodies_and_arrays_of_chunks_are_answers() {
    let chunks = [says(json!([{"text": "a"}])), ends(json!([{"text": "b"}]), "STOP")];
    let streamed = content(&decode(&sse(&chunks)));
    let array = format!("[{}\n,\n{}]", chunks[0], chunks[1]);
    assert_eq!(content(&decode(array.as_bytes())), streamed);
    assert_eq!(content(&decode(format!("data: {}\n\n", array.replace('\n', " ")).as_bytes())), streamed);
    let whole = ends(json!([{"text": "a"}, {"text": "b"}]), "STOP");
    assert_eq!(content(&decode(serde_json::to_string_pretty(&whole).unwrap().as_bytes())), streamed);
    let (events, error) = decode(&array.as_bytes()[..array.len() - 20]);
    assert!(events.is_empty() && error.unwrap().kind == ProviderErrorKind::TruncatedStream);
}

#[test]
fn an_answer_without_a_reason_was_cut() {
    let start = sse(&[says(json!([{"text": "a"}]))]);
    for tail in ["", "data: {\"candidates\": [{\"conte", "\n\n"] {
        let read = decode(&[&start[..], tail.as_bytes()].concat());
        assert_eq!(content(&read), [text(0, "a")]);
        assert_eq!(read.1.unwrap().kind, ProviderErrorKind::TruncatedStream);
    }
    let usage_only = sse(&[json!({"usageMetadata": {"trafficType": "ON_DEMAND"}})]);
    assert_eq!(decode(&usage_only).1.unwrap().kind, ProviderErrorKind::TruncatedStream);
    assert_eq!(decode(b"{\"hello\": 1}").1.unwrap().kind, ProviderErrorKind::Protocol);
    assert_eq!(decode(b"[]").1.unwrap().kind, ProviderErrorKind::Protocol);
}

#[test]
fn what_follows_the_end_cannot_fail_it_but_an_error_can() {
    let end = sse(&[ends(json!([{"text": "a"}]), "STOP")]);
    for tail in ["data: {\"candi\n\n", "data: garbage\n\n", "data: [DONE]\n\n", "data: {\"half\": "] {
        let read = decode(&[&end[..], tail.as_bytes()].concat());
        assert!(read.1.is_none(), "{tail}: {read:?}");
        assert_eq!(content(&read), [text(0, "a"), finish(TurnFinishReason::Stop, "STOP")]);
    }
    // The connection broke after the end: the answer is whole.
    let lost = ProviderError::new(ProviderErrorKind::Transport, "gemini", "reset");
    let chunks = stream::iter([Ok(Bytes::from(end.clone())), Err(lost.clone())]).boxed();
    let read_lost = read(RawResponse { status: 200, headers: Default::default(), body: chunks });
    assert!(read_lost.1.is_none() && matches!(read_lost.0.last(), Some(StreamEvent::Finish { .. })));
    let start = Bytes::from(sse(&[says(json!([{"text": "a"}]))]));
    let chunks = stream::iter([Ok(start), Err(lost)]).boxed();
    let kind = read(RawResponse { status: 200, headers: Default::default(), body: chunks }).1.unwrap().kind;
    assert_eq!(kind, ProviderErrorKind::Transport);
    // Some chunks of a failing answer have a reason as well.
    let error = "{\n  \"error\": {\"code\": 503, \"message\": \"m\", \"status\": \"UNAVAILABLE\"}\n}\n";
    for tail in [error.to_owned(), format!("data: {}\n\n", error.replace('\n', " "))] {
        let (_, error) = decode(&[&end[..], tail.as_bytes()].concat());
        let error = error.unwrap();
        assert_eq!((error.kind, error.status), (ProviderErrorKind::Overloaded, Some(503)));
    }
}

#[test]
fn refusals_are_errors_whatever_their_label() {
    let body = r#"[{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "53s"}]}}]"#;
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let (_, error) = read(RawResponse::recorded(429, headers, [Bytes::from_static(body.as_bytes())]));
    let error = error.unwrap();
    assert_eq!((error.kind, error.retry_after.unwrap().as_secs()), (ProviderErrorKind::RateLimited, 53));
    assert_eq!(decode(body.as_bytes()).1.unwrap().kind, ProviderErrorKind::RateLimited);
}

#[test]
fn a_changed_tool_name_comes_back_as_it_was_declared() {
    let tools = [ToolDefinition::new("1st tool", "", json!({}))].into();
    let head = RequestHead { tools, ..RequestHead::default() };
    let names = NameTable::new(&head, NameRule::GEMINI);
    let wire_name = NameRule::GEMINI.wire_name("1st tool");
    let mut decoder = ContentDecoder::new(Wire::new("gemini"), names);
    let mut out = Events::new();
    let chunk = says(json!([{"functionCall": {"name": wire_name, "args": {}}}])).to_string();
    decoder.event("", &chunk, &mut out).unwrap();
    assert!(out.contains(&call(0, "", "1st tool")), "{out:?}");
}

#[test]
fn odd_fields_do_not_fail_an_answer() {
    let chunk = json!({"candidates": [{"content": {"parts": [{"text": "a"}], "role": 7}, "index": null,
        "finishReason": "STOP", "safetyRatings": "none"}], "usageMetadata": {"promptTokenCount": "x"},
        "modelVersion": null, "new": [1]});
    let read = decode(&sse(&[chunk]));
    assert_eq!(content(&read), [text(0, "a"), finish(TurnFinishReason::Stop, "STOP")]);
    let raw = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\\ud83d\u{c}\"}]},\"finishReason\":\"STOP\"}]}\n\n";
    assert_eq!(content(&decode(raw.as_bytes()))[0], text(0, "a\u{fffd}\u{c}"));
}

#[test]
fn large_arguments_are_read_in_linear_time() {
    let long = "x".repeat(1_000_000);
    let body = sse(&[ends(json!([{"functionCall": {"name": "f", "args": {"a": long}}}]), "STOP")]);
    let started = std::time::Instant::now();
    let chunks: Vec<_> = body.chunks(1_000).map(Bytes::copy_from_slice).collect();
    let (events, error) = read(RawResponse::recorded(200, Vec::new(), chunks));
    assert!(error.is_none() && events.len() > 3);
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

proptest! {
    /// The fast path and the parser agree: the same chunks, spelled so that the fast path never fits.
    #[test]
    fn the_fast_path_changes_nothing(texts in prop::collection::vec(("\\PC{0,8}|\\n|\"", any::<bool>()), 1..12)) {
        let chunk = |text: &str, thought: bool, tokens: usize, pad: &str| {
            let text = Value::from(text);
            let thought = if thought { ",\"thought\": true" } else { "" };
            format!(
                "data: {pad}{{\"candidates\": [{{\"content\": {{\"parts\": [{{\"text\": {text}{thought}}}]}}}}],\
                 \"usageMetadata\": {{\"promptTokenCount\": 3,\"candidatesTokenCount\": {tokens}}}}}\n\n"
            )
        };
        let end = sse(&[ends(json!([]), "STOP")]);
        let body = |padded: bool| {
            let chunks = texts.iter().enumerate().map(|(at, (text, thought))| {
                chunk(text, *thought, at, &" ".repeat(if padded { at + 1 } else { 0 }))
            });
            [chunks.collect::<String>().into_bytes(), end.clone()].concat()
        };
        let plain = decode(&body(false));
        prop_assert!(plain.1.is_none());
        prop_assert_eq!(plain.0, decode(&body(true)).0);
    }

    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200), prefix in prop::sample::select(vec![
        "", "data: ", "data: {\"candidates\":[{\"content\":{\"parts\":[", "[", "{\"candidates\":[",
    ])) {
        let body = [prefix.as_bytes(), &body, b"\n\n"].concat();
        let _ = read(RawResponse::recorded(200, Vec::new(), [Bytes::from(body)]));
    }
}

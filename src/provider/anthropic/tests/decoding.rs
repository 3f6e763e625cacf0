use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::super::names::{NameRule, NameTable};
use super::super::super::wire::{Decoder as _, Events};
use super::super::super::{
    Anthropic, ProviderError, ProviderErrorKind, RawResponse, RequestHead, StreamEvent, ToolDefinition,
};
use super::super::Wire;
use super::super::stream::MessageDecoder;
use crate::types::{NanoUsd, SignatureProducer, TurnFinishReason};

/// The events of one body, cut in several ways, and the error that ended it.
fn decode(body: &[u8]) -> (Vec<StreamEvent>, Option<ProviderError>) {
    let run = |size: usize| {
        let chunks: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let response = RawResponse::recorded(200, Vec::new(), chunks);
        let stream = Anthropic::new("key").unwrap().decode("claude-test", response).unwrap();
        let mut items: Vec<_> = stream.collect().now_or_never().unwrap();
        let error = items.pop_if(|item| item.is_err()).and_then(Result::err);
        (items.into_iter().map(Result::unwrap).collect::<Vec<_>>(), error)
    };
    let whole = run(body.len().max(1));
    for size in [1, 13] {
        let (events, error) = run(size);
        assert_eq!(events, whole.0);
        assert_eq!(error.map(|error| error.to_string()), whole.1.as_ref().map(ToString::to_string));
    }
    whole
}

fn sse(events: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(frame).collect::<String>().into_bytes()
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-test-1", "content": [],
        "stop_reason": null, "usage": {"input_tokens": 10, "output_tokens": 1}}})
}

fn block(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
}

/// Decodes `content` between a start and an end; gives what lies between `Start`, `Usage` and `Finish`.
fn content(content: &[Value], reason: &str) -> (Vec<StreamEvent>, TurnFinishReason) {
    let events = [&[start()], content, &end(reason)].concat();
    let (events, error) = decode(&sse(&events));
    assert!(error.is_none(), "{error:?}");
    let Some(StreamEvent::Finish { reason: class, raw }) = events.last().cloned() else { panic!("no finish") };
    assert_eq!(raw.as_deref(), Some(reason));
    let is_content = |event: &StreamEvent| {
        !matches!(event, StreamEvent::Start { .. } | StreamEvent::Usage(_) | StreamEvent::Finish { .. })
    };
    (events.into_iter().filter(is_content).collect(), class)
}

fn text(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Text { block, delta: delta.into() }
}

fn thinking(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Thinking { block, delta: delta.into() }
}

fn signature(block: u32, value: &str) -> StreamEvent {
    StreamEvent::Signature { block, producer: SignatureProducer::ANTHROPIC, value: value.into() }
}

fn opaque(block: u32, value: Value) -> StreamEvent {
    StreamEvent::Opaque { block, producer: SignatureProducer::ANTHROPIC, value }
}

fn call(block: u32, id: &str, name: &str) -> StreamEvent {
    StreamEvent::ToolCallStart { block, id: id.into(), name: name.into() }
}

fn arguments(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::ToolCallDelta { block, delta: delta.into() }
}

#[test]
fn a_plain_answer() {
    let body = [
        start(),
        block(0, json!({"type": "text", "text": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "text_delta", "text": "Hel"})),
        delta(0, json!({"type": "text_delta", "text": "lo\n\"you\""})),
        stop(0),
    ];
    let (events, error) = decode(&sse(&[&body[..], &end("end_turn")].concat()));
    assert!(error.is_none());
    let StreamEvent::Start { model, response_id } = &events[0] else { panic!("{events:?}") };
    assert_eq!((model.as_deref(), response_id.as_deref()), (Some("claude-test-1"), Some("msg_1")));
    assert_eq!(events[2..4], [text(0, "Hel"), text(0, "lo\n\"you\"")]);
    let StreamEvent::Usage(usage) = &events[4] else { panic!("{events:?}") };
    assert_eq!((usage.tokens.input, usage.tokens.output), (10, 5));
    assert!(matches!(events[5], StreamEvent::Finish { reason: TurnFinishReason::Stop, .. }));
}

#[test]
fn blocks_are_told_apart_by_index_even_when_they_overlap() {
    let (events, class) = content(
        &[
            block(3, json!({"type": "text", "text": ""})),
            block(5, json!({"type": "tool_use", "id": "t1", "name": "a", "input": {}})),
            block(7, json!({"type": "tool_use", "id": "t2", "name": "b", "input": {}})),
            delta(7, json!({"type": "input_json_delta", "partial_json": "{\"b\""})),
            delta(5, json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"})),
            delta(3, json!({"type": "text_delta", "text": "late"})),
            delta(7, json!({"type": "input_json_delta", "partial_json": ":2}"})),
            stop(7),
            stop(3),
            stop(5),
        ],
        "tool_use",
    );
    assert_eq!(class, TurnFinishReason::ToolCalls);
    let expected = [
        call(0, "t1", "a"),
        call(1, "t2", "b"),
        arguments(1, "{\"b\""),
        arguments(0, "{\"a\":1}"),
        text(2, "late"),
        arguments(1, ":2}"),
        StreamEvent::ToolCallEnd { block: 1 },
        StreamEvent::ToolCallEnd { block: 0 },
    ];
    assert_eq!(events, expected);
}

#[test]
fn input_comes_in_deltas_or_whole_or_not_at_all() {
    let caller = json!({"type": "code_execution_20250825", "tool_id": "srv_1"});
    let (events, _) = content(
        &[
            block(0, json!({"type": "tool_use", "id": "t0", "name": "f", "input": {"a": 1}, "caller": caller})),
            stop(0),
            block(1, json!({"type": "tool_use", "id": "t1", "name": "f", "input": {}, "caller": {"type": "direct"}})),
            delta(1, json!({"type": "input_json_delta", "partial_json": ""})),
            stop(1),
            block(2, json!({"type": "tool_use", "id": "t2", "name": "f", "input": {"preview": 1}})),
            delta(2, json!({"type": "input_json_delta", "partial_json": "{\"real\":1}"})),
        ],
        "tool_use",
    );
    let expected = [
        call(0, "t0", "f"),
        signature(0, &format!("{{\"caller\":{caller}}}")),
        arguments(0, "{\"a\":1}"),
        StreamEvent::ToolCallEnd { block: 0 },
        call(1, "t1", "f"),
        StreamEvent::ToolCallEnd { block: 1 },
        call(2, "t2", "f"),
        arguments(2, "{\"real\":1}"),
        // Nobody ended it, but the message ended well.
        StreamEvent::ToolCallEnd { block: 2 },
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_message_may_be_whole_in_its_start() {
    let message = json!({"id": "m", "model": "c", "stop_reason": "tool_use", "usage": {"input_tokens": 0},
        "content": [{"type": "tool_use", "id": "t", "name": "roll", "input": {"n": 2}}]});
    let body = sse(&[json!({"type": "message_start", "message": message}), json!({"type": "message_stop"})]);
    let (events, error) = decode(&body);
    assert!(error.is_none());
    assert_eq!(events[2..5], [call(0, "t", "roll"), arguments(0, "{\"n\":2}"), StreamEvent::ToolCallEnd { block: 0 }]);
    assert!(matches!(events[5], StreamEvent::Finish { reason: TurnFinishReason::ToolCalls, .. }));
}

#[test]
fn reasoning_keeps_its_blocks_and_signatures() {
    let (events, _) = content(
        &[
            block(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(0, json!({"type": "thinking_delta", "thinking": "alpha"})),
            delta(0, json!({"type": "signature_delta", "signature": "SIG-1"})),
            stop(0),
            block(1, json!({"type": "redacted_thinking", "data": "DATA"})),
            stop(1),
            block(2, json!({"type": "thinking", "thinking": "", "signature": ""})),
            delta(2, json!({"type": "signature_delta", "signature": "SIG-2"})),
            stop(2),
            block(3, json!({"type": "thinking", "thinking": "whole", "signature": "SIG-3"})),
            stop(3),
        ],
        "end_turn",
    );
    let redacted =
        StreamEvent::RedactedThinking { block: 1, producer: SignatureProducer::ANTHROPIC, data: "DATA".into() };
    let expected = [
        thinking(0, ""),
        thinking(0, "alpha"),
        signature(0, "SIG-1"),
        redacted,
        thinking(2, ""),
        signature(2, "SIG-2"),
        thinking(3, "whole"),
        signature(3, "SIG-3"),
    ];
    assert_eq!(events, expected);
}

#[test]
fn the_providers_own_blocks_stay_whole_and_in_place() {
    let result =
        json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "E"}]});
    let (events, class) = content(
        &[
            block(0, json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}})),
            delta(0, json!({"type": "input_json_delta", "partial_json": ""})),
            delta(0, json!({"type": "input_json_delta", "partial_json": "{\"q\": \"a"})),
            delta(0, json!({"type": "input_json_delta", "partial_json": "b\"}"})),
            stop(0),
            block(1, result.clone()),
            stop(1),
            block(2, json!({"type": "compaction", "content": null})),
            delta(2, json!({"type": "compaction_delta", "content": "sum", "signature": "S"})),
            stop(2),
            block(3, json!({"type": "hologram", "text": {"not": "a string"}})),
            delta(3, json!({"type": "hologram_delta", "light": 1})),
            stop(3),
            block(4, json!({"type": "server_tool_use", "id": "s2", "name": "x", "input": {"kept": true}})),
            stop(4),
        ],
        "pause_turn",
    );
    assert_eq!(class, TurnFinishReason::Pause);
    let expected = [
        opaque(0, json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "ab"}})),
        opaque(1, result),
        opaque(2, json!({"type": "compaction", "content": "sum", "signature": "S"})),
        opaque(3, json!({"type": "hologram", "text": {"not": "a string"}, "light": 1})),
        opaque(4, json!({"type": "server_tool_use", "id": "s2", "name": "x", "input": {"kept": true}})),
    ];
    assert_eq!(events, expected);
}

#[test]
fn citations_stand_beside_their_text() {
    let citation = json!({"type": "web_search_result_location", "url": "u", "encrypted_index": "E"});
    let (events, _) = content(
        &[
            block(0, json!({"type": "text", "text": "", "citations": null})),
            stop(0),
            block(1, json!({"type": "text", "text": "", "citations": []})),
            delta(1, json!({"type": "citations_delta", "citation": citation})),
            delta(1, json!({"type": "text_delta", "text": "cited"})),
            stop(1),
        ],
        "end_turn",
    );
    assert_eq!(events, [text(0, "cited"), signature(0, &format!("[{citation}]"))]);
}

#[test]
fn an_error_event_is_that_error_and_ends_the_answer() {
    let head = [
        start(),
        block(0, json!({"type": "text", "text": "Let me "})),
        stop(0),
        block(1, json!({"type": "tool_use", "id": "t", "name": "rm", "input": {}})),
        delta(1, json!({"type": "input_json_delta", "partial_json": "{\"path\":"})),
    ];
    for (error, kind, retryable) in [
        (json!({"type": "overloaded_error", "message": "Overloaded"}), ProviderErrorKind::Overloaded, true),
        (json!({"type": "invalid_request_error", "message": "no"}), ProviderErrorKind::Invalid, false),
        (json!({"type": "brand_new_error", "message": "?"}), ProviderErrorKind::Server, true),
    ] {
        let body = [&head[..], &[json!({"type": "error", "error": error, "request_id": "r1"})]].concat();
        let (events, failed) = decode(&sse(&body));
        let failed = failed.unwrap();
        assert_eq!((failed.kind, failed.is_retryable()), (kind, retryable));
        assert_eq!(failed.request_id.as_deref(), Some("r1"));
        assert!(events.contains(&text(0, "Let me ")));
        let ended = |event: &StreamEvent| matches!(event, StreamEvent::ToolCallEnd { .. } | StreamEvent::Finish { .. });
        assert!(!events.iter().any(ended));
    }
    for stray in
        ["data: {\"error\":{\"message\":\"boom\",\"code\":503}}\n\n", "error: {\"code\":503,\"message\":\"boom\"}\n\n"]
    {
        let body = [sse(&head), stray.into()].concat();
        let failed = decode(&body).1.unwrap();
        assert_eq!((failed.kind, failed.message.as_str()), (ProviderErrorKind::Overloaded, "boom"));
    }
}

#[test]
fn an_end_without_message_stop_needs_a_stop_reason() {
    let body = [start(), block(0, json!({"type": "text", "text": "half"}))];
    let (events, error) = decode(&sse(&body));
    assert!(events.contains(&text(0, "half")));
    assert_eq!(error.unwrap().kind, ProviderErrorKind::TruncatedStream);
    assert_eq!(
        decode(b"event: ping\ndata: {\"type\": \"ping\"}\n\n").1.unwrap().kind,
        ProviderErrorKind::TruncatedStream
    );
    let lenient = [&body[..], &end("end_turn")[..1]].concat();
    for tail in ["", "data: [DONE]\n\n", "event: message_stop\n"] {
        let (events, error) = decode(&[sse(&lenient), tail.into()].concat());
        assert!(error.is_none(), "{tail}");
        assert!(matches!(events.last(), Some(StreamEvent::Finish { reason: TurnFinishReason::Stop, .. })));
    }
}

#[test]
fn a_whole_body_gives_the_same_events() {
    let body = json!({"type": "message", "id": "m", "model": "c", "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "t", "signature": "S"},
            {"type": "text", "text": "hi", "citations": null},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4, "cost": 0.5}});
    let (events, error) = decode(format!("\n\n  {body}").as_bytes());
    assert!(error.is_none());
    let StreamEvent::Usage(usage) = &events[1] else { panic!("{events:?}") };
    assert_eq!(usage.cost, Some(NanoUsd(500_000_000)));
    let expected = [
        thinking(0, "t"),
        signature(0, "S"),
        text(1, "hi"),
        call(2, "t", "f"),
        arguments(2, "{\"a\":[1]}"),
        StreamEvent::ToolCallEnd { block: 2 },
        StreamEvent::Finish { reason: TurnFinishReason::ToolCalls, raw: Some("tool_use".into()) },
    ];
    assert_eq!(events[2..], expected);
    let failed = decode(br#"{"error":{"code":502,"message":"upstream"}}"#).1.unwrap();
    assert_eq!((failed.kind, failed.status), (ProviderErrorKind::Server, Some(502)));
    assert_eq!(decode(br#"{"choices":[]}"#).1.unwrap().kind, ProviderErrorKind::Protocol);
    assert_eq!(decode(br#"{"type":"message","content":[{"ty"#).1.unwrap().kind, ProviderErrorKind::TruncatedStream);
}

#[test]
fn reasons_become_classes() {
    let hi = [block(0, json!({"type": "text", "text": "hi"})), stop(0)];
    let run = [block(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})), stop(0)];
    for (reason, expected) in [
        ("end_turn", TurnFinishReason::Stop),
        ("stop_sequence", TurnFinishReason::Stop),
        ("END_TURN", TurnFinishReason::Stop),
        ("tool_use", TurnFinishReason::Stop),
        ("max_tokens", TurnFinishReason::Length),
        ("model_context_window_exceeded", TurnFinishReason::Length),
        ("refusal", TurnFinishReason::ContentFilter),
        ("pause_turn", TurnFinishReason::Pause),
        ("compaction", TurnFinishReason::Pause),
        ("something_new", TurnFinishReason::Other),
    ] {
        assert_eq!(content(&hi, reason).1, expected, "{reason}");
    }
    assert_eq!(content(&run, "end_turn").1, TurnFinishReason::ToolCalls);
    assert_eq!(content(&run, "max_tokens").1, TurnFinishReason::Length);
    let silent = [start(), json!({"type": "message_stop"})];
    let (events, _) = decode(&sse(&silent));
    let finish = StreamEvent::Finish { reason: TurnFinishReason::Other, raw: None };
    assert_eq!(events.last(), Some(&finish));
}

#[test]
fn what_is_not_known_is_passed_over_and_what_is_broken_is_not() {
    let (events, _) = content(
        &[
            json!({"type": "weather", "delta": "sunny", "index": "north"}),
            block(0, json!({"type": "text", "text": "a"})),
            delta(0, json!({"type": "glow_delta", "glow": 3})),
            delta(9, json!({"type": "text_delta", "text": "unannounced"})),
            stop(4),
        ],
        "end_turn",
    );
    assert_eq!(events, [text(0, "a"), text(1, "unannounced")]);
    for broken in ["{\"type\":\"content_block_delta\",\"delta\":7}", "{\"type\":\"content_block_delta\"", "what"] {
        let body = [sse(&[start()]), format!("data: {broken}\n\n").into_bytes()].concat();
        let error = decode(&body).1.unwrap();
        assert_eq!(error.kind, ProviderErrorKind::Protocol, "{broken}");
        assert_eq!(error.body_excerpt.as_deref(), Some(broken));
    }
}

#[test]
fn halves_of_surrogates_and_raw_controls_do_not_end_a_run() {
    let half = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\ud83d"}}"#;
    let raw = "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"b\u{c}c\"}}";
    let mut body = sse(&[start(), block(0, json!({"type": "text", "text": ""}))]);
    body.extend(format!("data: {half}\n\ndata: {raw}\n\n").into_bytes());
    body.extend(sse(&end("end_turn")));
    let (events, error) = decode(&body);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(events[2..4], [text(0, "a\u{fffd}"), text(0, "b\u{c}c")]);
}

#[test]
fn a_name_that_was_changed_comes_back() {
    let tools = [ToolDefinition::new("files/read", "", json!({}))];
    let head = RequestHead { tools: std::sync::Arc::new(tools), ..RequestHead::default() };
    let names = NameTable::new(&head, NameRule::PORTABLE);
    let wire_name = NameRule::PORTABLE.wire_name("files/read");
    let mut decoder = MessageDecoder::new(Wire::new("anthropic", ""), names);
    let mut out = Events::new();
    let start = block(0, json!({"type": "tool_use", "id": "t", "name": wire_name, "input": {}}));
    decoder.event("", &start.to_string(), &mut out).unwrap();
    assert_eq!(out.pop_front(), Some(call(0, "t", "files/read")));
}

proptest! {
    /// The fast path and the parser must agree; a space behind a colon keeps an event off the fast path.
    #[test]
    fn the_fast_path_reads_what_the_parser_reads(delta in ".{0,40}", thinks: bool, pad in 0usize..4) {
        let (kind, field) = if thinks { ("thinking_delta", "thinking") } else { ("text_delta", "text") };
        let value = serde_json::to_string(&delta).unwrap();
        let pad = " ".repeat(pad);
        let fast = format!(
            r#"{{"type":"content_block_delta","index":12,"delta":{{"type":"{kind}","{field}":{value}}}{pad}}}"#
        );
        let slow = fast.replacen(':', ": ", 1);
        let read = |event: &str| {
            let mut decoder = MessageDecoder::new(Wire::new("anthropic", ""), NameTable::default());
            let mut out = Events::new();
            decoder.event("content_block_delta", event, &mut out).unwrap();
            out
        };
        prop_assert_eq!(read(&fast), read(&slow));
    }

    #[test]
    fn nothing_panics(body in proptest::collection::vec(any::<u8>(), 0..200), fields in ".{0,80}") {
        let mut decoder = MessageDecoder::new(Wire::new("anthropic", ""), NameTable::default());
        let mut out = Events::new();
        let _ = decoder.event("", &fields, &mut out);
        let _ = decoder.event("", &format!("{{\"type\":\"content_block_start\",\"content_block\":{fields}}}"), &mut out);
        let _ = decoder.body(&body, &mut out);
        let _ = decoder.status_error(500, &body);
    }
}

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::stream::ResponsesDecoder;
use super::super::{OpenAi, ResponsesProfile};
use crate::provider::names::{NameRule, NameTable};
use crate::provider::wire::{Decoder as _, Events};
use crate::provider::{ProviderError, ProviderErrorKind, RawResponse, RequestHead, StreamEvent, ToolDefinition};
use crate::types::{NanoUsd, SignatureProducer, TurnFinishReason};

/// The events of one body, cut in several ways, and the error that ended it.
fn decode_by(profile: &ResponsesProfile, body: &[u8]) -> (Vec<StreamEvent>, Option<ProviderError>) {
    let provider = OpenAi::builder().profile(profile.clone()).api_key("key").build().unwrap();
    let run = |size: usize| {
        let chunks: Vec<_> = body.chunks(size).map(Bytes::copy_from_slice).collect();
        let stream = provider.decode("gpt-test", RawResponse::recorded(200, Vec::new(), chunks)).unwrap();
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

fn decode(body: &[u8]) -> (Vec<StreamEvent>, Option<ProviderError>) {
    decode_by(&ResponsesProfile::openai(), body)
}

fn sse(events: &[Value]) -> Vec<u8> {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
    events.iter().map(frame).collect::<String>().into_bytes()
}

/// The events between the start and the end of a stream that ends well.
fn between(profile: &ResponsesProfile, events: &[Value]) -> Vec<StreamEvent> {
    let all = [vec![created()], events.to_vec(), vec![completed(json!([]))]].concat();
    let (events, error) = decode_by(profile, &sse(&all));
    assert_eq!(error, None);
    assert!(matches!(events.first(), Some(StreamEvent::Start { .. })), "{events:?}");
    assert!(matches!(events.last(), Some(StreamEvent::Finish { .. })), "{events:?}");
    let end = events.len() - 1;
    events.into_iter().take(end).skip(1).filter(|event| !matches!(event, StreamEvent::Usage(_))).collect()
}

fn output(events: &[Value]) -> Vec<StreamEvent> {
    between(&ResponsesProfile::openai(), events)
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-test-1", "status": "in_progress"}})
}

fn completed(output: Value) -> Value {
    let usage = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15});
    let response =
        json!({"id": "resp_1", "model": "gpt-test-1", "status": "completed", "output": output, "usage": usage});
    json!({"type": "response.completed", "response": response})
}

fn incomplete(reason: &str) -> Value {
    let details = json!({"reason": reason});
    json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": details}})
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn message(id: &str, content: Value) -> Value {
    json!({"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content})
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": []})
}

fn text_delta(index: u64, part: u64, delta: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": index, "content_index": part, "item_id": "msg_1",
        "sequence_number": 7, "logprobs": [], "obfuscation": "xyz", "delta": delta})
}

fn summary_delta(part: u64, delta: &str) -> Value {
    json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": part, "delta": delta})
}

fn call(arguments: &str) -> Value {
    json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "ls", "arguments": arguments,
        "status": "completed"})
}

fn arguments_delta(delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": delta})
}

fn text(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Text { block, delta: delta.into() }
}

fn thinking(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::Thinking { block, delta: delta.into() }
}

fn signature(block: u32, value: &str) -> StreamEvent {
    StreamEvent::Signature { block, producer: SignatureProducer::OPENAI_RESPONSES, value: value.into() }
}

fn call_start(block: u32) -> StreamEvent {
    StreamEvent::ToolCallStart { block, id: "call_1".into(), name: "ls".into() }
}

fn call_delta(block: u32, delta: &str) -> StreamEvent {
    StreamEvent::ToolCallDelta { block, delta: delta.into() }
}

fn call_signature(block: u32) -> StreamEvent {
    signature(block, r#"{"id":"fc_1"}"#)
}

fn call_end(block: u32) -> StreamEvent {
    StreamEvent::ToolCallEnd { block }
}

fn finish(events: &[StreamEvent]) -> (TurnFinishReason, &str) {
    match events.last() {
        Some(StreamEvent::Finish { reason, raw: Some(raw) }) => (*reason, raw),
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_streams_and_keeps_id_phase_and_citations() {
    let mut item = message("msg_1", json!([{"type": "output_text", "text": "Hello.", "annotations": [{"a": 1}]}]));
    item["phase"] = "final_answer".into();
    let events = [
        added(0, message("msg_1", json!([]))),
        json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": text_part("")}),
        text_delta(0, 0, "Hel"),
        text_delta(0, 0, "lo"),
        text_delta(0, 0, ""),
        json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "Hello."}),
        done(0, item),
    ];
    let state = signature(0, r#"{"id":"msg_1","phase":"final_answer","annotations":[{"a":1}]}"#);
    assert_eq!(output(&events), [text(0, "Hel"), text(0, "lo"), text(0, "."), state]);
}

#[test]
fn deltas_are_the_same_with_and_without_a_parser() {
    // Escapes, numbers and padding that change from event to event, and one event that differs in shape.
    let pieces = ["a", "b\n", "\"c\\", "é😀", "\u{1}", "d", "", "e"];
    let events: Vec<_> = pieces
        .iter()
        .enumerate()
        .map(|(at, piece)| {
            let mut event = text_delta(0, 0, piece);
            event["sequence_number"] = (at * 5).into();
            event["obfuscation"] = "x".repeat(at).into();
            if at == 5 {
                event["new_field"] = json!({"delta": "no"});
            }
            event
        })
        .collect();
    let expected: Vec<_> = pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| text(0, piece)).collect();
    assert_eq!(output(&events), expected);
}

#[test]
fn two_parts_of_a_message_are_two_blocks_of_one_id() {
    let events =
        [text_delta(0, 0, "a"), text_delta(0, 1, "b"), done(0, message("m", json!([text_part("a"), text_part("b")])))];
    let state = |block| signature(block, r#"{"id":"m"}"#);
    assert_eq!(output(&events), [text(0, "a"), text(1, "b"), state(0), state(1)]);
}

#[test]
fn servers_without_indexes_are_matched_by_id() {
    let delta = |id: &str, kind: &str, delta: &str| json!({"type": format!("response.{kind}.delta"), "item_id": id, "delta": delta});
    let bare = |kind: &str, item: Value| json!({"type": format!("response.output_item.{kind}"), "item": item});
    let events = [
        bare("added", message("msg_1", json!([]))),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "part": text_part("")}),
        bare("added", call("")),
        delta("msg_1", "output_text", "hi"),
        delta("fc_1", "function_call_arguments", "{}"),
        bare("done", message("msg_1", json!([text_part("hi")]))),
        bare("done", call("{}")),
    ];
    let expected = [
        call_start(0),
        text(1, "hi"),
        call_delta(0, "{}"),
        signature(1, r#"{"id":"msg_1"}"#),
        call_signature(0),
        call_end(0),
    ];
    assert_eq!(output(&events), expected);
}

#[test]
fn an_index_counts_more_than_an_id_that_changes() {
    let mut events = vec![added(0, message("id-1", json!([])))];
    for (at, delta) in ["a", "b"].into_iter().enumerate() {
        let mut event = text_delta(0, 0, delta);
        event["item_id"] = format!("id-{}", at + 2).into();
        events.push(event);
    }
    events.push(done(0, message("id-9", json!([text_part("ab")]))));
    events.push(completed(json!([message("id-10", json!([text_part("ab")]))])));
    let expected = [text(0, "a"), text(0, "b"), signature(0, r#"{"id":"id-9"}"#)];
    assert_eq!(output(&events), expected);
}

#[test]
fn reasoning_is_kept_whole_and_its_summary_is_shown() {
    let item = r#"{"type":"reasoning","id":"rs_1", "summary":[{"type":"summary_text","text":"One"},{"type":"summary_text","text":"Two!"}],"encrypted_content":"gAAA+/=="}"#;
    let head = [
        added(0, json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "cut"})),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}),
        summary_delta(0, "On"),
        summary_delta(0, "e"),
        summary_delta(1, "Two"),
        json!({"type": "response.reasoning_summary_text.done", "output_index": 0, "summary_index": 1, "text": "Two!"}),
    ];
    let tail = format!("data: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{item}}}\n\n");
    let body = [sse(&[created()]), sse(&head), tail.into_bytes(), sse(&[completed(json!([]))])].concat();
    let (events, error) = decode(&body);
    assert_eq!(error, None);
    let shown = [thinking(0, ""), thinking(0, "On"), thinking(0, "e"), thinking(0, "\n\nTwo"), thinking(0, "!")];
    assert_eq!(events[1..6], shown);
    // Byte for byte, the space after the comma included.
    assert_eq!(events[6], signature(0, item));
}

#[test]
fn reasoning_that_cannot_go_back_is_only_shown() {
    let content = json!([{"type": "reasoning_text", "text": "hm"}]);
    let item = json!({"type": "reasoning", "id": "r", "summary": [], "content": content, "encrypted_content": null});
    let delta = json!({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "hm"});
    let events = [added(0, json!({"type": "reasoning", "id": "r"})), delta, done(0, item.clone())];
    assert_eq!(output(&events), [thinking(0, ""), thinking(0, "hm")]);
    // Where it goes back in the open it is kept.
    let deepseek = between(&ResponsesProfile::deepseek(), &events);
    let producer = SignatureProducer::new("openai-responses/deepseek");
    assert_eq!(deepseek[2], StreamEvent::Signature { block: 0, producer, value: item.to_string() });
}

#[test]
fn encrypted_reasoning_may_come_with_the_end_only() {
    let item = |encrypted: Value| json!({"type": "reasoning", "id": "rs_1", "encrypted_content": encrypted});
    let first = done(0, item(Value::Null));
    let last = completed(json!([item("enc".into())]));
    let (events, _) = decode(&sse(&[created(), first, last]));
    assert_eq!(events[1], thinking(0, ""));
    assert_eq!(events[3], signature(0, &item("enc".into()).to_string()));
    assert_eq!(finish(&events).0, TurnFinishReason::Stop);
}

#[test]
fn arguments_may_stream_or_come_at_the_end() {
    let whole = |arguments: &str| json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments});
    let streamed = [
        added(0, call("")),
        arguments_delta("{\"a\""),
        arguments_delta(":1}"),
        whole("{\"a\":1}"),
        done(0, call("{\"a\":1}")),
    ];
    let end = [call_signature(0), call_end(0)];
    let start = [call_start(0)];
    let expected = [&start[..], &[call_delta(0, "{\"a\""), call_delta(0, ":1}")], &end].concat();
    assert_eq!(output(&streamed), expected);
    let at_the_end = [&start[..], &[call_delta(0, "{\"a\":1}")], &end].concat();
    assert_eq!(output(&[added(0, call("")), whole("{\"a\":1}"), done(0, call("{\"a\":1}"))]), at_the_end);
    assert_eq!(output(&[added(0, call("")), done(0, call("{\"a\":1}"))]), at_the_end);
    assert_eq!(output(&[done(0, call("{\"a\":1}"))]), at_the_end);
    assert_eq!(output(&[arguments_delta("{\"a\""), done(0, call("{\"a\":1}"))]), {
        [&start[..], &[call_delta(0, "{\"a\""), call_delta(0, ":1}")], &end].concat()
    });
    // The value itself in place of its text.
    let mut object = call("");
    object["arguments"] = json!({"a": 1});
    assert_eq!(output(&[done(0, object)]), at_the_end);
    assert_eq!(output(&[done(0, call(""))]), [call_start(0), call_signature(0), call_end(0)]);
}

#[test]
fn arguments_that_contradict_themselves_are_an_error() {
    let with =
        |last: &str| decode(&sse(&[created(), added(0, call("")), arguments_delta("{\"a\":1}"), done(0, call(last))]));
    assert_eq!(with("{\"a\":2}").1.unwrap().kind, ProviderErrorKind::Protocol);
    // The same in another spelling, or nothing at all, is none.
    for same in ["{ \"a\": 1 }", ""] {
        let (events, error) = with(same);
        assert_eq!(error.unwrap().kind, ProviderErrorKind::TruncatedStream);
        assert!(events.contains(&call_end(0)), "{events:?}");
    }
}

#[test]
fn a_custom_call_becomes_a_json_string() {
    let item = |input: &str| json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "ls", "input": input});
    let delta =
        |delta: &str| json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": delta});
    let events = [added(0, item("")), delta("say \"hi\""), delta("\n"), done(0, item("say \"hi\"\n"))];
    let state = signature(0, r#"{"id":"ctc_1","type":"custom_tool_call"}"#);
    let pieces = [call_delta(0, "\"say \\\"hi\\\""), call_delta(0, "\\n"), call_delta(0, "\"")];
    let expected = [&[call_start(0)], &pieces[..], &[state.clone(), call_end(0)]].concat();
    assert_eq!(output(&events), expected);
    assert_eq!(output(&[done(0, item(""))]), [call_start(0), call_delta(0, "\"\""), state, call_end(0)]);
}

#[test]
fn a_call_ends_only_when_it_is_whole() {
    let begun = |last: Value| decode(&sse(&[created(), added(0, call("")), arguments_delta("{\"a\":1}"), last])).0;
    let ended = |events: &[StreamEvent]| events.contains(&call_end(0));
    // The answer is complete, and so are the arguments.
    let events = begun(completed(json!([])));
    assert_eq!((ended(&events), finish(&events).0), (true, TurnFinishReason::ToolCalls));
    let events = begun(incomplete("max_output_tokens"));
    assert_eq!((ended(&events), finish(&events)), (false, (TurnFinishReason::Length, "max_output_tokens")));
    let mut cut = call("{\"a\":1}");
    cut["status"] = "incomplete".into();
    let events = decode(&sse(&[created(), done(0, cut), incomplete("max_output_tokens")])).0;
    assert_eq!((ended(&events), events.contains(&call_start(0))), (false, true));
    let half = [created(), added(0, call("")), arguments_delta("{\"a\""), completed(json!([]))];
    let events = decode(&sse(&half)).0;
    assert_eq!((ended(&events), finish(&events).0), (false, TurnFinishReason::Stop));
}

#[test]
fn items_of_the_last_event_that_were_not_streamed_follow() {
    let items = json!([message("m", json!([text_part("hi")])), call("{}")]);
    let expected = [
        text(0, "hi"),
        signature(0, r#"{"id":"m"}"#),
        call_start(1),
        call_delta(1, "{}"),
        call_signature(1),
        call_end(1),
    ];
    let (events, _) = decode(&sse(&[created(), completed(items.clone())]));
    assert_eq!(events[2..8], expected);
    // What was streamed is not repeated, announced or not.
    for before in [vec![], vec![added(0, message("m", json!([])))]] {
        let streamed = [vec![created()], before, vec![text_delta(0, 0, "hi"), completed(items.clone())]].concat();
        let (events, _) = decode(&sse(&streamed));
        let texts = events.iter().filter(|event| matches!(event, StreamEvent::Text { .. })).count();
        assert_eq!((texts, finish(&events).0), (1, TurnFinishReason::ToolCalls), "{events:?}");
    }
    let twice = [done(0, message("m", json!([text_part("hi")]))), done(0, message("m", json!([text_part("hi")])))];
    assert_eq!(output(&twice), expected[..2]);
}

#[test]
fn what_is_unknown_is_kept_in_place_or_passed_over() {
    let unknown = json!({"type": "future_item", "id": "x_1", "data": {"deep": [1, null]}});
    let parts = json!([text_part("a"), {"type": "future_part", "x": 1}]);
    let events = [
        json!({"type": "keepalive"}),
        json!({"type": "response.future.delta", "delta": 3, "output_index": "odd"}),
        done(0, unknown.clone()),
        done(1, message("m", parts)),
        json!({"type": "response.web_search_call.searching", "output_index": 2}),
    ];
    let opaque = |block, value| StreamEvent::Opaque { block, producer: SignatureProducer::OPENAI_RESPONSES, value };
    let part = json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "future_part", "x": 1}]});
    let expected = [opaque(0, unknown), text(1, "a"), signature(1, r#"{"id":"m"}"#), opaque(2, part)];
    assert_eq!(output(&events), expected);
}

#[test]
fn a_refusal_is_text_that_ends_by_a_filter() {
    let delta = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."});
    let item = message("m", json!([{"type": "refusal", "refusal": "No."}]));
    let (events, _) = decode(&sse(&[created(), delta, done(0, item.clone()), completed(json!([]))]));
    assert_eq!(events[1..3], [text(0, "No."), signature(0, r#"{"id":"m","refusal":true}"#)]);
    assert_eq!(finish(&events), (TurnFinishReason::ContentFilter, "completed"));
    let (events, _) = decode(completed(json!([item]))["response"].to_string().as_bytes());
    assert_eq!(finish(&events).0, TurnFinishReason::ContentFilter);
}

#[test]
fn every_terminal_event_ends_the_answer() {
    let ended = |event: Value| decode(&sse(&[created(), event]));
    let done = |status: &str| json!({"type": "response.done", "response": {"status": status}});
    assert_eq!(finish(&ended(done("completed")).0), (TurnFinishReason::Stop, "completed"));
    assert_eq!(finish(&ended(done("incomplete")).0), (TurnFinishReason::Other, "incomplete"));
    assert_eq!(ended(done("failed")).1.unwrap().kind, ProviderErrorKind::Server);
    assert_eq!(finish(&ended(json!({"type": "response.done", "response": {}})).0).0, TurnFinishReason::Stop);
    assert_eq!(finish(&ended(incomplete("content_filter")).0).0, TurnFinishReason::ContentFilter);
    assert_eq!(finish(&ended(incomplete("max_messages")).0).0, TurnFinishReason::Length);
    let cancelled = json!({"type": "response.cancelled", "response": {"status": "cancelled"}});
    assert_eq!(ended(cancelled).1.unwrap().kind, ProviderErrorKind::Aborted);
    let approval = completed(json!([{"type": "mcp_approval_request", "id": "a"}]));
    assert_eq!(finish(&ended(approval).0).0, TurnFinishReason::Pause);
    let queued = decode(br#"{"status":"queued","output":[],"usage":null}"#);
    assert_eq!(finish(&queued.0), (TurnFinishReason::Pause, "queued"));
}

#[test]
fn a_server_that_calls_cut_answers_complete_is_found_out() {
    let class = |profile: ResponsesProfile, limit: Option<u32>| {
        let mut decoder = ResponsesDecoder::new(profile.into(), NameTable::default()).limited(limit);
        let mut out = Events::new();
        decoder.event("", &completed(json!([])).to_string(), &mut out).unwrap();
        finish(out.make_contiguous()).0
    };
    assert_eq!(class(ResponsesProfile::llama_cpp(), Some(5)), TurnFinishReason::Length);
    assert_eq!(class(ResponsesProfile::llama_cpp(), Some(6)), TurnFinishReason::Stop);
    assert_eq!(class(ResponsesProfile::llama_cpp(), None), TurnFinishReason::Stop);
    assert_eq!(class(ResponsesProfile::openai(), Some(5)), TurnFinishReason::Stop);
}

#[test]
fn errors_of_a_stream_keep_what_came_before() {
    let shapes = [
        json!({"type": "error", "code": "rate_limit_exceeded", "message": "m", "param": null}),
        json!({"type": "error", "error": {"type": "tokens", "code": "rate_limit_exceeded", "message": "m"}}),
        json!({"error": {"code": "rate_limit_exceeded", "message": "m"}}),
        json!({"type": "response.failed", "response": {"status": "failed",
            "error": {"code": "rate_limit_exceeded", "message": "m"}, "usage": {"input_tokens": 3}}}),
    ];
    for shape in shapes {
        let (events, error) = decode(&sse(&[created(), text_delta(0, 0, "hi"), shape.clone()]));
        let error = error.unwrap();
        assert!(events.contains(&text(0, "hi")), "{events:?}");
        assert_eq!((error.kind, &*error.message), (ProviderErrorKind::RateLimited, "m"), "{shape}");
        assert_eq!(error.code.as_deref(), Some("rate_limit_exceeded"));
    }
    let failed = |code: &str| {
        let error = json!({"code": code, "message": "Please try again in 2s."});
        decode(&sse(&[created(), json!({"type": "response.failed", "response": {"status": "failed", "error": error}})]))
    };
    assert_eq!(failed("context_length_exceeded").1.unwrap().kind, ProviderErrorKind::ContextOverflow);
    assert_eq!(failed("invalid_image").1.unwrap().kind, ProviderErrorKind::Invalid);
    assert_eq!(failed("rate_limit_exceeded").1.unwrap().retry_after, Some(std::time::Duration::from_secs(2)));
    assert_eq!(finish(&failed("bio_policy").0), (TurnFinishReason::ContentFilter, "bio_policy"));
}

#[test]
fn a_stream_without_a_terminal_event_was_cut() {
    let kind = |body: &[u8]| decode(body).1.unwrap().kind;
    assert_eq!(kind(&sse(&[created(), text_delta(0, 0, "hi")])), ProviderErrorKind::TruncatedStream);
    assert_eq!(kind(b"data: [DONE]\n\n"), ProviderErrorKind::TruncatedStream);
    assert_eq!(kind(b"data: {\"type\":\n\n"), ProviderErrorKind::Protocol);
    let tail = [sse(&[created(), completed(json!([]))]), b"data: [DONE]\n\ndata: {broken\n\n".to_vec()].concat();
    assert_eq!(decode(&tail).1, None);
}

#[test]
fn a_whole_response_is_read_at_once() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "enc",
        "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]});
    let usage =
        json!({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "cost": 0.5});
    let items = json!([reasoning, message("m", json!([text_part("hi")])), call("{}")]);
    let body = json!({"id": "r", "object": "response", "model": "gpt-test-1", "status": "completed", "error": null,
        "output": items, "usage": usage});
    let (events, error) = decode(body.to_string().as_bytes());
    assert_eq!(error, None);
    let started = StreamEvent::Start { model: Some("gpt-test-1".into()), response_id: Some("r".into()) };
    assert_eq!(events[0], started);
    let StreamEvent::Usage(usage) = &events[1] else { panic!("{events:?}") };
    assert_eq!((usage.tokens.input, usage.tokens.cache_read, usage.cost), (5, 4, Some(NanoUsd(500_000_000))));
    assert_eq!(events[2..4], [thinking(0, ""), thinking(0, "a\n\nb")]);
    assert_eq!(events[4], signature(0, &reasoning.to_string()));
    assert_eq!(events[5..7], [text(1, "hi"), signature(1, r#"{"id":"m"}"#)]);
    assert_eq!(events[7..11], [call_start(2), call_delta(2, "{}"), call_signature(2), call_end(2)]);
    assert_eq!(finish(&events), (TurnFinishReason::ToolCalls, "completed"));
}

#[test]
fn bodies_that_are_no_response_are_errors() {
    let kind = |body: &str| decode(body.as_bytes()).1.unwrap().kind;
    assert_eq!(kind(r#"{"error":{"code":502,"message":"bad gateway"}}"#), ProviderErrorKind::Server);
    assert_eq!(kind(r#"{"error":{"code":"invalid_api_key","message":"m"}}"#), ProviderErrorKind::Auth);
    assert_eq!(kind(r#"{"hello":1}"#), ProviderErrorKind::Protocol);
    assert_eq!(kind("[]"), ProviderErrorKind::Protocol);
    assert_eq!(kind(r#"{"status":"failed","error":{"code":"server_error","message":"m"}}"#), ProviderErrorKind::Server);
    assert_eq!(kind(r#"{"status":"completed","output":[{"type":"mess"#), ProviderErrorKind::TruncatedStream);
}

#[test]
fn names_come_back_and_repeated_call_ids_are_told_apart() {
    let tool = ToolDefinition::new("mcp/ls", "", json!({}));
    let head = RequestHead { tools: [tool].into(), ..RequestHead::default() };
    let names = NameTable::new(&head, NameRule::PORTABLE);
    let mut decoder = ResponsesDecoder::new(ResponsesProfile::bedrock_mantle("").into(), names);
    let mut out = Events::new();
    decoder.event("", &created().to_string(), &mut out).unwrap();
    let mut item = call("{}");
    item["name"] = NameRule::PORTABLE.wire_name("mcp/ls").as_ref().into();
    item["call_id"] = "call_0".into();
    decoder.event("", &done(0, item.clone()).to_string(), &mut out).unwrap();
    let Some(StreamEvent::ToolCallStart { id, name, .. }) = out.get(1) else { panic!("{out:?}") };
    assert!(id.starts_with("call_0_") && id.len() <= 64, "{id}");
    assert_eq!(name, "mcp/ls");
    item["call_id"] = "call_836db14dc7486091".into();
    decoder.event("", &done(1, item).to_string(), &mut out).unwrap();
    assert!(
        out.iter().any(|event| matches!(event, StreamEvent::ToolCallStart { id, .. } if id == "call_836db14dc7486091"))
    );
}

#[test]
fn an_answer_has_a_limit() {
    let mut decoder = ResponsesDecoder::new(ResponsesProfile::openai().into(), NameTable::default());
    let mut out = Events::new();
    let failed = (0..10_000)
        .find_map(|index| decoder.event("", &added(index, json!({"type": "x"})).to_string(), &mut out).err());
    assert_eq!(failed.unwrap().kind, ProviderErrorKind::Protocol);
}

#[test]
fn large_arguments_take_linear_time() {
    let piece = "x".repeat(1000);
    let mut decoder = ResponsesDecoder::new(ResponsesProfile::openai().into(), NameTable::default());
    let mut out = Events::new();
    decoder.event("", &added(0, call("")).to_string(), &mut out).unwrap();
    let mut whole = String::from("{\"a\":\"");
    decoder.event("", &arguments_delta(&whole).to_string(), &mut out).unwrap();
    for _ in 0..2000 {
        whole.push_str(&piece);
        decoder.event("", &arguments_delta(&piece).to_string(), &mut out).unwrap();
    }
    whole.push_str("\"}");
    decoder.event("", &done(0, call(&whole)).to_string(), &mut out).unwrap();
    let lengths = out.iter().map(|event| match event {
        StreamEvent::ToolCallDelta { delta, .. } => delta.len(),
        _ => 0,
    });
    assert_eq!(lengths.sum::<usize>(), whole.len());
    assert!(out.contains(&call_end(0)));
}

/// Events as they might be strung together by anyone.
fn any_event() -> impl Strategy<Value = Value> {
    let item = prop_oneof![
        Just(json!({"type": "message", "id": "a", "content": [text_part("abc"), {"type": "new"}]})),
        Just(json!({"type": "message", "content": "text"})),
        Just(json!({"type": "reasoning", "id": "b", "summary": [{"text": "s"}], "encrypted_content": "e"})),
        Just(call("{\"a\":1}")),
        Just(json!({"type": "function_call", "name": "n"})),
        Just(json!({"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "n", "input": "ab"})),
        Just(json!({"type": "other", "id": "d"})),
        Just(json!(3)),
    ];
    let index = prop_oneof![Just(Value::Null), Just(json!(0)), Just(json!(1)), Just(json!("x"))];
    let id = prop_oneof![Just(Value::Null), Just(json!("a")), Just(json!("fc_1")), Just(json!(""))];
    let kind = prop::sample::select(vec![
        "response.output_item.added",
        "response.output_item.done",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.refusal.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.in_progress",
        "response.unknown",
    ]);
    let delta = prop::sample::select(vec!["", "a", "{\"a\":1}", "ä\"\\"]);
    (kind, item, index, id, delta, 0..3_u8).prop_map(|(kind, item, index, id, delta, part)| {
        json!({"type": kind, "item": item, "output_index": index, "item_id": id, "delta": delta, "text": delta,
            "arguments": delta, "input": delta, "content_index": part, "summary_index": part,
            "response": {"id": "r", "model": "m"}})
    })
}

proptest! {
    #[test]
    fn any_order_of_events_gives_blocks_that_make_sense(events in prop::collection::vec(any_event(), 0..24)) {
        let mut decoder = ResponsesDecoder::new(ResponsesProfile::openai().into(), NameTable::default());
        let mut out = Events::new();
        for event in &events {
            if decoder.event("", &event.to_string(), &mut out).is_err() {
                break;
            }
        }
        let _ = decoder.event("", &completed(json!([call("{}")])).to_string(), &mut out);
        let mut kinds: Vec<&str> = Vec::new();
        let mut ended = Vec::new();
        for event in &out {
            let (block, kind) = match event {
                StreamEvent::Text { block, .. } => (*block, "text"),
                StreamEvent::Thinking { block, .. } => (*block, "thinking"),
                StreamEvent::Opaque { block, .. } => (*block, "opaque"),
                StreamEvent::ToolCallStart { block, .. } => (*block, "call"),
                StreamEvent::ToolCallDelta { block, .. } => {
                    prop_assert!(!ended.contains(block), "more after the end");
                    (*block, "call")
                }
                StreamEvent::ToolCallEnd { block } => {
                    prop_assert!(!ended.contains(block), "two ends");
                    ended.push(*block);
                    (*block, "call")
                }
                StreamEvent::Signature { block, .. } => {
                    prop_assert!((*block as usize) < kinds.len(), "state before its block");
                    continue;
                }
                _ => continue,
            };
            let at = block as usize;
            prop_assert!(at <= kinds.len(), "numbers are dense");
            if at == kinds.len() {
                let inside = matches!(event, StreamEvent::ToolCallDelta { .. } | StreamEvent::ToolCallEnd { .. });
                prop_assert!(!inside, "a call begins with its start");
                kinds.push(kind);
            }
            prop_assert_eq!(kinds[at], kind);
        }
    }
}

use proptest::prelude::*;

use super::*;

fn decoder(profile: ChatProfile) -> ChatDecoder {
    ChatDecoder::new(Arc::new(profile), NameTable::default(), false)
}

fn decode(profile: ChatProfile, chunks: &[&str]) -> (Vec<StreamEvent>, Option<ProviderError>) {
    let (mut decoder, mut out) = (decoder(profile), Events::new());
    for chunk in chunks {
        if decoder.is_finished() {
            break;
        }
        if let Err(error) = decoder.event("", chunk, &mut out) {
            return (out.into(), Some(error));
        }
    }
    let end = if decoder.is_finished() { Ok(()) } else { decoder.eof(&mut out) };
    (out.into(), end.err())
}

fn good(chunks: &[&str]) -> Vec<StreamEvent> {
    let (events, error) = decode(ChatProfile::custom(""), chunks);
    assert!(error.is_none(), "{error:?}");
    events
}

fn delta(delta: &str) -> String {
    format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

fn finish(reason: &str) -> String {
    format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}]}}"#)
}

/// The deltas of each block, joined.
fn blocks(events: &[StreamEvent]) -> Vec<(&'static str, String)> {
    let mut blocks: Vec<(&'static str, String)> = Vec::new();
    for event in events {
        let (block, kind, text) = match event {
            StreamEvent::Text { block, delta } => (*block, "text", delta),
            StreamEvent::Thinking { block, delta } => (*block, "thinking", delta),
            StreamEvent::ToolCallStart { block, name, .. } => (*block, "call", name),
            StreamEvent::ToolCallDelta { block, delta } => (*block, "call", delta),
            _ => continue,
        };
        let block = block as usize;
        assert!(block <= blocks.len(), "blocks are numbered without gaps");
        if block == blocks.len() {
            blocks.push((kind, String::new()));
        }
        assert_eq!(blocks[block].0, kind);
        blocks[block].1.push_str(text);
    }
    blocks
}

fn finished(events: &[StreamEvent]) -> (TurnFinishReason, Option<&str>) {
    match events.last() {
        Some(StreamEvent::Finish { reason, raw }) => (*reason, raw.as_deref()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn text_arrives_as_it_came() {
    let chunks = [
        &*delta(r#"{"role":"assistant","content":""}"#),
        &delta(r#"{"content":"a"}"#),
        &delta(r#"{"content":"b\n"}"#),
        &finish("stop"),
        "[DONE]",
    ];
    let events = good(&chunks);
    assert_eq!(events[0], StreamEvent::Start { model: Some("m".into()), response_id: Some("c1".into()) });
    assert_eq!(blocks(&events), [("text", "ab\n".into())]);
    assert_eq!(events.iter().filter(|event| matches!(event, StreamEvent::Text { .. })).count(), 2);
    assert_eq!(finished(&events), (TurnFinishReason::Stop, Some("stop")));
}

#[test]
fn the_fast_path_and_the_parser_agree() {
    let deltas = [
        r#"{"content":"one"}"#,
        r#"{"content":"two \"q\" \\ \n"}"#,
        r#"{"content":"\u00e9é"}"#,
        r#"{"reasoning_content":"hm","content":""}"#,
        r#"{"reasoning_content":"so","content":""}"#,
        r#"{"content":"three"}"#,
        r#"{"content":"four"}"#,
        r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"[1"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":",2"}}]}"#,
        r#"{"tool_calls":[{"index":0,"function":{"arguments":"]"}}]}"#,
    ];
    let mut fast: Vec<String> = deltas.iter().map(|text| delta(text)).collect();
    // White space that differs from chunk to chunk keeps every one of them off the fast path.
    let mut slow: Vec<String> = fast.iter().enumerate().map(|(n, chunk)| chunk.clone() + &" ".repeat(n)).collect();
    for chunks in [&mut fast, &mut slow] {
        chunks.push(finish("length"));
    }
    let run = |chunks: &[String]| good(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
    let events = run(&fast);
    assert_eq!(events, run(&slow));
    assert_eq!(
        blocks(&events),
        [
            ("text", "onetwo \"q\" \\ \néé".into()),
            ("thinking", "hmso".into()),
            ("text", "threefour".into()),
            ("call", "f[1,2]".into()),
        ]
    );
    assert!(events.contains(&StreamEvent::ToolCallEnd { block: 3 }), "complete although cut at the limit");
}

#[test]
fn reasoning_has_many_names_and_counts_once() {
    for field in ["reasoning_content", "reasoning", "reasoning_text"] {
        let events = good(&[&delta(&format!(r#"{{"{field}":"hm"}}"#)), &finish("stop")]);
        assert_eq!(blocks(&events), [("thinking", "hm".into())]);
    }
    let both = delta(r#"{"reasoning":"hm","reasoning_content":"hm","content":"x"}"#);
    assert_eq!(blocks(&good(&[&both, &finish("stop")])), [("thinking", "hm".into()), ("text", "x".into())]);
}

#[test]
fn reasoning_details_ride_on_the_first_thinking_block() {
    let chunks = [
        &*delta(r#"{"reasoning":"a","reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}"#),
        &delta(r#"{"reasoning_details":[{"type":"reasoning.text","text":"b","index":0}]}"#),
        &delta(r#"{"content":"x"}"#),
        &delta(r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"E","index":1}]}"#),
        &finish("stop"),
    ];
    let events = good(&chunks);
    assert_eq!(blocks(&events), [("thinking", "ab".into()), ("text", "x".into())]);
    let Some(StreamEvent::Signature { block: 0, producer, value }) = events.get(events.len() - 2) else {
        panic!("{events:?}")
    };
    assert_eq!(producer.as_str(), "custom");
    let expected = serde_json::json!([
        {"type": "reasoning.text", "text": "ab", "index": 0},
        {"type": "reasoning.encrypted", "data": "E", "index": 1},
    ]);
    assert_eq!(serde_json::from_str::<Value>(value).unwrap(), expected);
}

#[test]
fn content_may_be_a_list_and_a_string_in_turn() {
    let chunks = [
        &*delta(r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}"#),
        &delta(
            r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"…"}],"signature":"S"},{"type":"text","text":"so"}]}"#,
        ),
        &delta(r#"{"content":" it is"}"#),
        &finish("stop"),
    ];
    let events = good(&chunks);
    assert_eq!(blocks(&events), [("thinking", "hm…".into()), ("text", "so it is".into())]);
    assert!(events.iter().any(|event| matches!(event, StreamEvent::Signature { block: 0, value, .. } if value == "S")));
}

#[test]
fn state_of_a_call_or_text_is_kept() {
    let chunk = delta(
        r#"{"extra_content":{"g":1},"content":"x","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"},"extra_content":{"g":2}}]}"#,
    );
    let events = good(&[&chunk, &finish("stop")]);
    let states: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Signature { block, value, .. } => Some((*block, value.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(states, [(1, r#"{"g":2}"#), (0, r#"{"g":1}"#)]);
    assert_eq!(finished(&events), (TurnFinishReason::ToolCalls, Some("stop")));
}

#[test]
fn usage_is_read_from_any_chunk_and_the_last_wins() {
    let chunks = [
        &*delta(r#"{"content":"x"}"#),
        &finish("stop"),
        r#"{"choices":[],"x_groq":{"usage":{"prompt_tokens":3,"completion_tokens":1}}}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":null,"usage":{"prompt_tokens":4,"completion_tokens":1}}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
        r#"{"choices":[],"usage":null}"#,
        "[DONE]",
    ];
    let events = good(&chunks);
    let inputs: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Usage(usage) => Some(usage.tokens.input),
            _ => None,
        })
        .collect();
    assert_eq!(inputs, [3, 4, 5]);
    assert_eq!(finished(&events), (TurnFinishReason::Stop, Some("stop")));
}

#[test]
fn of_several_choices_only_the_first_is_read() {
    let chunk = r#"{"model":"m","choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"},"finish_reason":"stop"}]}"#;
    assert_eq!(blocks(&good(&[chunk])), [("text", "yes".into())]);
}

#[test]
fn the_end_needs_a_reason_or_done() {
    let (events, error) = decode(ChatProfile::custom(""), &[&delta(r#"{"content":"x"}"#)]);
    assert_eq!(error.unwrap().kind, ProviderErrorKind::TruncatedStream);
    assert_eq!(blocks(&events), [("text", "x".into())]);
    assert_eq!(finished(&good(&[&delta(r#"{"content":"x"}"#), " [DONE]"])), (TurnFinishReason::Stop, None));
    assert_eq!(finished(&good(&[&delta(r#"{"content":"x"}"#), &finish("stop")])).0, TurnFinishReason::Stop);
    let (_, error) = decode(ChatProfile::custom(""), &["[DONE]"]);
    assert_eq!(error.unwrap().kind, ProviderErrorKind::TruncatedStream);
}

#[test]
fn an_error_in_the_stream_is_that_error_whatever_came_before() {
    let cases = [
        r#"{"error":{"code":502,"message":"upstream"}}"#,
        r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":null}],"error":{"code":502,"message":"upstream"}}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"error","error":{"code":502,"message":"upstream"}}]}"#,
        r#"{"error":{"message":"upstream"},"status_code":502}"#,
    ];
    for case in cases {
        let (events, error) = decode(ChatProfile::custom(""), &[&delta(r#"{"content":"x"}"#), &finish("length"), case]);
        let error = error.unwrap();
        assert_eq!((error.kind, error.status, &*error.message), (ProviderErrorKind::Server, Some(502), "upstream"));
        assert_eq!(blocks(&events), [("text", "x".into())]);
    }
    let (mut decoder, mut out) = (decoder(ChatProfile::custom("")), Events::new());
    let error =
        decoder.event("error", r#"{"message":"slow down","code":"rate_limit_exceeded"}"#, &mut out).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::RateLimited);
    assert!(good(&[r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}],"error":null}"#]).len() == 3);
}

#[test]
fn a_refusal_is_a_content_filter() {
    let events = good(&[&delta(r#"{"refusal":"I cannot"}"#), &finish("stop")]);
    assert_eq!(blocks(&events), [("text", "I cannot".into())]);
    assert_eq!(finished(&events), (TurnFinishReason::ContentFilter, Some("stop")));
}

#[test]
fn a_whole_response_gives_the_same_events() {
    let (mut decoder, mut out) = (decoder(ChatProfile::custom("")), Events::new());
    let body = br#"{"id":"c1","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"x","reasoning_content":"hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":{"k":1}}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#;
    decoder.body(body, &mut out).unwrap();
    assert!(decoder.is_finished());
    let events: Vec<_> = out.into();
    assert_eq!(blocks(&events), [("thinking", "hm".into()), ("text", "x".into()), ("call", r#"f{"k":1}"#.into())]);
    assert_eq!(finished(&events).0, TurnFinishReason::ToolCalls);
}

#[test]
fn a_whole_body_without_an_answer_is_an_error() {
    let kind = |body: &[u8]| decoder(ChatProfile::custom("")).body(body, &mut Events::new()).unwrap_err().kind;
    assert_eq!(kind(br#"{"error":{"code":503,"message":"busy"}}"#), ProviderErrorKind::Overloaded);
    assert_eq!(kind(br#"[{"error":{"code":429,"message":"busy"}}]"#), ProviderErrorKind::RateLimited);
    assert_eq!(kind(br#"{"object":"error","message":"no","code":401}"#), ProviderErrorKind::Auth);
    assert_eq!(kind(br#"{"choices":[]}"#), ProviderErrorKind::Protocol);
    assert_eq!(kind(b"{\"choices\":[{"), ProviderErrorKind::TruncatedStream);
}

#[test]
fn odd_json_never_panics() {
    for chunk in
        ["null", "3", "[]", "{}", r#"{"choices":null}"#, r#"{"choices":[{}]}"#, r#"{"choices":{"a":1},"usage":[]}"#]
    {
        let _ = decode(ChatProfile::openai(), &[chunk, chunk, "[DONE]"]);
    }
    let (_, error) = decode(ChatProfile::openai(), &["not json"]);
    assert_eq!(error.unwrap().kind, ProviderErrorKind::Protocol);
    let control = delta("{\"content\":\"a\u{1}b\"}");
    assert_eq!(blocks(&good(&[&control, &finish("stop")])), [("text", "a\u{1}b".into())], "repaired");
}

proptest! {
    #[test]
    fn any_text_arrives_whole(texts in proptest::collection::vec(".*", 1..8), field in 0..2) {
        let field = if field == 0 { "content" } else { "reasoning" };
        let mut chunks: Vec<String> =
            texts.iter().map(|text| delta(&serde_json::json!({field: text}).to_string())).collect();
        chunks.push(finish("stop"));
        let events = good(&chunks.iter().map(String::as_str).collect::<Vec<_>>());
        let arrived: String = blocks(&events).into_iter().map(|(_, text)| text).collect();
        prop_assert_eq!(arrived, texts.concat());
    }

    #[test]
    fn a_damaged_chunk_never_panics(at in 0usize..200, byte in any::<char>(), cut in 0usize..200) {
        let chunk = delta(r#"{"content":"a","tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}"#);
        let damaged: String = chunk.chars().enumerate().map(|(n, c)| if n == at { byte } else { c }).take(200 - cut).collect();
        let _ = decode(ChatProfile::openai(), &[&chunk, &damaged, &chunk, &finish("stop")]);
        let _ = decoder(ChatProfile::openai()).body(damaged.as_bytes(), &mut Events::new());
    }
}

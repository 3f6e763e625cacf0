use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::super::{
    Anthropic, History, HistoryTurn, ModelRequest, Provider as _, ProviderErrorKind, RequestHead, Resume,
    ThinkingLevel, ToolChoice, ToolDefinition, ToolNames,
};
use super::super::Wire;
use super::super::request::encode;
use crate::types::{
    Document, Media, MediaSource, OpaqueBlock, Resource, ResourceContent, Role, SessionContentBlock, SessionTurn,
    Signature, SignatureProducer, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock, ToolResultBody,
    ToolResultContent, ToolStatus, TurnFinishReason, TurnOrigin, TurnUsage,
};

fn wire() -> Wire {
    Wire::new("anthropic", "2023-06-01")
}

fn head() -> RequestHead {
    RequestHead { model: "claude-haiku-4-5".into(), ..RequestHead::default() }
}

fn bytes(request: &ModelRequest) -> Bytes {
    encode(&wire(), request).unwrap().bytes
}

fn encoded(head: RequestHead, turns: Vec<SessionTurn>) -> Value {
    let bytes = bytes(&ModelRequest::new(head, turns.into_iter().collect()));
    serde_json::from_slice(&bytes).unwrap()
}

fn messages(turns: Vec<SessionTurn>) -> Value {
    encoded(head(), turns)["messages"].clone()
}

fn user(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("u", Role::User, TurnOrigin::Prompt, content)
}

fn says(text: &str) -> SessionTurn {
    user(vec![SessionContentBlock::text(text)])
}

fn model(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, content)
}

fn call(id: &str, name: &str, arguments: &str) -> SessionContentBlock {
    let (id, name, arguments) = (id.into(), name.into(), arguments.into());
    SessionContentBlock::ToolCall(ToolCallBlock { id, name, arguments, ..ToolCallBlock::default() })
}

fn result(id: &str, output: impl Into<ToolResultBody>, is_error: bool) -> SessionContentBlock {
    SessionContentBlock::ToolResult(ToolResultBlock {
        call_id: id.into(),
        name: "f".into(),
        input: None,
        output: output.into(),
        is_error,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Default::default(),
    })
}

fn signed(producer: SignatureProducer, value: &str) -> Option<Signature> {
    Some(Signature { producer, model: "m".into(), value: value.into() })
}

fn opaque(value: Value) -> SessionContentBlock {
    SessionContentBlock::Opaque(OpaqueBlock::new(SignatureProducer::ANTHROPIC, "m", value))
}

fn server_call(id: &str) -> SessionContentBlock {
    opaque(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {}}))
}

fn server_result(id: &str) -> SessionContentBlock {
    opaque(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}))
}

#[test]
fn a_request_holds_what_the_head_says_and_nothing_else() {
    let mut head = head();
    head.system = Some("Be brief.".into());
    head.tools = Arc::new([ToolDefinition::new("ls", "Lists.", json!({"type": "object"}))]);
    head.stop_sequences = vec!["END".into(), " ".into()];
    head.temperature = Some(0.5);
    let expected = json!({
        "model": "claude-haiku-4-5", "max_tokens": 64000, "stream": true,
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "ls", "description": "Lists.", "input_schema": {"type": "object"}}],
        "temperature": 0.5, "stop_sequences": ["END"],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    });
    assert_eq!(encoded(head.clone(), vec![says("hi")]), expected);

    head.cache = true;
    let marked = encoded(head, vec![says("hi")]);
    let mark = json!({"type": "ephemeral"});
    assert_eq!((&marked["cache_control"], &marked["system"][0]["cache_control"]), (&mark, &mark));
    assert_eq!(marked["tools"][0]["cache_control"], mark);
    assert_eq!(marked["messages"], expected["messages"]);
}

#[test]
fn extra_fields_win_and_appear_once() {
    let mut head = head();
    head.max_tokens = Some(10);
    let extra = json!({"max_tokens": 99, "metadata": {"user_id": "x"}, "top_k": 5});
    head.extra = extra.as_object().unwrap().clone();
    let request = ModelRequest::new(head, [says("hi")].into_iter().collect());
    let text = String::from_utf8(bytes(&request).to_vec()).unwrap();
    assert_eq!(text.matches("max_tokens").count(), 1);
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&body["max_tokens"], &body["top_k"], &body["metadata"]), (&json!(99), &json!(5), &extra["metadata"]));

    let mut head = RequestHead { extra: Default::default(), ..(*request.head).clone() };
    head.extra.insert("messages".into(), json!([]));
    assert_eq!(encoded(head, vec![says("hi")])["messages"], json!([]));
}

#[test]
fn what_a_model_refuses_is_not_sent() {
    let tools: Arc<[ToolDefinition]> = Arc::new([ToolDefinition::new("a.b", "", json!({}))]);
    let with = |model: &str, thinking, choice: ToolChoice| {
        let head = RequestHead {
            model: model.into(),
            thinking,
            tool_choice: choice,
            tools: Arc::clone(&tools),
            temperature: Some(0.0),
            ..RequestHead::default()
        };
        encoded(head, vec![says("hi")])
    };
    let body = with("claude-sonnet-5-5", Some(ThinkingLevel::High), ToolChoice::Required);
    assert_eq!(body["thinking"], json!({"type": "adaptive"}));
    assert_eq!(body["output_config"], json!({"effort": "high"}));
    assert!(body.get("temperature").is_none() && body.get("tool_choice").is_none());

    let body = with("claude-haiku-4-5", Some(ThinkingLevel::Low), ToolChoice::Auto);
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 4096}));
    assert!(body.get("temperature").is_none() && body.get("tool_choice").is_none());

    let body = with("claude-haiku-4-5", Some(ThinkingLevel::Low), ToolChoice::Tool("a.b".into()));
    assert!(body.get("thinking").is_none());
    assert_eq!(body["tool_choice"], json!({"type": "tool", "name": body["tools"][0]["name"]}));
    assert_eq!(body["temperature"], json!(0.0));

    assert_eq!(with("claude-sonnet-5-5", None, ToolChoice::None)["tool_choice"], json!({"type": "none"}));
    assert!(with("claude-sonnet-5-5", None, ToolChoice::None).get("thinking").is_none());

    let newer = Wire::new("anthropic", "2026-10-21");
    let head = RequestHead { temperature: Some(0.0), ..head() };
    let body = encode(&newer, &ModelRequest::new(head, [says("hi")].into_iter().collect())).unwrap();
    assert!(!String::from_utf8_lossy(&body.bytes).contains("temperature"));
}

#[test]
fn results_lead_their_message_and_are_never_empty() {
    let turns = vec![
        says("go"),
        model(vec![SessionContentBlock::text("  "), call("A", "f", ""), call("B", "f", "{\"x\": 1}")]),
        user(vec![
            SessionContentBlock::text("notice 1"),
            result("A", "", false),
            SessionContentBlock::text("notice 2"),
            result("B", Vec::new(), true),
        ]),
    ];
    let expected = json!([
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "A", "name": "f", "input": {}},
            {"type": "tool_use", "id": "B", "name": "f", "input": {"x": 1}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "A", "content": "(no output)"},
            {"type": "tool_result", "tool_use_id": "B", "content": "(failed without a message)", "is_error": true},
            {"type": "text", "text": "notice 1"},
            {"type": "text", "text": "notice 2"},
        ]},
    ]);
    assert_eq!(messages(turns), expected);
}

#[test]
fn results_that_were_stored_apart_go_together() {
    let apart = ["a", "b", "c"].map(|id| user(vec![result(id, id, false)]));
    let calls = model(vec![call("a", "f", ""), call("b", "f", ""), call("c", "f", "")]);
    let sent = messages([vec![says("go"), calls], apart.to_vec(), vec![says("next")]].concat());
    assert_eq!(sent.as_array().unwrap().len(), 4);
    assert_eq!(sent[2]["content"].as_array().unwrap().len(), 3);
}

#[test]
fn broken_arguments_and_foreign_ids_and_names_become_legal() {
    let names = HashMap::from([("read_file".to_owned(), "Read".to_owned())]);
    let turn = model(vec![
        call("functions.f:0", "read_file", "{\"a\": tru"),
        call("ok", "removed tool", "[1]"),
        call("x", "f", "{\"a\" : 1 }"),
    ]);
    let results = user(vec![result("functions.f:0", "r", false)]);
    let head = RequestHead { names: Arc::new(ToolNames::new(names)), ..head() };
    let sent = encoded(head, vec![turn, results])["messages"].clone();
    let calls = &sent[0]["content"];
    assert_eq!(calls[0]["input"], json!({"INVALID_JSON": "{\"a\": tru"}));
    assert_eq!(calls[1]["input"], json!({"INVALID_JSON": "[1]"}));
    assert_eq!(calls[2]["input"], json!({"a": 1}));
    assert_eq!(calls[0]["name"], "Read");
    assert!(calls[1]["name"].as_str().unwrap().starts_with("removed_tool_"));
    assert_eq!(calls[0]["id"], sent[1]["content"][0]["tool_use_id"]);
    assert!(!calls[0]["id"].as_str().unwrap().contains(['.', ':']));
}

#[test]
fn reasoning_goes_back_only_signed_and_to_its_maker() {
    let thinking = |text: &str, signature, redacted| {
        SessionContentBlock::Thinking(ThinkingBlock { text: text.into(), signature, redacted, ..Default::default() })
    };
    let own = |value| signed(SignatureProducer::ANTHROPIC, value);
    let turn = model(vec![
        thinking("unsigned", None, false),
        thinking("", own("SIG"), false),
        thinking("", own("DATA"), true),
        thinking("foreign", signed(SignatureProducer::GEMINI, "G"), false),
        SessionContentBlock::text("hi"),
        thinking("last", own("SIG2"), false),
    ]);
    let expected = json!([
        {"type": "thinking", "thinking": "", "signature": "SIG"},
        {"type": "redacted_thinking", "data": "DATA"},
        {"type": "text", "text": "hi"},
    ]);
    assert_eq!(messages(vec![says("go"), turn.clone(), says("on")])[1]["content"], expected);
    let other = Wire::new("minimax", "2023-06-01");
    let body = encode(&other, &ModelRequest::new(head(), [turn].into_iter().collect())).unwrap();
    assert!(!String::from_utf8_lossy(&body.bytes).contains("SIG"));
}

#[test]
fn state_of_calls_and_texts_goes_back_where_it_is_wanted() {
    let text = |citation: &str| {
        let value = format!(r#"[{{"type":"{citation}","url":"u"}}]"#);
        let signature = signed(SignatureProducer::ANTHROPIC, &value);
        SessionContentBlock::Text(TextBlock { text: citation.into(), signature, ..Default::default() })
    };
    let mut by_code = ToolCallBlock { id: "t".into(), name: "f".into(), ..Default::default() };
    by_code.signature = signed(SignatureProducer::ANTHROPIC, r#"{"caller":{"type":"code","tool_id":"s"},"id":"evil"}"#);
    let turn =
        model(vec![text("web_search_result_location"), text("char_location"), SessionContentBlock::ToolCall(by_code)]);
    let content = messages(vec![says("go"), turn])[1]["content"].clone();
    assert_eq!(content[0]["citations"], json!([{"type": "web_search_result_location", "url": "u"}]));
    assert!(content[1].get("citations").is_none());
    let expected = json!({"type": "tool_use", "id": "t", "name": "f", "input": {},
        "caller": {"type": "code", "tool_id": "s"}});
    assert_eq!(content[2], expected);
}

#[test]
fn media_goes_natively_or_as_text() {
    let png = Media::new(None, MediaSource::Data("iVBORw0KGgoAAAAA".into()));
    let blob = |media_type: &str, data: &str| {
        let mut resource = Resource::new("file:///a", ResourceContent::Blob(data.into()));
        resource.media_type = Some(media_type.into());
        ToolResultContent::Resource(resource)
    };
    let output = vec![
        ToolResultContent::text("shot:"),
        ToolResultContent::Image(png.clone()),
        blob("application/octet-stream", "JVBERi0xLjcKAAAA"),
        blob("text/plain", "aGk="),
        ToolResultContent::text(" "),
    ];
    let sent = messages(vec![
        user(vec![
            SessionContentBlock::Image(png),
            SessionContentBlock::Image(Media::url("https://x.test/a.png")),
            SessionContentBlock::Document(Document::pdf("a.pdf", b"%PDF-1.7\n")),
            SessionContentBlock::Document(Document::text("a.md", "# A")),
        ]),
        model(vec![call("c", "f", "")]),
        user(vec![result("c", output, false)]),
    ]);
    let image = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgoAAAAA"}});
    let pdf = |data: &str, title: &str| {
        let source = json!({"type": "base64", "media_type": "application/pdf", "data": data});
        json!({"type": "document", "source": source, "title": title})
    };
    let expected = json!([
        image,
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        pdf("JVBERi0xLjcK", "a.pdf"),
        {"type": "text", "text": "[attachment: a.md (text/plain)]\n# A"},
    ]);
    assert_eq!(sent[0]["content"], expected);
    let expected = json!([
        {"type": "text", "text": "shot:"},
        image,
        pdf("JVBERi0xLjcKAAAA", "file:///a"),
        {"type": "text", "text": "hi"},
    ]);
    assert_eq!(sent[2]["content"][0]["content"], expected);
    let sound = vec![ToolResultContent::Audio(Media::base64("audio/wav", "AAAA"))];
    let sent = messages(vec![user(vec![result("c", sound, false)])]);
    assert_eq!(sent[0]["content"][0]["content"][0]["type"], "text");
}

#[test]
fn what_cannot_be_sent_is_named_before_it_is() {
    let provider = Anthropic::new("key").unwrap();
    let tiff = SessionContentBlock::Image(Media::base64("image/tiff", "AAAA"));
    let word = SessionContentBlock::Document(Document {
        name: Some("a.doc".into()),
        media: Media::base64("application/msword", "AAAA"),
    });
    let reference = SessionContentBlock::Image(Media::new(None, MediaSource::Ref("k".into())));
    let pdf = SessionContentBlock::Document(Document::pdf("a.pdf", b"%PDF-1.7\n"));
    for (model, block, what) in [
        ("claude-haiku-4-5", tiff.clone(), "block 1 (image, image/tiff)"),
        ("claude-haiku-4-5", word, "block 1 (document, application/msword)"),
        ("claude-haiku-4-5", reference, "block 1 (image, unresolved ref)"),
        ("deepseek-flash", pdf, "block 1 (document, application/pdf)"),
    ] {
        let error = provider.check(model, &[SessionContentBlock::text("x"), block]).unwrap_err();
        assert_eq!(error.kind, ProviderErrorKind::Unsupported);
        assert!(error.message.starts_with(what), "{error}");
    }
    assert!(provider.check("claude-haiku-4-5", &[SessionContentBlock::text("x")]).is_ok());
    let request = ModelRequest::new(head(), [says("a"), user(vec![tiff])].into_iter().collect());
    let error = encode(&wire(), &request).unwrap_err();
    assert!(error.message.starts_with("block 0 (image, image/tiff) of turn 1"), "{error}");
}

#[test]
fn a_server_call_without_result_goes_back_only_while_it_can_be_answered() {
    let paused = || model(vec![SessionContentBlock::text("Searching."), server_call("s1")]);
    let types = |turns: Vec<SessionTurn>, message: usize| -> Vec<String> {
        let sent = messages(turns);
        let blocks = sent[message]["content"].as_array().cloned().unwrap_or_default();
        blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    let kept = ["text", "server_tool_use"];
    assert_eq!(types(vec![says("go"), paused()], 1), kept);
    let resumed = model(vec![server_result("s1"), SessionContentBlock::text("Found.")]);
    assert_eq!(types(vec![says("go"), paused(), resumed.clone(), says("thanks")], 1), kept);
    assert_eq!(types(vec![says("go"), paused(), says("never mind")], 1), ["text"]);
    let mixed = model(vec![server_call("s1"), call("t", "f", "")]);
    let answered = user(vec![result("t", "r", false)]);
    let kept = ["server_tool_use", "tool_use"];
    assert_eq!(types(vec![says("go"), mixed.clone(), answered.clone()], 1), kept);
    assert_eq!(types(vec![says("go"), mixed.clone(), answered.clone(), resumed], 1), kept);
    assert_eq!(types(vec![says("go"), mixed, answered, says("stop")], 1), ["tool_use"]);
    // Nothing else was in the turn: no message at all.
    assert_eq!(messages(vec![says("go"), model(vec![server_call("s1")]), says("x")]).as_array().unwrap().len(), 2);
}

#[test]
fn a_paused_turn_is_resumed_by_what_it_waits_for() {
    let provider = Anthropic::new("key").unwrap();
    let waiting = model(vec![server_call("s1")]);
    assert_eq!(provider.resume(&waiting), Resume::AsIs);
    let done = model(vec![server_call("s1"), server_result("s1")]);
    assert_eq!(provider.resume(&done), Resume::UserText);
    let usage = TurnUsage { raw_finish_reason: Some("compaction".into()), ..TurnUsage::default() };
    assert_eq!(provider.resume(&SessionTurn { usage: Some(usage.into()), ..done }), Resume::AsIs);
}

#[test]
fn after_a_fallback_what_stood_before_it_is_void() {
    let own = signed(SignatureProducer::ANTHROPIC, "SIG");
    let turn = model(vec![
        SessionContentBlock::Thinking(ThinkingBlock { signature: own, ..Default::default() }),
        SessionContentBlock::text("first"),
        call("old", "f", ""),
        opaque(json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}})),
        call("new", "f", ""),
    ]);
    let results = user(vec![result("old", "1", false), result("new", "2", false)]);
    let sent = messages(vec![says("go"), turn, results]);
    let types: Vec<_> = sent[1]["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(types, ["text", "fallback", "tool_use"]);
    assert_eq!(sent[2]["content"].as_array().unwrap().len(), 1);
}

/// Sends the conversation as it grows, each time from the cache and from scratch; the messages of a request must be
/// the beginning of the next one's. Returns whether each request kept the buffer of the one before.
fn grow(turns: &[SessionTurn]) -> Vec<bool> {
    let mut request = ModelRequest::new(head(), History::new());
    let mut before: Option<(usize, Vec<u8>)> = None;
    let mut kept = Vec::new();
    for turn in turns {
        request.history.push(Arc::new(HistoryTurn::new(turn.clone())));
        // The bytes are given up before the next request, as HTTP does; a buffer that is still in use is copied.
        let (address, cached) = {
            let bytes = bytes(&request);
            (bytes.as_ptr() as usize, bytes.to_vec())
        };
        let fresh = ModelRequest { body_cache: Arc::default(), ..request.clone() };
        assert_eq!(cached, bytes(&fresh));
        assert_eq!(cached, bytes(&request), "a retry sends the same");
        if let Some((before, earlier)) = &before {
            let messages = &earlier[..earlier.len() - 2];
            assert!(cached.starts_with(messages), "{}", String::from_utf8_lossy(&cached));
            kept.push(*before == address);
        }
        before = Some((address, cached));
    }
    kept
}

#[test]
fn a_growing_conversation_is_appended_to_in_place() {
    let mut turns = vec![says(&"long ".repeat(5_000))];
    for at in 0..20 {
        let id = format!("c{at}");
        turns.push(model(vec![call(&id, "f", "{}")]));
        turns.push(user(vec![result(&id, "r", false)]));
    }
    let kept = grow(&turns);
    assert!(kept.iter().filter(|kept| **kept).count() > kept.len() / 2, "{kept:?}");
}

#[test]
fn a_cut_or_paused_turn_is_not_kept_before_it_is_settled() {
    let mut cut = model(vec![SessionContentBlock::text("Sear"), server_call("s1"), SessionContentBlock::text("ching")]);
    cut.interrupted = true;
    let refused =
        SessionTurn { finish_reason: Some(TurnFinishReason::ContentFilter), ..model(vec![call("r", "f", "")]) };
    let mut request = ModelRequest::new(head(), History::new());
    let turns = [
        says("go"),
        cut,
        says("again"),
        model(vec![server_call("s2")]),
        says("so?"),
        refused,
        says("ok"),
        model(vec![]),
    ];
    for turn in turns {
        request.history.push(Arc::new(HistoryTurn::new(turn)));
        let cached = bytes(&request);
        assert_eq!(cached, bytes(&ModelRequest { body_cache: Arc::default(), ..request.clone() }));
    }
    let sent = String::from_utf8(bytes(&request).to_vec()).unwrap();
    assert!(!sent.contains("server_tool_use") && !sent.contains("tool_use"));
}

#[test]
fn a_changed_head_is_encoded_anew() {
    let mut request = ModelRequest::new(head(), [says("hi")].into_iter().collect());
    let first = bytes(&request);
    request.head = Arc::new(RequestHead { max_tokens: Some(5), ..head() });
    let second: Value = serde_json::from_slice(&bytes(&request)).unwrap();
    assert_eq!(second["max_tokens"], 5);
    request.head = Arc::new(head());
    assert_eq!(bytes(&request), first);
}

#[test]
fn no_more_tools_are_strict_than_the_api_takes() {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let strict =
        |number| ToolDefinition { strict: true, ..ToolDefinition::new(format!("t{number}"), "", schema.clone()) };
    let head = RequestHead { tools: (0..30).map(strict).collect(), ..head() };
    let body = encoded(head, vec![says("go")]);
    let strict = body["tools"].as_array().unwrap().iter().filter(|tool| tool["strict"] == true);
    assert_eq!(strict.count(), 20);
}

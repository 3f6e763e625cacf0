use std::collections::HashMap;

use super::*;
use crate::provider::{History, HistoryTurn, ThinkingLevel, ToolNames};
use crate::types::{
    Document, Media, Role, SessionContentBlock, SessionTurn, Signature, SignatureProducer, TextBlock, ThinkingBlock,
    ToolCallBlock, ToolResultBlock, ToolResultBody, ToolResultContent, ToolStatus, TurnOrigin,
};

const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAA";
const PDF: &str = "JVBERi0xLjcK";

fn user(blocks: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("u", Role::User, TurnOrigin::Prompt, blocks)
}

fn assistant(blocks: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, blocks)
}

fn text(text: &str) -> SessionContentBlock {
    SessionContentBlock::text(text)
}

fn call(id: &str, arguments: &str) -> SessionContentBlock {
    let call = ToolCallBlock { id: id.into(), name: "f".into(), arguments: arguments.into(), ..Default::default() };
    SessionContentBlock::ToolCall(call)
}

fn result(id: &str, output: impl Into<ToolResultBody>) -> SessionContentBlock {
    SessionContentBlock::ToolResult(ToolResultBlock {
        call_id: id.into(),
        name: "f".into(),
        input: None,
        output: output.into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Default::default(),
    })
}

fn thinking(text: &str, signature: Option<(&'static str, &str, &str)>) -> SessionContentBlock {
    let signature = signature.map(|(producer, model, value)| Signature {
        producer: SignatureProducer::new(producer),
        model: model.into(),
        value: value.into(),
    });
    SessionContentBlock::Thinking(ThinkingBlock { text: text.into(), signature, ..Default::default() })
}

fn head() -> RequestHead {
    RequestHead { model: "m".into(), ..Default::default() }
}

fn raw(profile: &ChatProfile, head: RequestHead, turns: Vec<SessionTurn>) -> Result<Bytes, ProviderError> {
    body(profile, "w", &ModelRequest::new(head, turns.into_iter().collect()))
}

fn sent(profile: &ChatProfile, head: RequestHead, turns: Vec<SessionTurn>) -> Value {
    serde_json::from_slice(&raw(profile, head, turns).unwrap()).unwrap()
}

fn messages(profile: &ChatProfile, turns: Vec<SessionTurn>) -> Value {
    sent(profile, head(), turns)["messages"].clone()
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, "does it", json!({"type": "object"}))
}

#[test]
fn a_plain_request() {
    let head = RequestHead { system: Some("be kind".into()), max_tokens: Some(9), temperature: Some(0.5), ..head() };
    let turns = vec![user(vec![text("hi")]), assistant(vec![text("a"), text("b")]), user(vec![text("x"), text("y")])];
    assert_eq!(
        sent(&ChatProfile::custom(""), head, turns),
        json!({
            "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9, "temperature": 0.5,
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                {"role": "assistant", "content": "ab"},
                {"role": "user", "content": "x\n\ny"},
            ],
        })
    );
}

#[test]
fn vendors_differ_in_their_head() {
    let head = RequestHead {
        model: "gpt-5".into(),
        system: Some("s".into()),
        max_tokens: Some(9),
        temperature: Some(0.5),
        thinking: Some(ThinkingLevel::Low),
        ..head()
    };
    let openai = sent(&ChatProfile::openai(), head.clone(), vec![]);
    assert_eq!(openai["stream_options"], json!({"include_usage": true, "include_obfuscation": false}));
    assert_eq!((&openai["max_completion_tokens"], &openai["reasoning_effort"]), (&json!(9), &json!("low")));
    assert_eq!(openai.get("temperature"), None, "refused by this model");
    assert_eq!(openai["messages"][0]["role"], "developer");
    let mistral = sent(&ChatProfile::mistral(), head.clone(), vec![]);
    assert_eq!((mistral.get("stream_options"), &mistral["max_tokens"]), (None, &json!(9)));
    let openrouter = ChatProfile::openrouter();
    let cached = |model: &str| {
        let head = RequestHead { model: model.into(), cache: true, ..head.clone() };
        sent(&openrouter, head, vec![]).get("cache_control").is_some()
    };
    assert!(cached("anthropic/claude-x") && !cached("openai/gpt-5"));
    let unset = RequestHead { thinking: None, ..head };
    assert_eq!(sent(&ChatProfile::openai(), unset, vec![]).get("reasoning_effort"), None);
}

#[test]
fn extra_wins_and_no_key_is_written_twice() {
    let mut head = RequestHead { max_tokens: Some(9), temperature: Some(0.5), ..head() };
    head.extra = json!({"temperature": 1, "stream": false, "max_completion_tokens": 3, "odd \"key\"": [1]})
        .as_object()
        .unwrap()
        .clone();
    let bytes = raw(&ChatProfile::custom(""), head, vec![user(vec![text("hi")])]).unwrap();
    let wire = std::str::from_utf8(&bytes).unwrap();
    for key in ["temperature", "\"stream\"", "_tokens"] {
        assert_eq!(wire.matches(key).count(), 1, "{wire}");
    }
    let sent: Value = serde_json::from_str(wire).unwrap();
    assert_eq!((&sent["temperature"], &sent["stream"], &sent["odd \"key\""]), (&json!(1), &json!(false), &json!([1])));
    assert_eq!(sent.get("stream_options"), None, "not allowed without streaming");
    let own = RequestHead { extra: json!({"messages": []}).as_object().unwrap().clone(), ..self::head() };
    assert_eq!(self::sent(&ChatProfile::custom(""), own, vec![user(vec![text("hi")])])["messages"], json!([]));
}

#[test]
fn tools_and_choices() {
    let names = ToolNames::new(HashMap::from([("read".to_owned(), "Read".to_owned())]));
    let closed = json!({"type": "object", "properties": {}, "additionalProperties": false, "required": []});
    let strict = ToolDefinition { strict: true, ..ToolDefinition::new("mcp/list", "does it", closed.clone()) };
    let head = RequestHead {
        tools: [tool("read"), strict].into(),
        names: Arc::new(names),
        tool_choice: ToolChoice::Tool("read".into()),
        ..head()
    };
    let wire_name = NameRule::PORTABLE.wire_name("mcp/list").into_owned();
    let openai = sent(&ChatProfile::openai(), head.clone(), vec![]);
    assert_eq!(
        openai["tools"],
        json!([
            {"type": "function", "function": {"name": "Read", "description": "does it", "parameters": {"type": "object", "properties": {}}}},
            {"type": "function", "function": {"name": wire_name, "description": "does it", "parameters": closed, "strict": true}},
        ])
    );
    assert_eq!(openai["tool_choice"], json!({"type": "function", "function": {"name": "Read"}}));
    assert_eq!(sent(&ChatProfile::groq(), head.clone(), vec![])["tools"][1]["function"].get("strict"), None);
    let ollama = sent(&ChatProfile::ollama(), head.clone(), vec![]);
    assert_eq!((ollama.get("tool_choice"), ollama["tools"].as_array().unwrap().len()), (None, 2));
    let none = RequestHead { tool_choice: ToolChoice::None, ..head };
    assert_eq!(sent(&ChatProfile::ollama(), none.clone(), vec![]).get("tools"), None);
    assert_eq!(sent(&ChatProfile::openai(), none, vec![])["tool_choice"], "none");
}

#[test]
fn schemas_are_lowered_where_the_vendor_refuses_them() {
    let schema =
        json!({"oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]});
    let definition = ToolDefinition { strict: true, ..ToolDefinition::new("either", "", schema.clone()) };
    let head = RequestHead { tools: [definition].into(), ..head() };
    let function = |profile: &ChatProfile| sent(profile, head.clone(), vec![])["tools"][0]["function"].clone();
    for profile in [ChatProfile::openai(), ChatProfile::openrouter()] {
        let function = function(&profile);
        let parameters = &function["parameters"];
        assert_eq!((&parameters["type"], parameters.get("oneOf")), (&json!("object"), None));
        assert_eq!(parameters["properties"], json!({"a": {"type": "string"}, "b": {"type": "string"}}));
        assert!(parameters["description"].as_str().unwrap().starts_with("oneOf: "));
        assert_eq!(function.get("strict"), None, "strict mode takes no alternatives");
    }
    assert_eq!(function(&ChatProfile::groq())["parameters"]["oneOf"], schema["oneOf"]);
}

#[test]
fn calls_and_results() {
    let mut failed = result("c3", "");
    if let SessionContentBlock::ToolResult(result) = &mut failed {
        result.is_error = true;
        result.status = ToolStatus::Error;
    }
    let turns = vec![
        user(vec![text("go")]),
        assistant(vec![text(" "), call("c1", "{\"a\": 1}"), call("c2", ""), call("c3", "{\"a")]),
        user(vec![result("c1", "one"), result("c2", Vec::new()), failed]),
    ];
    let function = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    assert_eq!(
        messages(&ChatProfile::openai(), turns.clone()),
        json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": null, "tool_calls": [
                function("c1", "{\"a\": 1}"), function("c2", "{}"), function("c3", "{\"INVALID_JSON\":\"{\\\"a\"}"),
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "(no output)"},
            {"role": "tool", "tool_call_id": "c3", "content": "(failed without a message: error)"},
        ])
    );
    let mistral = messages(&ChatProfile::mistral(), turns);
    let id = mistral[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!(id.len(), 9);
    assert_eq!((&mistral[2]["tool_call_id"], &mistral[2]["name"]), (&json!(id), &json!("f")));
}

#[test]
fn media_of_results_follow_after_all_results() {
    let image = || ToolResultContent::Image(Media::base64("image/png", PNG));
    let turns = vec![
        assistant(vec![call("c1", ""), call("c2", "")]),
        user(vec![result("c1", vec![ToolResultContent::text("shot:"), image()]), result("c2", "a.txt")]),
        user(vec![text("and?")]),
    ];
    let url = format!("data:image/png;base64,{PNG}");
    let sent = messages(&ChatProfile::openai(), turns.clone());
    assert_eq!(sent[1]["content"], "shot:\n[attachment 1 follows in the next message]");
    assert_eq!(sent[2]["content"], "a.txt");
    assert_eq!(sent[3]["role"], "user");
    assert_eq!(sent[3]["content"][1], json!({"type": "image_url", "image_url": {"url": url}}));
    assert_eq!(sent[4], json!({"role": "user", "content": "and?"}));
    let inline = messages(&ChatProfile::xai(), turns.clone());
    assert_eq!(inline[1]["content"][1], json!({"type": "image_url", "image_url": {"url": url}}));
    assert_eq!(inline.as_array().unwrap().len(), 4);
    let blind = messages(&ChatProfile::deepseek(), turns);
    assert_eq!(blind[1]["content"], "shot:\n[image left out: this model takes no images]");
    let lone = vec![assistant(vec![call("c1", "")]), user(vec![result("c1", vec![image()])])];
    assert_eq!(messages(&ChatProfile::openai(), lone)[1]["content"], "[attachment 1 follows in the next message]");
}

#[test]
fn results_in_several_turns_stay_together() {
    let image = ToolResultContent::Image(Media::base64("image/png", PNG));
    let turns = vec![
        assistant(vec![call("c1", ""), call("c2", "")]),
        user(vec![result("c1", vec![image])]),
        user(vec![result("c2", "two")]),
    ];
    let sent = messages(&ChatProfile::openai(), turns);
    let roles: Vec<_> = sent.as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["assistant", "tool", "tool", "user"]);
}

#[test]
fn documents_are_given_as_the_vendor_takes_them() {
    let pdf = || {
        SessionContentBlock::Document(Document {
            name: Some("a.pdf".into()),
            media: Media::base64("application/pdf", PDF),
        })
    };
    let url = format!("data:application/pdf;base64,{PDF}");
    let sent = messages(&ChatProfile::openai(), vec![user(vec![text("sum up"), pdf()])]);
    let file = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}});
    assert_eq!(sent[0]["content"], json!([{"type": "text", "text": "sum up"}, file]));
    let sent = messages(&ChatProfile::mistral(), vec![user(vec![pdf()])]);
    assert_eq!(sent[0]["content"][0], json!({"type": "document_url", "document_url": url, "document_name": "a.pdf"}));
    let note = SessionContentBlock::Document(Document::text("n.md", "# N"));
    let sent = messages(&ChatProfile::groq(), vec![user(vec![note, text("sum up")])]);
    assert_eq!(sent[0]["content"], "[attachment: n.md (text/plain)]\n# N\n\nsum up");
    let error =
        raw(&ChatProfile::groq(), head(), vec![user(vec![text("hi")]), user(vec![text(" "), pdf()])]).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unsupported);
    assert!(error.message.contains("part 1 of turn 1 (document)"), "{}", error.message);
}

#[test]
fn reasoning_goes_back_as_the_vendor_wants_it() {
    let with_call = || assistant(vec![thinking("hm", None), text("x"), call("c", "")]);
    let without = || assistant(vec![thinking("hm", None), text("x")]);
    let lost = || assistant(vec![text("x"), call("c", "")]);
    let echoed =
        |profile: &ChatProfile, turn: SessionTurn, field: &str| messages(profile, vec![turn])[0].get(field).cloned();
    let hm = Some(json!("hm"));
    let deepseek = ChatProfile::deepseek();
    assert_eq!(echoed(&deepseek, with_call(), "reasoning_content"), hm);
    assert_eq!(echoed(&deepseek, without(), "reasoning_content"), None);
    assert_eq!(echoed(&deepseek, lost(), "reasoning_content"), Some(json!("")), "refused without the field");
    assert_eq!(echoed(&ChatProfile::zai(), without(), "reasoning_content"), hm);
    assert_eq!(echoed(&ChatProfile::vllm(), with_call(), "reasoning"), hm);
    assert_eq!(echoed(&ChatProfile::moonshot(), lost(), "reasoning_content"), Some(json!(" ")));
    assert_eq!(echoed(&ChatProfile::vllm(), lost(), "reasoning"), None);
    for profile in [ChatProfile::openai(), ChatProfile::openrouter(), ChatProfile::custom("")] {
        let message = messages(&profile, vec![with_call()])[0].clone();
        assert_eq!(message.as_object().unwrap().keys().collect::<Vec<_>>(), ["content", "role", "tool_calls"]);
    }
    let mistral = messages(&ChatProfile::mistral(), vec![without()]);
    let part = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    assert_eq!(mistral[0]["content"], json!([part, {"type": "text", "text": "x"}]));
    let foreign = assistant(vec![thinking("hm", Some(("anthropic", "m", "S"))), text("x"), call("c", "")]);
    assert_eq!(echoed(&ChatProfile::vllm(), foreign, "reasoning"), None);
    let only = assistant(vec![thinking("hm", None)]);
    assert_eq!(messages(&ChatProfile::zai(), vec![only]), json!([]), "nothing was said");
}

#[test]
fn signed_state_goes_back_to_its_vendor_alone() {
    let details = r#"[{"type":"reasoning.encrypted","data":"E"}]"#;
    let turn = |producer, model| assistant(vec![thinking("", Some((producer, model, details))), text("x")]);
    let sent = |turn| messages(&ChatProfile::openrouter(), vec![turn])[0].get("reasoning_details").cloned();
    assert_eq!(sent(turn("openrouter", "m")), Some(json!([{"type": "reasoning.encrypted", "data": "E"}])));
    assert_eq!(sent(turn("openrouter", "other")), None, "made for another model");
    assert_eq!(sent(turn("vercel-gateway", "m")), None);
    assert_eq!(sent(assistant(vec![thinking("", Some(("openrouter", "m", "[broken"))), text("x")])), None);
    let signature = || {
        Some(Signature { producer: SignatureProducer::new("google"), model: "m".into(), value: r#"{"g":1}"#.into() })
    };
    let call = ToolCallBlock { id: "c".into(), name: "f".into(), signature: signature(), ..Default::default() };
    let text = TextBlock { signature: signature(), ..Default::default() };
    let turn = assistant(vec![SessionContentBlock::Text(text), SessionContentBlock::ToolCall(call)]);
    let google = messages(&ChatProfile::google(), vec![turn.clone()]);
    assert_eq!(
        (&google[0]["extra_content"], &google[0]["tool_calls"][0]["extra_content"]),
        (&json!({"g": 1}), &json!({"g": 1}))
    );
    assert_eq!(messages(&ChatProfile::openai(), vec![turn])[0].get("extra_content"), None);
}

#[test]
fn a_conversation_is_encoded_once_and_only_grows() {
    let profile = ChatProfile::openai();
    let image = ToolResultContent::Image(Media::base64("image/png", PNG));
    let turns = [
        user(vec![text("go")]),
        assistant(vec![call("c1", "")]),
        user(vec![result("c1", vec![image])]),
        assistant(vec![text("I see")]),
        user(vec![text("more")]),
    ];
    let mut request = ModelRequest::new(RequestHead { system: Some("s".into()), ..head() }, History::new());
    let mut before: Option<Vec<u8>> = None;
    for turn in turns {
        request.history.push(Arc::new(HistoryTurn::new(turn)));
        let bytes = body(&profile, "w", &request).unwrap();
        let fresh = ModelRequest { body_cache: Arc::default(), ..request.clone() };
        assert_eq!(bytes, body(&profile, "w", &fresh).unwrap());
        if let Some(before) = before {
            assert!(bytes.starts_with(&before[..before.len() - TAIL.len()]));
        }
        let again = body(&profile, "w", &request).unwrap();
        assert_eq!(bytes, again, "a retry sends the same");
        before = Some(bytes.to_vec());
    }
    let place = body(&profile, "w", &request).unwrap().as_ptr();
    assert_eq!(body(&profile, "w", &request).unwrap().as_ptr(), place, "the buffer is written on");
    let kept = request.body_cache.take("w", &request.head, &request.history).unwrap();
    assert_eq!(kept.turns, 5);
    assert!(kept.bytes.try_into_mut().is_ok(), "nothing else holds the buffer");
    assert!(request.body_cache.take("other", &request.head, &request.history).is_none());
}

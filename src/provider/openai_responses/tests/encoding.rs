use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::{OpenAi, ResponsesProfile, request};
use crate::provider::{
    History, HistoryTurn, ModelRequest, Provider as _, ProviderErrorKind, RequestHead, ThinkingLevel, ToolChoice,
    ToolDefinition, ToolNames,
};
use crate::types::{
    Document, Media, MediaSource, OpaqueBlock, Resource, ResourceContent, Role, SessionContentBlock, SessionTurn,
    Signature, SignatureProducer, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock, ToolResultBody,
    ToolResultContent, ToolStatus, TurnFinishReason, TurnOrigin,
};

const OWN: SignatureProducer = SignatureProducer::OPENAI_RESPONSES;
const MODEL: &str = "gpt-5.5";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUg==";
const PDF: &str = "JVBERi0xLjcKJeLjz9M=";

fn head() -> RequestHead {
    RequestHead { model: MODEL.into(), ..RequestHead::default() }
}

fn bytes(profile: &ResponsesProfile, request: &ModelRequest) -> Bytes {
    request::body(profile, "test", request).unwrap()
}

fn encoded(profile: &ResponsesProfile, head: RequestHead, turns: Vec<SessionTurn>) -> Value {
    let request = ModelRequest::new(head, turns.into_iter().collect());
    serde_json::from_slice(&bytes(profile, &request)).unwrap()
}

fn body(head: RequestHead) -> Value {
    encoded(&ResponsesProfile::openai(), head, vec![says("hi")])
}

fn input(turns: Vec<SessionTurn>) -> Value {
    input_of(&ResponsesProfile::openai(), turns)
}

fn input_of(profile: &ResponsesProfile, turns: Vec<SessionTurn>) -> Value {
    encoded(profile, head(), turns)["input"].clone()
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

fn own(value: impl ToString) -> Option<Signature> {
    Some(Signature::new(OWN, MODEL, value.to_string()))
}

fn text(text: &str, signature: Option<Signature>) -> SessionContentBlock {
    SessionContentBlock::Text(TextBlock { text: text.into(), signature, ..TextBlock::default() })
}

fn thinking(signature: Option<Signature>) -> SessionContentBlock {
    SessionContentBlock::Thinking(ThinkingBlock { text: "hm".into(), signature, ..ThinkingBlock::default() })
}

fn reasoning_item() -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA+/=="})
}

fn reasoning() -> SessionContentBlock {
    thinking(own(reasoning_item()))
}

fn call(arguments: &str, signature: Option<Signature>) -> SessionContentBlock {
    let (id, name, arguments) = ("call_1".into(), "ls".into(), arguments.into());
    SessionContentBlock::ToolCall(ToolCallBlock { id, name, arguments, signature, ..ToolCallBlock::default() })
}

fn result(output: impl Into<ToolResultBody>) -> SessionTurn {
    user(vec![SessionContentBlock::ToolResult(ToolResultBlock {
        call_id: "call_1".into(),
        name: "ls".into(),
        input: None,
        output: output.into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Default::default(),
    })])
}

fn opaque(value: Value) -> SessionContentBlock {
    SessionContentBlock::Opaque(OpaqueBlock::new(OWN, MODEL, value))
}

fn prompt(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": text})
}

fn answer(text: &str) -> Value {
    json!({"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function_call() -> Value {
    json!({"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": "{}"})
}

fn function_output(output: Value) -> Value {
    json!({"type": "function_call_output", "call_id": "call_1", "output": output})
}

#[test]
fn a_request_holds_what_the_head_says_and_nothing_else() {
    let mut head = head();
    head.system = Some("Be brief.".into());
    head.tools = Arc::new([ToolDefinition::new("ls", "Lists.", json!({"type": "object"}))]);
    head.stop_sequences = vec!["END".into()];
    head.temperature = Some(0.5);
    head.max_tokens = Some(5);
    head.cache = true;
    let expected = json!({
        "model": MODEL, "stream": true, "stream_options": {"include_obfuscation": false}, "store": false,
        "include": ["reasoning.encrypted_content"], "instructions": "Be brief.", "max_output_tokens": 16,
        "tools": [{"type": "function", "name": "ls", "description": "Lists.", "strict": false,
            "parameters": {"type": "object", "properties": {}}}],
        "input": [prompt("hi")],
    });
    assert_eq!(body(head.clone()), expected);
    // A model that does not reason takes a temperature and refuses the wish for its reasoning.
    head.model = "gpt-4.1".into();
    let plain = body(head);
    assert_eq!((&plain["include"], &plain["temperature"]), (&Value::Null, &json!(0.5)));
}

#[test]
fn thinking_and_tool_choice_are_what_the_model_takes() {
    let at = |model: &str, level: ThinkingLevel| {
        body(RequestHead { model: model.into(), thinking: Some(level), ..head() })["reasoning"].clone()
    };
    assert_eq!(at("gpt-5.5", ThinkingLevel::High), json!({"effort": "high", "summary": "auto"}));
    assert_eq!(at("gpt-5.5", ThinkingLevel::Off), json!({"effort": "none"}));
    assert_eq!(at("gpt-4.1", ThinkingLevel::High), Value::Null);
    assert_eq!(body(head())["reasoning"], Value::Null);
    let choice = |profile: &ResponsesProfile, tool_choice: ToolChoice| {
        let tools = Arc::new([ToolDefinition::new("ls", "", json!({}))]);
        encoded(profile, RequestHead { tools, tool_choice, ..head() }, vec![says("hi")])
    };
    let openai = ResponsesProfile::openai();
    assert_eq!(choice(&openai, ToolChoice::Auto)["tool_choice"], Value::Null);
    assert_eq!(choice(&openai, ToolChoice::Required)["tool_choice"], "required");
    let one = choice(&openai, ToolChoice::Tool("ls".into()));
    assert_eq!(one["tool_choice"], json!({"type": "function", "name": "ls"}));
    let none = choice(&ResponsesProfile::ollama(), ToolChoice::None);
    assert_eq!((&none["tools"], &none["tool_choice"]), (&Value::Null, &Value::Null));
    assert_eq!(choice(&ResponsesProfile::ollama(), ToolChoice::Required)["tool_choice"], Value::Null);
}

#[test]
fn strict_is_asked_for_where_the_schema_allows_it() {
    let closed = json!({"type": "object", "properties": {}, "additionalProperties": false, "required": []});
    let strict = |schema: Value, profile: &ResponsesProfile| {
        let tool = ToolDefinition { strict: true, ..ToolDefinition::new("ls", "", schema) };
        encoded(profile, RequestHead { tools: Arc::new([tool]), ..head() }, vec![says("hi")])["tools"][0]["strict"]
            .clone()
    };
    assert_eq!(strict(closed.clone(), &ResponsesProfile::openai()), true);
    assert_eq!(strict(json!({"type": "object"}), &ResponsesProfile::openai()), false);
    assert_eq!(strict(closed, &ResponsesProfile::llama_cpp()), Value::Null);
}

#[test]
fn the_hosts_own_fields_win() {
    let mut head = head();
    head.extra.insert("store".into(), true.into());
    head.extra.insert("include".into(), json!([]));
    head.extra.insert("text".into(), json!({"verbosity": "low"}));
    let sent = body(head.clone());
    assert_eq!(
        (&sent["store"], &sent["include"], &sent["text"]["verbosity"]),
        (&json!(true), &json!([]), &json!("low"))
    );
    head.extra.insert("input".into(), json!("raw"));
    assert_eq!(body(head)["input"], "raw");
}

#[test]
fn codex_takes_no_limit_and_azure_no_other_name() {
    let head = RequestHead { max_tokens: Some(100), temperature: Some(0.1), ..head() };
    let sent = encoded(&ResponsesProfile::codex(), head, vec![says("hi")]);
    assert_eq!((&sent["max_output_tokens"], &sent["temperature"]), (&Value::Null, &Value::Null));
    assert_eq!(ResponsesProfile::azure("").producer().as_str(), "openai-responses/azure-openai");
}

#[test]
fn output_items_go_back_as_they_came() {
    let mut item = reasoning_item();
    item["status"] = Value::Null;
    item["content"] = json!([]);
    let state = json!({"id": "fc_1", "namespace": "ns"});
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": [1, null]}});
    let commentary = json!({"id": "msg_1", "phase": "commentary", "annotations": [{"type": "url_citation"}]});
    let turn = model(vec![
        thinking(own(&item)),
        opaque(search.clone()),
        text("Let me look.", own(commentary)),
        reasoning(),
        call(" {\"a\": 1}", own(state)),
    ]);
    let sent = input(vec![says("hi"), turn, result("a.txt")]);
    let expected = json!([
        prompt("hi"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA+/=="},
        search,
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": [{"type": "url_citation"}]}]},
        reasoning_item(),
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "ls", "arguments": " {\"a\": 1}",
            "namespace": "ns"},
        function_output("a.txt".into()),
    ]);
    assert_eq!(sent, expected);
}

#[test]
fn encrypted_reasoning_stays_as_it_is_byte_for_byte() {
    let item = r#"{"type":"reasoning","id":"rs_1","summary":[{"type": "summary_text","text":"é"}],"encrypted_content":"a\/b+=="}"#;
    let turn = model(vec![thinking(own(item)), text("x", None)]);
    let sent = bytes(&ResponsesProfile::openai(), &ModelRequest::new(head(), [says("hi"), turn].into_iter().collect()));
    let sent = std::str::from_utf8(&sent).unwrap();
    assert!(sent.contains(r#""encrypted_content":"a\/b+==""#), "{sent}");
    assert!(sent.contains(r#""summary":[{"type": "summary_text","text":"é"}]"#), "{sent}");
}

#[test]
fn parts_of_one_message_go_back_together() {
    let part = json!({"type": "message", "id": "m", "role": "assistant", "content": [{"type": "future_part"}]});
    let id = || own(json!({"id": "m"}));
    let turn = model(vec![
        text("a", id()),
        opaque(part),
        text("b", own(json!({"id": "m", "refusal": true}))),
        text("c", own(json!({"id": "n"}))),
        text("d", None),
        text("e", None),
        text(" ", id()),
    ]);
    let sent = input(vec![says("hi"), turn]);
    let kinds = |at: usize| {
        let parts = sent[at]["content"].as_array().unwrap().iter();
        parts.map(|part| part["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sent.as_array().unwrap().len(), 4);
    assert_eq!(
        (&sent[1]["id"], kinds(1)),
        (&json!("m"), vec!["output_text".into(), "future_part".into(), "refusal".into()])
    );
    assert_eq!((&sent[2]["id"], &sent[3]["id"]), (&json!("n"), &Value::Null));
    assert_eq!((kinds(3).len(), &sent[3]["status"]), (2, &Value::Null));
}

#[test]
fn another_model_gets_neither_reasoning_nor_ids() {
    let state = || json!({"id": "fc_1", "namespace": "ns"});
    let phase = || json!({"id": "msg_1", "phase": "commentary"});
    let search = json!({"type": "web_search_call", "id": "ws_1"});
    let found = json!({"type": "tool_search_call", "id": "ts_1", "call_id": "c", "execution": "server"});
    let mut turn =
        model(vec![reasoning(), opaque(search), opaque(found), text("x", own(phase())), call("{}", own(state()))]);
    for block in &mut turn.content {
        match block {
            SessionContentBlock::Text(block) => block.signature.as_mut().unwrap().model = "gpt-5".into(),
            SessionContentBlock::Thinking(block) => block.signature.as_mut().unwrap().model = "gpt-5".into(),
            SessionContentBlock::ToolCall(block) => block.signature.as_mut().unwrap().model = "gpt-5".into(),
            _ => {}
        }
    }
    let mut said = answer("x");
    said["phase"] = "commentary".into();
    let mut called = function_call();
    called["namespace"] = "ns".into();
    let found = json!({"type": "tool_search_call", "call_id": "c", "execution": "server"});
    let expected = json!([prompt("hi"), found, said, called, function_output("ok".into())]);
    assert_eq!(input(vec![says("hi"), turn, result("ok")]), expected);
}

#[test]
fn what_others_signed_stays_here() {
    let foreign = |value: &str| Some(Signature::new(SignatureProducer::ANTHROPIC, MODEL, value));
    let elsewhere =
        SessionContentBlock::Opaque(OpaqueBlock::new(SignatureProducer::ANTHROPIC, MODEL, json!({"type": "x"})));
    let turn = model(vec![
        thinking(foreign("sig")),
        thinking(None),
        elsewhere,
        text("x", foreign(r#"{"id":"msg_1"}"#)),
        call("", foreign(r#"{"id":"fc_1","type":"custom_tool_call"}"#)),
    ]);
    let expected = json!([prompt("hi"), answer("x"), function_call(), function_output("ok".into())]);
    assert_eq!(input(vec![says("hi"), turn, result("ok")]), expected);
}

#[test]
fn an_item_whose_reasoning_is_lost_goes_without_its_id() {
    let turn = model(vec![thinking(None), call("{}", own(r#"{"id":"fc_1"}"#))]);
    assert_eq!(input(vec![says("hi"), turn, result("ok")])[1], function_call());
    // Encrypted content by itself is enough.
    let turn = model(vec![thinking(own("ENC_1")), call("{}", None)]);
    let summary = json!([{"type": "summary_text", "text": "hm"}]);
    let expected = json!({"type": "reasoning", "summary": summary, "encrypted_content": "ENC_1"});
    assert_eq!(input(vec![says("hi"), turn, result("ok")])[1], expected);
    // Reasoning in the open is not taken back, unless the vendor says so.
    let open =
        json!({"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]});
    let turn = |producer: SignatureProducer| {
        let signature = Some(Signature::new(producer, MODEL, open.to_string()));
        vec![says("hi"), model(vec![thinking(signature), call("{}", None)]), result("ok")]
    };
    assert_eq!(input(turn(OWN))[1], function_call());
    let deepseek = ResponsesProfile::deepseek();
    assert_eq!(input_of(&deepseek, turn(deepseek.producer()))[1], open);
}

#[test]
fn reasoning_that_leads_nowhere_is_cut() {
    let mut turn = model(vec![text("x", None), reasoning()]);
    assert_eq!(input(vec![says("hi"), turn.clone()]), json!([prompt("hi"), answer("x")]));
    turn.content.remove(0);
    assert_eq!(input(vec![says("hi"), turn.clone(), says("go on")]), json!([prompt("hi"), prompt("go on")]));
    turn.finish_reason = Some(TurnFinishReason::Pause);
    assert_eq!(input(vec![says("hi"), turn])[1], reasoning_item());
}

#[test]
fn items_that_wait_for_the_host_go_with_their_answer_only() {
    let search =
        json!({"type": "tool_search_call", "id": "ts_1", "call_id": "c", "execution": "client", "arguments": {}});
    let found = json!({"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": []});
    let asked = || model(vec![reasoning(), opaque(search.clone())]);
    let unanswered = input(vec![says("hi"), asked(), says("never mind")]);
    assert_eq!(unanswered, json!([prompt("hi"), prompt("never mind")]), "and neither does what led to it");
    let answered = json!([prompt("hi"), reasoning_item(), search, found]);
    assert_eq!(input(vec![says("hi"), asked(), user(vec![opaque(found.clone())])]), answered);
    let same_turn = model(vec![reasoning(), opaque(search.clone()), opaque(found.clone()), text("x", None)]);
    assert_eq!(input(vec![says("hi"), same_turn])[2], search);
    let approval = json!({"type": "mcp_approval_request", "id": "ar_1", "name": "n"});
    let yes = json!({"type": "mcp_approval_response", "approval_request_id": "ar_1", "approve": true});
    let request = |after: SessionTurn| input(vec![says("hi"), model(vec![opaque(approval.clone())]), after]);
    assert_eq!(request(user(vec![opaque(yes.clone())])), json!([prompt("hi"), approval, yes]));
    assert_eq!(request(says("no")), json!([prompt("hi"), prompt("no")]));
}

#[test]
fn a_custom_call_goes_back_as_one() {
    let state = r#"{"caller":{"type":"program","caller_id":"p_1"},"id":"ctc_1","type":"custom_tool_call"}"#;
    let turn = model(vec![call("\"say \\\"hi\\\"\"", own(state))]);
    let caller = json!({"type": "program", "caller_id": "p_1"});
    let expected = json!([
        prompt("hi"),
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "ls", "input": "say \"hi\"",
            "caller": caller},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok", "caller": caller},
    ]);
    assert_eq!(input(vec![says("hi"), turn, result("ok")]), expected);
}

#[test]
fn broken_arguments_and_long_ids_are_made_legal() {
    let long = "x".repeat(65);
    let mut turn = model(vec![call("{\"a\":", own(json!({"id": long.clone()})))]);
    let mut answered = result("ok");
    if let (Some(SessionContentBlock::ToolCall(call)), Some(SessionContentBlock::ToolResult(result))) =
        (turn.content.first_mut(), answered.content.first_mut())
    {
        call.id.clone_from(&long);
        result.call_id = long;
    }
    let sent = input(vec![says("hi"), turn, answered]);
    let id = sent[1]["call_id"].as_str().unwrap();
    assert!(id.len() <= 64 && sent[2]["call_id"] == id, "{id}");
    assert_eq!((&sent[1]["id"], &sent[1]["arguments"]), (&Value::Null, &json!(r#"{"INVALID_JSON":"{\"a\":"}"#)));
}

#[test]
fn media_stand_where_the_vendor_takes_them() {
    let shot = ToolResultBody::Blocks(vec![
        ToolResultContent::text("shot:"),
        ToolResultContent::Image(Media::base64("image/jpeg", PNG)),
        ToolResultContent::Resource(Resource::new("file:///a.pdf", ResourceContent::Blob(PDF.into()))),
    ]);
    let turns = || vec![says("hi"), model(vec![call("{}", None)]), result(shot.clone()), says("and?")];
    let image = json!({"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}")});
    let file = json!({"type": "input_file", "filename": "file:///a.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")});
    let inline = json!([{"type": "input_text", "text": "shot:"}, image, file]);
    assert_eq!(input(turns())[2], function_output(inline));
    // Elsewhere they follow, before the user speaks.
    let beside = input_of(&ResponsesProfile::openrouter(), turns());
    let marked = "shot:\n[attachment 1 follows in the next message]\n[attachment 2 follows in the next message]";
    assert_eq!(beside[2], function_output(marked.into()));
    assert_eq!((&beside[3]["content"][1], &beside[3]["content"][2]), (&image, &file));
    assert_eq!((&beside[3]["role"], &beside[4]), (&json!("user"), &prompt("and?")));
    // And what a vendor does not take at all is named.
    let local = input_of(&ResponsesProfile::llama_cpp(), turns());
    assert!(local[2]["output"].as_str().unwrap().contains("left out"), "{local}");
    assert_eq!(input(vec![says("hi"), model(vec![call("{}", None)]), result("")])[2]["output"], "(no output)");
}

#[test]
fn prompts_hold_images_and_documents() {
    let blocks = vec![
        SessionContentBlock::text("see"),
        SessionContentBlock::Image(Media::url("https://example.com/a.png")),
        SessionContentBlock::Document(Document { name: None, media: Media::base64("application/pdf", PDF) }),
        SessionContentBlock::Document(Document { name: None, media: Media::url("https://example.com/a.pdf") }),
        SessionContentBlock::Document(Document::text("a.txt", "words")),
    ];
    let expected = json!([
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://example.com/a.png"},
        {"type": "input_file", "filename": "document.pdf", "file_data": format!("data:application/pdf;base64,{PDF}")},
        {"type": "input_file", "file_url": "https://example.com/a.pdf"},
        {"type": "input_text", "text": "[attachment: a.txt (text/plain)]\nwords"},
    ]);
    assert_eq!(input(vec![user(blocks.clone())])[0]["content"], expected);
    let openai = OpenAi::builder().api_key("k").build().unwrap();
    assert!(openai.check(MODEL, &blocks).is_ok());
    let deepseek = OpenAi::builder().profile(ResponsesProfile::deepseek()).api_key("k").build().unwrap();
    let error = deepseek.check("deepseek-v4-flash", &blocks).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unsupported);
    assert!(error.message.starts_with("part 2 (document)"), "{}", error.message);
    let unresolved = Media::new(None, MediaSource::Ref("store:1".into()));
    let request = ModelRequest::new(head(), [user(vec![SessionContentBlock::Image(unresolved)])].into_iter().collect());
    let error = request::body(&ResponsesProfile::openai(), "test", &request).unwrap_err();
    assert!(error.message.starts_with("part 0 of turn 0 (image)"), "{}", error.message);
}

#[test]
fn deepseek_wants_calls_last_and_openrouter_ids() {
    let turn = || model(vec![text("a", None), call("{}", None), text("b", None)]);
    let kinds: Vec<_> = input_of(&ResponsesProfile::deepseek(), vec![says("hi"), turn(), result("ok")])
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["message", "message", "message", "function_call", "function_call_output"]);
    let sent = input_of(&ResponsesProfile::openrouter(), vec![says("hi"), turn(), result("ok")]);
    let ids = [&sent[1]["id"], &sent[3]["id"]].map(|id| id.as_str().unwrap().to_owned());
    assert!(ids.iter().all(|id| id.starts_with("msg_") && id.len() <= 64) && ids[0] != ids[1], "{ids:?}");
    assert_eq!(sent[1]["status"], "completed");
    assert_eq!(sent, input_of(&ResponsesProfile::openrouter(), vec![says("hi"), turn(), result("ok")]));
}

#[test]
fn names_are_shown_as_the_model_knows_them() {
    let mut head = head();
    head.names = Arc::new(ToolNames::new(HashMap::from([("ls".to_owned(), "list/files".to_owned())])));
    head.tools = Arc::new([ToolDefinition::new("ls", "", json!({}))]);
    let sent =
        encoded(&ResponsesProfile::openai(), head, vec![says("hi"), model(vec![call("{}", None)]), result("ok")]);
    let name = sent["tools"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("list_files_"), "{name}");
    assert_eq!(sent["input"][1]["name"], name);
}

/// Every request begins with the one before, its last two characters aside.
fn check_append_only(profile: &ResponsesProfile, turns: Vec<SessionTurn>) {
    let head = Arc::new(head());
    let mut request = ModelRequest { head, history: History::new(), ..ModelRequest::default() };
    let mut before = Bytes::new();
    let whole = turns.clone();
    for (at, turn) in turns.into_iter().enumerate() {
        let is_user = turn.role == Role::User;
        request.history.push(Arc::new(HistoryTurn::new(turn)));
        // Companion messages of one batch of results wait for its end, and a request is sent only then.
        let more_results = whole.get(at + 1).is_some_and(|next| next.tool_results().next().is_some());
        if !is_user || more_results {
            continue;
        }
        let sent = bytes(profile, &request);
        let fresh = ModelRequest::new((*request.head).clone(), request.history.clone());
        assert_eq!(sent, bytes(profile, &fresh), "turn {at}");
        let kept = before.len().saturating_sub(2);
        assert_eq!(sent.get(..kept), before.get(..kept), "turn {at}");
        before = sent;
    }
}

#[test]
fn requests_of_a_conversation_only_grow() {
    let shot = ToolResultBody::Blocks(vec![ToolResultContent::Image(Media::base64("image/png", PNG))]);
    let approval = json!({"type": "mcp_approval_request", "id": "ar_1"});
    let yes = json!({"type": "mcp_approval_response", "approval_request_id": "ar_1", "approve": true});
    let turns = vec![
        says("hi"),
        model(vec![reasoning(), call("{}", own(r#"{"id":"fc_1"}"#))]),
        result("ok"),
        model(vec![reasoning(), text("a", own(r#"{"id":"msg_1"}"#)), call("{}", None)]),
        result(shot.clone()),
        result(shot),
        model(vec![opaque(approval.clone())]),
        user(vec![opaque(yes), SessionContentBlock::text("go on")]),
        model(vec![reasoning(), opaque(approval)]),
        says("again"),
        model(vec![reasoning()]),
        says("bye"),
    ];
    for profile in [ResponsesProfile::openai(), ResponsesProfile::openrouter(), ResponsesProfile::deepseek()] {
        check_append_only(&profile, turns.clone());
    }
}

#[test]
fn a_kept_body_is_not_used_for_another_head() {
    let mut request = ModelRequest::new(head(), [says("hi")].into_iter().collect());
    let first = bytes(&ResponsesProfile::openai(), &request);
    request.head = Arc::new(RequestHead { system: Some("new".into()), ..head() });
    let second = bytes(&ResponsesProfile::openai(), &request);
    assert_ne!(first, second);
    assert!(std::str::from_utf8(&second).unwrap().contains("\"instructions\":\"new\""));
}

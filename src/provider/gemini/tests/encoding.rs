use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::super::{
    Gemini, History, HistoryTurn, ModelRequest, OutputSchema, Provider as _, ProviderErrorKind, RequestHead, Resume,
    ThinkingLevel, ToolChoice, ToolDefinition, ToolNames,
};
use super::super::Wire;
use super::super::request::encode;
use super::turns::{MODEL, call, head, model, opaque, own, result, says, signature, signed_text, system, user};
use crate::types::{
    Document, Media, MediaSource, Resource, ResourceContent, SessionContentBlock, SessionTurn, Signature,
    SignatureProducer, ThinkingBlock, ToolResultBody, ToolResultContent, TurnFinishReason,
};

const DUMMY: &str = "skip_thought_signature_validator";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB";
const PDF: &str = "JVBERi0xLjcKJcOkw7zDtsOf";

fn bytes(request: &ModelRequest) -> Bytes {
    encode(&Wire::new("gemini"), request).unwrap()
}

fn encoded(head: RequestHead, turns: Vec<SessionTurn>) -> Value {
    serde_json::from_slice(&bytes(&ModelRequest::new(head, turns.into_iter().collect()))).unwrap()
}

fn contents(turns: Vec<SessionTurn>) -> Value {
    encoded(head(), turns)["contents"].clone()
}

fn contents_for(name: &str, turns: Vec<SessionTurn>) -> Value {
    encoded(RequestHead { model: name.into(), ..head() }, turns)["contents"].clone()
}

fn parts(turn: SessionTurn) -> Value {
    contents(vec![turn])[0]["parts"].clone()
}

#[test]
fn a_request_holds_what_the_head_says_and_nothing_else() {
    let mut head = head();
    head.system = system("Be brief.");
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
    head.tools = Arc::new([
        ToolDefinition::new("ls", " Lists. ", schema),
        ToolDefinition::new("now", "", json!({"type": "object", "properties": {}})),
    ]);
    head.stop_sequences = vec!["END".into(), "".into()];
    head.temperature = Some(0.7);
    head.max_tokens = Some(100);
    head.thinking = Some(ThinkingLevel::Medium);
    let declarations = json!([
        {"name": "ls", "description": "Lists.",
            "parametersJsonSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"name": "now"},
    ]);
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": declarations}],
        "generationConfig": {"maxOutputTokens": 100, "temperature": 0.7, "stopSequences": ["END"],
            "thinkingConfig": {"thinkingLevel": "MEDIUM", "includeThoughts": true}},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    });
    assert_eq!(encoded(head, vec![says("hi")]), expected);
    let bare = RequestHead { model: MODEL.into(), system: system(" "), ..RequestHead::default() };
    assert_eq!(encoded(bare, vec![says("hi")]), json!({"contents": expected["contents"]}));
}

#[test]
fn the_models_differ_in_their_settings() {
    let config = |name: &str, level| {
        let head = RequestHead { thinking: Some(level), temperature: Some(1.0), model: name.into(), ..head() };
        encoded(head, vec![says("hi")])["generationConfig"].clone()
    };
    let thinks = |name: &str, level| config(name, level)["thinkingConfig"].clone();
    assert_eq!(thinks("gemini-2.5-flash", ThinkingLevel::Off), json!({"thinkingBudget": 0}));
    assert_eq!(thinks("gemini-2.5-pro", ThinkingLevel::Off), json!({"thinkingBudget": 128}));
    assert_eq!(thinks("gemini-4-neon", ThinkingLevel::Off), json!({"thinkingLevel": "LOW"}));
    assert_eq!(config("gemini-4-neon", ThinkingLevel::High).get("temperature"), None);
    assert_eq!(config("gemma-4-31b-it", ThinkingLevel::High), json!({"temperature": 1.0}));
}

#[test]
fn the_final_answer_is_held_to_its_schema_where_the_model_can_be() {
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": false});
    let mut head = RequestHead { output: Some(Arc::new(OutputSchema::new("answer", schema))), ..head() };
    let lowered = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}});
    let expected = json!({"responseMimeType": "application/json", "responseJsonSchema": lowered});
    assert_eq!(encoded(head.clone(), vec![says("hi")])["generationConfig"], expected);
    head.extra = json!({"generationConfig": {"responseSchema": {}}}).as_object().cloned().unwrap();
    assert_eq!(encoded(head.clone(), vec![says("hi")])["generationConfig"], json!({"responseSchema": {}}));
    head.extra.clear();
    head.model = "gemini-2.5-flash".into();
    assert!(encoded(head, vec![says("hi")]).get("generationConfig").is_none());
}

#[test]
fn the_tool_choice_is_a_mode() {
    let config = |choice, strict, name: &str| {
        let mut tool = ToolDefinition::new("a/b", "", json!({}));
        tool.strict = strict;
        let head = RequestHead { tools: [tool].into(), tool_choice: choice, model: name.into(), ..head() };
        encoded(head, vec![says("hi")]).pointer("/toolConfig/functionCallingConfig").cloned().unwrap_or_default()
    };
    assert_eq!(config(ToolChoice::Auto, false, MODEL), Value::Null);
    assert_eq!(config(ToolChoice::Auto, true, MODEL), json!({"mode": "VALIDATED"}));
    assert_eq!(config(ToolChoice::Auto, true, "gemini-2.5-flash"), Value::Null);
    assert_eq!(config(ToolChoice::None, true, MODEL), json!({"mode": "NONE"}));
    assert_eq!(config(ToolChoice::Required, false, MODEL), json!({"mode": "ANY"}));
    let named = config(ToolChoice::Tool("a/b".into()), false, MODEL);
    let name = named["allowedFunctionNames"][0].as_str().unwrap();
    assert!(named["mode"] == "ANY" && name.starts_with("a_b_"), "{named}");
}

#[test]
fn the_hosts_fields_win_and_configurations_are_merged() {
    let mut head = RequestHead { max_tokens: Some(5), temperature: Some(1.0), ..head() };
    head.tools = [ToolDefinition::new("f", "", json!({}))].into();
    head.tool_choice = ToolChoice::Required;
    let extra = json!({
        "generationConfig": {"topK": 3, "maxOutputTokens": 9},
        "toolConfig": {"includeServerSideToolInvocations": true},
        "tools": [{"googleSearch": {}}],
        "safetySettings": [],
    });
    head.extra = extra.as_object().cloned().unwrap();
    let body = encoded(head.clone(), vec![says("hi")]);
    assert_eq!(body["generationConfig"], json!({"maxOutputTokens": 9, "temperature": 1.0, "topK": 3}));
    let tool_config = json!({"functionCallingConfig": {"mode": "ANY"}, "includeServerSideToolInvocations": true});
    assert_eq!(body["toolConfig"], tool_config);
    assert_eq!((&body["tools"], &body["safetySettings"]), (&json!([{"googleSearch": {}}]), &json!([])));

    head.system = system("s");
    head.extra = json!({"cachedContent": "cachedContents/1"}).as_object().cloned().unwrap();
    let body = encoded(head.clone(), vec![says("hi")]);
    for held in ["systemInstruction", "tools", "toolConfig"] {
        assert!(body.get(held).is_none(), "{held} stands beside a cached content");
    }
    head.extra = json!({"contents": [1]}).as_object().cloned().unwrap();
    assert_eq!(encoded(head, vec![says("hi")])["contents"], json!([1]));
}

#[test]
fn every_step_is_signed_on_its_first_call_alone() {
    let foreign = Some(Signature::new(SignatureProducer::ANTHROPIC, MODEL, "x"));
    let older = Some(Signature::new(SignatureProducer::GEMINI, "gemini-3-flash-preview", "old"));
    let step = |first: Option<Signature>, second: Option<Signature>| {
        let turn = own(vec![SessionContentBlock::text("t"), call("1", "{}", first), call("2", "{}", second)]);
        let parts = parts(turn);
        [&parts[1], &parts[2]].map(|part| part["thoughtSignature"].as_str().map(str::to_owned))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(step(signature("s1"), None), [some("s1"), None]);
    assert_eq!(step(signature("s1"), signature("s2")), [some("s1"), some("s2")]);
    assert_eq!(step(None, None), [some(DUMMY), None]);
    assert_eq!(step(None, signature("s2")), [some(DUMMY), some("s2")]);
    assert_eq!(step(foreign.clone(), foreign), [some(DUMMY), None]);
    assert_eq!(step(older.clone(), older), [some(DUMMY), None]);
    let old = contents_for("gemini-2.5-flash", vec![model(vec![call("1", "{}", None)])]);
    assert!(old[0]["parts"][0].get("thoughtSignature").is_none());
}

#[test]
fn signed_text_goes_back_as_it_came_to_the_model_that_made_it() {
    let turn = own(vec![SessionContentBlock::text("a"), signed_text("b", "s1"), signed_text("", "s2")]);
    let signed = json!([
        {"text": "a"}, {"text": "b", "thoughtSignature": "s1"}, {"text": "", "thoughtSignature": "s2"},
    ]);
    assert_eq!(parts(turn.clone()), signed);
    assert_eq!(contents_for("gemini-4-argon", vec![turn])[0]["parts"], json!([{"text": "a"}, {"text": "b"}]));
    let thinking = |signature| {
        SessionContentBlock::Thinking(ThinkingBlock { text: "hm".into(), signature, ..ThinkingBlock::default() })
    };
    let turn = own(vec![thinking(None), thinking(signature("s")), SessionContentBlock::text("x")]);
    let expected = json!([{"text": "hm", "thought": true, "thoughtSignature": "s"}, {"text": "x"}]);
    assert_eq!(parts(turn), expected);
}

#[test]
fn ids_go_back_only_where_this_api_gave_them() {
    let made = "call_0123456789abcdef0123456789abcdef";
    let ids = |turn: SessionTurn, name: &str| {
        let results = user(vec![result("g1", "x", false), result(made, "y", false)]);
        let contents = contents_for(name, vec![says("hi"), turn, results]);
        let calls = [0, 1].map(|at| contents[1]["parts"][at]["functionCall"]["id"].clone());
        assert_eq!(calls, [0, 1].map(|at| contents[2]["parts"][at]["functionResponse"]["id"].clone()));
        calls
    };
    let calls = vec![call("g1", "{}", None), call(made, "{}", None)];
    assert_eq!(ids(own(calls.clone()), MODEL), [json!("g1"), Value::Null]);
    assert_eq!(ids(model(calls.clone()), MODEL), [Value::Null, Value::Null]);
    assert_eq!(ids(own(calls.clone()), "gemini-2.5-flash"), [Value::Null, Value::Null]);
    let signed = vec![call("g1", "{}", signature("s")), call(made, "{}", None)];
    assert_eq!(ids(model(signed), MODEL), [json!("g1"), Value::Null]);
}

#[test]
fn results_stand_in_one_content_with_what_follows() {
    let calls = own(vec![call("1", "{\"a\":1}", signature("s")), call("2", "", None), call("3", "[oops", None)]);
    let results = user(vec![result("1", "one", false), result("2", "no", true), result("3", " ", false)]);
    let contents = contents(vec![says("hi"), calls, results, says("go on")]);
    assert_eq!(contents.as_array().unwrap().len(), 3);
    assert_eq!(contents[1]["role"], "model");
    let args = [0, 1, 2].map(|at| contents[1]["parts"][at]["functionCall"]["args"].clone());
    assert_eq!(args, [json!({"a": 1}), json!({}), json!({"INVALID_JSON": "[oops"})]);
    let expected = json!([
        {"functionResponse": {"id": "1", "name": "f", "response": {"output": "one"}}},
        {"functionResponse": {"id": "2", "name": "f", "response": {"error": "no"}}},
        {"functionResponse": {"id": "3", "name": "f", "response": {"output": "(no output)"}}},
        {"text": "go on"},
    ]);
    assert_eq!(contents[2], json!({"role": "user", "parts": expected}));
}

fn media_result(blocks: Vec<ToolResultContent>) -> Vec<SessionTurn> {
    let results = user(vec![result("1", ToolResultBody::Blocks(blocks), false), result("2", "two", false)]);
    vec![own(vec![call("1", "{}", None), call("2", "{}", None)]), results]
}

#[test]
fn media_in_results_stand_inside_or_beside() {
    let pdf = Resource::new("a.pdf", ResourceContent::Blob(PDF.into()));
    let image = || ToolResultContent::Image(Media::new(None, MediaSource::Data(PNG.into())));
    let turns = media_result(vec![ToolResultContent::text("seen"), image(), ToolResultContent::Resource(pdf)]);
    let new = contents(turns.clone());
    let inline = |kind: &str, data: &str| json!({"inlineData": {"mimeType": kind, "data": data}});
    let media = [inline("image/png", PNG), inline("application/pdf", PDF)];
    let response = &new[1]["parts"][0]["functionResponse"];
    assert_eq!((&response["response"], &response["parts"]), (&json!({"output": "seen"}), &json!(media)));
    assert_eq!(new[1]["parts"].as_array().unwrap().len(), 2);

    let old = contents_for("gemini-2.5-flash", turns);
    let text = "seen\n[attachment 1 follows the results]\n[attachment 2 follows the results]";
    assert_eq!(old[1]["parts"][0]["functionResponse"]["response"], json!({"output": text}));
    assert!(old[1]["parts"][0]["functionResponse"].get("parts").is_none());
    assert_eq!(old[1]["parts"][1]["functionResponse"]["response"], json!({"output": "two"}));
    assert_eq!([&old[1]["parts"][2], &old[1]["parts"][3]], [&media[0], &media[1]]);

    let sound = ToolResultContent::Audio(Media::base64("audio/wav", "UklGRgAAAABXQVZF"));
    let gif = ToolResultContent::Image(Media::base64("image/gif", "R0lGODlhAQABAAAA"));
    let beside = contents(media_result(vec![sound, gif]));
    assert_eq!(beside[1]["parts"][2]["inlineData"]["mimeType"], "audio/wav");
    let text = beside[1]["parts"][0]["functionResponse"]["response"]["output"].as_str().unwrap();
    assert!(text.starts_with("[attachment 1 follows the results]\n[image: image/gif"), "{text}");
    let alone = contents(media_result(vec![image()]));
    assert_eq!(alone[1]["parts"][0]["functionResponse"]["response"]["output"], "(see the attachments)");
}

#[test]
fn a_structure_in_a_result_stays_text() {
    let turns = vec![own(vec![call("1", "{}", None)]), user(vec![result("1", r##"{"$ref":"#/a"}"##, false)])];
    let body = bytes(&ModelRequest::new(head(), turns.into_iter().collect()));
    assert!(std::str::from_utf8(&body).unwrap().contains(r##"{"output":"{\"$ref\":\"#/a\"}"}"##));
}

#[test]
fn prompts_hold_images_documents_and_addresses() {
    let turn = user(vec![
        SessionContentBlock::Image(Media::base64("image/jpg", PNG)),
        SessionContentBlock::Image(Media::url("https://x.test/a.JPG?b=c")),
        SessionContentBlock::Document(Document { name: None, media: Media::base64("", PDF) }),
        SessionContentBlock::Document(Document::text("a.md", "# A")),
        SessionContentBlock::Document(Document { name: None, media: Media::url("https://youtu.be/x") }),
        SessionContentBlock::Document(Document { name: None, media: Media::base64("audio/mp3", "AAAA") }),
    ]);
    let expected = json!([
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://x.test/a.JPG?b=c"}},
        {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
        {"text": "[attachment: a.md (text/plain)]\n# A"},
        {"fileData": {"fileUri": "https://youtu.be/x"}},
        {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
    ]);
    assert_eq!(parts(turn), expected);
}

#[test]
fn what_cannot_be_sent_is_named_before_anything_is() {
    let provider = Gemini::new("k").unwrap();
    let gif = SessionContentBlock::Image(Media::base64("image/gif", "R0lGODlhAQABAAAA"));
    let error = provider.check(MODEL, &[SessionContentBlock::text("a"), gif.clone()]).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unsupported);
    assert!(error.message.contains("block 1 (image, image/gif)"), "{error}");
    let zip = |name: &str| {
        let media = Media::base64("application/vnd.oasis.opendocument.text", "UEsDBBQA");
        provider.check(name, &[SessionContentBlock::Document(Document { name: None, media })])
    };
    assert!(zip("gemini-4-argon").is_ok() && zip(MODEL).is_err());
    let stored = SessionContentBlock::Image(Media::new(None, MediaSource::Ref("k".into())));
    assert!(provider.check(MODEL, &[stored]).unwrap_err().message.contains("unresolved ref"));
    let request = ModelRequest::new(head(), [says("a"), user(vec![gif])].into_iter().collect());
    let error = encode(&Wire::new("gemini"), &request).unwrap_err();
    assert!(error.message.contains("block 0 (image, image/gif) of turn 1"), "{error}");
}

#[test]
fn blocks_of_the_api_go_back_to_it_and_signed_only_to_their_model() {
    let code = json!({"executableCode": {"code": "1"}, "thoughtSignature": "s"});
    let search = json!({"toolCall": {"id": "1"}, "thoughtSignature": "s"});
    let turn = own(vec![opaque(MODEL, code.clone()), opaque(MODEL, search.clone()), SessionContentBlock::text("x")]);
    assert_eq!(parts(turn.clone()), json!([code, search, {"text": "x"}]));
    let other = contents_for("gemini-4-argon", vec![turn.clone()]);
    assert_eq!(other[0]["parts"], json!([{"executableCode": {"code": "1"}}, {"text": "x"}]));
    let request = ModelRequest::new(head(), [turn].into_iter().collect());
    let vertex: Value = serde_json::from_slice(&encode(&Wire::new("vertex"), &request).unwrap()).unwrap();
    assert_eq!(vertex["contents"][0]["parts"], json!([{"text": "x"}]));
}

#[test]
fn aliases_are_what_the_model_sees() {
    let names = ToolNames::new(HashMap::from([("f".into(), "shown".into())]));
    let turns = vec![own(vec![call("1", "{}", None)]), user(vec![result("1", "x", false)])];
    let tools = [ToolDefinition::new("f", "", json!({}))].into();
    let body = encoded(RequestHead { names: Arc::new(names), tools, ..head() }, turns);
    assert_eq!(body["tools"][0]["functionDeclarations"][0]["name"], "shown");
    assert_eq!(body["contents"][0]["parts"][0]["functionCall"]["name"], "shown");
    assert_eq!(body["contents"][1]["parts"][0]["functionResponse"]["name"], "shown");
}

fn paused(text: &str, token: &str) -> SessionTurn {
    let turn = own(vec![SessionContentBlock::text(text), opaque(MODEL, json!({"continuationToken": token}))]);
    SessionTurn { finish_reason: Some(TurnFinishReason::Pause), ..turn }
}

#[test]
fn a_paused_answer_is_taken_up_by_its_token() {
    let provider = Gemini::new("k").unwrap();
    assert_eq!(provider.resume(&paused("a", "t1")), Resume::Token);
    assert_eq!(provider.resume(&own(vec![SessionContentBlock::text("a")])), Resume::UserText);

    let before = encoded(head(), vec![says("hi")]);
    let mut turns = vec![says("hi"), paused("a", "t1")];
    let mut again = encoded(head(), turns.clone());
    assert_eq!(again["continuationToken"], "t1");
    again.as_object_mut().unwrap().remove("continuationToken");
    assert_eq!(again, before, "the request is the same but for the token");
    turns.push(paused("b", "t2"));
    let again = encoded(head(), turns.clone());
    assert_eq!((&again["continuationToken"], &again["contents"]), (&json!("t2"), &before["contents"]));

    turns.extend([own(vec![SessionContentBlock::text("c")]), says("more")]);
    let after = encoded(head(), turns);
    assert!(after.get("continuationToken").is_none());
    let spoken = json!([{"text": "a"}, {"text": "b"}, {"text": "c"}]);
    assert_eq!(after["contents"][1], json!({"role": "model", "parts": spoken}));
}

/// Sends a conversation turn by turn with one cache; gives the bodies.
fn grown(turns: &[SessionTurn]) -> Vec<Bytes> {
    let mut history = History::new();
    let first = ModelRequest::new(head(), History::new());
    let mut bodies = Vec::new();
    for turn in turns {
        history.push(Arc::new(HistoryTurn::new(turn.clone())));
        let request = ModelRequest { history: history.clone(), ..first.clone() };
        bodies.push(bytes(&request));
    }
    bodies
}

#[test]
fn a_kept_body_is_what_a_fresh_one_would_be_and_only_grows() {
    let image = ToolResultContent::Image(Media::new(None, MediaSource::Data(PNG.into())));
    let mut turns = vec![says("hi"), own(vec![call("1", "{}", None), call("2", "{}", None)])];
    turns.push(user(vec![result("1", ToolResultBody::Blocks(vec![image]), false), result("2", "x", false)]));
    turns.extend([says("nudge"), own(Vec::new()), says("again"), paused("a", "t1"), paused("b", "t2")]);
    turns.extend([own(vec![signed_text("", "s")]), says("x"), model(vec![call("3", "{}", None)])]);
    turns.push(user(vec![result("3", "x", false)]));
    let bodies = grown(&turns);
    for (index, body) in bodies.iter().enumerate() {
        let fresh = bytes(&ModelRequest::new(head(), turns[..=index].iter().cloned().collect()));
        assert_eq!(*body, fresh, "after turn {index}");
        assert!(serde_json::from_slice::<Value>(body).is_ok());
    }
    // Everything up to the brackets that close it stays.
    for pair in bodies.windows(2) {
        let text = std::str::from_utf8(&pair[0]).unwrap();
        let text = text.split(",\"continuationToken\"").next().unwrap();
        let kept = text.trim_end_matches('}').trim_end_matches(']').trim_end_matches('}').trim_end_matches(']');
        assert!(pair[1].starts_with(kept.as_bytes()), "{text}");
    }
}

#[test]
fn a_request_after_an_answer_keeps_every_content_as_it_was() {
    let mut turns = vec![says("hi"), own(vec![call("1", "{}", signature("s"))]), user(vec![result("1", "x", false)])];
    turns.extend([own(vec![signed_text("done", "s2")]), says("next"), model(vec![call("2", "{}", None)])]);
    turns.push(user(vec![result("2", "x", false)]));
    let list = |end: usize| contents(turns[..end].to_vec()).as_array().cloned().unwrap();
    for end in [1, 3, 5] {
        let (before, after) = (list(end), list(end + 2));
        assert_eq!(before[..], after[..before.len()]);
    }
}

#[test]
fn refused_and_cut_turns_are_left_out() {
    let refused = SessionTurn {
        finish_reason: Some(TurnFinishReason::ContentFilter),
        ..own(vec![SessionContentBlock::text("bad"), call("1", "{}", None)])
    };
    let turns = vec![says("a"), refused, user(vec![result("1", "x", false), SessionContentBlock::text("b")])];
    assert_eq!(contents(turns), json!([{"role": "user", "parts": [{"text": "a"}, {"text": "b"}]}]));
}

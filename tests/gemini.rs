//! An agent on the Gemini wire, against scripted answers over real HTTP.
#![cfg(feature = "gemini")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use zidane::provider::{Gemini, ProviderErrorKind, RetryPolicy};
use zidane::testing::{HttpReply, SseServer};
use zidane::tool::tool_fn_value;
use zidane::{Agent, AgentBuilder, RunErrorKind, StopCause};

const MODEL: &str = "gemini-4-argon";

fn chunk(parts: Value, more: Value) -> String {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    for (name, value) in more.as_object().unwrap() {
        candidate[name] = value.clone();
    }
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 1});
    format!("data: {}\r\n\r\n", json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m-1"}))
}

fn ends(parts: Value, reason: &str) -> HttpReply {
    HttpReply::sse(chunk(parts, json!({"finishReason": reason})))
}

fn builder(server: &SseServer) -> AgentBuilder {
    let provider = Gemini::builder().api_key("key").base_url(server.url()).build().unwrap();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    Agent::builder().provider(provider).model(MODEL).retry(RetryPolicy::never()).tool(tool_fn_value(
        "add",
        "Adds one",
        schema,
        |input: Value, _cx| async move { Ok(format!("{}", input["a"].as_i64().unwrap_or(0) + 1)) },
    ))
}

fn bodies(server: &SseServer) -> Vec<Value> {
    server.requests().iter().map(|request| request.json().unwrap()).collect()
}

/// Every content of a request stands at the beginning of the next one as it was.
fn assert_append_only(bodies: &[Value]) {
    for pair in bodies.windows(2) {
        let [before, after] = pair else { continue };
        let (before, after) = (before["contents"].as_array().unwrap(), after["contents"].as_array().unwrap());
        assert_eq!(before[..], after[..before.len()]);
    }
}

#[tokio::test]
async fn calls_results_and_signatures_make_the_round() {
    let call = |id: &str, a: u32| json!({"functionCall": {"id": id, "name": "add", "args": {"a": a}}});
    let mut first = call("c1", 1);
    first["thoughtSignature"] = "s1".into();
    let server = SseServer::start([
        ends(json!([{"text": "hm", "thought": true}, first, call("c2", 2)]), "STOP"),
        ends(json!([{"text": "2 and 3"}, {"text": "", "thoughtSignature": "s2"}]), "STOP"),
        ends(json!([{"text": "bye"}]), "STOP"),
    ])
    .await
    .unwrap();
    let agent = builder(&server).build().unwrap();
    let outcome = agent.run("add").await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.stop), ("2 and 3", StopCause::Stop));
    assert_eq!((outcome.stats.total_in, outcome.stats.total_out), (20, 10));
    agent.run("bye").await.unwrap();

    let sent = bodies(&server);
    assert_append_only(&sent);
    let response =
        |id: &str, text: &str| json!({"functionResponse": {"id": id, "name": "add", "response": {"output": text}}});
    let expected = json!([
        {"role": "user", "parts": [{"text": "add"}]},
        {"role": "model", "parts": [first, call("c2", 2)]},
        {"role": "user", "parts": [response("c1", "2"), response("c2", "3")]},
        {"role": "model", "parts": [{"text": "2 and 3"}, {"text": "", "thoughtSignature": "s2"}]},
        {"role": "user", "parts": [{"text": "bye"}]},
    ]);
    assert_eq!(sent[2]["contents"], expected);
}

#[tokio::test]
async fn a_long_answer_is_taken_up_with_its_token_and_every_hop_is_paid_for() {
    let hop = |text: &str, token: &str| {
        let more = json!({"finishReason": "CONTINUATION", "continuationToken": token});
        HttpReply::sse(chunk(json!([{"text": text}]), more))
    };
    let server = SseServer::start([
        hop("One ", "t1"),
        hop("two ", "t2"),
        ends(json!([{"text": "three"}]), "STOP"),
        ends(json!([{"text": "ok"}]), "STOP"),
    ])
    .await
    .unwrap();
    let agent = builder(&server).build().unwrap();
    let outcome = agent.run("count").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!((outcome.stats.total_in, outcome.stats.total_out), (30, 15));
    agent.run("more").await.unwrap();

    let sent = bodies(&server);
    assert_append_only(&sent);
    let tokens: Vec<_> = sent.iter().map(|body| body["continuationToken"].as_str()).collect();
    assert_eq!(tokens, [None, Some("t1"), Some("t2"), None]);
    assert_eq!((&sent[1]["contents"], &sent[2]["contents"]), (&sent[0]["contents"], &sent[0]["contents"]));
    let spoken = json!([{"text": "One "}, {"text": "two "}, {"text": "three"}]);
    assert_eq!(sent[3]["contents"][1], json!({"role": "model", "parts": spoken}));
}

#[tokio::test]
async fn a_call_that_the_api_found_broken_is_tried_again_and_leaves_nothing() {
    let server = SseServer::start([
        ends(json!([]), "MALFORMED_FUNCTION_CALL"),
        ends(json!([{"functionCall": {"name": "ghost", "args": {}}}]), "UNEXPECTED_TOOL_CALL"),
        ends(json!([{"text": "done"}]), "STOP"),
    ])
    .await
    .unwrap();
    let mut policy = RetryPolicy::default();
    policy.base_delay = std::time::Duration::from_millis(1);
    let agent = builder(&server).retry(policy).build().unwrap();
    let outcome = agent.run("go").await.unwrap();
    assert_eq!((outcome.text.as_str(), outcome.turns.len()), ("done", 2));
    let sent = bodies(&server);
    assert!(sent.len() == 3 && sent.iter().all(|body| *body == sent[0]));
}

#[tokio::test]
async fn what_the_api_says_of_a_broken_call_is_the_errors_text() {
    let said = "Malformed function call: print(default_api.add(1, 2)";
    let more = json!({"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": said});
    let server = SseServer::start([HttpReply::sse(chunk(json!([]), more))]).await.unwrap();
    let error = builder(&server).retry(RetryPolicy::never()).build().unwrap().run("go").await.unwrap_err();
    let RunErrorKind::Provider(error) = &error.kind else { panic!("{error}") };
    assert_eq!(error.kind, ProviderErrorKind::Server);
    assert_eq!((error.code.as_deref(), error.message.as_str()), (Some("MALFORMED_FUNCTION_CALL"), said));
}

#[tokio::test]
async fn a_missing_signature_is_not_tried_again() {
    let server = SseServer::start([ends(json!([]), "MISSING_THOUGHT_SIGNATURE")]).await.unwrap();
    let agent = builder(&server).retry(RetryPolicy::default()).build().unwrap();
    let error = agent.run("go").await.unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::Provider(error) if error.kind == ProviderErrorKind::Invalid));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_blocked_prompt_ends_the_run_as_filtered() {
    let blocked =
        r#"data: {"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":5}}"#;
    let server = SseServer::start([HttpReply::sse(format!("{blocked}\r\n\r\n"))]).await.unwrap();
    let outcome = builder(&server).build().unwrap().run("go").await.unwrap();
    assert_eq!((outcome.stop, outcome.stats.total_in), (StopCause::ContentFilter, 5));
    assert_eq!(outcome.stats.turn_usage[0].raw_finish_reason.as_deref(), Some("PROHIBITED_CONTENT"));
}

#[tokio::test]
async fn a_history_of_another_api_is_signed_with_the_stand_in() {
    use zidane::provider::{History, ModelRequest, Provider as _, RequestContext, RequestHead};
    use zidane::types::{Role, SessionContentBlock, SessionTurn, ToolCallBlock, TurnOrigin};

    let server = SseServer::start([ends(json!([{"text": "ok"}]), "STOP")]).await.unwrap();
    let provider = Gemini::builder().api_key("key").base_url(server.url()).build().unwrap();
    let mut call = ToolCallBlock::default();
    (call.id, call.name, call.arguments) = ("toolu_1".into(), "add".into(), "{}".into());
    let history: History = [
        SessionTurn::new("u", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("go")]),
        SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::ToolCall(call)]),
    ]
    .into_iter()
    .collect();
    let mut head = RequestHead::default();
    head.model = MODEL.into();
    let request = std::sync::Arc::new(ModelRequest::new(head, history));
    provider.stream(request, &RequestContext::default()).await.unwrap();
    let part = json!({"functionCall": {"name": "add", "args": {}},
        "thoughtSignature": "skip_thought_signature_validator"});
    assert_eq!(bodies(&server)[0]["contents"][1]["parts"], json!([part]));
}

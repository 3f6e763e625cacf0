//! Structured output: the final answer as a value, tools still usable, one try at mending it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use harness::{Scenario, echo};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use zidane::provider::{Anthropic, Gemini, OpenAi, OpenAiChat, OutputSchema};
use zidane::testing::{HttpReply, Reply, ScriptedProvider, SseServer};
use zidane::types::UsageKind;
use zidane::{Agent, RunErrorKind};

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Verdict {
    ok: bool,
    why: Option<String>,
}

fn agent(replies: impl IntoIterator<Item = Reply>) -> (Agent, ScriptedProvider) {
    let model = ScriptedProvider::new(replies);
    let builder = Agent::builder().provider(model.clone()).model("test").system("Be brief.").tool(echo());
    (builder.build().unwrap(), model)
}

#[tokio::test]
async fn the_answer_is_a_value_and_tools_still_run() {
    let (agent, model) =
        agent([Reply::call("echo", json!({})), Reply::text("```json\n{\"ok\": true, \"why\": null}\n```")]);
    let (verdict, outcome) = agent.run_typed::<Verdict>("Well?").await.unwrap();
    assert_eq!(verdict, Verdict { ok: true, why: None });
    assert_eq!(outcome.stats.turns, 2);
    let system = model.requests()[0].head.system.clone().unwrap();
    assert!(system.starts_with("Be brief.") && system.contains("\"ok\""), "{system}");
}

#[tokio::test]
async fn a_bad_answer_is_asked_for_once_more() {
    let (agent, model) = agent([Reply::text("Yes, it is."), Reply::text("{\"ok\": true}")]);
    let (verdict, outcome) = agent.run_typed::<Verdict>("Well?").await.unwrap();
    assert!(verdict.ok);
    let asked = model.requests()[1].turns.last().unwrap().text();
    assert!(asked.contains("not valid JSON") && asked.contains("\"ok\""), "{asked}");
    let kinds: Vec<_> = outcome.stats.turn_usage.iter().map(|usage| usage.kind).collect();
    assert_eq!(kinds, [UsageKind::Turn, UsageKind::Repair]);
    assert_eq!((outcome.stats.turns, outcome.stats.total_in), (1, 20));
}

#[tokio::test]
async fn an_answer_that_stays_bad_is_an_error_that_names_the_place() {
    let (agent, model) = agent([Reply::text("{\"ok\": 1}"), Reply::text("{\"ok\": \"yes\"}"), Reply::text("never")]);
    let error = agent.run_typed::<Verdict>("Well?").await.unwrap_err();
    assert!(matches!(&error.kind, RunErrorKind::Output(text) if text.contains("/ok")), "{error}");
    assert_eq!(model.remaining(), 1);
    assert_eq!(error.turns.len(), 4);
    assert_eq!(error.stats.total_in, 20);
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_is_refused_before_anything_happens() {
    let (agent, model) = agent([]);
    let error = agent.run("Well?").output_schema(OutputSchema::new("x", json!({"type": "array"}))).await.unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::Output(_)), "{error}");
    assert!(model.requests().is_empty() && agent.history().is_empty());
}

#[tokio::test]
async fn it_is_replayed_as_it_was() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let told = Scenario::new([Reply::text("one"), Reply::text("{\"n\": 1}")])
        .run(move |run| run.output_schema(OutputSchema::new("n", schema.clone())))
        .tell_all()
        .await;
    assert_eq!(told.outcome().output, Some(json!({"n": 1})));
}

#[tokio::test]
async fn wires_with_a_mode_for_it_hold_the_model_to_the_schema() {
    let anthropic = json!({"type": "message", "id": "m", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "{\"ok\": true}"}], "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}});
    let chat = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "{\"ok\": true, \"why\": null}"}, "finish_reason": "stop"}]});
    let responses = json!({"id": "r", "object": "response", "status": "completed", "model": "m", "output": [{"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "{\"ok\": true, \"why\": null}", "annotations": []}]}], "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}});
    let gemini = json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "{\"ok\": true}"}]}, "finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}});
    let answers = [anthropic, chat, responses, gemini].map(|answer| HttpReply::json(200, answer.to_string()));
    let server = SseServer::start(answers).await.unwrap();
    let anthropic = Anthropic::builder().api_key("k").base_url(server.url()).build().unwrap();
    let chat = OpenAiChat::builder().api_key("k").base_url(server.url()).build().unwrap();
    let on = |builder: zidane::AgentBuilder, model: &str| builder.model(model).build().unwrap();
    let first = on(Agent::builder().provider(anthropic), "claude-sonnet-5-5");
    let second = on(Agent::builder().provider(chat), "gpt-6-luna");
    assert!(first.run_typed::<Verdict>("Well?").await.unwrap().0.ok);
    assert!(second.run_typed::<Verdict>("Well?").await.unwrap().0.ok);
    let responses = OpenAi::builder().api_key("k").base_url(server.url()).build().unwrap();
    let gemini = Gemini::builder().api_key("k").base_url(server.url()).build().unwrap();
    let third = on(Agent::builder().provider(responses), "gpt-6-luna");
    let fourth = on(Agent::builder().provider(gemini), "gemini-3.5-flash");
    assert!(third.run_typed::<Verdict>("Well?").await.unwrap().0.ok);
    assert!(fourth.run_typed::<Verdict>("Well?").await.unwrap().0.ok);
    let bodies: Vec<_> = server.requests().iter().map(|request| request.json().unwrap()).collect();
    let format = &bodies[0]["output_config"]["format"];
    assert_eq!((&format["type"], &format["schema"]["additionalProperties"]), (&json!("json_schema"), &json!(false)));
    assert_eq!(bodies[0].get("system"), None, "the wire says it, the system text need not");
    let format = &bodies[1]["response_format"];
    assert_eq!(format["type"], "json_schema");
    assert_eq!(format["json_schema"]["name"], "answer");
    assert_eq!(format["json_schema"]["schema"]["required"], json!(["ok", "why"]), "strict mode wants all of them");
    let format = &bodies[2]["text"]["format"];
    assert_eq!((&format["type"], &format["strict"]), (&json!("json_schema"), &json!(true)));
    let config = &bodies[3]["generationConfig"];
    assert_eq!(config["responseMimeType"], "application/json");
    assert_eq!(config["responseJsonSchema"]["properties"]["ok"]["type"], "boolean");
}

//! The agent as a user meets it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use zidane::hooks::{StreamText, ToolGate};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider};
use zidane::tool::{Concurrency, tool_fn};
use zidane::{Agent, AgentEvent, RunErrorKind, StopCause};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

fn weather() -> impl zidane::tool::Tool {
    tool_fn("weather", "Current weather of a city", |input: Weather, _cx| async move {
        Ok(format!("{}: 21 °C, clear", input.city))
    })
}

fn agent(model: &ScriptedProvider) -> Agent {
    Agent::builder().provider(model.clone()).model("test").tool(weather()).build().unwrap()
}

#[tokio::test]
async fn a_run_calls_the_tool_and_answers() {
    let model = ScriptedProvider::new([
        Reply::text("Let me look.").and_call("weather", json!({"city": "Lyon"})),
        Reply::text("Clear, 21 °C."),
    ]);
    let agent = agent(&model);
    let recorder = EventRecorder::attach(&agent);
    let outcome = agent.run("What is the weather in Lyon?").await.unwrap();
    assert_eq!(outcome.text, "Clear, 21 °C.");
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(outcome.turns.len(), 4);
    let result = outcome.turns[2].tool_results().next().unwrap().clone();
    assert_eq!(result.output, "Lyon: 21 °C, clear".into());
    assert_eq!(outcome.stats.total_in, 20);
    assert_eq!(outcome.stats.turns, 2);
    assert_eq!(
        recorder.events(),
        [
            "agent:start",
            "system:before",
            "turn:before 1",
            "attempt:start 1",
            "stream:end complete",
            "turn:usage 15",
            "tool:gate weather",
            "tool:before weather",
            "tool:transform weather ok",
            "tool:after weather ok",
            "turn:after 1",
            "turn:before 2",
            "attempt:start 1",
            "stream:end complete",
            "turn:usage 15",
            "turn:after 2",
            "agent:done stop",
        ]
    );
    assert!(!agent.is_running());
    model.push(Reply::text("You are welcome."));
    let outcome = agent.run("Thanks").await.unwrap();
    assert_eq!(outcome.turns.len(), 2);
    assert_eq!(agent.history().len(), 6);
}

#[tokio::test]
async fn a_stream_tells_what_happens_and_ends_with_the_outcome() {
    let model = ScriptedProvider::new([
        Reply::deltas(["Let ", "me ", "look."]).and_call("weather", json!({"city": "Lyon"})),
        Reply::deltas(["Clear", "."]),
    ]);
    let agent = agent(&model);
    let seen = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&seen);
    agent.hooks().on::<StreamText>(move |cx| heard.lock().unwrap().push_str(cx.delta()));
    let mut events = agent.run("Weather?").stream();
    let mut text = String::new();
    let mut last = None;
    while let Some(event) = events.next().await {
        if let AgentEvent::Text { delta } = &event {
            text.push_str(delta);
        }
        last = Some(event);
    }
    assert_eq!(text, "Let me look.Clear.");
    assert_eq!(*seen.lock().unwrap(), text);
    let Some(AgentEvent::Done(Ok(outcome))) = last else { panic!("{last:?}") };
    assert_eq!(outcome.text, "Clear.");
}

#[tokio::test]
async fn a_gate_blocks_and_the_model_reads_why() {
    let model = ScriptedProvider::new([Reply::call("weather", json!({"city": "Lyon"})), Reply::text("Sorry.")]);
    let agent = agent(&model);
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.name() == "weather" {
            cx.block("not here");
        }
    });
    let outcome = agent.run("Weather?").await.unwrap();
    assert_eq!(outcome.denials[0].reason, "not here");
    let result = outcome.turns[2].tool_results().next().unwrap().clone();
    assert!(result.is_error);
    assert_eq!(result.output, "not here".into());
}

#[tokio::test]
async fn runs_can_be_spawned_and_a_second_one_is_refused() {
    let model = ScriptedProvider::new([Reply::text("Hi").after(std::time::Duration::from_millis(20))]);
    let agent = agent(&model);
    let first = tokio::spawn(agent.run("x").max_turns(4));
    tokio::task::yield_now().await;
    let error = agent.run("y").await.unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::AlreadyRunning), "{error}");
    assert_eq!(first.await.unwrap().unwrap().text, "Hi");
    agent.wait_for_idle().await;
}

#[test]
fn a_run_outside_a_runtime_says_so() {
    let agent = agent(&ScriptedProvider::new([]));
    let error = futures::executor::block_on(agent.run("x")).unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::NoRuntime), "{error}");
}

#[tokio::test]
async fn shared_tools_run_together() {
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    let meet = tool_fn("meet", "Waits for the others", move |_: zidane::tool::NoInput, _cx| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            Ok("met")
        }
    })
    .concurrency(Concurrency::Shared);
    let model = ScriptedProvider::new([
        Reply::call("meet", json!({})).and_call("meet", json!({})).and_call("meet", json!({})),
        Reply::text("ok"),
    ]);
    let agent = Agent::builder().provider(model.clone()).model("test").tool(meet).build().unwrap();
    let outcome = agent.run("go").await.unwrap();
    assert_eq!(outcome.turns[2].tool_results().count(), 3);
}

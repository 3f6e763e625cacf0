//! Inputs of a size or kind that nobody plans for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::time::{Duration, Instant};

use harness::{Scenario, echo, tool};
use serde_json::{Value, json};
use zidane::agent::ToolExecution;
use zidane::hooks::{ContextTransform, ToolAfter};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{Concurrency, tool_fn_blocking};
use zidane::{Agent, StopCause};

#[tokio::test]
async fn ten_thousand_calls_in_one_turn() {
    let calls = (0..10_000).fold(Reply::empty(), |reply, n| reply.and_call("echo", json!({ "n": n })));
    let told = Scenario::new([calls, Reply::text("ok")])
        .build(|builder| builder.tool(echo()).tool_execution(ToolExecution::Parallel))
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    let results: Vec<_> = told.outcome().turns[2].tool_results().collect();
    assert_eq!(results.len(), 10_000);
    assert_eq!(results[9_999].output, "{\"n\":9999}".into());
}

#[tokio::test]
async fn a_tool_result_of_16_megabytes_and_arguments_of_5() {
    let big = "x".repeat(5 << 20);
    let sizes = harness::Notes::default();
    let log = sizes.clone();
    let told = Scenario::new([Reply::call("grow", json!({ "text": big })), Reply::text("ok")])
        .build(|builder| {
            builder.tool(tool("grow", |input, _| {
                Box::pin(async move {
                    assert_eq!(input["text"].as_str().map(str::len), Some(5 << 20));
                    Ok("y".repeat(16 << 20).into())
                })
            }))
        })
        .hooks(move |agent| {
            let log = log.clone();
            agent.hooks().on::<ToolAfter>(move |cx| log.add(cx.output_bytes().to_string()));
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    assert_eq!(sizes.all(), [(16 << 20).to_string()]);
    let call = told.outcome().turns[1].tool_calls().next().unwrap().clone();
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(arguments["text"].as_str(), Some(big.as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_does_not_keep_an_abort_waiting() {
    let model = ScriptedProvider::new([Reply::call("blocks", json!({})), Reply::text("fine")]);
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let (begun, running) = tokio::sync::oneshot::channel();
    let held = std::sync::Mutex::new(Some((blocked, begun)));
    let blocks = tool("blocks", move |_, _| {
        let (blocked, begun) = held.lock().unwrap().take().unwrap();
        Box::pin(async move {
            begun.send(()).unwrap();
            // Holds up its worker until the test lets go, deaf to the token.
            let _ = blocked.recv_timeout(Duration::from_secs(30));
            Ok("late".into())
        })
    });
    let agent = Agent::builder()
        .provider(model)
        .model("test")
        .tool(blocks)
        .cancel_grace(Duration::from_millis(20))
        .build()
        .unwrap();
    let run = tokio::spawn(agent.run("Go"));
    running.await.unwrap();
    // From outside: what the blocked worker itself woke would wait in its own slot.
    let started = Instant::now();
    agent.abort();
    let outcome = run.await.unwrap().unwrap();
    assert_eq!(outcome.stop, StopCause::Aborted);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    release.send(()).unwrap();
    assert_eq!(agent.run("Go on").await.unwrap().text, "fine");
}

#[tokio::test]
async fn blocking_tools_do_not_stall_a_single_threaded_runtime() {
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = std::sync::Arc::new(std::sync::Mutex::new(Some(blocked)));
    let wait = tool_fn_blocking("wait", "Blocks", move |_: zidane::tool::NoInput, _cx| {
        let blocked = blocked.lock().unwrap().take().unwrap();
        blocked.recv_timeout(Duration::from_secs(20)).map_err(|_| "nobody let go")?;
        Ok("released")
    });
    let first = Agent::builder()
        .provider(ScriptedProvider::new([Reply::call("wait", json!({})), Reply::text("first")]))
        .model("test")
        .tool(wait.concurrency(Concurrency::Shared))
        .build()
        .unwrap();
    let second = Agent::builder()
        .provider(ScriptedProvider::new([Reply::deltas((0..100).map(|n| n.to_string()))]))
        .model("test")
        .build()
        .unwrap();
    let first = tokio::spawn(first.run("Go"));
    tokio::task::yield_now().await;
    assert_eq!(second.run("Go").await.unwrap().stop, StopCause::Stop);
    release.send(()).unwrap();
    assert_eq!(first.await.unwrap().unwrap().text, "first");
}

#[tokio::test]
async fn a_transform_may_empty_the_history_only_by_an_error() {
    let told = Scenario::new([Reply::text("never")])
        .hooks(|agent| {
            agent.hooks().on::<ContextTransform>(|cx| cx.turns_mut().clear());
        })
        .tell()
        .await;
    assert!(told.result.is_err());
    assert!(told.model.requests().is_empty());
}

#[tokio::test]
async fn aborting_an_idle_agent_does_nothing() {
    let agent = Agent::builder().provider(ScriptedProvider::new([Reply::text("hi")])).model("test").build().unwrap();
    agent.abort();
    agent.abort();
    agent.drain();
    assert_eq!(agent.run("Go").await.unwrap().text, "hi");
    assert!(agent.handle().unqueue(agent.steer("x").unwrap()).is_some());
    for n in 0..1024 {
        agent.steer(n.to_string()).unwrap();
    }
    assert_eq!(agent.steer("one too many").unwrap_err().limit, 1024);
}

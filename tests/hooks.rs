//! The hook bus: registration, scopes, order, time limits, and what a handler may be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Notes, echo, forbidden};
use serde_json::json;
use zidane::Agent;
use zidane::clock::Clock;
use zidane::hooks::{AgentDone, AgentStart, HookError, Scope, ToolAfter, ToolGate, TurnAfter, TurnBefore};
use zidane::testing::{Reply, ScriptedProvider, VirtualClock};
use zidane::tool::Tool;
use zidane::types::Timestamp;

fn agent(replies: impl IntoIterator<Item = Reply>, tool: impl Tool + 'static) -> Agent {
    Agent::builder().provider(ScriptedProvider::new(replies)).model("test").tool(tool).build().unwrap()
}

fn call_then_text() -> [Reply; 2] {
    [Reply::call("echo", json!({})), Reply::text("ok")]
}

#[tokio::test]
async fn handlers_run_in_registration_order_sync_and_async_alike() {
    let agent = agent(call_then_text(), echo());
    let notes = Notes::default();
    for n in 0..4 {
        let log = notes.clone();
        if n % 2 == 0 {
            agent.hooks().on::<ToolAfter>(move |_| log.add(n.to_string()));
        } else {
            agent.hooks().on_async::<ToolAfter>(move |cx| {
                let log = log.clone();
                Box::pin(async move {
                    tokio::task::yield_now().await;
                    log.add(format!("{n} {}", cx.name()));
                })
            });
        }
    }
    agent.run("Go").await.unwrap();
    assert_eq!(notes.all(), ["0", "1 echo", "2", "3 echo"]);
}

#[tokio::test]
async fn a_gate_stops_at_the_first_block() {
    let agent = agent(call_then_text(), forbidden("echo"));
    let asked = Arc::new(AtomicUsize::new(0));
    agent.hooks().on::<ToolGate>(|cx| cx.block("no"));
    let count = Arc::clone(&asked);
    agent.hooks().on::<ToolGate>(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    agent.run("Go").await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn run_scope_ends_with_the_run_and_removal_with_the_id() {
    let agent = agent((0..3).map(|_| Reply::text("ok")), echo());
    let notes = Notes::default();
    let (once, always, removed) = (notes.clone(), notes.clone(), notes.clone());
    agent.hooks().scope(Scope::Run).on::<AgentStart>(move |_| once.add("once"));
    agent.hooks().on::<AgentStart>(move |_| always.add("always"));
    let id = agent.hooks().on::<AgentStart>(move |_| removed.add("removed"));
    agent.run("1").await.unwrap();
    assert!(agent.hooks().remove(id));
    assert!(!agent.hooks().remove(id));
    agent.run("2").await.unwrap();
    assert_eq!(notes.all(), ["once", "always", "removed", "always"]);
}

#[tokio::test]
async fn a_dropped_run_takes_its_hooks_along() {
    let agent = agent([Reply::empty().then_stall(), Reply::text("ok")], echo());
    let notes = Notes::default();
    let log = notes.clone();
    agent.hooks().scope(Scope::Run).on::<AgentDone>(move |_| log.add("done"));
    assert!(tokio::time::timeout(Duration::from_millis(20), agent.run("1")).await.is_err());
    agent.run("2").await.unwrap();
    assert!(notes.all().is_empty());
}

#[tokio::test]
async fn handlers_may_register_and_remove_from_inside() {
    let agent = agent((0..2).map(|_| Reply::text("ok")), echo());
    let notes = Notes::default();
    let hooks = agent.hooks().clone();
    let log = notes.clone();
    agent.hooks().scope(Scope::Run).on::<AgentStart>(move |_| {
        let log = log.clone();
        hooks.scope(Scope::Run).on::<AgentDone>(move |_| log.add("registered inside"));
    });
    agent.run("1").await.unwrap();
    agent.run("2").await.unwrap();
    assert_eq!(notes.all(), ["registered inside"]);
}

#[tokio::test(start_paused = true)]
async fn an_async_handler_has_its_time() {
    let agent = agent(call_then_text(), forbidden("echo"));
    let failures = Notes::default();
    let log = failures.clone();
    agent.hooks().on::<HookError>(move |cx| log.add(format!("{}: {}", cx.hook(), cx.cause())));
    agent
        .hooks()
        .scope(Scope::Tree)
        .timeout(Duration::from_secs(3))
        .on_async::<ToolGate>(|_| Box::pin(std::future::pending::<()>()));
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!(outcome.denials.len(), 1, "a gate that does not answer blocks");
    assert_eq!(failures.all(), ["tool:gate: timed out after 3s"]);
}

#[tokio::test]
async fn a_handler_that_never_returns_ends_with_an_abort() {
    let agent = agent(call_then_text(), forbidden("echo"));
    agent.hooks().on_async::<ToolGate>(|_| Box::pin(std::future::pending::<()>()));
    let run = tokio::spawn(agent.run("Go"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    agent.abort();
    let outcome = tokio::time::timeout(Duration::from_secs(5), run).await.unwrap().unwrap().unwrap();
    assert_eq!(outcome.stop, zidane::StopCause::Aborted);
}

#[tokio::test]
async fn async_panics_are_caught_and_errors_may_be_of_any_kind() {
    let agent = agent([Reply::text("ok")], echo());
    let failures = Notes::default();
    let log = failures.clone();
    agent.hooks().on::<HookError>(move |cx| log.add(cx.cause().to_string()));
    agent.hooks().on_async::<TurnAfter>(|_| {
        Box::pin(async {
            tokio::task::yield_now().await;
            panic!("boom")
        })
    });
    agent.hooks().on::<TurnAfter>(|_| -> Result<(), std::fmt::Error> { Err(std::fmt::Error) });
    agent.hooks().on::<TurnAfter>(|_| -> Result<(), String> { Err("text".into()) });
    agent.hooks().on::<TurnAfter>(|_| todo!());
    agent.run("Go").await.unwrap();
    let seen = failures.all();
    assert_eq!(seen[0], "panicked: boom");
    assert_eq!(seen[2], "text");
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn hooks_reach_the_agent_without_owning_it() {
    let agent = agent([Reply::text("one"), Reply::text("two")], echo());
    agent.hooks().on::<TurnBefore>(|cx| {
        assert!(cx.agent().is_running());
        if cx.number() == 1 {
            cx.agent().follow_up("more").unwrap();
        }
    });
    assert_eq!(agent.run("Go").await.unwrap().text, "two");
    let handle = agent.handle().clone();
    drop(agent);
    assert!(!handle.is_running());
}

#[tokio::test]
async fn a_runs_clock_wins_over_the_agents() {
    let clock = |at| VirtualClock::with_seed(Timestamp(at), &at.to_string());
    let agent = Agent::builder()
        .provider(ScriptedProvider::new((0..3).map(|_| Reply::text("ok"))))
        .model("test")
        .clock(clock(1_000))
        .build()
        .unwrap();
    let outcome = agent.run("1").await.unwrap();
    assert!(outcome.turns.iter().all(|turn| turn.created_at == Timestamp(1_000)));
    let again = clock(2_000);
    let expected = clock(2_000).random_uuid().to_string();
    let outcome = agent.run("2").clock(again).await.unwrap();
    assert!(outcome.turns.iter().all(|turn| turn.created_at == Timestamp(2_000)));
    assert_eq!(outcome.run_id, expected);
    let system = Agent::builder().provider(ScriptedProvider::new([Reply::text("ok")])).model("test").build().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let outcome = system.run("3").await.unwrap();
    assert!(u128::from(outcome.turns[0].created_at.0) >= now, "without a clock it is the system's");
}

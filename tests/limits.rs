//! Limits hold for a run with everything it spawns: shared from above, narrower below, exact under concurrency.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{echo, tool};
use serde_json::json;
use zidane::agent::{ChildSource, Limit, Limits, Spawn};
use zidane::hooks::{Scope, ToolBefore, ToolGate, TurnBefore};
use zidane::provider::{PriceBook, Rates};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{ChildStatus, NanoUsd, TokenUsage, fold_totals, tool_result_to_text, walk_turns};
use zidane::{Agent, AgentBuilder, RunOutcome, StopCause};

fn agent(replies: impl IntoIterator<Item = Reply>) -> AgentBuilder {
    Agent::builder().provider(ScriptedProvider::new(replies)).model("test")
}

/// An agent that never comes to an end by itself: it calls `echo`, time and again.
fn busy() -> AgentBuilder {
    Agent::builder().provider(ScriptedProvider::repeating(Reply::call("echo", json!({})))).model("test").tool(echo())
}

fn spawn(name: &str, child: impl ChildSource) -> Spawn {
    Spawn::new(name, "Gives a task to another agent", child)
}

fn calls(name: &str, count: usize) -> Reply {
    (0..count).fold(Reply::empty(), |reply, _| reply.and_call(name, json!({ "task": "Go" })))
}

fn result(agent: &Agent, number: usize) -> (bool, String) {
    let history = agent.history();
    let result = history.iter().flat_map(|turn| turn.tool_results()).nth(number).expect("a result");
    (result.is_error, tool_result_to_text(&result.output).into_owned())
}

fn check(outcome: &RunOutcome) {
    assert_eq!(outcome.stats.totals(), fold_totals(&outcome.stats));
}

#[tokio::test]
async fn turns_of_a_whole_tree_are_counted_exactly() {
    for limit in [2_u64, 7, 23] {
        // Eight at once, each of which would go on for ever.
        let root = agent([calls("busy", 8), Reply::text("done")]).tool(spawn("busy", busy));
        let root = root.limits(Limits::none().turns(limit)).build().unwrap();
        let outcome = root.run("Go").await.unwrap();
        assert_eq!(outcome.stop, StopCause::Limit(Limit::Turns));
        assert_eq!(walk_turns(&outcome.stats).count() as u64, limit);
        assert!(outcome.stats.children.iter().all(|child| child.status == ChildStatus::Limit));
        check(&outcome);
    }
}

/// The same on several threads, where the children do run at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_are_counted_exactly_across_threads() {
    for _ in 0..20 {
        let root = agent([calls("busy", 8), Reply::text("done")]).tool(spawn("busy", busy));
        let root = root.limits(Limits::none().turns(40).tool_calls(30)).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        root.hooks().scope(Scope::Tree).on::<ToolBefore>(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let outcome = root.run("Go").await.unwrap();
        assert!(outcome.stats.children.iter().all(|child| child.status == ChildStatus::Limit));
        assert_eq!(ran.load(Ordering::Relaxed), 30, "the root's eight, and what is left for the children");
        assert!(walk_turns(&outcome.stats).count() <= 40);
        check(&outcome);
    }
}

#[tokio::test]
async fn calls_of_a_whole_tree_are_counted_and_a_batch_runs_whole_or_not_at_all() {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let child = move || {
        let count = Arc::clone(&count);
        let counted = tool("counted", move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(().into()) })
        });
        Agent::builder().provider(ScriptedProvider::repeating(calls("counted", 3))).model("test").tool(counted)
    };
    let root = agent([calls("child", 2), Reply::text("done")]).tool(spawn("child", child));
    let root = root.limits(Limits::none().tool_calls(2 + 7)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 6, "two batches of three, and no part of a third");
    assert!(outcome.stats.children.iter().all(|child| child.status == ChildStatus::Limit));
    // The root asks for no more calls, and may still speak.
    assert_eq!(outcome.stop, StopCause::Stop);
}

#[tokio::test]
async fn a_refused_batch_is_not_counted_anywhere() {
    // The child may make many calls, the root one more: its batch of two is refused, and costs neither.
    let child = || agent([calls("echo", 2)]).tool(echo()).limits(Limits::none().tool_calls(10));
    let root = agent([calls("child", 1), Reply::call("echo", json!({})), Reply::text("done")]);
    let root = root.tool(spawn("child", child)).tool(echo()).limits(Limits::none().tool_calls(2)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert!(result(&root, 0).0 && !result(&root, 1).0);
}

#[tokio::test]
async fn a_childs_narrower_limit_stops_it_alone() {
    let root = agent([calls("busy", 1), Reply::text("done")]).tool(spawn("busy", busy).limits(Limits::none().turns(3)));
    let root = root.limits(Limits::none().turns(100)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!((outcome.stop.clone(), &*outcome.text), (StopCause::Stop, "done"));
    assert_eq!((outcome.stats.children[0].status, outcome.stats.children[0].stats.turns), (ChildStatus::Limit, 3));
    assert!(result(&root, 0).1.contains("limit of turns"), "{:?}", result(&root, 0));
}

#[tokio::test]
async fn a_parents_smaller_limit_wins() {
    let child = || busy().limits(Limits::none().turns(1_000).tokens(u64::MAX));
    let root = agent([calls("busy", 1), Reply::text("done")]).tool(spawn("busy", child));
    let root = root.limits(Limits::none().turns(4)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Limit(Limit::Turns));
    assert_eq!(outcome.stats.children[0].stats.turns, 3);
    // A run's own limits, not the agent's, are what the tree shares.
    let root = agent([calls("busy", 1), Reply::text("done")]).tool(spawn("busy", child)).build().unwrap();
    let outcome = root.run("Go").limits(Limits::none().turns(6)).await.unwrap();
    assert_eq!((outcome.stop, outcome.stats.children[0].stats.turns), (StopCause::Limit(Limit::Turns), 5));
}

#[tokio::test]
async fn tokens_and_cost_of_a_tree_are_shared() {
    let tokens = TokenUsage { input: 90, output: 10, ..TokenUsage::default() };
    let busy = move || {
        let reply = Reply::call("echo", json!({})).usage(tokens);
        Agent::builder().provider(ScriptedProvider::repeating(reply)).model("test").tool(echo())
    };
    let root = || agent([calls("busy", 1).usage(tokens), Reply::text("done")]).tool(spawn("busy", busy));
    let outcome = root().limits(Limits::none().tokens(450)).build().unwrap().run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Limit(Limit::Tokens));
    assert_eq!(walk_turns(&outcome.stats).count(), 5, "the answer that goes over is the last one");

    // Prices of the root hold below: 90 in at 1 $ and 10 out at 1 $ a million are 100,000 nano-dollars.
    let prices = || PriceBook::empty().set("scripted", "test", Rates::usd(1.0, 1.0));
    let cost = Limits::none().cost(NanoUsd(350_000));
    let outcome = root().prices(prices()).limits(cost.clone()).build().unwrap().run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Limit(Limit::Cost));
    assert_eq!(outcome.stats.total_cost, NanoUsd(400_000));
    assert_eq!(outcome.stats.unpriced_turns, 0);

    // What has no price costs nothing that a limit could hold: here the child is stopped by its turn cap.
    let unpriced = move || busy().prices(PriceBook::empty()).max_turns(9);
    let root = agent([calls("busy", 1).usage(tokens), Reply::text("done")]).tool(spawn("busy", unpriced));
    let outcome = root.prices(prices()).limits(cost).build().unwrap().run("Go").await.unwrap();
    assert_eq!((outcome.stop.clone(), outcome.stats.unpriced_turns), (StopCause::Stop, 9));
}

#[tokio::test]
async fn time_is_shared_too() {
    let root = agent([calls("busy", 1), Reply::text("done")]);
    let root = root.tool(spawn("busy", busy).limits(Limits::none().wall_clock(Duration::ZERO))).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!((outcome.stop, outcome.stats.children[0].status), (StopCause::Stop, ChildStatus::Limit));
    // The root's time runs out while its child is at work.
    let root = agent([calls("busy", 1), Reply::text("done")]).tool(spawn("busy", busy).max_turns(None));
    let root = root.limits(Limits::none().wall_clock(Duration::from_secs(60))).build().unwrap();
    let outcome = root.run("Go").limits(Limits::none().wall_clock(Duration::from_millis(20)).turns(100_000));
    let outcome = outcome.await.unwrap();
    assert_eq!(outcome.stop, StopCause::Limit(Limit::WallClock));
    assert_eq!(outcome.stats.children[0].status, ChildStatus::Limit);
}

#[tokio::test]
async fn a_turn_that_was_never_made_is_not_counted() {
    let root = agent([calls("child", 1), Reply::text("done")]);
    let root =
        root.tool(spawn("child", || agent([Reply::text("ok")]))).limits(Limits::none().turns(2)).build().unwrap();
    root.hooks().scope(Scope::Tree).on::<TurnBefore>(|cx| if cx.depth() == 1 { Err("no") } else { Ok(()) });
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop, "the turn that the hook kept back is there for the root");
    assert_eq!(outcome.stats.children[0].status, ChildStatus::Failed);
}

#[tokio::test]
async fn nothing_is_spawned_once_a_limit_is_reached() {
    let root = agent([calls("child", 1), Reply::text("done")]).tool(spawn("child", busy));
    let root = root.limits(Limits::none().turns(1)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert!(outcome.stats.children.is_empty());
    assert!(result(&root, 0).1.contains("the limit of turns is reached"), "{:?}", result(&root, 0));
    assert_eq!(outcome.stop, StopCause::Limit(Limit::Turns));
}

/// Calls that a tool makes count toward the limits of the run, and of those above it.
#[tokio::test]
async fn calls_that_tools_make_count_too() {
    let nested = || {
        let outer = tool("outer", |_, cx| {
            Box::pin(async move {
                let mut made = 0;
                while !cx.run_tool("echo", json!({})).await?.is_error {
                    made += 1;
                }
                Ok(made.to_string().into())
            })
        });
        agent([Reply::call("outer", json!({})), Reply::text("ok")]).tool(outer).tool(echo())
    };
    let root = agent([calls("child", 1), Reply::text("done")]).tool(spawn("child", nested));
    let root = root.limits(Limits::none().tool_calls(8)).build().unwrap();
    let echoed = Arc::new(AtomicUsize::new(0));
    let (count, gated) = (Arc::clone(&echoed), Arc::new(AtomicUsize::new(0)));
    let gates = Arc::clone(&gated);
    root.hooks().scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        if cx.name() == "echo" {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    root.hooks().on::<ToolGate>(move |_| {
        gates.fetch_add(1, Ordering::Relaxed);
    });
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(echoed.load(Ordering::Relaxed), 6, "the spawn and the outer call are two of the eight");
    assert_eq!(gated.load(Ordering::Relaxed), 8);
}

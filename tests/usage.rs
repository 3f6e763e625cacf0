//! Usage of trees of runs: whatever fails, is aborted or is stopped, the totals are the fold and nothing is lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{echo, tool};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use zidane::agent::{Compaction, Limit, Limits, Spawn};
use zidane::hooks::{Scope, SpawnBefore, SpawnComplete, ToolBefore, ToolGate, TurnUsageHook};
use zidane::provider::{Capabilities, PriceBook, ProviderError, ProviderErrorKind, Rates};
use zidane::session::MemorySessionStore;
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::types::{
    AgentStats, ChildStatus, Media, NanoUsd, PromptPart, TokenUsage, Totals, UsageKind, fold_totals,
    stats_by_provider_model, stats_by_run, walk_turns,
};
use zidane::{Agent, AgentBuilder, StopCause};

const MS: Duration = Duration::from_millis(1);

fn task() -> serde_json::Value {
    json!({ "task": "Go" })
}

#[tokio::test]
async fn a_tree_of_models_is_told_apart() {
    let prices =
        PriceBook::empty().set("scripted", "large", Rates::usd(10.0, 20.0)).set("other", "small", Rates::usd(1.0, 2.0));
    let small = || {
        // A request that fails after it was billed is counted in the turn that follows.
        let provider = ScriptedProvider::new([Reply::call("echo", json!({})), Reply::text("ok")]).id("other");
        Agent::builder().provider(provider).model("small").tool(echo())
    };
    let strange = || Agent::builder().provider(ScriptedProvider::new([Reply::text("ok")]).id("other")).model("strange");
    let root = ScriptedProvider::new([
        Reply::call("small", task()).and_call("strange", task()),
        Reply::call("small", task()).model("larger"),
        Reply::text("done"),
    ]);
    let root = Agent::builder()
        .provider(root)
        .model("large")
        .prices(prices)
        .tool(Spawn::new("small", "A small one", small))
        .tool(Spawn::new("strange", "A strange one", strange));
    let stats = root.build().unwrap().run("Go").await.unwrap().stats;
    assert_eq!(stats.totals(), fold_totals(&stats));
    let models: Vec<_> = stats.by_model().into_iter().map(|(model, usage)| (model, usage.turns, usage.cost)).collect();
    let each = NanoUsd(20_000);
    let expected = [
        ("large", 2, Some(NanoUsd(400_000))),
        ("larger", 1, Some(NanoUsd(200_000))),
        ("strange", 1, None),
        ("small", 4, Some(each + each + each + each)),
    ];
    assert_eq!(models, expected.map(|(model, turns, cost)| (model.to_owned(), turns, cost)));
    assert_eq!((stats.unpriced_turns, stats.total_cost), (1, NanoUsd(680_000)));
    let providers: Vec<_> =
        stats_by_provider_model(&stats).into_iter().map(|(key, usage)| (key, usage.turns)).collect();
    assert_eq!(providers.iter().filter(|((provider, _), _)| provider == "other").map(|(_, n)| n).sum::<u64>(), 5);
    let runs = stats_by_run(&stats);
    assert_eq!(runs.len(), 4);
    for child in &stats.children {
        let (_, usage) = runs.iter().find(|(run, _)| *run == child.id).unwrap();
        assert_eq!(usage.turns, u64::from(child.stats.turns));
    }
}

#[tokio::test]
async fn side_requests_of_a_child_are_in_the_tree() {
    let eyes = ScriptedProvider::repeating(Reply::text("a square")).id("eyes").allow_prefix_breaks();
    let writer = ScriptedProvider::repeating(Reply::text("So far.")).id("writer").allow_prefix_breaks();
    let child = move || {
        let model = ScriptedProvider::new([
            Reply::call("shot", json!({})),
            Reply::call("shot", json!({})).usage(TokenUsage { input: 5_000, ..TokenUsage::default() }),
            Reply::text("ok"),
        ]);
        let shot = tool("shot", |_, cx| {
            Box::pin(async move {
                let image = Media::bytes("image/png", cx.call_id().as_bytes());
                Ok(vec![zidane::types::ToolResultContent::Image(image)].into())
            })
        });
        Agent::builder()
            .provider(model.capabilities(Capabilities::TEXT).allow_prefix_breaks())
            .model("blind")
            .vision_fallback(eyes.clone(), "seeing")
            .compaction(Compaction::new().model(writer.clone(), "writing").tokens(4_000).keep(1))
            .tool(shot)
    };
    let root = ScriptedProvider::new([Reply::call("child", task()), Reply::text("done")]);
    let root =
        Agent::builder().provider(root).model("large").tool(Spawn::new("child", "Looks", child)).build().unwrap();
    let stats = root.run([PromptPart::text("Go")]).await.unwrap().stats;
    assert_eq!(stats.totals(), fold_totals(&stats));
    let child = &stats.children[0];
    let kinds: Vec<_> = child.stats.turn_usage.iter().map(|usage| usage.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == UsageKind::Vision).count(), 2, "{kinds:?}");
    assert!(kinds.contains(&UsageKind::Compaction), "{kinds:?}");
    assert_eq!(child.stats.turns, 3, "side requests are no turns");
    assert!(child.stats.turn_usage.iter().all(|usage| usage.run_id == child.id && usage.depth == 1));
    assert!(stats.by_model().iter().any(|(model, _)| model == "seeing"));
}

#[tokio::test]
async fn the_stored_end_of_a_run_has_the_whole_tree() {
    let child = || Agent::builder().provider(ScriptedProvider::new([Reply::text("ok")])).model("small");
    let root = ScriptedProvider::new([Reply::call("child", task()), Reply::text("done")]);
    let store = Arc::new(MemorySessionStore::new());
    let child_store = Arc::clone(&store);
    let kept = move || child().session_store(Arc::clone(&child_store));
    let root = Agent::builder().provider(root).model("large").tool(Spawn::new("child", "Helps", kept));
    let root = root.session_store(Arc::clone(&store)).session_id("root").build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    let session = root.session().await.unwrap().unwrap();
    let stored = session.runs[0].end.as_ref().unwrap().stats.as_ref().unwrap();
    assert_eq!(stored.totals(), fold_totals(&outcome.stats));
    let text = serde_json::to_string(stored).unwrap();
    let read: AgentStats = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!((read.totals(), read.children.len()), (stored.totals(), 1));
    assert_eq!(read.children[0].id, outcome.stats.children[0].id);
}

/// One run of a random tree.
#[derive(Clone, Debug)]
struct Node {
    turns: Vec<Turn>,
    max_turns: u32,
    limits: Limits,
}

#[derive(Clone, Debug)]
enum Turn {
    Calls(Vec<Call>),
    Fails,
    FailsLate,
    Panics,
    Says,
}

#[derive(Clone, Debug)]
enum Call {
    Echo,
    Fails,
    Slow,
    /// Takes its time, also when it is to stop.
    Deaf,
    AbortsOwn,
    Blocked,
    GivesUp(Node),
    Spawns(Node),
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![
        6 => Just(Limits::none()),
        1 => (0..6_u64).prop_map(|n| Limits::none().turns(n)),
        1 => (0..6_u64).prop_map(|n| Limits::none().tool_calls(n)),
        1 => (0..90_u64).prop_map(|n| Limits::none().tokens(n)),
    ]
}

fn node(turns: impl Strategy<Value = Turn> + 'static) -> BoxedStrategy<Node> {
    let max_turns = prop_oneof![4 => Just(50_u32), 1 => 0..3_u32];
    (proptest::collection::vec(turns, 0..4), max_turns, limits())
        .prop_map(|(turns, max_turns, limits)| Node { turns, max_turns, limits })
        .boxed()
}

fn simple_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => Just(Call::Echo),
        2 => Just(Call::Fails),
        2 => Just(Call::Slow),
        1 => Just(Call::Blocked),
        1 => Just(Call::AbortsOwn),
        1 => Just(Call::Deaf),
    ]
}

fn turn(call: impl Strategy<Value = Call> + 'static) -> BoxedStrategy<Turn> {
    prop_oneof![
        8 => proptest::collection::vec(call, 1..4).prop_map(Turn::Calls),
        1 => Just(Turn::Fails),
        1 => Just(Turn::FailsLate),
        1 => Just(Turn::Panics),
        1 => Just(Turn::Says),
    ]
    .boxed()
}

fn trees() -> BoxedStrategy<Node> {
    let leaf = node(turn(simple_call()));
    leaf.prop_recursive(3, 40, 4, |below| {
        let call = prop_oneof![
            3 => simple_call(),
            5 => below.clone().prop_map(Call::Spawns),
            1 => below.prop_map(Call::GivesUp),
        ];
        node(turn(call))
    })
    .boxed()
}

/// What ends the root's run from outside.
#[derive(Clone, Copy, Debug)]
enum Cut {
    None,
    Abort(u32),
    FromWithin,
}

/// Counts over a run of a tree, from its hooks.
#[derive(Default)]
struct Tally {
    tokens: Mutex<BTreeMap<String, u64>>,
    begun: Mutex<Vec<String>>,
    ended: AtomicUsize,
}

const PANIC: &str = "panics at the model";

/// A scripted provider that panics where the script says so.
struct Model(ScriptedProvider);

#[zidane::async_trait]
impl zidane::provider::Provider for Model {
    fn id(&self) -> &str {
        "scripted"
    }

    async fn stream(
        &self,
        request: Arc<zidane::provider::ModelRequest>,
        cx: &zidane::provider::RequestContext,
    ) -> Result<zidane::provider::ProviderStream, ProviderError> {
        match self.0.stream(request, cx).await {
            // As a panic unwinds, but without its message on the test's output.
            Err(error) if error.message == PANIC => std::panic::resume_unwind(Box::new("no model")),
            answer => answer,
        }
    }
}

fn build(node: &Node, root: bool, from_within: bool) -> AgentBuilder {
    let mut replies = Vec::new();
    let mut tools = Vec::new();
    let mut children = 0;
    for turn in &node.turns {
        let calls = match turn {
            Turn::Says => {
                replies.push(Reply::text("said"));
                continue;
            }
            Turn::Fails => {
                replies.push(Reply::fails(ProviderErrorKind::Invalid));
                continue;
            }
            Turn::FailsLate => {
                let error = ProviderError::new(ProviderErrorKind::Invalid, "scripted", "late");
                replies.push(Reply::text("half").then_error(error));
                continue;
            }
            Turn::Panics => {
                // A panic at the root is the host's own.
                let kind = ProviderErrorKind::Invalid;
                replies.push(Reply::error(ProviderError::new(kind, "scripted", if root { "fails" } else { PANIC })));
                continue;
            }
            Turn::Calls(calls) => calls,
        };
        let mut reply = Reply::text("calling");
        for call in calls {
            let name = match call {
                Call::Echo => "echo".to_owned(),
                Call::Fails => "fails".to_owned(),
                Call::Slow => "slow".to_owned(),
                Call::Deaf => "deaf".to_owned(),
                Call::Blocked => "blocked".to_owned(),
                Call::AbortsOwn if root && !from_within => "echo".to_owned(),
                Call::AbortsOwn => "aborts".to_owned(),
                Call::Spawns(child) | Call::GivesUp(child) => {
                    children += 1;
                    let name = format!("child_{children}");
                    let (child, gives_up) = (build(child, false, from_within), matches!(call, Call::GivesUp(_)));
                    if gives_up {
                        tools.push(Box::new(tool(&name, move |_, cx| {
                            let child = child.clone();
                            Box::pin(async move {
                                let run = cx.spawn(&child, "Go").into_future();
                                drop(tokio::time::timeout(MS * 2, run).await);
                                Ok(().into())
                            })
                        })) as Box<dyn zidane::Tool>);
                    } else {
                        tools.push(Box::new(Spawn::new(&*name, "Helps", child)));
                    }
                    name
                }
            };
            reply = reply.and_call(name, task());
        }
        replies.push(reply);
    }
    replies.push(Reply::text("done"));
    replies.push(Reply::text("done again"));
    let mut builder = Agent::builder()
        .provider(Model(ScriptedProvider::new(replies).allow_prefix_breaks()))
        .model("test")
        .max_turns(node.max_turns)
        .limits(node.limits.clone())
        .cancel_grace(MS * 10)
        .tool(echo())
        .tool(tool("blocked", |_, _| Box::pin(async { std::process::abort() })))
        .tool(tool("fails", |_, _| Box::pin(async { Err("no".into()) })))
        .tool(tool("deaf", |_, _| {
            Box::pin(async {
                tokio::time::sleep(MS * 40).await;
                Ok(().into())
            })
        }))
        .tool(tool("slow", |_, _| {
            Box::pin(async {
                tokio::time::sleep(MS * 3).await;
                Ok(().into())
            })
        }))
        .tool(tool("aborts", |_, cx| {
            Box::pin(async move {
                cx.agent().abort();
                tokio::time::sleep(MS).await;
                Ok(().into())
            })
        }));
    for tool in tools {
        builder = builder.shared_tool(tool.into());
    }
    builder
}

async fn play(node: &Node, cut: Cut) -> Result<(), TestCaseError> {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    let root = build(node, true, matches!(cut, Cut::FromWithin)).build().unwrap();
    let tally = Arc::<Tally>::default();
    let hooks = root.hooks();
    let log = Arc::clone(&tally);
    hooks.scope(Scope::Tree).on::<TurnUsageHook>(move |cx| {
        let mut tokens = log.tokens.lock().unwrap();
        *tokens.entry(cx.run_id().to_owned()).or_default() += cx.usage().tokens.total();
    });
    let log = Arc::clone(&tally);
    hooks.scope(Scope::Tree).on::<SpawnBefore>(move |cx| {
        log.begun.lock().unwrap().push(cx.child().run_id().to_owned());
    });
    let log = Arc::clone(&tally);
    hooks.scope(Scope::Tree).on::<SpawnComplete>(move |cx| {
        log.ended.fetch_add(1, Ordering::Relaxed);
        assert_eq!(cx.stats().totals(), fold_totals(cx.stats()));
    });
    // A policy of the root sees every call of every run below, and can stop it: the tool would end the process.
    let gated = Arc::<Mutex<Vec<(String, String)>>>::default();
    let log = Arc::clone(&gated);
    hooks.on::<ToolGate>(move |cx| {
        log.lock().unwrap().push((cx.run_id().to_owned(), cx.call_id().to_owned()));
        if cx.name() == "blocked" {
            cx.block("no");
        }
    });
    let ungated = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ungated);
    hooks.scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        let call = (cx.run_id().to_owned(), cx.call_id().to_owned());
        count.fetch_add(usize::from(!gated.lock().unwrap().contains(&call)), Ordering::Relaxed);
    });
    if let Cut::Abort(after) = cut {
        let handle = root.handle().clone();
        tokio::spawn(async move {
            tokio::time::sleep(MS * after).await;
            handle.abort();
        });
    }
    let started = tokio::time::Instant::now();
    let result = tokio::time::timeout(Duration::from_secs(60), root.run("Go")).await;
    prop_assert!(result.is_ok(), "it hangs");
    let result = result.unwrap();
    let stats = match &result {
        Ok(outcome) => &outcome.stats,
        Err(error) => &*error.stats,
    };
    prop_assert_eq!(stats.totals(), fold_totals(stats));
    let mut again = stats.clone();
    again.recompute();
    prop_assert_eq!(again.totals(), stats.totals());
    // Every grace is 10 ms, and there are at most five levels.
    prop_assert!(started.elapsed() < MS * 1_000, "{:?}", started.elapsed());

    // The hooks saw the same, run by run.
    let told: BTreeMap<_, _> = tally.tokens.lock().unwrap().clone();
    let filed: BTreeMap<_, _> =
        stats_by_run(stats).into_iter().map(|(run, usage)| (run, usage.tokens.total())).collect();
    prop_assert_eq!(&told, &filed);
    let models: u64 = stats.by_model().iter().map(|(_, usage)| usage.tokens.total()).sum();
    let Totals { input, output, .. } = stats.totals();
    prop_assert_eq!(models, input + output);

    // Every run that began is in the tree, once, with a child's own place.
    let mut begun = tally.begun.lock().unwrap().clone();
    begun.sort();
    let mut found = Vec::new();
    let mut open: Vec<(&AgentStats, u32)> = vec![(stats, 0)];
    while let Some((stats, depth)) = open.pop() {
        prop_assert!(stats.turn_usage.iter().all(|usage| usage.depth == depth));
        prop_assert_eq!(stats.totals(), fold_totals(stats));
        for child in &stats.children {
            found.push(child.id.clone());
            prop_assert!(child.status != ChildStatus::Unknown && child.status != ChildStatus::Deferred);
            open.push((&child.stats, depth + 1));
        }
    }
    found.sort();
    prop_assert!(begun.iter().all(|run| found.contains(run)), "{begun:?} {found:?}");
    let len = found.len();
    found.dedup();
    prop_assert_eq!(found.len(), len);

    prop_assert_eq!(ungated.load(Ordering::Relaxed), 0);

    // The root's limits hold for the tree.
    let turns = walk_turns(stats).filter(|usage| usage.kind == UsageKind::Turn).count() as u64;
    prop_assert!(node.limits.turns.is_none_or(|limit| turns <= limit), "{turns} turns");
    if let Ok(outcome) = &result
        && outcome.stop == StopCause::Limit(Limit::Tokens)
    {
        prop_assert!(node.limits.tokens.is_some_and(|limit| input + output >= limit));
    }
    let history = root.history();
    prop_assert!(validate_transcript(history.iter()).is_ok());
    // What was cut ends within the graces that are left, and leaves nothing.
    tokio::time::sleep(MS * 200).await;
    prop_assert_eq!(metrics.num_alive_tasks(), before);
    Ok(())
}

#[test]
fn totals_of_random_trees_are_the_fold_whatever_happens() {
    let cuts = prop_oneof![
        3 => Just(Cut::None),
        3 => (0..15_u32).prop_map(Cut::Abort),
        1 => Just(Cut::FromWithin),
    ];
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    });
    let spawned = AtomicUsize::new(0);
    runner
        .run(&(trees(), cuts), |(node, cut)| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            spawned.fetch_add(count(&node), Ordering::Relaxed);
            runtime.block_on(play(&node, cut))
        })
        .unwrap();
    assert!(spawned.into_inner() > 400, "the trees are trees");
}

fn count(node: &Node) -> usize {
    let calls = node.turns.iter().flat_map(|turn| if let Turn::Calls(calls) = turn { calls.as_slice() } else { &[] });
    calls.map(|call| if let Call::Spawns(node) | Call::GivesUp(node) = call { 1 + count(node) } else { 0 }).sum()
}

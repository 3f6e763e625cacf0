//! Random scripts of turns, tools, steering, aborts, drops and failing hooks. Whatever happens: the history pairs every
//! call, the totals are the fold, a run that is not dropped is told done once, no task is left, and the agent goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/faulty.rs"]
mod faulty;
mod harness;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use faulty::{Fault, FaultyStore};
use harness::{Notes, tool};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use zidane::agent::{Compaction, Limits, SteerMode, ToolExecution};
use zidane::hooks::{AgentDone, AgentStart, HistoryReplaced, ToolAfter, ToolGate, ToolTransform, TurnAfter};
use zidane::provider::{HistoryTurn, ProviderError, ProviderErrorKind, RetryPolicy};
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool::{Concurrency, ToolError};
use zidane::types::{AgentStats, TurnFinishReason, TurnOrigin, fold_totals};
use zidane::{Agent, RunErrorKind, StopCause};

static COMPACTED: AtomicUsize = AtomicUsize::new(0);

const MS: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Debug)]
enum Call {
    Good,
    Fails,
    Panics,
    Slow,
    Never,
    Steers,
    Aborts,
    Nested,
    Unknown,
    BadJson,
    Cut,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Natural,
    Length,
    Filter,
    Pause,
    Other,
    ErrorBefore(bool),
    ErrorAfter(bool),
    TooLong,
    Stall,
}

#[derive(Clone, Debug)]
struct Turn {
    text: bool,
    calls: Vec<Call>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Ends,
    Aborted(u64),
    Dropped(u64),
}

#[derive(Clone, Debug)]
struct Script {
    turns: Vec<Turn>,
    fates: Vec<Fate>,
    parallel: bool,
    skip: bool,
    after_output: bool,
    limit: Option<u64>,
    gate_fails: bool,
    transform_panics: bool,
    observers_fail: bool,
    follow_up: bool,
    compaction: Option<Writes>,
    kept: Option<Kept>,
}

/// What comes of the requests for summaries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Writes {
    Well,
    TooMuch,
    Fails,
    Stalls,
}

/// How the conversation is kept: what an append takes, and which one fails.
#[derive(Clone, Copy, Debug)]
struct Kept {
    takes: u64,
    fails: Option<(usize, Fault)>,
}

fn kept() -> impl Strategy<Value = Kept> {
    let fault = prop::sample::select(vec![Fault::Refused, Fault::Unheard, Fault::Panics]);
    (0..4u64, prop::option::of((0..20usize, fault))).prop_map(|(takes, fails)| Kept { takes, fails })
}

fn call() -> impl Strategy<Value = Call> {
    use Call::*;
    prop::sample::select(vec![
        Good, Good, Good, Fails, Panics, Slow, Never, Steers, Aborts, Nested, Unknown, BadJson, Cut,
    ])
}

fn end() -> impl Strategy<Value = End> {
    use End::*;
    let ends = vec![
        Natural,
        Natural,
        Natural,
        Natural,
        Natural,
        Natural,
        Length,
        Filter,
        Pause,
        Other,
        ErrorBefore(true),
        ErrorBefore(false),
        ErrorAfter(true),
        ErrorAfter(false),
        TooLong,
        Stall,
    ];
    prop::sample::select(ends)
}

fn script() -> impl Strategy<Value = Script> {
    let turn = (any::<bool>(), prop::collection::vec(call(), 0..4), end()).prop_map(|(text, calls, end)| Turn {
        text,
        calls,
        end,
    });
    let fate = prop_oneof![
        2 => Just(Fate::Ends),
        1 => (0..12u64).prop_map(Fate::Aborted),
        1 => (0..12u64).prop_map(Fate::Dropped),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let rare = || prop::bool::weighted(0.15);
    let hooks = (rare(), rare(), rare(), prop::option::of(kept()));
    let writes = prop::sample::select(vec![Writes::Well, Writes::Well, Writes::TooMuch, Writes::Fails, Writes::Stalls]);
    (
        prop::collection::vec(turn, 1..7),
        prop::collection::vec(fate, 1..4),
        flags,
        prop::option::weighted(0.2, 0..6u64),
        hooks,
        prop::option::of(writes),
    )
        .prop_map(|(turns, fates, (parallel, skip, after_output, follow_up), limit, hooks, compaction)| Script {
            turns,
            fates,
            parallel,
            skip,
            after_output,
            limit,
            gate_fails: hooks.0,
            transform_panics: hooks.1,
            observers_fail: hooks.2,
            follow_up,
            compaction,
            kept: hooks.3,
        })
}

fn reply(turn: &Turn) -> Reply {
    let mut reply = Reply::empty().without_usage().pause(MS);
    if turn.text {
        reply = reply.and_text("Some text. ".repeat(20)).pause(MS);
    }
    for call in &turn.calls {
        reply = match call {
            Call::Unknown => reply.and_call("no_such_tool", json!({})),
            Call::BadJson => reply.raw_call(None, "good", "{\"a\":"),
            Call::Cut => reply.partial_call("good", "{\"a\":"),
            call => reply.and_call(format!("{call:?}").to_lowercase(), json!({"n": 1})),
        };
    }
    let error = |retryable| {
        let kind = if retryable { ProviderErrorKind::Overloaded } else { ProviderErrorKind::Invalid };
        ProviderError::new(kind, "scripted", "scripted")
    };
    match turn.end {
        End::Natural => reply,
        End::Length => reply.finish(TurnFinishReason::Length, None),
        End::Filter => reply.finish(TurnFinishReason::ContentFilter, None),
        End::Pause => reply.finish(TurnFinishReason::Pause, None),
        End::Other => reply.finish(TurnFinishReason::Other, None),
        End::ErrorBefore(retryable) => Reply::error(error(retryable)),
        End::ErrorAfter(retryable) => reply.then_error(error(retryable)),
        End::TooLong => Reply::fails(ProviderErrorKind::ContextOverflow),
        End::Stall => reply.then_stall(),
    }
}

/// Writes summaries.
fn writer(script: &Script) -> ScriptedProvider {
    let reply = match script.compaction {
        None | Some(Writes::Well) => Reply::text("So far.").pause(MS),
        Some(Writes::TooMuch) => Reply::text("So far, so good. ".repeat(1_000)),
        Some(Writes::Fails) => Reply::fails(ProviderErrorKind::Server),
        Some(Writes::Stalls) => Reply::text("So").then_stall(),
    };
    // Then it fails: the last run has to come to an end.
    ScriptedProvider::new(vec![reply; 40]).allow_prefix_breaks()
}

fn agent(script: &Script, model: &ScriptedProvider, writer: &ScriptedProvider, store: FaultyStore) -> Agent {
    let mut builder = Agent::builder()
        .provider(model.clone())
        .model("test")
        .cancel_grace(MS * 3)
        .max_turns(12)
        .retry(RetryPolicy::default().base_delay(MS).after_output(script.after_output))
        .steer_mode(if script.skip { SteerMode::SkipUnstarted } else { SteerMode::AfterBatch })
        .tool_execution(if script.parallel { ToolExecution::Parallel } else { ToolExecution::Declared });
    if let Some(calls) = script.limit {
        builder = builder.limits(Limits::none().tool_calls(calls));
    }
    if script.compaction.is_some() {
        builder = builder.compaction(Compaction::new().tokens(80).keep(30).model(writer.clone(), "writer"));
    }
    if script.kept.is_some() {
        builder = builder.session_store(store);
    }
    let mut good = tool("good", |input, cx| {
        Box::pin(async move {
            cx.state().set("k", input.clone())?;
            Ok(input.into())
        })
    });
    good.spec.concurrency = Some(Concurrency::Shared);
    builder
        .tool(good)
        .tool(tool("fails", |_, _| Box::pin(async { Err(ToolError::new("no")) })))
        .tool(tool("panics", |_, _| Box::pin(async { panic!("scripted panic") })))
        .tool(tool("slow", |_, cx| {
            Box::pin(async move {
                let _ = cx.progress("half").await;
                tokio::time::sleep(MS * 4).await;
                Ok("slow".into())
            })
        }))
        .tool(tool("never", |_, _| Box::pin(std::future::pending())))
        .tool(tool("steers", |_, cx| {
            Box::pin(async move {
                drop(cx.agent().steer("Hold on"));
                Ok("ok".into())
            })
        }))
        .tool(tool("aborts", |_, cx| {
            Box::pin(async move {
                cx.agent().abort();
                Ok("ok".into())
            })
        }))
        .tool(tool("nested", |_, cx| {
            Box::pin(async move {
                drop(cx.run_tool("panics", json!({})).await?);
                Ok(cx.run_tool("good", json!({"nested": true})).await?)
            })
        }))
        .build()
        .unwrap()
}

fn hooks(script: &Script, agent: &Agent) {
    if script.gate_fails {
        agent.hooks().on_async::<ToolGate>(|cx| {
            Box::pin(async move {
                tokio::time::sleep(MS).await;
                if cx.name() == "slow" { Err("scripted failure") } else { Ok(()) }
            })
        });
    }
    if script.transform_panics {
        agent.hooks().on::<ToolTransform>(|_| panic!("scripted panic"));
    }
    if script.observers_fail {
        agent.hooks().on::<ToolAfter>(|_| panic!("scripted panic"));
        agent.hooks().on_async::<TurnAfter>(|_| Box::pin(async { Err::<(), _>("scripted failure") }));
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn settled(baseline: usize) {
    for _ in 0..50 {
        if alive() == baseline {
            return;
        }
        tokio::time::sleep(MS).await;
    }
    panic!("{} tasks are left", alive() - baseline);
}

fn adds_up(stats: &AgentStats) {
    assert_eq!(stats.totals(), fold_totals(stats));
}

/// The turns that a run says it added are there once each, and end where the conversation ends.
fn all_told_once(turns: &[Arc<HistoryTurn>], agent: &Agent) {
    let ids: HashSet<_> = turns.iter().map(|turn| &turn.id).collect();
    assert_eq!(ids.len(), turns.len());
    if let Some(last) = turns.last().filter(|last| last.origin != TurnOrigin::Summary) {
        assert_eq!(agent.history().last().map(|turn| turn.id.clone()), Some(last.id.clone()));
    }
}

async fn tell(script: &Script) {
    let baseline = alive();
    let mut model = ScriptedProvider::new(script.turns.iter().map(reply));
    let mut store = FaultyStore::default();
    if let Some(kept) = script.kept {
        store = store.slow(MS * u32::try_from(kept.takes).unwrap());
        if let Some((append, fault)) = kept.fails {
            store = store.fail(append, fault);
            // What could not be stored is not sent again.
            model = model.allow_prefix_breaks();
        }
    }
    let writer = writer(script);
    let agent = agent(script, &model, &writer, store.clone());
    agent.hooks().on::<HistoryReplaced>(|_| {
        COMPACTED.fetch_add(1, Ordering::Relaxed);
    });
    hooks(script, &agent);
    let (starts, ends) = (Notes::default(), Notes::default());
    let (started, ended) = (starts.clone(), ends.clone());
    agent.hooks().on::<AgentStart>(move |_| started.add("start"));
    agent.hooks().on::<AgentDone>(move |cx| ended.add(cx.stop()));
    if script.follow_up {
        agent.follow_up("And then?").unwrap();
    }
    let prompt = "Go on. ".repeat(if script.compaction.is_some() { 30 } else { 1 });
    let mut dropped = 0;
    for fate in &script.fates {
        let before = starts.all().len();
        match fate {
            Fate::Dropped(after) => {
                if tokio::time::timeout(MS * u32::try_from(*after).unwrap(), agent.run(&*prompt)).await.is_err() {
                    dropped += starts.all().len() - before;
                }
            }
            Fate::Ends | Fate::Aborted(_) => {
                let handle = agent.handle().clone();
                let after = if let Fate::Aborted(after) = fate { *after } else { 500 };
                let abort = tokio::spawn(async move {
                    tokio::time::sleep(MS * u32::try_from(after).unwrap()).await;
                    handle.abort();
                });
                let result =
                    tokio::time::timeout(Duration::from_secs(60), agent.run(&*prompt)).await.expect("the run hangs");
                abort.abort();
                drop(abort.await);
                match result {
                    Ok(outcome) => {
                        adds_up(&outcome.stats);
                        all_told_once(&outcome.turns, &agent);
                        if outcome.stop == StopCause::Stop {
                            assert!(outcome.undelivered.is_empty() || outcome.stats.turns >= 12);
                        }
                    }
                    Err(error) => {
                        adds_up(&error.stats);
                        match &error.kind {
                            RunErrorKind::Provider(_) => all_told_once(&error.turns, &agent),
                            RunErrorKind::Session(_) if script.kept.is_some_and(|kept| kept.fails.is_some()) => {
                                // Until the next run reads it again, it ends where it failed.
                                settled(baseline).await;
                                continue;
                            }
                            other => panic!("{other}"),
                        }
                    }
                }
                validate_transcript(agent.history().iter()).unwrap();
            }
        }
        assert!(!agent.is_running());
        settled(baseline).await;
    }
    assert_eq!(starts.all().len(), ends.all().len() + dropped, "{:?}", ends.all());
    writer.skip(writer.remaining());
    model.skip(model.remaining());
    for _ in 0..16 {
        model.push(Reply::text("fine"));
    }
    let mut last = agent.run("Still there?").await;
    if matches!(&last, Err(error) if matches!(error.kind, RunErrorKind::Session(_))) {
        last = agent.run("Still there?").await;
    }
    assert_eq!(last.unwrap().text, "fine");
    if let Some(session) = agent.session().await.unwrap() {
        assert!(session.notes.is_empty(), "{:?}", session.notes);
        let stored = faulty::settled(session.history().iter());
        assert_eq!(stored, faulty::settled(agent.history().iter()));
    }
    validate_transcript(agent.history().iter()).unwrap();
    settled(baseline).await;
}

#[test]
fn whatever_happens_the_loop_keeps_its_promises() {
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&script(), |script| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(tell(&script));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let compacted = COMPACTED.load(Ordering::Relaxed);
    assert!(compacted > 20, "only {compacted} compactions in all");
}

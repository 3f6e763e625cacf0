//! A run may be dropped or aborted at every single poll: afterwards no task is left, the agent is idle and usable, and
//! the next run answers every call once.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/faulty.rs"]
mod faulty;
mod harness;

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use faulty::{FaultyStore, settled};
use futures::future::poll_fn;
use harness::{Notes, echo, tool};
use serde_json::json;
use zidane::agent::{Compaction, SteerMode, ToolExecution};
use zidane::hooks::{AgentDone, StreamText, ToolAfter, ToolGate};
use zidane::provider::{ProviderErrorKind, RetryPolicy};
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool::ToolError;
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnFinishReason, TurnOrigin};
use zidane::{Agent, AgentBuilder, StopCause};

struct Row {
    name: &'static str,
    replies: Vec<Reply>,
    build: fn(AgentBuilder) -> AgentBuilder,
    hooks: fn(&Agent),
}

const MS: Duration = Duration::from_millis(1);

/// A streamed answer with a pause at every place where one may be.
fn slow_text() -> Reply {
    Reply::text("One").pause(MS).and_text("Two").pause(MS).after(MS)
}

fn calls(names: &[&str]) -> Reply {
    names.iter().fold(Reply::text("Calling.").pause(MS), |reply, name| reply.and_call(*name, json!({})).pause(MS))
}

fn tools(builder: AgentBuilder) -> AgentBuilder {
    builder
        .tool(echo())
        .tool(tool("nap", |_, _| {
            Box::pin(async {
                tokio::time::sleep(MS * 3).await;
                Ok("rested".into())
            })
        }))
        .tool(tool("heedful", |_, cx| {
            Box::pin(async move {
                tokio::select! {
                    () = cx.cancelled() => Ok("stopped".into()),
                    () = tokio::time::sleep(MS * 3) => Ok("done".into()),
                }
            })
        }))
        .tool(tool("fails", |_, _| Box::pin(async { Err(ToolError::new("no")) })))
        .tool(tool("panics", |_, _| Box::pin(async { panic!("boom") })))
        .tool(tool("steers", |_, cx| {
            Box::pin(async move {
                drop(cx.agent().steer("Hold on"));
                Ok("ok".into())
            })
        }))
        .tool(tool("writes", |_, cx| {
            Box::pin(async move {
                cx.state().set("k", json!(1))?;
                tokio::time::sleep(MS).await;
                let _ = cx.progress("half").await;
                Ok("ok".into())
            })
        }))
}

/// A conversation of some length, which is compacted at so many tokens.
fn compacted(builder: AgentBuilder, tokens: u64) -> AgentBuilder {
    let turn = |n: usize| {
        let (role, origin) =
            if n.is_multiple_of(2) { (Role::User, TurnOrigin::Prompt) } else { (Role::Assistant, TurnOrigin::Model) };
        SessionTurn::new(n.to_string(), role, origin, vec![SessionContentBlock::text("abc ".repeat(50))])
    };
    let writer =
        ScriptedProvider::repeating(Reply::text("So").pause(MS).and_text(" far.").after(MS)).allow_prefix_breaks();
    let policy = Compaction::new().tokens(tokens).keep(20).model(writer, "writer");
    tools(builder).history((0..6).map(turn)).compaction(policy)
}

fn rows() -> Vec<Row> {
    let row = |name, replies, build, hooks| Row { name, replies, build, hooks };
    let none: fn(&Agent) = |_| ();
    vec![
        row("text", vec![slow_text()], tools, none),
        row("calls", vec![calls(&["nap", "heedful", "writes"]), slow_text()], tools, none),
        row(
            "parallel",
            vec![calls(&["nap", "heedful", "writes", "fails"]), slow_text()],
            |b| tools(b).tool_execution(ToolExecution::Parallel),
            none,
        ),
        row("failures", vec![calls(&["fails", "panics", "nope"]), slow_text()], tools, none),
        row(
            "steering",
            vec![calls(&["steers", "nap"]), slow_text()],
            |b| tools(b).steer_mode(SteerMode::SkipUnstarted),
            none,
        ),
        row("follow-up", vec![slow_text(), slow_text()], tools, |agent| {
            agent.follow_up("And?").unwrap();
        }),
        row(
            "length",
            vec![calls(&["echo"]).finish(TurnFinishReason::Length, None), slow_text()],
            |b| tools(b).continue_after_length(true),
            none,
        ),
        row("pause", vec![slow_text().finish(TurnFinishReason::Pause, None), slow_text()], tools, none),
        row("filter", vec![calls(&["echo"]).finish(TurnFinishReason::ContentFilter, None)], tools, none),
        row(
            "retry",
            vec![Reply::fails(ProviderErrorKind::Overloaded), slow_text()],
            |b| tools(b).retry(RetryPolicy::default().base_delay(MS)),
            none,
        ),
        row(
            "reset",
            vec![
                slow_text().then_error(zidane::provider::ProviderError::new(
                    ProviderErrorKind::TruncatedStream,
                    "scripted",
                    "cut",
                )),
                slow_text(),
            ],
            |b| tools(b).retry(RetryPolicy::default().base_delay(MS).after_output(true)),
            none,
        ),
        row("budget", vec![calls(&["echo"]), slow_text()], |b| tools(b).tool_output_budget(0), none),
        row("empty", vec![calls(&["echo"]), Reply::empty(), slow_text()], tools, none),
        row("hooks", vec![calls(&["echo", "nap"]), slow_text()], tools, |agent| {
            agent.hooks().on_async::<ToolGate>(|_| Box::pin(tokio::time::sleep(MS)));
            agent.hooks().on_async::<StreamText>(|_| Box::pin(tokio::time::sleep(MS)));
            agent.hooks().on_async::<ToolAfter>(|_| Box::pin(tokio::time::sleep(MS)));
        }),
        row("compaction", vec![calls(&["echo", "nap"]), slow_text()], |b| compacted(b, 100), none),
        row(
            "refusal",
            vec![Reply::fails(ProviderErrorKind::ContextOverflow), calls(&["echo"]), slow_text()],
            |b| compacted(b, 100_000),
            none,
        ),
        row("stall", vec![Reply::text("One").then_stall()], tools, none),
    ]
}

/// What is done to the run after `k` polls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cut {
    Drop,
    Abort,
    AbortTwice,
    DropStream,
}

/// Where the conversation is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kept {
    InMemory,
    /// In a store that takes its time.
    Slowly,
    /// In a store that takes its time, and finishes nothing from the cut on until the run has ended.
    Hanging,
}

async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let mut future = Some(future);
    poll_fn(move |cx| Poll::Ready(future.take().map_or(Poll::Pending, |future| future.poll(cx)))).await
}

async fn settle() {
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(MS / 2).await;
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// What a cut met.
struct Met {
    /// The run had not ended by itself before.
    cut: bool,
    /// An append was under way.
    append: bool,
}

/// Cuts a run after `k` polls.
async fn cut(row: &Row, k: usize, cut: Cut, kept: Kept) -> Met {
    let place = format!("{} after {k} polls, {cut:?} {kept:?}", row.name);
    let baseline = alive();
    let store = FaultyStore::default().slow(MS);
    let model = ScriptedProvider::new(row.replies.clone());
    let mut builder = Agent::builder().provider(model.clone()).model("test").cancel_grace(MS * 5);
    if kept != Kept::InMemory {
        builder = builder.session_store(store.clone());
    }
    let agent = (row.build)(builder).build().unwrap();
    let ends = Notes::default();
    let log = ends.clone();
    agent.hooks().on::<AgentDone>(move |cx| log.add(cx.stop()));
    (row.hooks)(&agent);
    let mut started = false;
    let mut ended = None;
    let append;
    {
        let mut stream = (cut == Cut::DropStream).then(|| agent.run("Go").stream());
        let mut run = pin!((cut != Cut::DropStream).then(|| agent.run("Go")));
        for _ in 0..k {
            if let Some(stream) = &mut stream {
                let polled = poll_fn(|cx| Poll::Ready(futures::StreamExt::poll_next_unpin(stream, cx))).await;
                if let Poll::Ready(Some(zidane::AgentEvent::Done(result))) = polled {
                    ended = Some(result.map(|outcome| *outcome).map_err(|error| *error));
                    break;
                }
            }
            if let Some(run) = run.as_mut().as_pin_mut()
                && let Poll::Ready(result) = poll_once(run).await
            {
                ended = Some(result);
                break;
            }
            started = true;
            settle().await;
        }
        if kept == Kept::Hanging {
            store.hold_at(0);
        }
        append = store.pending() > 0;
        if ended.is_none() && matches!(cut, Cut::Abort | Cut::AbortTwice) {
            agent.abort();
            if cut == Cut::AbortTwice {
                agent.abort();
            }
            if started {
                let run = run.as_mut().as_pin_mut().unwrap();
                let asked = tokio::time::Instant::now();
                let result = tokio::time::timeout(Duration::from_secs(5), run).await;
                // The grace of a tool and of a hook, and twice that of an append.
                assert!(asked.elapsed() <= MS * 25, "{place}: {:?}", asked.elapsed());
                let outcome = result.unwrap_or_else(|_| panic!("{place}: hangs"));
                let stop = outcome.map(|outcome| outcome.stop).map_err(|error| error.to_string());
                assert!(
                    matches!(
                        stop,
                        Ok(StopCause::Aborted | StopCause::Stop | StopCause::Length | StopCause::ContentFilter)
                    ),
                    "{place}: {stop:?}"
                );
                assert_eq!(ends.all().len(), 1, "{place}: agent:done");
            }
        }
    }
    store.release();
    settle().await;
    for _ in 0..100 {
        if alive() == baseline {
            break;
        }
        settle().await;
    }
    assert_eq!(alive(), baseline, "{place}: a task is left");
    assert!(!agent.is_running(), "{place}: still running");
    assert!(ends.all().len() <= 1, "{place}: {:?}", ends.all());

    model.skip(model.remaining());
    model.push(Reply::text("fine"));
    for _ in 0..4 {
        model.push(Reply::text("fine"));
    }
    let outcome = agent.run("Still there?").await.unwrap_or_else(|error| panic!("{place}: the next run: {error}"));
    assert_eq!(outcome.text, "fine", "{place}");
    validate_transcript(agent.history().iter()).unwrap_or_else(|error| panic!("{place}: {error}"));
    if let Some(session) = agent.session().await.unwrap() {
        assert!(session.notes.is_empty(), "{place}: {:?}", session.notes);
        let stored = settled(session.history().iter());
        assert_eq!(stored, settled(agent.history().iter()), "{place}");
    }
    Met { cut: ended.is_none(), append }
}

async fn cut_everywhere(kind: Cut, kept: Kept) {
    let (mut cuts, mut appends) = (0, 0);
    for row in rows() {
        let mut k = 0;
        loop {
            let met = cut(&row, k, kind, kept).await;
            appends += u32::from(met.append);
            if !met.cut {
                break;
            }
            k += 1;
            cuts += 1;
            if k > 400 {
                assert_eq!(row.name, "stall", "{} never ends", row.name);
                break;
            }
            if row.name == "stall" && k > 18 {
                break;
            }
        }
        assert!(k > 1, "{} was not cut anywhere", row.name);
    }
    println!("{kind:?} {kept:?}: {cuts} cuts, {appends} in mid-append");
    assert!(cuts > 100 && (appends > 50) == (kept != Kept::InMemory), "{cuts} {appends}");
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_dropped_at_every_poll() {
    cut_everywhere(Cut::Drop, Kept::InMemory).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_be_dropped_at_every_poll() {
    cut_everywhere(Cut::DropStream, Kept::InMemory).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_aborted_at_every_poll() {
    cut_everywhere(Cut::Abort, Kept::InMemory).await;
    cut_everywhere(Cut::AbortTwice, Kept::InMemory).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_dropped_while_its_session_is_stored() {
    cut_everywhere(Cut::Drop, Kept::Slowly).await;
    cut_everywhere(Cut::DropStream, Kept::Slowly).await;
    cut_everywhere(Cut::Drop, Kept::Hanging).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_aborted_while_its_session_is_stored() {
    cut_everywhere(Cut::Abort, Kept::Slowly).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_aborted_while_its_store_hangs() {
    cut_everywhere(Cut::Abort, Kept::Hanging).await;
}

//! Agents on both engines: stopped at every step, taken up, replayed, and what must not be taken up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Notify;
use zidane::agent::ToolExecution;
use zidane::durable::{DurableError, DurableRuntime, MemoryDurable, StepKind};
use zidane::hooks::{ToolAfter, ToolGate};
use zidane::session::{MemorySessionStore, SessionStore};
use zidane::testing::{Reply, ScriptedProvider, VirtualClock, validate_transcript};
use zidane::tool::{Concurrency, NoInput, Repeat, ToolContext, ToolFn, tool_fn};
use zidane::tool_state::{MemoryToolStateStore, ToolStateStore};
use zidane::types::{Timestamp, ToolResultBlock, ToolStatus, tool_result_to_text};
use zidane::{Agent, RunError, RunErrorKind, RunOutcome};

use crate::stopping::{Stop, Stopping};

type Runtime = Arc<dyn DurableRuntime>;

fn clock() -> VirtualClock {
    VirtualClock::new(Timestamp(1_000))
}

/// A fresh engine of each kind.
async fn engines(limit: usize) -> Vec<(&'static str, Runtime)> {
    let mut all: Vec<(_, Runtime)> =
        vec![("memory", Arc::new(MemoryDurable::new().clock(clock()).max_record_bytes(limit)))];
    #[cfg(feature = "sqlite")]
    {
        let database = zidane::sqlite::Database::in_memory().await.unwrap();
        let sqlite = zidane::durable::SqliteDurable::new(database);
        all.push(("sqlite", Arc::new(sqlite.clock(clock()).max_record_bytes(limit))));
    }
    all
}

const LIMIT: usize = 8 * 1024 * 1024;

async fn engine(number: usize) -> Option<(&'static str, Runtime)> {
    engines(LIMIT).await.into_iter().nth(number)
}

/// What a world outside of the process would keep.
#[derive(Clone)]
struct World {
    sessions: Arc<MemorySessionStore>,
    state: Arc<dyn ToolStateStore>,
    /// Bodies that began: tool and idempotency key.
    bodies: Arc<Mutex<Vec<String>>>,
    gates: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    /// Calls of `charge` stand still from now on, until told.
    stuck: Arc<Mutex<bool>>,
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
    mode: ToolExecution,
}

impl World {
    fn new() -> Self {
        Self {
            sessions: Arc::new(MemorySessionStore::new()),
            state: Arc::new(MemoryToolStateStore::new()),
            bodies: Arc::default(),
            gates: Arc::default(),
            requests: Arc::default(),
            stuck: Arc::default(),
            begun: Arc::default(),
            go_on: Arc::default(),
            mode: ToolExecution::Parallel,
        }
    }

    fn note(&self, cx: &ToolContext) {
        self.bodies.lock().unwrap().push(format!("{} {}", cx.name(), cx.idempotency_key()));
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }

    fn counts(&self) -> (usize, usize, usize) {
        (self.bodies().len(), self.gates.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }

    async fn entries(&self) -> Vec<Value> {
        let stored = self.sessions.load("s").await.unwrap().unwrap_or_default();
        stored.entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect()
    }

    async fn run(&self, runtime: Runtime, replies: &[Reply], tools: Vec<ToolFn>, prompt: &str) -> Ran {
        let model = ScriptedProvider::new(replies.iter().cloned());
        model.skip(self.requests.load(Ordering::SeqCst));
        let mut builder = Agent::builder()
            .provider(model.clone())
            .model("test")
            .session_id("s")
            .session_store(Arc::clone(&self.sessions))
            .tool_state(Arc::clone(&self.state))
            .tool_execution(self.mode)
            .clock(clock())
            .durable(runtime);
        for tool in tools {
            builder = builder.tool(tool);
        }
        let agent = builder.build().unwrap();
        let gates = Arc::clone(&self.gates);
        agent.hooks().on::<ToolGate>(move |_| {
            gates.fetch_add(1, Ordering::SeqCst);
        });
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        agent.hooks().on::<ToolAfter>(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let result = agent.run(prompt).run_id("r").await;
        self.requests.fetch_add(model.requests().len(), Ordering::SeqCst);
        Ran { result, agent, told: told.load(Ordering::SeqCst) }
    }
}

struct Ran {
    result: Result<RunOutcome, RunError>,
    agent: Agent,
    told: usize,
}

impl Ran {
    #[track_caller]
    fn text(&self) -> &str {
        let outcome = self.result.as_ref().unwrap_or_else(|error| panic!("the run failed: {error}"));
        validate_transcript(self.agent.history().iter()).unwrap();
        &outcome.text
    }

    #[track_caller]
    fn refused(&self) -> &DurableError {
        match &self.result {
            Err(RunError { kind: RunErrorKind::Durable(error), .. }) => error,
            other => panic!("the engine was expected to refuse: {other:?}"),
        }
    }

    fn results(&self) -> Vec<ToolResultBlock> {
        self.agent.history().iter().flat_map(|turn| turn.tool_results().cloned().collect::<Vec<_>>()).collect()
    }
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::text("Looking.").and_call("look", json!({})).and_call("look", json!({})).and_call("count", json!({})),
        Reply::call("nothing", json!({})).and_call("count", json!({})).and_call("look", json!({})),
        Reply::text("Done."),
    ]
}

fn tools(world: &World) -> Vec<ToolFn> {
    let (looks, counts) = (world.clone(), world.clone());
    vec![
        tool_fn("look", "Looks", move |_: NoInput, cx: ToolContext| {
            looks.note(&cx);
            async { Ok("seen") }
        })
        .repeat(Repeat::Safe),
        tool_fn("count", "Counts", move |_: NoInput, cx: ToolContext| {
            counts.note(&cx);
            async move {
                let next = cx.state().get("n").and_then(|n| n.as_u64()).unwrap_or_default() + 1;
                cx.state().set("n", next)?;
                Ok(format!("counted {next}"))
            }
        })
        .repeat(Repeat::Safe)
        .concurrency(Concurrency::Exclusive),
    ]
}

#[tokio::test]
async fn a_run_is_taken_up_at_every_step_and_a_finished_one_is_only_read() {
    for number in 0..2 {
        let Some((name, runtime)) = engine(number).await else { continue };
        let whole = World::new();
        let watched = Stopping::new(&runtime, Stop::Never);
        let asked = Arc::clone(&watched.asked);
        let ran = whole.run(watched, &replies(), tools(&whole), "Go").await;
        assert_eq!((ran.text(), ran.told), ("Done.", 6), "{name}");
        let (steps, expected) = (asked.load(Ordering::SeqCst), whole.entries().await);
        assert!(steps > 14 && expected.len() >= 12, "{name}: {steps} steps, {} entries", expected.len());
        assert_eq!(whole.counts(), (5, 5, 3), "{name}");
        for kept in 0..steps {
            let (_, runtime) = engine(number).await.unwrap();
            let world = World::new();
            let stopped = world.run(Stopping::new(&runtime, Stop::At(kept)), &replies(), tools(&world), "Go").await;
            assert!(matches!(stopped.refused(), DurableError::Interrupted { .. }), "{name} {kept}");
            let found = world.entries().await;
            assert_eq!(found, expected[..found.len()], "{name}: stopped before step {kept}");
            let resumed = world.run(Arc::clone(&runtime), &replies(), tools(&world), "Go").await;
            assert_eq!((resumed.text(), resumed.told), ("Done.", 6), "{name}: taken up at step {kept}");
            assert_eq!(world.entries().await, expected, "{name}: taken up at step {kept}");
            assert_eq!(world.counts(), whole.counts(), "{name}: what was on record was done again after step {kept}");
            assert_eq!(world.state.load("s").await.unwrap().get("n").unwrap().as_u64(), Some(2));
            let replayed = world.run(runtime, &replies(), tools(&world), "").await;
            assert_eq!((replayed.text(), replayed.told), ("Done.", 6), "{name}: replayed");
            assert_eq!(world.counts(), whole.counts(), "{name}: a finished run did something");
            assert_eq!(world.entries().await, expected);
            let turns = |ran: &Ran| serde_json::to_string(&ran.agent.history().iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(turns(&replayed), turns(&ran));
        }
    }
}

#[tokio::test]
async fn a_run_is_taken_up_where_calls_may_not_run_side_by_side_any_more() {
    for (name, runtime) in engines(LIMIT).await {
        let mut world = World::new();
        let stop = Stopping::new(&runtime, Stop::Before(StepKind::Commit));
        assert!(world.run(stop, &replies(), tools(&world), "Go").await.result.is_err());
        world.mode = ToolExecution::Sequential;
        assert_eq!(world.run(runtime, &replies(), tools(&world), "Go").await.text(), "Done.", "{name}");
        assert_eq!(world.counts(), (5, 5, 3), "{name}");
    }
}

fn charge(world: &World, repeat: Repeat) -> ToolFn {
    let world = world.clone();
    tool_fn("charge", "Charges", move |_: NoInput, cx: ToolContext| {
        world.note(&cx);
        let world = world.clone();
        async move {
            world.begun.notify_one();
            if *world.stuck.lock().unwrap() {
                world.go_on.notified().await;
            }
            Ok("charged")
        }
    })
    .repeat(repeat)
}

#[tokio::test]
async fn a_call_whose_end_is_not_known_is_made_again_only_where_that_is_safe() {
    let replies = [Reply::call("charge", json!({})), Reply::text("Done.")];
    for repeat in [Repeat::Never, Repeat::Safe] {
        for (name, runtime) in engines(LIMIT).await {
            let world = World::new();
            *world.stuck.lock().unwrap() = true;
            tokio::select! {
                ran = world.run(Arc::clone(&runtime), &replies, vec![charge(&world, repeat)], "Go") => {
                    panic!("{:?}", ran.result)
                }
                () = world.begun.notified() => {}
            }
            *world.stuck.lock().unwrap() = false;
            // What was asked of the model died with the process.
            world.requests.store(1, Ordering::SeqCst);
            let resumed = world.run(Arc::clone(&runtime), &replies, vec![charge(&world, repeat)], "Go").await;
            assert_eq!(resumed.text(), "Done.", "{name}");
            let result = resumed.results().remove(0);
            let text = tool_result_to_text(&result.output).into_owned();
            let bodies = world.bodies();
            if repeat == Repeat::Never {
                assert_eq!((bodies.len(), result.status), (1, ToolStatus::Interrupted), "{name}");
                assert!(text.contains("unknown"), "{name}: {text}");
            } else {
                assert_eq!((bodies.len(), result.status, text.as_str()), (2, ToolStatus::Ok, "charged"), "{name}");
                assert_eq!(bodies[0], bodies[1], "{name}: the same idempotency key");
            }
            let replayed = world.run(runtime, &replies, vec![charge(&world, repeat)], "Go").await;
            assert_eq!(replayed.results(), resumed.results(), "{name}");
            assert_eq!(world.bodies().len(), bodies.len(), "{name}");
        }
    }
}

#[tokio::test]
async fn a_run_stopped_before_its_gate_makes_its_calls() {
    let replies = [Reply::call("charge", json!({})), Reply::text("Done.")];
    for (name, runtime) in engines(LIMIT).await {
        let world = World::new();
        let tools = || vec![charge(&world, Repeat::Never)];
        let stop = Stopping::new(&runtime, Stop::Before(StepKind::Gate));
        assert!(matches!(world.run(stop, &replies, tools(), "Go").await.refused(), DurableError::Interrupted { .. }));
        let resumed = world.run(runtime, &replies, tools(), "Go").await;
        assert_eq!((resumed.text(), resumed.results()[0].status), ("Done.", ToolStatus::Ok), "{name}");
        assert_eq!(world.bodies().len(), 1);
    }
}

#[tokio::test]
async fn what_differs_from_the_record_is_named() {
    for (name, runtime) in engines(LIMIT).await {
        let world = World::new();
        let stop = Stopping::new(&runtime, Stop::Before(StepKind::Gate));
        assert!(world.run(stop, &replies(), tools(&world), "Go").await.result.is_err());
        let (before, entries) = (world.counts(), world.entries().await);
        let other = world.run(Arc::clone(&runtime), &replies(), tools(&world), "Go away").await;
        match other.refused() {
            error @ DurableError::Diverged { run_id, place: 0, .. } => {
                assert_eq!(run_id, "r");
                let text = error.to_string();
                assert!(text.contains("another prompt") && !text.contains("Go"), "{name}: {text}");
            }
            other => panic!("{name}: {other}"),
        }
        for place in 0..2 {
            let renamed = Stopping::new(&runtime, Stop::Renamed(place));
            let renamed = world.run(renamed, &replies(), tools(&world), "Go").await;
            match renamed.refused() {
                DurableError::Diverged { place: found, recorded, requested, .. } => {
                    assert_eq!(*found, place as u64, "{name}");
                    assert_eq!(requested.name, format!("{}/renamed", recorded.name), "{name}");
                }
                other => panic!("{name}: {other}"),
            }
        }
        assert_eq!(
            (world.counts(), world.entries().await),
            (before, entries),
            "{name}: something was done all the same"
        );
        assert_eq!(world.run(runtime, &replies(), tools(&world), "Go").await.text(), "Done.", "{name}");
    }
}

#[tokio::test]
async fn of_two_holders_the_first_writes_nothing_more() {
    let replies = [Reply::call("charge", json!({})), Reply::text("Done.")];
    for (name, runtime) in engines(LIMIT).await {
        let world = World::new();
        *world.stuck.lock().unwrap() = true;
        let first = world.run(Arc::clone(&runtime), &replies, vec![charge(&world, Repeat::Never)], "Go");
        let second = async {
            world.begun.notified().await;
            *world.stuck.lock().unwrap() = false;
            world.requests.store(1, Ordering::SeqCst);
            let second = world.run(Arc::clone(&runtime), &replies, vec![charge(&world, Repeat::Never)], "Go").await;
            assert_eq!(second.text(), "Done.", "{name}");
            let entries = world.entries().await;
            world.go_on.notify_one();
            entries
        };
        let (first, entries) = tokio::join!(first, second);
        assert!(matches!(first.refused(), DurableError::Fenced { run_id } if run_id == "r"), "{name}");
        assert_eq!(world.entries().await, entries, "{name}: who was fenced off has stored something");
    }
}

#[tokio::test]
async fn a_result_too_large_for_a_record_is_one_that_says_so() {
    let replies = [Reply::call("read", json!({})).and_call("write", json!({})), Reply::text("Done.")];
    let tools = |size: usize| {
        vec![
            tool_fn("read", "Reads", move |_: NoInput, cx: ToolContext| async move {
                cx.state().set("kept", 1)?;
                Ok("x".repeat(size))
            }),
            tool_fn("write", "Writes", move |_: NoInput, cx: ToolContext| async move {
                cx.state().set("lost", "x".repeat(size))?;
                Ok("written")
            }),
        ]
    };
    for (name, runtime) in engines(10_000).await {
        let world = World::new();
        let ran = world.run(Arc::clone(&runtime), &replies, tools(20_000), "Go").await;
        assert_eq!(ran.text(), "Done.", "{name}");
        let results = ran.results();
        assert_eq!(results[0].status, ToolStatus::Error, "{name}");
        let texts: Vec<_> = results.iter().map(|result| tool_result_to_text(&result.output).into_owned()).collect();
        assert!(texts[0].contains("cannot be kept") && !texts[0].contains("tool state"), "{name}: {}", texts[0]);
        assert!(texts[1].contains("tool state"), "{name}: {}", texts[1]);
        let state = world.state.load("s").await.unwrap();
        assert!(state.get("kept").is_some() && state.get("lost").is_none(), "{name}");
        let replayed = world.run(runtime, &replies, tools(20_000), "Go").await;
        assert_eq!(replayed.results(), results, "{name}");
    }
    // And against the default.
    let (_, runtime) = engine(0).await.unwrap();
    let world = World::new();
    let ran = world.run(runtime, &[replies[0].clone(), Reply::text("Done.")], tools(9_000_000), "Go").await;
    assert_eq!((ran.text(), ran.results()[0].is_error), ("Done.", true));
}

#[tokio::test]
async fn any_other_step_too_large_for_a_record_ends_the_run() {
    for (name, runtime) in engines(10_000).await {
        let world = World::new();
        let ran = world.run(Arc::clone(&runtime), &[Reply::text("x".repeat(20_000))], vec![], "Go").await;
        match ran.refused() {
            DurableError::TooLarge { run_id, key, bytes, limit } => {
                assert_eq!((run_id.as_str(), key.kind, *limit), ("r", StepKind::Model, 10_000), "{name}");
                assert!(*bytes > 20_000, "{name}");
            }
            other => panic!("{name}: {other}"),
        }
        // Nothing of it is on record, so another answer will do.
        world.requests.store(0, Ordering::SeqCst);
        assert_eq!(world.run(runtime, &[Reply::text("Short.")], vec![], "Go").await.text(), "Short.", "{name}");
    }
}

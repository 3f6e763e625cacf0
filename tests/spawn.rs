//! Runs that tools spawn: what they have from the run above, how they end, and what they leave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use harness::{Notes, Scenario, echo, line, tool};
use serde_json::{Value, json};
use zidane::agent::{ChildError, ChildSource, Limits, Spawn};
use zidane::hooks::{
    AgentDone, AgentStart, HookError, Scope, SpawnBefore, SpawnComplete, SpawnError, SpawnGate, StreamText, ToolAfter,
    ToolBefore, ToolGate, TurnBefore, TurnUsageHook,
};
use zidane::provider::{OutputSchema, ProviderErrorKind};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider};
use zidane::tool::{
    NoInput, Repeat, Settled, ToolContext, ToolOutput, ToolResultExt as _, ToolSpec, ToolUpdate, tool_fn,
};
use zidane::types::{
    AgentStats, ChildStatus, ToolResultBlock, ToolStatus, fold_totals, tool_result_to_text, walk_turns,
};
use zidane::{Agent, AgentBuilder, AgentEvent, RunOutcome, StopCause};

const MS: Duration = Duration::from_millis(1);

fn agent(replies: impl IntoIterator<Item = Reply>) -> AgentBuilder {
    Agent::builder().provider(ScriptedProvider::new(replies)).model("test")
}

/// Agents of the same script, each with a model of its own.
fn agents(replies: &[Reply], also: fn(AgentBuilder) -> AgentBuilder) -> impl ChildSource + Clone + use<> {
    let replies = replies.to_vec();
    move || also(agent(replies.clone()))
}

fn spawn(name: &str, child: impl ChildSource) -> Spawn {
    Spawn::new(name, "Gives a task to another agent", child)
}

fn call(name: &str) -> Reply {
    Reply::call(name, json!({ "task": format!("Do {name}.") }))
}

fn calls(names: &[&str]) -> Reply {
    names.iter().fold(Reply::empty(), |reply, name| reply.and_call(*name, json!({ "task": format!("Do {name}.") })))
}

fn results(agent: &Agent) -> Vec<ToolResultBlock> {
    agent.history().iter().flat_map(|turn| turn.tool_results().cloned().collect::<Vec<_>>()).collect()
}

fn text(result: &ToolResultBlock) -> String {
    tool_result_to_text(&result.output).into_owned()
}

#[track_caller]
fn adds_up(stats: &AgentStats) {
    assert_eq!(stats.totals(), fold_totals(stats));
}

fn statuses(outcome: &RunOutcome) -> Vec<ChildStatus> {
    outcome.stats.children.iter().map(|child| child.status).collect()
}

fn live_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Waits, without time, until the tasks that were dropped are gone.
async fn quiet(baseline: usize) {
    for _ in 0..1_000 {
        if live_tasks() <= baseline {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{} tasks are left, {baseline} were there", live_tasks());
}

/// A tool that never ends, and does not listen.
fn never() -> harness::Scripted {
    tool("never", |_, _| Box::pin(std::future::pending()))
}

#[tokio::test]
async fn a_child_answers_in_the_result_of_its_call() {
    let child = agent([Reply::text("found it")]);
    let parent = agent([call("look"), Reply::text("done")]).tool(spawn("look", child)).build().unwrap();
    let outcome = parent.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(line(&parent.history().turns()[2]), "results: ok found it");
    let child = &outcome.stats.children[0];
    assert_eq!((child.status, &*child.task, child.stats.turns), (ChildStatus::Completed, "Do look.", 1));
    assert_eq!(child.call_id.as_deref(), Some("call_1"));
    adds_up(&outcome.stats);
    assert_eq!(outcome.stats.turns, 2, "a run's turns are its own");
    assert_eq!(walk_turns(&outcome.stats).count(), 3);
    let usage = &child.stats.turn_usage[0];
    assert_eq!((usage.parent_run_id.as_deref(), usage.depth), (Some(&*outcome.run_id), 1));
    assert_eq!(usage.run_id, child.id);
}

/// Recorded, kept, and taken up after every step: the same comes of it, ids included.
#[tokio::test(start_paused = true)]
async fn a_child_is_a_part_of_the_record_of_its_call() {
    let scenario = Scenario::new([calls(&["deep", "fails"]), Reply::text("done")]).build(|builder| {
        let leaf = agents(&[Reply::call("echo", json!({})), Reply::text("leaf")], |leaf| leaf.tool(echo()));
        let middle = move || agent([call("leaf"), Reply::text("middle")]).tool(spawn("leaf", leaf.clone()));
        let fails = agents(&[Reply::text("so far").and_call("echo", json!({})), failure()], |child| child.tool(echo()));
        // Made again where a run is taken up before the call's end is on record.
        let safe = |spec: ToolSpec| spec.repeat(Repeat::Safe);
        builder.tool(spawn("deep", middle).configure(safe)).tool(spawn("fails", fails).configure(safe))
    });
    let told = scenario.tell_all().await;
    assert_eq!(told.events.iter().filter(|event| event.starts_with("spawn:complete")).count(), 2);
    let children = &told.stats().children;
    // The one that fails is the first to end.
    assert_eq!(children.iter().map(|child| child.status.as_str()).collect::<Vec<_>>(), ["failed", "completed"]);
    assert_eq!(children[1].stats.children[0].stats.turns, 2);
}

fn failure() -> Reply {
    Reply::fails(ProviderErrorKind::Invalid)
}

#[tokio::test]
async fn gates_reach_every_descendant_and_agent_hooks_none() {
    let leaf =
        agents(&[calls(&["shell", "missing"]), Reply::text("leaf")], |leaf| leaf.tool(harness::forbidden("shell")));
    let middle = agent([call("leaf"), Reply::text("middle")]).tool(spawn("leaf", leaf));
    let root = agent([call("middle"), Reply::text("done")]).tool(spawn("middle", middle)).build().unwrap();
    let (seen, own, all) = (Notes::default(), Notes::default(), Notes::default());
    let (gate, agent_scope, tree) = (seen.clone(), own.clone(), all.clone());
    root.hooks().on::<ToolGate>(move |cx| {
        gate.add(format!("{} {}", cx.depth(), cx.name()));
        if cx.name() == "shell" {
            cx.block("no shell");
        }
    });
    root.hooks().on::<TurnBefore>(move |cx| agent_scope.add(cx.depth().to_string()));
    root.hooks().scope(Scope::Tree).on::<ToolAfter>(move |cx| {
        tree.add(format!("{} {} {}", cx.depth(), cx.name(), cx.status().as_str()));
    });
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(seen.all(), ["0 middle", "1 leaf", "2 shell"]);
    assert_eq!(own.all(), ["0", "0"]);
    assert_eq!(all.all(), ["2 shell blocked", "2 missing unknown_tool", "1 leaf ok", "0 middle ok"]);
    let leaf = &outcome.stats.children[0].stats.children[0];
    let denial = &outcome.denials[0];
    assert_eq!((&denial.run_id, &*denial.name, &*denial.reason), (&leaf.id, "shell", "no shell"));
    assert_eq!(outcome.denials.len(), 1);
}

/// Some servers give the calls of every turn the same id.
#[tokio::test]
async fn calls_of_one_id_spawn_runs_of_their_own() {
    let again = || Reply::empty().raw_call(Some("c"), "child", r#"{"task":"Go"}"#);
    let root = agent([again(), again(), Reply::text("done")]).tool(spawn("child", agents(&[Reply::text("ok")], |a| a)));
    let stats = root.build().unwrap().run("Go").await.unwrap().stats;
    assert_eq!(stats.children.len(), 2);
    assert_ne!(stats.children[0].id, stats.children[1].id);
    let turns: std::collections::BTreeSet<_> = walk_turns(&stats).map(|usage| &usage.turn_id).collect();
    assert_eq!(turns.len(), 5);
}

#[tokio::test]
async fn hooks_see_the_childs_own_ids() {
    let child = agents(&[Reply::call("echo", json!({})), Reply::text("ok")], |child| child.tool(echo()));
    let root = agent([calls(&["a", "b"]), Reply::text("done")]).tool(spawn("a", child.clone())).tool(spawn("b", child));
    let root = root.build().unwrap();
    let notes = Notes::default();
    let log = notes.clone();
    root.hooks().scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        log.add(format!("{} {} {:?} {}", cx.name(), cx.run_id(), cx.parent_run_id(), cx.session_id()));
    });
    let outcome = root.run("Go").run_id("root").await.unwrap();
    let (own, children): (Vec<_>, Vec<_>) = notes.all().into_iter().partition(|note| !note.starts_with("echo"));
    let session = root.session_id();
    assert_eq!(own, [format!("a root None {session}"), format!("b root None {session}")]);
    assert_eq!(children.len(), 2);
    for child in &outcome.stats.children {
        let note = children.iter().find(|note| note.contains(&child.id)).unwrap();
        assert!(note.contains("Some(\"root\")") && !note.contains(session), "{note}");
    }
    assert_ne!(outcome.stats.children[0].id, outcome.stats.children[1].id);
}

#[tokio::test]
async fn state_session_and_steering_are_the_childs_own() {
    let child = agent([Reply::call("note", json!({})), Reply::text("ok")]).tool(tool("note", |_, cx| {
        Box::pin(async move {
            assert!(cx.state().get("k").is_none(), "the parent's state is not the child's");
            cx.state().set("k", "child")?;
            Ok(().into())
        })
    }));
    let parent = agent([Reply::call("set", json!({})), call("child"), Reply::text("done")])
        .tool(tool("set", |_, cx| {
            Box::pin(async move {
                cx.state().set("k", "parent")?;
                cx.agent().follow_up("And then?").unwrap();
                Ok(().into())
            })
        }))
        .tool(spawn("child", child))
        .build()
        .unwrap();
    let unread = parent.run("Go").max_turns(3).await.unwrap().undelivered;
    assert_eq!(parent.tool_state().get("k").as_deref(), Some(&json!("parent")));
    assert_eq!(unread.len(), 1, "the child did not take what waited for its parent");
    assert_eq!(parent.history().iter().filter(|turn| turn.text() == "ok").count(), 0);
}

#[tokio::test]
async fn a_child_without_a_model_asks_its_parents() {
    let model = ScriptedProvider::new([call("look"), Reply::text("found"), Reply::text("done")]).allow_prefix_breaks();
    let root = Agent::builder()
        .provider(model.clone())
        .model("large")
        .tool(spawn("look", Agent::builder().system("You look.")));
    let outcome = root.build().unwrap().run("Go").await.unwrap();
    assert_eq!(outcome.text, "done");
    assert_eq!(model.requests()[1].head.model, "large");
    let model = ScriptedProvider::new([call("look"), Reply::text("found"), Reply::text("done")]).allow_prefix_breaks();
    let root = Agent::builder().provider(model.clone()).model("large");
    root.tool(spawn("look", Agent::builder()).model("small")).build().unwrap().run("Go").await.unwrap();
    assert_eq!(model.requests()[1].head.model, "small");
}

#[tokio::test]
async fn every_end_is_typed_and_none_is_an_empty_success() {
    let echoing = |replies: &[Reply]| agents(replies, |child| child.tool(echo()));
    let aborts = agents(&[Reply::text("half").and_call("stop", json!({})), Reply::text("more")], |child| {
        child.tool(tool("stop", |_, cx| {
            Box::pin(async move {
                cx.agent().abort();
                Ok(().into())
            })
        }))
    });
    let root = agent([calls(&["good", "quiet", "err", "cap", "limit", "abort", "unbuilt"]), Reply::text("done")])
        .tool(spawn("good", agents(&[Reply::text("good")], |child| child)))
        .tool(spawn("quiet", agents(&[Reply::text("")], |child| child)))
        .tool(spawn("err", echoing(&[Reply::text("found A").and_call("echo", json!({})), failure()])))
        .tool(spawn("cap", echoing(&[Reply::text("working").and_call("echo", json!({}))])).max_turns(1))
        .tool(spawn("limit", echoing(&[Reply::call("echo", json!({}))])).limits(Limits::none().tool_calls(0)))
        .tool(spawn("abort", aborts))
        .tool(spawn("unbuilt", agents(&[], |child| child.tool(echo()).tool(echo()))))
        .build()
        .unwrap();
    let recorder = EventRecorder::attach(&root);
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    let results = results(&root);
    let is_error: Vec<_> = results.iter().map(|result| (result.is_error, result.status.as_str())).collect();
    let expected =
        [(false, "ok"), (false, "ok"), (true, "error"), (true, "ok"), (true, "ok"), (true, "ok"), (true, "error")];
    assert_eq!(is_error, expected);
    assert!(text(&results[2]).contains("found A") && text(&results[2]).contains("failed"), "{}", text(&results[2]));
    assert!(!text(&results[2]).contains("scripted failure"), "the cause is the host's");
    assert!(text(&results[3]).contains("working") && text(&results[3]).contains("turn limit"));
    assert!(text(&results[4]).contains("tool calls"), "{}", text(&results[4]));
    assert!(text(&results[5]).contains("half") && text(&results[5]).contains("aborted"));
    let mut ends: Vec<_> = outcome.stats.children.iter().map(|child| (&*child.task, child.status.as_str())).collect();
    ends.sort_unstable();
    assert_eq!(
        ends,
        [
            ("Do abort.", "aborted"),
            ("Do cap.", "limit"),
            ("Do err.", "failed"),
            ("Do good.", "completed"),
            ("Do limit.", "limit"),
            ("Do quiet.", "completed")
        ]
    );
    adds_up(&outcome.stats);
    assert_eq!(recorder.count("spawn:complete"), 6);
    assert_eq!(recorder.count("spawn:error"), 5);
    assert_eq!(recorder.count("spawn:error unbuilt failed"), 1);
}

#[tokio::test]
async fn children_are_in_the_stats_in_the_order_in_which_they_ended() {
    let slow = |pauses: u32| agents(&[Reply::text("ok").after(MS * pauses)], |child| child);
    let root = agent([calls(&["slow", "quick"]), Reply::text("done")]);
    // Each pauses by what its name says.
    let root = root.tool(spawn("slow", slow(40))).tool(spawn("quick", slow(1))).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    let tasks: Vec<_> = outcome.stats.children.iter().map(|child| &*child.task).collect();
    assert_eq!(tasks, ["Do quick.", "Do slow."]);
}

/// A tree of runs, each level of which spawns `wide` children at once.
fn tree(levels: usize, wide: usize, leaf: fn(AgentBuilder) -> AgentBuilder, last: &Reply) -> AgentBuilder {
    let last = last.clone();
    if levels == 0 {
        return leaf(agent([last, Reply::text("leaf")]));
    }
    let below = move || tree(levels - 1, wide, leaf, &last);
    agent([calls(&vec!["below"; wide]), Reply::text("done")]).tool(spawn("below", below).total(1_000))
}

#[tokio::test(start_paused = true)]
async fn an_abort_of_the_root_ends_all_within_the_bound_and_keeps_what_was_used() {
    let before = live_tasks();
    let root = tree(3, 2, |leaf| leaf.tool(never()), &Reply::call("never", json!({}))).build().unwrap();
    let (handle, waiting) = (root.handle().clone(), Arc::new(AtomicUsize::new(0)));
    root.hooks().scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        if cx.name() == "never" && waiting.fetch_add(1, Ordering::Relaxed) == 7 {
            handle.abort();
        }
    });
    let done = Notes::default();
    let ends = done.clone();
    root.hooks().scope(Scope::Tree).on::<AgentDone>(move |cx| ends.add(format!("{} {}", cx.depth(), cx.stop())));
    let started = tokio::time::Instant::now();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Aborted);
    // One grace for the tools that do not listen; every level has more time, and needs none of it.
    assert!(started.elapsed() <= MS * 110, "{:?}", started.elapsed());
    assert_eq!(done.all().iter().filter(|end| end.ends_with("aborted")).count(), 1 + 2 + 4 + 8);
    assert_eq!(walk_turns(&outcome.stats).count(), 1 + 2 + 4 + 8);
    adds_up(&outcome.stats);
    assert_eq!(statuses(&outcome), [ChildStatus::Aborted; 2]);
    for result in results(&root) {
        assert_eq!((result.is_error, result.status), (true, ToolStatus::Interrupted));
    }
    quiet(before).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_does_not_end_in_time_is_dropped_and_what_it_used_counts() {
    let before = live_tasks();
    // The tools of the leaf have more time than the runs above give it.
    let slow = || {
        let mut slow = never();
        slow.spec.cancel_grace = Some(MS * 60_000);
        slow
    };
    let leaf = move || agent([Reply::call("never", json!({}))]).tool(slow());
    let middle = move || agent([call("leaf"), Reply::text("middle")]).tool(spawn("leaf", leaf));
    let root = agent([call("middle"), Reply::text("done")]).tool(spawn("middle", middle)).build().unwrap();
    let handle = root.handle().clone();
    root.hooks().scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        if cx.name() == "never" {
            handle.abort();
        }
    });
    let started = tokio::time::Instant::now();
    let outcome = root.run("Go").await.unwrap();
    assert!(started.elapsed() <= MS * 310, "a grace for each level: {:?}", started.elapsed());
    assert_eq!(outcome.stop, StopCause::Aborted);
    assert_eq!(walk_turns(&outcome.stats).count(), 3);
    adds_up(&outcome.stats);
    let middle = &outcome.stats.children[0];
    assert_eq!((middle.status, middle.stats.children[0].status), (ChildStatus::Aborted, ChildStatus::Aborted));
    quiet(before).await;
}

#[tokio::test]
async fn three_levels_of_eight_leave_no_task_behind() {
    let before = live_tasks();
    let root = tree(3, 8, |leaf| leaf.tool(echo()), &Reply::call("echo", json!({}))).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(walk_turns(&outcome.stats).count(), 2 * (1 + 8 + 64 + 512));
    adds_up(&outcome.stats);
    quiet(before).await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_root_leaves_no_task_behind() {
    let before = live_tasks();
    for polls in [1_usize, 5, 20, 60] {
        let root = tree(3, 4, |leaf| leaf.tool(never()), &Reply::call("never", json!({}))).build().unwrap();
        let mut run = Box::pin(root.run("Go"));
        for _ in 0..polls {
            assert!(futures::poll!(run.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        drop(run);
        quiet(before).await;
        assert!(!root.is_running());
    }
}

/// An agent that spawns its like, for ever.
fn endless() -> AgentBuilder {
    agent([calls(&["again", "again"]), Reply::text("enough")]).tool(spawn("again", endless))
}

#[tokio::test]
async fn an_agent_that_spawns_itself_for_ever_comes_to_an_end() {
    let root = endless().build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(walk_turns(&outcome.stats).map(|usage| usage.depth).max(), Some(3));
    assert_eq!(walk_turns(&outcome.stats).count(), 2 * (1 + 2 + 4 + 8));

    // The smallest cap above wins, whatever those below say.
    let deeper = || agent([call("again"), Reply::text("ok")]).tool(spawn("again", endless).max_depth(u32::MAX));
    let root = agent([call("first"), Reply::text("ok")]).tool(spawn("first", deeper).max_depth(2)).build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(walk_turns(&outcome.stats).map(|usage| usage.depth).max(), Some(2));

    let root = agent([calls(&["again", "again"]), Reply::text("ok")]).tool(spawn("again", endless).total(5));
    let outcome = root.build().unwrap().run("Go").await.unwrap();
    assert_eq!(walk_turns(&outcome.stats).filter(|usage| usage.depth > 0).count(), 2 * 5);
    let again = root_errors(0).await;
    assert!(again.contains("do the task yourself"), "{again}");
}

async fn root_errors(depth: u32) -> String {
    let root =
        agent([call("again"), Reply::text("ok")]).tool(spawn("again", endless).max_depth(depth)).build().unwrap();
    root.run("Go").await.unwrap();
    let result = &results(&root)[0];
    assert!(result.is_error);
    text(result)
}

#[tokio::test(start_paused = true)]
async fn no_more_children_are_at_work_than_may_be() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let child = agents(&[Reply::text("ok").after(MS * 5)], |child| child);
    let root = agent([calls(&["child"; 12]), Reply::text("done")]).tool(spawn("child", child).max_concurrent(3));
    let root = root.build().unwrap();
    let (begun, seen, ended) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&now));
    root.hooks().scope(Scope::Tree).on::<AgentStart>(move |cx| {
        if cx.depth() == 1 {
            seen.fetch_max(begun.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
    root.hooks().scope(Scope::Tree).on::<AgentDone>(move |cx| {
        if cx.depth() == 1 {
            ended.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(statuses(&outcome), [ChildStatus::Completed; 12]);
    assert_eq!(most.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn spawns_are_gated_and_told() {
    let child = agents(&[Reply::text("ok")], |child| child);
    let build = || {
        let root = agent([calls(&["one", "two"]), Reply::text("done")]);
        root.tool(spawn("one", child.clone())).tool(spawn("two", child.clone())).build().unwrap()
    };
    let (root, notes) = (build(), Notes::default());
    let hooks = root.hooks();
    let log = notes.clone();
    hooks.on::<SpawnGate>(move |cx| {
        assert_eq!((cx.child().depth(), cx.child().path().len()), (1, 1));
        if cx.child().name() == "two" {
            cx.block("one is enough");
        }
        log.add(format!("gate {}", cx.task()));
    });
    let log = notes.clone();
    hooks.on_async::<SpawnBefore>(move |cx| {
        let log = log.clone();
        Box::pin(async move {
            tokio::task::yield_now().await;
            log.add(format!("before {}", cx.child().name()));
        })
    });
    let log = notes.clone();
    hooks.scope(Scope::Tree).on::<AgentStart>(move |cx| {
        if cx.depth() == 1 {
            assert!(log.all().contains(&"before one".to_owned()), "it is told before it begins");
        }
    });
    let log = notes.clone();
    hooks.on::<SpawnComplete>(move |cx| log.add(format!("complete {} {}", cx.child().name(), cx.stats().total_in)));
    let log = notes.clone();
    hooks.on::<SpawnError>(move |cx| log.add(format!("error {} {}", cx.child().name(), cx.error())));
    let outcome = root.run("Go").await.unwrap();
    let mut told = notes.all();
    told.sort();
    assert_eq!(told, ["before one", "complete one 10", "error two one is enough", "gate Do one.", "gate Do two."]);
    assert_eq!(outcome.stats.children.len(), 1);
    assert_eq!(text(&results(&root)[1]), "one is enough");

    let root = build();
    root.hooks().on::<SpawnGate>(|_| -> Result<(), &str> { Err("no answer") });
    assert!(root.run("Go").await.unwrap().stats.children.is_empty(), "a gate that fails blocks");
}

#[tokio::test]
async fn events_come_up_with_their_path_and_a_panicking_observer_harms_nobody() {
    let leaf = agents(&[Reply::call("talk", json!({})), Reply::deltas(["le", "af"])], |leaf| {
        leaf.tool(tool("talk", |_, cx| {
            Box::pin(async move {
                cx.progress("talking").await?;
                Ok(().into())
            })
        }))
    });
    let middle = agent([call("leaf"), Reply::text("middle")]).tool(spawn("leaf", leaf));
    let root = agent([call("middle"), Reply::text("done")]).tool(spawn("middle", middle)).build().unwrap();
    root.hooks().scope(Scope::Tree).on::<StreamText>(|_| panic!("an observer"));
    let failed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failed);
    root.hooks().scope(Scope::Tree).on::<HookError>(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let mut stream = root.run("Go").stream();
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            AgentEvent::ChildStart { child, task } => seen.push(format!("+{} {task}", child.path().join("/"))),
            AgentEvent::ChildEnd { child, status } => {
                seen.push(format!("-{} {}", child.path().join("/"), status.as_str()))
            }
            AgentEvent::Child { child, event } => match *event {
                AgentEvent::Text { delta } => seen.push(format!("{} {delta}", child.name())),
                AgentEvent::ToolUpdate { update: ToolUpdate::Text(text), .. } => {
                    seen.push(format!("{} {text}", child.path().join("/")));
                }
                AgentEvent::Child { .. } | AgentEvent::Done(_) => panic!("nested events are flat"),
                _ => {}
            },
            AgentEvent::Text { delta } => seen.push(delta),
            AgentEvent::Done(outcome) => assert_eq!(outcome.unwrap().stop, StopCause::Stop),
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            "+call_1 Do middle.",
            "+call_1/call_1 Do leaf.",
            "call_1/call_1 talking",
            "leaf le",
            "leaf af",
            "-call_1/call_1 completed",
            "middle middle",
            "-call_1 completed",
            "done"
        ]
    );
    assert_eq!(failed.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_whole_tree_and_loses_nothing() {
    let words: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let child = agents(&[Reply::deltas(words.clone())], |child| child);
    let root = agent([calls(&["a", "b"]), Reply::text("done")]).tool(spawn("a", child.clone())).tool(spawn("b", child));
    let root = root.build().unwrap();
    let mut stream = root.run("Go").stream();
    let mut said = std::collections::BTreeMap::<String, Vec<String>>::new();
    while let Some(event) = stream.next().await {
        tokio::time::sleep(MS).await;
        if let AgentEvent::Child { child, event } = event
            && let AgentEvent::Text { delta } = *event
        {
            said.entry(child.name().to_owned()).or_default().push(delta);
        }
    }
    assert_eq!(said.len(), 2);
    for said in said.values() {
        assert_eq!(*said, words);
    }
}

#[tokio::test]
async fn an_answer_can_be_a_value() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let child = agents(&[Reply::text("{\"n\": 7}")], |child| child);
    let root = agent([call("count"), Reply::text("done")]);
    let root = root.tool(spawn("count", child).output_schema(OutputSchema::new("answer", schema))).build().unwrap();
    root.run("Go").await.unwrap();
    let result = &results(&root)[0];
    assert_eq!((text(result), &result.structured), ("{\"n\":7}".to_owned(), &Some(json!({ "n": 7 }))));
}

#[tokio::test]
async fn a_tool_may_spawn_and_call_tools_that_spawn() {
    let child = agent([Reply::text("one")]);
    let other = agents(&[Reply::text("two")], |child| child);
    let both = tool_fn("both", "Asks twice", move |_: NoInput, cx: ToolContext| {
        let child = child.clone();
        async move {
            let first = cx.spawn(&child, "First").name("first").max_turns(3).await.expose()?;
            assert!(first.is_completed());
            assert_eq!((first.child.name(), first.stats.turns), ("first", 1));
            let second = cx.run_tool("ask", json!({ "task": "Second" })).await?;
            Ok(format!("{} {}", first.text, tool_result_to_text(&second.body)))
        }
    });
    let root = agent([Reply::call("both", json!({})), Reply::text("done")]).tool(both).tool(spawn("ask", other));
    let root = root.build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(text(&results(&root)[0]), "one two");
    let calls: Vec<_> = outcome.stats.children.iter().map(|child| (&*child.task, child.call_id.as_deref())).collect();
    assert_eq!(calls, [("First", Some("call_1")), ("Second", Some("call_1/2"))]);
    adds_up(&outcome.stats);
}

#[tokio::test]
async fn nothing_is_spawned_outside_of_a_call() {
    let child = agent([Reply::text("one")]);
    let refused = ToolContext::for_test("t").spawn(&child, "Go").await;
    assert!(matches!(refused, Err(ChildError::Settled)));
    let kept = Arc::new(std::sync::Mutex::new(None));
    let slot = Arc::clone(&kept);
    let leaves = tool("leaves", move |_, cx| {
        *slot.lock().unwrap() = Some(cx);
        Box::pin(async { Ok(().into()) })
    });
    let root = agent([Reply::call("leaves", json!({})), Reply::text("done")]).tool(leaves).build().unwrap();
    root.run("Go").await.unwrap();
    let cx = kept.lock().unwrap().take().unwrap();
    assert!(matches!(cx.spawn(&child, "Go").await, Err(ChildError::Settled)));
    assert_eq!(cx.run_tool("leaves", json!({})).await, Err(Settled));
}

/// A body that gives up on its child, and one that leaves it to a task of its own.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_left_behind_ends_with_its_call() {
    let before = live_tasks();
    let hangs = || agent([Reply::text("ok").and_call("never", json!({}))]).tool(never());
    let gives_up = tool("gives_up", move |_, cx| {
        Box::pin(async move {
            let child = cx.spawn(&hangs(), "Hang").into_future();
            assert!(tokio::time::timeout(MS * 50, child).await.is_err());
            Ok(ToolOutput::from("gave up"))
        })
    });
    let leaves = tool("leaves", move |_, cx| {
        Box::pin(async move {
            let child = cx.spawn(&hangs(), "Hang").into_future();
            tokio::spawn(child);
            tokio::time::sleep(MS * 50).await;
            Ok(ToolOutput::from("left"))
        })
    });
    let root = agent([calls(&["gives_up"]), calls(&["leaves"]), Reply::text("done")]).tool(gives_up).tool(leaves);
    let root = root.build().unwrap();
    let outcome = root.run("Go").await.unwrap();
    assert_eq!(statuses(&outcome), [ChildStatus::Aborted; 2]);
    assert_eq!(walk_turns(&outcome.stats).count(), 3 + 2);
    adds_up(&outcome.stats);
    // The one that was left ends by its abort, after the grace of its tool.
    tokio::time::sleep(MS * 110).await;
    quiet(before).await;
}

/// A provider that panics takes the child down, and nothing else.
#[tokio::test]
async fn a_child_that_panics_has_failed() {
    let child = || Agent::builder().provider(Panics).model("test");
    let root = agent([call("child"), Reply::text("done")]).tool(spawn("child", child)).build().unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let outcome = root.run("Go").await;
    std::panic::set_hook(hook);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.stop.clone(), statuses(&outcome)), (StopCause::Stop, vec![ChildStatus::Failed]));
    assert!(text(&results(&root)[0]).contains("failed"));
}

struct Panics;

#[zidane::async_trait]
impl zidane::provider::Provider for Panics {
    fn id(&self) -> &str {
        "panics"
    }

    async fn stream(
        &self,
        _: Arc<zidane::provider::ModelRequest>,
        _: &zidane::provider::RequestContext,
    ) -> Result<zidane::provider::ProviderStream, zidane::provider::ProviderError> {
        panic!("this provider")
    }
}

#[tokio::test]
async fn bad_input_of_the_tool_is_an_error_result() {
    let child = agents(&[Reply::text("ok")], |child| child);
    let root =
        agent([Reply::call("child", json!({})), Reply::call("child", json!({ "task": "" })), Reply::text("done")]);
    let root = root.tool(spawn("child", child)).build().unwrap();
    root.run("Go").await.unwrap();
    let results = results(&root);
    assert!(results[0].is_error);
    assert!(results[1].is_error, "an empty task is nothing to do: {}", text(&results[1]));
}

#[tokio::test]
async fn usage_is_told_at_every_level_and_adds_up() {
    let root = tree(2, 3, |leaf| leaf.tool(echo()), &Reply::call("echo", json!({}))).build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let sum = Arc::clone(&told);
    root.hooks().scope(Scope::Tree).on::<TurnUsageHook>(move |cx| {
        sum.fetch_add(usize::try_from(cx.usage().tokens.total()).unwrap(), Ordering::Relaxed);
    });
    let outcome = root.run("Go").await.unwrap();
    let totals = outcome.stats.totals();
    assert_eq!((totals.input + totals.output) as usize, told.load(Ordering::Relaxed));
    let _: Value = serde_json::to_value(&outcome.stats).unwrap();
}

//! Agents over stores that refuse, hang, lose an answer, or are written by somebody else.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use zidane::hooks::{AgentAbort, AgentDone, ToolAfter, ToolBefore};
use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionEntry, SessionError, SessionStore};
use zidane::storage::StorageError;
use zidane::testing::{EventRecorder, Reply, ScriptedProvider, validate_transcript};
use zidane::tool::ToolOutput;
use zidane::types::{Role, SessionContentBlock, SessionTurn, ToolStatus, TurnOrigin};
use zidane::{Agent, RunError, RunErrorKind, RunOutcome, StopCause};

use crate::agents::{agent, same};
use crate::faulty::{Fault, FaultyStore};
use crate::folder::Folder;
use crate::harness::{Notes, tool};

fn session_error(result: Result<RunOutcome, RunError>) -> SessionError {
    match result.map_err(|error| error.kind) {
        Err(RunErrorKind::Session(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// The texts of what was said to the model.
fn said(agent: &Agent) -> Vec<String> {
    agent.history().iter().filter(|turn| turn.role == Role::User).map(SessionTurn::text).collect()
}

fn model() -> ScriptedProvider {
    let round = || Reply::call("nap", json!({})).and_call("echo", json!({"n": 1}));
    // What a store lost is not sent again.
    ScriptedProvider::new([round(), Reply::text("One."), round(), Reply::text("Two.")]).allow_prefix_breaks()
}

#[tokio::test(start_paused = true)]
async fn a_store_may_fail_at_every_append() {
    for fault in [Fault::Refused, Fault::Unheard, Fault::Panics] {
        let mut failures = 0;
        for number in 0.. {
            let (model, store) = (model(), FaultyStore::default().fail(number, fault));
            let agent = agent(&model, &store).build().unwrap();
            let events = EventRecorder::attach(&agent);
            let result = agent.run("Go").await;
            let place = format!("{fault:?} at append {number}");
            assert_eq!(events.count("agent:done"), 1, "{place}");
            if store.appends().len() <= number {
                assert!(result.is_ok());
                break;
            }
            failures += 1;
            let said_so = session_error(result).to_string();
            assert!(said_so.contains("append"), "{place}: {said_so}");
            assert!(!agent.is_running());
            let events = store.appends();
            assert_eq!(events.len(), number + 1, "{place}: nothing is appended after a failure");
            // Nothing was sent, and no tool started, that was not stored.
            let requests = model.requests().len();
            assert!(requests <= 1 + usize::from(number > 3), "{place}: {requests}");
            // What is stored is valid, and the next run goes on from it.
            model.skip(model.remaining());
            model.push(Reply::text("Fine."));
            let outcome = agent.run("Again").await.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(outcome.text, "Fine.", "{place}");
            same(&agent).await;
        }
        assert!(failures >= 5, "{fault:?}: {failures}");
    }
}

#[tokio::test]
async fn a_prompt_that_is_not_stored_is_not_sent_and_a_turn_that_is_not_starts_nothing() {
    for (number, requests) in [(0, 0), (1, 1)] {
        let (model, store) = (model(), FaultyStore::default().fail(number, Fault::Refused));
        let agent = agent(&model, &store).build().unwrap();
        agent.hooks().on::<ToolBefore>(|_| panic!("a tool started"));
        let error = agent.run("Go").await.unwrap_err();
        assert_eq!(model.requests().len(), requests);
        // What was said and paid for is told, though it is not stored.
        assert_eq!((error.turns.len(), error.stats.turns as usize), (1 + requests, requests));
    }
}

#[tokio::test]
async fn a_result_is_stored_before_it_is_told() {
    let (model, store) = (model(), FaultyStore::default());
    let agent = agent(&model, &store).build().unwrap();
    let seen = store.clone();
    agent.hooks().on::<ToolAfter>(move |cx| {
        let stored = seen.appends().concat();
        assert!(stored.contains(&format!("result {}", cx.call_id())), "{stored:?}");
    });
    let failed = Notes::default();
    let log = failed.clone();
    agent.hooks().on::<zidane::hooks::HookError>(move |cx| log.add(cx.hook()));
    agent.run("Go").await.unwrap();
    assert!(failed.all().is_empty(), "{:?}", failed.all());
}

#[tokio::test]
async fn of_two_writers_one_is_told_and_nothing_is_overwritten() {
    let store = Arc::new(MemorySessionStore::new());
    let first = ScriptedProvider::new([Reply::text("First.")]);
    agent(&first, &store).build().unwrap().run("Hello").await.unwrap();
    let (a, b) = (ScriptedProvider::new([]).allow_prefix_breaks(), ScriptedProvider::new([]).allow_prefix_breaks());
    // While A works, B runs as a whole.
    let other = agent(&b, &store).build().unwrap();
    b.push(Reply::text("From B."));
    let handle = other.clone();
    let meanwhile = tool("meanwhile", move |_, _| {
        let other = handle.clone();
        Box::pin(async move {
            other.run("B's prompt").await.unwrap();
            Ok("done".into())
        })
    });
    a.push(Reply::call("meanwhile", json!({})));
    let one = agent(&a, &store).tool(meanwhile).build().unwrap();
    // B has settled the call that A was at, so that its result is another one's too.
    let error = session_error(one.run("A's prompt").await);
    assert!(matches!(&error, SessionError::EntryConflict { session, .. } if session == "s"), "{error}");
    assert_eq!(a.requests().len(), 1, "nothing is sent after the conflict");
    // B could not know what A would still say. What it found open it settled.
    assert!(said(&other).concat().contains("A's prompt"));
    validate_transcript(other.history().iter()).unwrap();
    // A goes on from what is there now.
    a.push(Reply::text("I see."));
    one.run("And now?").await.unwrap();
    same(&one).await;
    let all = said(&one);
    assert_eq!((&*all[0], &*all[1], all.last().map(|text| &**text)), ("Hello", "A's prompt", Some("And now?")));
    assert!(all.contains(&"B's prompt".to_owned()));
}

#[tokio::test]
async fn a_writer_in_between_is_a_conflict_with_the_versions() {
    let store = Arc::new(MemorySessionStore::new());
    let model = ScriptedProvider::new([Reply::text("Yes."), Reply::text("Again.")]);
    let agent = agent(&model, &store).build().unwrap();
    let (other, busy) = (Arc::clone(&store), std::sync::atomic::AtomicBool::new(true));
    agent.hooks().on_async::<zidane::hooks::TurnUsageHook>(move |_| {
        let other = busy.swap(false, std::sync::atomic::Ordering::Relaxed).then(|| Arc::clone(&other));
        Box::pin(async move {
            let Some(other) = other else { return };
            let note = SessionEntry::metadata("note", serde_json::Map::new());
            other.append("s", 2, vec![note]).await.unwrap();
        })
    });
    match session_error(agent.run("Go").await) {
        SessionError::Conflict { session, expected: 2, found: 3 } => assert_eq!(session, "s"),
        other => panic!("{other}"),
    }
    agent.run("And?").await.unwrap();
    same(&agent).await;
    assert_eq!(said(&agent), ["Go", "And?"]);
}

#[tokio::test]
async fn writers_that_take_turns_see_each_others_turns() {
    let store = FaultyStore::default();
    let (a, b) = (ScriptedProvider::new([]), ScriptedProvider::new([]));
    let (one, two) = (agent(&a, &store).build().unwrap(), agent(&b, &store).build().unwrap());
    for round in 0..3 {
        for (agent, model, name) in [(&one, &a, "A"), (&two, &b, "B")] {
            model.push(Reply::text(format!("{name}{round}")));
            agent.run(format!("{name} asks {round}")).await.unwrap();
            same(agent).await;
        }
    }
    let texts: Vec<_> = two.history().iter().map(SessionTurn::text).collect();
    let expected: Vec<_> = (0..3)
        .flat_map(|round| ["A", "B"].map(|name| [format!("{name} asks {round}"), format!("{name}{round}")]).concat())
        .collect();
    assert_eq!(texts, expected);
    assert_eq!(store.loads(), 12, "each read its session once per run, and this test as often");
}

/// Polls a run until an append of it waits.
async fn until_held(run: &mut zidane::Run, store: &FaultyStore, appends: usize) {
    loop {
        tokio::select! {
            biased;
            ended = &mut *run => panic!("the run ended: {ended:?}"),
            () = tokio::time::sleep(Duration::from_millis(1)) => {}
        }
        if store.appends().len() == appends {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_does_not_hold_up_an_abort() {
    for appends in 1..=6 {
        let (model, store) = (model(), FaultyStore::default());
        let agent = agent(&model, &store).build().unwrap();
        let order = Notes::default();
        let (aborted, done) = (order.clone(), order.clone());
        agent.hooks().on::<AgentAbort>(move |_| aborted.add("abort"));
        agent.hooks().on::<AgentDone>(move |cx| done.add(cx.stop()));
        store.hold_at(appends - 1);
        let mut run = agent.run("Go");
        until_held(&mut run, &store, appends).await;
        agent.abort();
        let started = Instant::now();
        let outcome = run.await.unwrap();
        // The last append says how the run ended, so that it has.
        let ended = store.appends()[appends - 1] == ["end"];
        assert_eq!(outcome.stop, if ended { StopCause::Stop } else { StopCause::Aborted });
        assert!(started.elapsed() <= Duration::from_millis(350), "{:?}", started.elapsed());
        assert_eq!(order.all(), if ended { vec!["stop"] } else { vec!["abort", "aborted"] });
        assert_eq!(store.appends().len(), appends, "one append is under way at a time");
        // In memory all of it is there and settled; the next run stores it first.
        let before: Vec<_> = agent.history().iter().cloned().collect();
        validate_transcript(&before).unwrap();
        model.skip(model.remaining());
        model.push(Reply::text("Fine."));
        let next = agent.run("Again");
        tokio::pin!(next);
        tokio::select! {
            ended = &mut next => panic!("it did not wait: {ended:?}"),
            () = tokio::time::sleep(Duration::from_secs(3600)) => {}
        }
        // It can be aborted too.
        store.release();
        assert_eq!(next.await.unwrap().text, "Fine.");
        same(&agent).await;
        let after: Vec<_> = agent.history().iter().cloned().collect();
        assert_eq!(crate::faulty::settled(&after[..before.len()]), crate::faulty::settled(&before));
        let session = agent.session().await.unwrap().unwrap();
        let stops: Vec<_> = session.runs.iter().map(|run| run.end.as_ref().map(|end| end.stop.as_str())).collect();
        assert_eq!(stops, [Some(if ended { "stop" } else { "aborted" }), Some("stop")]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_abort_left_to_a_slow_store_is_stored_without_another_run() {
    for after in 0..8 {
        let (model, store) = (model(), FaultyStore::default().slow(Duration::from_secs(1)));
        let agent = agent(&model, &store).build().unwrap();
        let run = tokio::spawn(agent.run("Go"));
        tokio::time::sleep(Duration::from_millis(500 + 1_000 * after)).await;
        agent.abort();
        let aborted = run.await.unwrap().unwrap().stop == StopCause::Aborted;
        assert_eq!(aborted, after < 5, "{after}");
        same(&agent).await;
        let session = agent.session().await.unwrap().unwrap();
        assert_eq!(session.runs[0].end.as_ref().unwrap().stop, if aborted { "aborted" } else { "stop" });
        assert_eq!(store.pending(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_hanging_append_can_be_aborted() {
    let (model, store) = (model(), FaultyStore::default());
    let agent = agent(&model, &store).build().unwrap();
    store.hold_at(0);
    let mut run = agent.run("Go");
    until_held(&mut run, &store, 1).await;
    drop(run);
    let next = tokio::spawn(agent.run("Again"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    agent.abort();
    assert_eq!(next.await.unwrap().unwrap().stop, StopCause::Aborted);
    assert_eq!(store.appends().len(), 1);
    store.release();
    assert_eq!(agent.run("Now").await.unwrap().text, "One.");
    assert_eq!(said(&agent).first().map(|text| &**text), Some("Go"), "the append came through");
    same(&agent).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_may_be_dropped_in_mid_append() {
    for fault in [None, Some(Fault::Refused), Some(Fault::Unheard), Some(Fault::Panics)] {
        for appends in 1..=6 {
            let (model, mut store) = (model(), FaultyStore::default());
            if let Some(fault) = fault {
                store = store.fail(appends - 1, fault);
            }
            let agent = agent(&model, &store).build().unwrap();
            store.hold_at(appends - 1);
            let mut run = agent.run("Go");
            until_held(&mut run, &store, appends).await;
            drop(run);
            assert!(!agent.is_running());
            model.skip(model.remaining());
            model.push(Reply::text("Fine."));
            let next = tokio::spawn(agent.run("Again"));
            tokio::time::sleep(Duration::from_millis(5)).await;
            assert_eq!(store.appends().len(), appends, "it waits for the append");
            store.release();
            assert_eq!(next.await.unwrap().unwrap().text, "Fine.");
            same(&agent).await;
            let kept = said(&agent);
            let lost = appends == 1 && matches!(fault, Some(Fault::Refused | Fault::Panics));
            assert_eq!(kept.contains(&"Go".to_owned()), !lost, "{fault:?} {appends}: {kept:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_leaves_its_queue_when_it_is_stored() {
    for fault in [Fault::Refused, Fault::Unheard, Fault::Panics] {
        for follow_up in [false, true] {
            // Append 0 is the prompt; the message comes alone or with it.
            for number in 0..4 {
                let (model, store) = (ScriptedProvider::new([]).allow_prefix_breaks(), FaultyStore::default());
                let store = store.fail(number, fault);
                (0..4).for_each(|_| model.push(Reply::text("Yes.")));
                let agent = agent(&model, &store).build().unwrap();
                if follow_up {
                    agent.follow_up("Wait").unwrap()
                } else {
                    agent.steer("Wait").unwrap()
                };
                let result = agent.run("Go").await;
                let place = format!("{fault:?} at {number}, {follow_up}");
                let failed = result.is_err();
                if failed {
                    (0..4).for_each(|_| model.push(Reply::text("Yes.")));
                    agent.run("Again").await.unwrap();
                }
                same(&agent).await;
                let said = said(&agent);
                assert_eq!(
                    said.iter().filter(|text| *text == "Wait").count(),
                    1,
                    "{place}, failed: {failed}: {said:?}"
                );
                assert!(agent.handle().queued(zidane::control::QueueKind::Steering).is_empty());
                assert!(agent.handle().queued(zidane::control::QueueKind::FollowUp).is_empty());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_a_dropped_run_was_storing_is_delivered_once() {
    for fault in [None, Some(Fault::Refused), Some(Fault::Unheard), Some(Fault::Panics)] {
        let model = ScriptedProvider::new([Reply::text("Yes.")]).allow_prefix_breaks();
        let mut store = FaultyStore::default();
        if let Some(fault) = fault {
            store = store.fail(0, fault);
        }
        let agent = agent(&model, &store).build().unwrap();
        agent.steer("Wait").unwrap();
        store.hold_at(0);
        let mut run = agent.run("Go");
        until_held(&mut run, &store, 1).await;
        assert_eq!(store.appends()[0], ["start", "prompt", "steering"]);
        drop(run);
        store.release();
        agent.run("Again").await.unwrap();
        let said = said(&agent);
        assert_eq!(said.iter().filter(|text| *text == "Wait").count(), 1, "{fault:?}: {said:?}");
        same(&agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_calls_go_on_while_results_are_stored() {
    let model = ScriptedProvider::new([
        Reply::call("echo", json!({})).and_call("nap", json!({})).and_call("ends", json!({})),
        Reply::text("Done."),
    ]);
    let store = FaultyStore::default();
    let ended = Notes::default();
    let log = ended.clone();
    let ends = tool("ends", move |_, _| {
        let log = log.clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            log.add("ended");
            Ok(ToolOutput::from("ended"))
        })
    });
    let agent = agent(&model, &store).tool(ends).build().unwrap();
    store.hold_at(2);
    let mut run = agent.run("Go");
    until_held(&mut run, &store, 3).await;
    assert_eq!(store.appends()[2], ["result call_1"]);
    tokio::select! {
        _ = &mut run => panic!("the run ended"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    assert_eq!(ended.all(), ["ended"]);
    store.release();
    run.await.unwrap();
    assert_eq!(store.appends()[3], ["result call_3", "result call_2"], "both in one append");
    let results: Vec<_> = agent.history().turns()[2].tool_results().map(|result| result.status).collect();
    assert_eq!(results, [ToolStatus::Ok; 3]);
    same(&agent).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_until_it_can() {
    let folder = Folder::new("agents");
    let files = JsonlSessionStore::new(&*folder);
    let turn = SessionTurn::new("t", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("hi")]);
    files.append("s", 0, vec![SessionEntry::from(turn)]).await.unwrap();
    let good = std::fs::read_to_string(files.path("s")).unwrap();
    let model = ScriptedProvider::new([Reply::text("Fine.")]);
    let agent = agent(&model, &files).build().unwrap();
    for (bad, is_newer) in [(good.replace("\"v\":1", "\"v\":999"), true), (good.replace("hi", "ho"), false)] {
        assert_ne!(bad, good);
        std::fs::write(files.path("s"), &bad).unwrap();
        match session_error(agent.run("Go").await) {
            SessionError::Storage(StorageError::Newer { found: 999, .. }) => assert!(is_newer),
            SessionError::Storage(StorageError::Corrupt { .. }) => assert!(!is_newer),
            other => panic!("{other}"),
        }
        assert_eq!(std::fs::read_to_string(files.path("s")).unwrap(), bad, "and nothing was changed");
    }
    assert!(model.requests().is_empty());
    std::fs::write(files.path("s"), &good).unwrap();
    agent.run("Go").await.unwrap();
    assert_eq!(said(&agent), ["hi", "Go"]);
    same(&agent).await;
}

#[tokio::test]
async fn a_session_that_was_removed_begins_anew() {
    let (model, store) = (ScriptedProvider::new([]).allow_prefix_breaks(), FaultyStore::default());
    let agent = agent(&model, &store).build().unwrap();
    for prompt in ["One", "Two"] {
        model.push(Reply::text("Yes."));
        agent.run(prompt).await.unwrap();
        assert_eq!(said(&agent), [prompt]);
        same(&agent).await;
        store.delete("s").await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_comes_to_nothing_leaves_nothing() {
    let (model, store) = (ScriptedProvider::new([]), FaultyStore::default());
    let agent = agent(&model, &store).build().unwrap();
    assert!(matches!(agent.run("").await.unwrap_err().kind, RunErrorKind::NothingToDo));
    assert!(agent.session().await.unwrap().is_none() && store.appends().is_empty());
}

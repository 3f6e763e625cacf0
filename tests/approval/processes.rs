//! Answers that come in another process, and processes that die.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zidane::agent::AnswerError;
use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionError, SessionStore};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::ToolStatus;
use zidane::{RunErrorKind, StopCause};

use crate::folder::Folder;
use crate::harness::{Notes, line, tool};
use crate::{builder, deferred, deferring, kept, mixed, statuses};

const ROLE: &str = "ZIDANE_TEST_APPROVAL";

async fn open(kind: &str, folder: &Path) -> Arc<dyn SessionStore> {
    match kind {
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let database = zidane::sqlite::Database::open(folder.join("test.sqlite")).await.unwrap();
            Arc::new(zidane::session::SqliteSessionStore::new(database))
        }
        _ => Arc::new(JsonlSessionStore::new(folder.join("sessions"))),
    }
}

/// Does nothing, but for a child: it runs until calls wait, or answers one of them, and is gone.
#[tokio::test]
async fn plays_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut parts = role.splitn(3, ':');
    let (part, kind, folder) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let store = open(kind, Path::new(folder)).await;
    let notes = Notes::default();
    let model = ScriptedProvider::new([mixed()]);
    let agent = kept(&model, &notes, &store);
    let stop = match part {
        "asks" => agent.run("Go").run_id("first").await.unwrap().stop,
        _ => {
            let session = fold_of(&*store).await;
            agent.resume([session.deferred[0].approve()]).await.unwrap().stop
        }
    };
    assert!(!deferred(stop).is_empty());
    for note in notes.all() {
        println!("\nran {note}");
    }
    // Not in order: the process is gone all of a sudden.
    std::process::exit(0);
}

async fn fold_of(store: &dyn SessionStore) -> zidane::session::Session {
    zidane::session::fold("s", store.load("s").await.unwrap().unwrap())
}

fn in_a_child(part: &str, kind: &str, folder: &Path) -> Vec<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::plays_a_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{part}:{kind}:{}", folder.display()))
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let out = String::from_utf8_lossy(&child.stdout).into_owned();
    out.lines().filter_map(|line| line.strip_prefix("ran ")).map(str::to_owned).collect()
}

async fn across_processes(kind: &str) {
    let folder = Folder::new("approval");
    assert_eq!(in_a_child("asks", kind, &folder), ["side {\"n\":2} first:call_2"]);
    assert_eq!(in_a_child("answers", kind, &folder), ["ask {\"n\":1} first:call_1"]);
    let store = open(kind, &folder).await;
    let (model, notes) = (ScriptedProvider::new([Reply::text("Done.")]), Notes::default());
    let agent = kept(&model, &notes, &store);
    match agent.run("And?").await.unwrap_err().kind {
        RunErrorKind::Pending { run_id, calls } => {
            assert_eq!((run_id.as_str(), &calls[..]), ("first", &["call_3".to_owned()][..]));
        }
        other => panic!("{other}"),
    }
    let waiting = agent.session().await.unwrap().unwrap().deferred;
    let outcome = agent.resume([waiting[0].approve()]).await.unwrap();
    assert_eq!(outcome.text, "Done.");
    assert_eq!(notes.all(), ["ask {\"n\":3} first:call_3", "late {\"n\":4} first:call_4"]);
    assert_eq!(statuses(&outcome.turns[0]), [ToolStatus::Ok; 4]);
    let session = agent.session().await.unwrap().unwrap();
    let stops: Vec<_> = session.runs.iter().map(|run| run.end.as_ref().unwrap().stop.as_str()).collect();
    assert_eq!(stops, ["deferred", "deferred", "stop"]);
}

#[tokio::test]
async fn calls_wait_in_files_for_another_process() {
    across_processes("jsonl").await;
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn calls_wait_in_a_database_for_another_process() {
    across_processes("sqlite").await;
}

#[tokio::test]
async fn a_stored_call_that_was_changed_is_not_run() {
    let store = Arc::new(MemorySessionStore::new());
    let (model, notes) = (ScriptedProvider::new([Reply::call("ask", json!({"path": "/tmp"}))]), Notes::default());
    let calls = deferred(kept(&model, &notes, &store).run("Go").await.unwrap().stop);
    let entries = store.load("s").await.unwrap().unwrap().entries;
    // Somebody works on the store: on the turn, on what the run left, or on both.
    for kinds in [&["turn"][..], &["run"], &["turn", "run"]] {
        let changed = entries.iter().map(|entry| {
            let text = serde_json::to_string(entry).unwrap();
            let here = kinds.iter().any(|kind| text.starts_with(&format!("{{\"kind\":\"{kind}\"")));
            serde_json::from_str(&if here { text.replace("/tmp", "/etc") } else { text }).unwrap()
        });
        let changed: Vec<_> = changed.collect();
        assert_ne!(changed, entries);
        let other = Arc::new(MemorySessionStore::new());
        other.append("s", 0, changed).await.unwrap();
        match kept(&model, &notes, &other).resume([calls[0].approve()]).await.unwrap_err().kind {
            RunErrorKind::Answer { error, .. } => assert_eq!(error, AnswerError::Changed),
            other => panic!("{other}"),
        }
    }
    assert!(notes.all().is_empty());
}

#[tokio::test]
async fn of_two_that_answer_at_once_one_runs_the_call() {
    let store = Arc::new(MemorySessionStore::new());
    let notes = Notes::default();
    let asking = ScriptedProvider::new([Reply::call("ask", json!({}))]);
    let calls = deferred(kept(&asking, &notes, &store).run("Go").await.unwrap().stop);
    let model = ScriptedProvider::new([Reply::text("Done.")]);
    let (one, two) = (kept(&model, &notes, &store), kept(&model, &notes, &store));
    let (one, two) = tokio::join!(one.resume([calls[0].approve()]), two.resume([calls[0].approve()]));
    assert_eq!(notes.all().len(), 1);
    assert!(one.is_ok() != two.is_ok());
    match one.err().or(two.err()).unwrap().kind {
        RunErrorKind::Session(SessionError::Conflict { .. })
        | RunErrorKind::Answer { error: AnswerError::Answered, .. } => {}
        other => panic!("{other}"),
    }
}

/// A run that is dropped while an approved call runs, as by a crash.
#[tokio::test]
async fn a_call_that_was_taken_on_is_never_run_again() {
    for keep in [false, true] {
        let store = Arc::new(MemorySessionStore::new());
        let notes = Notes::default();
        let model = ScriptedProvider::new([
            Reply::call("hang", json!({})).and_call("hang", json!({})).and_call("ask", json!({})),
            Reply::text("Done."),
        ]);
        let log = notes.clone();
        let hang = tool("hang", move |_, _| {
            log.add("hangs");
            Box::pin(std::future::pending())
        });
        let mut building = builder(&model, &notes).tool(hang);
        if keep {
            building = building.session_store(Arc::clone(&store));
        }
        let agent = building.clone().build().unwrap();
        agent.hooks().on::<zidane::hooks::ToolGate>(|cx| cx.defer("always"));
        // Both hang, in segments of their own: the second has not been asked about.
        let calls = deferred(agent.run("Go").await.unwrap().stop);
        assert_eq!(calls.len(), 1);
        let dropped = tokio::time::timeout(Duration::from_millis(50), agent.resume([calls[0].approve()])).await;
        assert!(dropped.is_err());
        let again = if keep { deferring(building.build().unwrap()) } else { agent };
        match again.resume([calls[0].approve()]).await.unwrap_err().kind {
            RunErrorKind::Answer { error, .. } => assert_eq!(error, AnswerError::Answered),
            other => panic!("{other}"),
        }
        let outcome = again.run("What now?").await.unwrap();
        assert_eq!(outcome.stop, StopCause::Stop);
        assert_eq!(notes.all(), ["hangs"]);
        let settled = again.history().iter().map(line).find(|line| line.starts_with("repair")).unwrap();
        assert_eq!(settled.matches("interrupted!").count(), 3, "{settled}");
    }
}

/// As above, while another call still waits for its answer.
#[tokio::test]
async fn a_crash_loses_no_call_that_nobody_has_answered() {
    let store = Arc::new(MemorySessionStore::new());
    let notes = Notes::default();
    let model = ScriptedProvider::new([
        Reply::call("hang", json!({})).and_call("ask", json!({"n": 1})).and_call("late", json!({"n": 2})),
        Reply::text("Done."),
    ]);
    let mut hang = tool("hang", |_, _| Box::pin(std::future::pending()));
    hang.spec.concurrency = Some(zidane::tool::Concurrency::Shared);
    let building = builder(&model, &notes).tool(hang).session_store(Arc::clone(&store));
    let agent = building.clone().build().unwrap();
    agent.hooks().on::<zidane::hooks::ToolGate>(|cx| cx.defer("always"));
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    assert_eq!(calls.len(), 2);
    assert!(tokio::time::timeout(Duration::from_millis(50), agent.resume([calls[0].approve()])).await.is_err());
    let again = building.build().unwrap();
    assert!(matches!(again.run("And?").await.unwrap_err().kind, RunErrorKind::Pending { .. }));
    assert_eq!(again.session().await.unwrap().unwrap().deferred, calls[1..]);
    let outcome = again.resume([calls[1].approve()]).await.unwrap();
    assert_eq!(statuses(&outcome.turns[0]), [ToolStatus::Interrupted, ToolStatus::Ok, ToolStatus::Ok]);
    assert_eq!(notes.all().len(), 2);
}

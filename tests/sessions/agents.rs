//! Agents whose conversation is kept in a store.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zidane::agent::ToolExecution;
use zidane::hooks::SessionSaved;
use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionStore};
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool_state::{JsonToolStateStore, MemoryToolStateStore, ToolStateStore};
use zidane::types::ToolStatus;
use zidane::{Agent, AgentBuilder, StopCause};

use crate::faulty::{FaultyStore, settled};
use crate::folder::Folder;
use crate::harness::{Notes, echo, tool};

pub(crate) fn agent(model: &ScriptedProvider, store: &(impl SessionStore + Clone + 'static)) -> AgentBuilder {
    Agent::builder()
        .provider(model.clone())
        .model("test")
        .session_id("s")
        .session_store(store.clone())
        .tool_execution(ToolExecution::Parallel)
        .tool(echo())
        .tool(tool("nap", |_, _| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(2)).await;
                Ok("rested".into())
            })
        }))
}

/// The stored conversation is the agent's.
pub(crate) async fn same(agent: &Agent) {
    let session = agent.session().await.unwrap().unwrap();
    let stored = settled(session.turns.iter().map(|turn| &***turn));
    assert_eq!(stored, settled(agent.history().iter()));
    assert!(session.notes.is_empty() && session.open.is_empty());
    validate_transcript(&stored).unwrap();
}

async fn stored_and_taken_up(store: Arc<dyn SessionStore>) {
    let replies = [
        Reply::text("Looking.")
            .and_call("nap", json!({}))
            .and_call("echo", json!({"n": 1}))
            .and_call("nope", json!({})),
        Reply::text("Done."),
        Reply::text("Again."),
        Reply::call("echo", json!({"n": 2})),
        Reply::text("Bye."),
    ];
    // One that goes on as it is, and one that is made anew for each prompt: their requests must not differ.
    let (straight, anew) = (ScriptedProvider::new(replies.clone()), ScriptedProvider::new(replies));
    let memory = Arc::new(MemorySessionStore::new());
    let one = agent(&straight, &memory).build().unwrap();
    for prompt in ["Look", "And?", "Go on"] {
        one.run(prompt).await.unwrap();
        same(&one).await;
        let fresh = agent(&anew, &store).build().unwrap();
        assert!(fresh.history().is_empty());
        let outcome = fresh.run(prompt).await.unwrap();
        assert_eq!(outcome.stop, StopCause::Stop);
        assert_eq!(
            outcome.turns.len(),
            match prompt {
                "Look" => 4,
                "And?" => 2,
                _ => 4,
            }
        );
        same(&fresh).await;
    }
    let sent = |model: &ScriptedProvider| -> Vec<_> {
        let without_ids = |turn: &zidane::types::SessionTurn| (turn.role, turn.origin, turn.content.clone());
        model.requests().iter().map(|request| request.turns.iter().map(without_ids).collect::<Vec<_>>()).collect()
    };
    assert_eq!(sent(&straight), sent(&anew));
    let session = agent(&anew, &store).build().unwrap().session().await.unwrap().unwrap();
    let ends: Vec<_> = session.runs.iter().map(|run| run.end.as_ref().unwrap()).collect();
    assert_eq!(ends.len(), 3);
    assert!(ends.iter().all(|end| end.stop == "stop" && end.error.is_none()));
    assert_eq!(ends[0].stats.as_ref().unwrap().turns, 2);
    let status = |turn: usize| session.turns[turn].tool_results().map(|result| result.status).collect::<Vec<_>>();
    assert_eq!(status(2), [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::UnknownTool]);
}

#[tokio::test]
async fn a_conversation_is_stored_and_taken_up_in_memory() {
    stored_and_taken_up(Arc::new(MemorySessionStore::new())).await;
}

#[tokio::test]
async fn a_conversation_is_stored_and_taken_up_in_files() {
    let folder = Folder::new("agents");
    stored_and_taken_up(Arc::new(JsonlSessionStore::new(&*folder))).await;
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn a_conversation_is_stored_and_taken_up_in_sqlite() {
    let folder = Folder::new("agents");
    stored_and_taken_up(Arc::new(super::sqlite::open(&folder.join("test.sqlite")).await)).await;
}

#[tokio::test(start_paused = true)]
async fn each_thing_is_appended_when_it_is_due() {
    let model = ScriptedProvider::new([
        Reply::call("nap", json!({})).and_call("echo", json!({"n": 1})).and_call("echo", json!({"n": 2})),
        Reply::text("Done."),
    ]);
    let store = FaultyStore::default();
    let agent = agent(&model, &store).tool_output_budget(1).build().unwrap();
    let saved = Notes::default();
    let log = saved.clone();
    agent.hooks().on::<SessionSaved>(move |cx| log.add(format!("{} to {}", cx.entries(), cx.version())));
    agent.run("Go").await.unwrap();
    let appends = store.appends();
    assert_eq!(appends[..2], [vec!["start", "prompt"], vec!["model"]]);
    // In the order in which they are final, and those that are final together in one append.
    assert_eq!(appends[2..4], [vec!["result call_2", "result call_3"], vec!["result call_1"]]);
    assert_eq!(appends[appends.len() - 3..], [vec!["budget"], vec!["model"], vec!["end"]]);
    assert_eq!(saved.all().first().unwrap(), "2 to 2");
    assert_eq!(saved.all().last().unwrap(), "1 to 9");
    assert_eq!(saved.all().len(), appends.len());
    assert_eq!(store.loads(), 1, "read once");
    model.push(Reply::text("Yes."));
    agent.run("And?").await.unwrap();
    assert_eq!(store.loads(), 1, "and not again");
    same(&agent).await;
}

/// Ids that no file name can be, and values that are large.
async fn odd_ids_and_large_values(sessions: Arc<dyn SessionStore>, state: Arc<dyn ToolStateStore>) {
    let long = "l".repeat(5_000);
    for id in
        ["", ".", "../../etc/passwd", "a/b\\c:d*e?", "nul\0byte", "new\nline", "CON", "Chat", "chat", "Zoë 🦀", &long]
    {
        let model = ScriptedProvider::new([Reply::call("fill", json!({})), Reply::text("Done.")]);
        let size = if id == "chat" { 10_000_000 } else { 10 };
        let fill = tool("fill", move |_, cx| {
            Box::pin(async move {
                cx.state().set("odd \0 key/..", "v".repeat(size))?;
                Ok("r".repeat(size).into())
            })
        });
        let builder = agent(&model, &sessions).session_id(id).tool_state(Arc::clone(&state)).tool(fill);
        let first = builder.build().unwrap();
        first.run("p".repeat(size)).await.unwrap_or_else(|error| panic!("{id:?}: {error}"));
        same(&first).await;
        model.push(Reply::text("Again."));
        let second = builder.build().unwrap();
        second.run("Again").await.unwrap();
        same(&second).await;
        assert_eq!(second.history().len(), 6, "{id:?}");
        let kept = second.tool_state().get("odd \0 key/..").unwrap();
        assert_eq!(kept.as_str().map(str::len), Some(size));
    }
}

#[tokio::test]
async fn odd_ids_and_large_values_are_kept_in_memory() {
    odd_ids_and_large_values(Arc::new(MemorySessionStore::new()), Arc::new(MemoryToolStateStore::new())).await;
}

#[tokio::test]
async fn odd_ids_and_large_values_are_kept_in_files() {
    let folder = Folder::new("odd");
    let sessions = Arc::new(JsonlSessionStore::new(folder.join("sessions")));
    odd_ids_and_large_values(sessions, Arc::new(JsonToolStateStore::new(folder.join("state")))).await;
    let names = std::fs::read_dir(&*folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["sessions", "state"], "nothing is outside");
}

#[tokio::test]
#[cfg(feature = "sqlite")]
async fn odd_ids_and_large_values_are_kept_in_sqlite() {
    let folder = Folder::new("odd");
    let database = zidane::sqlite::Database::open(folder.join("test.sqlite")).await.unwrap();
    let sessions = Arc::new(zidane::session::SqliteSessionStore::new(database.clone()));
    odd_ids_and_large_values(sessions, Arc::new(zidane::tool_state::SqliteToolStateStore::new(database))).await;
}

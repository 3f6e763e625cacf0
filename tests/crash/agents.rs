//! A process whose agent talks, calls tools side by side, writes tool state and takes pictures, and is killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zidane::agent::ToolExecution;
use zidane::hooks::SessionSaved;
use zidane::session::{DirectoryBlobStore, JsonlSessionStore, SessionStore, StoredSession, fold};
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool::{Concurrency, NoInput, Tool, ToolContext, ToolError, ToolOutput, ToolSpec, tool_fn};
use zidane::tool_state::{JsonToolStateStore, ToolStateStore};
use zidane::types::{Media, ToolResultContent, ToolStatus, tool_result_to_text};
use zidane::{Agent, AgentBuilder, StopCause};

use crate::folder::Folder;
use crate::{Dice, killed, kills, run};

/// Counts in the tool state, alone.
struct Count;

#[zidane::async_trait]
impl Tool for Count {
    fn spec(&self) -> ToolSpec {
        let mut spec = ToolSpec::new("count", "Counts");
        spec.concurrency = Some(Concurrency::Exclusive);
        spec
    }

    async fn call(&self, _: serde_json::Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        let next = cx.state().get("n").and_then(|n| n.as_u64()).unwrap_or_default() + 1;
        cx.state().set("n", next)?;
        Ok(format!("counted {next}").into())
    }
}

struct Stores {
    sessions: Arc<dyn SessionStore>,
    state: Arc<dyn ToolStateStore>,
}

async fn stores(role: &str, folder: &Path) -> Stores {
    match role {
        "agent jsonl" => Stores {
            sessions: Arc::new(JsonlSessionStore::new(folder.join("sessions"))),
            state: Arc::new(JsonToolStateStore::new(folder.join("state"))),
        },
        #[cfg(feature = "sqlite")]
        "agent sqlite" => {
            let database = zidane::sqlite::Database::open(folder.join("test.sqlite")).await.unwrap();
            Stores {
                sessions: Arc::new(zidane::session::SqliteSessionStore::new(database.clone())),
                state: Arc::new(zidane::tool_state::SqliteToolStateStore::new(database)),
            }
        }
        other => panic!("no such role: {other}"),
    }
}

fn agent(model: &ScriptedProvider, stores: &Stores, folder: &Path) -> AgentBuilder {
    let look = tool_fn("look", "Looks", |_: NoInput, _cx| async {
        tokio::time::sleep(Duration::from_micros(300)).await;
        Ok("seen ".repeat(400))
    });
    let shoot = tool_fn("shoot", "Takes a picture", |_: NoInput, _cx| async {
        let image = Media::bytes("image/png", vec![7; 100_000]);
        Ok(vec![ToolResultContent::text("here"), ToolResultContent::Image(image)])
    });
    Agent::builder()
        .provider(model.clone())
        .model("test")
        .session_id("s")
        .session_store(Arc::clone(&stores.sessions))
        .blob_store(DirectoryBlobStore::new(folder.join("blobs")))
        .tool_state(Arc::clone(&stores.state))
        .tool_execution(ToolExecution::Parallel)
        .tool(look)
        .tool(shoot)
        .tool(Count)
}

/// Talks without end.
pub(crate) async fn talk(role: &str, folder: &Path) {
    let model = ScriptedProvider::new([]);
    let agent = agent(&model, &stores(role, folder).await, folder).build().unwrap();
    agent.hooks().on::<SessionSaved>(|cx| println!("stored {}", cx.version()));
    let mut dice = Dice(u64::from(std::process::id()));
    loop {
        for _ in 0..=dice.roll(3) {
            let tools = ["look", "look", "shoot", "count", "nothing"];
            let call = |reply: Reply, dice: &mut Dice| {
                reply.and_call(tools[usize::try_from(dice.roll(5)).unwrap()], json!({}))
            };
            model.push((0..=dice.roll(4)).fold(Reply::text("Calling."), |reply, _| call(reply, &mut dice)));
        }
        model.push(Reply::text("text ".repeat(usize::try_from(dice.roll(2_000)).unwrap() + 1)));
        // Prompts have their number, so that a lost one would be noticed.
        agent.run("Go on").await.unwrap();
    }
}

/// The last number that was counted, by the results in a session.
fn counted(stored: &StoredSession) -> u64 {
    let session = fold("s", stored.clone());
    let turns =
        session.turns.iter().flat_map(|turn| turn.tool_results()).chain(session.open.iter().map(|open| &**open));
    let texts = turns.filter(|result| result.name == "count" && result.status == ToolStatus::Ok);
    let numbers = texts.filter_map(|result| {
        tool_result_to_text(&result.output).strip_prefix("counted ").map(|number| number.parse().unwrap())
    });
    numbers.max().unwrap_or_default()
}

fn agents_survive(role: &str) {
    let folder = Folder::new("crash");
    let mut dice = Dice(role.len() as u64);
    let mut before = StoredSession::default();
    let (mut told, mut open, mut more, mut midway) = (0, 0, 0, 0);
    for kill in 0..kills() {
        let reports = killed(role, &folder, &mut dice);
        if let Some(last) = reports.last() {
            told = last.parse().unwrap();
        }
        run(async {
            let stores = stores(role, &folder).await;
            let found = stores.sessions.load("s").await.unwrap().unwrap_or_default();
            assert!(found.version >= told, "kill {kill}: {told} were told to be stored, {} are", found.version);
            more += u64::from(found.version > told);
            assert_eq!(found.entries[..before.entries.len()], before.entries, "kill {kill}: the past is as it was");
            let session = fold("s", found.clone());
            assert!(session.notes.is_empty(), "kill {kill}: {:?}", session.notes);
            open += u64::from(session.turns.last().is_some_and(|turn| !turn.pending.is_empty()));
            midway += u64::from(session.runs.last().is_some_and(|run| run.end.is_none()));
            // State is committed once its result is stored: it may be one behind, and never ahead.
            let n = stores.state.load("s").await.unwrap().get("n").and_then(|n| n.as_u64()).unwrap_or_default();
            let counted = counted(&found);
            assert!(n == counted || n + 1 == counted, "kill {kill}: {n} in the state, {counted} in the session");
            // Now and then somebody else goes on.
            if dice.roll(2) == 0 {
                let model = ScriptedProvider::new([Reply::call("look", json!({})), Reply::text("Fine.")]);
                let agent = agent(&model, &stores, &folder).build().unwrap();
                let outcome = agent.run("Still there?").await.unwrap_or_else(|error| panic!("kill {kill}: {error}"));
                assert_eq!((outcome.stop, outcome.text.as_str()), (StopCause::Stop, "Fine."));
                validate_transcript(agent.history().iter()).unwrap();
                let text = serde_json::to_string(&agent.history().iter().collect::<Vec<_>>()).unwrap();
                assert!(!text.contains("\"ref\""), "every picture is there");
                let session = agent.session().await.unwrap().unwrap();
                let kept: Vec<_> = session.turns.iter().map(|turn| (&turn.id, &turn.content[0])).collect();
                assert_eq!(kept.len(), agent.history().len());
                assert_eq!(kept[0].0, &agent.history().turns()[0].id);
            }
            before = stores.sessions.load("s").await.unwrap().unwrap_or_default();
            told = before.version;
        });
    }
    let session = fold("s", before.clone());
    let repairs = session.repairs.len();
    eprintln!(
        "{role}: {} kills, {} entries, {open} among open calls ({repairs} repairs), {midway} in mid-run, {more} after an unheard answer",
        kills(),
        before.version
    );
    assert!(before.version > kills() && open > 0 && repairs > 0 && midway > kills() / 4, "the kills fell everywhere");
}

#[test]
fn agents_with_session_files_survive_kills() {
    agents_survive("agent jsonl");
}

#[test]
#[cfg(feature = "sqlite")]
fn agents_with_a_database_survive_kills() {
    agents_survive("agent sqlite");
}

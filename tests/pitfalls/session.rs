//! Form `session`: what is done to a stored session, by hand or by agents, in each of the crate's stores.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use zidane::Agent;
use zidane::provider::{History, RequestHead};
use zidane::session::{
    JsonlSessionStore, MemorySessionStore, Session, SessionEntry, SessionError, SessionStore, StoredSession, fold,
};
use zidane::storage::StorageError;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use super::fields::Fields;
use super::findings::Findings;
use super::wire;
use super::wires::{BUILT, MODEL};
use crate::folder::Folder;

const ID: &str = "s";

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ops: Vec<_> = case.list("ops").iter().filter_map(Value::as_str).collect();
    let file = case.text("file");
    let expect = case.take("expect").unwrap_or(&Value::Null);
    runtime.block_on(async {
        if let Some(file) = file {
            findings.at("jsonl");
            return on_a_file(file, &ops, Fields::new("expect", expect), findings).await;
        }
        let folder = Folder::new("pitfalls");
        let stores: [(&str, Arc<dyn SessionStore>); _] = [
            ("memory", Arc::new(MemorySessionStore::new())),
            ("jsonl", Arc::new(JsonlSessionStore::new(folder.join("files")))),
            #[cfg(feature = "sqlite")]
            ("sqlite", {
                let database = zidane::sqlite::Database::open(folder.join("db")).await.unwrap();
                Arc::new(zidane::session::SqliteSessionStore::new(database))
            }),
        ];
        for (name, store) in stores {
            findings.at(name);
            by_writers(&store, &ops, Fields::new("expect", expect), findings).await;
        }
    });
    findings.at("");
}

/// An agent that works on the session, and what it was sent.
struct Writer {
    agent: Agent,
    model: ScriptedProvider,
}

impl Writer {
    fn new(store: &Arc<dyn SessionStore>) -> Self {
        let model = ScriptedProvider::repeating(Reply::text("Yes."));
        let builder = Agent::builder().provider(model.clone()).model(MODEL);
        let agent = builder.session_store(Arc::clone(store)).session_id(ID).build().unwrap();
        Self { agent, model }
    }

    async fn run(&self, prompt: &str, findings: &mut Findings) {
        if let Err(error) = self.agent.run(prompt).await {
            findings.wrong(format!("a run on `{prompt}` failed: {error}"));
        }
    }

    /// What the last request said.
    fn request(&self) -> Vec<String> {
        let requests = self.model.requests();
        requests.last().map(|request| request.turns.iter().map(SessionTurn::text).collect()).unwrap_or_default()
    }
}

fn turn(id: &str, text: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

fn said(result: &Result<u64, SessionError>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(SessionError::Conflict { .. }) => "conflict error",
        Err(_) => "another error",
    }
}

async fn by_writers(store: &Arc<dyn SessionStore>, ops: &[&str], mut expect: Fields<'_>, findings: &mut Findings) {
    let mut writers: BTreeMap<&str, Writer> = BTreeMap::new();
    let mut appended: BTreeMap<&str, Result<u64, SessionError>> = BTreeMap::new();
    let by_hand = ops.iter().any(|op| op.contains(".append"));
    if by_hand {
        store.append(ID, 0, vec![turn("1", "Hi"), turn("2", "there")]).await.unwrap();
    }
    for op in ops {
        let (who, what) = op.split_once('.').unwrap_or(("", op));
        match what.split_once(' ').unwrap_or((what, "")) {
            // Whoever has run once has all of it in memory.
            ("load", "") if !by_hand => {
                let writer = writers.entry(who).or_insert_with(|| Writer::new(store));
                writer.run(&format!("{who} is here"), findings).await;
            }
            ("load", "") => drop(store.load(ID).await.unwrap()),
            ("append", with) => {
                let expected = with.strip_prefix("expect=").and_then(|version| version.parse().ok()).unwrap_or(0);
                let done = store.append(ID, expected, vec![turn(&format!("by {who}"), who)]).await;
                appended.insert(who, done);
            }
            ("run", with) => {
                let prompt = with.strip_prefix("prompt=").unwrap_or(with);
                writers.entry(who).or_insert_with(|| Writer::new(store)).run(prompt, findings).await;
            }
            _ => findings.need(format!("an adapter for op `{op}`")),
        }
    }
    for (who, done) in &appended {
        if let Some(expected) = expect.text(&format!("{who}.append")) {
            findings.equal(format!("{who}.append"), expected, said(done));
        }
    }
    let stored = store.load(ID).await.unwrap().unwrap_or_default();
    if let Some(from) = expect.take("store_turns_from") {
        let by: Vec<_> = stored.entries.iter().filter_map(|entry| entry.id().strip_prefix("by ")).collect();
        findings.equal("the store has turns from", from, &json!(by));
    }
    for who in ["A", "B"] {
        if let Some(texts) = expect.take(&format!("{who}_request_contains")) {
            let request = writers.get(who).map(Writer::request).unwrap_or_default();
            for text in texts.as_array().into_iter().flatten().filter_map(Value::as_str) {
                let contains = request.iter().any(|turn| turn == text);
                findings.ensure(contains, || format!("{who}'s request does not contain {text:?}: {request:?}"));
            }
        }
        if let Some(expected) = expect.text(&format!("{who}_run")) {
            let (other, writer) = (Writer::new(store), Writer::new(store));
            writer.run("from the one", findings).await;
            other.run("from the other", findings).await;
            writer.run("from the one again", findings).await;
            let rehydrated = writer.request().iter().any(|text| text == "from the other");
            let done = if rehydrated { "stops or rehydrates before the next model call" } else { "goes on" };
            findings.equal(format!("{who}_run"), expected, done);
        }
    }
    expect.finish(findings);
}

/// A turn of a case as an entry of ours; `None` for a line that is none.
fn entry(line: &str) -> Option<SessionEntry> {
    let value: Value = serde_json::from_str(line).ok()?;
    let role = if value["role"] == "assistant" { Role::Assistant } else { Role::User };
    let origin = if role == Role::Assistant { TurnOrigin::Model } else { TurnOrigin::Prompt };
    let content = serde_json::from_value(value["blocks"].clone()).ok()?;
    Some(SessionTurn::new(value["id"].as_str()?, role, origin, content).into())
}

/// The lines of a case as a file of ours, with a broken line where the case has one.
async fn file_of(store: &JsonlSessionStore, lines: &str) {
    let lines: Vec<_> = lines.lines().collect();
    let whole = lines.iter().enumerate().map(|(n, line)| entry(line).unwrap_or_else(|| turn(&format!("line {n}"), "")));
    store.append(ID, 0, whole.collect()).await.unwrap();
    let path = store.path(ID);
    let written = std::fs::read_to_string(&path).unwrap();
    let broken = written.lines().enumerate().map(|(n, text)| {
        // The first line is the file's own.
        let line = n.checked_sub(1).and_then(|n| lines.get(n));
        line.filter(|line| entry(line).is_none()).copied().unwrap_or(text)
    });
    std::fs::write(path, broken.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

async fn on_a_file(lines: &str, ops: &[&str], mut expect: Fields<'_>, findings: &mut Findings) {
    let folder = Folder::new("pitfalls");
    let store = JsonlSessionStore::new(&*folder);
    file_of(&store, lines).await;
    let before = std::fs::read(store.path(ID)).unwrap();
    let mut session: Option<Session> = None;
    for op in ops {
        match op.split_once(' ').unwrap_or((op, "")) {
            ("list", "") => {
                let salvaged = store.salvage(ID).await.unwrap().unwrap();
                let ids: Vec<_> = salvaged.entries.iter().map(SessionEntry::id).collect();
                if let Some(list) = expect.take("list") {
                    findings.equal("list", list, &json!(ids));
                }
            }
            ("rewind", at) => {
                let outcome = match store.load(ID).await {
                    Err(SessionError::Storage(StorageError::Corrupt { .. })) => "error",
                    Err(_) => "another error",
                    Ok(stored) => match fold(ID, stored.unwrap_or_default()).fork(at) {
                        Ok(_) => "done",
                        Err(_) => "no such turn",
                    },
                };
                findings.equal("rewind", expect.text("rewind").unwrap_or_default(), outcome);
                // Nor does an agent go on from it.
                let writer = Writer::new(&(Arc::new(store.clone()) as Arc<dyn SessionStore>));
                findings.ensure(writer.agent.run("Go on").await.is_err(), || "an agent goes on".to_owned());
                findings.ensure(writer.model.requests().is_empty(), || "something was sent".to_owned());
            }
            ("load", "") => match store.load(ID).await {
                Ok(stored) => session = stored.map(|stored| fold(ID, stored)),
                Err(error) => findings.wrong(format!("load: {error}")),
            },
            ("save", "") => {
                let turns = session.take().map(|session| session.turns).unwrap_or_default();
                store.delete(ID).await.unwrap();
                store.append(ID, 0, turns.into_iter().map(SessionEntry::Turn).collect()).await.unwrap();
            }
            _ => findings.need(format!("an adapter for op `{op}`")),
        }
    }
    if let Some(unchanged) = expect.take("file_unchanged") {
        findings.equal("file_unchanged", unchanged, &json!(std::fs::read(store.path(ID)).unwrap() == before));
    }
    let content = session.iter().flat_map(|session| &session.turns).flat_map(|turn| turn.content.clone());
    let blocks: Vec<Value> = content.map(|block| serde_json::to_value(block).unwrap()).collect();
    if let Some(block) = expect.take("unknown_block_preserved") {
        findings.ensure(blocks.contains(block), || format!("{block} is not in {blocks:?}"));
    }
    if let Some(field) = expect.text("unknown_field_preserved") {
        let there = blocks.iter().any(|block| block["type"] == "text" && block[field] == true);
        findings.ensure(there, || format!("`{field}` is not in {blocks:?}"));
    }
    if let Some(expected) = expect.text("wire_build") {
        let turns = session.iter().flat_map(|session| session.turns.iter().map(|turn| (***turn).clone()));
        let asked = SessionTurn::new("q", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Go on")]);
        let history: History = turns.chain([asked]).collect();
        for protocol in BUILT {
            let mut head = RequestHead::default();
            head.model = MODEL.to_owned();
            let body = wire::send(protocol, head, history.clone()).await.map(|body| body.to_string());
            let body = body.unwrap_or_else(|error| error.to_string());
            let skips = body.contains("\"a\"") && !body.contains("hologram");
            let done = if skips { "skips the unknown block" } else { "sends it" };
            findings.equal(protocol.name(), expected, done);
        }
    }
    if let Some(expected) = expect.text("newer_major") {
        let text = std::fs::read_to_string(store.path(ID)).unwrap().replace("{\"v\":1,", "{\"v\":999,");
        std::fs::write(store.path(ID), text).unwrap();
        let outcome = match store.load(ID).await {
            Err(SessionError::Storage(StorageError::Newer { found: 999, .. })) => "error unsupported version",
            other => &format!("{:?}", other.map(|stored| stored.map(|StoredSession { version, .. }| version))),
        };
        findings.equal("newer_major", expected, outcome);
    }
    expect.finish(findings);
}

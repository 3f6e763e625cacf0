//! What every session store must do. The checks panic where it does not: they are tests.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check is a failed test")]

use std::sync::Arc;

use serde_json::{Value, json};

use crate::provider::HistoryTurn;
use crate::session::{
    MetadataEntry, ResultEntry, RunEnd, RunEntry, SessionEntry, SessionError, SessionStore, SummaryEntry, fold,
};
use crate::types::{
    Extra, Role, SessionContentBlock, SessionTurn, Timestamp, ToolCallBlock, ToolResultBlock, ToolStatus, TurnOrigin,
    validate_transcript,
};

fn turn(id: &str, text: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

fn calls(id: &str, calls: &[&str]) -> SessionEntry {
    let call = |id: &&str| ToolCallBlock { id: (*id).to_owned(), name: "look".to_owned(), ..ToolCallBlock::default() };
    let content = calls.iter().map(call).map(SessionContentBlock::ToolCall).collect();
    SessionTurn::new(id, Role::Assistant, TurnOrigin::Model, content).into()
}

fn result(turn_id: &str, call_id: &str) -> SessionEntry {
    let result = ToolResultBlock {
        call_id: call_id.to_owned(),
        name: "look".to_owned(),
        input: Some(Value::Null),
        output: "seen".into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: Some(json!({"n": 1.5, "deep": [[["x"]]]})),
        extra: Extra::default(),
    };
    SessionEntry::Result(ResultEntry::new(turn_id, "run", Timestamp(7), result))
}

fn parsed(value: Value) -> SessionEntry {
    serde_json::from_value(value).unwrap()
}

/// Entries of all kinds.
fn sample() -> Vec<SessionEntry> {
    let run = RunEntry::start("run", Timestamp(1));
    let summary = SessionTurn::new("s", Role::User, TurnOrigin::Summary, vec![SessionContentBlock::text("short")]);
    let odd = SessionContentBlock::Unknown(json!({"type": "hologram", "x": [1, null, "\u{0}\n\u{2028}"]}));
    vec![
        SessionEntry::Run(Box::new(run.clone())),
        turn("t1", "hello"),
        calls("t2", &["c1", "c2"]),
        result("t2", "c2"),
        result("t2", "c1"),
        SessionTurn::new("t3", Role::Assistant, TurnOrigin::Model, vec![odd, SessionContentBlock::text("done")]).into(),
        SessionEntry::Run(Box::new(run.ended(RunEnd::new(Timestamp(9), "stop")))),
        SessionEntry::Summary(SummaryEntry::new("t2", Arc::new(HistoryTurn::new(summary)))),
        SessionEntry::Metadata(MetadataEntry {
            id: "m".to_owned(),
            values: [("title".to_owned(), json!("é\u{1F600}"))].into_iter().collect(),
            extra: Extra::default(),
        }),
        parsed(json!({"kind": "hologram", "id": "x", "new": {"deep": [1, 2.5, u64::MAX, -1, "\"\\"]}})),
        parsed(json!({
            "kind": "turn", "id": "t4", "runId": "run", "role": "user", "origin": "a-new-one", "createdAt": 3,
            "content": [], "newField": {"kept": true},
        })),
    ]
}

async fn loaded(store: &dyn SessionStore, id: &str) -> (u64, Vec<SessionEntry>) {
    let stored = store.load(id).await.unwrap().unwrap_or_default();
    assert_eq!(stored.version, stored.entries.len() as u64, "the version is the number of entries");
    assert_eq!(store.version(id).await.unwrap(), stored.version, "`version` says what `load` says");
    (stored.version, stored.entries)
}

fn same(one: &[SessionEntry], two: &[SessionEntry]) {
    assert_eq!(one.len(), two.len());
    for (one, two) in one.iter().zip(two) {
        assert!(one.same_content(two), "{one:?}\n{two:?}");
    }
}

fn conflict<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> (u64, u64) {
    match answer {
        Err(SessionError::Conflict { expected, found, .. }) => (expected, found),
        other => panic!("a conflict was expected, and there was {other:?}"),
    }
}

/// What is appended is loaded, in order and as it was.
pub async fn keeps_what_is_appended(store: &dyn SessionStore) {
    assert!(store.load("s").await.unwrap().is_none(), "the store is not empty");
    assert_eq!(store.version("s").await.unwrap(), 0);
    let entries = sample();
    assert_eq!(store.append("s", 0, entries[..4].to_vec()).await.unwrap(), 4);
    assert_eq!(store.append("s", 4, entries[4..].to_vec()).await.unwrap(), entries.len() as u64);
    let (version, found) = loaded(store, "s").await;
    assert_eq!(version, entries.len() as u64);
    same(&found, &entries);
    let session = fold("s", store.load("s").await.unwrap().unwrap());
    assert_eq!((session.turns.len(), session.notes.len(), session.unknown.len()), (5, 0, 1));
    validate_transcript(session.turns[..4].iter().map(|turn| &***turn)).unwrap();
}

/// What a newer version wrote goes through load and append unchanged.
pub async fn keeps_what_is_unknown(store: &dyn SessionStore) {
    let entries = sample();
    store.append("one", 0, entries).await.unwrap();
    let (version, found) = loaded(store, "one").await;
    store.append("two", 0, found.clone()).await.unwrap();
    let (_, again) = loaded(store, "two").await;
    same(&again, &found);
    let json = serde_json::to_value(&again[9]).unwrap();
    assert_eq!(json["new"]["deep"], json!([1, 2.5, u64::MAX, -1, "\"\\"]));
    assert_eq!(serde_json::to_value(&again[10]).unwrap()["newField"], json!({"kept": true}));
    assert_eq!(store.append("one", version, again).await.unwrap(), version);
}

/// Two who append to the same version: one is refused, and nothing of his is stored.
pub async fn refuses_a_second_writer(store: &dyn SessionStore) {
    store.append("s", 0, vec![turn("1", "one"), turn("2", "two")]).await.unwrap();
    store.append("s", 2, vec![turn("a", "from A")]).await.unwrap();
    assert_eq!(conflict(store.append("s", 2, vec![turn("b", "from B")]).await), (2, 3));
    assert_eq!(conflict(store.append("s", 0, vec![turn("b", "from B")]).await), (0, 3));
    assert_eq!(conflict(store.append("s", 4, vec![turn("b", "from B")]).await), (4, 3));
    assert_eq!(conflict(store.append("s", u64::MAX, vec![turn("b", "from B")]).await), (u64::MAX, 3));
    assert_eq!(conflict(store.append("none", 1, vec![turn("b", "from B")]).await), (1, 0));
    // A part that is there already does not excuse the rest.
    assert_eq!(conflict(store.append("s", 2, vec![turn("1", "one"), turn("b", "from B")]).await), (2, 3));
    let (_, found) = loaded(store, "s").await;
    same(&found, &[turn("1", "one"), turn("2", "two"), turn("a", "from A")]);
    assert!(store.load("none").await.unwrap().is_none(), "a refused append creates nothing");
    assert_eq!(store.append("s", 3, vec![turn("b", "from B")]).await.unwrap(), 4);
}

/// Appending again what is stored changes nothing; the same id with another content is refused.
pub async fn is_idempotent_by_id(store: &dyn SessionStore) {
    let entries = sample();
    let whole = entries.len() as u64;
    store.append("s", 0, entries.clone()).await.unwrap();
    assert_eq!(store.append("s", 0, entries.clone()).await.unwrap(), whole, "the answer to the first was lost");
    assert_eq!(store.append("s", whole, entries[2..5].to_vec()).await.unwrap(), whole);
    assert_eq!(store.append("s", 3, vec![]).await.unwrap(), whole, "nothing to store is no conflict");
    assert_eq!(store.append("none", 0, vec![]).await.unwrap(), 0);
    assert!(store.load("none").await.unwrap().is_none());

    // The append got through in part, as far as anyone knows, and more is to come.
    let mut more = entries[6..].to_vec();
    more.push(turn("new", "new"));
    assert_eq!(store.append("s", 6, more.clone()).await.unwrap(), whole + 1);
    assert_eq!(store.append("s", 6, more).await.unwrap(), whole + 1);

    let other = store.append("s", whole + 1, vec![turn("t1", "hello, but different"), turn("new2", "x")]).await;
    assert!(matches!(&other, Err(SessionError::EntryConflict { entry, .. }) if entry == "t1"), "{other:?}");
    let twice = store.append("s", whole + 1, vec![turn("d", "one"), turn("d", "two")]).await;
    assert!(matches!(&twice, Err(SessionError::EntryConflict { entry, .. }) if entry == "d"), "{twice:?}");
    assert_eq!(store.version("s").await.unwrap(), whole + 1, "a refused append stores nothing");
    let repeated = vec![turn("d", "one"), turn("d", "one"), turn("e", "two")];
    assert_eq!(store.append("s", whole + 1, repeated).await.unwrap(), whole + 3);
}

/// Many writers at once: each version is made by one of them, and nothing is lost.
pub async fn serializes_writers(store: &dyn SessionStore) {
    const WRITERS: u64 = 4;
    const ENTRIES: u64 = 12;
    let writer = |writer: u64| async move {
        let mut version = 0;
        for n in 0..ENTRIES {
            // Bounded: each conflict means that another writer got through.
            for _ in 0..=WRITERS * ENTRIES {
                let entry = turn(&format!("{writer}/{n}"), "text");
                match store.append("s", version, vec![entry]).await {
                    Ok(now) => {
                        version = now;
                        break;
                    }
                    Err(SessionError::Conflict { found, .. }) => version = found,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    futures::future::join_all((0..WRITERS).map(writer)).await;
    let (version, found) = loaded(store, "s").await;
    assert_eq!(version, WRITERS * ENTRIES);
    for writer in 0..WRITERS {
        let prefix = format!("{writer}/");
        let own: Vec<_> = found.iter().filter_map(|entry| entry.id().strip_prefix(&prefix)).collect();
        let expected: Vec<_> = (0..ENTRIES).map(|n| n.to_string()).collect();
        assert_eq!(own, expected, "a writer's entries are all there, in its order");
    }
}

/// Ids are opaque: whatever they look like, each names a session of its own.
pub async fn takes_odd_ids(store: &dyn SessionStore) {
    let long = "long/".repeat(200);
    let longer = format!("{long}x");
    let mut ids = vec![
        "", " ", ".", "..", "/", "a/b", "a\\b", "../../up", "a", "A", "con", "NUL", "x.jsonl", "%2f", "é", "e\u{301}",
        "\n", "'; --", "\u{0}", "a\u{0}b", &long, &longer,
    ];
    for id in &ids {
        let entry = turn("t", &format!("of {id}"));
        assert_eq!(store.append(id, 0, vec![entry]).await.unwrap(), 1, "{id:?}");
    }
    for id in &ids {
        let (_, found) = loaded(store, id).await;
        same(&found, &[turn("t", &format!("of {id}"))]);
    }
    ids.sort_unstable();
    assert_eq!(store.list(None, 1000).await.unwrap(), ids);
    let mut paged = Vec::new();
    for _ in 0..ids.len() {
        let page = store.list(paged.last().map(String::as_str), 5).await.unwrap();
        assert!(page.len() <= 5);
        paged.extend(page);
    }
    assert_eq!(paged, ids, "pages add up to the whole");
    assert!(store.list(None, 0).await.unwrap().is_empty());
}

/// A session that is removed is gone, and its id can be used again.
pub async fn deletes(store: &dyn SessionStore) {
    assert!(!store.delete("s").await.unwrap());
    store.append("s", 0, vec![turn("1", "one")]).await.unwrap();
    store.append("other", 0, vec![turn("1", "one")]).await.unwrap();
    assert!(store.delete("s").await.unwrap());
    assert!(!store.delete("s").await.unwrap());
    assert!(store.load("s").await.unwrap().is_none());
    assert_eq!(store.list(None, 10).await.unwrap(), ["other"]);
    assert_eq!(conflict(store.append("s", 1, vec![turn("2", "two")]).await), (1, 0));
    assert_eq!(store.append("s", 0, vec![turn("1", "another one")]).await.unwrap(), 1);
    assert_eq!(loaded(store, "other").await.0, 1);
}

/// Large entries, and many of them.
pub async fn takes_large_sessions(store: &dyn SessionStore) {
    let big = "ä\"\n".repeat(500_000);
    store.append("s", 0, vec![turn("big", &big)]).await.unwrap();
    let many: Vec<_> = (0..2_000).map(|n| turn(&format!("t{n}"), "text")).collect();
    assert_eq!(store.append("s", 1, many.clone()).await.unwrap(), 2_001);
    let (_, found) = loaded(store, "s").await;
    same(&found[..1], &[turn("big", &big)]);
    same(&found[1..], &many);
}

/// Tests that a session store keeps its contract: a module of `#[test]`s.
///
/// Takes a name for the module and an expression that makes a store without sessions, which may await.
///
/// ```
/// zidane::testing::session_store_conformance!(memory, zidane::session::MemorySessionStore::new());
/// # fn main() {}
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __session_store_conformance {
    ($name:ident, $store:expr) => {
        $crate::__conformance!(
            $name, $store, session_store:
            keeps_what_is_appended keeps_what_is_unknown refuses_a_second_writer is_idempotent_by_id
            serializes_writers takes_odd_ids deletes takes_large_sessions
        );
    };
}

pub use crate::__session_store_conformance as session_store_conformance;

//! Sessions as values: entries that are read again, forks, summaries, cuts.

use proptest::prelude::*;
use serde_json::{Value, json};
use zidane::provider::HistoryTurn;
use zidane::session::{
    ForkError, MemorySessionStore, ResultEntry, Session, SessionEntry, SessionStore, StoredSession, SummaryEntry,
    VisionEntry, cut_for_budget, fold,
};
use zidane::types::{
    Extra, PendingCall, Role, SessionContentBlock, SessionTurn, Timestamp, ToolCallBlock, ToolResultBlock, ToolStatus,
    TurnOrigin, validate_transcript,
};

use crate::generate;

fn user(id: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("text")]).into()
}

fn calls(id: &str, calls: &[&str]) -> SessionEntry {
    let call = |id: &&str| ToolCallBlock { id: (*id).into(), name: "look".into(), ..ToolCallBlock::default() };
    let content = calls.iter().map(call).map(SessionContentBlock::ToolCall).collect();
    let mut turn = SessionTurn::new(id, Role::Assistant, TurnOrigin::Model, content);
    turn.pending = calls.iter().copied().map(PendingCall::open).collect();
    turn.into()
}

fn result(turn: &str, call: &str) -> SessionEntry {
    let result = ToolResultBlock {
        call_id: call.into(),
        name: "look".into(),
        input: None,
        output: "seen".into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    };
    SessionEntry::Result(ResultEntry::new(turn, "run", Timestamp(5), result))
}

fn summary(id: &str, through: &str) -> SessionEntry {
    let turn = SessionTurn::new(id, Role::User, TurnOrigin::Summary, vec![SessionContentBlock::text("short")]);
    SessionEntry::Summary(SummaryEntry::new(through, HistoryTurn::new(turn)))
}

fn folded(id: &str, entries: Vec<SessionEntry>) -> Session {
    fold(id, StoredSession::new(entries))
}

fn ids(turns: &[impl std::ops::Deref<Target = HistoryTurn>]) -> Vec<&str> {
    turns.iter().map(|turn| turn.id.as_str()).collect()
}

fn conversation() -> Vec<SessionEntry> {
    vec![
        user("u1"),
        calls("a1", &["1", "2"]),
        result("a1", "2"),
        result("a1", "1"),
        user("u2"),
        calls("a2", &["1", "2"]),
        result("a2", "2"),
    ]
}

#[tokio::test]
async fn a_fork_is_a_session_of_its_own_with_no_pair_split() {
    let mut entries = conversation();
    entries.push(SessionEntry::Vision(Box::new(VisionEntry::new("d1", "a cat", "run", Timestamp(1), None))));
    entries.push(SessionEntry::metadata("m", [("title".to_owned(), json!("mine"))].into_iter().collect()));
    let session = folded("s", entries);
    assert_eq!(session.turns.len(), 5);
    let results = session.turns[2].id.clone();
    let store = MemorySessionStore::new();
    for (at, expected) in [
        ("u1", vec!["u1"]),
        ("a1", vec!["u1", "a1", &results]),
        (&*results, vec!["u1", "a1", &results]),
        ("u2", vec!["u1", "a1", &results, "u2"]),
        ("a2", vec!["u1", "a1", &results, "u2", "a2"]),
    ] {
        let fork = session.fork(at).unwrap();
        let id = format!("fork at {at}");
        store.append(&id, 0, fork).await.unwrap();
        let fork = fold(&*id, store.load(&id).await.unwrap().unwrap());
        assert_eq!(ids(&fork.turns), expected);
        assert_eq!(fork.turns, session.turns[..expected.len()]);
        assert_eq!(fork.open, if at == "a2" { session.open.clone() } else { vec![] });
        assert_eq!(fork.metadata["forkedFrom"], json!({"session": "s", "turn": at}));
        assert_eq!((&fork.metadata["title"], fork.visions["d1"].text.as_str()), (&json!("mine"), "a cat"));
        assert!(fork.runs.is_empty() && fork.notes.is_empty());
        let settled = validate_transcript(fork.turns.iter().map(|turn| &***turn)).is_ok();
        assert_eq!(settled, at != "a2", "only the open calls of the session itself are open");
    }
    assert_eq!(session.open.len(), 1);
    let error = session.fork("nowhere").unwrap_err();
    assert_eq!(error, ForkError::NoSuchTurn { session: "s".into(), turn: "nowhere".into() });
}

#[test]
fn the_last_summary_stands_in_for_what_it_covers() {
    let mut entries = conversation();
    entries.insert(4, summary("s1", "u1"));
    let session = folded("s", entries.clone());
    let results = session.turns[2].id.clone();
    assert_eq!(ids(session.history().turns()), ["s1", "a1", &results, "u2", "a2"]);
    assert_eq!(session.turns.len(), 5, "the turns themselves stay");
    // A summary through a call covers its results too.
    entries.push(summary("s2", "a1"));
    let session = folded("s", entries.clone());
    assert_eq!(ids(session.history().turns()), ["s2", "u2", "a2"]);
    entries.push(summary("s3", "never there"));
    let session = folded("s", entries);
    assert_eq!(ids(session.history().turns()), ["s2", "u2", "a2"]);
    assert_eq!(session.notes.len(), 1);
    let fork = folded("f", session.fork("u2").unwrap());
    assert_eq!(ids(fork.history().turns()), ["s2", "u2"]);
}

#[test]
fn a_cut_and_a_summary_make_a_history_that_is_valid() {
    let mut entries = conversation();
    entries.push(result("a2", "1"));
    let session = folded("s", entries.clone());
    for budget in 0..7 {
        let cut = cut_for_budget(session.turns.iter().map(|turn| &***turn), budget, |_| 1);
        if cut == 0 {
            assert!(budget >= 6);
            continue;
        }
        let through = session.turns[cut - 1].id.clone();
        let mut entries = entries.clone();
        entries.push(summary("short", &through));
        let history = folded("s", entries).history();
        assert_eq!(history.len(), session.turns.len() - cut + 1);
        validate_transcript(history.iter()).unwrap();
    }
}

#[test]
fn a_known_kind_that_is_damaged_is_an_error_and_an_unknown_one_is_kept() {
    for (bad, message) in [
        (json!({"kind": "turn", "id": "1"}), "missing field"),
        (json!({"kind": "turn", "id": 1}), "invalid type"),
        (json!({"kind": "result", "id": "1", "turnId": "t"}), "missing field"),
        (json!({"kind": "hologram"}), "missing field `id`"),
        (json!({"id": "1"}), "missing field `kind`"),
        (json!({"kind": 7, "id": "1"}), "missing field `kind`"),
        (json!([]), "invalid type"),
        (Value::Null, "invalid type"),
    ] {
        let error = serde_json::from_value::<SessionEntry>(bad.clone()).unwrap_err().to_string();
        assert!(error.contains(message), "{bad}: {error}");
    }
    let kept = json!({"kind": "hologram", "id": "1", "x": [1, {"y": null}]});
    let entry: SessionEntry = serde_json::from_value(kept.clone()).unwrap();
    assert!(matches!(&entry, SessionEntry::Unknown(unknown) if unknown.id == "1"));
    assert_eq!(serde_json::to_value(&entry).unwrap(), kept);
}

#[test]
fn what_is_stored_reads_the_same() {
    let stored = r#"{"kind":"turn","id":"u1","runId":"","role":"user","origin":"prompt","content":[{"type":"text","text":"text"}],"createdAt":0}"#;
    assert_eq!(serde_json::to_string(&user("u1")).unwrap(), stored);
    let stored = r#"{"kind":"result","id":"5d2bd2a5-6f5c-5e41-b7e3-7a0ebbd1d8f2","turnId":"a1","runId":"run","at":5,"result":{"callId":"1","name":"look","output":"seen","status":"ok"}}"#;
    let text = serde_json::to_string(&result("a1", "1")).unwrap();
    assert_eq!(text.replace(result("a1", "1").id(), "5d2bd2a5-6f5c-5e41-b7e3-7a0ebbd1d8f2"), stored);
    for entry in [summary("s", "u1"), calls("a", &["1"])] {
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<SessionEntry>(&text).unwrap(), entry);
    }
}

fn turns() -> impl Strategy<Value = SessionEntry> {
    let role = prop::sample::select(vec![Role::User, Role::Assistant]);
    let usage = prop::option::of(generate::turn_usage());
    ("[a-z0-9]{1,4}", role, prop::collection::vec(generate::block(), 0..5), usage).prop_map(
        |(id, role, content, usage)| {
            let mut turn = SessionTurn::new(id, role, TurnOrigin::Prompt, content);
            turn.usage = usage.map(Into::into);
            turn.into()
        },
    )
}

proptest! {
    #[test]
    fn every_turn_reads_as_it_was(entry in turns()) {
        let text = serde_json::to_string(&entry).unwrap();
        let read: SessionEntry = serde_json::from_str(&text).unwrap();
        prop_assert!(read.same_content(&entry));
        prop_assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn any_log_folds_and_forks(entries in prop::collection::vec(turns(), 0..20)) {
        let session = folded("s", entries);
        for turn in &session.turns {
            let fork = folded("f", session.fork(&turn.id).unwrap());
            prop_assert!(fork.turns.len() <= session.turns.len());
            prop_assert_eq!(ids(&fork.turns), ids(&session.turns[..fork.turns.len()]));
        }
    }
}

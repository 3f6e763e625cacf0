//! What every tool-state store must do. The checks panic where it does not: they are tests.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check is a failed test")]

use serde_json::{Value, json};

use crate::tool_state::{ToolStateCommit, ToolStateOp, ToolStateSnapshot, ToolStateStore};

fn commit(scope: &str, id: &str, ops: Vec<ToolStateOp>) -> ToolStateCommit {
    ToolStateCommit::new(scope, id, "run", "call", ops)
}

fn snapshot<const N: usize>(entries: [(&str, Value); N]) -> ToolStateSnapshot {
    entries.into_iter().collect()
}

async fn loaded(store: &dyn ToolStateStore, scope: &str) -> ToolStateSnapshot {
    store.load(scope).await.unwrap()
}

/// What is committed is loaded; ops count in their order.
pub async fn keeps_what_is_committed(store: &dyn ToolStateStore) {
    assert!(loaded(store, "s").await.is_empty(), "the store is not empty");
    let ops = vec![
        ToolStateOp::set("a", 1),
        ToolStateOp::set("b", json!({"deep": [null, 1.5, u64::MAX, "é\u{0}\n\"\\"]})),
        ToolStateOp::set("a", 2),
        ToolStateOp::set("c", 3),
        ToolStateOp::delete("c"),
        ToolStateOp::delete("never there"),
        ToolStateOp::set("null", Value::Null),
    ];
    store.commit(&commit("s", "1", ops)).await.unwrap();
    let expected =
        [("a", json!(2)), ("b", json!({"deep": [null, 1.5, u64::MAX, "é\u{0}\n\"\\"]})), ("null", Value::Null)];
    assert_eq!(loaded(store, "s").await, snapshot(expected));
    store.commit(&commit("s", "2", vec![ToolStateOp::delete("a"), ToolStateOp::set("b", 0)])).await.unwrap();
    assert_eq!(loaded(store, "s").await, snapshot([("b", json!(0)), ("null", Value::Null)]));
}

/// A commit that is handed in again does nothing, also after newer ones: the state never moves backwards.
pub async fn applies_a_commit_once(store: &dyn ToolStateStore) {
    let commits: Vec<_> = (0..100)
        .map(|n| commit("s", &format!("run:{n}"), vec![ToolStateOp::set("last", n), ToolStateOp::delete("gone")]))
        .collect();
    for commit in &commits {
        store.commit(commit).await.unwrap();
    }
    store.commit(&commit("s", "own", vec![ToolStateOp::set("gone", "back")])).await.unwrap();
    for commit in commits.iter().rev().chain(&commits) {
        store.commit(commit).await.unwrap();
    }
    assert_eq!(loaded(store, "s").await, snapshot([("gone", json!("back")), ("last", json!(99))]));
}

/// Scopes share nothing, commit ids neither.
pub async fn keeps_scopes_apart(store: &dyn ToolStateStore) {
    let long = "long/".repeat(200);
    let scopes = ["", "a", "A", "a/b", "../a", "a\u{0}", "con", "é", "'; --", &long];
    for scope in scopes {
        store.commit(&commit(scope, "1", vec![ToolStateOp::set("of", scope)])).await.unwrap();
    }
    for scope in scopes {
        assert_eq!(loaded(store, scope).await, snapshot([("of", json!(scope))]), "{scope:?}");
    }
    assert!(loaded(store, "b").await.is_empty());
}

/// Keys are opaque.
pub async fn takes_odd_keys(store: &dyn ToolStateStore) {
    let long = "k".repeat(5_000);
    let keys =
        ["", " ", "a", "A", "a.b", "a/b", "$", "é", "e\u{301}", "\u{0}", "\n", "\"", "'; --", "v", "scope", &long];
    let ops = keys.iter().map(|key| ToolStateOp::set(*key, *key)).collect();
    store.commit(&commit("s", "1", ops)).await.unwrap();
    let found = loaded(store, "s").await;
    assert_eq!(found.len(), keys.len());
    for key in keys {
        assert_eq!(found.get(key).map(|value| &**value), Some(&json!(key)), "{key:?}");
    }
    store.commit(&commit("s", "2", keys.iter().copied().map(ToolStateOp::delete).collect())).await.unwrap();
    assert!(loaded(store, "s").await.is_empty());
}

/// Large values, and many keys.
pub async fn takes_large_state(store: &dyn ToolStateStore) {
    let big = "ä\"\n".repeat(2_500_000);
    let mut ops = vec![ToolStateOp::set("big", big.as_str())];
    ops.extend((0..1_000).map(|n| ToolStateOp::set(format!("k{n}"), n)));
    store.commit(&commit("s", "1", ops)).await.unwrap();
    store.commit(&commit("s", "2", vec![ToolStateOp::set("k0", "new")])).await.unwrap();
    let found = loaded(store, "s").await;
    assert_eq!(found.len(), 1_001);
    assert_eq!(found.get("big").and_then(|value| value.as_str()).map(str::len), Some(big.len()));
    assert_eq!(
        (found.get("k0").map(|value| &**value), found.get("k7").map(|value| &**value)),
        (Some(&json!("new")), Some(&json!(7)))
    );
}

/// A value that cannot be read back is refused with its whole commit, or is read back: it never breaks what is there.
pub async fn survives_deep_values(store: &dyn ToolStateStore) {
    store.commit(&commit("s", "1", vec![ToolStateOp::set("k", 1)])).await.unwrap();
    let mut deep = Value::Null;
    for _ in 0..300 {
        deep = Value::Array(vec![deep]);
    }
    let ops = vec![ToolStateOp::set("k", 2), ToolStateOp::set("deep", deep)];
    let kept = store.commit(&commit("s", "2", ops)).await.is_ok();
    let found = loaded(store, "s").await;
    assert_eq!(found.get("k").map(|value| &**value), Some(&json!(if kept { 2 } else { 1 })), "all or nothing");
    assert_eq!(found.get("deep").is_some(), kept);
}

/// Two scopes that are written at once, and one scope by several writers: every commit is there in the end.
pub async fn takes_writers_at_once(store: &dyn ToolStateStore) {
    let writer = |writer: usize| async move {
        for n in 0..10 {
            let ops = vec![ToolStateOp::set(format!("{writer}/{n}"), n), ToolStateOp::set("last", writer)];
            store.commit(&commit("shared", &format!("{writer}/{n}"), ops.clone())).await.unwrap();
            store.commit(&commit(&format!("own {writer}"), &n.to_string(), ops)).await.unwrap();
        }
    };
    futures::future::join_all((0..4).map(writer)).await;
    assert_eq!(loaded(store, "shared").await.len(), 41);
    for writer in 0..4 {
        assert_eq!(loaded(store, &format!("own {writer}")).await.len(), 11);
    }
}

/// Tests that a tool-state store keeps its contract: a module of `#[test]`s.
///
/// Takes a name for the module and an expression that makes a store without state, which may await.
///
/// ```
/// zidane::testing::tool_state_store_conformance!(memory, zidane::tool_state::MemoryToolStateStore::new());
/// # fn main() {}
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __tool_state_store_conformance {
    ($name:ident, $store:expr) => {
        $crate::__conformance!(
            $name, $store, tool_state_store:
            keeps_what_is_committed applies_a_commit_once keeps_scopes_apart takes_odd_keys takes_large_state
            survives_deep_values takes_writers_at_once
        );
    };
}

pub use crate::__tool_state_store_conformance as tool_state_store_conformance;

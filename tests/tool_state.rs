//! Tool state through its public parts: views, commits, stores, the window.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/folder.rs"]
mod folder;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use folder::Folder;
use serde_json::{Value, json};
use zidane::storage::StorageError;
use zidane::testing::tool_state_store_conformance;
use zidane::tool_state::{
    JsonToolStateStore, MemoryToolStateStore, StoreError, ToolStateCommit, ToolStateController, ToolStateError,
    ToolStateOp, ToolStateSnapshot, ToolStateStore, ToolStateView,
};

tool_state_store_conformance!(memory_store, MemoryToolStateStore::new());
tool_state_store_conformance!(json_store, Folder::new("state").holding(JsonToolStateStore::new));

#[cfg(feature = "sqlite")]
mod sqlite_stores {
    use super::*;
    use zidane::sqlite::Database;
    use zidane::tool_state::SqliteToolStateStore;

    tool_state_store_conformance!(in_memory, SqliteToolStateStore::new(Database::in_memory().await.unwrap()));
    tool_state_store_conformance!(in_a_file, {
        let folder = Folder::new("state");
        let database = Database::open(folder.join("test.sqlite")).await.unwrap();
        folder.holding(|_| SqliteToolStateStore::new(database))
    });
}

fn commit(call: &str, ops: Vec<ToolStateOp>) -> ToolStateCommit {
    ToolStateCommit::new("s", format!("run:7:{call}"), "run", call, ops)
}

fn keys(keys: &[Arc<str>]) -> Vec<&str> {
    keys.iter().map(|key| &**key).collect()
}

/// Memory with faults: fails while told to, and notes what it was given.
#[derive(Default)]
struct Moody {
    inner: MemoryToolStateStore,
    failing: Mutex<Vec<&'static str>>,
    loads: AtomicUsize,
    commits: Mutex<Vec<String>>,
}

impl Moody {
    fn fails(&self, what: &str) -> Result<(), StoreError> {
        if self.failing.lock().unwrap().contains(&what) { Err(format!("no {what} today").into()) } else { Ok(()) }
    }
}

#[zidane::async_trait]
impl ToolStateStore for Moody {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.fails("load")?;
        self.inner.load(scope).await
    }
    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        self.commits.lock().unwrap().push(commit.call_id.to_string());
        self.fails(&commit.call_id)?;
        self.inner.commit(commit).await?;
        if self.fails("answer").is_err() {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

#[test]
fn a_view_reads_the_snapshot_and_its_own_writes() {
    let view = ToolStateView::new([("a/1", json!(1)), ("a/2", json!("two")), ("b", json!(3))].into_iter().collect());
    view.set("a/3", json!([3])).unwrap();
    view.delete("a/1").unwrap();
    view.set_as("b", &(4, "x")).unwrap();
    assert_eq!(view.get("a/1"), None);
    assert_eq!(view.get("a/3").as_deref(), Some(&json!([3])));
    assert_eq!(view.get_as::<(u8, String)>("b").unwrap(), Some((4, "x".to_owned())));
    assert!(matches!(view.get_as::<u8>("a/2"), Err(ToolStateError::Type { key, .. }) if key == "a/2"));
    assert_eq!(view.get_as::<u8>("none").unwrap(), None);
    assert_eq!(keys(&view.keys("a/")), ["a/2", "a/3"]);
    assert_eq!(keys(&view.keys("")), ["a/2", "a/3", "b"]);
    assert_eq!(
        view.staged(),
        [ToolStateOp::set("a/3", json!([3])), ToolStateOp::delete("a/1"), ToolStateOp::set("b", json!([4, "x"]))]
    );
    view.discard().unwrap();
    assert_eq!(keys(&view.keys("")), ["a/1", "a/2", "b"]);
    assert_eq!(view.staged(), []);
}

#[test]
fn updates_of_many_tasks_are_all_kept() {
    let view = ToolStateView::new(ToolStateSnapshot::new());
    let start = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..250 {
                    view.update("n", |old| old.and_then(Value::as_u64).unwrap_or(0) + 1).unwrap();
                }
            });
        }
    });
    assert_eq!(view.get_as::<u64>("n").unwrap(), Some(1_000));
}

#[test]
fn an_update_may_use_the_view_it_updates() {
    let view = ToolStateView::new([("step", json!(2))].into_iter().collect());
    let mut rounds = 0;
    view.update("n", |old| {
        rounds += 1;
        if rounds == 1 {
            view.set("n", 10).unwrap();
        }
        old.and_then(Value::as_u64).unwrap_or(0) + view.get_as::<u64>("step").unwrap().unwrap()
    })
    .unwrap();
    assert_eq!((rounds, view.get_as::<u64>("n").unwrap()), (2, Some(12)));
}

#[tokio::test]
async fn siblings_do_not_see_each_other_and_the_next_segment_sees_all() {
    let controller = ToolStateController::new("s");
    let window = controller.window();
    let (first, second) = (controller.view(), controller.view());
    first.set("a", 1).unwrap();
    second.set("b", 2).unwrap();
    assert_eq!((first.get("b"), second.get("a"), window.get("a")), (None, None, None));
    let results = controller.commit(&[commit("c1", first.staged()), commit("c2", second.staged())]).await;
    assert!(results.iter().all(Result::is_ok) && results.len() == 2);
    assert_eq!((first.get("b"), second.get("a")), (None, None), "a view stays at its dispatch");
    assert_eq!(keys(&controller.view().keys("")), ["a", "b"]);
    assert_eq!(window.get_as::<u8>("b").unwrap(), Some(2), "the window is live");
    assert_eq!(keys(&window.keys("a")), ["a"]);
}

#[tokio::test]
async fn parallel_writers_of_one_key_end_in_call_order() {
    let store = Arc::new(Moody::default());
    let controller = ToolStateController::with_store("s", store.clone());
    let views: Vec<_> = ["a", "b", "c"].map(|item| (item, controller.view())).into();
    for (item, view) in &views {
        view.update("items", |old| {
            let mut items = old.and_then(Value::as_array).cloned().unwrap_or_default();
            items.push(json!(item));
            items
        })
        .unwrap();
        view.set(format!("k-{item}"), true).unwrap();
    }
    // The second call failed, so its ops are not handed in; a call that wrote nothing makes no commit.
    let segment = [commit("c1", views[0].1.staged()), commit("c3", views[2].1.staged()), commit("c4", vec![])];
    assert!(controller.commit(&segment).await.iter().all(Result::is_ok));
    assert_eq!(*store.commits.lock().unwrap(), ["c1", "c3"]);
    let snapshot = controller.snapshot();
    let found: Vec<_> = snapshot.iter().collect();
    assert_eq!(found, [("items", &json!(["c"])), ("k-a", &json!(true)), ("k-c", &json!(true))]);
    assert_eq!(store.inner.snapshot("s"), snapshot);
}

#[tokio::test]
async fn a_rejected_commit_is_dropped_and_the_rest_goes_on() {
    let store = Arc::new(Moody::default());
    let controller = ToolStateController::with_store("s", store.clone());
    controller.load().await.unwrap();
    store.failing.lock().unwrap().push("c2");
    let segment =
        ["c1", "c2", "c3"].map(|call| commit(call, vec![ToolStateOp::set("last", call), ToolStateOp::set(call, 1)]));
    let results = controller.commit(&segment).await;
    let Err(ToolStateError::Commit { commit_id, call_id, source, .. }) = &results[1] else { panic!("{results:?}") };
    assert_eq!((commit_id.as_str(), call_id.as_str(), source.to_string().as_str()), ("run:7:c2", "c2", "no c2 today"));
    assert!(results[0].is_ok() && results[2].is_ok());
    assert_eq!(keys(&controller.view().keys("c")), ["c1", "c3"]);
    assert_eq!(store.inner.snapshot("s"), controller.snapshot(), "what memory shows, the store has");
    controller.load().await.unwrap();
    assert_eq!(store.loads.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn loading_is_done_once_and_again_only_after_a_failure() {
    let store = Arc::new(Moody::default());
    store.inner.commit(&commit("old", vec![ToolStateOp::set("k", 1)])).await.unwrap();
    store.failing.lock().unwrap().push("load");
    let controller = ToolStateController::with_store("s", store.clone());
    let error = controller.load().await.unwrap_err();
    assert!(matches!(&error, ToolStateError::Load { scope, .. } if scope == "s"), "{error}");
    assert!(controller.snapshot().is_empty());
    store.failing.lock().unwrap().clear();
    controller.load().await.unwrap();
    controller.load().await.unwrap();
    assert_eq!(store.loads.load(Ordering::Relaxed), 2);
    assert_eq!(controller.window().get_as::<u8>("k").unwrap(), Some(1));
}

#[tokio::test]
async fn a_commit_cut_half_way_makes_the_next_run_load_again() {
    let store = Arc::new(Moody::default());
    let controller = ToolStateController::with_store("s", store.clone());
    controller.load().await.unwrap();
    store.failing.lock().unwrap().push("answer");
    {
        let segment = [commit("c1", vec![ToolStateOp::set("k", 1)])];
        let mut cut = Box::pin(controller.commit(&segment));
        assert!(futures::poll!(cut.as_mut()).is_pending());
    }
    assert!(controller.snapshot().is_empty(), "not known to be stored");
    store.failing.lock().unwrap().clear();
    controller.load().await.unwrap();
    assert_eq!(controller.window().get_as::<u8>("k").unwrap(), Some(1));
    assert_eq!(store.loads.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn stores_are_idempotent_and_scopes_are_apart() {
    let store = MemoryToolStateStore::new();
    let first = commit("c1", vec![ToolStateOp::set("k", 1)]);
    let newer = commit("c2", vec![ToolStateOp::set("k", 2), ToolStateOp::delete("gone")]);
    for commit in [&first, &newer, &first, &newer] {
        store.commit(commit).await.unwrap();
    }
    assert_eq!(store.load("s").await.unwrap().get("k").map(|value| &**value), Some(&json!(2)));
    let mut other = first.clone();
    other.scope = "t".into();
    store.commit(&other).await.unwrap();
    assert_eq!(store.load("t").await.unwrap().get("k").map(|value| &**value), Some(&json!(1)));
    assert!(store.load("nobody").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_commit_for_another_scope_is_refused() {
    let store = Arc::new(Moody::default());
    let controller = ToolStateController::with_store("mine", store.clone());
    let results = controller.commit(&[commit("c1", vec![ToolStateOp::set("k", 1)])]).await;
    assert!(matches!(results.as_slice(), [Err(ToolStateError::Commit { .. })]));
    assert!(store.commits.lock().unwrap().is_empty() && controller.snapshot().is_empty());
}

#[test]
fn what_is_stored_reads_the_same() {
    let commit = commit("c1", vec![ToolStateOp::set("k", json!({"a": 1})), ToolStateOp::delete("x")]);
    let stored = r#"{"scope":"s","commitId":"run:7:c1","runId":"run","callId":"c1","ops":[{"op":"set","key":"k","value":{"a":1}},{"op":"delete","key":"x"}]}"#;
    assert_eq!(serde_json::to_string(&commit).unwrap(), stored);
    assert_eq!(serde_json::from_str::<ToolStateCommit>(stored).unwrap(), commit);
    let snapshot: ToolStateSnapshot = [("b", json!(1)), ("a", json!(null))].into_iter().collect();
    assert_eq!(serde_json::to_string(&snapshot).unwrap(), r#"{"a":null,"b":1}"#);
    assert_eq!(serde_json::from_str::<ToolStateSnapshot>(r#"{"a":null,"b":1}"#).unwrap(), snapshot);
}

#[test]
fn applying_to_a_shared_snapshot_leaves_the_other_handle_alone() {
    let before: ToolStateSnapshot = [("k", json!(1))].into_iter().collect();
    let mut after = before.clone();
    after.apply(&[ToolStateOp::set("k", 2), ToolStateOp::set("n", 3)]);
    after.apply(&[]);
    assert_eq!((before.len(), after.len()), (1, 2));
    assert_eq!(before.get("k").map(|value| &**value), Some(&json!(1)));
}

fn fault(error: &StoreError) -> &StorageError {
    error.downcast_ref::<StorageError>().unwrap()
}

#[tokio::test]
async fn a_json_file_that_is_damaged_newer_or_anothers_is_refused_and_left_alone() {
    let folder = Folder::new("state");
    let store = JsonToolStateStore::new(&*folder);
    store.commit(&commit("c1", vec![ToolStateOp::set("k", 1)])).await.unwrap();
    let path = store.path("s");
    let good = std::fs::read(&path).unwrap();
    assert_eq!(good, b"{\"v\":1,\"scope\":\"s\",\"state\":{\"k\":1},\"applied\":[\"run:7:c1\"]}\n");
    let mut refused = 0;
    for cut in 0..good.len() - 1 {
        std::fs::write(&path, &good[..cut]).unwrap();
        let error = store.load("s").await.unwrap_err();
        assert!(matches!(fault(&error), StorageError::Corrupt { .. }), "{cut}: {error}");
        assert!(store.commit(&commit("c2", vec![ToolStateOp::set("k", 2)])).await.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), &good[..cut], "a refused commit changes nothing");
        refused += 1;
    }
    assert!(refused > 50);
    std::fs::write(&path, String::from_utf8_lossy(&good).replace("\"v\":1", "\"v\":2")).unwrap();
    let error = store.load("s").await.unwrap_err();
    assert!(matches!(fault(&error), StorageError::Newer { found: 2, reads: 1, .. }), "{error}");
    let error = store.commit(&commit("c2", vec![ToolStateOp::set("k", 2)])).await.unwrap_err();
    assert!(matches!(fault(&error), StorageError::Newer { .. }), "{error}");
    std::fs::write(&path, String::from_utf8_lossy(&good).replace("\"s\"", "\"t\"")).unwrap();
    assert!(matches!(fault(&store.load("s").await.unwrap_err()), StorageError::Corrupt { .. }));
}

#[tokio::test]
async fn fields_of_a_newer_writer_stay_in_the_json_file() {
    let folder = Folder::new("state");
    let store = JsonToolStateStore::new(&*folder);
    store.commit(&commit("c1", vec![ToolStateOp::set("k", 1)])).await.unwrap();
    let path = store.path("s");
    let text = std::fs::read_to_string(&path).unwrap().replace("{\"v\":1", "{\"added\":{\"x\":[1.50]},\"v\":1");
    std::fs::write(&path, text).unwrap();
    store.commit(&commit("c2", vec![ToolStateOp::set("k", 2)])).await.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"added\":{\"x\":[1.50]}") && text.contains("\"k\":2"), "{text}");
}

#[tokio::test]
async fn the_json_store_bounds_what_it_remembers_and_writes() {
    let folder = Folder::new("state");
    let store = JsonToolStateStore::new(&*folder).remembered(3).max_bytes(400);
    for n in 0..10 {
        store.commit(&commit(&n.to_string(), vec![ToolStateOp::set("k", n)])).await.unwrap();
    }
    let text = std::fs::read_to_string(store.path("s")).unwrap();
    assert!(text.contains("\"applied\":[\"run:7:7\",\"run:7:8\",\"run:7:9\"]"), "{text}");
    let error = store.commit(&commit("big", vec![ToolStateOp::set("k", "x".repeat(400))])).await.unwrap_err();
    assert!(matches!(fault(&error), StorageError::TooLarge { limit: 400, .. }), "{error}");
    assert_eq!(store.load("s").await.unwrap().get("k").map(|value| &**value), Some(&json!(9)));
    let names: Vec<_> = std::fs::read_dir(&*folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the state and a lock, nothing half-written: {names:?}");
}

#[test]
fn without_a_runtime_a_store_says_so() {
    let folder = Folder::new("state");
    let store = JsonToolStateStore::new(&*folder);
    let error = futures::executor::block_on(store.load("s")).unwrap_err();
    assert!(matches!(fault(&error), StorageError::Closed { .. }), "{error}");
}

//! What it costs to keep things: appends and commits per store, a long session loaded, and a chat with and without.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tokio::runtime::{Builder, Runtime};
use zidane::Agent;
use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionEntry, SessionStore, fold};
use zidane::tool_state::{JsonToolStateStore, MemoryToolStateStore, ToolStateCommit, ToolStateOp, ToolStateStore};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};
#[cfg(feature = "sqlite")]
use zidane::{session::SqliteSessionStore, sqlite::Database, tool_state::SqliteToolStateStore};

use self::support::model::Model;

const TURNS: u64 = 10_000;

/// A folder on the disk that the crate is built on: one for temporary files may be in memory.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn runtime() -> Option<Runtime> {
    Builder::new_current_thread().enable_all().build().ok()
}

/// A turn of about a kilobyte.
fn turn(n: u64) -> SessionEntry {
    let (role, origin) =
        if n.is_multiple_of(2) { (Role::User, TurnOrigin::Prompt) } else { (Role::Assistant, TurnOrigin::Model) };
    let text = SessionContentBlock::text("sixteen bytes on".repeat(64));
    SessionTurn::new(format!("turn-{n}"), role, origin, vec![text]).into()
}

fn sessions(runtime: &Runtime, folder: &Folder) -> Vec<(&'static str, Arc<dyn SessionStore>)> {
    let _ = runtime;
    vec![
        ("memory", Arc::new(MemorySessionStore::new())),
        ("jsonl", Arc::new(JsonlSessionStore::new(folder.0.join("sessions")))),
        #[cfg(feature = "sqlite")]
        ("sqlite", Arc::new(SqliteSessionStore::new(database(runtime, folder, "sessions.sqlite")))),
    ]
}

#[cfg(feature = "sqlite")]
fn database(runtime: &Runtime, folder: &Folder, name: &str) -> Database {
    let opened = std::fs::create_dir_all(&folder.0)
        .map_err(|error| error.to_string())
        .and_then(|()| runtime.block_on(Database::open(folder.0.join(name))).map_err(|error| error.to_string()));
    opened.unwrap_or_else(|error| unreachable!("the benchmark's database opens: {error}"))
}

fn append(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let folder = Folder::new("append");
    let mut group = c.benchmark_group("session-append");
    for (name, store) in sessions(&runtime, &folder) {
        let mut version = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                let appended = runtime.block_on(store.append("s", version, vec![turn(version)]));
                version = appended.unwrap_or_else(|error| unreachable!("the append is done: {error}"));
            });
        });
    }
    group.finish();
}

fn commit(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let folder = Folder::new("commit");
    let stores: Vec<(&str, Arc<dyn ToolStateStore>)> = vec![
        ("memory", Arc::new(MemoryToolStateStore::new())),
        ("json", Arc::new(JsonToolStateStore::new(folder.0.join("state")))),
        #[cfg(feature = "sqlite")]
        ("sqlite", Arc::new(SqliteToolStateStore::new(database(&runtime, &folder, "state.sqlite")))),
    ];
    let mut group = c.benchmark_group("tool-state-commit");
    for (name, store) in stores {
        let mut number = 0_u64;
        group.bench_function(name, |b| {
            b.iter(|| {
                number += 1;
                let ops =
                    vec![ToolStateOp::set("n", number), ToolStateOp::set(format!("k{}", number % 50), "x".repeat(100))];
                let commit = ToolStateCommit::new("s", number.to_string(), "run", "call", ops);
                let done = runtime.block_on(store.commit(&commit));
                done.unwrap_or_else(|error| unreachable!("the commit is done: {error}"));
            });
        });
    }
    group.finish();
}

/// Read, checked and folded: what the first run of an agent waits for.
fn load(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let folder = Folder::new("load");
    let mut group = c.benchmark_group("session-load");
    group.throughput(Throughput::Elements(TURNS)).sample_size(10);
    for (name, store) in sessions(&runtime, &folder) {
        let entries = (0..TURNS).map(turn).collect();
        if let Err(error) = runtime.block_on(store.append("s", 0, entries)) {
            unreachable!("the session is stored: {error}");
        }
        group.bench_function(BenchmarkId::new(name, TURNS), |b| {
            b.iter(|| {
                let stored = runtime.block_on(store.load("s")).ok().flatten().unwrap_or_default();
                fold("s", stored).turns.len()
            });
        });
    }
    group.finish();
}

/// A prompt and an answer: three appends where the session is kept.
fn chat(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let folder = Folder::new("chat");
    let mut group = c.benchmark_group("chat");
    let builder = Agent::builder().provider(Model { turns: 0, calls: 0, deltas: 1 }).model("m");
    let kept =
        sessions(&runtime, &folder).into_iter().map(|(name, store)| (name, builder.clone().session_store(store)));
    for (name, builder) in std::iter::once(("not kept", builder.clone())).chain(kept) {
        let agent =
            || builder.build().unwrap_or_else(|error| unreachable!("the benchmark's agent is complete: {error}"));
        group.bench_function(name, |b| {
            b.iter_batched(agent, |agent| runtime.block_on(agent.run("go")).map(drop), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, append, commit, load, chat);
criterion_main!(benches);

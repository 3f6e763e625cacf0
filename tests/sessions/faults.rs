//! What the system may do to a store: no right to write, no space, two processes. Each in a process of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use zidane::RunErrorKind;
use zidane::session::{
    BlobError, BlobStore, DirectoryBlobStore, JsonlSessionStore, SessionEntry, SessionError, SessionStore,
};
use zidane::storage::StorageError;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool_state::{JsonToolStateStore, ToolStateCommit, ToolStateOp, ToolStateStore};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use crate::agents::{agent, same};
use crate::folder::Folder;

const ROLE: &str = "ZIDANE_TEST_CHILD";

fn turn(id: &str, text: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

/// This test program again, as a child that plays a role in a folder.
pub(crate) fn child(shell: &str, role: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "faults::plays_a_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{role}:{}", folder.display()))
        .stdin(Stdio::null());
    command
}

pub(crate) fn ended_well(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("role played"), "the child did nothing: {}", text(&output.stdout));
}

/// Does nothing, but for a child.
#[test]
fn plays_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, folder) = role.split_once(':').unwrap();
    let folder = Path::new(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        match role {
            "no right" => without_the_right_to_write(folder).await,
            "no space" => without_space(folder).await,
            #[cfg(feature = "sqlite")]
            "no space sqlite" => super::sqlite::without_space(folder).await,
            writer => write_on(folder, writer).await,
        }
    });
    println!("role played");
}

fn is_io(error: &SessionError) -> bool {
    matches!(error, SessionError::Storage(StorageError::Io { .. }))
}

/// As a user without rights: root may write anywhere.
#[test]
#[cfg(unix)]
fn a_folder_that_may_not_be_written_is_an_error_and_still_read() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;

    let folder = Folder::new("faults");
    let store = JsonlSessionStore::new(&*folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { store.append("s", 0, vec![turn("1", "one")]).await.unwrap() });
    for file in std::fs::read_dir(&*folder).unwrap() {
        std::fs::set_permissions(file.unwrap().path(), std::fs::Permissions::from_mode(0o444)).unwrap();
    }
    std::fs::set_permissions(&*folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = child("", "no right", &folder);
    if folder.metadata().unwrap().uid() == 0 {
        command.uid(65_534).gid(65_534);
        // Its way there must be open to it, which is not ours to change.
        let open = folder.ancestors().chain([std::env::current_exe().unwrap().as_path()]).all(|path| {
            path.as_os_str().is_empty() || path.metadata().is_ok_and(|found| found.permissions().mode() & 0o5 == 0o5)
        });
        if !open {
            eprintln!("SKIPPED: another user cannot reach the test's folder");
            return;
        }
    }
    let output = command.output().unwrap();
    std::fs::set_permissions(&*folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    ended_well(&output);
}

async fn without_the_right_to_write(folder: &Path) {
    let store = JsonlSessionStore::new(folder);
    assert_eq!(store.load("s").await.unwrap().unwrap().version, 1, "reading needs no right to write");
    assert_eq!(store.list(None, 10).await.unwrap(), ["s"]);
    for answer in [
        store.append("s", 1, vec![turn("2", "two")]).await,
        store.append("new", 0, vec![turn("1", "one")]).await,
        store.delete("s").await.map(u64::from),
    ] {
        assert!(is_io(answer.as_ref().unwrap_err()), "{answer:?}");
    }
    let nowhere = JsonlSessionStore::new(folder.join("below"));
    assert!(nowhere.load("s").await.unwrap().is_none());
    assert!(nowhere.list(None, 10).await.unwrap().is_empty());
    assert!(!nowhere.delete("s").await.unwrap());
    assert!(is_io(&nowhere.append("s", 0, vec![turn("1", "one")]).await.unwrap_err()));
    let state = JsonToolStateStore::new(folder);
    let commit = ToolStateCommit::new("s", "1", "r", "c", vec![ToolStateOp::set("k", 1)]);
    let error = state.commit(&commit).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(StorageError::Io { .. })), "{error}");
    assert!(state.load("s").await.unwrap().is_empty());
    let blobs = DirectoryBlobStore::new(folder);
    let answer = blobs.put(vec![1]).await;
    assert!(matches!(answer, Err(BlobError::Storage(StorageError::Io { .. }))), "{answer:?}");
    #[cfg(feature = "sqlite")]
    assert!(zidane::sqlite::Database::open(folder.join("new.sqlite")).await.is_err());
    // An agent says so before anything is sent, and goes on once it may write.
    let model = ScriptedProvider::new([Reply::text("Fine.")]);
    let agent = agent(&model, &std::sync::Arc::new(JsonlSessionStore::new(folder))).build().unwrap();
    for _ in 0..2 {
        let error = agent.run("Go").await.unwrap_err();
        assert!(matches!(&error.kind, RunErrorKind::Session(error) if is_io(error)), "{error}");
    }
    assert!(model.requests().is_empty());
}

/// A limit on the size of files stands in for a disk that is full.
#[test]
#[cfg(unix)]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let folder = Folder::new("faults");
    ended_well(&child("trap '' XFSZ; ulimit -f 64;", "no space", &folder).output().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // With space again, everything goes on.
        let store = JsonlSessionStore::new(&*folder);
        let version = store.load("s").await.unwrap().unwrap().version;
        assert!(version > 2);
        assert_eq!(store.append("s", version, vec![turn("more", &"x".repeat(100_000))]).await.unwrap(), version + 1);
        assert!(store.load("big").await.unwrap().is_none());
    });
}

async fn without_space(folder: &Path) {
    let store = JsonlSessionStore::new(folder);
    let big = "x".repeat(100_000);
    let answer = store.append("big", 0, vec![turn("1", &big)]).await;
    assert!(is_io(answer.as_ref().unwrap_err()), "{answer:?}");
    assert!(store.load("big").await.unwrap().is_none());
    let mut version = 0;
    let error = loop {
        match store.append("s", version, vec![turn(&version.to_string(), &"x".repeat(5_000))]).await {
            Ok(now) => version = now,
            Err(error) => break error,
        }
        assert!(version < 100, "the limit does not hold");
    };
    assert!(is_io(&error) && version > 2, "{error}");
    let last = (version - 1).to_string();
    for (store, fits) in [(&store, "small"), (&JsonlSessionStore::new(folder), "small too")] {
        let found = store.load("s").await.unwrap().unwrap();
        assert_eq!(found.version, version);
        assert!(found.entries.iter().any(|entry| entry.id() == last));
        // What fits still goes in.
        version = store.append("s", version, vec![turn(fits, "x")]).await.unwrap();
    }
    an_agent_without_space(folder).await;
    let state = JsonToolStateStore::new(folder);
    let commit = |id: &str, value: &str| ToolStateCommit::new("s", id, "r", "c", vec![ToolStateOp::set("k", value)]);
    state.commit(&commit("1", "small")).await.unwrap();
    let error = state.commit(&commit("2", &big)).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(StorageError::Io { .. })), "{error}");
    assert_eq!(state.load("s").await.unwrap().get("k").and_then(|value| value.as_str().map(str::len)), Some(5));
    state.commit(&commit("3", "small again")).await.unwrap();
    let blobs = DirectoryBlobStore::new(folder.join("blobs"));
    let answer = blobs.put(big.clone().into_bytes()).await;
    assert!(matches!(answer, Err(BlobError::Storage(StorageError::Io { .. }))), "{answer:?}");
    let key = blobs.put(vec![7; 100]).await.unwrap();
    assert_eq!(blobs.get(&key, 100).await.unwrap(), Some(vec![7; 100]));
}

/// Turns are lost, but only those that did not fit, and the agent goes on with what does.
async fn an_agent_without_space(folder: &Path) {
    let model = ScriptedProvider::new([]).allow_prefix_breaks();
    let store = std::sync::Arc::new(JsonlSessionStore::new(folder.join("agent")));
    let agent = agent(&model, &store).build().unwrap();
    model.push(Reply::text("One."));
    agent.run("Short").await.unwrap();
    model.push(Reply::text("x".repeat(100_000)));
    let error = agent.run("Long").await.unwrap_err();
    assert!(matches!(&error.kind, RunErrorKind::Session(error) if is_io(error)), "{error}");
    assert_eq!(error.turns.len(), 2, "what was said is told");
    model.push(Reply::text("Two."));
    agent.run("Short again").await.unwrap();
    same(&agent).await;
    let prompts: Vec<_> = agent.history().iter().map(SessionTurn::text).collect();
    assert_eq!(prompts, ["Short", "One.", "Long", "Short again", "Two."]);
}

/// How many writers a process has, and how much each appends.
const WRITERS: usize = 4;

fn appends(kind: &str) -> u64 {
    if kind == "sqlite" { 500 } else { 150 }
}

/// Appends to one session together with the other process.
pub(crate) async fn write_on(folder: &Path, role: &str) {
    let (kind, process) = role.split_once(' ').unwrap();
    let store: std::sync::Arc<dyn SessionStore> = match kind {
        "jsonl" => std::sync::Arc::new(JsonlSessionStore::new(folder)),
        #[cfg(feature = "sqlite")]
        "sqlite" => std::sync::Arc::new(super::sqlite::open(&folder.join("test.sqlite")).await),
        other => panic!("no such role: {other}"),
    };
    let appends = appends(kind);
    let writers = (0..WRITERS).map(|writer| {
        let (store, own) = (std::sync::Arc::clone(&store), format!("{process}{writer}"));
        tokio::spawn(async move {
            let mut version = store.version(&own).await.unwrap();
            let mut shared = 0;
            for n in 0..appends {
                // A session of its own, and now and then the one that all write.
                version = store.append(&own, version, vec![turn(&n.to_string(), "text")]).await.unwrap();
                if n % 25 == 0 {
                    for _ in 0..10_000 {
                        let entry = turn(&format!("{own}/{n}"), "text");
                        match store.append("shared", shared, vec![entry]).await {
                            Ok(now) => {
                                shared = now;
                                break;
                            }
                            Err(SessionError::Conflict { found, .. }) => shared = found,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

/// Two processes with four writers each: all that was acknowledged is there, once.
pub(crate) fn two_processes(kind: &str, folder: &Path) {
    let children: Vec<_> = ["a", "b"]
        .map(|process| {
            let mut child = child("", &format!("{kind} {process}"), folder);
            child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    for child in children {
        ended_well(&child.wait_with_output().unwrap());
    }
}

pub(crate) async fn all_is_there(kind: &str, store: &dyn SessionStore) {
    let appends = appends(kind);
    let ids = store.list(None, 100).await.unwrap();
    assert_eq!(ids, ["a0", "a1", "a2", "a3", "b0", "b1", "b2", "b3", "shared"]);
    for id in &ids[..8] {
        let found = store.load(id).await.unwrap().unwrap();
        let own: Vec<_> = found.entries.iter().map(|entry| entry.id().to_owned()).collect();
        assert_eq!(own, (0..appends).map(|n| n.to_string()).collect::<Vec<_>>());
    }
    let found = store.load("shared").await.unwrap().unwrap();
    assert_eq!(found.version, 8 * appends.div_ceil(25));
    for id in &ids[..8] {
        let own: Vec<_> = found.entries.iter().filter_map(|entry| entry.id().strip_prefix(&format!("{id}/"))).collect();
        let expected: Vec<_> = (0..appends).step_by(25).map(|n| n.to_string()).collect();
        assert_eq!(own, expected);
    }
}

#[test]
fn two_processes_share_a_folder() {
    let folder = Folder::new("faults");
    two_processes("jsonl", &folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(all_is_there("jsonl", &JsonlSessionStore::new(&*folder)));
}

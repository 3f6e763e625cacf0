//! A process that writes through each store is killed again and again, at points nobody chose. What it was told is
//! stored is there afterwards, all of it makes sense, and the next process goes on from it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "crash/agents.rs"]
mod agents;
#[path = "harness/folder.rs"]
mod folder;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use folder::Folder;
use zidane::session::{
    BlobStore, DirectoryBlobStore, JsonlSessionStore, RepairEntry, ResultEntry, RunEntry, Session, SessionEntry,
    SessionStore, StoredSession, fold,
};
use zidane::tool_state::{JsonToolStateStore, ToolStateCommit, ToolStateOp, ToolStateStore};
use zidane::types::{
    Extra, PendingCall, Role, SessionContentBlock, SessionTurn, Timestamp, ToolCallBlock, ToolResultBlock, ToolStatus,
    TurnOrigin, validate_transcript,
};

const ROLE: &str = "ZIDANE_TEST_CRASH";

/// How often each process is killed: `ZIDANE_TEST_KILLS`, or a few times.
fn kills() -> u64 {
    std::env::var("ZIDANE_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(25)
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Starts a child in a role, kills it after some of its reports, and returns all reports that came out of it.
fn killed(role: &str, folder: &Path, dice: &mut Dice) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "plays_a_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{role}:{}", folder.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut reports = Vec::new();
    for _ in 0..dice.roll(20) {
        let report = lines.by_ref().find_map(report);
        reports.push(report.expect("the child ended by itself"));
    }
    // Somewhere within what it does next.
    let until = Instant::now() + Duration::from_micros(dice.roll(3_000));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    child.kill().unwrap();
    reports.extend(lines.filter_map(report));
    child.wait().unwrap();
    reports
}

fn report(line: String) -> Option<String> {
    line.split_once("stored ").map(|(_, report)| report.to_owned())
}

/// Does nothing, but for a child, which it never lets go.
#[test]
fn plays_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, folder) = role.split_once(':').unwrap();
    run(async {
        let folder = Path::new(folder);
        match role {
            role if role.starts_with("agent") => agents::talk(role, folder).await,
            "blobs" => put_blobs(&DirectoryBlobStore::new(folder)).await,
            "state json" => commit_on(&*tool_state(role, folder).await).await,
            "state sqlite" => commit_on(&*tool_state(role, folder).await).await,
            _ => converse(&*sessions(role, folder).await).await,
        }
    });
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn sessions(role: &str, folder: &Path) -> Arc<dyn SessionStore> {
    match role {
        "jsonl" => Arc::new(JsonlSessionStore::new(folder)),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let database = zidane::sqlite::Database::open(folder.join("test.sqlite")).await.unwrap();
            Arc::new(zidane::session::SqliteSessionStore::new(database))
        }
        other => panic!("no such role: {other}"),
    }
}

async fn tool_state(role: &str, folder: &Path) -> Arc<dyn ToolStateStore> {
    match role {
        "state json" => Arc::new(JsonToolStateStore::new(folder)),
        #[cfg(feature = "sqlite")]
        "state sqlite" => {
            let database = zidane::sqlite::Database::open(folder.join("test.sqlite")).await.unwrap();
            Arc::new(zidane::tool_state::SqliteToolStateStore::new(database))
        }
        other => panic!("no such role: {other}"),
    }
}

fn result(turn: &SessionTurn, call_id: &str, status: ToolStatus) -> SessionEntry {
    let result = ToolResultBlock {
        call_id: call_id.into(),
        name: "look".into(),
        input: None,
        output: "seen ".repeat(200).into(),
        is_error: status.is_error(),
        status,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    };
    SessionEntry::Result(ResultEntry::new(turn.id.as_str(), "run", Timestamp(1), result))
}

/// What settles the calls that a crash left open.
fn repair(session: &Session) -> Vec<SessionEntry> {
    let Some(last) = session.turns.last() else { return Vec::new() };
    let open: Vec<_> = last.pending.iter().map(|pending| pending.call_id.clone()).collect();
    if open.is_empty() {
        return Vec::new();
    }
    let mut entries: Vec<_> = open.iter().map(|call| result(last, call, ToolStatus::Interrupted)).collect();
    entries.push(SessionEntry::Repair(RepairEntry::new(last.id.as_str(), "run", Timestamp(1), open, vec![])));
    entries
}

/// Turns, calls and results without end, as a loop stores them: what is final is appended at once.
async fn converse(store: &dyn SessionStore) {
    let stored = store.load("s").await.unwrap().unwrap_or_default();
    let mut version = stored.version;
    let session = fold("s", stored);
    let mut dice = Dice(version);
    let mut number = session.turns.len();
    let settled = repair(&session);
    if !settled.is_empty() {
        version = store.append("s", version, settled).await.unwrap();
        println!("stored {version}");
    }
    loop {
        let text = "text ".repeat(usize::try_from(dice.roll(5_000)).unwrap());
        let prompt = SessionContentBlock::text(format!("{number}: {text}"));
        let prompt = SessionTurn::new(format!("u{version}"), Role::User, TurnOrigin::Prompt, vec![prompt]);
        let run = RunEntry::start(format!("run{version}"), Timestamp(1));
        version = store.append("s", version, vec![SessionEntry::Run(Box::new(run)), prompt.into()]).await.unwrap();
        println!("stored {version}");
        let calls: Vec<_> = (0..=dice.roll(4)).map(|call| format!("c{call}")).collect();
        let call = |id: &String| ToolCallBlock { id: id.clone(), name: "look".into(), ..ToolCallBlock::default() };
        let content = calls.iter().map(call).map(SessionContentBlock::ToolCall).collect();
        let mut turn = SessionTurn::new(format!("a{version}"), Role::Assistant, TurnOrigin::Model, content);
        turn.pending = calls.iter().map(PendingCall::open).collect();
        version = store.append("s", version, vec![turn.clone().into()]).await.unwrap();
        println!("stored {version}");
        for call in calls.iter().rev() {
            version = store.append("s", version, vec![result(&turn, call, ToolStatus::Ok)]).await.unwrap();
            println!("stored {version}");
        }
        number += 1;
    }
}

fn a_session_survives(role: &str) {
    let folder = Folder::new("crash");
    let mut dice = Dice(role.len() as u64);
    let mut before = StoredSession::default();
    let (mut told, mut open, mut more) = (0, 0, 0);
    for kill in 0..kills() {
        for report in killed(role, &folder, &mut dice) {
            told = report.parse().unwrap();
        }
        let found = run(async { sessions(role, &folder).await.load("s").await }).unwrap().unwrap_or_default();
        assert!(found.version >= told, "kill {kill}: {told} were acknowledged, {} are there", found.version);
        more += u64::from(found.version > told);
        assert_eq!(found.version, found.entries.len() as u64);
        assert_eq!(found.entries[..before.entries.len()], before.entries, "kill {kill}: the past is as it was");
        before = found.clone();
        let mut session = fold("s", found.clone());
        assert!(session.notes.is_empty(), "{:?}", session.notes);
        let mut entries = found.entries;
        entries.extend(repair(&session));
        open += u64::from(entries.len() as u64 > before.version);
        session = fold("s", StoredSession::new(entries));
        validate_transcript(session.turns.iter().map(|turn| &***turn)).unwrap();
        assert!(session.open.is_empty());
    }
    eprintln!("{role}: {} entries, {open} kills among open calls, {more} after an unheard answer", before.version);
    assert!(before.version > kills() && open > 0, "the kills fell everywhere");
}

#[test]
fn session_files_survive_kills() {
    a_session_survives("jsonl");
}

#[test]
#[cfg(feature = "sqlite")]
fn sessions_in_sqlite_survive_kills() {
    a_session_survives("sqlite");
}

/// Commit `n` writes `n` under two keys, one of them its own remainder's.
async fn commit_on(store: &dyn ToolStateStore) {
    let found = store.load("s").await.unwrap();
    let mut number = found.get("n").and_then(|value| value.as_u64()).unwrap_or_default();
    // Handed in once more, as a run does that does not know whether it came through.
    for again in number.saturating_sub(3)..number {
        store.commit(&commit(again)).await.unwrap();
    }
    loop {
        number += 1;
        store.commit(&commit(number)).await.unwrap();
        println!("stored {number}");
    }
}

fn commit(number: u64) -> ToolStateCommit {
    let large = "x".repeat(usize::try_from(number % 5 * 10_000).unwrap());
    let ops = vec![
        ToolStateOp::set("n", number),
        ToolStateOp::set("large", large),
        ToolStateOp::set(format!("k{}", number % 7), number),
    ];
    ToolStateCommit::new("s", number.to_string(), "run", "call", ops)
}

fn tool_state_survives(role: &str) {
    let folder = Folder::new("crash");
    let mut dice = Dice(role.len() as u64);
    let mut told = 0;
    for kill in 0..kills() {
        for report in killed(role, &folder, &mut dice) {
            told = report.parse().unwrap();
        }
        let found = run(async { tool_state(role, &folder).await.load("s").await }).unwrap();
        let number = |key: &str| found.get(key).and_then(|value| value.as_u64()).unwrap_or_default();
        let n = number("n");
        assert!(n == told || n == told + 1, "kill {kill}: {told} was acknowledged, {n} is there");
        let large = found.get("large").and_then(|value| value.as_str()).map_or(0, str::len);
        assert_eq!(large as u64, n % 5 * 10_000, "kill {kill}: a part of a commit");
        for key in 0..7 {
            let expected = (1..=n).rev().find(|n| n % 7 == key).unwrap_or_default();
            assert_eq!(number(&format!("k{key}")), expected, "kill {kill}: a part of a commit");
        }
    }
    assert!(told > kills(), "the child got on");
}

#[test]
fn tool_state_files_survive_kills() {
    tool_state_survives("state json");
}

#[test]
#[cfg(feature = "sqlite")]
fn tool_state_in_sqlite_survives_kills() {
    tool_state_survives("state sqlite");
}

fn blob(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(usize::try_from(number % 4_000 + 1).unwrap())
}

async fn put_blobs(store: &DirectoryBlobStore) {
    let mut dice = Dice(u64::from(std::process::id()));
    loop {
        let number = dice.roll(1_000_000);
        let key = store.put(blob(number)).await.unwrap();
        println!("stored {number} {key}");
    }
}

#[test]
fn blobs_survive_kills() {
    let folder = Folder::new("crash");
    let store = DirectoryBlobStore::new(&*folder);
    let mut dice = Dice(5);
    let mut known = Vec::new();
    for _ in 0..kills() {
        for report in killed("blobs", &folder, &mut dice) {
            let (number, key) = report.split_once(' ').unwrap();
            known.push((number.parse().unwrap(), key.to_owned()));
        }
        run(async {
            for (number, key) in &known {
                assert_eq!(store.get(key, 1 << 20).await.unwrap(), Some(blob(*number)));
            }
        });
    }
    assert!(known.len() > 50);
    // What a kill left half-written is bounded, and nobody takes it for a blob.
    let mut folders: Vec<_> = std::fs::read_dir(&*folder).unwrap().map(|found| found.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    for file in folders.iter().flat_map(|path| std::fs::read_dir(path).unwrap()) {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "blob") {
            let key = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert!(run(store.get(&key, 1 << 20)).unwrap().is_some(), "{key}: a whole blob or none");
        }
    }
}

//! A process whose agent runs on a journal in SQLite is killed again and again, at points nobody chose, and goes on each
//! time: nothing that was on record is done again, each commit is made once, and a run has one end.
//!
//! `ZIDANE_TEST_KILLS` says how often; 50 times where it says nothing.
#![cfg(all(unix, feature = "sqlite"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/folder.rs"]
mod folder;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use folder::Folder;
use rusqlite::Connection;
use serde_json::json;
use uuid::Uuid;
use zidane::agent::ToolExecution;
use zidane::durable::{SqliteDurable, StepKind, StepRecord};
use zidane::hooks::{ToolGate, TurnBefore};
use zidane::session::{SessionEntry, SessionStore, SqliteSessionStore, fold};
use zidane::sqlite::Database;
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool::{Concurrency, NoInput, Repeat, ToolContext, ToolFn, tool_fn};
use zidane::tool_state::{SqliteToolStateStore, ToolStateStore};
use zidane::types::{ToolStatus, tool_result_to_text};
use zidane::{Agent, RunError};

const ROLE: &str = "ZIDANE_TEST_DURABLE_KILL";

fn kills() -> usize {
    std::env::var("ZIDANE_TEST_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(50)
}

/// What is done, noted before it is done, where a kill does not reach it.
#[derive(Clone)]
struct Log(Arc<Mutex<File>>);

impl Log {
    fn open(folder: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(folder.join("log")).unwrap();
        Self(Arc::new(Mutex::new(file)))
    }

    fn add(&self, line: String) {
        // One call of the system: a line is there as a whole or not at all.
        self.0.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Values that nobody can foresee, so that a body that ran again would be noticed.
fn something() -> String {
    Uuid::new_v4().simple().to_string()
}

fn replies() -> Vec<Reply> {
    let none = || json!({});
    vec![
        Reply::text(something())
            .and_call("look", none())
            .and_call("look", none())
            .and_call("look", none())
            .and_call("charge", none())
            .and_call("count", none()),
        Reply::call("count", none()).and_call("look", none()).and_call("count", none()),
        Reply::text(something()),
    ]
}

fn tools(log: &Log) -> Vec<ToolFn> {
    let begin = |log: &Log| {
        let log = log.clone();
        move |cx: &ToolContext| {
            log.add(format!("begin {} {}", cx.run_id(), cx.call_id()));
        }
    };
    let (look, charge, count) = (begin(log), begin(log), begin(log));
    let made = log.clone();
    vec![
        tool_fn("look", "Looks", move |_: NoInput, cx: ToolContext| {
            look(&cx);
            let made = made.clone();
            async move {
                let value = something();
                tokio::time::sleep(Duration::from_micros(u64::from(value.as_bytes()[0]) * 60)).await;
                made.add(format!("value {} {value}", cx.run_id()));
                Ok(format!("seen {value}"))
            }
        })
        .repeat(Repeat::Safe)
        .concurrency(Concurrency::Shared),
        tool_fn("charge", "Charges", move |_: NoInput, cx: ToolContext| {
            charge(&cx);
            async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok("charged")
            }
        }),
        tool_fn("count", "Counts", move |_: NoInput, cx: ToolContext| {
            count(&cx);
            async move {
                let next = cx.state().get("n").and_then(|n| n.as_u64()).unwrap_or_default() + 1;
                cx.state().set("n", next)?;
                Ok(format!("counted {next}"))
            }
        })
        .repeat(Repeat::Safe)
        .concurrency(Concurrency::Exclusive),
    ]
}

/// Runs a run to its end, from where it is.
async fn go_on(folder: &Path, number: usize, log: &Log) -> Result<String, RunError> {
    let run_id = format!("r{number}");
    let asked = journal(folder).get(&run_id).into_iter().flatten().filter(|r| r.key.kind == StepKind::Model).count();
    let model = ScriptedProvider::new(replies());
    model.skip(asked);
    let database = Database::open(folder.join("test.sqlite")).await.unwrap();
    let mut builder = Agent::builder()
        .provider(model)
        .model("test")
        .session_id(format!("s{number}"))
        .session_store(SqliteSessionStore::new(database.clone()))
        .tool_state(SqliteToolStateStore::new(database.clone()))
        .tool_execution(ToolExecution::Parallel)
        .durable(Arc::new(SqliteDurable::new(database)));
    for tool in tools(log) {
        builder = builder.tool(tool);
    }
    let agent = builder.build().unwrap();
    let (turns, gates, id) = (log.clone(), log.clone(), run_id.clone());
    agent.hooks().on::<TurnBefore>(move |cx| turns.add(format!("begin {id} t{}", cx.number())));
    let id = run_id.clone();
    agent.hooks().on::<ToolGate>(move |cx| gates.add(format!("begin {id} gate/{}", cx.call_id())));
    let outcome = agent.run("Go").run_id(run_id).await?;
    validate_transcript(agent.history().iter()).unwrap();
    let session = serde_json::to_string(&agent.history().iter().collect::<Vec<_>>()).unwrap();
    Ok(format!("{} {session}", outcome.text))
}

/// Does nothing, but for a child, which goes from run to run until it is killed.
#[test]
fn plays_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (sabotage, folder) = role.split_once(':').unwrap();
    let folder = Path::new(folder);
    let log = Log::open(folder);
    spoil(folder, sabotage);
    // What came to its end last is run once more.
    let mut number = finals(&lines(folder)).len().saturating_sub(1);
    println!("\nbegun");
    run(async {
        loop {
            match go_on(folder, number, &log).await {
                Ok(end) => log.add(format!("final r{number} {end}")),
                Err(error) => {
                    log.add(format!("failed r{number} {error}"));
                    break;
                }
            }
            number += 1;
        }
    });
}

/// What an engine would do that does not keep its promises.
fn spoil(folder: &Path, sabotage: &str) {
    let sql = match sabotage {
        "" => return,
        "forgets tools" => "DELETE FROM zidane_durable_steps WHERE record LIKE '%\"kind\":\"tool\"%'",
        "forgets the last" => {
            "DELETE FROM zidane_durable_steps WHERE number IN (SELECT max(number) FROM zidane_durable_steps GROUP BY run)"
        }
        "changes results" => "UPDATE zidane_durable_steps SET record = replace(record, 'seen ', 'seen again ')",
        other => panic!("no such sabotage: {other}"),
    };
    let path = folder.join("test.sqlite");
    if path.exists() {
        // Where there is no such table yet there is nothing to spoil.
        let _ = Connection::open(path).unwrap().execute(sql, []);
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Every run's records, as the file has them.
fn journal(folder: &Path) -> BTreeMap<String, Vec<StepRecord>> {
    let mut found: BTreeMap<String, Vec<StepRecord>> = BTreeMap::new();
    let connection = Connection::open(folder.join("test.sqlite")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    let Ok(mut statement) = connection.prepare(
        "SELECT runs.id, record FROM zidane_durable_steps JOIN zidane_durable_runs runs ON run = runs.number
         ORDER BY zidane_durable_steps.number",
    ) else {
        return found;
    };
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).unwrap();
    for (run, record) in rows.map(Result::unwrap) {
        found.entry(run).or_default().push(serde_json::from_str(&record).unwrap());
    }
    found
}

fn lines(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn finals(lines: &[String]) -> BTreeMap<String, BTreeSet<String>> {
    let mut finals: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for end in lines.iter().filter_map(|line| line.strip_prefix("final ")) {
        let (run, end) = end.split_once(' ').unwrap();
        finals.entry(run.to_owned()).or_default().insert(end.to_owned());
    }
    finals
}

/// What a body calls itself in the log, by its record.
fn logged(record: &StepRecord) -> Option<String> {
    let parts: Vec<_> = record.key.name.split('/').collect();
    match record.key.kind {
        StepKind::Model => Some(parts[0].to_owned()),
        StepKind::Tool => Some(parts[2].to_owned()),
        _ => None,
    }
}

#[derive(Default)]
struct Report {
    violations: Vec<String>,
    /// How many records the run under way had at each kill.
    depths: Vec<usize>,
    twice: usize,
    runs: usize,
    unknown: usize,
}

fn killed_and_gone_on(kills: usize, sabotage: &str) -> Report {
    let folder = Folder::new("durable-kill");
    let mut report = Report::default();
    let mut seed = u64::from(std::process::id());
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    let mut read = 0;
    let mut sessions: BTreeMap<String, Vec<SessionEntry>> = BTreeMap::new();
    let mut begun: BTreeMap<(String, String), usize> = BTreeMap::new();
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "plays_a_role", "--nocapture", "--test-threads=1"])
            .env(ROLE, format!("{sabotage}:{}", folder.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line == "begun"), "the child did not begin");
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Anywhere within what it does next.
        std::thread::sleep(Duration::from_micros((seed >> 33) % 300_000));
        child.kill().unwrap();
        child.wait().unwrap();

        let all = lines(&folder);
        let mut attempt = BTreeSet::new();
        for line in &all[read..] {
            let words: Vec<_> = line.splitn(3, ' ').collect();
            let step = || (words[1].to_owned(), words[2].to_owned());
            match words[0] {
                "begin" => {
                    *begun.entry(step()).or_default() += 1;
                    if known.contains(&step()) {
                        report.violations.push(format!("kill {kill}: on record and done again: {line}"));
                    }
                    // A gate may be asked once more about an input that another one changed; none does here.
                    if !attempt.insert(step()) {
                        report.violations.push(format!("kill {kill}: done twice in one attempt: {line}"));
                    }
                }
                "failed" => report.violations.push(format!("kill {kill}: {line}")),
                _ => {}
            }
        }
        read = all.len();
        let journal = journal(&folder);
        let ended = finals(&all);
        known.clear();
        for (run, records) in &journal {
            for record in records {
                known.extend(logged(record).map(|name| (run.clone(), name)));
                if record.key.kind == StepKind::Tool {
                    known.extend(logged(record).map(|name| (run.clone(), format!("gate/{name}"))));
                }
            }
            if !ended.contains_key(run) {
                report.depths.push(records.len());
            }
        }
        run(async {
            let store = SqliteSessionStore::new(Database::open(folder.join("test.sqlite")).await.unwrap());
            for id in store.list(None, 10_000).await.unwrap() {
                let found = store.load(&id).await.unwrap().unwrap().entries;
                let before = sessions.insert(id.clone(), found.clone()).unwrap_or_default();
                if found.len() < before.len() || found[..before.len()] != before {
                    report.violations.push(format!("kill {kill}: the past of session {id} is another"));
                }
            }
        });
    }
    run(judge(&folder, &begun, &mut report));
    report
}

/// What must hold of the runs that came to their end.
async fn judge(folder: &Folder, begun: &BTreeMap<(String, String), usize>, report: &mut Report) {
    let all = lines(folder);
    let values: BTreeSet<_> = all.iter().filter(|line| line.starts_with("value ")).cloned().collect();
    let database = Database::open(folder.join("test.sqlite")).await.unwrap();
    let (sessions, state) = (SqliteSessionStore::new(database.clone()), SqliteToolStateStore::new(database));
    report.twice = begun.values().filter(|times| **times > 1).count();
    for (run, ends) in finals(&all) {
        report.runs += 1;
        let number: usize = run[1..].parse().unwrap();
        if ends.len() != 1 {
            report.violations.push(format!("{run} has {} ends", ends.len()));
        }
        let session = fold("s", sessions.load(&format!("s{number}")).await.unwrap().unwrap());
        let results: Vec<_> = session.turns.iter().flat_map(|turn| turn.tool_results()).collect();
        let mut counted = Vec::new();
        for result in &results {
            let text = tool_result_to_text(&result.output).into_owned();
            let times = begun.get(&(run.clone(), result.call_id.clone())).copied().unwrap_or_default();
            let fine = match (result.name.as_str(), result.status) {
                ("look", ToolStatus::Ok) => {
                    text.strip_prefix("seen ").is_some_and(|value| values.contains(&format!("value {run} {value}")))
                }
                ("charge", ToolStatus::Ok) => times == 1,
                ("charge", ToolStatus::Interrupted) => {
                    report.unknown += 1;
                    times <= 1
                }
                ("count", ToolStatus::Ok) => {
                    counted.push(text.clone());
                    true
                }
                _ => false,
            };
            if !fine {
                report
                    .violations
                    .push(format!("{run}: {} {:?} after {times} bodies: {text}", result.name, result.status));
            }
        }
        let n = state.load(&format!("s{number}")).await.unwrap().get("n").and_then(|n| n.as_u64());
        if results.len() != 8 || counted != ["counted 1", "counted 2", "counted 3"] || n != Some(3) {
            report.violations.push(format!("{run}: {} results, {counted:?}, {n:?} in the state", results.len()));
        }
        // Read once more it is the same, and nothing is done.
        if report.violations.is_empty() {
            let log = Log::open(folder);
            match go_on(folder, number, &log).await {
                Ok(end) if ends.contains(&end) => {}
                other => report.violations.push(format!("{run} replayed came to {other:?}")),
            }
        }
    }
    let more = lines(folder);
    report.violations.extend(more[all.len()..].iter().map(|line| format!("done in a replay: {line}")));
}

#[test]
fn runs_go_on_after_kills() {
    let (kills, started) = (kills(), Instant::now());
    let report = killed_and_gone_on(kills, "");
    let spread: BTreeSet<_> = report.depths.iter().collect();
    eprintln!(
        "{kills} kills, {} runs, {} in mid-run with {spread:?} records, {} bodies begun more than once, {} calls of \
         unknown outcome, {:?}",
        report.runs,
        report.depths.len(),
        report.twice,
        report.unknown,
        started.elapsed()
    );
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.runs > 3 && report.depths.len() > kills / 4 && spread.len() > 5, "the kills fell everywhere");
}

#[test]
fn an_engine_that_forgets_or_changes_records_is_found_out() {
    for sabotage in ["forgets tools", "forgets the last", "changes results"] {
        let report = killed_and_gone_on(15, sabotage);
        eprintln!("{sabotage}: {} violations", report.violations.len());
        assert!(!report.violations.is_empty(), "{sabotage} passes");
    }
}

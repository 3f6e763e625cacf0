//! How much memory idle agents take, each with a session of its own in a store that they share.
//!
//! ```text
//! cargo run --release --example bench_idle -- 1000 memory|jsonl|none [RUNS]
//! ```
//!
//! Prints one line of JSON: bytes per agent when it is built, and after it has run. In memory the sessions themselves are
//! counted too.

#[path = "../../benches/support/model.rs"]
mod model;

use std::error::Error;
use std::sync::Arc;

use serde_json::json;
use zidane::Agent;
use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionStore};

use self::model::Model;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let count: u64 = args.next().map_or(Ok(1_000), |count| count.parse())?;
    let kind = args.next().unwrap_or_else(|| "jsonl".to_owned());
    let runs: u64 = args.next().map_or(Ok(1), |runs| runs.parse())?;
    let folder = std::env::temp_dir().join(format!("zidane-idle-{}", std::process::id()));
    let store: Option<Arc<dyn SessionStore>> = match kind.as_str() {
        "none" => None,
        "memory" => Some(Arc::new(MemorySessionStore::new())),
        "jsonl" => Some(Arc::new(JsonlSessionStore::new(&folder))),
        other => return Err(format!("no such store: {other}").into()),
    };
    let before = resident()?;
    let mut agents = Vec::new();
    for number in 0..count {
        let mut builder = Agent::builder().provider(Model { turns: 0, calls: 0, deltas: 1 }).model("m");
        builder = builder.session_id(format!("session-{number}"));
        if let Some(store) = &store {
            builder = builder.session_store(Arc::clone(store));
        }
        agents.push(builder.build()?);
    }
    let built = resident()?;
    for agent in &agents {
        for _ in 0..runs {
            agent.run("Go").await?;
        }
    }
    let ran = resident()?;
    let each = |now: u64| now.saturating_sub(before) * 1024 / count.max(1);
    let line = json!({ "agents": count, "store": kind, "runs": runs, "built": each(built), "ran": each(ran) });
    println!("{line}");
    drop(agents);
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

/// What the process has in memory, in kilobytes.
fn resident() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

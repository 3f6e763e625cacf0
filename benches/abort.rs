//! How long an abort takes with a tool that ignores its token: from `abort()` to the outcome. The grace is a part of it.
//!
//! `cargo bench --bench abort`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::tool_fn_value;
use zidane::{Agent, StopCause};

const RUNS: usize = 300;
const GRACE: Duration = Duration::from_millis(20);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut times = runtime.block_on(async {
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            times.push(abort_once().await);
        }
        times
    });
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    println!(
        "abort with a deaf tool, {RUNS} runs, grace {GRACE:?}: p50 {:?}, p99 {:?}, max {:?}",
        at(50),
        at(99),
        at(100)
    );
}

async fn abort_once() -> Duration {
    let (started, running) = tokio::sync::oneshot::channel();
    let started = std::sync::Mutex::new(Some(started));
    let deaf = tool_fn_value("deaf", "Never ends", json!({"type": "object"}), move |_: Value, _cx| {
        let started = started.lock().unwrap().take();
        async move {
            let _ = started.map(|started| started.send(()));
            std::future::pending::<()>().await;
            Ok("")
        }
    });
    let agent = Agent::builder()
        .provider(ScriptedProvider::new([Reply::call("deaf", json!({}))]))
        .model("test")
        .tool(deaf)
        .cancel_grace(GRACE)
        .build()
        .unwrap();
    let run = tokio::spawn(agent.run("Go"));
    running.await.unwrap();
    let aborted = Instant::now();
    agent.abort();
    let outcome = run.await.unwrap().unwrap();
    assert_eq!(outcome.stop, StopCause::Aborted);
    aborted.elapsed()
}

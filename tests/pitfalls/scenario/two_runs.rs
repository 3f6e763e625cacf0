//! A tool that blocks its thread, while another run on the same runtime streams.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;
use zidane::provider::StreamEvent;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::{Agent, AgentEvent};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::Script;
use super::action::{Action, Do};
use super::host::Host;
use super::log::Log;

/// A busy machine may delay anything; a blocked runtime does it each time.
const TRIES: usize = 3;

pub fn judge(case: &mut Fields<'_>, script: &Script<'_>, actions: &[Action], findings: &mut Findings) {
    match case.text("runtime") {
        None | Some("current_thread") => {}
        Some(other) => return findings.need(format!("an adapter for the runtime `{other}`")),
    }
    let [Action { what: Do::SecondRun(pause), .. }] = actions else {
        return findings.need("an adapter for a second run beside other actions");
    };
    let mut expect = Fields::new("expect", script.expect);
    let limit = expect.number("largest_gap_ms").map(Duration::from_millis);
    expect.finish(findings);
    let Some(limit) = limit else { return };
    let mut smallest = Duration::MAX;
    for _ in 0..TRIES {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let gap = runtime.block_on(async {
            let mut host = Host::new(script, &[], findings)?;
            let (first, gap) = tokio::join!(host.run("Go"), largest_gap(*pause));
            Some((first.result.as_ref().is_some_and(Result::is_ok), gap, Arc::clone(&host.log)))
        });
        let Some((ok, gap, log)) = gap else { return };
        findings.ensure(ok, || "the run with the blocking tool failed".to_owned());
        findings.ensure(blocked(&log), || "the tool did not block for longer than the gap may be".to_owned());
        smallest = smallest.min(gap);
        if smallest <= limit {
            break;
        }
    }
    findings.ensure(smallest <= limit, || format!("the other run stood still for {smallest:?}, not at most {limit:?}"));
}

fn blocked(log: &Log) -> bool {
    let spans = log.entries().spans;
    spans.iter().any(|span| span.end.is_some_and(|end| end - span.start >= Duration::from_millis(150)))
}

async fn largest_gap(pause: Duration) -> Duration {
    let mut reply = Reply::empty();
    for _ in 0..50 {
        reply = reply.event(StreamEvent::Text { block: 0, delta: "x".into() }).pause(pause);
    }
    let agent = Agent::builder().provider(ScriptedProvider::new([reply])).model("test").build().unwrap();
    let mut stream = agent.run("Go").stream();
    let (mut largest, mut last) = (Duration::ZERO, Instant::now());
    while let Some(event) = stream.next().await {
        if let AgentEvent::Text { .. } = event {
            largest = largest.max(last.elapsed());
            last = Instant::now();
        }
    }
    largest
}

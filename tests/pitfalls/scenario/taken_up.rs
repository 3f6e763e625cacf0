//! A durable run that is killed at a certain moment and taken up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;
use zidane::Agent;
use zidane::agent::ToolExecution;
use zidane::durable::{
    DurableError, DurableRun, DurableRuntime, MemoryDurable, Planned, StepError, StepKind, StepRecord, Work,
};
use zidane::hooks::ToolAfter;
use zidane::testing::ScriptedProvider;
use zidane::types::{ToolResultBlock, ToolStatus, tool_result_to_text, validate_transcript};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::log::Log;
use super::{Script, behaviour, model};

/// Where a process is killed.
#[derive(Clone, Debug, PartialEq)]
enum Kill {
    BeforeIntent,
    AfterIntent,
    AfterEffect,
    AfterOutcome,
    /// The results of these calls are on record, and no other.
    AfterOutcomes(BTreeSet<String>),
}

fn kill_of(text: &str) -> Option<Kill> {
    Some(match text {
        "before intent" => Kill::BeforeIntent,
        "after intent" => Kill::AfterIntent,
        "after effect" => Kill::AfterEffect,
        "after outcome" => Kill::AfterOutcome,
        _ => Kill::AfterOutcomes(text.strip_prefix("after outcomes ")?.split(',').map(str::to_owned).collect()),
    })
}

pub fn judge(case: &mut Fields<'_>, script: &Script<'_>, findings: &mut Findings) {
    let (mut kills, mut sequential) = (Vec::new(), None);
    for action in case.list("actions") {
        let mut action = Fields::new("actions", action);
        match (action.text("do"), action.text("at"), action.text("mode")) {
            (Some("kill"), Some(at), None) if kill_of(at).is_some() => kills.extend(kill_of(at).map(|kill| (at, kill))),
            (Some("replay"), None, Some("sequential")) => sequential = Some(true),
            other => findings.need(format!("an adapter for the action {other:?}")),
        }
        action.finish(findings);
    }
    for (name, kill) in kills {
        findings.at(name);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let Some(played) = play(script, &kill, sequential.is_some(), findings).await else { return };
            let mut expect = Fields::new("expect", script.expect);
            compare(name, &played, &mut expect, findings);
            expect.finish(findings);
        });
    }
    findings.at("");
}

struct Played {
    /// Both processes'.
    effects: usize,
    /// Calls whose bodies began in the second.
    executed: Vec<String>,
    results: Vec<ToolResultBlock>,
}

async fn play(script: &Script<'_>, kill: &Kill, sequential: bool, findings: &mut Findings) -> Option<Played> {
    let durable = MemoryDurable::new();
    let log = Arc::<Log>::default();
    let stop = Arc::new(Stop { inner: durable.clone(), kill: kill.clone() });
    let mode = if script.options.parallel { ToolExecution::Parallel } else { ToolExecution::Sequential };
    let (first, asked) = agent(script, stop, mode, &log, findings)?;
    let outcomes = Arc::<Notify>::default();
    if let Kill::AfterOutcomes(calls) = kill {
        let (left, outcomes) = (std::sync::Mutex::new(calls.clone()), Arc::clone(&outcomes));
        first.hooks().on::<ToolAfter>(move |cx| {
            let mut left = left.lock().unwrap();
            if left.remove(cx.call_id()) && left.is_empty() {
                outcomes.notify_one();
            }
        });
    }
    tokio::select! {
        ended = first.run("Go").run_id("run") => {
            findings.ensure(ended.is_err(), || "the first process was not killed".to_owned());
        }
        () = outcomes.notified() => {}
    }
    drop(first);
    let before = log.entries();
    let mode = if sequential { ToolExecution::Sequential } else { mode };
    let (second, model) = agent(script, Arc::new(durable), mode, &log, findings)?;
    model.skip(asked.requests().len());
    if let Err(error) = second.run("Go").run_id("run").await {
        findings.wrong(format!("the run could not be taken up: {error}"));
    }
    if let Err(error) = validate_transcript(second.history().iter()) {
        findings.wrong(format!("the conversation is broken: {error}"));
    }
    let after = log.entries();
    Some(Played {
        effects: after.effects,
        executed: after.spans[before.spans.len()..].iter().map(|span| span.call.clone()).collect(),
        results: second.history().iter().flat_map(|turn| turn.tool_results().cloned().collect::<Vec<_>>()).collect(),
    })
}

fn agent(
    script: &Script<'_>,
    durable: Arc<dyn DurableRuntime>,
    mode: ToolExecution,
    log: &Arc<Log>,
    findings: &mut Findings,
) -> Option<(Agent, ScriptedProvider)> {
    let model = ScriptedProvider::new(model::replies(script.model, findings));
    let mut builder = Agent::builder().provider(model.clone()).model("test").tool_execution(mode).durable(durable);
    for tool in behaviour::tools(script.tools, log, findings)? {
        builder = builder.tool(tool);
    }
    Some((builder.build().unwrap(), model))
}

fn compare(kill: &str, played: &Played, expect: &mut Fields<'_>, findings: &mut Findings) {
    if let Some(mut effects) = expect.object("effects") {
        let uncertain = played.results.iter().any(|result| result.status == ToolStatus::Interrupted);
        let got = match uncertain {
            true => json!(format!("{} and reported uncertain", played.effects)),
            false => json!(played.effects),
        };
        findings.equal("effects", effects.take(kill).unwrap_or(&Value::Null), &got);
        // The other moments are compared when they are played.
        effects.skip();
    }
    if let Some(never) = expect.text("never") {
        match never.strip_suffix(" effects").and_then(|count| count.parse().ok()) {
            Some(count) => findings.ensure(played.effects < count, || format!("{} effects", played.effects)),
            None => findings.need(format!("an adapter for never `{never}`")),
        }
    }
    if let Some(expected) = expect.take("executed_on_replay") {
        findings.equal("executed on replay", expected, &json!(played.executed));
    }
    if let Some(expected) = expect.take("results_order") {
        let order: Vec<_> = played.results.iter().map(|result| &result.call_id).collect();
        findings.equal("order of results", expected, &json!(order));
    }
    if let Some(expected) = expect.take("outputs") {
        let outputs: Vec<_> = played.results.iter().map(|r| tool_result_to_text(&r.output).into_owned()).collect();
        findings.equal("outputs", expected, &json!(outputs));
    }
}

/// An engine whose process ends where the case says.
struct Stop {
    inner: MemoryDurable,
    kill: Kill,
}

struct Stopping {
    inner: Arc<dyn DurableRun>,
    kill: Kill,
    called: AtomicBool,
}

impl DurableRuntime for Stop {
    fn attach(&self, run_id: &str, parent: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let (run_id, parent) = (run_id.to_owned(), parent.map(str::to_owned));
        Box::pin(async move {
            let inner = self.inner.attach(&run_id, parent.as_deref()).await?;
            Ok(Arc::new(Stopping { inner, kill: self.kill.clone(), called: AtomicBool::new(false) }) as _)
        })
    }
}

impl DurableRun for Stopping {
    fn run_id(&self) -> &str {
        self.inner.run_id()
    }

    fn perform(&self, mut batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>> {
        let is = |kind| batch.first().is_some_and(|planned| planned.key.kind == kind);
        let ended = match self.kill {
            Kill::BeforeIntent => is(StepKind::Gate),
            Kill::AfterIntent => is(StepKind::Tool),
            Kill::AfterOutcome => self.called.load(Ordering::Relaxed),
            Kill::AfterEffect | Kill::AfterOutcomes(_) => false,
        };
        if ended {
            return Box::pin(async { Err(DurableError::Interrupted { run_id: self.run_id().to_owned() }) });
        }
        if is(StepKind::Tool) {
            self.called.store(true, Ordering::Relaxed);
            if self.kill == Kill::AfterEffect {
                batch = batch.into_iter().map(unrecorded).collect();
            }
        }
        self.inner.perform(batch)
    }

    fn uuid(&self) -> Uuid {
        self.inner.uuid()
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        self.inner.finish()
    }
}

/// The body runs, and the process ends before its record.
fn unrecorded(planned: Planned) -> Planned {
    let Planned { key, work: Work::Step(body), .. } = planned else { panic!("a step with a body") };
    Planned::new(
        key,
        Box::new(|cx| {
            Box::pin(async move {
                drop(body(cx).await);
                Err(StepError::Interrupted)
            })
        }),
    )
}

#[test]
fn kills_are_read() {
    assert_eq!(kill_of("after effect"), Some(Kill::AfterEffect));
    let calls = ["c2".to_owned(), "c3".to_owned()];
    assert_eq!(kill_of("after outcomes c2,c3"), Some(Kill::AfterOutcomes(calls.into())));
    assert_eq!(kill_of("some day"), None);
}

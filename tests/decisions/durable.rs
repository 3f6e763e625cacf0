//! Decisions of durable runs: on record with the step that they are a part of, and not made again on a replay.

use std::sync::Arc;

use serde_json::json;
use zidane::decision::{Decider, Question};
use zidane::hooks::{ToolGate, TurnAfter, TurnBefore};
use zidane::testing::{Reply, ScriptedProvider, StepJournal};
use zidane::tool::{NoInput, ToolContext, tool_fn};
use zidane::{Agent, RunOutcome, StopCause};

use super::ask::yes_or_no;

fn answer() -> Reply {
    Reply::text(r#"{"ok": true}"#)
}

/// A run that decides before it, in the request, in the gate, in the tool and in an observer.
fn agent(journal: StepJournal, judge: &ScriptedProvider, skip: usize) -> Agent {
    let model = ScriptedProvider::new([Reply::call("check", json!({})), Reply::text("Done")]);
    model.skip(skip);
    let tool = tool_fn("check", "Checks", |_: NoInput, cx: ToolContext| async move {
        Ok(format!("{:?}", cx.decide("In the tool", yes_or_no()).await.map(|answers| answers.bool("ok"))))
    });
    let agent = Agent::builder()
        .provider(model)
        .model("m")
        .session_id("s")
        .decider(Decider::of_model(judge.clone(), "small"))
        .durable(Arc::new(journal))
        .tool(tool)
        .build()
        .unwrap();
    agent
        .hooks()
        .on_async::<TurnBefore>(|cx| Box::pin(async move { drop(cx.decide("In the request", yes_or_no()).await) }));
    agent.hooks().on_async::<ToolGate>(|cx| {
        Box::pin(async move {
            let decision = cx.decide("In the gate", [Question::bool("ok", "Is it?")]).await;
            if !decision.is_ok_and(|answers| answers.is_yes("ok", 0.5)) {
                cx.block("no");
            }
        })
    });
    agent
        .hooks()
        .on_async::<TurnAfter>(|cx| Box::pin(async move { drop(cx.decide("In an observer", yes_or_no()).await) }));
    agent
}

async fn run(agent: &Agent) -> RunOutcome {
    let outcome = agent.run("Go").run_id("r").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    outcome
}

#[tokio::test]
async fn a_replay_makes_no_decision_again_and_has_the_same_usage() {
    let journal = StepJournal::new();
    let judge = ScriptedProvider::repeating(answer()).allow_prefix_breaks();
    let first = agent(journal.clone(), &judge, 0);
    first.decide("Before", yes_or_no()).await.unwrap();
    let live = run(&first).await;
    // Before, two requests, a gate, a tool, two observers.
    assert_eq!((judge.requests().len(), live.stats.decisions.len()), (7, 7));

    let silent = ScriptedProvider::new([]);
    let second = agent(journal.clone(), &silent, 2);
    let replayed = run(&second).await;
    assert!(silent.requests().is_empty(), "a replay asks nobody");
    assert_eq!(replayed.stats.decisions, live.stats.decisions);
    assert_eq!(replayed.stats.totals(), live.stats.totals());
    let text = |outcome: &RunOutcome| {
        format!("{:?}", outcome.turns.iter().map(|turn| turn.content.clone()).collect::<Vec<_>>())
    };
    assert_eq!(text(&replayed), text(&live));
}

#[tokio::test]
async fn a_run_that_is_taken_up_anywhere_decides_only_what_is_not_on_record() {
    let whole = StepJournal::new();
    let judge = ScriptedProvider::repeating(answer()).allow_prefix_breaks();
    let live = run(&agent(whole.clone(), &judge, 0)).await;
    let keys = whole.keys("r");
    for records in 0..=keys.len() {
        let models = keys.iter().take(records).filter(|key| key.name.ends_with("/model")).count();
        let judge = ScriptedProvider::repeating(answer()).allow_prefix_breaks();
        let outcome = run(&agent(whole.prefix(records), &judge, models)).await;
        assert_eq!(outcome.text, live.text, "after {records} records");
        let gates = keys.iter().skip(records).filter(|key| key.name.contains("/gate/")).count();
        let asked = judge
            .requests()
            .iter()
            .filter(|request| request.turns.iter().any(|turn| turn.text().contains("In the gate")))
            .count();
        assert_eq!(asked, gates, "after {records} records");
    }
}

//! Decisions of agents: in tools, in gates, beside runs; what they used is in the tree of a run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use zidane::agent::Limits;
use zidane::decision::{Decider, DecisionFailureReason as Reason, Question};
use zidane::hooks::{AgentDone, DecisionAfter, ToolGate, TurnBefore};
use zidane::provider::{PriceBook, Rates};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider};
use zidane::tool::{NoInput, Tool, ToolContext, tool_fn};
use zidane::types::{NanoUsd, ToolStatus, fold_totals, walk_decisions};
use zidane::{Agent, AgentBuilder, StopCause};

use super::ask::yes_or_no;

fn judge(replies: impl IntoIterator<Item = Reply>) -> (ScriptedProvider, Decider) {
    let model = ScriptedProvider::new(replies).id("judge").allow_prefix_breaks();
    (model.clone(), Decider::of_model(model, "small"))
}

/// A tool that decides, and says what came of it.
fn deciding() -> impl Tool {
    tool_fn("check", "Checks", |_: NoInput, cx: ToolContext| async move {
        Ok(match cx.decide("Text", yes_or_no()).await {
            Ok(answers) => format!("{:?}", answers.bool("ok")),
            Err(failure) => failure.reason.to_string(),
        })
    })
}

fn agent(replies: impl IntoIterator<Item = Reply>, decider: Decider) -> AgentBuilder {
    Agent::builder().provider(ScriptedProvider::new(replies)).model("m").decider(decider).tool(deciding())
}

fn result(agent: &Agent) -> String {
    let history = agent.history();
    let text = history.iter().find_map(|turn| turn.tool_results().next().map(|result| result.output.clone()));
    zidane::types::tool_result_to_text(&text.unwrap()).into_owned()
}

fn calls() -> [Reply; 2] {
    [Reply::call("check", json!({})), Reply::text("Done")]
}

#[tokio::test]
async fn a_tools_decision_is_in_the_tree_and_no_turn() {
    let (_, decider) = judge([Reply::text(r#"{"ok": true}"#)]);
    let prices =
        PriceBook::empty().set("judge", "small", Rates::usd(1.0, 1.0)).set("scripted", "m", Rates::usd(0.0, 0.0));
    let agent = agent(calls(), decider).prices(prices).build().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    agent.hooks().on::<DecisionAfter>(move |cx| {
        let answer = cx.decision().as_ref().unwrap().bool("ok");
        seen.lock().unwrap().push((cx.run_id().to_owned(), cx.request().questions.len(), answer));
    });
    let events = EventRecorder::attach(&agent);
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!(events.count("decision:after ok"), 1);
    assert_eq!((result(&agent).as_str(), outcome.stats.turns), ("Some(true)", 2));
    let [decision] = &outcome.stats.decisions[..] else { panic!("{:?}", outcome.stats.decisions) };
    assert_eq!((decision.run_id.as_str(), decision.provider.as_str()), (outcome.run_id.as_str(), "judge"));
    assert_eq!((decision.tokens.total(), decision.cost), (15, Some(NanoUsd(15_000))), "the agent's prices");
    assert_eq!(outcome.stats.total_in, 30, "two turns and a decision");
    assert_eq!(outcome.stats.total_cost, NanoUsd(15_000));
    assert_eq!(fold_totals(&outcome.stats), outcome.stats.totals());
    assert_eq!(*told.lock().unwrap(), [(outcome.run_id, 1, Some(true))]);
}

#[tokio::test]
async fn a_decision_never_fails_a_run() {
    for (decider, expected, billed) in [
        (Decider::disabled(), "unavailable", 0),
        (judge([Reply::text("?"), Reply::text("?")]).1, "invalid", 20),
        (judge([Reply::text("").after(Duration::from_secs(60))]).1.timeout(Duration::from_millis(20)), "timeout", 0),
    ] {
        let agent = agent(calls(), decider).build().unwrap();
        let outcome = agent.run("Go").await.unwrap();
        assert_eq!((result(&agent).as_str(), outcome.stop), (expected, StopCause::Stop));
        assert_eq!(outcome.stats.decisions.iter().map(|usage| usage.tokens.input).sum::<u64>(), billed, "{expected}");
    }
}

#[tokio::test]
async fn an_abort_ends_a_tools_decision() {
    let (model, decider) = judge([Reply::text("x").then_stall()]);
    let ended = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&ended);
    let tool = tool_fn("check", "Checks", move |_: NoInput, cx: ToolContext| {
        let seen = Arc::clone(&seen);
        async move {
            let decision = cx.decide("Text", yes_or_no()).await;
            *seen.lock().unwrap() = Some(decision.unwrap_err().reason);
            Ok(())
        }
    });
    let agent = Agent::builder()
        .provider(ScriptedProvider::new(calls()))
        .model("m")
        .decider(decider)
        .tool(tool)
        .build()
        .unwrap();
    let run = tokio::spawn(agent.run("Go"));
    while model.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    agent.abort();
    assert_eq!(run.await.unwrap().unwrap().stop, StopCause::Aborted);
    assert_eq!(*ended.lock().unwrap(), Some(Reason::Aborted), "within the tool's grace");
}

#[tokio::test]
async fn a_gate_decides_and_its_usage_is_in_the_tree() {
    for (reply, status) in [
        (Reply::text(r#"{"safe": true}"#), ToolStatus::Ok),
        (Reply::text(r#"{"safe": false}"#), ToolStatus::Blocked),
        (Reply::text("who knows").and_text(""), ToolStatus::Blocked),
    ] {
        let (_, decider) = judge([reply.clone(), reply]);
        let tool = tool_fn("drop_table", "Drops", |_: NoInput, _| async { Ok(()) });
        let model = ScriptedProvider::new([Reply::call("drop_table", json!({})), Reply::text("Done")]);
        let agent = Agent::builder().provider(model).model("m").decider(decider).tool(tool).build().unwrap();
        agent.hooks().on_async::<ToolGate>(|cx| {
            Box::pin(async move {
                let evidence = json!({"tool": cx.name(), "input": cx.input()});
                let decision = cx.decide(evidence, [Question::bool("safe", "Is it safe?")]).await;
                if !decision.is_ok_and(|answers| answers.is_yes("safe", 0.9)) {
                    cx.block("not now");
                }
            })
        });
        let outcome = agent.run("Go").await.unwrap();
        let found = agent.history().iter().find_map(|turn| turn.tool_results().next().map(|result| result.status));
        assert_eq!(found, Some(status));
        assert!(!outcome.stats.decisions.is_empty());
        assert_eq!(fold_totals(&outcome.stats), outcome.stats.totals());
    }
}

#[tokio::test]
async fn beside_a_run_it_is_filed_with_that_run_or_the_next() {
    let (_, decider) = judge([Reply::text(r#"{"ok": true}"#), Reply::text(r#"{"ok": false}"#)]);
    let agent = agent([Reply::text("One"), Reply::text("Two")], decider).build().unwrap();
    let answers = agent.decide("Text", yes_or_no()).await.unwrap();
    assert_eq!((answers.bool("ok"), answers.usage[0].run_id.as_str()), (Some(true), ""));
    assert!(agent.history().is_empty(), "the conversation does not see it");
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!(
        walk_decisions(&outcome.stats).map(|usage| usage.run_id.as_str()).collect::<Vec<_>>(),
        [&*outcome.run_id]
    );
    assert_eq!((outcome.stats.turns, outcome.stats.total_in), (1, 20));
    // While one is under way it is that one's, also when it comes last of all.
    let other = agent.clone();
    agent.hooks().on_async::<TurnBefore>(move |_| {
        let deciding = other.decide("Text", yes_or_no());
        Box::pin(async move { drop(deciding.await) })
    });
    let outcome = agent.run("Go on").await.unwrap();
    assert_eq!(outcome.stats.decisions.len(), 1);
}

#[tokio::test]
async fn its_own_model_decides_by_default() {
    let model =
        ScriptedProvider::new([Reply::call("answer", json!({"ok": true})), Reply::text("Hi")]).allow_prefix_breaks();
    let agent = Agent::builder().provider(model.clone()).model("m").system("Sing.").build().unwrap();
    assert_eq!(agent.decide("Text", yes_or_no()).await.unwrap().bool("ok"), Some(true));
    let system = model.requests()[0].head.system.clone().unwrap();
    assert!(!system.contains("Sing"), "a decision has instructions of its own");
    agent.run("Go").await.unwrap();
}

#[tokio::test]
async fn used_up_limits_forbid_it() {
    let (model, decider) = judge([Reply::text(r#"{"ok": true}"#)]);
    let agent = agent(calls(), decider).limits(Limits::none().tokens(20)).build().unwrap();
    // The first turn takes 15 tokens, the decision 15 more: the run stops before the second turn.
    let outcome = agent.run("Go").await.unwrap();
    assert!(matches!(outcome.stop, StopCause::Limit(_)), "{:?}", outcome.stop);
    assert_eq!((model.requests().len(), result(&agent).as_str()), (1, "Some(true)"));
}

#[tokio::test]
async fn observers_of_decisions_make_none() {
    let (model, decider) = judge([Reply::text(r#"{"ok": true}"#), Reply::text(r#"{"ok": true}"#)]);
    let agent = agent(calls(), decider).build().unwrap();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reasons);
    agent.hooks().on_async::<DecisionAfter>(move |cx| {
        let (deciding, seen) = (cx.decide("Text", yes_or_no()), Arc::clone(&seen));
        Box::pin(async move {
            let reason = deciding.await.unwrap_err().reason;
            seen.lock().unwrap().push(reason);
        })
    });
    // One that fails is told to nobody's harm.
    agent.hooks().on::<DecisionAfter>(|_| Err::<(), _>("broken"));
    agent.run("Go").await.unwrap();
    assert_eq!(*reasons.lock().unwrap(), [Reason::Unavailable]);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn outside_an_agent_and_after_the_call_it_says_so() {
    let cx = ToolContext::for_test("check");
    assert_eq!(cx.decide("Text", yes_or_no()).await.unwrap_err().reason, Reason::Unavailable);
    let left = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&left);
    let tool = tool_fn("check", "Checks", move |_: NoInput, cx: ToolContext| {
        *keep.lock().unwrap() = Some(cx);
        async { Ok(()) }
    });
    let (model, decider) = judge([Reply::text(r#"{"ok": true}"#)]);
    let agent = Agent::builder()
        .provider(ScriptedProvider::new(calls()))
        .model("m")
        .decider(decider)
        .tool(tool)
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();
    let cx = left.lock().unwrap().take().unwrap();
    assert_eq!(cx.decide("Text", yes_or_no()).await.unwrap_err().reason, Reason::Aborted);
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_decision_after_the_run_waits_for_the_next() {
    let (_, decider) = judge([Reply::text(r#"{"ok": true}"#)]);
    let agent = agent([Reply::text("One"), Reply::text("Two")], decider).build().unwrap();
    agent.hooks().on_async::<AgentDone>(|cx| {
        let first = cx.stats().total_in == 10;
        Box::pin(async move {
            if first {
                drop(cx.decide("Text", yes_or_no()).await);
            }
        })
    });
    assert!(agent.run("Go").await.unwrap().stats.decisions.is_empty());
    assert_eq!(agent.run("Go").await.unwrap().stats.decisions.len(), 1);
}

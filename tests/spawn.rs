//! Runs that tools spawn: what they have from the run above, how they end, and what they leave.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use serde_json::json;
use zidane::agent::Spawn;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{ChildStatus, fold_totals};
use zidane::{Agent, AgentBuilder, StopCause};

fn agent(replies: impl IntoIterator<Item = Reply>) -> AgentBuilder {
    Agent::builder().provider(ScriptedProvider::new(replies)).model("test")
}

fn task(text: &str) -> serde_json::Value {
    json!({ "task": text })
}

#[tokio::test]
async fn a_child_answers_in_the_result_of_its_call() {
    let child = agent([Reply::text("found it")]);
    let parent = agent([Reply::call("look", task("Find it.")), Reply::text("done")]);
    let parent = parent.tool(Spawn::new("look", "Looks", child)).build().unwrap();
    let outcome = parent.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    let results: Vec<_> = parent.history().iter().map(harness::line).collect();
    assert_eq!(results[2], "results: ok found it");
    let child = &outcome.stats.children[0];
    assert_eq!((child.status, &*child.task, child.stats.turns), (ChildStatus::Completed, "Find it.", 1));
    assert_eq!(outcome.stats.totals(), fold_totals(&outcome.stats));
    assert_eq!(outcome.stats.turns, 2);
    assert_eq!(child.stats.turn_usage[0].parent_run_id.as_deref(), Some(&*outcome.run_id));
    assert_eq!(child.stats.turn_usage[0].depth, 1);
}

//! A decision as a router: a cheap model says how hard a task is, and that picks the model that does it.
//!
//! Runs on scripted models; with a key, give the agent and the decider real ones.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

use zidane::Agent;
use zidane::decision::{Decider, Question};
use zidane::hooks::TurnBefore;
use zidane::testing::{Reply, ScriptedProvider};

/// The model for a task.
async fn route(agent: &Agent, task: &str) -> &'static str {
    let levels = ["anybody can", "takes care", "takes an expert"];
    let decision = agent.decide(task, [Question::score("effort", "How hard is this task?", levels)]).await;
    match decision.ok().and_then(|answers| answers.score("effort")) {
        Some(effort) if effort < 0.5 => "small-model",
        Some(effort) if effort > 1.5 => "large-model",
        // In between, refused, or not decided: the usual one.
        _ => "medium-model",
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = ScriptedProvider::new(["4.", "It halts.", "Sure."].map(Reply::text));
    let agent = Agent::builder().provider(model).model("medium-model").decider(judge()).build()?;
    // One model for the whole task: another in the middle of it would begin without the prompt cache.
    let picked = Arc::new(Mutex::new("medium-model"));
    let hook = Arc::clone(&picked);
    agent.hooks().on::<TurnBefore>(move |cx| cx.set_model(*hook.lock().unwrap_or_else(PoisonError::into_inner)));

    let mut asked = Vec::new();
    for task in ["What is 2 + 2?", "Does this program halt?", "Say something."] {
        let model = route(&agent, task).await;
        *picked.lock().unwrap_or_else(PoisonError::into_inner) = model;
        let outcome = agent.run(task).await?;
        println!("{task} {model}: {}", outcome.text);
        for (model, usage) in outcome.stats.by_model() {
            println!("  {model}: {usage}");
        }
        asked.extend(outcome.stats.turn_usage.first().map(|usage| usage.requested_model.clone()));
    }
    assert_eq!(asked, ["small-model", "large-model", "medium-model"]);
    Ok(())
}

fn judge() -> Decider {
    let replies = [r#"{"effort": "anybody can"}"#, r#"{"effort": "takes an expert"}"#, "?", "?"];
    let model = ScriptedProvider::new(replies.map(Reply::text)).allow_prefix_breaks();
    Decider::of_model(model, "scripted-judge")
}

//! A decision as a gate: a second model judges each call of a risky tool, and anything but a clear yes blocks it.
//!
//! Runs on scripted models; with a key, give the agent and the decider real ones.

use std::error::Error;

use serde_json::json;
use zidane::Agent;
use zidane::decision::{Decider, Question};
use zidane::hooks::ToolGate;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{ToolContext, tool_fn_value};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let shell =
        tool_fn_value("shell", "Runs a command", json!({"type": "object"}), |input, _cx: ToolContext| async move {
            Ok(format!("ran {input}"))
        });
    let agent = Agent::builder().provider(model()).model("scripted").decider(judge()).tool(shell).build()?;

    agent.hooks().on_async::<ToolGate>(|cx| {
        Box::pin(async move {
            if cx.name() != "shell" {
                return;
            }
            let question = Question::bool("safe", "May this command run without asking a person?")
                .yes("it only reads, and only within the project")
                .no("it deletes, sends or installs something, or nobody can tell what it does");
            // Refused, too slow, no money, no network, not sure: all the same, it does not run.
            let decision = cx.decide(json!({"command": cx.input()}), [question]).await;
            match decision {
                Ok(answers) if answers.is_yes("safe", 0.9) => {}
                Ok(_) => cx.block("This command is not clearly safe."),
                Err(failure) => cx.block(format!("This command could not be judged ({}).", failure.reason)),
            }
        })
    });

    let outcome = agent.run("Show the files, then clean up.").await?;
    for turn in &outcome.turns {
        for result in turn.tool_results() {
            println!("{:?} {:?}", result.status, result.output);
        }
    }
    println!("{}\n{} decisions, {} turns", outcome.text, outcome.stats.decisions.len(), outcome.stats.turns);
    assert_eq!((outcome.stats.decisions.len(), outcome.stats.turns), (3, 4));
    Ok(())
}

/// Wants to do three things.
fn model() -> ScriptedProvider {
    let call = |command: &str| Reply::call("shell", json!({"command": command}));
    ScriptedProvider::new([call("ls"), call("rm -rf /"), call("???"), Reply::text("I could only look.")])
}

/// Says yes, no, and nothing that can be read, for which it is asked twice.
fn judge() -> Decider {
    let says = |text: &str| Reply::text(text);
    let replies = [says(r#"{"safe": true}"#), says(r#"{"safe": false}"#), says("Hm."), says("Hard to say.")];
    Decider::of_model(ScriptedProvider::new(replies).allow_prefix_breaks(), "scripted-judge")
}

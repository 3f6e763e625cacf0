//! An agent that gives parts of its task to others, which share its limits and its gates, and what each of them used.
//!
//! `cargo run --example subagents -- "Compare the rivers Rhône and Saône."`

use std::error::Error;

use futures::StreamExt as _;
use serde_json::json;
use zidane::agent::{Limits, Spawn};
use zidane::hooks::{Scope, ToolBefore, ToolGate};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{Concurrency, NoInput};
use zidane::{Agent, AgentBuilder, AgentEvent, Anthropic, OpenAiChat, tool_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "Compare the rivers Rhône and Saône.".into());
    // A function, since the scripted models say their lines once; with a real model the builder itself will do.
    let researcher = || {
        let lines = [Reply::call("length_of_a_river", json!({})), Reply::text("It is 813 km long, or 473 km.")];
        // Without a model of its own an agent asks that of the agent above.
        model(lines)
            .unwrap_or_else(|_| Agent::builder())
            .system("You look things up. Answer in one sentence.")
            .tool(
                tool_fn("length_of_a_river", "Lengths of rivers", |_: NoInput, _cx| async {
                    Ok("Rhône 813 km, Saône 473 km")
                })
                .concurrency(Concurrency::Shared),
            )
            .max_turns(5)
    };
    let lines = [
        Reply::text("I have both looked up. ")
            .and_call("research", json!({ "task": "How long is the Rhône?" }))
            .and_call("research", json!({ "task": "How long is the Saône?" })),
        Reply::text("The Rhône is 813 km long, the Saône 473 km."),
    ];
    let agent = model(lines)?
        .system("You answer in two sentences. Have each fact researched.")
        .tool(Spawn::new("research", "Looks one fact up and says it in a sentence", researcher).max_concurrent(2))
        .limits(Limits::none().turns(20).tool_calls(40))
        .build()?;

    // A gate reaches every agent below; observers do so when they are told to.
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.name() == "shell" {
            cx.block("not here");
        }
    });
    agent.hooks().scope(Scope::Tree).on::<ToolBefore>(|cx| {
        println!("[{}{} is called]", "  ".repeat(cx.depth() as usize), cx.name());
    });

    println!("> {prompt}");
    let mut events = agent.run(prompt).stream();
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::Text { delta } => print!("{delta}"),
            AgentEvent::ChildStart { child, task } => println!("[{} begins: {task}]", child.call_id()),
            AgentEvent::ChildEnd { child, status } => println!("[{} has {}]", child.call_id(), status.as_str()),
            AgentEvent::Done(outcome) => {
                let stats = outcome?.stats;
                println!("\n");
                for child in &stats.children {
                    println!("{} ({}): {} tokens out", child.task, child.status.as_str(), child.stats.total_out);
                }
                for (model, usage) in stats.by_model() {
                    println!("{model}: {usage}");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A model whose key is set, else one that says these lines.
fn model(lines: impl IntoIterator<Item = Reply>) -> Result<AgentBuilder, Box<dyn Error>> {
    let set = |name| std::env::var(name).is_ok_and(|value: String| !value.trim().is_empty());
    let builder = Agent::builder();
    Ok(if set("ANTHROPIC_API_KEY") {
        builder.provider(Anthropic::from_env()?).model("claude-haiku-5-5")
    } else if set("OPENAI_API_KEY") {
        builder.provider(OpenAiChat::from_env()?).model("gpt-6-luna")
    } else {
        builder.provider(ScriptedProvider::new(lines)).model("scripted")
    })
}

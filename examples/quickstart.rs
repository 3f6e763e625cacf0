//! An agent with one typed tool, streaming, on whatever model is at hand:
//! `ANTHROPIC_API_KEY`, `OPENAI_API_KEY` or `GEMINI_API_KEY`, else a local OpenAI-compatible server, else a scripted model.
//!
//! `cargo run --example quickstart -- "What is the weather in Paris?"`

use std::error::Error;
use std::io::Write as _;

use futures::StreamExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use zidane::provider::openai_chat::LocalServer;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::{Agent, AgentBuilder, AgentEvent, Anthropic, Gemini, OpenAiChat, tool_fn};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// Name of the city
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "What is the weather in Lyon right now?".into());
    let agent = model()
        .await?
        .system("You are a friendly assistant. Answer in one sentence.")
        .tool(tool_fn("weather", "Current weather of a city", |input: Weather, _cx| async move {
            Ok(format!("{}: 21 °C, clear, light wind from the north", input.city))
        }))
        .build()?;

    println!("> {prompt}");
    let mut events = agent.run(prompt).stream();
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::Text { delta } => print!("{delta}"),
            AgentEvent::ToolStart { name, .. } => println!("[calls {name}]"),
            AgentEvent::ToolEnd { result } => println!("[{} says {:?}]", result.name, result.output),
            AgentEvent::Done(result) => {
                println!("\n");
                for (model, usage) in result?.stats.by_model() {
                    println!("{model}: {usage}");
                }
            }
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// The best model at hand; says which.
async fn model() -> Result<AgentBuilder, Box<dyn Error>> {
    let named = |default: &str| std::env::var("ZIDANE_MODEL").unwrap_or_else(|_| default.to_owned());
    let builder = Agent::builder();
    let set = |name| std::env::var(name).is_ok_and(|value: String| !value.trim().is_empty());
    Ok(if set("ANTHROPIC_API_KEY") {
        let model = named("claude-haiku-5-5");
        println!("# Anthropic, {model}");
        builder.provider(Anthropic::from_env()?).model(model)
    } else if set("OPENAI_API_KEY") {
        let model = named("gpt-6-luna");
        println!("# OpenAI, {model}");
        builder.provider(OpenAiChat::from_env()?).model(model)
    } else if set("GEMINI_API_KEY") {
        let model = named("gemini-3.5-flash");
        println!("# Gemini, {model}");
        builder.provider(Gemini::from_env()?).model(model)
    } else if let Some(server) = LocalServer::find().await {
        let model = named(&server.model);
        println!("# the local server at {}, {model}", server.base_url);
        builder.provider(server.provider).model(model)
    } else {
        println!("# no key is set and no local server answers: a scripted model, which always says the same");
        let script = [
            Reply::text("Let me look. ").and_call("weather", json!({"city": "Lyon"})),
            Reply::deltas(["It is ", "clear in Lyon, ", "at 21 °C with a light wind."]),
        ];
        builder.provider(ScriptedProvider::new(script)).model("scripted")
    })
}

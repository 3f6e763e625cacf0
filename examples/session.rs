//! A chat that goes on after a restart: call it twice. Sessions are files in a folder, one line per entry.
//!
//! ```text
//! cargo run --example session -- "My name is Ada."
//! cargo run --example session -- "What is my name?"
//! ```
//!
//! `ZIDANE_SESSIONS` names the folder (default: one for temporary files), `ZIDANE_SESSION` the session (default `chat`).
//! The model is Anthropic's where `ANTHROPIC_API_KEY` is set, else a scripted one that only counts.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

use zidane::hooks::{SessionRepaired, StreamText};
use zidane::session::{JsonlSessionStore, Session};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::TurnOrigin;
use zidane::{Agent, AgentBuilder, Anthropic};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder =
        std::env::var_os("ZIDANE_SESSIONS").map_or_else(|| std::env::temp_dir().join("zidane-chats"), PathBuf::from);
    let id = std::env::var("ZIDANE_SESSION").unwrap_or_else(|_| "chat".to_owned());
    let store = JsonlSessionStore::new(folder);
    println!("# kept in {}", store.path(&id).display());

    // What is stored can be read without a model.
    let agent = Agent::builder().provider(ScriptedProvider::new([])).model("none");
    let stored = agent.session_store(store.clone()).session_id(&id).build()?.session().await?;
    let prompts = stored.as_ref().map_or(0, show);

    let prompt = std::env::args().nth(1).unwrap_or_else(|| "Do you remember me?".to_owned());
    let agent = model(prompts)?
        .system("You are a friendly assistant. Answer in one sentence.")
        .session_store(store)
        .session_id(&id)
        .build()?;
    agent.hooks().on::<StreamText>(|cx| {
        print!("{}", cx.delta());
        std::io::stdout().flush()
    });
    agent.hooks().on::<SessionRepaired>(|cx| println!("# settled what a crash had left: {}", cx.answered().join(", ")));
    println!("> {prompt}");
    let outcome = agent.run(prompt).await?;
    println!("\n# {} turns in all; {}", agent.history().len(), outcome.stop.as_str());
    Ok(())
}

/// Prints a conversation; returns how many prompts it has.
fn show(session: &Session) -> usize {
    let mut prompts = 0;
    for turn in &session.turns {
        if turn.origin == TurnOrigin::Prompt {
            prompts += 1;
            print!("> ");
        }
        println!("{}", turn.text());
    }
    let tokens: u64 = session
        .runs
        .iter()
        .filter_map(|run| run.end.as_ref()?.stats.as_deref())
        .map(|stats| stats.totals().input + stats.totals().output)
        .sum();
    println!("# {} runs so far, {tokens} tokens", session.runs.len());
    prompts
}

fn model(prompts: usize) -> Result<AgentBuilder, Box<dyn Error>> {
    let builder = Agent::builder();
    Ok(if std::env::var("ANTHROPIC_API_KEY").is_ok_and(|key| !key.trim().is_empty()) {
        builder.provider(Anthropic::from_env()?).model("claude-haiku-5-5")
    } else {
        let answer = Reply::deltas(["You have said ", &format!("{} things", prompts + 1), " so far."]);
        builder.provider(ScriptedProvider::new([answer])).model("scripted")
    })
}

//! A run that goes on where it was cut: stop it with Ctrl-C while it works, and call it again.
//!
//! ```text
//! cargo run --example durable_sqlite --features sqlite
//! ```
//!
//! What was on record is not done again: the model is not asked again, and no finished call is made again. `ZIDANE_DATABASE`
//! names the file (default: one for temporary files). Where nobody presses Ctrl-C the first call cuts itself, once.

use std::error::Error;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zidane::Agent;
use zidane::durable::SqliteDurable;
use zidane::hooks::{ToolAfter, TurnBefore};
use zidane::provider::{ModelRequest, Provider, ProviderError, ProviderStream, RequestContext};
use zidane::session::SqliteSessionStore;
use zidane::sqlite::Database;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{NoInput, Repeat, ToolContext, tool_fn};
use zidane::types::Role;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::var_os("ZIDANE_DATABASE")
        .map_or_else(|| std::env::temp_dir().join("zidane-durable.sqlite"), PathBuf::from);
    println!("# kept in {}", path.display());
    if std::io::stdin().is_terminal() {
        return work(&path, None).await;
    }
    // As a kill does it: what is under way is gone.
    for cut in [Some(Duration::from_millis(700)), None] {
        println!("# a process begins");
        work(&path, cut).await?;
    }
    Ok(())
}

async fn work(path: &PathBuf, cut: Option<Duration>) -> Result<(), Box<dyn Error>> {
    let database = Database::open(path).await?;
    let durable = SqliteDurable::new(database.clone());
    // What an earlier process left, or something new.
    let left = durable.unfinished(1).await?.pop();
    let run_id = left.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    println!("# {} run {run_id}", if left.is_some() { "going on with" } else { "beginning" });

    let step = tool_fn("step", "Does a step", |_: NoInput, cx: ToolContext| async move {
        println!("  doing {}", cx.idempotency_key());
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok("done")
    });
    let agent = Agent::builder()
        .provider(Model)
        .model("scripted")
        .tool(step.repeat(Repeat::Safe))
        .session_id(&run_id)
        .session_store(SqliteSessionStore::new(database))
        .durable(Arc::new(durable))
        .build()?;
    agent.hooks().on::<TurnBefore>(|cx| println!("  asking the model, turn {}", cx.number()));
    agent.hooks().on::<ToolAfter>(|cx| {
        println!("  {} {}", cx.call_id(), if cx.replaying() { "was on record" } else { "is on record now" });
    });
    // An empty prompt is the one on record, where there is one.
    let run = agent.run(if left.is_some() { "" } else { "Do five steps." }).run_id(run_id);
    let Some(cut) = cut else {
        println!("# {}", run.await?.text);
        return Ok(());
    };
    match tokio::time::timeout(cut, run).await {
        Ok(outcome) => println!("# {}", outcome?.text),
        Err(_) => println!("# cut"),
    }
    Ok(())
}

/// Asks for five steps, one a turn. It goes by the conversation alone, as a model does.
struct Model;

#[zidane::async_trait]
impl Provider for Model {
    fn id(&self) -> &str {
        "scripted"
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let steps = request.history.iter().filter(|turn| turn.role == Role::Assistant).count();
        let reply = match steps {
            5.. => Reply::text("All five steps are done."),
            _ => Reply::empty().raw_call(Some(&format!("step_{}", steps + 1)), "step", "{}"),
        };
        ScriptedProvider::new([reply]).stream(request, cx).await
    }
}

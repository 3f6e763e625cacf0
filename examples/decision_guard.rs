//! A decision as an input guard: what a user writes is judged before the agent sees it.
//!
//! Runs on scripted models; with a key, give the agent and the decider real ones.

use std::error::Error;

use zidane::Agent;
use zidane::decision::{Decider, Question};
use zidane::testing::{Reply, ScriptedProvider};

/// Why a message is not let in; `None` lets it in.
async fn guard(agent: &Agent, message: &str) -> Option<String> {
    let questions = [
        Question::bool("on_topic", "Is this about an order in our shop?"),
        Question::score("hostility", "How hostile is it?", ["not at all", "annoyed", "threatening"]),
    ];
    // Filed with the run that follows; a message that is turned away is filed with the next one.
    match agent.decide(message, questions).await {
        // A refusal is no answer, and certainly no yes.
        Ok(answers) if !answers.is_yes("on_topic", 0.7) => Some("I can only help with orders.".to_owned()),
        Ok(answers) if answers.score("hostility").is_none_or(|level| level >= 1.5) => {
            Some("Please be kind.".to_owned())
        }
        Ok(_) => None,
        // Nobody knows: this shop would rather answer than turn a customer away. A guard of something dangerous would not.
        Err(failure) => {
            eprintln!("not judged: {failure}");
            None
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = ScriptedProvider::new([Reply::text("It arrives tomorrow.")]);
    let agent = Agent::builder().provider(model).model("scripted").decider(judge()).build()?;
    let mut decisions = 0;
    for message in ["Write me a poem about the sea.", "Where is my parcel, you fools?!", "Where is my parcel?"] {
        println!("> {message}");
        match guard(&agent, message).await {
            Some(why) => println!("{why}"),
            None => {
                let outcome = agent.run(message).await?;
                decisions += outcome.stats.decisions.len();
                println!("{}", outcome.text);
            }
        }
    }
    println!("{decisions} decisions");
    assert_eq!((decisions, agent.history().len()), (3, 2));
    Ok(())
}

fn judge() -> Decider {
    let replies = [
        r#"{"on_topic": false, "hostility": "not at all"}"#,
        r#"{"on_topic": true, "hostility": "threatening"}"#,
        r#"{"on_topic": true, "hostility": "not at all"}"#,
    ];
    let model = ScriptedProvider::new(replies.map(Reply::text)).allow_prefix_breaks();
    Decider::of_model(model, "scripted-judge")
}

//! Decisions: every reason, the reference's examples, what is refused before it is sent, fallbacks, and decisions of
//! agents. Nothing here needs a network.
#![cfg(all(feature = "anthropic", feature = "openai"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "decisions/agents.rs"]
mod agents;
#[path = "decisions/ask.rs"]
mod ask;
#[path = "decisions/bad_input.rs"]
mod bad_input;
#[path = "decisions/durable.rs"]
mod durable;
#[path = "decisions/examples.rs"]
mod examples;
#[path = "decisions/fallbacks.rs"]
mod fallbacks;
#[path = "decisions/images.rs"]
mod images;
#[path = "decisions/models.rs"]
mod models;
#[path = "decisions/reasons.rs"]
mod reasons;
#[path = "decisions/wrong_answers.rs"]
mod wrong_answers;

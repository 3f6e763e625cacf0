//! Counterparts that others wrote: a real model behind llama.cpp's server, the same model behind a bridge that makes the
//! formats of the other wires of it, and a scripted server that errs on demand. Where they differ, all are right.
//!
//! Each part runs when a variable names its server; `scripts/test local_llm` starts them all. `ZIDANE_LOCAL_LLM_URL`:
//! `scripts/local-llm`; `ZIDANE_LLM_BRIDGE_URL` and `ZIDANE_LLM_MOCK_URL`: `scripts/llm-peers`. With the model calls, facts
//! and errors are checked, never wording: it is small.
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini", feature = "json-schema"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "local_llm/bridge.rs"]
mod bridge;
#[path = "local_llm/mock.rs"]
mod mock;

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use schemars::JsonSchema;
use serde::Deserialize;
use zidane::provider::openai_chat::ChatProfile;
use zidane::provider::openai_responses::ResponsesProfile;
use zidane::provider::{ProviderErrorKind, RetryPolicy};
use zidane::tool::{Tool, tool_fn};
use zidane::{Agent, AgentBuilder, AgentEvent, Anthropic, OpenAi, OpenAiChat, RunErrorKind, StopCause};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
}

type Asked = Arc<Mutex<Vec<String>>>;

fn weather(asked: &Asked) -> impl Tool + use<> {
    let asked = Arc::clone(asked);
    tool_fn("weather", "Current weather of a city", move |input: Weather, _cx| {
        let asked = Arc::clone(&asked);
        async move {
            asked.lock().unwrap().push(input.city);
            Ok("7 degrees, hail")
        }
    })
}

/// The address of a counterpart. Without one its tests do nothing, and say so.
fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no counterpart (set {variable})");
    }
    url
}

/// One builder per wire.
fn models() -> Vec<(&'static str, AgentBuilder)> {
    let Some(url) = server("ZIDANE_LOCAL_LLM_URL") else { return Vec::new() };
    let chat = OpenAiChat::builder().profile(ChatProfile::llama_cpp()).base_url(format!("{url}/v1")).build().unwrap();
    let profile = ResponsesProfile::llama_cpp();
    let responses = OpenAi::builder().profile(profile).base_url(format!("{url}/v1")).build().unwrap();
    let messages = Anthropic::builder().id("llamacpp").base_url(url).api_key("none").build().unwrap();
    let set =
        |builder: AgentBuilder| builder.model("local").temperature(0.0).max_tokens(200).retry(RetryPolicy::never());
    vec![
        ("chat", set(Agent::builder().provider(chat))),
        ("messages", set(Agent::builder().provider(messages))),
        ("responses", set(Agent::builder().provider(responses))),
    ]
}

#[tokio::test]
async fn it_calls_the_tool_and_tells_the_result() {
    for (wire, builder) in models() {
        let asked = Asked::default();
        let agent = builder.tool(weather(&asked)).build().unwrap();
        let outcome = agent.run("What is the weather in Oslo right now?").await.unwrap();
        assert_eq!(*asked.lock().unwrap(), ["Oslo"], "{wire}");
        assert_eq!(outcome.stop, StopCause::Stop, "{wire}");
        assert!(outcome.text.contains('7'), "{wire}: {}", outcome.text);
        assert_eq!(outcome.stats.turns, 2, "{wire}");
        assert!(outcome.stats.total_out > 0, "{wire}: {:?}", outcome.stats);
        assert!(outcome.stats.total_in + outcome.stats.total_cache_read > 100, "{wire}: {:?}", outcome.stats);

        // The second prompt goes on top of the first conversation.
        let outcome = agent.run("What is the weather in Rome and in Madrid right now?").await.unwrap();
        let mut cities = asked.lock().unwrap().clone();
        cities.sort();
        assert_eq!(cities, ["Madrid", "Oslo", "Rome"], "{wire}");
        assert_eq!(outcome.stop, StopCause::Stop, "{wire}");
    }
}

#[tokio::test]
async fn it_streams_text_as_it_comes_and_stops_at_the_limit() {
    for (wire, builder) in models() {
        // Cold, so that it says the same each time.
        let agent = builder.temperature(0.0).max_tokens(12).continue_after_length(false).build().unwrap();
        let mut events =
            agent.run("Write a long story about a fox who learns to read, in at least twenty sentences.").stream();
        let (mut deltas, mut text, mut stop) = (0, String::new(), None);
        while let Some(event) = events.next().await {
            match event {
                AgentEvent::Text { delta } => {
                    deltas += 1;
                    text.push_str(&delta);
                }
                AgentEvent::Done(outcome) => {
                    let outcome = outcome.unwrap();
                    assert_eq!(outcome.text, text, "{wire}");
                    stop = Some(outcome.stop);
                }
                _ => {}
            }
        }
        assert!(deltas > 3, "{wire}: {deltas} deltas");
        assert_eq!(stop, Some(StopCause::Length), "{wire}");
    }
}

#[tokio::test]
async fn a_conversation_too_long_is_told_apart() {
    for (wire, builder) in models() {
        let agent = builder.build().unwrap();
        let error = agent.run("word ".repeat(12_000)).await.unwrap_err();
        let RunErrorKind::Provider(error) = &error.kind else { panic!("{wire}: {error}") };
        assert_eq!(error.kind, ProviderErrorKind::ContextOverflow, "{wire}: {error}");
    }
}

#[tokio::test]
async fn a_run_that_was_dropped_leaves_the_agent_usable() {
    for (wire, builder) in models() {
        let agent = builder.build().unwrap();
        let mut events = agent.run("Count from one to a hundred in words.").stream();
        while let Some(event) = events.next().await {
            if matches!(event, AgentEvent::Text { .. }) {
                break;
            }
        }
        drop(events);
        agent.wait_for_idle().await;
        let outcome = agent.run("Say hello in one word.").await.unwrap();
        assert_eq!(outcome.stop, StopCause::Stop, "{wire}");
    }
}

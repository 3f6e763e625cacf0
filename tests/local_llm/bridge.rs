//! The local model behind LiteLLM: formats of Gemini, Responses and Anthropic as somebody else reads the same pages.

use futures::StreamExt as _;
use zidane::provider::{ProviderErrorKind, RetryPolicy};
use zidane::{Agent, AgentBuilder, AgentEvent, Anthropic, Gemini, OpenAi, RunErrorKind, StopCause};

use super::{Asked, server, weather};

const KEY: &str = "sk-test";

fn models(model: &str) -> Vec<(&'static str, AgentBuilder)> {
    let Some(url) = server("ZIDANE_LLM_BRIDGE_URL") else { return Vec::new() };
    let gemini = Gemini::builder().api_key(KEY).base_url(url.clone()).build().unwrap();
    let responses = OpenAi::builder().api_key(KEY).base_url(format!("{url}/v1")).build().unwrap();
    let messages = Anthropic::builder().id("bridge").api_key(KEY).base_url(url).build().unwrap();
    let set = |builder: AgentBuilder| builder.model(model).temperature(0.0).max_tokens(200).retry(RetryPolicy::never());
    vec![
        ("gemini", set(Agent::builder().provider(gemini))),
        ("responses", set(Agent::builder().provider(responses))),
        ("messages", set(Agent::builder().provider(messages))),
    ]
}

#[tokio::test]
async fn it_calls_the_tool_and_tells_the_result() {
    for (wire, builder) in models("local") {
        let asked = Asked::default();
        let agent = builder.tool(weather(&asked)).build().unwrap();
        let outcome =
            agent.run("What is the weather in Oslo right now?").await.unwrap_or_else(|error| panic!("{wire}: {error}"));
        assert_eq!(*asked.lock().unwrap(), ["Oslo"], "{wire}");
        assert_eq!(outcome.stop, StopCause::Stop, "{wire}");
        assert!(outcome.text.contains('7'), "{wire}: {}", outcome.text);
        assert_eq!(outcome.stats.turns, 2, "{wire}");
        // It reports no usage in this format.
        if wire != "gemini" {
            assert!(outcome.stats.total_in > 0 && outcome.stats.total_out > 0, "{wire}: {:?}", outcome.stats);
        }
        let outcome = agent.run("What is the weather in Rome and in Madrid right now?").await.unwrap();
        let mut cities = asked.lock().unwrap().clone();
        cities.sort();
        assert_eq!(cities, ["Madrid", "Oslo", "Rome"], "{wire}");
        assert_eq!(outcome.stop, StopCause::Stop, "{wire}");
    }
}

#[tokio::test]
async fn it_streams_text_as_it_comes() {
    for (wire, builder) in models("local") {
        let agent = builder.max_tokens(24).continue_after_length(false).build().unwrap();
        let mut events = agent.run("Count from one to twenty in words.").stream();
        let (mut deltas, mut text) = (0, String::new());
        while let Some(event) = events.next().await {
            match event {
                AgentEvent::Text { delta } => {
                    deltas += 1;
                    text.push_str(&delta);
                }
                AgentEvent::Done(outcome) => assert_eq!(outcome.unwrap().text, text, "{wire}"),
                _ => {}
            }
        }
        assert!(deltas > 3, "{wire}: {deltas} deltas");
    }
}

#[tokio::test]
async fn a_busy_upstream_is_told_apart() {
    for (wire, builder) in models("busy") {
        let error = builder.build().unwrap().run("Hello").await.unwrap_err();
        let RunErrorKind::Provider(error) = &error.kind else { panic!("{wire}: {error}") };
        // In this format it fails itself, over the error that it was to give.
        let expected = match wire {
            "responses" => (ProviderErrorKind::Server, Some(500)),
            _ => (ProviderErrorKind::RateLimited, Some(429)),
        };
        assert_eq!((error.kind, error.status), expected, "{wire}: {error}");
        assert!(error.is_retryable(), "{wire}: {error}");
    }
}

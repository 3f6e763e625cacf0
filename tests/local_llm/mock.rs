//! aimock, whose answers are in `scripts/llm-mock-answers.json`: every format, and what goes wrong in it.

use std::time::Duration;

use zidane::provider::openai_chat::ChatProfile;
use zidane::provider::{ProviderError, ProviderErrorKind, RetryPolicy};
use zidane::types::{Role, SessionContentBlock};
use zidane::{Agent, AgentBuilder, Anthropic, Gemini, OpenAi, OpenAiChat, RunErrorKind, StopCause};

use super::{Asked, server, weather};

fn models() -> Vec<(&'static str, AgentBuilder)> {
    let Some(url) = server("ZIDANE_LLM_MOCK_URL") else { return Vec::new() };
    let chat = |profile: ChatProfile| {
        OpenAiChat::builder().profile(profile).api_key("k").base_url(format!("{url}/v1")).build().unwrap()
    };
    let responses = OpenAi::builder().api_key("k").base_url(format!("{url}/v1")).build().unwrap();
    let messages = Anthropic::builder().api_key("k").base_url(url.clone()).build().unwrap();
    let gemini = Gemini::builder().api_key("k").base_url(url.clone()).build().unwrap();
    let set = |builder: AgentBuilder, model: &str| builder.model(model).retry(RetryPolicy::never());
    vec![
        ("chat", set(Agent::builder().provider(chat(ChatProfile::openai())), "gpt-6-luna")),
        ("ollama", set(Agent::builder().provider(chat(ChatProfile::ollama())), "qwen3")),
        ("responses", set(Agent::builder().provider(responses), "gpt-6-luna")),
        ("messages", set(Agent::builder().provider(messages), "claude-opus-4-8")),
        ("gemini", set(Agent::builder().provider(gemini), "gemini-4-argon")),
    ]
}

async fn failure(wire: &str, agent: &Agent, prompt: &str) -> ProviderError {
    let error = agent.run(prompt).await.expect_err(wire);
    let RunErrorKind::Provider(error) = error.kind else { panic!("{wire}: {}", error.kind) };
    *error
}

#[tokio::test]
async fn two_calls_are_run_and_their_results_go_back() {
    for (wire, builder) in models() {
        let asked = Asked::default();
        let agent = builder.tool(weather(&asked)).build().unwrap();
        let outcome = agent.run("What is the weather?").await.unwrap_or_else(|error| panic!("{wire}: {error}"));
        assert_eq!(*asked.lock().unwrap(), ["Oslo", "Rome"], "{wire}");
        assert_eq!((outcome.stop, &*outcome.text), (StopCause::Stop, "7 degrees and hail in Oslo."), "{wire}");
        assert_eq!((outcome.stats.total_in, outcome.stats.total_out), (100, 42), "{wire}");
        let thinking = outcome.turns[1].content.iter().find_map(|block| match block {
            SessionContentBlock::Thinking(thinking) => Some(thinking.text.as_str()),
            _ => None,
        });
        assert_eq!(thinking, Some("Two cities, two calls."), "{wire}");
        assert_eq!(outcome.turns[1].text(), "Looking.", "{wire}");
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_ends_by_its_length() {
    for (wire, builder) in models() {
        let agent = builder.continue_after_length(false).build().unwrap();
        let outcome = agent.run("cut").await.unwrap();
        // It does not give the reason in this format, which is not told apart from others then.
        let stop = if wire == "responses" { StopCause::Other } else { StopCause::Length };
        assert_eq!((outcome.stop, &*outcome.text), (stop, "This answer was cut"), "{wire}");
    }
}

#[tokio::test]
async fn errors_are_told_apart_and_say_how_long_to_wait() {
    for (wire, builder) in models() {
        let limited = failure(wire, &builder.build().unwrap(), "limit").await;
        assert_eq!((limited.kind, limited.status), (ProviderErrorKind::RateLimited, Some(429)), "{wire}: {limited}");
        assert_eq!(limited.retry_after, Some(Duration::from_secs(2)), "{wire}: {limited}");
        let overloaded = failure(wire, &builder.build().unwrap(), "overloaded").await;
        assert_eq!((overloaded.kind, overloaded.status), (ProviderErrorKind::Overloaded, Some(529)), "{wire}");
        assert!(limited.is_retryable() && overloaded.is_retryable(), "{wire}");
    }
}

#[tokio::test]
async fn a_dropped_stream_keeps_what_came_and_the_agent_goes_on() {
    for (wire, builder) in models() {
        // Whether some text still came through before the connection was reset is chance, and without any it is tried
        // again.
        let mut policy = RetryPolicy::default();
        policy.base_delay = Duration::from_millis(1);
        let agent = builder.retry(policy).build().unwrap();
        let dropped = failure(wire, &agent, "drop").await;
        let known = matches!(dropped.kind, ProviderErrorKind::TruncatedStream | ProviderErrorKind::Transport);
        assert!(known, "{wire}: {dropped}");
        let history = agent.history();
        for turn in history.iter().filter(|turn| turn.role == Role::Assistant) {
            assert!(turn.interrupted && turn.text().starts_with("This stream"), "{wire}: {turn:?}");
        }
        agent.run("cut").await.unwrap_or_else(|error| panic!("{wire}: {error}"));
    }
}

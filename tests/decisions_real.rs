//! Decisions of servers that others wrote: llama.cpp's `/v1/systemone`, the same model through structured output on the
//! wires that it speaks, and the two mock servers of the reference.
//!
//! Runs what is named: `ZIDANE_LOCAL_LLM_URL` for a server that `scripts/local-llm start` began (with `--model 1.5b` it also
//! checks what is decided: the smaller model decides next to nothing), `ZIDANE_JEVCOMPAT_URL` for `jevcompat mock`,
//! `ZIDANE_LAYA_URL` for `laya-serve`.
#![cfg(all(feature = "anthropic", feature = "openai"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use zidane::decision::{
    Answers, Decider, DecisionApi, DecisionFailureReason as Reason, DecisionProfile, ModelDecisions, Question,
};
use zidane::provider::openai_chat::ChatProfile;
use zidane::provider::openai_responses::ResponsesProfile;
use zidane::tool::{NoInput, ToolContext, tool_fn};
use zidane::types::{Media, PromptPart};
use zidane::{Agent, Anthropic, OpenAi, OpenAiChat};

/// A small model on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

fn named(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: {variable} names no server");
    }
    url
}

fn system_one(url: &str) -> Decider {
    let api = DecisionApi::builder(DecisionProfile::llama_cpp()).model("jev-latest").base_url(url).build().unwrap();
    Decider::new(api).timeout(PATIENCE)
}

fn questions() -> [Question; 3] {
    [
        Question::bool("happy", "Is the writer happy?"),
        Question::choice("topic", "What is the text about?", ["food", "travel", "sport"]),
        Question::score("praise", "How does the writer judge?", ["very badly", "neither badly nor well", "very well"]),
    ]
}

/// That everything has the form it should have.
fn check_form(answers: &Answers) {
    assert!(answers.bool("happy").is_some() && answers.choice("topic").is_some(), "{answers:?}");
    assert!((0.0..=2.0).contains(&answers.score("praise").unwrap()), "{answers:?}");
}

/// A model that is large enough to decide.
fn is_sensible(answers: &Answers) -> bool {
    answers.model_id.as_deref().is_some_and(|model| model.contains("1.5b"))
}

#[tokio::test]
async fn llama_cpp_decides() {
    let Some(url) = named("ZIDANE_LOCAL_LLM_URL") else { return };
    let decider = system_one(&url);
    let mut right = 0;
    for (text, happy, topic) in [
        ("The soup was wonderful, we will eat here again!", true, "food"),
        ("My pasta was cold and the waiter shouted at us.", false, "food"),
        ("We won the football match 3:0, what a day!", true, "sport"),
        ("Our flight to Rome was cancelled and we slept on the floor of the airport.", false, "travel"),
    ] {
        let answers = match decider.decide(json!({"text": text}), questions()).await {
            Ok(answers) => answers,
            Err(failure) if failure.http_status == Some(501) => {
                let _ = writeln!(std::io::stderr(), "SKIPPED: the server's model makes no decisions");
                return;
            }
            Err(failure) => panic!("{failure:?}"),
        };
        check_form(&answers);
        assert!(answers.usage[0].tokens.input > 50 && answers.usage[0].cost.is_none(), "{answers:?}");
        if !is_sensible(&answers) {
            return;
        }
        right +=
            usize::from(answers.bool("happy") == Some(happy)) + usize::from(answers.choice("topic") == Some(topic));
        assert_eq!(answers.score("praise").unwrap() > 1.0, happy, "{text}: {answers:?}");
    }
    assert!(right >= 7, "{right} of 8 are right");
}

#[tokio::test]
async fn llama_cpp_says_what_it_does_not_take() {
    let Some(url) = named("ZIDANE_LOCAL_LLM_URL") else { return };
    let decider = system_one(&url);
    let many: Vec<_> = (0..60).map(|number| format!("option {number}")).collect();
    let failure = decider.decide("Text", [Question::choice("which", "Which?", many)]).await.unwrap_err();
    if failure.http_status != Some(501) {
        assert_eq!((failure.reason, failure.http_status), (Reason::Invalid, Some(400)), "{failure:?}");
        assert!(failure.message.contains("which"), "{failure}");
    }
    let failure = decider.decide("word ".repeat(20_000), questions()).await.unwrap_err();
    assert!(failure.reason == Reason::Invalid || failure.http_status == Some(501), "{failure:?}");
    // A plain red picture of 16 by 16 pixels.
    let red =
        "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mP4z8BAEmIY1TCqYfhqAACQ+f8B8u7oVwAAAABJRU5ErkJggg==";
    let evidence = [PromptPart::text("A picture."), PromptPart::Image(Media::base64("image/png", red))];
    match decider.decide(evidence, [Question::choice("colour", "Which colour is it?", ["red", "blue", "green"])]).await
    {
        Ok(answers) if is_sensible(&answers) => assert_eq!(answers.choice("colour"), Some("red"), "{answers:?}"),
        Ok(answers) => assert!(answers.choice("colour").is_some()),
        Err(failure) => assert!(matches!(failure.reason, Reason::Unsupported | Reason::Invalid), "{failure:?}"),
    }
}

#[tokio::test]
async fn the_same_model_decides_through_each_wire_it_speaks() {
    let Some(url) = named("ZIDANE_LOCAL_LLM_URL") else { return };
    let chat = OpenAiChat::builder().profile(ChatProfile::llama_cpp()).base_url(format!("{url}/v1")).build().unwrap();
    let profile = ResponsesProfile::llama_cpp();
    let responses = OpenAi::builder().profile(profile).base_url(format!("{url}/v1")).build().unwrap();
    let messages = Anthropic::builder().id("llamacpp").base_url(&url).api_key("none").build().unwrap();
    let wires = [
        ("chat", ModelDecisions::new(chat, "local")),
        ("responses", ModelDecisions::new(responses, "local")),
        ("messages", ModelDecisions::new(messages, "local")),
    ];
    for (wire, model) in wires {
        let decider = Decider::new(model.max_tokens(200)).timeout(PATIENCE);
        let text = "We won the football match 3:0, what a day!";
        match decider.decide(text, questions()).await {
            Ok(answers) => {
                check_form(&answers);
                assert!(answers.usage[0].tokens.total() > 50, "{wire}: {answers:?}");
                if is_sensible(&answers) {
                    assert_eq!((answers.bool("happy"), answers.choice("topic")), (Some(true), Some("sport")), "{wire}");
                }
            }
            // Not every wire of the server holds the model to the schema; then the small one may say anything.
            Err(failure) => {
                assert_eq!(failure.reason, Reason::Invalid, "{wire}: {failure:?}");
                assert!(failure.sent && !failure.usage.is_empty(), "{wire}: {failure:?}");
                assert_ne!(wire, "chat", "{failure:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_agents_tool_decides_on_the_server() {
    let Some(url) = named("ZIDANE_LOCAL_LLM_URL") else { return };
    let tool = tool_fn("check", "Checks", |_: NoInput, cx: ToolContext| async move {
        let decision = cx.decide("The soup was wonderful.", questions()).await;
        Ok(decision.map_or_else(|failure| failure.reason.to_string(), |_| "decided".to_owned()))
    });
    let script = [zidane::testing::Reply::call("check", json!({})), zidane::testing::Reply::text("Done")];
    let model = zidane::testing::ScriptedProvider::new(script);
    let agent = Agent::builder().provider(model).model("m").decider(system_one(&url)).tool(tool).build().unwrap();
    let outcome = agent.run("Go").await.unwrap();
    if let [decision] = &outcome.stats.decisions[..] {
        assert!(decision.tokens.input > 50 && outcome.stats.turns == 2, "{decision:?}");
    }
}

#[tokio::test]
async fn the_mock_servers_are_understood() {
    for variable in ["ZIDANE_JEVCOMPAT_URL", "ZIDANE_LAYA_URL"] {
        let Some(url) = named(variable) else { continue };
        let mut profile = DecisionProfile::typesafe();
        profile.key_required = false;
        let api = DecisionApi::builder(profile).base_url(url).build().unwrap();
        let decider = Decider::new(api).timeout(PATIENCE);
        for _ in 0..2 {
            match decider.decide(json!({"text": "The soup was wonderful."}), questions()).await {
                Ok(answers) => check_form(&answers),
                // With a fault switched on it may say anything, but we know what went wrong.
                Err(failure) => {
                    let _ = writeln!(std::io::stderr(), "{variable}: {failure}");
                    let known = matches!(failure.reason, Reason::Invalid | Reason::Auth | Reason::Error);
                    assert!(known && std::env::var("ZIDANE_JEVCOMPAT_FAULT").is_ok(), "{variable}: {failure:?}");
                }
            }
        }
        let mut questions = questions();
        questions[1] = Question::choice("topic", "What is it about?", (0..200).map(|number| format!("topic {number}")));
        match decider.decide("Text", questions).await {
            Ok(answers) => check_form(&answers),
            Err(failure) => {
                assert!(failure.message.contains("topic") || failure.reason == Reason::Invalid, "{failure:?}")
            }
        }
    }
}

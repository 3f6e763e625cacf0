//! Vision fallback: a model that cannot see is told what images show.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use harness::{Scenario, tool};
use serde_json::json;
use zidane::provider::{Capabilities, ProviderErrorKind, RetryPolicy};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{Media, PromptPart, ToolResultContent, UsageKind};
use zidane::{Agent, RunErrorKind, StopCause};

fn picture(n: u8) -> Media {
    Media::bytes("image/png", [0x89, b'P', b'N', b'G', 13, 10, 26, 10, n])
}

#[tokio::test]
async fn each_image_is_described_once_and_stands_in_from_then_on() {
    let eyes = ScriptedProvider::new([Reply::text("a red square"), Reply::text("a blue circle")])
        .id("eyes")
        .allow_prefix_breaks();
    let model = ScriptedProvider::new([
        Reply::call("screenshot", json!({})),
        Reply::text("I see a red square and a blue circle."),
        Reply::text("As before."),
    ])
    .capabilities(Capabilities::TEXT);
    let shot = tool("screenshot", |_, _| {
        Box::pin(async { Ok(vec![ToolResultContent::text("here"), ToolResultContent::Image(picture(2))].into()) })
    });
    let agent = Agent::builder()
        .provider(model.clone())
        .model("blind")
        .vision_fallback(eyes.clone(), "seeing")
        .tool(shot)
        .build()
        .unwrap();
    let outcome = agent.run([PromptPart::text("Look:"), PromptPart::Image(picture(1))]).await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    // The scripted provider holds each request against the one before: the words stay the same.
    let sent = serde_json::to_string(&model.requests()[1].turns).unwrap();
    assert!(
        sent.contains("[An image that shows: a red square]") && sent.contains("[An image that shows: a blue circle]")
    );
    assert!(!sent.contains("\"image\""), "{sent}");
    let stored = serde_json::to_string(&agent.history().iter().collect::<Vec<_>>()).unwrap();
    assert!(stored.contains("iVBORw0KGgo") && !stored.contains("red square]"), "the session keeps the images");
    let kinds: Vec<_> = outcome.stats.turn_usage.iter().map(|u| (u.kind, u.requested_model.as_str())).collect();
    assert_eq!(
        kinds,
        [
            (UsageKind::Vision, "seeing"),
            (UsageKind::Turn, "blind"),
            (UsageKind::Vision, "seeing"),
            (UsageKind::Turn, "blind")
        ]
    );
    assert_eq!(outcome.stats.turns, 2);
    assert_eq!(outcome.stats.total_in, 40);

    agent.run([PromptPart::text("Again:"), PromptPart::Image(picture(1))]).await.unwrap();
    assert_eq!(eyes.requests().len(), 2, "a known image is not asked about again");
}

#[tokio::test]
async fn a_model_that_sees_is_left_alone() {
    let eyes = ScriptedProvider::new([]);
    let model = ScriptedProvider::new([Reply::text("I see.")]);
    let agent = Agent::builder().provider(model).model("sees").vision_fallback(eyes.clone(), "eyes").build().unwrap();
    agent.run(PromptPart::Image(picture(1))).await.unwrap();
    assert!(eyes.requests().is_empty());
}

#[tokio::test]
async fn a_description_that_fails_fails_the_run_before_the_model_is_asked() {
    let eyes = ScriptedProvider::new([Reply::fails(ProviderErrorKind::Auth)]);
    let model = ScriptedProvider::new([Reply::text("never")]).capabilities(Capabilities::TEXT);
    let agent = Agent::builder()
        .provider(model.clone())
        .model("blind")
        .retry(RetryPolicy::never())
        .vision_fallback(eyes, "eyes")
        .build()
        .unwrap();
    let error = agent.run(PromptPart::Image(picture(1))).await.unwrap_err();
    assert!(matches!(&error.kind, RunErrorKind::Provider(error) if error.kind == ProviderErrorKind::Auth));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn descriptions_are_on_record() {
    let eyes = ScriptedProvider::repeating(Reply::text("a red square")).allow_prefix_breaks();
    let told = Scenario::new([Reply::call("look", json!({})), Reply::text("ok")])
        .model(|model| model.capabilities(Capabilities::TEXT))
        .build(move |builder| {
            let look = tool("look", |_, _| Box::pin(async { Ok(vec![ToolResultContent::Image(picture(1))].into()) }));
            builder.tool(look).vision_fallback(eyes.clone(), "eyes")
        })
        .tell_all()
        .await;
    assert_eq!(told.outcome().stats.turn_usage.len(), 3);
}

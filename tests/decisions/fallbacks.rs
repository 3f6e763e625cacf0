//! Who is asked next, and which failure is told in the end.

use std::time::Duration;

use zidane::decision::{Decider, DecisionContract, DecisionFailureReason as Reason, DecisionProfile};
use zidane::provider::{PriceBook, Rates};
use zidane::testing::{Gate, HttpReply, Reply, ScriptedProvider};
use zidane::types::{Media, NanoUsd, PromptPart};

use super::ask::{answered, api, json_reply, profile, serve, yes_or_no};

const OPENAI: DecisionContract = DecisionContract::OpenAi;
const SYSTEM_ONE: DecisionContract = DecisionContract::SystemOne;

#[tokio::test]
async fn the_next_one_is_asked_and_both_are_billed() {
    // The first answers another question, and is billed for it.
    let wrong = answered(OPENAI, 0.9).to_string().replace("\"ok\"", "\"no\"");
    let first = serve(HttpReply::json(200, wrong)).await;
    let second = serve(HttpReply::json(503, "{}")).await;
    let third = serve(json_reply(&answered(SYSTEM_ONE, 0.8))).await;
    let never = serve(HttpReply::new(500)).await;
    let decider = Decider::new(api(profile(OPENAI), first.url()))
        .fallback(api(profile(OPENAI), second.url()))
        .fallback(api(profile(SYSTEM_ONE), third.url()))
        .fallback(api(profile(OPENAI), never.url()));
    let answers = decider.decide("Text", yes_or_no()).await.unwrap();
    assert!(answers.is_yes("ok", 0.8));
    assert_eq!((answers.provider.as_str(), answers.model_id.as_deref()), ("typesafe", Some("jev-1.14.0")));
    let billed: Vec<_> = answers.usage.iter().map(|usage| (usage.provider.as_str(), usage.tokens.input)).collect();
    assert_eq!(billed, [("openai", 100), ("typesafe", 100)]);
    assert_eq!((first.requests().len(), second.requests().len(), never.requests().len()), (1, 1, 0));
}

#[tokio::test]
async fn the_failure_of_one_who_was_asked_is_told() {
    let mut keyless = DecisionProfile::openai();
    keyless.key_var = None;
    let keyless = || zidane::decision::DecisionApi::builder(keyless.clone()).build().unwrap();
    let limited = serve(HttpReply::new(429).header("retry-after", "3")).await;
    let blind = || api(DecisionProfile::ollama(), "http://127.0.0.1:1");
    // It was sent: that says more than what was not.
    let decider = Decider::new(keyless()).fallback(api(profile(OPENAI), limited.url())).fallback(keyless());
    let failure = decider.decide("Text", yes_or_no()).await.unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::RateLimited, true));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(3)));
    // Nothing was sent: the first one's.
    let image = [PromptPart::Image(Media::bytes("image/png", b"\x89PNG\r\n\x1a\n...."))];
    let failure = Decider::new(blind()).fallback(keyless()).decide(image, yes_or_no()).await.unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::Unsupported, false));
}

#[tokio::test]
async fn one_that_hangs_leaves_time_for_the_next() {
    let hangs = serve(HttpReply::new(200).hold_head(&Gate::new())).await;
    let answers = serve(json_reply(&answered(SYSTEM_ONE, 0.9))).await;
    let decider = Decider::new(api(profile(OPENAI), hangs.url()))
        .fallback(api(profile(SYSTEM_ONE), answers.url()))
        .attempt_timeout(Duration::from_millis(100));
    assert_eq!(decider.decide("Text", yes_or_no()).await.unwrap().provider, "typesafe");
    hangs.wait_for_connections(0).await;
    // In all there is an end, whoever is being asked.
    let hangs = serve(HttpReply::new(200).hold_head(&Gate::new())).await;
    let next = serve(json_reply(&answered(SYSTEM_ONE, 0.9))).await;
    let decider = Decider::new(api(profile(OPENAI), hangs.url()))
        .fallback(api(profile(SYSTEM_ONE), next.url()))
        .timeout(Duration::from_millis(50));
    let failure = decider.decide("Text", yes_or_no()).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Timeout);
    assert!(next.requests().is_empty());
}

#[tokio::test]
async fn a_model_can_stand_in_for_a_server_and_prices_are_the_hosts() {
    let down = serve(HttpReply::new(500)).await;
    let model = ScriptedProvider::new([Reply::text(r#"{"ok": true}"#)]);
    let prices = PriceBook::empty().set("scripted", "m", Rates::usd(1.0, 2.0));
    let decider = Decider::new(api(profile(OPENAI), down.url()))
        .fallback(zidane::decision::ModelDecisions::new(model, "m"))
        .prices(prices);
    let answers = decider.decide("Text", yes_or_no()).await.unwrap();
    assert_eq!(answers.bool("ok"), Some(true));
    // 10 tokens in, 5 out.
    assert_eq!(answers.usage[0].cost, Some(NanoUsd(10_000 + 10_000)));
}

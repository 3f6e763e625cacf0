//! What is refused before anything is sent.

use serde_json::{Value, json};
use zidane::decision::{
    Decider, DecisionContract, DecisionEvidence, DecisionFailureReason as Reason, DecisionProfile, Question,
};
use zidane::provider::Capabilities;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{Document, Media, MediaSource, PromptPart};

use super::ask::{CONTRACTS, answered, api, decider, json_reply, profile, serve, yes_or_no};

fn texts(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("value {number}")).collect()
}

fn cases() -> Vec<(&'static str, DecisionEvidence, Vec<Question>, &'static str)> {
    let text = || DecisionEvidence::from("Text");
    let ok = || yes_or_no().to_vec();
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!({"a": deep});
    }
    let many = (0..401).map(|number| Question::bool(format!("q{number}"), "Is it?")).collect();
    vec![
        ("no questions", text(), vec![], "there are no questions"),
        ("two ids", text(), [yes_or_no(), yes_or_no()].concat(), "two questions have the id \"ok\""),
        ("no id", text(), vec![Question::bool("", "Is it?")], "question 0 has no id"),
        ("no instructions", text(), vec![Question::bool("a", " ")], "question \"a\": it has no instructions"),
        ("one option", text(), vec![Question::choice("c", "Which?", ["a"])], "question \"c\": it has 1 options"),
        ("no options", text(), vec![Question::choice("c", "Which?", [""; 0])], "question \"c\": it has 0 options"),
        ("256 options", text(), vec![Question::choice("c", "Which?", texts(256))], "it has 256 options, and 2 to 255"),
        (
            "two options alike",
            text(),
            vec![Question::choice("c", "Which?", ["a", "a"])],
            "two of its options are \"a\"",
        ),
        ("an empty option", text(), vec![Question::choice("c", "Which?", ["a", ""])], "one of its options is empty"),
        ("eleven levels", text(), vec![Question::score("s", "How?", texts(11))], "it has 11 levels, and 2 to 10"),
        ("one level", text(), vec![Question::score("s", "How?", texts(1))], "it has 1 levels"),
        ("401 questions", text(), many, "401 questions, and at most"),
        ("empty text", DecisionEvidence::from(" \n"), ok(), "the evidence is empty"),
        ("empty object", DecisionEvidence::from(json!({})), ok(), "the evidence is empty"),
        ("null", DecisionEvidence::from(Value::Null), ok(), "the evidence is empty"),
        ("no parts", DecisionEvidence::from(vec![]), ok(), "the evidence is empty"),
        ("a list", DecisionEvidence::from(json!([1])), ok(), "the evidence is JSON, but no object"),
        ("50 MB of text", DecisionEvidence::from("x".repeat(50_000_000)), ok(), "50000000 bytes of evidence"),
        ("50 MB of JSON", DecisionEvidence::from(json!({"a": "x".repeat(50_000_000)})), ok(), "bytes of JSON evidence"),
        ("deep JSON", DecisionEvidence::from(deep), ok(), "levels of nesting in the evidence"),
        ("a long question", text(), vec![Question::bool("a", "x".repeat(50_000_000))], "bytes of questions"),
    ]
}

#[tokio::test]
async fn bad_input_is_invalid_and_never_sent() {
    for contract in CONTRACTS {
        let server = serve(json_reply(&answered(contract, 0.9))).await;
        let decider = decider(contract, &server);
        for (name, evidence, questions, expected) in cases() {
            let failure = decider.decide(evidence, questions).await.unwrap_err();
            assert_eq!((failure.reason, failure.sent), (Reason::Invalid, false), "{name}: {failure}");
            assert!(failure.message.contains(expected), "{name}: {failure}");
            assert!(failure.usage.is_empty() && failure.http_status.is_none());
        }
        assert!(server.requests().is_empty());
        // The same decider is as good as before.
        assert!(decider.decide("Text", yes_or_no()).await.is_ok());
    }
    let model = ScriptedProvider::new([]);
    for (name, evidence, questions, _) in cases() {
        let failure = Decider::of_model(model.clone(), "m").decide(evidence, questions).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Invalid, false), "{name}: {failure}");
    }
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn the_most_that_is_taken_is_taken() {
    for contract in CONTRACTS {
        let server = zidane::testing::SseServer::with_handler(|_| zidane::testing::HttpReply::new(500)).await.unwrap();
        let decider = decider(contract, &server);
        let questions = [
            Question::choice("a", "Which?", texts(255)),
            Question::choice("b", "Which?", texts(2)),
            Question::score("c", "How?", texts(10)),
            Question::score("d", "How?", texts(2)),
        ];
        let failure = decider.decide("Text", questions).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Error, true), "{failure}");
        let many: Vec<_> = (0..400).map(|number| Question::bool(format!("q{number}"), "Is it?")).collect();
        assert!(decider.decide("Text", many).await.unwrap_err().sent);
    }
}

#[tokio::test]
async fn openais_json_limits_are_its_own() {
    let server = serve(json_reply(&answered(DecisionContract::OpenAi, 0.9))).await;
    let openai = decider(DecisionContract::OpenAi, &server);
    let mut deep = json!(1);
    for _ in 0..33 {
        deep = json!([deep]);
    }
    for (evidence, expected) in [
        (json!({"a": "x".repeat(300 * 1024)}), "bytes of JSON evidence"),
        (json!({"a": deep}), "34 levels of nesting"),
        (json!({"a": vec![0; 10_000]}), "10002 values"),
    ] {
        let failure = openai.decide(evidence, yes_or_no()).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Invalid, false), "{failure}");
        assert!(failure.message.contains(expected), "{failure}");
    }
    // The same as text is none of their business.
    assert!(openai.decide("x".repeat(300 * 1024), yes_or_no()).await.is_ok());
}

#[tokio::test]
async fn media_that_a_wire_has_no_place_for_is_unsupported_and_never_sent() {
    let png = || Media::bytes("image/png", b"\x89PNG\r\n\x1a\n....");
    let image = |media| DecisionEvidence::from([PromptPart::text("See"), PromptPart::Image(media)]);
    let pdf = DecisionEvidence::from([PromptPart::Document(Document::pdf("a.pdf", b"%PDF-1.4"))]);
    let host = image(Media::new(None, MediaSource::Ref("key".into())));
    let server = serve(json_reply(&answered(DecisionContract::SystemOne, 0.9))).await;
    let url = || server.url();
    for (name, profile, evidence) in [
        ("no images", DecisionProfile::ollama(), image(png())),
        ("no addresses", DecisionProfile::llama_cpp(), image(Media::url("https://example.com/a.png"))),
        ("assets without addresses", DecisionProfile::typesafe(), image(Media::url("https://example.com/a.png"))),
        ("assets are PNG or JPEG", DecisionProfile::typesafe(), image(Media::bytes("image/gif", b"GIF89a......"))),
        ("the host's blob", DecisionProfile::openai(), host),
        ("text as an image", DecisionProfile::openai(), image(Media::bytes("image/png", b"hello world, hello"))),
        ("a document", profile(DecisionContract::OpenAi), pdf),
    ] {
        let failure = Decider::new(api(profile, url())).decide(evidence, yes_or_no()).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Unsupported, false), "{name}: {failure}");
    }
    assert!(server.requests().is_empty());
    // A model that cannot see.
    let blind = ScriptedProvider::new([Reply::text("{}")]).capabilities(Capabilities::TEXT);
    let failure = Decider::of_model(blind.clone(), "m").decide(image(png()), yes_or_no()).await.unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::Unsupported, false), "{failure}");
    assert!(blind.requests().is_empty());
}

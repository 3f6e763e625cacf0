//! Decisions of models: structured output, a forced tool, one try to mend.

use serde_json::json;
use zidane::decision::{Answer, Decider, DecisionFailureReason as Reason, ModelDecisions, Question};
use zidane::provider::{Capabilities, ProviderErrorKind, ToolChoice};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::{Role, TurnFinishReason};

use super::ask::{three, yes_or_no};

fn native() -> Capabilities {
    let mut native = Capabilities::TEXT;
    native.native_structured_output = true;
    native
}

#[tokio::test]
async fn structured_output_is_used_where_there_is_some() {
    let reply = Reply::text(r#"{"wants_replacement": true, "queue": "shipping", "urgency": "today"}"#);
    let model = ScriptedProvider::new([reply]).capabilities(native());
    let answers = Decider::of_model(model.clone(), "m").decide(json!({"order": 88}), three()).await.unwrap();
    let expected = Answer::Choice { value: "shipping".into(), confidence: None, probabilities: vec![] };
    assert_eq!(answers.get("queue"), Some(&expected), "a model gives no probabilities");
    assert_eq!((answers.bool("wants_replacement"), answers.score("urgency")), (Some(true), Some(2.0)));
    assert!(answers.is_yes("wants_replacement", 0.99), "an answer without a probability is clear");
    let head = &model.requests()[0].head;
    let schema = &head.output.as_ref().unwrap().schema;
    assert_eq!(schema["required"], json!(["wants_replacement", "queue", "urgency"]));
    assert_eq!(schema["properties"]["queue"]["enum"], json!(["shipping", "billing"]));
    assert_eq!(schema["additionalProperties"], false);
    assert!(head.tools.is_empty());
}

#[tokio::test]
async fn a_tool_is_forced_where_there_is_none() {
    let model = ScriptedProvider::new([Reply::call("answer", json!({"ok": false}))]);
    let decisions = ModelDecisions::new(model.clone(), "m").max_tokens(500);
    let answers = Decider::new(decisions).decide("Text", yes_or_no()).await.unwrap();
    assert_eq!(answers.bool("ok"), Some(false));
    let head = &model.requests()[0].head;
    assert_eq!(
        (&head.tool_choice, head.tools.len(), head.max_tokens),
        (&ToolChoice::Tool("answer".into()), 1, Some(500))
    );
    assert!(head.output.is_none());
}

#[tokio::test]
async fn a_wrong_answer_is_mended_once_and_both_are_billed() {
    for capabilities in [native(), Capabilities::TEXT] {
        let model =
            ScriptedProvider::new([Reply::text("yes"), Reply::text(r#"{"ok": true}"#)]).capabilities(capabilities);
        let answers = Decider::of_model(model.clone(), "m").decide("Text", yes_or_no()).await.unwrap();
        assert_eq!(answers.bool("ok"), Some(true));
        assert_eq!(answers.usage.iter().map(|usage| usage.tokens.input).sum::<u64>(), 20);
        let second = &model.requests()[1].turns;
        let roles: Vec<_> = second.iter().map(|turn| turn.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User]);
        assert!(second.last().unwrap().text().contains("not valid JSON"), "{}", second.last().unwrap().text());
    }
}

#[tokio::test]
async fn a_second_wrong_answer_is_invalid_names_the_question_and_is_billed() {
    for (reply, expected) in [
        (Reply::text(r#"{"ok": "true"}"#), "question \"ok\""),
        (Reply::text("{}"), "Question \"ok\""),
        (Reply::text(r#"{"ok": true, "more": 1}"#), "\"more\""),
        (Reply::text(r#"{"ok": true} {"ok": false}"#), "more than one"),
        (Reply::text("[true]"), "no JSON object"),
        (Reply::empty(), "not valid JSON"),
        (Reply::call("answer", json!({"ok": null})), "question \"ok\""),
        (Reply::text("{\"ok\": tr").finish(TurnFinishReason::Length, None), "cut by the output limit"),
    ] {
        let model = ScriptedProvider::repeating(reply);
        let failure = Decider::of_model(model.clone(), "m").decide("Text", yes_or_no()).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Invalid, true), "{failure}");
        assert!(failure.message.contains(expected), "{failure}");
        assert_eq!(model.requests().len(), 2, "one try to mend, and no more");
        assert_eq!(failure.usage.iter().map(|usage| usage.tokens.input).sum::<u64>(), 20, "{failure}");
    }
}

#[tokio::test]
async fn a_model_that_refuses_has_refused_every_question() {
    let reply = Reply::text("I cannot help with that.").finish(TurnFinishReason::ContentFilter, Some("refusal"));
    let answers = Decider::of_model(ScriptedProvider::new([reply]), "m").decide("Text", three()).await.unwrap();
    assert!(three().iter().all(|question| answers.is_refused(&question.id)));
    assert_eq!(answers.usage.len(), 1);
}

#[tokio::test]
async fn ids_that_no_schema_takes_are_numbered() {
    let model = ScriptedProvider::new([Reply::text(r#"{"q1": true, "q2": "b"}"#)]);
    let questions = [Question::bool("Is it ok?", "Is it?"), Question::choice("wähle", "Which?", ["a", "b"])];
    let answers = Decider::of_model(model, "m").decide("Text", questions).await.unwrap();
    assert_eq!((answers.bool("Is it ok?"), answers.choice("wähle")), (Some(true), Some("b")));
}

#[tokio::test]
async fn errors_of_the_provider_keep_their_reason() {
    for (kind, reason, sent) in [
        (ProviderErrorKind::RateLimited, Reason::RateLimited, true),
        (ProviderErrorKind::Overloaded, Reason::RateLimited, true),
        (ProviderErrorKind::Quota, Reason::Quota, true),
        (ProviderErrorKind::ContextOverflow, Reason::Invalid, true),
        (ProviderErrorKind::Timeout, Reason::Timeout, true),
        (ProviderErrorKind::TruncatedStream, Reason::Invalid, true),
        (ProviderErrorKind::Protocol, Reason::Invalid, true),
        (ProviderErrorKind::Server, Reason::Error, true),
        (ProviderErrorKind::Transport, Reason::Error, true),
        (ProviderErrorKind::Aborted, Reason::Aborted, true),
        (ProviderErrorKind::Unsupported, Reason::Unsupported, false),
        (ProviderErrorKind::Auth, Reason::Unavailable, false),
        (ProviderErrorKind::Invalid, Reason::Invalid, false),
    ] {
        let model = ScriptedProvider::new([Reply::fails(kind)]);
        let failure = Decider::of_model(model, "m").decide("Text", yes_or_no()).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (reason, sent), "{kind}: {failure}");
    }
}

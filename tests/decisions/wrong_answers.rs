//! Answers that do not fit their questions: `invalid`, naming the question, and billed all the same.

use async_trait::async_trait;
use serde_json::{Value, json};
use zidane::decision::{
    Answer, Decider, Decision, DecisionCall, DecisionContract, DecisionFailure, DecisionFailureReason as Reason,
    DecisionProvider, DecisionReply, DecisionRequest, Question, QuestionAnswer,
};

use super::ask::{decider, json_reply, serve, three};

/// A good answer to [`three`], in either contract, with one part replaced.
fn openai(change: impl FnOnce(&mut Vec<Value>)) -> Value {
    let mut answers = vec![
        json!({"type": "predicate", "name": "wants_replacement", "probability": 0.9}),
        json!({"type": "choice", "name": "queue", "choice": "billing", "confidence": 0.5, "probabilities": [
            {"value": "shipping", "probability": 0.2}, {"value": "billing", "probability": 0.8}]}),
        json!({"type": "score", "name": "urgency", "score": 1.0, "confidence": 0.5, "probabilities": [
            {"value": 0, "probability": 0.2}, {"value": 1, "probability": 0.6}, {"value": 2, "probability": 0.2}]}),
    ];
    change(&mut answers);
    json!({"model": "m", "answers": answers, "usage": {"input_tokens": 50, "output_tokens": 0}})
}

fn system_one(change: impl FnOnce(&mut Value)) -> Value {
    let mut answers = json!({
        "wants_replacement": {"type": "noul", "noul": 0.9},
        "queue": {"type": "choice", "choice": "billing", "confidence": 0.5, "probabilities": {"shipping": 0.2, "billing": 0.8}},
        "urgency": {"type": "score", "score": 1.0, "confidence": 0.5, "probabilities": {"0": 0.2, "1": 0.6, "2": 0.2}}});
    change(&mut answers);
    json!({"model": "m", "answers": answers, "usage": {"input_tokens": 50, "output_tokens": 0}})
}

async fn ask(contract: DecisionContract, body: &Value) -> Decision {
    decider(contract, &serve(json_reply(body)).await).decide("Text", three()).await
}

#[tokio::test]
async fn a_wrong_shape_is_invalid_names_the_question_and_is_billed() {
    let openai_cases: Vec<(Value, &str)> = vec![
        (openai(|answers| drop(answers.remove(1))), "\"queue\" has no answer"),
        (openai(|answers| answers.clear()), "\"wants_replacement\" has no answer"),
        (openai(|answers| answers.push(answers[0].clone())), "\"wants_replacement\" has two answers"),
        (openai(|answers| answers[0]["name"] = json!("other")), "\"other\", which was not asked"),
        (openai(|answers| answers.push(json!({"type": "refusal", "name": null}))), "number 3, which was not asked"),
        (openai(|answers| answers[0]["type"] = json!("choice")), "\"wants_replacement\": it is a bool"),
        (openai(|answers| answers[1]["type"] = json!("box")), "\"queue\": it is a choice, and the answer is a \"box\""),
        (
            openai(|answers| answers[0] = json!({"name": "wants_replacement"})),
            "\"wants_replacement\": the answer has no type",
        ),
        (openai(|answers| answers[0]["probability"] = json!(1.5)), "\"wants_replacement\": its probability is 1.5"),
        (
            openai(|answers| answers[0]["probability"] = json!("NaN")),
            "\"wants_replacement\": its probability is no number",
        ),
        (
            openai(|answers| answers[0]["probability"] = json!(null)),
            "\"wants_replacement\": the answer has no probability",
        ),
        (openai(|answers| answers[1]["choice"] = json!("sales")), "\"queue\": \"sales\" is none of its options"),
        (openai(|answers| answers[1]["choice"] = json!(true)), "\"queue\": \"true\" is none of its options"),
        (
            openai(|answers| drop(answers[1]["probabilities"].as_array_mut().unwrap().pop())),
            "\"queue\": there is not exactly one probability of \"billing\"",
        ),
        (
            openai(|answers| answers[1]["probabilities"][0]["value"] = json!("sales")),
            "\"queue\": it has a probability of \"sales\"",
        ),
        (
            openai(|answers| answers[1]["probabilities"][0]["probability"] = json!(-0.5)),
            "\"queue\": its probability is -0.5",
        ),
        (openai(|answers| answers[1]["confidence"] = json!(7)), "\"queue\": its confidence is 7"),
        (openai(|answers| answers[2]["score"] = json!(2.5)), "\"urgency\": its score is 2.5"),
        (
            openai(|answers| answers[2]["probabilities"][0]["value"] = json!(3)),
            "\"urgency\": it has a probability of level \"3\"",
        ),
        (
            openai(|answers| drop(answers[2]["probabilities"].as_array_mut().unwrap().pop())),
            "\"urgency\": a level has no probability",
        ),
    ];
    let system_one_cases: Vec<(Value, &str)> = vec![
        (system_one(|answers| drop(answers.as_object_mut().unwrap().remove("queue"))), "\"queue\" has no answer"),
        (system_one(|answers| answers["other"] = json!({"type": "noul", "noul": 1})), "\"other\", which was not asked"),
        (system_one(|answers| answers["queue"] = json!([1])), "\"queue\": the answer is no object"),
        (
            system_one(|answers| answers["wants_replacement"]["noul"] = json!(null)),
            "\"wants_replacement\": the answer has no noul",
        ),
        (
            system_one(|answers| answers["wants_replacement"]["noul"] = json!(-1)),
            "\"wants_replacement\": its probability is -1",
        ),
        (
            system_one(|answers| answers["queue"] = json!({"type": "choice"})),
            "\"queue\": the answer has neither a choice nor probabilities",
        ),
        (
            system_one(|answers| answers["queue"]["probabilities"] = json!(3)),
            "\"queue\": its probabilities are neither",
        ),
        (
            system_one(|answers| answers["queue"]["probabilities"]["shipping"] = json!("x")),
            "\"queue\": one of its probabilities is no number",
        ),
        (
            system_one(|answers| answers["urgency"] = json!({"type": "score"})),
            "\"urgency\": the answer has neither a score",
        ),
        (
            system_one(|answers| answers["urgency"]["probabilities"] = json!({"0": 1.0})),
            "\"urgency\": a level has no probability",
        ),
        (system_one(|answers| answers["urgency"]["type"] = json!("noul")), "\"urgency\": it is a score"),
    ];
    assert!(ask(DecisionContract::OpenAi, &openai(|_| {})).await.is_ok());
    assert!(ask(DecisionContract::SystemOne, &system_one(|_| {})).await.is_ok());
    let all = openai_cases.into_iter().map(|case| (DecisionContract::OpenAi, case));
    let all = all.chain(system_one_cases.into_iter().map(|case| (DecisionContract::SystemOne, case)));
    for (contract, (body, expected)) in all {
        let failure = ask(contract, &body).await.unwrap_err();
        assert_eq!(
            (failure.reason, failure.sent, failure.http_status.unwrap_or(200)),
            (Reason::Invalid, true, 200),
            "{failure}"
        );
        assert!(failure.message.contains(expected), "{failure} has no {expected}");
        assert_eq!(failure.usage.len(), 1, "{failure}");
        assert_eq!(failure.usage[0].tokens.input, 50, "{failure}");
    }
}

#[tokio::test]
async fn a_refused_question_keeps_the_other_answers() {
    for (contract, body) in [
        (DecisionContract::OpenAi, openai(|answers| answers[1] = json!({"type": "refusal", "name": "queue"}))),
        (DecisionContract::SystemOne, system_one(|answers| answers["queue"] = json!({"type": "refusal"}))),
    ] {
        let answers = ask(contract, &body).await.unwrap();
        assert_eq!((answers.bool("wants_replacement"), answers.score("urgency")), (Some(true), Some(1.0)));
        assert!(answers.is_refused("queue") && answers.choice("queue").is_none());
        assert_eq!(answers.usage[0].tokens.input, 50);
    }
}

/// A provider of the host's own that answers what it likes.
struct Host(Vec<QuestionAnswer>);

#[async_trait]
impl DecisionProvider for Host {
    fn id(&self) -> &str {
        "host"
    }

    fn model(&self) -> &str {
        "m"
    }

    async fn ask(&self, _: &DecisionRequest, call: &DecisionCall) -> Result<DecisionReply, DecisionFailure> {
        call.sending();
        Ok(DecisionReply::new(self.0.clone(), None))
    }
}

#[tokio::test]
async fn what_a_host_answers_is_checked_too() {
    let question = || [Question::choice("c", "Which?", ["a", "b"])];
    let of = |probability| Answer::Choice {
        value: "a".into(),
        confidence: None,
        probabilities: vec![("b".into(), 0.0004 - 0.0005), ("a".into(), probability)],
    };
    for bad in [f64::NAN, f64::INFINITY, -1.0, 2.0] {
        let failure =
            Decider::new(Host(vec![QuestionAnswer::new("c", of(bad))])).decide("T", question()).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Invalid, true));
        assert!(failure.message.contains("question \"c\""), "{failure}");
    }
    let score = Answer::Score { value: f64::NAN, confidence: None, probabilities: vec![] };
    let host = Host(vec![QuestionAnswer::new("s", score)]);
    let failure = Decider::new(host).decide("T", [Question::score("s", "How?", ["x", "y"])]).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Invalid);
    // What rounding has put outside is put back, and options come in the order they were asked in.
    let answers =
        Decider::new(Host(vec![QuestionAnswer::new("c", of(1.000_01))])).decide("T", question()).await.unwrap();
    let Some(Answer::Choice { probabilities, .. }) = answers.get("c") else { panic!("{answers:?}") };
    assert_eq!(probabilities, &[("a".to_owned(), 1.0), ("b".to_owned(), 0.0)]);
}

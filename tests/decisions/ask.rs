//! Servers, questions and answers that the tests share.

use std::time::Duration;

use serde_json::{Value, json};
use zidane::decision::{Decider, DecisionApi, DecisionContract, DecisionProfile, Question};
use zidane::testing::{HttpReply, SseServer};

pub(crate) const KEY: &str = "sk-decision-secret-1";

pub(crate) const CONTRACTS: [DecisionContract; 2] = [DecisionContract::OpenAi, DecisionContract::SystemOne];

pub(crate) fn profile(contract: DecisionContract) -> DecisionProfile {
    match contract {
        DecisionContract::OpenAi => DecisionProfile::openai(),
        _ => DecisionProfile::typesafe(),
    }
}

pub(crate) fn api(profile: DecisionProfile, url: impl Into<String>) -> DecisionApi {
    DecisionApi::builder(profile).model("m").api_key(KEY).base_url(url).build().unwrap()
}

pub(crate) async fn serve(reply: HttpReply) -> SseServer {
    SseServer::start([reply]).await.unwrap()
}

pub(crate) fn decider(contract: DecisionContract, server: &SseServer) -> Decider {
    Decider::new(api(profile(contract), server.url())).timeout(Duration::from_secs(20))
}

pub(crate) fn yes_or_no() -> [Question; 1] {
    [Question::bool("ok", "Is it fine?")]
}

/// A body that answers [`yes_or_no`].
pub(crate) fn answered(contract: DecisionContract, probability: f64) -> Value {
    match contract {
        DecisionContract::OpenAi => json!({
            "model": "gpt-6-luna",
            "answers": [{"type": "predicate", "name": "ok", "probability": probability}],
            "usage": {"input_tokens": 100, "output_tokens": 0, "total_tokens": 100}
        }),
        _ => json!({
            "model": "jev-1.14.0",
            "answers": {"ok": {"type": "noul", "noul": probability}},
            "usage": {"input_tokens": 100, "output_tokens": 3}
        }),
    }
}

pub(crate) fn json_reply(body: &Value) -> HttpReply {
    HttpReply::json(200, body.to_string())
}

/// Three questions, one of each kind.
pub(crate) fn three() -> [Question; 3] {
    [
        Question::bool("wants_replacement", "Does the writer ask for a replacement?").yes("asks for a new item"),
        Question::choice(
            "queue",
            "Which queue fits?",
            [("shipping", "damage or delay in transit"), ("billing", "money")],
        ),
        Question::score("urgency", "How urgent is it?", ["can wait", "this week", "today"]),
    ]
}

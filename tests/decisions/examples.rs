//! The request and response examples of the two contracts.

use serde_json::{Value, json};
use zidane::decision::{Answer, Decider, DecisionContract, DecisionProfile, DecisionRequest, Question};
use zidane::testing::HttpReply;
use zidane::types::{Media, NanoUsd, PromptPart};

use super::ask::{KEY, answered, api, json_reply, serve, three};

const PNG: &str = "iVBORw0KGgo=";

fn near(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-9, "{got} is not {expected}");
}

#[tokio::test]
async fn openais_example_round_trips() {
    let body = json!({
        "model": "gpt-6-luna",
        "answers": [
            {"type": "predicate", "name": "wants_replacement", "probability": 0.97},
            {"type": "choice", "name": "queue", "choice": "shipping", "confidence": 0.91, "probabilities": [
                {"value": "shipping", "probability": 0.94}, {"value": "billing", "probability": 0.06}]},
            {"type": "score", "name": "urgency", "score": 1.2, "confidence": 0.6, "probabilities": [
                {"value": 0, "label": "can wait", "probability": 0.1},
                {"value": 1, "label": "this week", "probability": 0.6},
                {"value": 2, "label": "today", "probability": 0.3}]},
            {"type": "refusal", "name": null}],
        "usage": {"input_tokens": 412, "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 12},
            "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 412}
    });
    let server = serve(json_reply(&body)).await;
    let mut profile = DecisionProfile::openai();
    profile.extra.insert("prompt_cache_key".into(), json!("demo"));
    profile.extra.insert("safety_identifier".into(), json!("user-7f"));
    let api = zidane::decision::DecisionApi::builder(profile).api_key(KEY).base_url(server.url()).build().unwrap();
    let evidence = [
        PromptPart::text("Parcel 88 arrived soaked; please send a new one."),
        PromptPart::Image(Media::base64("image/png", PNG)),
    ];
    let questions: Vec<_> =
        three().into_iter().chain([Question::bool("photo", "The photo shows water damage.")]).collect();
    let answers = Decider::new(api).decide(evidence, questions).await.unwrap();

    assert_eq!(answers.bool("wants_replacement"), Some(true));
    assert!(answers.is_yes("wants_replacement", 0.97) && !answers.is_yes("wants_replacement", 0.98));
    assert_eq!(answers.choice("queue"), Some("shipping"));
    near(answers.score("urgency").unwrap(), 1.2);
    // A refusal is an answer of its own, and never a no.
    assert!(answers.is_refused("photo") && answers.bool("photo").is_none() && !answers.is_yes("photo", 0.0));
    let Some(Answer::Score { probabilities, confidence, .. }) = answers.get("urgency") else { panic!("no score") };
    assert_eq!((probabilities.as_slice(), *confidence), (&[0.1, 0.6, 0.3][..], Some(0.6)));
    let [usage] = &answers.usage[..] else { panic!("{:?}", answers.usage) };
    assert_eq!((usage.tokens.input, usage.tokens.cache_read, usage.tokens.cache_write), (300, 100, 12));
    // 300 at 0.10, 100 at 0.01 and 12 at 0.125 dollars a million.
    assert_eq!(usage.cost, Some(NanoUsd(30_000 + 1_000 + 1_500)));
    assert_eq!((usage.provider.as_str(), usage.model_id.as_deref()), ("openai", Some("gpt-6-luna")));

    let [request] = &server.requests()[..] else { panic!("not one request") };
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/decisions"));
    let expected = json!({
        "model": "gpt-6-luna",
        "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "Parcel 88 arrived soaked; please send a new one."},
            {"type": "input_image", "image_url": format!("data:image/png;base64,{PNG}")}]}],
        "questions": [
            {"type": "predicate", "name": "wants_replacement",
                "instructions": "Does the writer ask for a replacement?\nTrue means: asks for a new item"},
            {"type": "choice", "name": "queue", "instructions": "Which queue fits?", "choices": [
                {"value": "shipping", "description": "damage or delay in transit"},
                {"value": "billing", "description": "money"}]},
            {"type": "score", "name": "urgency", "instructions": "How urgent is it?",
                "levels": [{"label": "can wait"}, {"label": "this week"}, {"label": "today"}]},
            {"type": "predicate", "name": "photo", "instructions": "The photo shows water damage."}],
        "prompt_cache_key": "demo", "safety_identifier": "user-7f"
    });
    assert_eq!(request.json().unwrap(), expected);
}

#[test]
fn openais_text_is_a_string_and_json_is_a_part() {
    let openai = api(DecisionProfile::openai(), "http://localhost");
    let input = |request: &DecisionRequest| -> Value {
        let body: Value = serde_json::from_slice(&openai.encode(request).unwrap()).unwrap();
        body["input"].clone()
    };
    let of = |evidence: Value| DecisionRequest::new(evidence, three());
    assert_eq!(input(&DecisionRequest::new("Text", three())), "Text");
    let expected = json!([{"role": "user", "content": [{"type": "input_json", "data": {"order": 88}}]}]);
    assert_eq!(input(&of(json!({"order": 88}))), expected);
}

fn system_one_answers() -> Value {
    json!({
        "model": "jev-1.14.0",
        "answers": {
            "wants_replacement": {"type": "noul", "noul": 0.98},
            "queue": {"type": "choice", "choice": "shipping", "probabilities": {"shipping": 0.95, "billing": 0.05}, "confidence": 0.9},
            "urgency": {"type": "score", "score": 1.2, "legend": {"0": "can wait", "1": "this week", "2": "today"},
                "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3}, "confidence": 0.4}},
        "usage": {"input_tokens": 96, "output_tokens": 6}
    })
}

#[tokio::test]
async fn system_ones_example_round_trips() {
    let server = serve(json_reply(&system_one_answers())).await;
    let api = zidane::decision::DecisionApi::builder(DecisionProfile::typesafe())
        .api_key(KEY)
        .base_url(server.url())
        .build()
        .unwrap();
    let state = json!({"ticket": "Parcel 88 arrived soaked; please send a new one."});
    let answers = Decider::new(api).decide(state.clone(), three()).await.unwrap();
    let Some(Answer::Bool { value: true, probability: Some(probability) }) = answers.get("wants_replacement") else {
        panic!("{answers:?}")
    };
    near(*probability, 0.98);
    let Some(Answer::Choice { value, confidence, probabilities }) = answers.get("queue") else { panic!("{answers:?}") };
    assert_eq!((value.as_str(), *confidence), ("shipping", Some(0.9)));
    assert_eq!(probabilities, &[("shipping".to_owned(), 0.95), ("billing".to_owned(), 0.05)]);
    near(answers.score("urgency").unwrap(), 1.2);
    assert_eq!((answers.usage[0].tokens.input, answers.usage[0].tokens.output), (96, 6));

    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/systemone");
    assert_eq!(request.header("typesafe-danger-zone-images"), None);
    let expected = json!({
        "model": "jev-latest",
        "state": state,
        "questions": {
            "wants_replacement": {"type": "noul", "instructions": "Does the writer ask for a replacement?",
                "criteria": {"true": "asks for a new item", "false": null}},
            "queue": {"type": "choice", "instructions": "Which queue fits?",
                "criteria": {"shipping": "damage or delay in transit", "billing": "money"}},
            "urgency": {"type": "score", "instructions": "How urgent is it?",
                "criteria": ["can wait", "this week", "today"]}}
    });
    assert_eq!(request.json().unwrap(), expected);
    // Options and questions keep the order they were asked in.
    let text = String::from_utf8(request.body.to_vec()).unwrap();
    let places =
        ["wants_replacement", "\"queue\"", "\"shipping\"", "\"billing\"", "\"urgency\""].map(|word| text.find(word));
    assert!(places.is_sorted() && places[0].is_some(), "{text}");
}

/// What a server leaves out, or says in its own way.
#[tokio::test]
async fn servers_are_read_tolerantly() {
    let wrapped = json!({"result": system_one_answers(), "success": true, "errors": []});
    let nested = json!({"response": {"answers": {
        "wants_replacement": {"probability": 0.98},
        "queue": {"probabilities": {"billing": 0.05, "shipping": 0.95}, "x_more": 1},
        "urgency": {"type": "score", "legend": null, "probabilities": {"can wait": 0.1, "this week": 0.6, "today": 0.3}},
        "x_trace": {"type": "trace"}}},
        "usage": {"input_tokens": 96, "cached_input_tokens": 32, "cost": 0.000_01}});
    for body in [wrapped, nested] {
        let server = serve(json_reply(&body)).await;
        let answers = Decider::new(api(DecisionProfile::typesafe(), server.url())).decide("T", three()).await.unwrap();
        let Some(Answer::Choice { value, confidence: Some(confidence), .. }) = answers.get("queue") else {
            panic!("{answers:?}")
        };
        assert_eq!(value, "shipping");
        near(*confidence, 0.9);
        let Some(Answer::Score { value, confidence: Some(confidence), .. }) = answers.get("urgency") else {
            panic!("{answers:?}")
        };
        near(*value, 1.2);
        near(*confidence, 0.4);
        assert_eq!(answers.usage[0].tokens.total(), 96 + answers.usage[0].tokens.output);
    }
}

/// The differences of servers that show in a request.
#[test]
fn profiles_differ_as_data() {
    let body = |profile: DecisionProfile| -> Value {
        let api = api(profile, "http://localhost");
        serde_json::from_slice(&api.encode(&DecisionRequest::new("T", three())).unwrap()).unwrap()
    };
    let cloudflare = body(DecisionProfile::cloudflare("acc"));
    assert!(cloudflare.get("model").is_none() && cloudflare["state"] == "T");
    let parallel = body(DecisionProfile::parallel());
    assert!(parallel.get("model").is_none() && parallel["mode"] == "fast");
    // One side alone is put into the question where the server wants both or none.
    let openrouter = body(DecisionProfile::openrouter());
    let noul = &openrouter["questions"]["wants_replacement"];
    assert!(noul.get("criteria").is_none() && noul["instructions"].as_str().unwrap().contains("asks for a new item"));
    assert_eq!(body(DecisionProfile::perplexity())["state"], "T", "System One under OpenAI's path");
    assert!(body(DecisionProfile::litellm("http://x"))["questions"].is_array());
}

#[tokio::test]
async fn keys_and_paths_are_the_profiles() {
    for (profile, path, header) in [
        (DecisionProfile::azure("http://x"), "/openai/v1/decisions", "api-key"),
        (DecisionProfile::parallel(), "/v1/decisions", "x-api-key"),
        (DecisionProfile::cloudflare("acc"), "/ai/run/@cf/cloudflare/clef", "authorization"),
        (DecisionProfile::fireworks(), "/v1/systemone", "authorization"),
        (DecisionProfile::litellm("http://x"), "/v1/decisions", "authorization"),
    ] {
        let body = answered(profile.contract, 0.9);
        let server = serve(HttpReply::json(200, body.to_string())).await;
        let decider = Decider::new(api(profile, server.url()));
        assert!(decider.decide("T", super::ask::yes_or_no()).await.is_ok_and(|answers| answers.is_yes("ok", 0.9)));
        let request = &server.requests()[0];
        assert_eq!(request.path, path);
        assert!(request.header(header).unwrap().contains(KEY), "{path}");
    }
}

/// A body of a real llama.cpp server.
#[tokio::test]
async fn llama_cpps_answers_are_read() {
    let body = json!({"model": "local", "answers": {
        "route": {"type": "choice", "choice": "billing", "probabilities": {"billing": 0.42, "shipping": 0.34, "technical": 0.24}, "confidence": 0.12},
        "angry": {"type": "noul", "noul": 0.528},
        "urgency": {"type": "score", "score": 0.86506, "legend": {"0": "a", "1": "b", "2": "c", "3": "d"},
            "probabilities": {"0": 0.490_697_86, "1": 0.274_723_13, "2": 0.113_401_14, "3": 0.121_177_87}}},
        "usage": {"input_tokens": 616, "output_tokens": 0}});
    let server = serve(json_reply(&body)).await;
    let questions = [
        Question::choice("route", "Where to?", ["billing", "shipping", "technical"]),
        Question::bool("angry", "Is the writer angry?"),
        Question::score("urgency", "How urgent?", ["a", "b", "c", "d"]),
    ];
    let mut profile = DecisionProfile::llama_cpp();
    assert_eq!(profile.contract, DecisionContract::SystemOne);
    profile.key_var = None;
    let answers = Decider::new(api(profile, server.url())).decide("T", questions).await.unwrap();
    // The server's own confidence for that was 0.13494.
    let Some(Answer::Score { confidence: Some(confidence), .. }) = answers.get("urgency") else {
        panic!("{answers:?}")
    };
    assert!((confidence - 0.134_94).abs() < 1e-4, "{confidence}");
    assert_eq!((answers.choice("route"), answers.bool("angry")), (Some("billing"), Some(true)));
    assert_eq!(answers.usage[0].cost, None, "nobody knows the price");
}

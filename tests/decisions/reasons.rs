//! A table of what a server says and the reason that it is.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use zidane::OpenAiChat;
use zidane::decision::{
    Decider, DecisionApi, DecisionContract, DecisionFailure, DecisionFailureReason as Reason, DecisionProfile,
};
use zidane::provider::HttpOptions;
use zidane::provider::openai_chat::ChatProfile;
use zidane::testing::{HttpEnd, HttpReply, SseServer};

use super::ask::{CONTRACTS, KEY, answered, api, decider, json_reply, profile, serve, yes_or_no};

/// Status, headers, body; reason, code, seconds to wait.
type Row = (u16, &'static [(&'static str, &'static str)], &'static str, Reason, Option<&'static str>, Option<u64>);

const WAIT: &[(&str, &str)] = &[("retry-after", "7")];
const NONE: &[(&str, &str)] = &[];

const TABLE: &[Row] = &[
    (
        401,
        NONE,
        r#"{"error":{"message":"bad key","type":"invalid_request_error","code":"invalid_api_key"}}"#,
        Reason::Auth,
        Some("invalid_api_key"),
        None,
    ),
    (
        401,
        NONE,
        r#"{"detail":{"error_type":"authentication_error","message":"no"}}"#,
        Reason::Auth,
        Some("authentication_error"),
        None,
    ),
    (
        403,
        NONE,
        r#"{"detail":{"error_type":"authentication_error","message":"no"}}"#,
        Reason::Auth,
        Some("authentication_error"),
        None,
    ),
    (403, NONE, "<html>forbidden</html>", Reason::Auth, None, None),
    // Money: by its own status, and as a cap that looks like a rate limit.
    (
        402,
        NONE,
        r#"{"error":{"message":"pay","code":"payment_required"}}"#,
        Reason::Quota,
        Some("payment_required"),
        None,
    ),
    (
        429,
        WAIT,
        r#"{"error":{"message":"slow down","code":"rate_limit_exceeded"}}"#,
        Reason::RateLimited,
        Some("rate_limit_exceeded"),
        Some(7),
    ),
    (
        429,
        &[("retry-after-ms", "1500")],
        r#"{"detail":{"error_type":"rate_limited","message":"slow"}}"#,
        Reason::RateLimited,
        Some("rate_limited"),
        None,
    ),
    (
        429,
        WAIT,
        r#"{"error":{"message":"you are out of credit","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        Reason::RateLimited,
        Some("insufficient_quota"),
        None,
    ),
    (
        429,
        WAIT,
        r#"{"success":false,"errors":[{"code":3036,"message":"daily limit"}]}"#,
        Reason::RateLimited,
        Some("3036"),
        None,
    ),
    (
        529,
        WAIT,
        r#"{"detail":{"error_type":"overloaded","message":"busy"}}"#,
        Reason::RateLimited,
        Some("overloaded"),
        Some(7),
    ),
    (529, NONE, "", Reason::RateLimited, None, None),
    // The request is at fault.
    (
        400,
        NONE,
        r#"{"error":{"message":"questions[0]: no","type":"invalid_request_error"}}"#,
        Reason::Invalid,
        Some("invalid_request_error"),
        None,
    ),
    (
        400,
        NONE,
        r#"{"detail":{"error_type":"api_usage_error","message":"no"}}"#,
        Reason::Invalid,
        Some("api_usage_error"),
        None,
    ),
    (
        404,
        NONE,
        r#"{"error":{"message":"no such model","code":"model_not_found"}}"#,
        Reason::Invalid,
        Some("model_not_found"),
        None,
    ),
    (
        413,
        NONE,
        r#"{"detail":{"error_type":"max_tokens_exceeded","message":"too long"}}"#,
        Reason::Invalid,
        Some("max_tokens_exceeded"),
        None,
    ),
    (
        422,
        NONE,
        r#"{"detail":[{"loc":["body","questions","ok"],"msg":"Field required","type":"missing"}]}"#,
        Reason::Invalid,
        None,
        None,
    ),
    // Anything else, also what looks like our own time limit, and 5xx that are not 529.
    (408, NONE, "", Reason::Error, None, None),
    (409, NONE, "{}", Reason::Error, None, None),
    (500, NONE, r#"{"error":{"message":"oops","type":"server_error"}}"#, Reason::Error, Some("server_error"), None),
    (502, NONE, "<html>bad gateway</html>", Reason::Error, None, None),
    (
        503,
        WAIT,
        r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#,
        Reason::Error,
        Some("unavailable_error"),
        Some(7),
    ),
    (504, NONE, "<html>gateway time-out</html>", Reason::Error, None, None),
    (302, &[("location", "http://192.0.2.1/")], "", Reason::Error, None, None),
    (
        501,
        NONE,
        r#"{"error":{"code":501,"message":"this is not a decision model","type":"not_supported_error"}}"#,
        Reason::Error,
        Some("not_supported_error"),
        None,
    ),
    (
        501,
        NONE,
        r#"{"error":{"code":501,"message":"this server has no image support","type":"not_supported_error"}}"#,
        Reason::Unsupported,
        Some("not_supported_error"),
        None,
    ),
    // A success whose body is none.
    (200, NONE, "", Reason::Invalid, None, None),
    (200, NONE, "<html>sign in</html>", Reason::Invalid, None, None),
    (200, NONE, "[]", Reason::Invalid, None, None),
    (200, NONE, r#"{"answers": "#, Reason::Invalid, None, None),
    (200, NONE, r#"{"model":"m","usage":{"input_tokens":3}}"#, Reason::Invalid, None, None),
    (200, NONE, r#"{"answers":null}"#, Reason::Invalid, None, None),
    (200, WAIT, r#"{"error":{"message":"slow down","code":429}}"#, Reason::RateLimited, None, Some(7)),
];

#[tokio::test]
async fn every_status_and_body_is_its_reason() {
    for contract in CONTRACTS {
        for (status, headers, body, reason, code, wait) in TABLE {
            let reply =
                headers.iter().fold(HttpReply::new(*status), |reply, (name, value)| reply.header(*name, *value));
            let reply = if body.is_empty() { reply } else { reply.chunk(*body) };
            let server = serve(reply).await;
            let failure = decider(contract, &server).decide("Text", yes_or_no()).await.unwrap_err();
            let at = format!("{contract:?} {status} {body}: {failure:?}");
            assert_eq!(failure.reason, *reason, "{at}");
            if !body.contains("\"code\":429") {
                assert_eq!(failure.http_status, Some(*status), "{at}");
                assert_eq!(failure.code.as_deref(), *code, "{at}");
            }
            if !headers.iter().any(|(name, _)| *name == "retry-after-ms") {
                assert_eq!(failure.retry_after, wait.map(Duration::from_secs), "{at}");
            } else {
                assert_eq!(failure.retry_after, Some(Duration::from_millis(1500)), "{at}");
            }
            assert!(failure.sent, "{at}");
            assert_eq!(server.requests().len(), 1, "{at}: nothing is retried");
        }
    }
}

/// The same through a model's wire: the reasons do not depend on who decides.
#[tokio::test]
async fn a_models_errors_have_the_same_reasons() {
    for (status, body, reason) in [
        (401, "{}", Reason::Auth),
        (402, r#"{"error":{"message":"pay"}}"#, Reason::Quota),
        (429, r#"{"error":{"message":"slow"}}"#, Reason::RateLimited),
        (429, r#"{"error":{"message":"x","code":"insufficient_quota"}}"#, Reason::RateLimited),
        (529, "{}", Reason::RateLimited),
        (400, r#"{"error":{"message":"no"}}"#, Reason::Invalid),
        (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#, Reason::Invalid),
        (404, r#"{"error":{"message":"no such model"}}"#, Reason::Invalid),
        (408, "{}", Reason::Error),
        (500, "{}", Reason::Error),
        (503, "{}", Reason::Error),
        (504, "<html>", Reason::Error),
        (200, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"{\"}}]}\n\n", Reason::Invalid),
        (200, "<html>", Reason::Invalid),
    ] {
        let server = serve(HttpReply::new(status).chunk(body)).await;
        let profile = ChatProfile::custom(server.url());
        let model = OpenAiChat::builder().profile(profile).build().unwrap();
        let failure = Decider::of_model(model, "m").decide("Text", yes_or_no()).await.unwrap_err();
        assert_eq!(failure.reason, reason, "{status} {body}: {failure:?}");
        assert!(failure.sent, "{status} {body}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_an_error() {
    for contract in CONTRACTS {
        for end in [HttpEnd::Cut, HttpEnd::Reset] {
            let server = serve(HttpReply::new(200).chunk("{\"answers\":").end(end)).await;
            let failure = decider(contract, &server).decide("Text", yes_or_no()).await.unwrap_err();
            assert_eq!((failure.reason, failure.sent), (Reason::Error, true), "{contract:?} {end:?} {failure:?}");
        }
        // A port that nobody listens on.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let failure = Decider::new(api(profile(contract), url)).decide("Text", yes_or_no()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Error, "{failure:?}");
    }
}

#[tokio::test]
async fn our_time_limits_are_timeouts() {
    for contract in CONTRACTS {
        let before_head = HttpReply::new(200).hold_head(&zidane::testing::Gate::new());
        let in_body = HttpReply::new(200).chunk("{").end(HttpEnd::Stall);
        for reply in [before_head, in_body] {
            let server = serve(reply).await;
            let deciding = decider(contract, &server).decide("Text", yes_or_no()).timeout(Duration::from_millis(50));
            let failure = deciding.await.unwrap_err();
            assert_eq!((failure.reason, failure.sent), (Reason::Timeout, true), "{failure:?}");
            server.wait_for_connections(0).await;
        }
        let mut http = HttpOptions::default();
        http.idle_timeout = Duration::from_millis(30);
        let server = serve(HttpReply::new(200).chunk("{").end(HttpEnd::Stall)).await;
        let api =
            DecisionApi::builder(profile(contract)).api_key(KEY).base_url(server.url()).http(http).build().unwrap();
        let failure = Decider::new(api).decide("Text", yes_or_no()).await.unwrap_err();
        assert_eq!(failure.reason, Reason::Timeout, "{failure:?}");
    }
}

#[tokio::test]
async fn a_cancelled_decision_is_aborted_and_its_connection_closed() {
    for contract in CONTRACTS {
        let server = serve(HttpReply::new(200).chunk("{").end(HttpEnd::Stall)).await;
        let token = CancellationToken::new();
        let decision = tokio::spawn(decider(contract, &server).decide("Text", yes_or_no()).cancelled_by(token.clone()));
        server.wait_for_request(1).await;
        token.cancel();
        let failure = decision.await.unwrap().unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Aborted, true), "{failure:?}");
        server.wait_for_connections(0).await;
        // One that was cancelled before asks nobody.
        let failure = decider(contract, &server).decide("T", yes_or_no()).cancelled_by(token).await.unwrap_err();
        assert_eq!((failure.reason, failure.sent), (Reason::Aborted, false), "{failure:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn without_anybody_who_can_it_is_unavailable() {
    let failure = Decider::disabled().decide("Text", yes_or_no()).await.unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::Unavailable, false));
    let mut keyless = DecisionProfile::openai();
    keyless.key_var = Some("ZIDANE_NO_SUCH_KEY".into());
    let server = serve(json_reply(&answered(DecisionContract::OpenAi, 0.9))).await;
    let api = DecisionApi::builder(keyless).base_url(server.url()).build().unwrap();
    let failure = Decider::new(api).decide("Text", yes_or_no()).await.unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::Unavailable, false));
    assert!(failure.message.contains("ZIDANE_NO_SUCH_KEY"), "{failure}");
    assert!(server.requests().is_empty());
    assert!(DecisionApi::builder(DecisionProfile::ollama()).build().is_err(), "no model");
    assert!(DecisionApi::builder(DecisionProfile::typesafe()).base_url("nowhere").build().is_err());
}

#[test]
fn outside_of_a_runtime_nothing_panics() {
    let failure = futures::executor::block_on(Decider::disabled().decide("Text", yes_or_no())).unwrap_err();
    assert_eq!(failure.reason, Reason::Unavailable);
    let api = api(DecisionProfile::typesafe(), "http://127.0.0.1:1");
    let failure = futures::executor::block_on(Decider::new(api).decide("Text", yes_or_no())).unwrap_err();
    assert_eq!((failure.reason, failure.sent), (Reason::Unavailable, false));
}

#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_told() {
    for contract in CONTRACTS {
        for status in [401, 200] {
            let body = format!(r#"{{"error":{{"message":"no: {KEY}","code":"{KEY}"}}}}"#);
            let server = serve(HttpReply::json(status, body).header("x-request-id", KEY)).await;
            let decider = decider(contract, &server);
            let failure = decider.decide("Text", yes_or_no()).await.unwrap_err();
            let told = format!("{failure} {failure:?} {decider:?} {}", serde_json::to_string(&failure).unwrap());
            assert!(!told.contains(KEY), "{told}");
            let header = if contract == DecisionContract::OpenAi { "authorization" } else { "Authorization" };
            assert_eq!(server.requests()[0].header(header), Some(format!("Bearer {KEY}").as_str()));
        }
    }
}

#[test]
fn the_reasons_are_nine_and_keep_their_names() {
    let names: Vec<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let expected =
        ["unavailable", "auth", "unsupported", "timeout", "aborted", "rate_limited", "quota", "invalid", "error"];
    assert_eq!(names, expected);
    for reason in Reason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
    let failure = DecisionFailure::new(Reason::Quota, "no money");
    let text = serde_json::to_string(&failure).unwrap();
    assert_eq!(serde_json::from_str::<DecisionFailure>(&text).unwrap(), failure);
}

#[tokio::test]
async fn dropping_it_closes_the_connection() {
    let server = SseServer::start([HttpReply::new(200).chunk("{").end(HttpEnd::Stall)]).await.unwrap();
    let decision = tokio::spawn(decider(DecisionContract::OpenAi, &server).decide("Text", yes_or_no()));
    server.wait_for_request(1).await;
    decision.abort();
    server.wait_for_connections(0).await;
}

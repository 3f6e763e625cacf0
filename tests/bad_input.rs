//! What a user may meet on the way to an answer: each gives a typed error that names the place, nothing hangs, and
//! nothing that was said or paid for is lost. Over real HTTP, on every wire.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use zidane::provider::{HttpOptions, Provider, ProviderError, ProviderErrorKind, RetryPolicy};
use zidane::testing::{HttpEnd, HttpFraming, HttpReply, SseServer, validate_transcript};
use zidane::tool::{ToolSpec, tool_fn_value};
use zidane::types::{Document, Media, PromptPart, ToolStatus};
use zidane::{Agent, AgentEvent, Anthropic, Gemini, OpenAi, OpenAiChat, RunError, RunErrorKind, StopCause};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

const WIRES: [Wire; 4] = [Wire::Anthropic, Wire::Chat, Wire::Responses, Wire::Gemini];

const KEY: &str = "key-that-must-not-leak-1234567890";

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn gemini(parts: &Value, finish: Option<&str>) -> String {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 9});
    let chunk = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "some-model"});
    format!("data: {chunk}\r\n\r\n")
}

impl Wire {
    fn agent(self, server: &SseServer) -> Agent {
        self.builder(server).build().unwrap()
    }

    fn builder(self, server: &SseServer) -> zidane::AgentBuilder {
        let mut http = HttpOptions::default();
        http.first_byte_timeout = Duration::from_millis(300);
        http.idle_timeout = Duration::from_millis(300);
        let builder = Agent::builder().model("some-model").retry(RetryPolicy::never()).tool(tool_fn_value(
            "add",
            "Adds",
            json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
            |input: Value, _cx| async move { Ok(input["a"].to_string()) },
        ));
        match self {
            Self::Anthropic => {
                builder.provider(Anthropic::builder().api_key(KEY).base_url(server.url()).http(http).build().unwrap())
            }
            Self::Gemini => {
                builder.provider(Gemini::builder().api_key(KEY).base_url(server.url()).http(http).build().unwrap())
            }
            Self::Chat => builder.provider(
                OpenAiChat::builder().api_key(KEY).base_url(format!("{}/v1", server.url())).http(http).build().unwrap(),
            ),
            Self::Responses => builder.provider(
                OpenAi::builder().api_key(KEY).base_url(format!("{}/v1", server.url())).http(http).build().unwrap(),
            ),
        }
    }

    fn call(self, name: &str, arguments: &str) -> String {
        match self {
            Self::Anthropic => events(&[
                json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "some-model", "content": [], "stop_reason": null, "usage": {"input_tokens": 7, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me."}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ]),
            Self::Responses => {
                let call = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": arguments});
                events(&[
                    json!({"type": "response.created", "response": {"id": "r", "model": "some-model", "status": "in_progress"}}),
                    json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Let me."}),
                    json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}),
                    json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": arguments}),
                    json!({"type": "response.output_item.done", "output_index": 1, "item": call(arguments)}),
                    json!({"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 7, "output_tokens": 9}}}),
                ])
            }
            Self::Gemini => {
                let mut call = json!({"functionCall": {"id": "g1", "name": name}});
                if !arguments.is_empty() {
                    call["functionCall"]["args"] = serde_json::from_str(arguments).unwrap();
                }
                gemini(&json!([{"text": "Let me."}]), None) + &gemini(&json!([call]), Some("STOP"))
            }
            Self::Chat => {
                let chunk = |delta: Value, finish: Value| {
                    format!(
                        "data: {}\n\n",
                        json!({"id": "c", "object": "chat.completion.chunk", "model": "some-model", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
                    )
                };
                chunk(json!({"role": "assistant", "content": "Let me."}), Value::Null)
                    + &chunk(
                        json!({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}]}),
                        Value::Null,
                    )
                    + &chunk(json!({}), json!("tool_calls"))
                    + "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":9,\"total_tokens\":16}}\n\n"
                    + "data: [DONE]\n\n"
            }
        }
    }

    fn text(self, text: &str) -> String {
        match self {
            Self::Anthropic => events(&[
                json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "model": "some-model", "content": [], "stop_reason": null, "usage": {"input_tokens": 7, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ]),
            Self::Responses => events(&[
                json!({"type": "response.created", "response": {"id": "r", "model": "some-model", "status": "in_progress"}}),
                json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
                json!({"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 7, "output_tokens": 9}}}),
            ]),
            Self::Gemini => gemini(&json!([{ "text": text }]), Some("STOP")),
            Self::Chat => format!(
                "data: {}\n\ndata: [DONE]\n\n",
                json!({"id": "c", "object": "chat.completion.chunk", "model": "some-model", "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})
            ),
        }
    }
}

#[track_caller]
fn provider_error(error: &RunError) -> &ProviderError {
    match &error.kind {
        RunErrorKind::Provider(error) => error,
        other => panic!("not the provider's: {other}"),
    }
}

/// Runs a prompt against one reply, which must fail, and checks what every failure has in common.
async fn fails(wire: Wire, reply: HttpReply) -> (RunError, Agent) {
    let server = SseServer::start([reply]).await.unwrap();
    let agent = wire.agent(&server);
    let run = tokio::time::timeout(Duration::from_secs(20), agent.run("Hi"));
    let error = run.await.expect("the run hangs").expect_err("the run succeeds");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(!text.contains(KEY), "{wire:?}: the key leaks: {text}");
    }
    assert!(!agent.is_running());
    validate_transcript(agent.history().iter()).unwrap();
    assert_eq!(agent.history().iter().next().unwrap().text(), "Hi", "the prompt is kept");
    (error, agent)
}

#[tokio::test]
async fn calls_that_cannot_run_are_told_to_the_model_which_goes_on() {
    for wire in WIRES {
        for (name, arguments, status, says) in [
            ("multiply", "{}", ToolStatus::UnknownTool, "`add`"),
            ("add", "{\"a\": 1,}", ToolStatus::Invalid, "line 1"),
            ("add", "{\"a\": \"one\"}", ToolStatus::Invalid, "/a"),
            ("add", "", ToolStatus::Invalid, "/a"),
            ("add", "[1]", ToolStatus::Invalid, "object"),
        ] {
            // There, arguments are part of the chunk's JSON.
            if wire == Wire::Gemini && arguments.ends_with(",}") {
                continue;
            }
            let server =
                SseServer::start([HttpReply::sse(wire.call(name, arguments)), HttpReply::sse(wire.text("I see."))])
                    .await
                    .unwrap();
            let agent = wire.agent(&server);
            let outcome = agent.run("Hi").await.unwrap();
            let result = outcome.turns[2].tool_results().next().unwrap().clone();
            assert_eq!(result.status, status, "{wire:?} {name} {arguments}");
            let text = zidane::types::tool_result_to_text(&result.output).into_owned();
            assert!(text.contains(says), "{wire:?} {name} {arguments}: {text}");
            let sent = String::from_utf8(server.requests()[1].body.to_vec()).unwrap();
            assert!(sent.contains("Let me."), "what was said is sent back");
            serde_json::from_str::<Value>(&sent).unwrap();
        }
    }
}

#[test]
fn a_schema_that_does_not_compile_is_a_build_error_that_names_the_tool() {
    let bad = |schema: Value| {
        let tool = tool_fn_value("broken", "Broken", schema, |_: Value, _cx| async move { Ok("") });
        Agent::builder().provider(zidane::testing::ScriptedProvider::new([])).model("m").tool(tool).build()
    };
    for schema in
        [json!({"type": "object", "properties": {"a": {"type": "strin"}}}), json!({"type": "array"}), json!([])]
    {
        let error = bad(schema).unwrap_err();
        assert!(error.to_string().contains("`broken`"), "{error}");
    }
    let _ = ToolSpec::new("x", "y");
}

#[tokio::test]
async fn media_that_cannot_be_sent_is_refused_before_anything_is_stored_or_sent() {
    for wire in WIRES {
        let server = SseServer::start([HttpReply::sse(wire.text("ok"))]).await.unwrap();
        let agent = wire.agent(&server);
        for part in [
            PromptPart::Image(Media::bytes("image/tiff", b"II*\0 not an image that anybody takes")),
            PromptPart::Document(Document { name: None, media: Media::bytes("application/zip", b"PK\x03\x04zip") }),
        ] {
            let error = agent.run([PromptPart::text("Look"), part]).await.unwrap_err();
            let provider = provider_error(&error);
            assert_eq!(provider.kind, ProviderErrorKind::Unsupported, "{wire:?} {provider}");
            assert!(provider.message.contains('1'), "names the part: {provider}");
        }
        assert!(agent.history().is_empty());
        assert!(server.requests().is_empty());
        assert_eq!(agent.run("Plain").await.unwrap().text, "ok", "the agent is still usable");
    }
}

#[tokio::test]
async fn refusals_of_the_api_are_typed() {
    let anthropic =
        |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}}).to_string();
    let gemini = |status: &str, reason: &str, message: &str| {
        json!({"error": {"message": message, "status": status, "details": [{"reason": reason}]}}).to_string()
    };
    let openai = |code: &str, message: &str| {
        json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}}).to_string()
    };
    for (wire, status, body, kind, says) in [
        (
            Wire::Anthropic,
            401,
            anthropic("authentication_error", &format!("invalid x-api-key {KEY}")),
            ProviderErrorKind::Auth,
            "invalid x-api-key",
        ),
        (
            Wire::Gemini,
            400,
            gemini("INVALID_ARGUMENT", "API_KEY_INVALID", &format!("API key not valid: {KEY}")),
            ProviderErrorKind::Auth,
            "API key not valid",
        ),
        (
            Wire::Gemini,
            404,
            gemini("NOT_FOUND", "", "models/some-model is not found"),
            ProviderErrorKind::Invalid,
            "some-model",
        ),
        (
            Wire::Chat,
            401,
            openai("invalid_api_key", &format!("Incorrect API key provided: {KEY}")),
            ProviderErrorKind::Auth,
            "Incorrect API key",
        ),
        (
            Wire::Anthropic,
            404,
            anthropic("not_found_error", "model: some-model"),
            ProviderErrorKind::Invalid,
            "some-model",
        ),
        (
            Wire::Chat,
            404,
            openai("model_not_found", "The model `some-model` does not exist"),
            ProviderErrorKind::Invalid,
            "some-model",
        ),
    ] {
        let (error, _) =
            fails(wire, HttpReply::json(status, body).header("request-id", "req_1").header("x-request-id", "req_1"))
                .await;
        let error = provider_error(&error);
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{wire:?} {error}");
        assert!(error.message.contains(says), "{wire:?} {error}");
        assert_eq!(error.request_id.as_deref(), Some("req_1"));
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn what_is_not_an_answer_is_named() {
    for wire in WIRES {
        let page = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
        let (error, _) = fails(wire, HttpReply::new(502).header("content-type", "text/html").chunk(page)).await;
        let error = provider_error(&error);
        assert_eq!((error.kind, error.status), (ProviderErrorKind::Server, Some(502)), "{error}");
        assert!(error.body_excerpt.as_deref().unwrap().contains("Bad Gateway"), "{error:?}");
        assert!(error.is_retryable());

        let (error, _) = fails(wire, HttpReply::new(200).header("content-type", "text/html").chunk(page)).await;
        let error = provider_error(&error);
        assert_eq!(error.kind, ProviderErrorKind::Protocol, "{error}");
        assert!(error.body_excerpt.as_deref().unwrap().contains("Bad Gateway"), "{error:?}");

        for reply in [
            HttpReply::sse(""),
            HttpReply::sse("\n\n: nothing\n\n"),
            HttpReply::json(200, ""),
            HttpReply::new(200).framing(HttpFraming::ContentLength),
        ] {
            let (error, _) = fails(wire, reply).await;
            let error = provider_error(&error);
            assert!(
                matches!(error.kind, ProviderErrorKind::TruncatedStream | ProviderErrorKind::Protocol),
                "{wire:?} {error}"
            );
            assert!(error.message.contains("empty") || error.message.contains("ended"), "{wire:?} {error}");
        }

        let (error, _) = fails(wire, HttpReply::sse("data: {\"this is\": not json}\n\n")).await;
        assert_eq!(provider_error(&error).kind, ProviderErrorKind::Protocol, "{wire:?} {error}");
    }
}

#[tokio::test]
async fn a_stream_cut_anywhere_keeps_what_arrived() {
    for wire in WIRES {
        let body = wire.call("add", "{\"a\": 1}");
        let whole = body.len();
        for end in [HttpEnd::Complete, HttpEnd::Reset] {
            for cut in (0..whole).step_by(7).chain([whole - 1]) {
                let reply = HttpReply::sse(body.as_bytes()[..cut].to_vec()).end(end);
                let server = SseServer::start([reply, HttpReply::sse(wire.text("Sorry, again."))]).await.unwrap();
                let agent = wire.agent(&server);
                let ran = tokio::time::timeout(Duration::from_secs(20), agent.run("Hi")).await.expect("the run hangs");
                match ran {
                    Err(error) => {
                        let failure = provider_error(&error);
                        assert!(
                            matches!(
                                failure.kind,
                                ProviderErrorKind::TruncatedStream
                                    | ProviderErrorKind::Transport
                                    | ProviderErrorKind::Protocol
                            ),
                            "{wire:?} cut at {cut}: {failure}"
                        );
                        assert!(failure.is_retryable() || failure.kind == ProviderErrorKind::Protocol, "{failure}");
                        let stored: String = error.turns.iter().map(|turn| turn.text()).collect();
                        if body[..cut].contains("Let me.\"}}") {
                            assert!(
                                stored.contains("Let me."),
                                "{wire:?} cut at {cut}: what was said is lost: {stored}"
                            );
                        }
                    }
                    // The answer was whole but for what may follow it.
                    Ok(outcome) => assert_eq!(outcome.stop, StopCause::Stop, "{wire:?} cut at {cut}"),
                }
                validate_transcript(agent.history().iter()).unwrap();
                if server.unserved() > 0 {
                    assert_eq!(agent.run("Again").await.unwrap().text, "Sorry, again.", "{wire:?} cut at {cut}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    for wire in WIRES {
        let body = wire.text("Hello");
        let half = body.find("Hello").unwrap() - 10;
        for silent in [0, half] {
            let reply = HttpReply::sse(body.as_bytes()[..silent].to_vec()).end(HttpEnd::Stall);
            let (error, _) = fails(wire, reply).await;
            let error = provider_error(&error);
            assert_eq!(error.kind, ProviderErrorKind::Timeout, "{wire:?} after {silent}: {error}");
        }
        let (error, _) = fails(wire, HttpReply::sse(body.clone()).delay_head(Duration::from_secs(60))).await;
        assert_eq!(provider_error(&error).kind, ProviderErrorKind::Timeout, "{wire:?} {error}");

        // Whole, but the connection stays open: the answer does not wait for that.
        let server = SseServer::start([HttpReply::sse(body).end(HttpEnd::Stall)]).await.unwrap();
        let run = tokio::time::timeout(Duration::from_secs(20), wire.agent(&server).run("Hi"));
        assert_eq!(run.await.expect("the run hangs").unwrap().text, "Hello", "{wire:?}");
    }
}

#[tokio::test]
async fn dropping_a_stream_closes_the_connection() {
    for wire in WIRES {
        let body = wire.text("Hello");
        let after = body.find("Hello").unwrap() + 30;
        let reply = HttpReply::sse(body.as_bytes()[..after.min(body.len())].to_vec()).end(HttpEnd::Stall);
        let server = SseServer::start([reply]).await.unwrap();
        let agent = wire.agent(&server);
        let mut events = agent.run("Hi").stream();
        while let Some(event) = events.next().await {
            if matches!(event, AgentEvent::TurnStart { .. }) {
                break;
            }
        }
        let waited = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
        drop(waited);
        drop(events);
        let closed = tokio::time::timeout(Duration::from_secs(10), server.wait_for_connections(0)).await;
        assert!(closed.is_ok(), "{wire:?}: the connection stays open");
        assert!(!agent.is_running());
    }
}

#[tokio::test]
async fn nobody_at_the_address_is_a_transport_error() {
    for wire in WIRES {
        let server = SseServer::start([]).await.unwrap();
        let agent = wire.agent(&server);
        drop(server);
        let error = agent.run("Hi").await.unwrap_err();
        let error = provider_error(&error);
        assert_eq!(error.kind, ProviderErrorKind::Transport, "{error}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_for_as_long_as_the_server_says() {
    for wire in WIRES {
        let limited = || {
            HttpReply::json(429, "{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow down\"}}")
                .header("retry-after", "1")
        };
        let server = SseServer::start([limited(), HttpReply::sse(wire.text("ok"))]).await.unwrap();
        let agent = wire.builder(&server).retry(RetryPolicy::default()).build().unwrap();
        let started = std::time::Instant::now();
        let outcome = agent.run("Hi").await.unwrap();
        assert!(started.elapsed() >= Duration::from_secs(1), "{wire:?}: the delay was shortened");
        assert_eq!(outcome.stats.turn_usage[0].attempts, 2);
        assert_eq!(server.requests()[0].body, server.requests()[1].body, "a retry sends the same bytes");
    }
}

#[test]
fn providers_without_a_key_say_so() {
    for error in [Anthropic::builder().build().err(), OpenAiChat::builder().api_key("").build().err()] {
        let Some(error) = error else { continue };
        assert_eq!(error.kind, ProviderErrorKind::Auth, "{error}");
    }
    let odd = Anthropic::builder().api_key(KEY).base_url("not a url").build().unwrap_err();
    assert_eq!(odd.kind, ProviderErrorKind::Invalid, "{odd}");
    assert_eq!(Anthropic::new(KEY).unwrap().id(), "anthropic");
}

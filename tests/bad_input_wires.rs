//! What an API would refuse, on every wire: told before anything is stored or sent where it can be, and made legal where
//! there is a way. Limits as the vendors state them, November 2026.
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use zidane::provider::{Anthropic, Gemini, OpenAi, OpenAiChat, ProviderError, ProviderErrorKind, RetryPolicy};
use zidane::testing::{HttpReply, SseServer};
use zidane::tool::{ToolOutput, tool_fn_value};
use zidane::types::{Document, Media, MediaSource, PromptPart, Resource, ResourceContent, ToolResultContent};
use zidane::{Agent, AgentBuilder, RunError, RunErrorKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Anthropic,
    Chat,
    Responses,
    Gemini,
    /// Gemini at an address of Vertex.
    Vertex,
}

const WIRES: [Wire; 4] = [Wire::Anthropic, Wire::Chat, Wire::Responses, Wire::Gemini];

impl Wire {
    fn builder(self, server: &SseServer) -> AgentBuilder {
        let url = server.url();
        let builder = Agent::builder().retry(RetryPolicy::never());
        match self {
            Self::Anthropic => {
                let provider = Anthropic::builder().api_key("k").base_url(url).build().unwrap();
                builder.provider(provider).model("claude-sonnet-5-5")
            }
            Self::Chat => {
                builder.provider(OpenAiChat::builder().api_key("k").base_url(url).build().unwrap()).model("gpt-6-luna")
            }
            Self::Responses => {
                builder.provider(OpenAi::builder().api_key("k").base_url(url).build().unwrap()).model("gpt-6-luna")
            }
            Self::Gemini => {
                let provider = Gemini::builder().api_key("k").base_url(url).build().unwrap();
                builder.provider(provider).model("gemini-4-argon")
            }
            Self::Vertex => {
                let url = "https://us-aiplatform.invalid/v1/publishers/google";
                let provider = Gemini::builder().api_key("k").base_url(url).build().unwrap();
                builder.provider(provider).model("gemini-4-argon")
            }
        }
    }

    /// A whole answer that says or calls something.
    fn answer(self, text: &str, call: Option<&str>) -> HttpReply {
        let body = match (self, call) {
            (Self::Anthropic, None) => {
                json!({"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "type": "message"})
            }
            (Self::Anthropic, Some(name)) => json!({"type": "message", "stop_reason": "tool_use",
                "content": [{"type": "tool_use", "id": "t1", "name": name, "input": {}}]}),
            (Self::Chat, None) => json!({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}),
            (Self::Chat, Some(name)) => json!({"choices": [{"finish_reason": "tool_calls", "message": {"tool_calls":
                [{"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}]}}]}),
            (Self::Responses, None) => json!({"object": "response", "id": "r", "status": "completed", "output":
                [{"type": "message", "id": "msg_1", "role": "assistant", "content":
                    [{"type": "output_text", "text": text, "annotations": []}]}]}),
            (Self::Responses, Some(name)) => json!({"object": "response", "id": "r", "status": "completed", "output":
                [{"type": "function_call", "id": "fc_1", "call_id": "c1", "name": name, "arguments": "{}"}]}),
            (Self::Gemini | Self::Vertex, None) => {
                json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]})
            }
            (Self::Gemini | Self::Vertex, Some(name)) => {
                json!({"candidates": [{"content": {"parts": [{"functionCall": {"name": name}}]}, "finishReason": "STOP"}]})
            }
        };
        HttpReply::json(200, body.to_string())
    }

    fn declared(self, request: &Value) -> Vec<&Value> {
        let tools = &request["tools"];
        match self {
            Self::Gemini | Self::Vertex => tools[0]["functionDeclarations"].as_array().unwrap().iter().collect(),
            Self::Chat => tools.as_array().unwrap().iter().map(|tool| &tool["function"]).collect(),
            _ => tools.as_array().unwrap().iter().collect(),
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

/// The beginning as it is and as many bytes as wanted, all zero.
fn filled(media_type: &str, beginning: &[u8], bytes: usize) -> Media {
    let mut media = Media::bytes(media_type, beginning);
    if let MediaSource::Data(data) = &mut media.source {
        data.push_str(&"A".repeat(bytes.saturating_sub(beginning.len()) / 3 * 4));
    }
    media
}

fn png(width: u32, height: u32, bytes: usize) -> Media {
    let head = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &width.to_be_bytes(), &height.to_be_bytes()].concat();
    filled("image/png", &head, bytes)
}

fn pdf(bytes: usize) -> PromptPart {
    PromptPart::Document(Document { name: None, media: filled("application/pdf", b"%PDF-1.7\n", bytes) })
}

const MB: usize = 1 << 20;

#[tokio::test]
async fn media_above_the_limits_are_refused_before_anything_is_stored_or_sent() {
    for (wire, part) in [
        (Wire::Anthropic, PromptPart::Image(png(10, 10, 30 * MB))),
        (Wire::Anthropic, PromptPart::Image(png(9_000, 10, 100))),
        (Wire::Anthropic, pdf(25 * MB)),
        (Wire::Chat, PromptPart::Image(png(10, 10, 51 * MB))),
        (Wire::Responses, pdf(51 * MB)),
        (Wire::Gemini, pdf(51 * MB)),
        (Wire::Vertex, PromptPart::Image(png(10, 10, 8 * MB))),
        (Wire::Vertex, pdf(8 * MB)),
    ] {
        let server = SseServer::start([]).await.unwrap();
        let agent = wire.builder(&server).build().unwrap();
        let error = agent.run([PromptPart::text("Look"), part]).await.unwrap_err();
        let error = provider_error(&error);
        assert_eq!(error.kind, ProviderErrorKind::Unsupported, "{wire:?}: {error}");
        let named = error.message.contains("block 1") || error.message.contains("part 1");
        assert!(named && error.message.contains("than "), "{wire:?}: {error}");
        assert!(agent.history().is_empty() && server.requests().is_empty());
    }
}

#[tokio::test]
async fn media_within_the_limits_go_out() {
    for (wire, part) in [
        (Wire::Anthropic, PromptPart::Image(png(8_000, 8_000, 7 * MB))),
        (Wire::Chat, PromptPart::Image(png(20_000, 10, 2 * MB))),
        (Wire::Responses, pdf(2 * MB)),
        (Wire::Gemini, PromptPart::Image(png(20_000, 10, 9 * MB))),
    ] {
        let server = SseServer::start([wire.answer("ok", None)]).await.unwrap();
        let agent = wire.builder(&server).build().unwrap();
        assert_eq!(agent.run([PromptPart::text("Look"), part]).await.unwrap().text, "ok", "{wire:?}");
    }
}

#[tokio::test]
async fn more_media_than_a_request_takes_are_refused_before_anything_is_stored_or_sent() {
    let many = |count: u32, side: u32| (0..count).map(move |_| PromptPart::Image(png(side, 10, 100)));
    for (wire, prompt, named) in [
        (Wire::Anthropic, many(21, 2_500).collect::<Vec<_>>(), "20"),
        (Wire::Anthropic, many(601, 10).collect(), "600"),
        (Wire::Anthropic, vec![pdf(15 * MB), pdf(15 * MB)], "1"),
        (Wire::Chat, many(501, 10).collect(), "500"),
        (Wire::Responses, vec![pdf(30 * MB), pdf(30 * MB)], "1"),
        (Wire::Gemini, many(3_601, 10).collect(), "3600"),
    ] {
        let server = SseServer::start([]).await.unwrap();
        let agent = wire.builder(&server).build().unwrap();
        let error = agent.run(prompt).await.unwrap_err();
        let error = provider_error(&error);
        assert_eq!(error.kind, ProviderErrorKind::Unsupported, "{wire:?}: {error}");
        assert!(error.message.contains(&format!("block {named} ")), "{wire:?}: {error}");
        assert!(agent.history().is_empty() && server.requests().is_empty());
    }
}

/// Stored under a model that takes them, and then sent to others.
#[tokio::test]
async fn media_of_the_history_that_a_model_does_not_take_become_a_note_that_stays() {
    let server = SseServer::start([Wire::Anthropic.answer("ok", None)]).await.unwrap();
    let agent = Wire::Anthropic.builder(&server).build().unwrap();
    let shown = [
        PromptPart::text("Look"),
        PromptPart::Image(Media::bytes("image/gif", b"GIF89a\x0a\0\x0a\0......")),
        PromptPart::Document(Document::pdf("a.pdf", b"%PDF-1.7\n...")),
    ];
    agent.run(shown).await.unwrap();
    let turns: Vec<_> = agent.history().iter().cloned().collect();
    // The first takes no PDF, the second no GIF.
    for wire in [Wire::Chat, Wire::Gemini] {
        let server = SseServer::start((0..3).map(|_| wire.answer("ok", None))).await.unwrap();
        let mut builder = wire.builder(&server).history(turns.clone());
        if wire == Wire::Chat {
            builder = builder.provider(OpenAiChat::compatible(server.url()).unwrap());
        }
        let agent = builder.build().unwrap();
        for text in ["And now?", "And then?"] {
            agent.run(text).await.unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        }
        let refused = if wire == Wire::Chat {
            PromptPart::Document(Document::pdf("b.pdf", b"%PDF-1.7\n..."))
        } else {
            PromptPart::Image(Media::bytes("image/gif", b"GIF89a......"))
        };
        let stored = agent.history().len();
        let error = agent.run(vec![refused]).await.unwrap_err();
        assert_eq!(provider_error(&error).kind, ProviderErrorKind::Unsupported, "{wire:?}");
        assert_eq!(agent.history().len(), stored, "{wire:?}");
        agent.run("Still there?").await.unwrap();
        let sent: Vec<_> =
            server.requests().iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect();
        for pair in sent.windows(2) {
            assert!(pair[1].starts_with(pair[0].trim_end_matches([']', '}'])), "{wire:?}: {pair:#?}");
        }
        let (gone, kept) = if wire == Wire::Chat { ("JVBERi", "R0lGOD") } else { ("R0lGOD", "JVBERi") };
        assert!(sent[0].contains("[left out: ") && sent[0].contains(kept), "{wire:?}: {}", sent[0]);
        assert!(!sent[0].contains(gone), "{wire:?}: {}", sent[0]);
    }
}

fn picture(media: Media) -> ToolResultContent {
    ToolResultContent::Image(media)
}

fn paper(bytes: usize) -> ToolResultContent {
    let MediaSource::Data(data) = filled("application/pdf", b"%PDF-1.7\n", bytes).source else { unreachable!() };
    ToolResultContent::Resource(Resource::new("file:///a.pdf", ResourceContent::Blob(data)))
}

#[tokio::test]
async fn what_a_tool_gives_and_the_wire_does_not_take_is_a_note_to_the_model() {
    for (wire, given) in [
        (Wire::Anthropic, picture(png(9_000, 10, 100))),
        (Wire::Anthropic, paper(25 * MB)),
        (Wire::Chat, picture(png(10, 10, 51 * MB))),
        (Wire::Responses, paper(51 * MB)),
        (Wire::Gemini, paper(51 * MB)),
    ] {
        let server = SseServer::start([wire.answer("", Some("shoot")), wire.answer("ok", None)]).await.unwrap();
        let shoot = tool_fn_value("shoot", "Shoots", json!({"type": "object"}), move |_: Value, _cx| {
            let given = given.clone();
            async move { Ok(ToolOutput::from(vec![given])) }
        });
        let agent = wire.builder(&server).tool(shoot).build().unwrap();
        assert_eq!(agent.run("Go").await.unwrap().text, "ok", "{wire:?}");
        let sent = String::from_utf8_lossy(&server.requests()[1].body).into_owned();
        assert!(sent.contains(" left out: ") && sent.len() < 10_000, "{wire:?}");
    }
}

#[tokio::test]
async fn a_wrong_label_is_set_right_by_the_bytes() {
    let mislabelled = || {
        let mut document = Document::pdf("a.pdf", b"%PDF-1.7\n...");
        document.media.media_type = Some("image/png".into());
        [
            PromptPart::text("Read"),
            PromptPart::Document(document),
            PromptPart::Image(Media::bytes("image/gif", b"\xff\xd8\xff\xe0....")),
        ]
    };
    for wire in WIRES {
        let server = SseServer::start([wire.answer("ok", None)]).await.unwrap();
        let agent = wire.builder(&server).build().unwrap();
        agent.run(mislabelled()).await.unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        let sent = String::from_utf8_lossy(&server.requests()[0].body).into_owned();
        assert!(sent.contains("application/pdf") && sent.contains("image/jpeg"), "{wire:?}: {sent}");
        assert!(!sent.contains("image/png") && !sent.contains("image/gif"), "{wire:?}: {sent}");
        // An image that is a PDF is no image anywhere.
        let error = agent.run(PromptPart::Image(Media::bytes("image/png", b"%PDF-1.7\n..."))).await.unwrap_err();
        assert_eq!(provider_error(&error).kind, ProviderErrorKind::Unsupported, "{wire:?}");
    }
}

#[tokio::test]
async fn ten_thousand_tools_are_refused_where_a_limit_is_stated() {
    for (wire, refused) in [(Wire::Anthropic, false), (Wire::Chat, true), (Wire::Responses, true), (Wire::Gemini, true)]
    {
        let server = SseServer::start([wire.answer("ok", None)]).await.unwrap();
        let mut builder = wire.builder(&server);
        for number in 0..10_000 {
            builder = builder.tool(tool_fn_value(
                format!("t{number}"),
                "",
                json!({"type": "object"}),
                |_: Value, _cx| async { Ok("") },
            ));
        }
        match builder.build().unwrap().run("Hi").await {
            Ok(_) => {
                assert!(!refused, "{wire:?}: sent {} tools", wire.declared(&server.requests()[0].json().unwrap()).len())
            }
            Err(error) => {
                let error = provider_error(&error);
                assert!(refused && server.requests().is_empty(), "{wire:?}: {error}");
                assert_eq!(error.kind, ProviderErrorKind::Invalid);
                assert!(error.message.contains("10000 tools"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn names_that_a_wire_does_not_take_are_mapped_both_ways() {
    let names = [
        "x".repeat(200),
        format!("{}y", "x".repeat(199)),
        "weather 🌦".into(),
        "mcp.files/read.all".into(),
        "9lives".into(),
        "名前".into(),
        "-".into(),
    ];
    for wire in WIRES {
        for wanted in 0..names.len() {
            let server = SseServer::start([]).await.unwrap();
            let mut builder = wire.builder(&server);
            for name in &names {
                let said = name.clone();
                builder =
                    builder.tool(tool_fn_value(name.as_str(), "", json!({"type": "object"}), move |_: Value, _cx| {
                        let said = said.clone();
                        async move { Ok(said) }
                    }));
            }
            let agent = builder.build().unwrap();
            server.push(wire.answer("ok", None));
            agent.run("First").await.unwrap();
            let first = server.requests()[0].json().unwrap();
            let shown: Vec<String> =
                wire.declared(&first).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
            let (also, most) = if wire == Wire::Gemini { ("_-.:", 128) } else { ("_-", 64) };
            for name in &shown {
                let legal = name.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c));
                assert!(legal && (1..=most).contains(&name.len()), "{wire:?}: {name}");
                assert_eq!(shown.iter().filter(|other| *other == name).count(), 1, "{wire:?}: {name} stands twice");
            }
            server.push(wire.answer("", Some(&shown[wanted])));
            server.push(wire.answer("done", None));
            let outcome = agent.run("Second").await.unwrap();
            let call = outcome.turns.iter().flat_map(|turn| turn.tool_calls()).last().unwrap();
            assert_eq!(call.name, names[wanted], "{wire:?}");
        }
    }
}

/// Put together without `json!`, which goes through all levels anew at each.
fn nested(depth: usize) -> Value {
    let object = |properties: Value| Value::from_iter([("type", "object".into()), ("properties", properties)]);
    (0..depth)
        .fold(object(json!({"leaf": {"type": "string"}})), |inner, _| object(Value::from_iter([("inner", inner)])))
}

#[tokio::test]
async fn cyclic_and_deep_schemas_are_sent_or_refused_but_end() {
    let cyclic = json!({"type": "object", "properties": {"node": {"$ref": "#/$defs/node"}}, "$defs": {"node":
        {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "all": {"type": "array",
            "items": {"$ref": "#"}}}}}});
    for wire in WIRES {
        for (what, schema) in [("cyclic", cyclic.clone()), ("deep", nested(40)), ("deeper", nested(120))] {
            let server = SseServer::start([wire.answer("ok", None)]).await.unwrap();
            let tool = tool_fn_value("odd", "Odd", schema, |_: Value, _cx| async { Ok("") });
            match wire.builder(&server).tool(tool).build() {
                Ok(agent) => {
                    agent.run("Hi").await.unwrap_or_else(|error| panic!("{wire:?} {what}: {error}"));
                    let body = server.requests()[0].body.to_vec();
                    serde_json::from_slice::<Value>(&body).unwrap_or_else(|error| panic!("{wire:?} {what}: {error}"));
                }
                Err(error) => assert!(what == "deeper" && error.to_string().contains("`odd`"), "{what}: {error}"),
            }
        }
    }
}

#[tokio::test]
async fn alternatives_at_the_root_are_sent_to_no_wire_that_refuses_them() {
    let string = || json!({"type": "string"});
    for keyword in ["anyOf", "oneOf", "allOf"] {
        let schema = json!({"type": "object", keyword: [
            {"properties": {"path": string()}, "required": ["path"]}, {"properties": {"url": string()}},
        ]});
        for wire in WIRES {
            let server = SseServer::start([wire.answer("ok", None)]).await.unwrap();
            let tool = tool_fn_value("fetch", "Fetches", schema.clone(), |_: Value, _cx| async { Ok("") });
            wire.builder(&server).tool(tool).build().unwrap().run("Hi").await.unwrap();
            let request = server.requests()[0].json().unwrap();
            let declared = wire.declared(&request)[0].clone();
            let parameters = ["input_schema", "parameters", "parametersJsonSchema"];
            let parameters = parameters.into_iter().find_map(|field| declared.get(field)).unwrap();
            if !(wire == Wire::Gemini && keyword == "anyOf") {
                assert_eq!(parameters.get(keyword), None, "{wire:?}: {parameters}");
            }
            // Nothing of it is lost.
            let text = parameters.to_string();
            assert!(text.contains("path") && text.contains("url"), "{wire:?}: {parameters}");
            assert_eq!(parameters["type"], "object", "{wire:?}: {parameters}");
        }
    }
}

#[tokio::test]
async fn a_schema_of_a_thousand_levels_is_a_build_error() {
    let server = SseServer::start([]).await.unwrap();
    let tool = tool_fn_value("odd", "Odd", nested(1_000), |_: Value, _cx| async { Ok("") });
    let error = Wire::Anthropic.builder(&server).tool(tool).build().err().map(|error| error.to_string());
    assert!(error.is_some_and(|error| error.contains("`odd`")));
}

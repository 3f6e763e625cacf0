//! Our own providers, held against the suite that anybody's provider can be held against.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use zidane::provider::{Anthropic, Gemini, OpenAi, OpenAiChat, Provider};
use zidane::testing::{HttpReply, ProviderFixture, Saying};

struct AnthropicFixture;

fn events(events: impl IntoIterator<Item = Value>) -> String {
    events.into_iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap())).collect()
}

impl AnthropicFixture {
    fn message(blocks: &[(Value, Vec<Value>)], stop: &str) -> Vec<Value> {
        let mut out =
            vec![json!({"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant",
            "model": "model", "content": [], "stop_reason": null, "usage": {"input_tokens": 7, "output_tokens": 1}}})];
        for (index, (start, deltas)) in blocks.iter().enumerate() {
            out.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            for delta in deltas {
                out.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            out.push(json!({"type": "content_block_stop", "index": index}));
        }
        out.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}}));
        out.push(json!({"type": "message_stop"}));
        out
    }

    fn text(deltas: &[&str]) -> (Value, Vec<Value>) {
        let deltas = deltas.iter().map(|text| json!({"type": "text_delta", "text": text})).collect();
        (json!({"type": "text", "text": ""}), deltas)
    }

    fn call(id: &str, pieces: &[&str]) -> (Value, Vec<Value>) {
        let pieces = pieces.iter().map(|json| json!({"type": "input_json_delta", "partial_json": json})).collect();
        (json!({"type": "tool_use", "id": id, "name": "echo", "input": {}}), pieces)
    }

    fn error(status: u16, kind: &str, message: &str) -> HttpReply {
        HttpReply::json(status, json!({"type": "error", "error": {"type": kind, "message": message}}).to_string())
    }
}

impl ProviderFixture for AnthropicFixture {
    fn provider(&self, base_url: &str) -> Arc<dyn Provider> {
        Arc::new(Anthropic::builder().api_key("conformance-key").base_url(base_url).build().unwrap())
    }

    fn reply(&self, saying: Saying) -> Option<HttpReply> {
        let (text, call) = (Self::text, Self::call);
        let sse = |blocks: &[(Value, Vec<Value>)], stop| HttpReply::sse(events(Self::message(blocks, stop)));
        let half = || Self::message(&[text(&["Half"])], "end_turn").into_iter().take(3).collect::<Vec<_>>();
        Some(match saying {
            Saying::Text => sse(&[text(&["Hello, ", "wörld", " 🌍"])], "end_turn"),
            Saying::Call => sse(&[text(&["Let me."]), call("call-1", &["", "{\"n\": ", "1}"])], "tool_use"),
            Saying::TwoCalls => sse(&[call("a", &["{\"n\": 1}"]), call("b", &["{\"n\": 2}"])], "tool_use"),
            Saying::EmptyCall => sse(&[call("a", &[""])], "tool_use"),
            Saying::Length => sse(&[text(&["Half"])], "max_tokens"),
            Saying::CutCall => sse(&[text(&["Half"]), call("a", &["{\"n\": "])], "max_tokens"),
            Saying::Thinking => {
                let deltas = vec![
                    json!({"type": "thinking_delta", "thinking": "Hm."}),
                    json!({"type": "signature_delta", "signature": "conformance-state"}),
                ];
                sse(&[(json!({"type": "thinking", "thinking": ""}), deltas), text(&["Done."])], "end_turn")
            }
            Saying::Refusal => sse(&[text(&["I"])], "refusal"),
            Saying::UnknownFinish => sse(&[text(&["Hm"])], "sideways"),
            Saying::UnknownEvent => {
                let mut message = Self::message(&[text(&["Hel", "lo"])], "end_turn");
                message.insert(3, json!({"type": "weather_report", "sky": "clear"}));
                HttpReply::sse(events(message))
            }
            Saying::Truncated => HttpReply::sse(events(half())),
            Saying::OverloadedInStream => {
                let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
                HttpReply::sse(events(half().into_iter().chain([error])))
            }
            Saying::Unauthorized => Self::error(401, "authentication_error", "invalid x-api-key conformance-key"),
            Saying::NoSuchModel => Self::error(404, "not_found_error", "model: model"),
            Saying::RateLimited => Self::error(429, "rate_limit_error", "slow down").header("retry-after", "3"),
            Saying::Overloaded => Self::error(529, "overloaded_error", "Overloaded"),
            Saying::ContextOverflow => {
                Self::error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")
            }
            _ => return None,
        })
    }
}

struct ChatFixture;

impl ChatFixture {
    fn chunk(delta: &Value, finish: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "model", "choices": [choice]});
        format!("data: {chunk}\n\n")
    }

    fn stream(deltas: &[Value], finish: &str) -> HttpReply {
        let usage = json!({"id": "c", "object": "chat.completion.chunk", "model": "model", "choices": [],
            "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}});
        let body: String = deltas.iter().map(|delta| Self::chunk(delta, None)).collect();
        HttpReply::sse(format!("{body}{}data: {usage}\n\ndata: [DONE]\n\n", Self::chunk(&json!({}), Some(finish))))
    }

    fn text(text: &str) -> Value {
        json!({ "content": text })
    }

    fn call(index: u32, id: Option<&str>, arguments: &str) -> Value {
        match id {
            Some(id) => json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                "function": {"name": "echo", "arguments": arguments}}]}),
            None => json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}),
        }
    }

    fn error(status: u16, kind: &str, code: &str, message: &str) -> HttpReply {
        HttpReply::json(
            status,
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}}).to_string(),
        )
    }
}

impl ProviderFixture for ChatFixture {
    fn provider(&self, base_url: &str) -> Arc<dyn Provider> {
        Arc::new(OpenAiChat::builder().api_key("conformance-key").base_url(base_url).build().unwrap())
    }

    fn reply(&self, saying: Saying) -> Option<HttpReply> {
        let (text, call, stream) = (Self::text, Self::call, Self::stream);
        Some(match saying {
            Saying::Text => stream(&[text("Hello, "), text("wörld"), text(" 🌍")], "stop"),
            Saying::Call => stream(
                &[text("Let me."), call(0, Some("call-1"), ""), call(0, None, "{\"n\": "), call(0, None, "1}")],
                "tool_calls",
            ),
            Saying::TwoCalls => {
                stream(&[call(0, Some("a"), "{\"n\": 1}"), call(1, Some("b"), "{\"n\": 2}")], "tool_calls")
            }
            Saying::EmptyCall => stream(&[call(0, Some("a"), "")], "tool_calls"),
            Saying::Length => stream(&[text("Half")], "length"),
            Saying::CutCall => stream(&[text("Half"), call(0, Some("a"), "{\"n\": ")], "length"),
            Saying::Refusal => stream(&[json!({"refusal": "No."})], "stop"),
            Saying::UnknownFinish => stream(&[text("Hm")], "sideways"),
            Saying::UnknownEvent => {
                let odd = "event: weather\ndata: {\"sky\": \"clear\"}\n\n";
                let rest = format!("{}data: [DONE]\n\n", Self::chunk(&json!({}), Some("stop")));
                HttpReply::sse(Self::chunk(&text("Hel"), None) + odd + &Self::chunk(&text("lo"), None) + &rest)
            }
            Saying::Truncated => HttpReply::sse(Self::chunk(&text("Half"), None)),
            Saying::OverloadedInStream => {
                let error =
                    json!({"error": {"message": "Overloaded", "type": "server_error", "code": "server_is_overloaded"}});
                HttpReply::sse(format!("{}data: {error}\n\n", Self::chunk(&text("Half"), None)))
            }
            Saying::Unauthorized => {
                Self::error(401, "invalid_request_error", "invalid_api_key", "Incorrect API key: conformance-key")
            }
            Saying::NoSuchModel => Self::error(404, "invalid_request_error", "model_not_found", "no such model"),
            Saying::RateLimited => {
                Self::error(429, "requests", "rate_limit_exceeded", "slow down").header("retry-after", "3")
            }
            Saying::Overloaded => Self::error(503, "service_unavailable_error", "server_is_overloaded", "busy"),
            Saying::ContextOverflow => Self::error(
                400,
                "invalid_request_error",
                "context_length_exceeded",
                "This model's maximum context length is 128000 tokens.",
            ),
            _ => return None,
        })
    }
}

struct ResponsesFixture;

impl ResponsesFixture {
    /// Items as they stream: what is announced, its deltas, and what it is in the end.
    fn stream(items: &[(Value, Vec<Value>, Value)], terminal: Option<Value>) -> Vec<Value> {
        let mut out = vec![json!({"type": "response.created", "response": {"id": "resp", "model": "model"}})];
        for (index, (item, deltas, done)) in items.iter().enumerate() {
            out.push(json!({"type": "response.output_item.added", "output_index": index, "item": item}));
            for delta in deltas {
                let mut delta = delta.clone();
                delta["output_index"] = index.into();
                out.push(delta);
            }
            out.push(json!({"type": "response.output_item.done", "output_index": index, "item": done}));
        }
        out.extend(terminal);
        out
    }

    fn end(status: &str, reason: Option<&str>) -> Option<Value> {
        let usage = json!({"input_tokens": 7, "output_tokens": 9, "total_tokens": 16});
        let details = reason.map(|reason| json!({ "reason": reason }));
        let response = json!({"id": "resp", "model": "model", "status": status, "output": [],
            "incomplete_details": details, "usage": usage});
        Some(json!({"type": format!("response.{status}"), "response": response}))
    }

    fn text(deltas: &[&str]) -> (Value, Vec<Value>, Value) {
        let item = |content: Value| json!({"type": "message", "id": "msg", "role": "assistant", "content": content});
        let delta = |text: &&str| json!({"type": "response.output_text.delta", "content_index": 0, "delta": text});
        let part = json!({"type": "output_text", "text": deltas.concat(), "annotations": []});
        (item(json!([])), deltas.iter().map(delta).collect(), item(json!([part])))
    }

    fn call(id: &str, pieces: &[&str], status: &str) -> (Value, Vec<Value>, Value) {
        let item = |arguments: &str, status: &str| {
            json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "echo",
                "arguments": arguments, "status": status})
        };
        let delta = |json: &&str| json!({"type": "response.function_call_arguments.delta", "delta": json});
        (item("", "in_progress"), pieces.iter().map(delta).collect(), item(&pieces.concat(), status))
    }

    fn error(status: u16, code: &str, message: &str) -> HttpReply {
        ChatFixture::error(status, "invalid_request_error", code, message)
    }
}

impl ProviderFixture for ResponsesFixture {
    fn provider(&self, base_url: &str) -> Arc<dyn Provider> {
        Arc::new(OpenAi::builder().api_key("conformance-key").base_url(base_url).build().unwrap())
    }

    fn reply(&self, saying: Saying) -> Option<HttpReply> {
        let (text, done) = (Self::text, || Self::end("completed", None));
        let call = |id, pieces: &[&str]| Self::call(id, pieces, "completed");
        let sse = |items: &[_], end| HttpReply::sse(events(Self::stream(items, end)));
        let half = || Self::stream(&[text(&["Half"])], None).into_iter().take(3).collect::<Vec<_>>();
        Some(match saying {
            Saying::Text => sse(&[text(&["Hello, ", "wörld", " 🌍"])], done()),
            Saying::Call => sse(&[text(&["Let me."]), call("call-1", &["", "{\"n\": ", "1}"])], done()),
            Saying::TwoCalls => sse(&[call("a", &["{\"n\": 1}"]), call("b", &["{\"n\": 2}"])], done()),
            Saying::EmptyCall => sse(&[call("a", &[""])], done()),
            Saying::Length => sse(&[text(&["Half"])], Self::end("incomplete", Some("max_output_tokens"))),
            Saying::CutCall => {
                let cut = Self::call("a", &["{\"n\": "], "incomplete");
                sse(&[text(&["Half"]), cut], Self::end("incomplete", Some("max_output_tokens")))
            }
            Saying::Thinking => {
                let item = |summary: Value| {
                    json!({"type": "reasoning", "id": "rs_1", "summary": summary,
                        "encrypted_content": "conformance-state"})
                };
                let part = json!({"type": "summary_text", "text": "Hm."});
                let delta =
                    json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "Hm."});
                sse(&[(item(json!([])), vec![delta], item(json!([part]))), text(&["Done."])], done())
            }
            Saying::Refusal => {
                let part = json!({"type": "refusal", "refusal": "No."});
                let item = json!({"type": "message", "id": "msg", "role": "assistant", "content": [part]});
                sse(&[(json!({"type": "message", "id": "msg"}), Vec::new(), item)], done())
            }
            Saying::UnknownFinish => sse(&[text(&["Hm"])], Self::end("incomplete", Some("sideways"))),
            Saying::UnknownEvent => {
                let mut stream = Self::stream(&[text(&["Hel", "lo"])], done());
                stream.insert(3, json!({"type": "response.weather_report", "sky": "clear"}));
                HttpReply::sse(events(stream))
            }
            Saying::Truncated => HttpReply::sse(events(half())),
            Saying::OverloadedInStream => {
                let error = json!({"type": "error", "code": "server_is_overloaded", "message": "Overloaded"});
                HttpReply::sse(events(half().into_iter().chain([error])))
            }
            Saying::Unauthorized => Self::error(401, "invalid_api_key", "Incorrect API key: conformance-key"),
            Saying::NoSuchModel => Self::error(404, "model_not_found", "no such model"),
            Saying::RateLimited => Self::error(429, "rate_limit_exceeded", "slow down").header("retry-after", "3"),
            Saying::Overloaded => Self::error(503, "server_is_overloaded", "busy"),
            Saying::ContextOverflow => {
                Self::error(400, "context_length_exceeded", "Your input exceeds the context window of this model.")
            }
            _ => return None,
        })
    }
}

struct GeminiFixture;

impl GeminiFixture {
    fn chunk(parts: Value, finish: Option<&str>) -> Value {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 6, "thoughtsTokenCount": 3});
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "model"})
    }

    fn stream(chunks: &[Value]) -> HttpReply {
        HttpReply::sse(chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect::<String>())
    }

    fn text(text: &str) -> Value {
        json!([{ "text": text }])
    }

    fn call(id: &str, args: Value) -> Value {
        json!({"functionCall": {"id": id, "name": "echo", "args": args}})
    }

    fn error(status: u16, word: &str, message: &str, details: Value) -> HttpReply {
        let error = json!({"code": status, "message": message, "status": word, "details": details});
        HttpReply::json(status, json!({ "error": error }).to_string())
    }
}

impl ProviderFixture for GeminiFixture {
    fn provider(&self, base_url: &str) -> Arc<dyn Provider> {
        Arc::new(Gemini::builder().api_key("conformance-key").base_url(base_url).build().unwrap())
    }

    fn reply(&self, saying: Saying) -> Option<HttpReply> {
        let (text, call, chunk, stream) = (Self::text, Self::call, Self::chunk, Self::stream);
        let none = || Value::Null;
        Some(match saying {
            Saying::Text => {
                stream(&[chunk(text("Hello, "), None), chunk(text("wörld"), None), chunk(text(" 🌍"), Some("STOP"))])
            }
            Saying::Call => {
                let parts = json!([call("call-1", json!({"n": 1}))]);
                stream(&[chunk(text("Let me."), None), chunk(parts, Some("STOP"))])
            }
            Saying::TwoCalls => {
                let parts = json!([call("a", json!({"n": 1})), call("b", json!({"n": 2}))]);
                stream(&[chunk(parts, Some("STOP"))])
            }
            Saying::EmptyCall => stream(&[chunk(json!([call("a", none())]), Some("STOP"))]),
            Saying::Length => stream(&[chunk(text("Half"), Some("MAX_TOKENS"))]),
            Saying::CutCall => {
                let piece = json!({"jsonPath": "$.n", "numberValue": 1});
                let open = json!([{"functionCall":
                    {"id": "a", "name": "echo", "partialArgs": [piece], "willContinue": true}}]);
                stream(&[chunk(text("Half"), None), chunk(open, None), chunk(json!([]), Some("MAX_TOKENS"))])
            }
            Saying::Thinking => {
                let done = json!([{"text": "Done.", "thoughtSignature": "conformance-state"}]);
                stream(&[chunk(json!([{"text": "Hm.", "thought": true}]), None), chunk(done, Some("STOP"))])
            }
            Saying::Refusal => stream(&[chunk(text("I"), Some("SAFETY"))]),
            Saying::UnknownFinish => stream(&[chunk(text("Hm"), Some("SIDEWAYS"))]),
            Saying::UnknownEvent => {
                let odd = json!({"weather": {"sky": "clear"}});
                stream(&[chunk(text("Hel"), None), odd, chunk(text("lo"), Some("STOP"))])
            }
            Saying::Truncated => stream(&[chunk(text("Half"), None)]),
            Saying::OverloadedInStream => {
                let error = json!({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}});
                stream(&[chunk(text("Half"), None), error])
            }
            Saying::Unauthorized => {
                let details = json!([{"reason": "API_KEY_INVALID"}]);
                Self::error(400, "INVALID_ARGUMENT", "API key not valid: conformance-key", details)
            }
            Saying::NoSuchModel => Self::error(404, "NOT_FOUND", "models/model is not found", none()),
            Saying::RateLimited => Self::error(429, "RESOURCE_EXHAUSTED", "slow down", json!([{"retryDelay": "3s"}])),
            Saying::Overloaded => Self::error(503, "UNAVAILABLE", "The model is overloaded.", none()),
            Saying::ContextOverflow => {
                let message = "The input token count (2) exceeds the maximum number of tokens allowed (1).";
                Self::error(400, "INVALID_ARGUMENT", message, none())
            }
            _ => return None,
        })
    }
}

zidane::provider_conformance!(anthropic, AnthropicFixture);
zidane::provider_conformance!(openai_responses, ResponsesFixture);
zidane::provider_conformance!(openai_chat, ChatFixture);
zidane::provider_conformance!(gemini, GeminiFixture);

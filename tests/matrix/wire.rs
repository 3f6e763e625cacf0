//! The wires as a scripted server plays them. The bodies are made up, in the form that each vendor streams.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zidane::provider::{Anthropic, ChatProfile, Gemini, OpenAi, OpenAiChat, RetryPolicy};
use zidane::testing::{HttpEnd, HttpReply, ReceivedRequest, SseServer};
use zidane::{Agent, AgentBuilder};

use super::rules::{self, Report};
use super::strict_json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Chat,
    /// The Chat wire at a vendor that signs reasoning.
    Router,
    Responses,
    Gemini,
}

pub(crate) const WIRES: [Wire; 5] = [Wire::Anthropic, Wire::Chat, Wire::Router, Wire::Responses, Wire::Gemini];

/// A wire and one of two models on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) wire: Wire,
    pub(crate) second: bool,
}

/// What the model says in one answer. Signatures and ids come from `number`, which tells answers apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) number: usize,
    pub(crate) thinking: &'static str,
    pub(crate) text: String,
    /// Tools by what their description says, and arguments.
    pub(crate) calls: Vec<(&'static str, Value)>,
    /// The answer stops in the middle of a call, and nothing more comes.
    pub(crate) stalls: bool,
    pub(crate) pauses: bool,
    /// The provider used a tool of its own, where it has one.
    pub(crate) searches: bool,
}

pub(crate) enum Step {
    Say(Answer),
    Fail(u16),
    /// The vendor refuses the conversation for its length.
    TooLong,
}

impl End {
    pub(crate) fn model(self) -> &'static str {
        match (self.wire, self.second) {
            (Wire::Anthropic, false) => "claude-sonnet-5-5",
            (Wire::Anthropic, true) => "claude-opus-4-6",
            (Wire::Chat | Wire::Responses, false) => "gpt-6-luna",
            (Wire::Chat | Wire::Responses, true) => "gpt-5.5",
            (Wire::Router, false) => "anthropic/claude-sonnet-5.5",
            (Wire::Router, true) => "z-ai/glm-5.3",
            (Wire::Gemini, false) => "gemini-4-argon",
            (Wire::Gemini, true) => "gemini-3.5-flash",
        }
    }

    pub(crate) fn producer(self) -> &'static str {
        match self.wire {
            Wire::Anthropic => "anthropic",
            Wire::Chat => "openai",
            Wire::Router => "openrouter",
            Wire::Responses => "openai-responses",
            Wire::Gemini => "gemini",
        }
    }

    pub(crate) fn messages_field(self) -> &'static str {
        match self.wire {
            Wire::Responses => "input",
            Wire::Gemini => "contents",
            _ => "messages",
        }
    }

    pub(crate) fn builder(self, server: &SseServer) -> AgentBuilder {
        let url = server.url();
        let builder = Agent::builder().model(self.model()).system("Be exact.");
        let mut retry = RetryPolicy::default();
        retry.base_delay = std::time::Duration::from_millis(1);
        let builder = builder.retry(retry);
        let chat = |profile| OpenAiChat::builder().profile(profile).api_key("k").base_url(&url).build().unwrap();
        match self.wire {
            Wire::Anthropic => builder.provider(Anthropic::builder().api_key("k").base_url(url).build().unwrap()),
            Wire::Chat => builder.provider(chat(ChatProfile::openai())),
            Wire::Router => builder.provider(chat(ChatProfile::openrouter())),
            Wire::Responses => builder.provider(OpenAi::builder().api_key("k").base_url(url).build().unwrap()),
            Wire::Gemini => builder.provider(Gemini::builder().api_key("k").base_url(url).build().unwrap()),
        }
    }

    /// Holds a request against the rules of its wire.
    pub(crate) fn check(self, body: &[u8]) -> (Value, Report) {
        let value = match strict_json::parse(body) {
            Ok(value) => value,
            Err(error) => {
                let mut report = Report::default();
                report.faults.push(error);
                return (Value::Null, report);
            }
        };
        let report = match self.wire {
            Wire::Anthropic => rules::anthropic::check(&value),
            Wire::Chat => rules::chat::check(&value, false),
            Wire::Router => rules::chat::check(&value, true),
            Wire::Responses => rules::responses::check(&value),
            Wire::Gemini => rules::gemini::check(&value),
        };
        (value, report)
    }

    /// A server that gives the steps, one per request.
    pub(crate) async fn server(self, steps: impl IntoIterator<Item = Step>) -> SseServer {
        let steps = Arc::new(Mutex::new(steps.into_iter().collect::<VecDeque<_>>()));
        SseServer::with_handler(move |request| match steps.lock().unwrap().pop_front() {
            Some(Step::Say(answer)) => self.reply(request, &answer),
            Some(Step::Fail(status)) => HttpReply::json(status, r#"{"error":{"message":"busy"}}"#),
            Some(Step::TooLong) => HttpReply::json(400, self.too_long()),
            None => HttpReply::json(400, r#"{"error":{"message":"nothing is scripted"}}"#),
        })
        .await
        .unwrap()
    }

    fn too_long(self) -> String {
        let error = match self.wire {
            Wire::Anthropic => {
                let error = json!({"type": "invalid_request_error",
                    "message": "prompt is too long: 210000 tokens > 200000 maximum"});
                return json!({"type": "error", "error": error}).to_string();
            }
            Wire::Chat | Wire::Router => json!({"type": "invalid_request_error", "code": "context_length_exceeded",
                "message": "This model's maximum context length is 128000 tokens."}),
            Wire::Responses => json!({"type": "invalid_request_error", "code": "context_length_exceeded",
                "message": "Your input exceeds the context window of this model."}),
            Wire::Gemini => json!({"code": 400, "status": "INVALID_ARGUMENT",
                "message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}),
        };
        json!({ "error": error }).to_string()
    }

    /// An opaque state that names who made it.
    fn state(self, number: usize, what: &str) -> String {
        format!("Sig{:?}{}{number}{what}", self.wire, if self.second { "Two" } else { "One" })
    }

    fn reply(self, request: &ReceivedRequest, answer: &Answer) -> HttpReply {
        let body = request.json().unwrap();
        let calls: Vec<_> = answer
            .calls
            .iter()
            .map(|(what, arguments)| (tool_name(&body, what).expect("the tool is declared"), arguments.clone()))
            .collect();
        let text = match self.wire {
            Wire::Anthropic => self.anthropic(answer, &calls),
            Wire::Chat | Wire::Router => self.chat(answer, &calls),
            Wire::Responses => self.responses(answer, &calls),
            Wire::Gemini => self.gemini(answer, &calls),
        };
        let reply = HttpReply::sse(text);
        if answer.stalls { reply.end(HttpEnd::Stall) } else { reply }
    }

    fn anthropic(self, answer: &Answer, calls: &[(String, Value)]) -> String {
        let mut events = vec![json!({"type": "message_start", "message": {"id": "m", "type": "message",
            "role": "assistant", "model": self.model(), "content": [], "stop_reason": null,
            "usage": {"input_tokens": 7, "output_tokens": 1}}})];
        let mut index = 0;
        let mut block = |start: Value, deltas: &[Value], whole: bool| {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
            for delta in deltas {
                events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            if whole {
                events.push(json!({"type": "content_block_stop", "index": index}));
            }
            index += 1;
        };
        if !answer.thinking.is_empty() {
            let state = self.state(answer.number, "a");
            let deltas = [
                json!({"type": "thinking_delta", "thinking": answer.thinking}),
                json!({"type": "signature_delta", "signature": state}),
            ];
            block(json!({"type": "thinking", "thinking": "", "signature": ""}), &deltas, true);
            let data = self.state(answer.number, "b");
            block(json!({"type": "redacted_thinking", "data": data}), &[], true);
        }
        if answer.searches {
            let id = format!("srvtoolu_{}", self.state(answer.number, "s"));
            let found = json!([{"type": "web_search_result", "url": "https://x.test", "title": "X",
                "encrypted_content": self.state(answer.number, "e")}]);
            block(
                json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "x"}}),
                &[],
                true,
            );
            block(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": found}), &[], true);
        }
        if !answer.text.is_empty() {
            let delta = json!({"type": "text_delta", "text": answer.text});
            block(json!({"type": "text", "text": ""}), &[delta], true);
        }
        for (at, (name, arguments)) in calls.iter().enumerate() {
            let start = json!({"type": "tool_use", "id": format!("toolu_{}_{at}", answer.number),
                "name": name, "input": {}, "caller": {"type": "direct"}});
            let text = arguments.to_string();
            let text = if answer.stalls { &text[..text.len() / 2] } else { &text };
            block(start, &[json!({"type": "input_json_delta", "partial_json": text})], !answer.stalls);
        }
        if !answer.stalls {
            let stop = match (answer.pauses, calls.is_empty()) {
                (true, _) => "pause_turn",
                (_, true) => "end_turn",
                _ => "tool_use",
            };
            events
                .push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}}));
            events.push(json!({"type": "message_stop"}));
        }
        named(&events)
    }

    fn chat(self, answer: &Answer, calls: &[(String, Value)]) -> String {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        if !answer.thinking.is_empty() && self.wire == Wire::Router {
            let state = self.state(answer.number, "a");
            let format = "anthropic-claude-v1";
            let detail = json!({"type": "reasoning.text", "text": answer.thinking, "format": format, "index": 0});
            deltas.push(json!({"reasoning": answer.thinking, "reasoning_details": [detail]}));
            let detail =
                json!({"type": "reasoning.text", "text": "", "signature": state, "format": format, "index": 0});
            deltas.push(json!({"reasoning_details": [detail]}));
        }
        if !answer.text.is_empty() {
            deltas.push(json!({ "content": answer.text }));
        }
        for (at, (name, arguments)) in calls.iter().enumerate() {
            // Odd ids of real servers: a function's name with its place, and ones that begin anew with every answer.
            let id = match self.wire {
                Wire::Router => format!("functions.{name}:{}{at}|ü", answer.number),
                _ => format!("call_{at}"),
            };
            let text = arguments.to_string();
            let text = if answer.stalls { &text[..text.len() / 2] } else { &text };
            let function = json!({"name": name, "arguments": text});
            let call = json!({"index": at, "id": id, "type": "function", "function": function});
            deltas.push(json!({ "tool_calls": [call] }));
        }
        let chunk = |delta: &Value, finish: Value| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            let chunk =
                json!({"id": "c", "object": "chat.completion.chunk", "model": self.model(), "choices": [choice]});
            format!("data: {chunk}\n\n")
        };
        let mut body: String = deltas.iter().map(|delta| chunk(delta, Value::Null)).collect();
        if !answer.stalls {
            body += &chunk(&json!({}), if calls.is_empty() { "stop".into() } else { "tool_calls".into() });
            let usage = json!({"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16});
            body += &format!("data: {}\n\ndata: [DONE]\n\n", json!({"id": "c", "choices": [], "usage": usage}));
        }
        body
    }

    fn responses(self, answer: &Answer, calls: &[(String, Value)]) -> String {
        let mut events = vec![json!({"type": "response.created",
            "response": {"id": "resp_1", "model": self.model(), "status": "in_progress"}})];
        let mut index = 0;
        let mut item = |added: Value, between: Vec<Value>, done: Option<Value>| {
            events.push(json!({"type": "response.output_item.added", "output_index": index, "item": added}));
            for mut event in between {
                event["output_index"] = index.into();
                events.push(event);
            }
            if let Some(done) = done {
                events.push(json!({"type": "response.output_item.done", "output_index": index, "item": done}));
            }
            index += 1;
        };
        if !answer.thinking.is_empty() {
            let id = format!("rs_{}", self.state(answer.number, "r"));
            let done = json!({"type": "reasoning", "id": id, "encrypted_content": self.state(answer.number, "a"),
                "summary": [{"type": "summary_text", "text": answer.thinking}]});
            let delta = json!({"type": "response.reasoning_summary_text.delta", "summary_index": 0,
                "delta": answer.thinking});
            item(json!({"type": "reasoning", "id": id, "summary": []}), vec![delta], Some(done));
        }
        if answer.searches {
            let id = format!("ws_{}", self.state(answer.number, "s"));
            let action = json!({"type": "search", "query": "x"});
            let done = json!({"type": "web_search_call", "id": id, "status": "completed", "action": action});
            item(done.clone(), Vec::new(), Some(done));
        }
        if !answer.text.is_empty() {
            let id = format!("msg_{}", self.state(answer.number, "m"));
            let part = json!({"type": "output_text", "text": answer.text, "annotations": []});
            let done = json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
                "phase": "commentary", "content": [part]});
            let delta = json!({"type": "response.output_text.delta", "item_id": id, "content_index": 0,
                "delta": answer.text});
            let added = json!({"type": "message", "id": id, "role": "assistant", "content": []});
            item(added, vec![delta], Some(done));
        }
        for (at, (name, arguments)) in calls.iter().enumerate() {
            let id = format!("fc_{}{at}", self.state(answer.number, "f"));
            let call_id = format!("call.{}|{at}-{}", answer.number, "x".repeat(40));
            let text = arguments.to_string();
            let added = json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": ""});
            let mut done = added.clone();
            done["arguments"] = text.clone().into();
            done["status"] = "completed".into();
            let piece = if answer.stalls { &text[..text.len() / 2] } else { &text };
            let delta = json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": piece});
            item(added, vec![delta], (!answer.stalls).then_some(done));
        }
        if !answer.stalls {
            let usage = json!({"input_tokens": 7, "output_tokens": 9, "total_tokens": 16});
            events.push(json!({"type": "response.completed", "response": {"id": "resp_1", "model": self.model(),
                "status": "completed", "output": [], "usage": usage}}));
        }
        named(&events)
    }

    fn gemini(self, answer: &Answer, calls: &[(String, Value)]) -> String {
        let mut chunks = Vec::new();
        if !answer.thinking.is_empty() {
            chunks.push(json!([{"text": answer.thinking, "thought": true}]));
        }
        if answer.searches {
            // Code and its output are readable, so that every model of the wire takes them.
            let code = format!("print({})", answer.number);
            chunks.push(json!([{"executableCode": {"language": "PYTHON", "code": code}}]));
            let output = format!("printed {}", answer.number);
            chunks.push(json!([{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": output}}]));
        }
        if !answer.text.is_empty() {
            chunks.push(json!([{ "text": answer.text }]));
        }
        let parts: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(at, (name, arguments))| {
                let mut part = json!({"functionCall": {"name": name, "args": arguments}});
                // The last one of several is without an id, as older models and some routes leave all of theirs.
                if at < 2 {
                    part["functionCall"]["id"] = format!("fn:{}/{at}", answer.number).into();
                }
                if at == 0 {
                    part["thoughtSignature"] = self.state(answer.number, "a").into();
                }
                if answer.stalls {
                    let path = json!([{"jsonPath": "$.n", "numberValue": 1}]);
                    part["functionCall"]["partialArgs"] = path;
                    part["functionCall"]["willContinue"] = true.into();
                    part["functionCall"].as_object_mut().unwrap().remove("args");
                }
                part
            })
            .collect();
        if parts.is_empty() {
            let state = self.state(answer.number, "t");
            chunks.push(json!([{"text": "", "thoughtSignature": state}]));
        } else {
            chunks.push(parts.into());
        }
        let last = chunks.len() - 1;
        let chunk = |(at, parts): (usize, &Value)| {
            let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
            if at == last && !answer.stalls {
                candidate["finishReason"] = "STOP".into();
            }
            let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 9});
            let chunk = json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": self.model()});
            format!("data: {chunk}\r\n\r\n")
        };
        chunks.iter().enumerate().map(chunk).collect()
    }
}

fn named(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

/// The name under which a request declares the tool that is described so.
pub(crate) fn tool_name(request: &Value, description: &str) -> Option<String> {
    match request {
        Value::Array(items) => items.iter().find_map(|item| tool_name(item, description)),
        Value::Object(fields) if fields.get("description").is_some_and(|text| *text == description) => {
            fields.get("name")?.as_str().map(str::to_owned)
        }
        Value::Object(fields) => ["tools", "function", "functionDeclarations"]
            .iter()
            .filter_map(|field| fields.get(*field))
            .find_map(|inner| tool_name(inner, description)),
        _ => None,
    }
}

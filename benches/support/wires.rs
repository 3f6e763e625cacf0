//! The four wires at work: what they make of requests, and of answers as they arrive.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use zidane::provider::{Anthropic, Gemini, ModelRequest, OpenAi, OpenAiChat, ProviderStream, RawResponse, StreamEvent};

use super::traffic::{Failure, conversation, grow, long_arguments, request_with};

/// Their names here.
#[allow(dead_code, reason = "the example is told one by name")]
pub(crate) const WIRES: [&str; 4] = ["anthropic", "openai", "responses", "gemini"];

/// The text of a delta.
const TEXT: &str = "sixteen bytes on";
/// How many bytes of arguments a delta brings.
const ARGUMENT_BYTES: usize = 16;

/// One of them.
pub(crate) enum Wire {
    Anthropic(Anthropic),
    Chat(Box<OpenAiChat>),
    Responses(Box<OpenAi>),
    Gemini(Gemini),
}

impl Wire {
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
        match name {
            "anthropic" => Ok(Self::Anthropic(Anthropic::builder().api_key("k").build()?)),
            "openai" => Ok(Self::Chat(Box::new(OpenAiChat::builder().api_key("k").build()?))),
            "responses" => Ok(Self::Responses(Box::new(OpenAi::builder().api_key("k").build()?))),
            "gemini" => Ok(Self::Gemini(Gemini::builder().api_key("k").build()?)),
            _ => Err(format!("unknown wire {name}").into()),
        }
    }

    /// The size of the request's body.
    pub(crate) fn encode(&self, request: &ModelRequest) -> Result<usize, Failure> {
        let body = match self {
            Self::Anthropic(wire) => wire.encode(request)?,
            Self::Chat(wire) => wire.encode(request)?,
            Self::Responses(wire) => wire.encode(request)?,
            Self::Gemini(wire) => wire.encode(request)?,
        };
        Ok(body.len())
    }

    /// Grows a conversation by a call and its result as often as said, and encodes it each time. Gives the last size.
    pub(crate) fn append(&self, times: usize) -> Result<usize, Failure> {
        let (mut bytes, mut history, cache) = (0, conversation(1), Arc::default());
        for _ in 0..times {
            grow(&mut history);
            let request = request_with(history, &cache);
            bytes = self.encode(&request)?;
            history = request.history;
        }
        Ok(bytes)
    }

    /// An answer of that many text deltas, each event a chunk of its own.
    pub(crate) fn answer(&self, deltas: usize) -> Vec<Bytes> {
        let mut events = self.opening();
        let text = TEXT.repeat(deltas);
        match self {
            Self::Anthropic(_) => {
                events.push(
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#.into(),
                );
            }
            Self::Responses(_) => {
                events.push(r#"{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}"#.into());
                events.push(r#"{"type":"response.content_part.added","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}}"#.into());
            }
            Self::Chat(_) | Self::Gemini(_) => {}
        }
        for number in 0..deltas {
            events.push(match self {
                Self::Anthropic(_) => format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{TEXT}"}}}}"#
                ),
                Self::Chat(_) => {
                    format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{"content":"{TEXT}"}}}}]}}"#)
                }
                Self::Responses(_) => format!(
                    r#"{{"type":"response.output_text.delta","sequence_number":{},"item_id":"msg_1","output_index":0,"content_index":0,"delta":"{TEXT}","logprobs":[]}}"#,
                    number + 4
                ),
                Self::Gemini(_) => format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{TEXT}"}}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount":9,"candidatesTokenCount":{number},"totalTokenCount":{}}},"modelVersion":"m","responseId":"r"}}"#,
                    number + 9
                ),
            });
        }
        let item = json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "annotations": [], "text": text}]});
        match self {
            Self::Anthropic(_) => events.push(r#"{"type":"content_block_stop","index":0}"#.into()),
            Self::Responses(_) => {
                events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}).to_string())
            }
            Self::Chat(_) | Self::Gemini(_) => {}
        }
        self.close(&mut events, "end_turn", "stop", &item);
        events.iter().map(|data| self.event(data)).collect()
    }

    /// An answer with one call whose arguments are about that long. They come in small deltas, but for Gemini, where a
    /// call comes whole.
    pub(crate) fn long_answer(&self, bytes: usize) -> Vec<Bytes> {
        let mut events = self.opening();
        let arguments = long_arguments(bytes);
        match self {
            Self::Anthropic(_) => events.push(r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}"#.into()),
            Self::Chat(_) => events.push(r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":""}}]}}]}"#.into()),
            Self::Responses(_) => events.push(r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_1","name":"read"}}"#.into()),
            Self::Gemini(_) => {
                let call = format!(r#"{{"functionCall":{{"name":"read","args":{arguments}}}}}"#);
                events.push(format!(r#"{{"candidates":[{{"content":{{"parts":[{call}],"role":"model"}},"index":0}}],"modelVersion":"m"}}"#));
            }
        }
        let mut rest = if matches!(self, Self::Gemini(_)) { "" } else { &*arguments };
        while !rest.is_empty() {
            let (delta, after) = rest.split_at(rest.len().min(ARGUMENT_BYTES));
            rest = after;
            let delta = json!(delta);
            events.push(match self {
                Self::Anthropic(_) => format!(r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"input_json_delta","partial_json":{delta}}}}}"#),
                Self::Responses(_) => format!(r#"{{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,"delta":{delta}}}"#),
                _ => format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":{delta}}}}}]}}}}]}}"#),
            });
        }
        let item = json!({"id": "fc_1", "type": "function_call", "status": "completed", "arguments": arguments,
            "call_id": "call_1", "name": "read"});
        match self {
            Self::Anthropic(_) => events.push(r#"{"type":"content_block_stop","index":0}"#.into()),
            Self::Responses(_) => {
                let done = json!({"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 0,
                    "arguments": arguments});
                events.push(done.to_string());
                events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}).to_string());
            }
            Self::Chat(_) | Self::Gemini(_) => {}
        }
        self.close(&mut events, "tool_use", "tool_calls", &item);
        events.iter().map(|data| self.event(data)).collect()
    }

    fn opening(&self) -> Vec<String> {
        let first = match self {
            Self::Anthropic(_) => {
                r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#
            }
            Self::Chat(_) => {
                r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#
            }
            Self::Responses(_) => {
                r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"m","output":[]}}"#
            }
            Self::Gemini(_) => return Vec::new(),
        };
        vec![first.to_owned()]
    }

    fn close(&self, events: &mut Vec<String>, stop_reason: &str, finish_reason: &str, item: &serde_json::Value) {
        match self {
            Self::Anthropic(_) => {
                events.push(format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{stop_reason}"}},"usage":{{"output_tokens":7}}}}"#));
                events.push(r#"{"type":"message_stop"}"#.to_owned());
            }
            Self::Chat(_) => {
                events.push(format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish_reason}"}}]}}"#));
                events.push(r#"{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#.to_owned());
                events.push("[DONE]".to_owned());
            }
            Self::Responses(_) => {
                let usage = json!({"input_tokens": 9, "output_tokens": 7, "total_tokens": 16});
                let response = json!({"id": "resp_1", "object": "response", "status": "completed", "model": "m",
                    "output": [item], "usage": usage});
                events.push(json!({"type": "response.completed", "response": response}).to_string());
            }
            Self::Gemini(_) => events.push(r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":7,"totalTokenCount":16},"modelVersion":"m"}"#.to_owned()),
        }
    }

    fn event(&self, data: &str) -> Bytes {
        match self {
            Self::Anthropic(_) | Self::Responses(_) => {
                let name = data.split_once(r#""type":""#).and_then(|(_, rest)| rest.split('"').next());
                format!("event: {}\ndata: {data}\n\n", name.unwrap_or_default()).into()
            }
            Self::Chat(_) => format!("data: {data}\n\n").into(),
            Self::Gemini(_) => format!("data: {data}\r\n\r\n").into(),
        }
    }

    fn stream(&self, body: Vec<Bytes>) -> Result<ProviderStream, Failure> {
        let response = RawResponse::recorded(200, Vec::new(), body);
        Ok(match self {
            Self::Anthropic(wire) => wire.decode("m", response)?,
            Self::Chat(wire) => wire.decode("m", response)?,
            Self::Responses(wire) => wire.decode("m", response)?,
            Self::Gemini(wire) => wire.decode("m", response)?,
        })
    }

    /// The bytes of text and arguments in an answer.
    pub(crate) async fn decode(&self, body: Vec<Bytes>) -> Result<usize, Failure> {
        let mut events = self.stream(body)?;
        let (mut bytes, mut finished) = (0, false);
        while let Some(event) = events.next().await {
            match event? {
                StreamEvent::Text { delta, .. } | StreamEvent::ToolCallDelta { delta, .. } => bytes += delta.len(),
                StreamEvent::Finish { .. } => finished = true,
                _ => {}
            }
        }
        if finished { Ok(bytes) } else { Err("the answer did not finish".into()) }
    }
}

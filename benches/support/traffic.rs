//! Conversations and answers as agents have them, and what the wires make of them.

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::json;
use zidane::provider::{
    Anthropic, BodyCache, History, HistoryTurn, ModelRequest, OpenAiChat, RawResponse, RequestHead, StreamEvent,
    ToolDefinition,
};
use zidane::types::{
    Extra, Role, SessionContentBlock, SessionTurn, ToolCallBlock, ToolResultBlock, ToolStatus, TurnOrigin,
};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The wire at work.
pub(crate) enum Wire {
    Anthropic(Anthropic),
    OpenAi(Box<OpenAiChat>),
}

impl Wire {
    pub(crate) fn new(name: &str) -> Result<Self, Failure> {
        match name {
            "anthropic" => Ok(Self::Anthropic(Anthropic::builder().api_key("k").build()?)),
            "openai" => Ok(Self::OpenAi(Box::new(OpenAiChat::builder().api_key("k").build()?))),
            _ => Err(format!("unknown wire {name}").into()),
        }
    }

    /// The size of the request's body.
    pub(crate) fn encode(&self, request: &ModelRequest) -> Result<usize, Failure> {
        let body = match self {
            Self::Anthropic(wire) => wire.encode(request)?,
            Self::OpenAi(wire) => wire.encode(request)?,
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
        let (start, end): (&[&str], &[&str]) = match self {
            Self::Anthropic(_) => (
                &[
                    r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#,
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                ],
                &[
                    r#"{"type":"content_block_stop","index":0}"#,
                    r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#,
                    r#"{"type":"message_stop"}"#,
                ],
            ),
            Self::OpenAi(_) => (
                &[r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#],
                &[
                    r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                    r#"{"id":"c1","model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":7}}"#,
                    "[DONE]",
                ],
            ),
        };
        let delta = match self {
            Self::Anthropic(_) => {
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"sixteen bytes on"}}"#
            }
            Self::OpenAi(_) => {
                r#"{"id":"c1","model":"m","choices":[{"index":0,"delta":{"content":"sixteen bytes on"}}]}"#
            }
        };
        let events = start.iter().chain(std::iter::repeat_n(&delta, deltas)).chain(end);
        events.map(|data| self.event(data)).collect()
    }

    fn event(&self, data: &str) -> Bytes {
        match self {
            Self::Anthropic(_) => {
                let name = data.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
                format!("event: {}\ndata: {data}\n\n", name.unwrap_or_default()).into()
            }
            Self::OpenAi(_) => format!("data: {data}\n\n").into(),
        }
    }

    /// The bytes of text in an answer.
    pub(crate) async fn decode(&self, body: Vec<Bytes>) -> Result<usize, Failure> {
        let response = RawResponse::recorded(200, Vec::new(), body);
        let mut events = match self {
            Self::Anthropic(wire) => wire.decode("m", response)?,
            Self::OpenAi(wire) => wire.decode("m", response)?,
        };
        let (mut bytes, mut finished) = (0, false);
        while let Some(event) = events.next().await {
            match event? {
                StreamEvent::Text { delta, .. } => bytes += delta.len(),
                StreamEvent::Finish { .. } => finished = true,
                _ => {}
            }
        }
        if finished { Ok(bytes) } else { Err("the answer did not finish".into()) }
    }
}

fn push(history: &mut History, role: Role, origin: TurnOrigin, content: Vec<SessionContentBlock>) {
    let id = format!("turn-{}", history.len());
    history.push(Arc::new(HistoryTurn::new(SessionTurn::new(id, role, origin, content))));
}

/// Adds an answer with a call, and its result.
pub(crate) fn grow(history: &mut History) {
    let id = format!("call_{:06}", history.len());
    let text = "I read the file first, since the error names a line in it.";
    let call = ToolCallBlock {
        id: id.clone(),
        name: "read".to_owned(),
        arguments: r#"{"path":"src/main.rs","from":1,"to":40}"#.to_owned(),
        ..ToolCallBlock::default()
    };
    let result = ToolResultBlock {
        call_id: id,
        name: "read".to_owned(),
        input: None,
        output: "fn main() {\n    println!(\"{}\", answer());\n}\n".repeat(4).into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    };
    let answer = vec![SessionContentBlock::text(text), SessionContentBlock::ToolCall(call)];
    push(history, Role::Assistant, TurnOrigin::Model, answer);
    push(history, Role::User, TurnOrigin::Results, vec![SessionContentBlock::ToolResult(result)]);
}

/// A conversation of at least that many turns.
pub(crate) fn conversation(turns: usize) -> History {
    let mut history = History::new();
    push(&mut history, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Why does it not compile?")]);
    while history.len() < turns {
        grow(&mut history);
    }
    history
}

fn head() -> Arc<RequestHead> {
    let schema = json!({
        "type": "object",
        "properties": {
            "path": { "type": "string", "description": "Path below the working directory" },
            "from": { "type": "integer" },
            "to": { "type": "integer" },
        },
        "required": ["path"],
    });
    let mut head = RequestHead::default();
    head.model = "m".to_owned();
    head.system = Some("You are a careful programmer.".into());
    head.tools = [ToolDefinition::new("read", "Reads lines of a file", schema)].into();
    head.cache = true;
    Arc::new(head)
}

/// A request that finds nothing encoded.
pub(crate) fn request(history: History) -> ModelRequest {
    request_with(history, &Arc::default())
}

/// A request that finds in `cache` what was encoded before.
pub(crate) fn request_with(history: History, cache: &Arc<BodyCache>) -> ModelRequest {
    let mut request = ModelRequest::default();
    // One head for all, as in a run.
    static HEAD: std::sync::OnceLock<Arc<RequestHead>> = std::sync::OnceLock::new();
    request.head = Arc::clone(HEAD.get_or_init(head));
    request.history = history;
    request.body_cache = Arc::clone(cache);
    request
}

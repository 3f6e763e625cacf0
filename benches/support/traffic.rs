//! Conversations as agents have them.

use std::sync::Arc;

use serde_json::json;
use zidane::provider::{BodyCache, History, HistoryTurn, ModelRequest, RequestHead, ToolDefinition};
use zidane::types::{
    Extra, Role, SessionContentBlock, SessionTurn, ToolCallBlock, ToolResultBlock, ToolStatus, TurnOrigin,
};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

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

/// A conversation with one call whose arguments are about that long.
pub(crate) fn long_call(bytes: usize) -> History {
    let call = ToolCallBlock {
        id: "call_1".to_owned(),
        name: "read".to_owned(),
        arguments: long_arguments(bytes),
        ..ToolCallBlock::default()
    };
    let mut history = conversation(1);
    push(&mut history, Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::ToolCall(call)]);
    history
}

/// The arguments of a call that writes a file of that many bytes, or nearly.
pub(crate) fn long_arguments(bytes: usize) -> String {
    const LINE: &str = r#"    let total = items.iter().map(|item| item.price(\"net\")).sum::<u64>();\n"#;
    format!("{{\"path\":\"{}\"}}", LINE.repeat(bytes / LINE.len()))
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

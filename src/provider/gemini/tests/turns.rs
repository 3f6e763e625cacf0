//! What the tests of the wire build conversations from.

use std::sync::Arc;

use serde_json::Value;

use super::super::super::RequestHead;
use crate::types::{
    OpaqueBlock, Role, SessionContentBlock, SessionTurn, Signature, SignatureProducer, TextBlock, ToolCallBlock,
    ToolResultBlock, ToolResultBody, ToolStatus, TurnOrigin, TurnUsage,
};

pub(super) const MODEL: &str = "gemini-3.8-flash";

pub(super) fn head() -> RequestHead {
    RequestHead { model: MODEL.into(), ..RequestHead::default() }
}

pub(super) fn system(text: &str) -> Option<Arc<str>> {
    Some(text.into())
}

pub(super) fn user(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("u", Role::User, TurnOrigin::Prompt, content)
}

pub(super) fn says(text: &str) -> SessionTurn {
    user(vec![SessionContentBlock::text(text)])
}

pub(super) fn model(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, content)
}

/// A turn that this API made.
pub(super) fn own(content: Vec<SessionContentBlock>) -> SessionTurn {
    let usage = TurnUsage { provider: "gemini".into(), requested_model: MODEL.into(), ..TurnUsage::default() };
    SessionTurn { usage: Some(usage.into()), ..model(content) }
}

pub(super) fn signature(value: &str) -> Option<Signature> {
    Some(Signature::new(SignatureProducer::GEMINI, MODEL, value))
}

pub(super) fn signed_text(text: &str, value: &str) -> SessionContentBlock {
    SessionContentBlock::Text(TextBlock { text: text.into(), signature: signature(value), ..TextBlock::default() })
}

pub(super) fn call(id: &str, arguments: &str, signature: Option<Signature>) -> SessionContentBlock {
    let (id, name, arguments) = (id.into(), "f".into(), arguments.into());
    SessionContentBlock::ToolCall(ToolCallBlock { id, name, arguments, signature, ..ToolCallBlock::default() })
}

pub(super) fn result(id: &str, output: impl Into<ToolResultBody>, is_error: bool) -> SessionContentBlock {
    SessionContentBlock::ToolResult(ToolResultBlock {
        call_id: id.into(),
        name: "f".into(),
        input: None,
        output: output.into(),
        is_error,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Default::default(),
    })
}

pub(super) fn opaque(model: &str, value: Value) -> SessionContentBlock {
    SessionContentBlock::Opaque(OpaqueBlock::new(SignatureProducer::GEMINI, model, value))
}

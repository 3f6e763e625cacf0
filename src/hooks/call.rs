use std::sync::Arc;

use serde_json::Value;

use crate::provider::HistoryTurn;
use crate::tool::ToolContext;

/// The call that a `tool:*` event is about.
#[derive(Clone, Debug)]
pub struct ToolCallInfo {
    turn_id: Arc<str>,
    call_id: Arc<str>,
    name: Arc<str>,
    display_name: Arc<str>,
    raw: Raw,
}

/// Where the argument text is.
#[derive(Clone, Debug)]
enum Raw {
    Turn(Arc<HistoryTurn>, usize),
    Text(Arc<str>),
}

impl ToolCallInfo {
    /// The call in block `block` of a turn.
    pub(crate) fn new(turn: &Arc<HistoryTurn>, block: usize, turn_id: Arc<str>, display_name: &str) -> Self {
        let call = turn.content.get(block).and_then(|block| block.as_tool_call());
        let (call_id, name) = call.map_or(("", ""), |call| (call.id.as_str(), call.name.as_str()));
        let name: Arc<str> = name.into();
        let display_name = if display_name == &*name { Arc::clone(&name) } else { display_name.into() };
        Self { turn_id, call_id: call_id.into(), name, display_name, raw: Raw::Turn(Arc::clone(turn), block) }
    }

    /// The `number`th call that a tool makes as a part of its own.
    pub(crate) fn nested(outer: &ToolContext, number: u64, name: &str, display_name: &str, input: &Value) -> Self {
        Self {
            turn_id: outer.turn_id().into(),
            call_id: format!("{}/{number}", outer.call_id()).into(),
            name: name.into(),
            display_name: display_name.into(),
            raw: Raw::Text(input.to_string().into()),
        }
    }

    /// The call's id, as the provider gave it; of a call that a tool makes, the outer call's id and a number.
    #[must_use]
    pub const fn call_id(&self) -> &Arc<str> {
        &self.call_id
    }

    /// The assistant turn that made it.
    #[must_use]
    pub const fn turn_id(&self) -> &Arc<str> {
        &self.turn_id
    }

    /// The canonical name: match policies against this.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The name the model saw: show this.
    #[must_use]
    pub const fn display_name(&self) -> &Arc<str> {
        &self.display_name
    }

    /// The model's argument text, unchanged.
    #[must_use]
    pub fn raw_arguments(&self) -> &str {
        match &self.raw {
            Raw::Text(text) => text,
            Raw::Turn(turn, block) => {
                let call = turn.content.get(*block).and_then(|block| block.as_tool_call());
                call.map_or("", |call| &call.arguments)
            }
        }
    }
}

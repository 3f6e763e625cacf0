use std::sync::Arc;

use crate::provider::HistoryTurn;

/// The call that a `tool:*` event is about.
#[derive(Clone, Debug)]
pub struct ToolCallInfo {
    turn_id: Arc<str>,
    call_id: Arc<str>,
    name: Arc<str>,
    display_name: Arc<str>,
    turn: Arc<HistoryTurn>,
    block: usize,
}

impl ToolCallInfo {
    /// The call in block `block` of a turn.
    pub(crate) fn new(turn: &Arc<HistoryTurn>, block: usize, turn_id: Arc<str>, display_name: &str) -> Self {
        let call = turn.content.get(block).and_then(|block| block.as_tool_call());
        let (call_id, name) = call.map_or(("", ""), |call| (call.id.as_str(), call.name.as_str()));
        let name: Arc<str> = name.into();
        let display_name = if display_name == &*name { Arc::clone(&name) } else { display_name.into() };
        Self { turn_id, call_id: call_id.into(), name, display_name, turn: Arc::clone(turn), block }
    }

    /// The call's id, as the provider gave it.
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
        let call = self.turn.content.get(self.block).and_then(|block| block.as_tool_call());
        call.map_or("", |call| &call.arguments)
    }
}

use std::sync::Arc;

use super::{context, marker};
use crate::provider::{HistoryTurn, RequestHead, ThinkingLevel, ToolChoice};
use crate::types::{AgentStats, SessionTurn, ToolOutcome, ToolStatus, TurnFinishReason, TurnUsage};

marker! {
    /// `turn:before`: before each model request. May change what this one request asks for.
    ///
    /// Changing system, tools or effort within a tool loop changes the prefix that newer models bind their reasoning
    /// to: that reasoning is then dropped.
    TurnBefore
}
context! {
    /// Context of [`TurnBefore`].
    TurnBeforeCx { number: u32, head: &'a mut Arc<RequestHead>, provider: &'a mut Option<Arc<dyn crate::provider::Provider>> }
}
impl TurnBeforeCx<'_> {
    /// The turn's number in the run, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// What will be asked for.
    #[must_use]
    pub fn request(&self) -> &RequestHead {
        self.head
    }

    /// Asks another model.
    pub fn set_model(&mut self, model: impl Into<String>) {
        Arc::make_mut(self.head).model = model.into();
    }

    /// Asks another provider; usually with [`set_model`](Self::set_model).
    pub fn set_provider(&mut self, provider: Arc<dyn crate::provider::Provider>) {
        *self.provider = Some(provider);
    }

    /// Sends another system text.
    pub fn set_system(&mut self, system: Option<Arc<str>>) {
        Arc::make_mut(self.head).system = system;
    }

    /// Sets the thinking level; `None` sends nothing.
    pub fn set_thinking(&mut self, level: Option<ThinkingLevel>) {
        Arc::make_mut(self.head).thinking = level;
    }

    /// Sets the output limit in tokens.
    pub fn set_max_tokens(&mut self, max_tokens: Option<u32>) {
        Arc::make_mut(self.head).max_tokens = max_tokens;
    }

    /// Sets whether and which tool must be called.
    pub fn set_tool_choice(&mut self, choice: ToolChoice) {
        Arc::make_mut(self.head).tool_choice = choice;
    }

    /// Shows the model only the tools whose canonical name passes. A call of a hidden tool is unknown.
    pub fn retain_tools(&mut self, mut keep: impl FnMut(&str) -> bool) {
        let head = Arc::make_mut(self.head);
        if head.tools.iter().any(|tool| !keep(&tool.name)) {
            head.tools = head.tools.iter().filter(|tool| keep(&tool.name)).cloned().collect();
        }
    }
}

marker! {
    /// `context:transform`: the turns about to be sent, as a view that is never stored.
    ///
    /// The result must still pair every call with its result; the run fails otherwise, before anything is sent.
    ContextTransform
}
context! {
    /// Context of [`ContextTransform`].
    ContextTransformCx { turns: &'a mut Vec<Arc<HistoryTurn>> }
}
impl ContextTransformCx<'_> {
    /// The turns, oldest first.
    #[must_use]
    pub fn turns(&self) -> &[Arc<HistoryTurn>] {
        self.turns
    }

    /// The turns, to remove, replace or add some. Turns that stay the same value stay encoded.
    pub const fn turns_mut(&mut self) -> &mut Vec<Arc<HistoryTurn>> {
        self.turns
    }
}

/// One call of a turn, for [`TurnAfter`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSummary {
    /// The call.
    pub call_id: String,
    /// The canonical tool name.
    pub name: String,
    /// How it ended.
    pub status: ToolStatus,
    /// What the tool says it did.
    pub outcome: Option<ToolOutcome>,
}

marker! {
    /// `turn:after`: a turn has settled: its calls are answered and their state is committed.
    TurnAfter
}
context! {
    /// Context of [`TurnAfter`].
    TurnAfterCx { number: u32, turn: &'a SessionTurn, usage: &'a TurnUsage, tools: &'a [ToolSummary] }
}
impl TurnAfterCx<'_> {
    /// The turn's number in the run, from 1.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The assistant turn.
    #[must_use]
    pub const fn turn(&self) -> &SessionTurn {
        self.turn
    }

    /// What it used.
    #[must_use]
    pub const fn usage(&self) -> &TurnUsage {
        self.usage
    }

    /// Why the model stopped; `None` when the stream was cut.
    #[must_use]
    pub const fn finish_reason(&self) -> Option<TurnFinishReason> {
        self.usage.finish_reason
    }

    /// Its calls, in call order.
    #[must_use]
    pub const fn tools(&self) -> &[ToolSummary] {
        self.tools
    }
}

marker! {
    /// `turn:usage`: the usage of a turn is known and in the stats.
    TurnUsageHook
}
context! {
    /// Context of [`TurnUsageHook`].
    TurnUsageHookCx { usage: &'a TurnUsage, stats: &'a AgentStats }
}
impl TurnUsageHookCx<'_> {
    /// The turn's usage.
    #[must_use]
    pub const fn usage(&self) -> &TurnUsage {
        self.usage
    }

    /// The run's usage so far, this turn included.
    #[must_use]
    pub const fn stats(&self) -> &AgentStats {
        self.stats
    }
}

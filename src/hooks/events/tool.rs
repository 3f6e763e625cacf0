use std::time::Duration;

use serde_json::Value;

use super::{context, marker};
use crate::hooks::ToolCallInfo;
use crate::tool::{ToolOutput, ToolUpdate as ToolUpdateValue};
use crate::types::{ToolOutcome, ToolResultBlock, ToolResultBody, ToolStatus, tool_output_byte_length};

/// Accessors that every `tool:*` context shares.
macro_rules! call_accessors {
    ($($cx:ident)*) => {$(
        impl $cx<'_> {
            /// The call, with ids and names.
            #[must_use]
            pub const fn call(&self) -> &ToolCallInfo {
                self.call
            }

            /// The call's id.
            #[must_use]
            pub fn call_id(&self) -> &str {
                self.call.call_id()
            }

            /// The canonical tool name: match policies against this.
            #[must_use]
            pub fn name(&self) -> &str {
                self.call.name()
            }

            /// The name the model saw: show this.
            #[must_use]
            pub fn display_name(&self) -> &str {
                self.call.display_name()
            }
        }
    )*};
}

call_accessors! { ToolGateCx ToolBeforeCx ToolUpdateCx ToolTransformCx ToolAfterCx ToolErrorCx }

/// What the gates decided about a call.
#[derive(Clone, Debug, Default)]
pub(crate) enum Verdict {
    #[default]
    Run,
    Substitute(Box<ToolOutput>),
    Defer(String),
    Block(String),
}

marker! {
    /// `tool:gate`: may this call run? Fires on validated input, before anything of the call happens.
    ///
    /// A block ends the gate; the model is told the reason. A deferral leaves the call to the host, unless another gate
    /// blocks it: [`ToolGateCx::defer`]. If a handler rewrites the input it is validated again and
    /// all gates see the final input once more; a rewrite in that second pass blocks. A handler that fails blocks.
    ToolGate
}
context! {
    /// Context of [`ToolGate`].
    ToolGateCx {
        call: &'a ToolCallInfo,
        input: &'a mut Value,
        verdict: &'a mut Verdict,
        rewritten: &'a mut bool,
        approved: bool,
    }
}
impl ToolGateCx<'_> {
    /// The input as the tool will see it.
    #[must_use]
    pub const fn input(&self) -> &Value {
        self.input
    }

    /// Refuses the call. The model reads the reason.
    pub fn block(&mut self, reason: impl Into<String>) {
        *self.verdict = Verdict::Block(reason.into());
    }

    /// Replaces the input.
    pub fn rewrite(&mut self, input: Value) {
        *self.rewritten = true;
        *self.input = input;
    }

    /// Leaves the call to the host. Calls beside it that are allowed still run; then the run ends with
    /// [`StopCause::Deferred`](crate::StopCause::Deferred), and nothing is sent before the call is answered: see
    /// [`Run::resume`](crate::Run::resume). Does not lift a block, and wins over a substitute; of several reasons the
    /// first counts. A call that the host has approved is not deferred again: then this does nothing. A call that a tool
    /// makes as a part of its own cannot wait, and is blocked.
    pub fn defer(&mut self, reason: impl Into<String>) {
        if !self.approved && matches!(self.verdict, Verdict::Run | Verdict::Substitute(_)) {
            *self.verdict = Verdict::Defer(reason.into());
        }
    }

    /// Whether the host has approved the call, which an earlier run left to it. Its answer stands for the gate that
    /// deferred the call; the others decide as ever.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        self.approved
    }

    /// Whether a gate has left the call to the host.
    #[must_use]
    pub const fn is_deferred(&self) -> bool {
        matches!(self.verdict, Verdict::Defer(_))
    }

    /// Answers the call with this output; the tool does not run. Does not lift a block or a deferral.
    pub fn substitute(&mut self, output: impl Into<ToolOutput>) {
        if !self.is_blocked() && !self.is_deferred() {
            *self.verdict = Verdict::Substitute(Box::new(output.into()));
        }
    }

    /// Whether a gate has refused the call.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        matches!(self.verdict, Verdict::Block(_))
    }
}

marker! {
    /// `tool:before`: a call is about to run.
    ToolBefore
}
context! {
    /// Context of [`ToolBefore`].
    ToolBeforeCx { call: &'a ToolCallInfo, input: &'a Value }
}
impl ToolBeforeCx<'_> {
    /// The input as the tool will see it.
    #[must_use]
    pub const fn input(&self) -> &Value {
        self.input
    }
}

marker! {
    /// `tool:update`: a running tool reported progress. Live only.
    ToolUpdate
}
context! {
    /// Context of [`ToolUpdate`].
    ToolUpdateCx { call: &'a ToolCallInfo, update: &'a ToolUpdateValue }
}
impl ToolUpdateCx<'_> {
    /// What it reported.
    #[must_use]
    pub const fn update(&self) -> &ToolUpdateValue {
        self.update
    }
}

marker! {
    /// `tool:transform`: the output of a call before it is stored or sent, errors and refusals included.
    ///
    /// A handler that fails turns the call into an error result: the raw output does not leak.
    ToolTransform
}
context! {
    /// Context of [`ToolTransform`].
    ToolTransformCx { call: &'a ToolCallInfo, result: &'a mut ToolResultBlock }
}
impl ToolTransformCx<'_> {
    /// The input the tool saw; `None` when it never came to that.
    #[must_use]
    pub const fn input(&self) -> Option<&Value> {
        self.result.input.as_ref()
    }

    /// The output as the handlers before left it.
    #[must_use]
    pub const fn output(&self) -> &ToolResultBody {
        &self.result.output
    }

    /// Wire size of [`output`](Self::output) in bytes; see [`tool_output_byte_length`].
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        tool_output_byte_length(&self.result.output)
    }

    /// Whether the model is told that the call failed.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.result.is_error
    }

    /// How the call ended.
    #[must_use]
    pub const fn status(&self) -> ToolStatus {
        self.result.status
    }

    /// What the tool says it did.
    #[must_use]
    pub const fn outcome(&self) -> Option<ToolOutcome> {
        self.result.outcome
    }

    /// Replaces the output.
    pub fn set_result(&mut self, output: impl Into<ToolOutput>) {
        let output = output.into();
        self.result.output = output.body;
        self.result.is_error = output.is_error;
        self.result.structured = output.structured;
    }

    /// Replaces the output by an error text.
    pub fn set_error(&mut self, text: impl Into<String>) {
        self.set_result(ToolOutput::error(text));
    }
}

marker! {
    /// `tool:after`: the result of a call is final. Fires for every call, in the order in which results become final.
    ToolAfter
}
context! {
    /// Context of [`ToolAfter`].
    ToolAfterCx { call: &'a ToolCallInfo, result: &'a ToolResultBlock, duration: Duration }
}
impl ToolAfterCx<'_> {
    /// The result as it is stored.
    #[must_use]
    pub const fn result(&self) -> &ToolResultBlock {
        self.result
    }

    /// The input the tool saw; `None` when it never came to that.
    #[must_use]
    pub const fn input(&self) -> Option<&Value> {
        self.result.input.as_ref()
    }

    /// The output as it is stored.
    #[must_use]
    pub const fn output(&self) -> &ToolResultBody {
        &self.result.output
    }

    /// Wire size of the output in bytes; see [`tool_output_byte_length`].
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        tool_output_byte_length(&self.result.output)
    }

    /// How the call ended.
    #[must_use]
    pub const fn status(&self) -> ToolStatus {
        self.result.status
    }

    /// What the tool says it did; `None` when it never said.
    #[must_use]
    pub const fn outcome(&self) -> Option<ToolOutcome> {
        self.result.outcome
    }

    /// How long the call took, hooks included.
    #[must_use]
    pub const fn duration(&self) -> Duration {
        self.duration
    }
}

marker! {
    /// `tool:error`: a call failed: its body, its arguments, or its name. `tool:after` follows.
    ToolError
}
context! {
    /// Context of [`ToolError`].
    ToolErrorCx { call: &'a ToolCallInfo, status: ToolStatus, error: &'a str, panicked: bool }
}
impl ToolErrorCx<'_> {
    /// How the call ended.
    #[must_use]
    pub const fn status(&self) -> ToolStatus {
        self.status
    }

    /// The cause, for the host; the model may have been told less.
    #[must_use]
    pub const fn error(&self) -> &str {
        self.error
    }

    /// The body panicked.
    #[must_use]
    pub const fn panicked(&self) -> bool {
        self.panicked
    }
}

/// One call's part of a batch that is over the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetEntry {
    /// The call.
    pub call_id: String,
    /// The canonical tool name.
    pub name: String,
    /// Its reading size in bytes.
    pub bytes: usize,
}

marker! {
    /// `tool-budget:exceeded`: the results of a turn are larger than the output budget. The model is told so; nothing
    /// is cut.
    ToolBudgetExceeded
}
context! {
    /// Context of [`ToolBudgetExceeded`].
    ToolBudgetExceededCx { budget: usize, total: usize, tools: &'a [BudgetEntry] }
}
impl ToolBudgetExceededCx<'_> {
    /// The budget in bytes.
    #[must_use]
    pub const fn budget(&self) -> usize {
        self.budget
    }

    /// The reading size of all results in bytes.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Who wrote how much, in call order.
    #[must_use]
    pub const fn tools(&self) -> &[BudgetEntry] {
        self.tools
    }
}

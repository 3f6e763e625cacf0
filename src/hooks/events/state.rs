use super::{context, marker};
use crate::tool_state::ToolStateOp;

marker! {
    /// `tool-state:commit-failed`: a call's staged state was not stored and is dropped. The run goes on. Without a
    /// listener one line goes to stderr.
    ToolStateCommitFailed
}
context! {
    /// Context of [`ToolStateCommitFailed`].
    ToolStateCommitFailedCx { call_id: &'a str, ops: &'a [ToolStateOp], error: &'a str }
}
impl ToolStateCommitFailedCx<'_> {
    /// The call whose writes are lost.
    #[must_use]
    pub const fn call_id(&self) -> &str {
        self.call_id
    }

    /// The writes, in the order the tool made them.
    #[must_use]
    pub const fn ops(&self) -> &[ToolStateOp] {
        self.ops
    }

    /// What the store said.
    #[must_use]
    pub const fn error(&self) -> &str {
        self.error
    }
}

marker! {
    /// `tool-state:load-failed`: the state store could not be read. Without a listener one line goes to stderr.
    ToolStateLoadFailed
}
context! {
    /// Context of [`ToolStateLoadFailed`].
    ToolStateLoadFailedCx { error: &'a str }
}
impl ToolStateLoadFailedCx<'_> {
    /// What the store said.
    #[must_use]
    pub const fn error(&self) -> &str {
        self.error
    }
}

use std::sync::Arc;

use super::{context, marker};
use crate::hooks::{HookCause, HookFailure};
use crate::types::{AgentStats, SessionContentBlock};

marker! {
    /// `agent:start`: a run has started; nothing was loaded, stored or sent yet.
    AgentStart
}
context! {
    /// Context of [`AgentStart`].
    AgentStartCx { prompt: &'a [SessionContentBlock] }
}
impl AgentStartCx<'_> {
    /// What the user said, as it will be stored.
    #[must_use]
    pub const fn prompt(&self) -> &[SessionContentBlock] {
        self.prompt
    }
}

marker! {
    /// `agent:done`: a run has ended, however it did. Fires exactly once per started run that is not dropped.
    AgentDone
}
context! {
    /// Context of [`AgentDone`].
    AgentDoneCx { stats: &'a AgentStats, stop: &'a str, error: Option<&'a str> }
}
impl AgentDoneCx<'_> {
    /// What the run used.
    #[must_use]
    pub const fn stats(&self) -> &AgentStats {
        self.stats
    }

    /// Why it ended: the name of the stop cause, or `error`.
    #[must_use]
    pub const fn stop(&self) -> &str {
        self.stop
    }

    /// The error it ended with.
    #[must_use]
    pub const fn error(&self) -> Option<&str> {
        self.error
    }
}

marker! {
    /// `agent:abort`: a run was aborted; its history is settled. `agent:done` follows.
    AgentAbort
}
context! {
    /// Context of [`AgentAbort`].
    AgentAbortCx { stats: &'a AgentStats }
}
impl AgentAbortCx<'_> {
    /// What the run used until then.
    #[must_use]
    pub const fn stats(&self) -> &AgentStats {
        self.stats
    }
}

marker! {
    /// `system:before`: once per run, before the prompt is stored. May change the system text.
    SystemBefore
}
context! {
    /// Context of [`SystemBefore`].
    SystemBeforeCx { system: &'a mut Option<Arc<str>> }
}
impl SystemBeforeCx<'_> {
    /// The system text.
    #[must_use]
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// Replaces it for this run. It is part of the prefix that prompt caches and bound reasoning depend on.
    pub fn set_system(&mut self, system: impl Into<Arc<str>>) {
        *self.system = Some(system.into());
    }
}

marker! {
    /// `hook:error`: a handler failed, of whichever class.
    HookError
}
context! {
    /// Context of [`HookError`].
    HookErrorCx { failure: &'a HookFailure }
}
impl HookErrorCx<'_> {
    /// The event whose handler failed.
    #[must_use]
    pub const fn hook(&self) -> &'static str {
        self.failure.hook
    }

    /// Why.
    #[must_use]
    pub const fn cause(&self) -> &HookCause {
        &self.failure.cause
    }
}

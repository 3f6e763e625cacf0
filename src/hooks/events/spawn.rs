use super::{context, marker};
use crate::hooks::ChildInfo;
use crate::types::{AgentStats, ChildStatus};

/// Accessors that every `spawn:*` context shares.
macro_rules! child_accessors {
    ($($cx:ident)*) => {$(
        impl $cx<'_> {
            /// The run that is spawned.
            #[must_use]
            pub const fn child(&self) -> &ChildInfo {
                self.child
            }

            /// What it is to do.
            #[must_use]
            pub const fn task(&self) -> &str {
                self.task
            }
        }
    )*};
}

child_accessors! { SpawnGateCx SpawnBeforeCx SpawnCompleteCx SpawnErrorCx }

marker! {
    /// `spawn:gate`: may this run be spawned? A block ends the gate; the model is told the reason. A handler that fails
    /// blocks. The ids are the parent's; the child's are in [`child`](SpawnGateCx::child).
    SpawnGate
}
context! {
    /// Context of [`SpawnGate`].
    SpawnGateCx { child: &'a ChildInfo, task: &'a str, blocked: &'a mut Option<String> }
}
impl SpawnGateCx<'_> {
    /// Refuses the spawn. The model reads the reason.
    pub fn block(&mut self, reason: impl Into<String>) {
        *self.blocked = Some(reason.into());
    }

    /// Whether a gate has refused it.
    #[must_use]
    pub const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }
}

marker! {
    /// `spawn:before`: a run is about to be spawned.
    SpawnBefore
}
context! {
    /// Context of [`SpawnBefore`].
    SpawnBeforeCx { child: &'a ChildInfo, task: &'a str }
}

marker! {
    /// `spawn:complete`: a run that was spawned has ended, however it did.
    SpawnComplete
}
context! {
    /// Context of [`SpawnComplete`].
    SpawnCompleteCx { child: &'a ChildInfo, task: &'a str, status: ChildStatus, stats: &'a AgentStats }
}
impl SpawnCompleteCx<'_> {
    /// How it ended.
    #[must_use]
    pub const fn status(&self) -> ChildStatus {
        self.status
    }

    /// What it used, with everything below it.
    #[must_use]
    pub const fn stats(&self) -> &AgentStats {
        self.stats
    }
}

marker! {
    /// `spawn:error`: a run could not be spawned, or did not do what it was to do. `spawn:complete` follows where it was
    /// spawned.
    SpawnError
}
context! {
    /// Context of [`SpawnError`].
    SpawnErrorCx { child: &'a ChildInfo, task: &'a str, status: ChildStatus, error: &'a str }
}
impl SpawnErrorCx<'_> {
    /// How it ended; `Failed` when it was not spawned.
    #[must_use]
    pub const fn status(&self) -> ChildStatus {
        self.status
    }

    /// Why, for the host; the model may have been told less.
    #[must_use]
    pub const fn error(&self) -> &str {
        self.error
    }
}

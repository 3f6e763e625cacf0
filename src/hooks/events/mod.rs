//! The events, by subject. This file lists them all; their contexts are in the files below.

mod attempt;
mod compaction;
mod queue;
mod run;
mod session;
mod spawn;
mod state;
mod stream;
mod tool;
mod turn;

pub use attempt::{
    AttemptFailed, AttemptFailedCx, AttemptStart, AttemptStartCx, ProviderRequest, ProviderRequestCx, ProviderResponse,
    ProviderResponseCx,
};
pub use compaction::{CompactionFailed, CompactionFailedCx, CompactionReason, HistoryReplaced, HistoryReplacedCx};
pub use queue::{QueueUpdate, QueueUpdateCx, SteerInject, SteerInjectCx};
pub use run::{
    AgentAbort, AgentAbortCx, AgentDone, AgentDoneCx, AgentStart, AgentStartCx, HookError, HookErrorCx, SystemBefore,
    SystemBeforeCx,
};
pub use session::{SessionRepaired, SessionRepairedCx, SessionSaved, SessionSavedCx};
pub use spawn::{
    SpawnBefore, SpawnBeforeCx, SpawnComplete, SpawnCompleteCx, SpawnError, SpawnErrorCx, SpawnGate, SpawnGateCx,
};
pub use state::{ToolStateCommitFailed, ToolStateCommitFailedCx, ToolStateLoadFailed, ToolStateLoadFailedCx};
pub use stream::{
    StreamEnd, StreamEndCx, StreamReset, StreamResetCx, StreamText, StreamTextCx, StreamThinking, StreamThinkingCx,
};
pub(crate) use tool::Verdict;
pub use tool::{
    BudgetEntry, ToolAfter, ToolAfterCx, ToolBefore, ToolBeforeCx, ToolBudgetExceeded, ToolBudgetExceededCx, ToolError,
    ToolErrorCx, ToolGate, ToolGateCx, ToolTransform, ToolTransformCx, ToolUpdate, ToolUpdateCx,
};
pub use turn::{
    ContextTransform, ContextTransformCx, ToolSummary, TurnAfter, TurnAfterCx, TurnBefore, TurnBeforeCx, TurnUsageHook,
    TurnUsageHookCx,
};

use super::hook::{Class, Hook, sealed};

macro_rules! events {
    ($($slot:literal $marker:ident $name:literal $class:ident $cx:ident;)*) => {
        pub(super) const NAMES: &[&str] = &[$($name),*];
        $(
            const _: () = assert!(matches!(NAMES[$slot].as_bytes(), name if same(name, $name.as_bytes())));
            impl sealed::Sealed for $marker {}
            impl Hook for $marker {
                const NAME: &'static str = $name;
                const CLASS: Class = Class::$class;
                const SLOT: usize = $slot;
                type Cx<'a> = $cx<'a>;
            }
        )*
    };
}

/// How many events there are.
pub(super) const SLOTS: usize = NAMES.len();

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

events! {
    0 AgentStart "agent:start" Observe AgentStartCx;
    1 AgentDone "agent:done" Observe AgentDoneCx;
    2 AgentAbort "agent:abort" Observe AgentAbortCx;
    3 SystemBefore "system:before" Shape SystemBeforeCx;
    4 ContextTransform "context:transform" Shape ContextTransformCx;
    5 TurnBefore "turn:before" Shape TurnBeforeCx;
    6 TurnAfter "turn:after" Observe TurnAfterCx;
    7 TurnUsageHook "turn:usage" Observe TurnUsageHookCx;
    8 StreamText "stream:text" Observe StreamTextCx;
    9 StreamThinking "stream:thinking" Observe StreamThinkingCx;
    10 StreamEnd "stream:end" Observe StreamEndCx;
    11 StreamReset "stream:reset" Observe StreamResetCx;
    12 ToolGate "tool:gate" Gate ToolGateCx;
    13 ToolBefore "tool:before" Observe ToolBeforeCx;
    14 ToolUpdate "tool:update" Observe ToolUpdateCx;
    15 ToolTransform "tool:transform" Transform ToolTransformCx;
    16 ToolAfter "tool:after" Observe ToolAfterCx;
    17 ToolError "tool:error" Observe ToolErrorCx;
    18 ToolBudgetExceeded "tool-budget:exceeded" Observe ToolBudgetExceededCx;
    19 ToolStateCommitFailed "tool-state:commit-failed" Observe ToolStateCommitFailedCx;
    20 ToolStateLoadFailed "tool-state:load-failed" Observe ToolStateLoadFailedCx;
    21 SteerInject "steer:inject" Observe SteerInjectCx;
    22 QueueUpdate "queue:update" Observe QueueUpdateCx;
    23 AttemptStart "attempt:start" Observe AttemptStartCx;
    24 AttemptFailed "attempt:failed" Observe AttemptFailedCx;
    25 ProviderRequest "provider:request" Observe ProviderRequestCx;
    26 ProviderResponse "provider:response" Observe ProviderResponseCx;
    27 SessionRepaired "session:repaired" Observe SessionRepairedCx;
    28 HookError "hook:error" Observe HookErrorCx;
    29 SessionSaved "session:saved" Observe SessionSavedCx;
    30 HistoryReplaced "history:replaced" Observe HistoryReplacedCx;
    31 CompactionFailed "compaction:failed" Observe CompactionFailedCx;
    32 SpawnGate "spawn:gate" Gate SpawnGateCx;
    33 SpawnBefore "spawn:before" Observe SpawnBeforeCx;
    34 SpawnComplete "spawn:complete" Observe SpawnCompleteCx;
    35 SpawnError "spawn:error" Observe SpawnErrorCx;
}

/// A context: borrowed fields, a constructor for the loop, and a deref to the base.
macro_rules! context {
    ($(#[$doc:meta])* $cx:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$doc])*
        pub struct $cx<'a> {
            base: &'a $crate::hooks::HookBase,
            $($field: $ty,)*
        }
        impl<'a> $cx<'a> {
            pub(crate) const fn new(base: &'a $crate::hooks::HookBase, $($field: $ty),*) -> Self {
                Self { base, $($field),* }
            }
        }
        impl std::fmt::Debug for $cx<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($cx)).field("base", self.base).finish_non_exhaustive()
            }
        }
        impl std::ops::Deref for $cx<'_> {
            type Target = $crate::hooks::HookBase;
            fn deref(&self) -> &$crate::hooks::HookBase {
                self.base
            }
        }
    };
}
pub(crate) use context;

/// A marker type.
macro_rules! event_marker {
    ($(#[$doc:meta])* $marker:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[non_exhaustive]
        pub struct $marker;
    };
}
pub(crate) use event_marker as marker;

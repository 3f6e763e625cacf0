//! Floor 3: the hook bus.
//!
//! Hooks are closures on typed events. Each event is a marker type ([`Hook`]) with a name, a [`Class`] and a context
//! that shows everything and lets change only what that event may change.
//!
//! In come registrations by the host and events by the loop; out go the handlers' changes and failures. The bus does
//! not know the loop.

mod approvals;
mod base;
mod bus;
mod call;
mod child;
mod events;
mod fire;
mod hook;

pub use approvals::{Approval, ApprovalRequest, Approvals};
pub use base::{HookBase, RunInfo};
pub use bus::{HookId, Hooks, Registration};
pub use call::ToolCallInfo;
pub use child::ChildInfo;
pub use events::*;
pub(crate) use fire::{Firing, panic_text};
pub use fire::{HookCause, HookFailure};
pub use hook::{AsyncHandler, BoxError, Class, Hook, HookReturn, Scope, SyncHandler};

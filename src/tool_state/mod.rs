//! Floor 3: what tools remember between calls.
//!
//! One [`ToolStateController`] per agent owns the committed snapshot. Each tool call gets its own [`ToolStateView`]:
//! it reads the snapshot as it was when the call was dispatched plus what the call itself staged, and never sees what
//! a sibling staged. When the results of a barrier segment are final, the staged ops of the calls that ended well go
//! to the [`ToolStateStore`] in call order, and only then into the snapshot: what memory shows, the store has. The
//! host reads through a [`ToolState`] window, which cannot write.
//!
//! Two calls of one segment that write the same key are not an error: both were made against the state they saw, and
//! the later call in call order wins. A tool that must not lose such a race is declared `Exclusive`, so that each call
//! sees the commit of the one before.
//!
//! Nothing here knows of tools, hooks, turns or sessions; ids are opaque text.

mod commit;
mod controller;
mod encode;
mod error;
mod json_file;
mod memory;
mod snapshot;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod view;
mod window;

pub use commit::{ToolStateCommit, ToolStateOp};
pub use controller::ToolStateController;
pub use error::{LoadFailure, Settled, ToolStateError};
pub use json_file::JsonToolStateStore;
pub use memory::MemoryToolStateStore;
pub use snapshot::ToolStateSnapshot;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteToolStateStore;
pub use store::{StoreError, ToolStateStore};
pub use view::ToolStateView;
pub use window::ToolState;

//! Floor 3: conversations, and where they are kept.
//!
//! A session is a log that only grows. Its unit is the [`SessionEntry`]: a turn, the result of one call, the beginning
//! or end of a run, what a repair settled, a summary. [`fold`] makes the [`Session`] of it, which is what a run starts
//! from; a [`SessionStore`] keeps it.
//!
//! What holds for every store here, and is checked by `testing::session_store_conformance!`:
//!
//! - The version of a session is the number of its entries. An append says which version it was made on, and is refused
//!   with [`SessionError::Conflict`] when somebody else has appended since: nothing is overwritten, nothing interleaved.
//! - An append is all or nothing, and may be repeated: entries that are there already are not stored twice.
//! - What a newer version of the crate wrote is kept as it is, or refused by type; it is never turned into less.
//!
//! Large media belongs in a [`BlobStore`]: [`offload_media`] leaves a reference in the session.
//!
//! Nothing here knows a wire or the loop.

mod append;
mod blob;
mod cut;
mod entry;
mod error;
mod fold;
mod jsonl;
mod keeper;
mod live;
mod memory;
mod opening;
mod repair;
mod run;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod value;

pub use blob::{BlobError, BlobStore, DirectoryBlobStore, MemoryBlobStore, offload_media, restore_media};
pub use cut::{cut_for_budget, cut_points};
pub use entry::{
    ENTRY_FORMAT, MetadataEntry, RepairEntry, ResultEntry, SessionEntry, SummaryEntry, UnknownEntry, VisionEntry,
};
pub use error::SessionError;
pub use fold::{FoldNote, fold};
pub use jsonl::{JsonlSessionStore, Salvage};
pub use memory::MemorySessionStore;
pub use run::{RunEnd, RunEntry, SessionRun};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteSessionStore;
pub use store::{SessionStore, StoredSession};
pub use value::{ForkError, Session};

pub(crate) use keeper::{Blobs, Flushed, Keeper};
pub(crate) use live::LiveSession;
pub(crate) use opening::{Opened, Waiting};
pub(crate) use repair::{child_id, repair};

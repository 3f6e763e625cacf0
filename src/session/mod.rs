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
//! # What an agent stores, and when
//!
//! With [`AgentBuilder::session_store`](crate::AgentBuilder::session_store) the loop appends by itself; nothing is acted
//! upon before it is stored, and what is due at the same moment is one append:
//!
//! | when | entries |
//! |---|---|
//! | a run begins | its beginning; what a repair made up; the prompt, with whatever else is due before the request |
//! | the model's turn is complete, or cut | descriptions of images, the turn; no call starts before |
//! | results are final | each result, in the order in which they are; no `tool:after` before |
//! | text is added: steering, follow-ups, nudges, `Please continue.` | the turn; a message leaves its queue then |
//! | a run ends, by an abort or an error too | its end, with stop cause and usage; what an abort left |
//!
//! `session:saved` fires after each append. A run that is dropped, or whose store or engine fails, has no end; the next
//! run goes on from what is stored. An append is a task of its own that is never cut short, one at a time.
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
pub(crate) use repair::{ABANDONED, INTERRUPTED, child_id, repair};

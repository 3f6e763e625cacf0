use super::BlobError;
use crate::storage::StorageError;

/// What a session store fails with. Whatever it is, the stored session is as it was before.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// Somebody else has appended since: load the session again and decide anew.
    #[error("session `{session}` is at version {found}, not at {expected}")]
    Conflict {
        /// The session.
        session: String,
        /// The version the append was made on.
        expected: u64,
        /// The version that is stored.
        found: u64,
    },
    /// An entry with this id is stored, and says something else.
    #[error("session `{session}` has an entry `{entry}` with another content")]
    EntryConflict {
        /// The session.
        session: String,
        /// The entry's id.
        entry: String,
    },
    /// The session is stored already, and does not begin with the history that the agent was built with.
    #[error("session `{session}` is stored already, and does not begin with the history given")]
    Begun {
        /// The session.
        session: String,
    },
    /// Large media could not be kept, or not be loaded.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The store behind it failed: damaged, newer, busy, refused by the system.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A host's own store failed.
    #[error("session `{session}`: {message}")]
    Other {
        /// The session.
        session: String,
        /// What it said.
        message: String,
    },
}

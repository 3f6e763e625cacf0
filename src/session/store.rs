use std::sync::Arc;

use async_trait::async_trait;

use super::{SessionEntry, SessionError};

/// A session as a store has it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StoredSession {
    /// How many entries there are. The next append is made on this.
    pub version: u64,
    /// All of them, in the order in which they were appended.
    pub entries: Vec<SessionEntry>,
}

impl StoredSession {
    /// A session with these entries.
    #[must_use]
    pub fn new(entries: Vec<SessionEntry>) -> Self {
        Self { version: entries.len() as u64, entries }
    }
}

/// Where sessions are kept, over whatever the host trusts with writes.
///
/// A session is a log of [`SessionEntry`] with a version: the number of its entries. There is no session without
/// entries. The contract of [`append`](Self::append) is what keeps two writers from talking past each other; a host's
/// own store is checked by `zidane::testing::session_store_conformance!`.
///
/// Methods may be called from any thread, and at the same time. Nothing blocks the executor.
#[async_trait]
pub trait SessionStore: Send + Sync {
    /// All of a session; `None` when there is none with this id.
    ///
    /// # Errors
    /// [`SessionError::Storage`]: what is stored is damaged or newer, or could not be read. Never a part of it.
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError>;

    /// Adds entries to a session that was last seen at `expected_version` (0: there was none, it is created), and
    /// returns its version now.
    ///
    /// - Entries that are stored already, by id and content, are not stored again.
    /// - When nothing is left to store, that is all: the version is returned, whatever was expected.
    /// - Otherwise everything that was stored after `expected_version` must be of this batch, as it is when an append
    ///   whose answer was lost is repeated. If anything else is, the session moved on: `Conflict`.
    /// - All of the batch is stored, or nothing. When the future returns, it survives a crash of the machine, as far as
    ///   the store keeps anything.
    ///
    /// Dropping the future leaves the append done or not done. To know which, load, or append the same again.
    ///
    /// # Errors
    /// [`SessionError::Conflict`], [`SessionError::EntryConflict`] for an id that is stored with another content, and
    /// [`SessionError::Storage`]. Nothing was stored then.
    async fn append(&self, id: &str, expected_version: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError>;

    /// The version of a session; 0 when there is none. Cheap where the store can make it so.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        Ok(self.load(id).await?.map_or(0, |stored| stored.version))
    }

    /// Ids of sessions in byte order: those after `after`, `limit` at most. The last one is the next page's `after`.
    ///
    /// Looks at no more of a session than its id, so that a damaged one is listed too.
    ///
    /// # Errors
    /// [`SessionError::Storage`] when the list cannot be read.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError>;

    /// Removes a session; `false` when there was none. Its blobs stay.
    ///
    /// Whoever still works on it gets a `Conflict` at the next append, unless it was made anew meanwhile and has come
    /// to the same version.
    ///
    /// # Errors
    /// [`SessionError::Storage`] when it cannot be removed.
    async fn delete(&self, id: &str) -> Result<bool, SessionError>;
}

#[async_trait]
impl<S: SessionStore + ?Sized> SessionStore for Arc<S> {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        (**self).load(id).await
    }

    async fn append(&self, id: &str, expected_version: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        (**self).append(id, expected_version, entries).await
    }

    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        (**self).version(id).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        (**self).list(after, limit).await
    }

    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        (**self).delete(id).await
    }
}

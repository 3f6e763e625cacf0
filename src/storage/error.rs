use std::io;
use std::sync::Arc;

/// What a store on disk fails with. `place` says where: a file, a line of it, a table.
///
/// Never holds anything of what is stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The system refused: no such folder, no right to write, no space left.
    #[error("{place}: {source}")]
    Io {
        /// Where.
        place: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// What is there was damaged, or is not what it should be. Nothing was changed.
    #[error("{place}: {message}")]
    Corrupt {
        /// Where.
        place: String,
        /// What is wrong with it.
        message: String,
    },
    /// It was written by a newer version of this crate. Nothing was changed.
    #[error("{place}: format {found} is newer than {reads}, the newest that this version reads")]
    Newer {
        /// Where.
        place: String,
        /// The format found.
        found: u32,
        /// The newest format that can be read.
        reads: u32,
    },
    /// It is larger than the store takes.
    #[error("{place}: {bytes} bytes or more, the limit is {limit}")]
    TooLarge {
        /// Where, or what.
        place: String,
        /// Its size as far as it was looked at, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// JSON that is nested more deeply than could be read back.
    #[error("{place}: JSON nested more than {limit} levels deep")]
    TooDeep {
        /// Where, or what.
        place: String,
        /// The limit, in levels.
        limit: usize,
    },
    /// Another writer held it for longer than this one may wait. Nothing was changed; trying again may help.
    #[error("{place}: another writer holds it")]
    Busy {
        /// Where.
        place: String,
    },
    /// Called where it cannot work: outside a tokio runtime, while the runtime shuts down, or after the thread behind
    /// it has ended. Whether a write under way was done is not known.
    #[error("{place}: nothing is there to do the work: {message}")]
    Closed {
        /// Where.
        place: String,
        /// What is missing.
        message: String,
    },
}

impl StorageError {
    pub(crate) fn io(place: impl ToString, source: io::Error) -> Self {
        Self::Io { place: place.to_string(), source: Arc::new(source) }
    }

    pub(crate) fn corrupt(place: impl ToString, message: impl ToString) -> Self {
        Self::Corrupt { place: place.to_string(), message: message.to_string() }
    }
}

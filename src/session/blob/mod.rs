mod directory;
mod media;
mod memory;

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

pub use directory::DirectoryBlobStore;
pub(crate) use media::{is_large, is_large_output, output_refers, refers};
pub use media::{offload_media, restore_media};
pub use memory::MemoryBlobStore;

use crate::storage::StorageError;

/// How many contents may share a digest. More than one is unheard of but for files made to do so.
const MAX_TWINS: u32 = 16;

/// What a blob store fails with.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// The text is not a key of this store.
    #[error("`{key}` is not a blob's key")]
    InvalidKey {
        /// The text, cut to a bounded length.
        key: String,
    },
    /// The blob is larger than the caller takes, or than the store keeps.
    #[error("blob {key}: {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// The blob, or what was to become one.
        key: String,
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The store behind it failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A host's own store failed.
    #[error("blob {key}: {message}")]
    Other {
        /// The blob.
        key: String,
        /// What it said.
        message: String,
    },
}

/// Where large media is kept. A session holds the key, as [`MediaSource::Ref`](crate::types::MediaSource::Ref).
///
/// The store chooses the key, by content: the same bytes have the same key, so that putting them twice keeps them once.
/// Sessions share blobs; a store does not know who still refers to one.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// Keeps bytes and returns their key. When the future returns they survive a crash, as far as the store keeps
    /// anything. Dropping the future leaves them kept or not kept.
    ///
    /// # Errors
    /// [`BlobError::TooLarge`] and [`BlobError::Storage`]; nothing is kept then.
    async fn put(&self, bytes: Vec<u8>) -> Result<String, BlobError>;

    /// The bytes of a key; `None` when there is no such blob. No more than `limit` bytes are read.
    ///
    /// # Errors
    /// [`BlobError::InvalidKey`] for a text that no blob can have, [`BlobError::TooLarge`] beyond the limit, and
    /// [`BlobError::Storage`] when it cannot be read or its bytes are not those that were put.
    async fn get(&self, key: &str, limit: u64) -> Result<Option<Vec<u8>>, BlobError>;

    /// Removes a blob; `false` when there was none.
    ///
    /// # Errors
    /// [`BlobError::InvalidKey`] and [`BlobError::Storage`].
    async fn delete(&self, key: &str) -> Result<bool, BlobError>;
}

#[async_trait]
impl<S: BlobStore + ?Sized> BlobStore for Arc<S> {
    async fn put(&self, bytes: Vec<u8>) -> Result<String, BlobError> {
        (**self).put(bytes).await
    }

    async fn get(&self, key: &str, limit: u64) -> Result<Option<Vec<u8>>, BlobError> {
        (**self).get(key, limit).await
    }

    async fn delete(&self, key: &str) -> Result<bool, BlobError> {
        (**self).delete(key).await
    }
}

/// What names a content: a digest of its bytes, and which of the contents with that digest it is.
///
/// 32 hex digits, and for all but the first `-` and a number. Safe as a file name and in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    digest: Uuid,
    twin: u32,
}

impl Key {
    /// The keys that these bytes may have; the first that is free, or already theirs, it is.
    fn candidates(bytes: &[u8]) -> impl Iterator<Item = Self> + use<> {
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, bytes);
        (0..MAX_TWINS).map(move |twin| Self { digest, twin })
    }

    fn parse(text: &str) -> Result<Self, BlobError> {
        let parsed = || {
            let (digest, twin) = text.split_once('-').map_or((text, None), |(digest, twin)| (digest, Some(twin)));
            let twin = match twin {
                None => 0,
                Some(twin) => twin.parse().ok().filter(|twin| (1..MAX_TWINS).contains(twin))?,
            };
            Some(Self { digest: Uuid::try_parse(digest).ok()?, twin })
        };
        // Only what prints the same is a key: a digest can be written in other ways too.
        parsed()
            .filter(|key| key.to_string() == text)
            .ok_or_else(|| BlobError::InvalidKey { key: text.chars().take(80).collect() })
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.digest.simple().fmt(f)?;
        if self.twin > 0 {
            write!(f, "-{}", self.twin)?;
        }
        Ok(())
    }
}

fn no_key_left(bytes: &[u8]) -> BlobError {
    let key = Key { digest: Uuid::new_v5(&Uuid::NAMESPACE_OID, bytes), twin: 0 };
    BlobError::Other { key: key.to_string(), message: "too many contents with this digest".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_print_and_parse_and_nothing_else_does() {
        let key = Key::candidates(b"hello").nth(1).unwrap();
        assert_eq!(Key::parse(&key.to_string()).unwrap(), key);
        let plain = Key { twin: 0, ..key }.to_string();
        assert_eq!((plain.len(), Key::parse(&plain).unwrap().twin), (32, 0));
        for bad in [
            String::new(),
            "..".into(),
            "../../etc/passwd".into(),
            plain.to_uppercase(),
            key.digest.to_string(),
            format!("{plain}-0"),
            format!("{plain}-01"),
            format!("{plain}-16"),
            format!("{plain}-"),
            format!("{plain}/x"),
            format!("{{{}}}", key.digest),
            "é".repeat(500),
        ] {
            assert!(
                matches!(Key::parse(&bad), Err(BlobError::InvalidKey { key }) if key.chars().count() <= 80),
                "{bad}"
            );
        }
    }
}

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{BlobError, BlobStore, Key, no_key_left};

/// Blobs that live as long as the process.
#[derive(Debug, Default)]
pub struct MemoryBlobStore {
    blobs: Mutex<BTreeMap<Key, Vec<u8>>>,
}

impl MemoryBlobStore {
    /// A store without blobs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, bytes: Vec<u8>, keys: impl Iterator<Item = Key>) -> Result<String, BlobError> {
        let mut blobs = self.lock();
        for key in keys {
            match blobs.get(&key) {
                Some(known) if *known == bytes => return Ok(key.to_string()),
                Some(_) => {}
                None => {
                    blobs.insert(key, bytes);
                    return Ok(key.to_string());
                }
            }
        }
        Err(no_key_left(&bytes))
    }
}

#[async_trait]
impl BlobStore for MemoryBlobStore {
    async fn put(&self, bytes: Vec<u8>) -> Result<String, BlobError> {
        let keys = Key::candidates(&bytes);
        self.keep(bytes, keys)
    }

    async fn get(&self, key: &str, limit: u64) -> Result<Option<Vec<u8>>, BlobError> {
        let blobs = self.lock();
        match blobs.get(&Key::parse(key)?) {
            Some(known) if known.len() as u64 > limit => {
                Err(BlobError::TooLarge { key: key.to_owned(), bytes: known.len() as u64, limit })
            }
            known => Ok(known.cloned()),
        }
    }

    async fn delete(&self, key: &str) -> Result<bool, BlobError> {
        Ok(self.lock().remove(&Key::parse(key)?).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_with_one_digest_are_kept_apart() {
        let store = MemoryBlobStore::new();
        let keys = || Key::candidates(b"the digest of both");
        let one = store.keep(b"one".to_vec(), keys()).unwrap();
        let two = store.keep(b"two".to_vec(), keys()).unwrap();
        assert_ne!(one, two);
        assert_eq!(store.keep(b"one".to_vec(), keys()).unwrap(), one);
        assert_eq!(store.keep(b"two".to_vec(), keys()).unwrap(), two);
        for n in 2..16_u8 {
            store.keep(vec![n], keys()).unwrap();
        }
        assert!(matches!(store.keep(b"more".to_vec(), keys()), Err(BlobError::Other { .. })));
    }
}

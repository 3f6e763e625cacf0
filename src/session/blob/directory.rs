use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{BlobError, BlobStore, Key, no_key_left};
use crate::storage::{FolderLock, StorageError, blocking, make_folder, read_whole, sync_folder};

const EXTENSION: &str = "blob";

/// Blobs as files of a folder, named by their digest.
///
/// A blob is written beside its place, synced and then renamed, so that a crash leaves all of it or nothing. Reading
/// checks the bytes against the digest. Several processes may use a folder on a local disk.
///
/// Needs a tokio runtime; the work is done on its blocking threads.
#[derive(Clone, Debug)]
pub struct DirectoryBlobStore {
    folder: Arc<Path>,
    max_bytes: u64,
    patience: Duration,
}

impl DirectoryBlobStore {
    /// A store in a folder, which is made when the first blob is put.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into().into(), max_bytes: 256 * 1024 * 1024, patience: Duration::from_secs(5) }
    }

    /// The largest blob that is kept, in bytes. Default: 256 MiB.
    #[must_use]
    pub fn max_bytes(self, max_bytes: u64) -> Self {
        Self { max_bytes, ..self }
    }

    /// The file of a blob: folders of 256, since some file systems are slow with very many files in one.
    fn path(&self, key: Key) -> PathBuf {
        let name = key.to_string();
        self.folder.join(name.get(..2).unwrap_or_default()).join(format!("{name}.{EXTENSION}"))
    }

    fn lock(&self, key: Key) -> Result<FolderLock, StorageError> {
        FolderLock::acquire(&self.folder, &key.digest.simple().to_string(), self.patience)
    }

    fn keep(&self, bytes: &[u8], keys: impl Iterator<Item = Key>) -> Result<String, BlobError> {
        let mut lock: Option<FolderLock> = None;
        for key in keys {
            let path = self.path(key);
            // All keys of a content share a lock.
            let lock = match &lock {
                Some(lock) => lock,
                None => {
                    path.parent().map_or(Ok(()), make_folder)?;
                    lock.insert(self.lock(key)?)
                }
            };
            // One byte more than ours is another content.
            match read_whole(&path, bytes.len() as u64) {
                Ok(Some(known)) if known == bytes => return Ok(key.to_string()),
                Ok(None) => {
                    lock.replace(&path, bytes)?;
                    return Ok(key.to_string());
                }
                Ok(Some(_)) | Err(StorageError::TooLarge { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(no_key_left(bytes))
    }

    fn read(&self, text: &str, limit: u64) -> Result<Option<Vec<u8>>, BlobError> {
        let key = Key::parse(text)?;
        let path = self.path(key);
        let bytes = match read_whole(&path, limit) {
            Ok(bytes) => bytes,
            Err(StorageError::TooLarge { bytes, limit, .. }) => {
                return Err(BlobError::TooLarge { key: text.to_owned(), bytes, limit });
            }
            Err(error) => return Err(error.into()),
        };
        match bytes {
            Some(bytes) if Key::candidates(&bytes).all(|of_bytes| of_bytes.digest != key.digest) => {
                Err(StorageError::corrupt(path.display(), "the blob's bytes are not those of its name").into())
            }
            bytes => Ok(bytes),
        }
    }

    fn remove(&self, key: &str) -> Result<bool, BlobError> {
        let key = Key::parse(key)?;
        let path = self.path(key);
        if !path.exists() {
            return Ok(false);
        }
        let _lock = self.lock(key)?;
        match fs::remove_file(&path) {
            Ok(()) => {
                path.parent().map_or(Ok(()), sync_folder)?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StorageError::io(path.display(), error).into()),
        }
    }
}

#[async_trait]
impl BlobStore for DirectoryBlobStore {
    async fn put(&self, bytes: Vec<u8>) -> Result<String, BlobError> {
        let store = self.clone();
        let size = bytes.len() as u64;
        if size > self.max_bytes {
            return Err(BlobError::TooLarge { key: "(new)".to_owned(), bytes: size, limit: self.max_bytes });
        }
        blocking("blobs", move || store.keep(&bytes, Key::candidates(&bytes))).await
    }

    async fn get(&self, key: &str, limit: u64) -> Result<Option<Vec<u8>>, BlobError> {
        let (store, key) = (self.clone(), key.to_owned());
        blocking("blobs", move || store.read(&key, limit)).await
    }

    async fn delete(&self, key: &str) -> Result<bool, BlobError> {
        let (store, key) = (self.clone(), key.to_owned());
        blocking("blobs", move || store.remove(&key)).await
    }
}

//! A folder for a test that works on files.
#![allow(dead_code, unreachable_pub)]

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use zidane::session::{SessionEntry, SessionError, SessionStore, StoredSession};
use zidane::tool_state::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};

/// A folder of a test's own, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Something that works in it, for as long as it lives.
    pub(crate) fn holding<T>(self, make: impl FnOnce(PathBuf) -> T) -> Held<T> {
        Held { held: make(self.0.join("made")), _folder: self }
    }
}

impl Deref for Folder {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A thing and the folder it works in.
pub(crate) struct Held<T> {
    held: T,
    _folder: Folder,
}

#[zidane::async_trait]
impl<S: SessionStore> SessionStore for Held<S> {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        self.held.load(id).await
    }
    async fn append(&self, id: &str, expected: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        self.held.append(id, expected, entries).await
    }
    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        self.held.version(id).await
    }
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        self.held.list(after, limit).await
    }
    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        self.held.delete(id).await
    }
}

#[zidane::async_trait]
impl<S: ToolStateStore> ToolStateStore for Held<S> {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        self.held.load(scope).await
    }
    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        self.held.commit(commit).await
    }
}

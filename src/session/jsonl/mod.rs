mod file;
mod line;
mod scan;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::append::{distinct, encode};
use super::{SessionEntry, SessionError, SessionStore, StoredSession};
use crate::storage::{FolderLock, StorageError, blocking, file_stem, make_folder, sync_folder};
use file::{Head, SessionFile};
use line::{ENVELOPE, MAX_ID};
use scan::Sizes;

const EXTENSION: &str = "jsonl";
/// How many sessions are remembered between appends.
const REMEMBERED: usize = 64;

/// Sessions as files of a folder, one per session, one line of JSON per entry.
///
/// An append is written at the end of the file and synced to the disk before it returns. The file's name is made of the
/// session's id and is safe whatever that is. Each line carries a sum over itself and all lines before it, so that
/// damage is noticed; a line that a crash left unfinished, which nobody was told of, is taken off by the next append.
///
/// Several processes may use a folder on a local disk: writers take turns by a lock of the system, which a process that
/// is killed does not leave behind. Files are created with the process's usual rights; sessions are not encrypted.
///
/// Needs a tokio runtime; the work is done on its blocking threads.
#[derive(Clone, Debug)]
pub struct JsonlSessionStore {
    inner: Arc<Inner>,
}

/// What could be read of a damaged session.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Salvage {
    /// The entries of the lines that could be read, in their order.
    pub entries: Vec<SessionEntry>,
    /// The lines that could not, and why.
    pub damage: Vec<StorageError>,
}

#[derive(Clone, Debug)]
struct Settings {
    folder: PathBuf,
    sizes: Sizes,
    patience: Duration,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    /// What is known of files that were appended to last, so that an append need not read all of the file again.
    heads: Mutex<Heads>,
}

#[derive(Debug, Default)]
struct Heads {
    known: HashMap<String, Head>,
    order: VecDeque<String>,
}

impl JsonlSessionStore {
    /// A store in a folder, which is made at the first append.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let settings = Settings {
            folder: folder.into(),
            sizes: Sizes { entry: 64 * 1024 * 1024, file: 1024 * 1024 * 1024 },
            patience: Duration::from_secs(5),
        };
        Self { inner: Arc::new(Inner { settings, heads: Mutex::default() }) }
    }

    fn with(self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = self.inner.settings.clone();
        change(&mut settings);
        Self { inner: Arc::new(Inner { settings, heads: Mutex::default() }) }
    }

    /// The largest entry, in bytes of JSON; a larger one is neither written nor read. Default: 64 MiB.
    #[must_use]
    pub fn max_entry_bytes(self, bytes: u64) -> Self {
        self.with(|settings| settings.sizes.entry = bytes)
    }

    /// The largest file, in bytes; more is neither written nor read. Default: 1 GiB.
    #[must_use]
    pub fn max_session_bytes(self, bytes: u64) -> Self {
        self.with(|settings| settings.sizes.file = bytes)
    }

    /// How long an append or a removal waits for another writer before it fails with
    /// [`StorageError::Busy`]. Default: 5 seconds.
    #[must_use]
    pub fn lock_timeout(self, patience: Duration) -> Self {
        self.with(|settings| settings.patience = patience)
    }

    /// The file of a session, which need not exist.
    #[must_use]
    pub fn path(&self, id: &str) -> PathBuf {
        self.inner.path(id)
    }

    /// Reads a session as far as it can be read, line by line: to show it, or to save what is left under another id.
    /// `None` when there is no file.
    ///
    /// Damage that leaves a line readable, such as a changed letter, is not noticed here; [`load`](SessionStore::load)
    /// notices it and gives nothing.
    ///
    /// # Errors
    /// [`SessionError::Storage`] when the file cannot be opened.
    pub async fn salvage(&self, id: &str) -> Result<Option<Salvage>, SessionError> {
        let id = id.to_owned();
        self.run(move |inner| Ok(inner.file(&id).salvage()?)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, SessionError> + Send + 'static,
    ) -> Result<T, SessionError> {
        let inner = Arc::clone(&self.inner);
        blocking("session files", move || work(&inner)).await
    }
}

impl Inner {
    fn path(&self, id: &str) -> PathBuf {
        self.settings.folder.join(format!("{}.{EXTENSION}", file_stem(id)))
    }

    fn file<'a>(&self, id: &'a str) -> SessionFile<'a> {
        SessionFile { path: self.path(id), id, sizes: self.settings.sizes }
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self, path: &Path) -> Result<FolderLock, StorageError> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        FolderLock::acquire(&self.settings.folder, name, self.settings.patience)
    }

    /// Reads without the lock, which a reader may have no right to. When that finds damage it looks again with the lock:
    /// a writer may have cut off a torn line just then, so that old and new bytes were read together.
    fn read<T>(&self, id: &str, read: impl Fn(&SessionFile<'_>) -> Result<T, StorageError>) -> Result<T, SessionError> {
        let file = self.file(id);
        match read(&file) {
            Err(first @ StorageError::Corrupt { .. }) => {
                let Ok(_lock) = self.lock(&file.path) else { return Err(first.into()) };
                Ok(read(&file)?)
            }
            done => Ok(done?),
        }
    }

    fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        self.read(id, |file| file.load())
    }

    fn append(&self, id: &str, expected: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        if id.len() > MAX_ID {
            let (bytes, limit) = (id.len() as u64, MAX_ID as u64);
            return Err(StorageError::TooLarge { place: "a session's id".to_owned(), bytes, limit }.into());
        }
        let with_text = |entry| encode(id, &entry, self.settings.sizes.entry).map(|text| (entry, text));
        let entries = distinct(id, entries)?.into_iter().map(with_text).collect::<Result<Vec<_>, _>>()?;
        make_folder(&self.settings.folder)?;
        let file = self.file(id);
        let lock = self.lock(&file.path)?;
        let known = self.heads().take(id);
        // What is known is put back only when nothing failed: then it is what is there.
        let (version, head) = file.append(&lock, known, expected, &entries)?;
        self.heads().put(id, head);
        Ok(version)
    }

    fn version(&self, id: &str) -> Result<u64, SessionError> {
        let head = self.read(id, |file| {
            let known = self.heads().take(id);
            file.head(known)
        })?;
        let version = head.as_ref().map_or(0, Head::version);
        self.heads().put(id, head);
        Ok(version)
    }

    fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        let folder = &self.settings.folder;
        let failed = |error| StorageError::io(folder.display(), error);
        let files = match fs::read_dir(folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error).into()),
        };
        let mut ids = BTreeSet::new();
        for file in files {
            let path = file.map_err(failed)?.path();
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let Some(id) = first_line(&path) else { continue };
            // A copy under another name is not that session.
            if after.is_none_or(|after| id.as_str() > after) && self.path(&id).file_name() == path.file_name() {
                ids.insert(id);
                if ids.len() > limit {
                    ids.pop_last();
                }
            }
        }
        Ok(ids.into_iter().collect())
    }

    fn delete(&self, id: &str) -> Result<bool, SessionError> {
        let path = self.path(id);
        if !self.settings.folder.exists() {
            return Ok(false);
        }
        let _lock = self.lock(&path)?;
        self.heads().take(id);
        match fs::remove_file(&path) {
            Ok(()) => {
                sync_folder(&self.settings.folder)?;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StorageError::io(path.display(), error).into()),
        }
    }
}

/// The session's id in the first line of a file, as far as one can be made out.
fn first_line(path: &Path) -> Option<String> {
    let mut buffer = Vec::new();
    let mut reader = BufReader::new(File::open(path).ok()?);
    let limit = ENVELOPE.saturating_add(MAX_ID as u64 * 6);
    line::guess_session(scan::next_line("", 1, &mut reader, &mut buffer, limit).ok()??)
}

impl Heads {
    fn take(&mut self, id: &str) -> Option<Head> {
        self.order.retain(|known| known != id);
        self.known.remove(id)
    }

    fn put(&mut self, id: &str, head: Option<Head>) {
        let Some(head) = head else { return };
        if self.known.insert(id.to_owned(), head).is_none() {
            self.order.push_back(id.to_owned());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[async_trait]
impl SessionStore for JsonlSessionStore {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        let id = id.to_owned();
        self.run(move |inner| inner.load(&id)).await
    }

    async fn append(&self, id: &str, expected_version: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        let id = id.to_owned();
        self.run(move |inner| inner.append(&id, expected_version, entries)).await
    }

    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        let id = id.to_owned();
        self.run(move |inner| inner.version(&id)).await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        let after = after.map(str::to_owned);
        self.run(move |inner| inner.list(after.as_deref(), limit)).await
    }

    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        let id = id.to_owned();
        self.run(move |inner| inner.delete(&id)).await
    }
}

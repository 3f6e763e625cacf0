//! Floor 1: one SQLite file that stores share.
//!
//! A [`Database`] is one connection on a thread of its own. Sessions, tool state and the journal of durable runs each
//! keep their own tables in it and may share a file, with each other and with tables of the host's (theirs begin with
//! `zidane_`).
//!
//! Set on every connection, in this order: a busy timeout, write-ahead logging, `synchronous=FULL`. A write is one
//! transaction that takes the write lock at its beginning. So several processes may use a file on a local disk, and what
//! was acknowledged survives a crash of the machine.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Transaction, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use crate::storage::StorageError;

/// How much work may wait for the connection.
const QUEUE: usize = 64;
/// How long another process is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A SQLite file, opened. Cloning shares the connection; it is closed when the last handle is dropped and the work that
/// was begun is done.
#[derive(Clone, Debug)]
pub struct Database {
    jobs: mpsc::Sender<Job>,
    place: Arc<str>,
}

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

/// Tables that belong together, and their format.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The format this version writes, and the newest it reads.
    pub(crate) format: u32,
    /// Makes the tables where there are none.
    pub(crate) schema: &'static str,
}

/// What the thread owns.
struct Worker {
    connection: Connection,
    /// Parts whose tables are there.
    ready: HashSet<&'static str>,
    place: Arc<str>,
}

/// A transaction.
pub(crate) struct Work<'a> {
    transaction: Transaction<'a>,
    place: Arc<str>,
}

impl Database {
    /// Opens a file, or makes it. Its folder must exist.
    ///
    /// # Errors
    /// [`StorageError::Io`] when it cannot be opened or made, [`StorageError::Corrupt`] when it is no SQLite file.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let path = path.into();
        let place = path.display().to_string();
        Self::start(place, move || Connection::open(path)).await
    }

    /// A database that lives as long as its handles.
    ///
    /// # Errors
    /// [`StorageError::Io`] when the system refuses a thread or memory.
    pub async fn in_memory() -> Result<Self, StorageError> {
        Self::start("SQLite in memory".to_owned(), Connection::open_in_memory).await
    }

    async fn start(
        place: String,
        open: impl FnOnce() -> rusqlite::Result<Connection> + Send + 'static,
    ) -> Result<Self, StorageError> {
        let place: Arc<str> = place.into();
        let (jobs, mut queue) = mpsc::channel::<Job>(QUEUE);
        let (opened, answer) = oneshot::channel();
        let of_thread = Arc::clone(&place);
        thread::Builder::new()
            .name("zidane-sqlite".to_owned())
            .spawn(move || {
                let place = of_thread;
                let connection = open().and_then(|connection| configure(&connection).map(|()| connection));
                let mut worker = match connection {
                    Ok(connection) => Worker { connection, ready: HashSet::new(), place },
                    Err(error) => {
                        // Nobody waits any more when this fails.
                        let _ = opened.send(Err(failure(&place, error)));
                        return;
                    }
                };
                if opened.send(Ok(())).is_err() {
                    return;
                }
                while let Some(job) = queue.blocking_recv() {
                    job(&mut worker);
                }
            })
            .map_err(|error| StorageError::io(&place, error))?;
        let database = Self { jobs, place };
        answer.await.map_err(|_| database.closed())??;
        Ok(database)
    }

    /// Reads, from one state of the database.
    pub(crate) async fn read<T, E>(
        &self,
        part: &'static Part,
        work: impl FnOnce(&Work<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        self.run(part, TransactionBehavior::Deferred, work).await
    }

    /// Writes all of it, or nothing when `work` fails. Dropping the future leaves it done or not done.
    pub(crate) async fn write<T, E>(
        &self,
        part: &'static Part,
        work: impl FnOnce(&Work<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        self.run(part, TransactionBehavior::Immediate, work).await
    }

    async fn run<T, E>(
        &self,
        part: &'static Part,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Work<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        let (done, answer) = oneshot::channel();
        let job: Job = Box::new(move |worker| {
            // The caller may be gone; the work is done all the same.
            let _ = done.send(worker.run(part, behavior, work));
        });
        self.jobs.send(job).await.map_err(|_| self.closed())?;
        answer.await.map_err(|_| self.closed())?
    }

    fn closed(&self) -> StorageError {
        StorageError::Closed {
            place: self.place.to_string(),
            message: "the thread of the database has ended".to_owned(),
        }
    }
}

impl Worker {
    fn run<T, E: From<StorageError>>(
        &mut self,
        part: &'static Part,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Work<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if !self.ready.contains(part.name) {
            self.prepare(part)?;
            self.ready.insert(part.name);
        }
        let work_on = self.begin(behavior)?;
        let done = work(&work_on)?;
        work_on.commit()?;
        Ok(done)
    }

    fn begin(&mut self, behavior: TransactionBehavior) -> Result<Work<'_>, StorageError> {
        let place = Arc::clone(&self.place);
        match self.connection.transaction_with_behavior(behavior) {
            Ok(transaction) => Ok(Work { transaction, place }),
            Err(error) => Err(failure(&place, error)),
        }
    }

    /// Sees to it that a part's tables are there and of a format that can be read.
    fn prepare(&mut self, part: &Part) -> Result<(), StorageError> {
        if self.begin(TransactionBehavior::Deferred)?.has(part)? {
            return Ok(());
        }
        let work = self.begin(TransactionBehavior::Immediate)?;
        // Somebody else may have made them meanwhile.
        if !work.has(part)? {
            work.execute_batch(PARTS).map_err(|error| work.failed(error))?;
            work.execute_batch(part.schema).map_err(|error| work.failed(error))?;
            work.execute("INSERT INTO zidane_parts (name, format) VALUES (?1, ?2)", params![part.name, part.format])
                .map_err(|error| work.failed(error))?;
        }
        work.commit()
    }
}

const PARTS: &str = "CREATE TABLE IF NOT EXISTS zidane_parts (name TEXT PRIMARY KEY, format INTEGER NOT NULL) STRICT";

impl Work<'_> {
    pub(crate) fn failed(&self, error: rusqlite::Error) -> StorageError {
        failure(&self.place, error)
    }

    /// Names a place in the database.
    pub(crate) fn at(&self, what: impl std::fmt::Display) -> String {
        format!("{}, {what}", self.place)
    }

    fn has(&self, part: &Part) -> Result<bool, StorageError> {
        let has_parts = self
            .query_row("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'zidane_parts'", [], |_| Ok(()))
            .optional()
            .map_err(|error| self.failed(error))?;
        if has_parts.is_none() {
            return Ok(false);
        }
        let found: Option<i64> = self
            .query_row("SELECT format FROM zidane_parts WHERE name = ?1", [part.name], |row| row.get(0))
            .optional()
            .map_err(|error| self.failed(error))?;
        match found {
            None => Ok(false),
            Some(found) if found <= i64::from(part.format) => Ok(true),
            Some(found) => Err(StorageError::Newer {
                place: self.at(part.name),
                found: u32::try_from(found).unwrap_or(u32::MAX),
                reads: part.format,
            }),
        }
    }

    fn commit(self) -> Result<(), StorageError> {
        let place = self.place;
        self.transaction.commit().map_err(|error| failure(&place, error))
    }
}

impl<'a> Deref for Work<'a> {
    type Target = Transaction<'a>;
    fn deref(&self) -> &Transaction<'a> {
        &self.transaction
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    // First, so that what follows waits for others too.
    connection.busy_timeout(PATIENCE)?;
    let started = Instant::now();
    loop {
        // Answers with the mode it is in then: a file system without shared memory keeps the rollback journal.
        match connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            // Who finds another in the middle of the same switch is told so at once, not after the timeout.
            Err(error) if is_busy(&error) && started.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(5)),
            switched => break switched?,
        }
    }
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// What SQLite said, as a store's error. Its messages hold names of tables and columns, not what is in them.
fn failure(place: &Arc<str>, error: rusqlite::Error) -> StorageError {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            return StorageError::Busy { place: place.to_string() };
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => return StorageError::corrupt(place, error),
        Some(ErrorCode::DiskFull) => ErrorKind::StorageFull,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => ErrorKind::PermissionDenied,
        Some(ErrorCode::OutOfMemory) => ErrorKind::OutOfMemory,
        Some(_) => ErrorKind::Other,
        // A column of another type, or text that is no UTF-8.
        None => return StorageError::corrupt(place, error),
    };
    StorageError::io(place, io::Error::new(kind, error))
}

use std::sync::Arc;

use futures::future::BoxFuture;
use rusqlite::{OptionalExtension as _, params};

use super::journal::{Hold, Journal, JournaledRun, MAX_RECORD_BYTES, Stored};
use super::{DurableError, DurableRun, DurableRuntime, STEP_FORMAT};
use crate::clock::{Clock, SystemClock};
use crate::sqlite::{Database, Part, Work};
use crate::storage::StorageError;

static PART: Part = Part {
    name: "durable",
    format: 1,
    schema: "
        CREATE TABLE zidane_durable_runs (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            parent TEXT,
            epoch INTEGER NOT NULL,
            finished INTEGER NOT NULL DEFAULT 0
        ) STRICT;
        CREATE TABLE zidane_durable_steps (
            number INTEGER PRIMARY KEY,
            run INTEGER NOT NULL REFERENCES zidane_durable_runs (number) ON DELETE CASCADE,
            place INTEGER NOT NULL,
            format INTEGER NOT NULL,
            record TEXT NOT NULL,
            UNIQUE (run, place)
        ) STRICT;",
};

/// Durable runs in a SQLite file, which sessions and tool state may share.
///
/// A record is one transaction, on disk before anybody acts on it; records of calls that end together share one. A run
/// belongs to the process that attached to it last; any other is told [`DurableError::Fenced`] at its next step, also
/// in another process. Runs are kept until [`forget`](Self::forget) is called.
#[derive(Clone)]
pub struct SqliteDurable {
    database: Database,
    clock: Arc<dyn Clock>,
    max_record_bytes: usize,
}

impl std::fmt::Debug for SqliteDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteDurable")
            .field("database", &self.database)
            .field("max_record_bytes", &self.max_record_bytes)
            .finish_non_exhaustive()
    }
}

impl SqliteDurable {
    /// A journal in a database. Its tables are made at the first use.
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database, clock: Arc::new(SystemClock), max_record_bytes: MAX_RECORD_BYTES }
    }

    /// The largest record, in bytes of JSON. Default: 8 MiB.
    ///
    /// A tool result that would be larger is replaced by one that says so; any other step ends the run with
    /// [`DurableError::TooLarge`], and nothing of it is recorded.
    #[must_use]
    pub fn max_record_bytes(self, bytes: usize) -> Self {
        Self { max_record_bytes: bytes, ..self }
    }

    /// Where the times of records come from. Default: the system's clock.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The runs that were begun and have not come to their end, at most `limit`, in the order in which they were begun.
    /// Some of them may be at work, here or in another process.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn unfinished(&self, limit: usize) -> Result<Vec<String>, StorageError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.database
            .read(&PART, move |work| {
                let list = || -> rusqlite::Result<Vec<String>> {
                    work.prepare("SELECT id FROM zidane_durable_runs WHERE finished = 0 ORDER BY number LIMIT ?1")?
                        .query_map([limit], |row| row.get(0))?
                        .collect()
                };
                list().map_err(|error| work.failed(error))
            })
            .await
    }

    /// Drops what is on record of a run; true when there was anything. Who holds it can record nothing more.
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn forget(&self, run_id: &str) -> Result<bool, StorageError> {
        let run_id = run_id.to_owned();
        self.database
            .write(&PART, move |work| {
                let removed = work.execute("DELETE FROM zidane_durable_runs WHERE id = ?1", [&run_id]);
                Ok(removed.map_err(|error| work.failed(error))? > 0)
            })
            .await
    }
}

impl DurableRuntime for SqliteDurable {
    fn attach(&self, run_id: &str, parent: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let (run_id, parent): (Arc<str>, _) = (run_id.into(), parent.map(str::to_owned));
        Box::pin(async move {
            let id = Arc::clone(&run_id);
            let opened = self.database.write(&PART, move |work| open(work, &id, parent.as_deref())).await;
            let (number, epoch) = opened.map_err(|error: StorageError| storage(&run_id, error))?;
            let journal = Run { database: self.database.clone(), number };
            let (clock, limit) = (Arc::clone(&self.clock), self.max_record_bytes);
            Ok(Arc::new(JournaledRun::new(journal, Hold { run_id, epoch }, clock, limit)) as _)
        })
    }
}

/// A run's number, and its new epoch.
fn open(work: &Work<'_>, id: &str, parent: Option<&str>) -> Result<(i64, u64), StorageError> {
    let (number, epoch): (i64, i64) = work
        .query_row(
            "INSERT INTO zidane_durable_runs (id, parent, epoch) VALUES (?1, ?2, 1)
             ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1 RETURNING number, epoch",
            params![id, parent],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(|error| work.failed(error))?;
    Ok((number, epoch.try_into().unwrap_or_default()))
}

struct Run {
    database: Database,
    number: i64,
}

fn storage(run_id: &str, error: StorageError) -> DurableError {
    let (run_id, message) = (run_id.to_owned(), error.to_string());
    match error {
        StorageError::Newer { .. } => DurableError::Version { run_id, message },
        _ => DurableError::Storage { run_id, message },
    }
}

/// What a transaction on a run fails with.
enum Failed {
    Storage(StorageError),
    Fenced,
    Newer(u64, i64),
}

impl From<StorageError> for Failed {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl Failed {
    fn of(self, hold: &Hold) -> DurableError {
        match self {
            Self::Storage(error) => storage(&hold.run_id, error),
            Self::Fenced => hold.fenced(),
            Self::Newer(place, found) => DurableError::Version {
                run_id: hold.run_id.to_string(),
                message: format!("the record of step {place} is of format {found}, this version reads {STEP_FORMAT}"),
            },
        }
    }
}

fn holds(work: &Work<'_>, number: i64, epoch: u64) -> Result<(), Failed> {
    let found: Option<i64> = work
        .query_row("SELECT epoch FROM zidane_durable_runs WHERE number = ?1", [number], |row| row.get(0))
        .optional()
        .map_err(|error| work.failed(error))?;
    if found.and_then(|found| u64::try_from(found).ok()) == Some(epoch) { Ok(()) } else { Err(Failed::Fenced) }
}

fn signed(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

fn find(work: &Work<'_>, sql: &str, bounds: impl rusqlite::Params) -> Result<Vec<Stored>, Failed> {
    let mut statement = work.prepare(sql).map_err(|error| work.failed(error))?;
    let mut rows = statement.query(bounds).map_err(|error| work.failed(error))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| work.failed(error))? {
        let columns = || Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get_ref(2)?.as_str()?));
        let (place, format, text) = columns().map_err(|error: rusqlite::Error| work.failed(error))?;
        let place = u64::try_from(place).unwrap_or_default();
        if format > i64::from(STEP_FORMAT) {
            return Err(Failed::Newer(place, format));
        }
        found.push(Stored { place, text: text.into() });
    }
    Ok(found)
}

impl Journal for Run {
    async fn read(&self, hold: &Hold, first: u64, count: u64) -> Result<Vec<Stored>, DurableError> {
        let (number, epoch, end) = (self.number, hold.epoch, first.saturating_add(count));
        let read = move |work: &Work<'_>| {
            holds(work, number, epoch)?;
            find(
                work,
                "SELECT place, format, record FROM zidane_durable_steps
                 WHERE run = ?1 AND place >= ?2 AND place < ?3 ORDER BY number",
                params![number, signed(first), signed(end)],
            )
        };
        self.database.read(&PART, read).await.map_err(|failed| failed.of(hold))
    }

    async fn write(&self, hold: &Hold, records: Vec<Stored>) -> Result<(), DurableError> {
        let (number, epoch) = (self.number, hold.epoch);
        let write = move |work: &Work<'_>| {
            holds(work, number, epoch)?;
            let mut insert = work
                .prepare("INSERT INTO zidane_durable_steps (run, place, format, record) VALUES (?1, ?2, ?3, ?4)")
                .map_err(|error| work.failed(error))?;
            for Stored { place, text } in records {
                insert
                    .execute(params![number, signed(place), STEP_FORMAT, &*text])
                    .map_err(|error| work.failed(error))?;
            }
            Ok(())
        };
        self.database.write(&PART, write).await.map_err(|failed: Failed| failed.of(hold))
    }

    async fn finish(&self, hold: &Hold, place: u64) -> Result<Option<Stored>, DurableError> {
        let (number, epoch) = (self.number, hold.epoch);
        let finish = move |work: &Work<'_>| {
            holds(work, number, epoch)?;
            let left = find(
                work,
                "SELECT place, format, record FROM zidane_durable_steps
                 WHERE run = ?1 AND place >= ?2 ORDER BY place LIMIT 1",
                params![number, signed(place)],
            )?;
            if left.is_empty() {
                work.execute("UPDATE zidane_durable_runs SET finished = 1 WHERE number = ?1", [number])
                    .map_err(|error| work.failed(error))?;
            }
            Ok(left.into_iter().next())
        };
        self.database.write(&PART, finish).await.map_err(|failed: Failed| failed.of(hold))
    }
}

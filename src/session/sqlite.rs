use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, params};

use super::append::{admit, distinct, encode, entry_conflict};
use super::{ENTRY_FORMAT, SessionEntry, SessionError, SessionStore, StoredSession};
use crate::sqlite::{Database, Part, Work};
use crate::storage::StorageError;

static PART: Part = Part {
    name: "sessions",
    format: 1,
    schema: "
        CREATE TABLE zidane_sessions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE) STRICT;
        CREATE TABLE zidane_entries (
            session INTEGER NOT NULL REFERENCES zidane_sessions (number) ON DELETE CASCADE,
            version INTEGER NOT NULL,
            id TEXT NOT NULL,
            format INTEGER NOT NULL,
            entry TEXT NOT NULL,
            PRIMARY KEY (session, version),
            UNIQUE (session, id)
        ) STRICT;",
};

/// Sessions in a SQLite file, which other stores may share.
#[derive(Clone, Debug)]
pub struct SqliteSessionStore {
    database: Database,
    max_entry_bytes: u64,
}

impl SqliteSessionStore {
    /// A store in a database. Its tables are made at the first use.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database, max_entry_bytes: 64 * 1024 * 1024 }
    }

    /// The largest entry, in bytes of JSON; a larger one is neither written nor read. Default: 64 MiB.
    #[must_use]
    pub fn max_entry_bytes(self, bytes: u64) -> Self {
        Self { max_entry_bytes: bytes, ..self }
    }
}

fn find(work: &Work<'_>, id: &str) -> Result<Option<i64>, StorageError> {
    work.query_row("SELECT number FROM zidane_sessions WHERE id = ?1", [id], |row| row.get(0))
        .optional()
        .map_err(|error| work.failed(error))
}

fn version(work: &Work<'_>, session: i64) -> Result<u64, StorageError> {
    let version: i64 = work
        .query_row("SELECT coalesce(max(version), 0) FROM zidane_entries WHERE session = ?1", [session], |row| {
            row.get(0)
        })
        .map_err(|error| work.failed(error))?;
    Ok(version.try_into().unwrap_or_default())
}

fn read(work: &Work<'_>, id: &str, version: i64, format: i64, entry: &str) -> Result<SessionEntry, StorageError> {
    let place = || work.at(format_args!("session `{id}`, entry {version}"));
    if format > i64::from(ENTRY_FORMAT) {
        let found = u32::try_from(format).unwrap_or(u32::MAX);
        return Err(StorageError::Newer { place: place(), found, reads: ENTRY_FORMAT });
    }
    serde_json::from_str(entry).map_err(|error| StorageError::corrupt(place(), error))
}

fn load(work: &Work<'_>, id: &str, limit: u64) -> Result<Option<StoredSession>, StorageError> {
    let Some(session) = find(work, id)? else { return Ok(None) };
    let mut statement = work
        .prepare(
            "SELECT version, format, octet_length(entry), entry FROM zidane_entries WHERE session = ?1 ORDER BY version",
        )
        .map_err(|error| work.failed(error))?;
    let mut rows = statement.query([session]).map_err(|error| work.failed(error))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(|error| work.failed(error))? {
        let sizes = || Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?));
        let (version, format, bytes) = sizes().map_err(|error: rusqlite::Error| work.failed(error))?;
        // Before it is in memory.
        let bytes = u64::try_from(bytes).unwrap_or_default();
        if bytes > limit {
            let place = work.at(format_args!("session `{id}`, entry {version}"));
            return Err(StorageError::TooLarge { place, bytes, limit });
        }
        let entry = row.get_ref(3).and_then(|entry| Ok(entry.as_str()?)).map_err(|error| work.failed(error))?;
        entries.push(read(work, id, version, format, entry)?);
        if u64::try_from(version).ok() != Some(entries.len() as u64) {
            let place = work.at(format_args!("session `{id}`"));
            return Err(StorageError::corrupt(place, format_args!("entry {} is missing", entries.len())));
        }
    }
    Ok(Some(StoredSession::new(entries)))
}

/// The version that an entry made, when it is stored with the same content.
fn stored(work: &Work<'_>, session: i64, id: &str, entry: &SessionEntry) -> Result<Option<u64>, SessionError> {
    let found: Option<(i64, i64, String)> = work
        .query_row(
            "SELECT version, format, entry FROM zidane_entries WHERE session = ?1 AND id = ?2",
            params![session, entry.id()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        .map_err(|error| work.failed(error))?;
    let Some((version, format, text)) = found else { return Ok(None) };
    if read(work, id, version, format, &text)?.same_content(entry) {
        Ok(Some(version.try_into().unwrap_or_default()))
    } else {
        Err(entry_conflict(id, entry))
    }
}

fn append(
    work: &Work<'_>,
    id: &str,
    expected: u64,
    entries: &[SessionEntry],
    texts: &[String],
) -> Result<u64, SessionError> {
    let session = find(work, id)?;
    let (known, mut version) = match session {
        None => (vec![None; entries.len()], 0),
        Some(session) => {
            let known = entries.iter().map(|entry| stored(work, session, id, entry)).collect::<Result<Vec<_>, _>>()?;
            (known, version(work, session)?)
        }
    };
    if !admit(id, expected, version, &known)? {
        return Ok(version);
    }
    let session = match session {
        Some(session) => session,
        None => {
            work.execute("INSERT INTO zidane_sessions (id) VALUES (?1)", [id]).map_err(|error| work.failed(error))?;
            work.last_insert_rowid()
        }
    };
    let mut insert = work
        .prepare("INSERT INTO zidane_entries (session, version, id, format, entry) VALUES (?1, ?2, ?3, ?4, ?5)")
        .map_err(|error| work.failed(error))?;
    for ((entry, text), known) in entries.iter().zip(texts).zip(known) {
        if known.is_none() {
            version = version.saturating_add(1);
            let number = i64::try_from(version).unwrap_or(i64::MAX);
            insert
                .execute(params![session, number, entry.id(), ENTRY_FORMAT, text])
                .map_err(|error| work.failed(error))?;
        }
    }
    Ok(version)
}

#[async_trait]
impl SessionStore for SqliteSessionStore {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        let (id, limit) = (id.to_owned(), self.max_entry_bytes);
        self.database.read(&PART, move |work| Ok(load(work, &id, limit)?)).await
    }

    async fn append(&self, id: &str, expected_version: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        let (id, limit) = (id.to_owned(), self.max_entry_bytes);
        let entries = distinct(&id, entries)?;
        let texts = entries.iter().map(|entry| encode(&id, entry, limit)).collect::<Result<Vec<_>, _>>()?;
        self.database.write(&PART, move |work| append(work, &id, expected_version, &entries, &texts)).await
    }

    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        let id = id.to_owned();
        self.database
            .read(&PART, move |work| Ok(find(work, &id)?.map_or(Ok(0), |session| version(work, session))?))
            .await
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        let after = after.map(str::to_owned);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.database
            .read(&PART, move |work| {
                let list = || -> rusqlite::Result<Vec<String>> {
                    work.prepare("SELECT id FROM zidane_sessions WHERE ?1 IS NULL OR id > ?1 ORDER BY id LIMIT ?2")?
                        .query_map(params![after, limit], |row| row.get(0))?
                        .collect()
                };
                Ok(list().map_err(|error| work.failed(error))?)
            })
            .await
    }

    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        let id = id.to_owned();
        self.database
            .write(&PART, move |work| {
                let removed = work.execute("DELETE FROM zidane_sessions WHERE id = ?1", [&id]);
                Ok(removed.map_err(|error| work.failed(error))? > 0)
            })
            .await
    }
}

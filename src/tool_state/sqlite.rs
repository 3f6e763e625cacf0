use async_trait::async_trait;
use rusqlite::params;

use super::encode::encode_value;
use super::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};
use crate::sqlite::{Database, Part, Work};
use crate::storage::StorageError;

/// How many commit ids a scope remembers at least, and how often the older ones are removed.
const REMEMBERED: i64 = 65_536;
const SWEEP: i64 = 1024;

static PART: Part = Part {
    name: "tool_state",
    format: 1,
    schema: "
        CREATE TABLE zidane_tool_state (
            scope TEXT NOT NULL,
            key TEXT NOT NULL,
            value TEXT NOT NULL,
            PRIMARY KEY (scope, key)
        ) STRICT;
        CREATE TABLE zidane_tool_commits (
            scope TEXT NOT NULL,
            id TEXT NOT NULL,
            number INTEGER NOT NULL,
            PRIMARY KEY (scope, id),
            UNIQUE (scope, number)
        ) STRICT, WITHOUT ROWID;",
};

/// Tool state in a SQLite file, which other stores may share.
///
/// Each scope remembers its last 65,536 commit ids; a repetition of an older one is applied again.
#[derive(Clone, Debug)]
pub struct SqliteToolStateStore {
    database: Database,
}

impl SqliteToolStateStore {
    /// A store in a database. Its tables are made at the first use.
    #[must_use]
    pub const fn new(database: Database) -> Self {
        Self { database }
    }
}

fn load(work: &Work<'_>, scope: &str) -> Result<ToolStateSnapshot, StorageError> {
    let mut statement = work
        .prepare("SELECT key, value FROM zidane_tool_state WHERE scope = ?1 ORDER BY key")
        .map_err(|error| work.failed(error))?;
    let mut rows = statement.query([scope]).map_err(|error| work.failed(error))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(|error| work.failed(error))? {
        let columns = || Ok((row.get::<_, String>(0)?, row.get_ref(1)?.as_str()?));
        let (key, value) = columns().map_err(|error: rusqlite::Error| work.failed(error))?;
        let place = || work.at(format_args!("scope `{scope}`, key `{key}`"));
        let value = serde_json::from_str(value).map_err(|error| StorageError::corrupt(place(), error))?;
        entries.push((key, value));
    }
    Ok(entries.into_iter().collect())
}

fn commit(work: &Work<'_>, commit: &ToolStateCommit) -> Result<(), StorageError> {
    let apply = |values: Vec<Option<_>>| {
        let scope = &*commit.scope;
        let last: i64 = work.query_row(
            "SELECT coalesce(max(number), 0) FROM zidane_tool_commits WHERE scope = ?1",
            [scope],
            |row| row.get(0),
        )?;
        let number = last.saturating_add(1);
        let noted = work.execute(
            "INSERT INTO zidane_tool_commits (scope, id, number) VALUES (?1, ?2, ?3) ON CONFLICT (scope, id) DO NOTHING",
            params![scope, &*commit.commit_id, number],
        )?;
        if noted == 0 {
            return Ok(());
        }
        for (op, value) in commit.ops.iter().zip(values) {
            let value: Option<Box<serde_json::value::RawValue>> = value;
            match value {
                Some(value) => work.execute(
                    "INSERT INTO zidane_tool_state (scope, key, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value",
                    params![scope, op.key(), value.get()],
                )?,
                None => work
                    .execute("DELETE FROM zidane_tool_state WHERE scope = ?1 AND key = ?2", params![scope, op.key()])?,
            };
        }
        if number % SWEEP == 0 {
            work.execute(
                "DELETE FROM zidane_tool_commits WHERE scope = ?1 AND number <= ?2",
                params![scope, number.saturating_sub(REMEMBERED)],
            )?;
        }
        Ok(())
    };
    let values = commit.ops.iter().map(encode_value).collect::<Result<Vec<_>, _>>()?;
    apply(values).map_err(|error: rusqlite::Error| work.failed(error))
}

#[async_trait]
impl ToolStateStore for SqliteToolStateStore {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        let scope = scope.to_owned();
        Ok(self.database.read::<_, StorageError>(&PART, move |work| load(work, &scope)).await?)
    }

    async fn commit(&self, to_commit: &ToolStateCommit) -> Result<(), StoreError> {
        let to_commit = to_commit.clone();
        Ok(self.database.write::<_, StorageError>(&PART, move |work| commit(work, &to_commit)).await?)
    }
}

//! Sessions in SQLite files that others use too, were damaged, or are newer.

use std::fs;
use std::path::Path;

use zidane::session::{SessionEntry, SessionError, SessionStore, SqliteSessionStore};
use zidane::sqlite::Database;
use zidane::storage::StorageError;
use zidane::testing::session_store_conformance;
use zidane::tool_state::{SqliteToolStateStore, ToolStateCommit, ToolStateOp, ToolStateStore};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use crate::faults::{all_is_there, two_processes};
use crate::folder::Folder;

session_store_conformance!(in_memory, SqliteSessionStore::new(Database::in_memory().await.unwrap()));
session_store_conformance!(in_a_file, {
    let folder = Folder::new("sqlite");
    let database = Database::open(folder.join("test.sqlite")).await.unwrap();
    folder.holding(|_| SqliteSessionStore::new(database))
});

fn turn(id: &str, text: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

pub(crate) async fn open(path: &Path) -> SqliteSessionStore {
    SqliteSessionStore::new(Database::open(path).await.unwrap())
}

fn storage<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> StorageError {
    match answer {
        Err(SessionError::Storage(error)) => error,
        other => panic!("the store was expected to fail: {other:?}"),
    }
}

#[test]
fn two_processes_share_a_file() {
    let folder = Folder::new("sqlite");
    two_processes("sqlite", &folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { all_is_there("sqlite", &open(&folder.join("test.sqlite")).await).await });
}

#[tokio::test]
async fn sessions_and_tool_state_share_a_file_with_the_hosts_own_tables() {
    let folder = Folder::new("sqlite");
    let path = folder.join("app.sqlite");
    {
        let host = rusqlite::Connection::open(&path).unwrap();
        host.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (7); PRAGMA user_version = 42;").unwrap();
    }
    let database = Database::open(&path).await.unwrap();
    let sessions = SqliteSessionStore::new(database.clone());
    let state = SqliteToolStateStore::new(database);
    sessions.append("s", 0, vec![turn("1", "one")]).await.unwrap();
    state.commit(&ToolStateCommit::new("s", "1", "r", "c", vec![ToolStateOp::set("k", 1)])).await.unwrap();
    assert_eq!(open(&path).await.load("s").await.unwrap().unwrap().version, 1);
    let host = rusqlite::Connection::open(&path).unwrap();
    let mine: (i64, i64, String) = host
        .query_row(
            "SELECT (SELECT x FROM mine), user_version, journal_mode FROM pragma_user_version, pragma_journal_mode",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(mine, (7, 42, "wal".to_owned()));
}

#[tokio::test]
async fn newer_tables_and_newer_entries_are_refused_by_type() {
    let folder = Folder::new("sqlite");
    let path = folder.join("test.sqlite");
    let store = open(&path).await;
    store.append("s", 0, vec![turn("1", "one"), turn("2", "two")]).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute("UPDATE zidane_entries SET format = 7 WHERE id = '2'", []).unwrap();
    let error = storage(store.load("s").await);
    assert!(matches!(error, StorageError::Newer { found: 7, reads: 1, .. }), "{error}");
    assert!(error.to_string().contains("session `s`, entry 2"), "{error}");
    other.execute("UPDATE zidane_parts SET format = 9 WHERE name = 'sessions'", []).unwrap();
    let again = open(&path).await;
    for error in [
        storage(again.load("s").await),
        storage(again.append("t", 0, vec![turn("1", "one")]).await),
        storage(again.list(None, 10).await),
        storage(again.delete("s").await),
    ] {
        assert!(matches!(error, StorageError::Newer { found: 9, reads: 1, .. }), "{error}");
    }
}

#[tokio::test]
async fn sizes_are_bounded_when_writing_and_when_reading() {
    let folder = Folder::new("sqlite");
    let path = folder.join("test.sqlite");
    let narrow = open(&path).await.max_entry_bytes(1_000);
    let error = storage(narrow.append("s", 0, vec![turn("1", &"x".repeat(1_000))]).await);
    assert!(matches!(error, StorageError::TooLarge { limit: 1_000, .. }), "{error}");
    open(&path).await.append("s", 0, vec![turn("1", &"x".repeat(1_000))]).await.unwrap();
    let error = storage(narrow.load("s").await);
    assert!(matches!(error, StorageError::TooLarge { limit: 1_000, .. }), "{error}");
}

#[tokio::test]
async fn damage_is_an_error() {
    let folder = Folder::new("sqlite");
    let path = folder.join("test.sqlite");
    let store = open(&path).await;
    store.append("s", 0, vec![turn("1", "one"), turn("2", "two"), turn("3", "three")]).await.unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute("UPDATE zidane_entries SET entry = '{oops' WHERE id = '2'", []).unwrap();
    assert!(matches!(storage(store.load("s").await), StorageError::Corrupt { .. }));
    other.execute("DELETE FROM zidane_entries WHERE id = '2'", []).unwrap();
    let error = storage(store.load("s").await);
    assert!(
        matches!(&error, StorageError::Corrupt { message, .. } if message.contains("entry 2 is missing")),
        "{error}"
    );
    assert_eq!(store.list(None, 10).await.unwrap(), ["s"]);
    other.execute("DROP TABLE zidane_entries", []).unwrap();
    storage(store.load("s").await);
    assert!(fs::metadata(&path).is_ok());

    fs::write(folder.join("no.sqlite"), "this is no database at all, but it is long enough to look at").unwrap();
    let error = Database::open(folder.join("no.sqlite")).await.unwrap_err();
    assert!(matches!(error, StorageError::Corrupt { .. }), "{error}");
    let error = Database::open(folder.join("no/such/folder/x.sqlite")).await.unwrap_err();
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
    assert!(error.to_string().contains("no/such/folder"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_cut_or_changed_anywhere_never_gives_wrong_entries() {
    let folder = Folder::new("sqlite");
    let path = folder.join("test.sqlite");
    let entries: Vec<_> = (0..40).map(|n| turn(&n.to_string(), &"text ".repeat(100))).collect();
    {
        let store = open(&path).await;
        store.append("s", 0, entries.clone()).await.unwrap();
    }
    let good = {
        let host = rusqlite::Connection::open(&path).unwrap();
        host.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(host);
        fs::read(&path).unwrap()
    };
    assert!(good.len() > 8 * 4096);
    let (mut refused, mut whole) = (0, 0);
    for step in 0..good.len() / 1024 {
        for cut in [true, false] {
            let mut bad = good.clone();
            if cut {
                bad.truncate(step * 1024);
            } else {
                // Structure, not text: text is as good as SQLite keeps it.
                for byte in bad.iter_mut().skip(step * 1024).take(8) {
                    *byte ^= 0x55;
                }
            }
            let path = folder.join(format!("{step}-{cut}.sqlite"));
            fs::write(&path, &bad).unwrap();
            let found = match Database::open(&path).await {
                Ok(database) => SqliteSessionStore::new(database).load("s").await,
                Err(error) => Err(error.into()),
            };
            match found {
                Ok(Some(found)) => {
                    let same = found.entries.iter().zip(&entries).filter(|(one, two)| one == two).count();
                    // A changed letter is not noticed; a lost or strange entry is.
                    assert!(found.entries.len() == entries.len() && same >= entries.len() - 1, "{step} {cut}");
                    whole += 1;
                }
                Ok(None) => assert!(cut && step == 0, "an empty file is an empty database, {step} {cut}"),
                Err(SessionError::Storage(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(refused > 20 && whole > 5, "{refused} refused, {whole} whole");
}

#[tokio::test]
async fn appends_whose_futures_are_dropped_are_done_or_not_done() {
    let store = SqliteSessionStore::new(Database::in_memory().await.unwrap());
    let mut version = 0;
    for n in 0..50_u64 {
        let batch = vec![turn(&format!("{n}a"), "a"), turn(&format!("{n}b"), "b")];
        {
            let mut append = Box::pin(store.append("s", version, batch.clone()));
            let _ = futures::poll!(append.as_mut());
        }
        version = store.append("s", version, batch).await.unwrap();
        assert_eq!(version, (n + 1) * 2);
    }
}

#[test]
fn needs_no_runtime() {
    let found = futures::executor::block_on(async {
        let store = SqliteSessionStore::new(Database::in_memory().await.unwrap());
        store.append("s", 0, vec![turn("1", "one")]).await.unwrap();
        store.load("s").await.unwrap().unwrap().version
    });
    assert_eq!(found, 1);
}

#[test]
#[cfg(unix)]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let folder = Folder::new("sqlite");
    crate::faults::ended_well(
        &crate::faults::child("trap '' XFSZ; ulimit -f 256;", "no space sqlite", &folder).output().unwrap(),
    );
}

pub(crate) async fn without_space(folder: &Path) {
    let path = folder.join("test.sqlite");
    let store = open(&path).await;
    let mut version = 0;
    let error = loop {
        match store.append("s", version, vec![turn(&version.to_string(), &"x".repeat(5_000))]).await {
            Ok(now) => version = now,
            Err(error) => break error,
        }
        assert!(version < 500, "the limit does not hold");
    };
    assert!(matches!(error, SessionError::Storage(StorageError::Io { .. })) && version > 2, "{error}");
    for store in [store, open(&path).await] {
        let found = store.load("s").await.unwrap().unwrap();
        assert_eq!(found.version, version);
        assert_eq!(found.entries.last().unwrap().id(), (version - 1).to_string());
    }
}

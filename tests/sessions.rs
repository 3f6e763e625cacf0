//! Session stores, blobs, and what is done with sessions, through their public parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/folder.rs"]
mod folder;
#[path = "sessions/jsonl.rs"]
mod jsonl;

use folder::Folder;
use zidane::session::{JsonlSessionStore, MemorySessionStore};
use zidane::testing::session_store_conformance;

session_store_conformance!(memory_store, MemorySessionStore::new());
session_store_conformance!(jsonl_store, Folder::new("jsonl").holding(JsonlSessionStore::new));

#[cfg(feature = "sqlite")]
mod sqlite_stores {
    use super::*;
    use zidane::session::SqliteSessionStore;
    use zidane::sqlite::Database;

    session_store_conformance!(in_memory, SqliteSessionStore::new(Database::in_memory().await.unwrap()));
    session_store_conformance!(in_a_file, {
        let folder = Folder::new("sqlite");
        let database = Database::open(folder.join("test.sqlite")).await.unwrap();
        folder.holding(|_| SqliteSessionStore::new(database))
    });
}

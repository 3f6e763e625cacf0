//! Session stores, blobs, and what is done with sessions, through their public parts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "sessions/agent_faults.rs"]
mod agent_faults;
#[path = "sessions/agent_resume.rs"]
mod agent_resume;
#[path = "sessions/agents.rs"]
mod agents;
#[path = "sessions/blobs.rs"]
mod blobs;
#[path = "sessions/faults.rs"]
mod faults;
#[path = "harness/faulty.rs"]
mod faulty;
#[path = "harness/folder.rs"]
mod folder;
#[path = "types/generate.rs"]
#[allow(dead_code)]
mod generate;
mod harness;
#[path = "sessions/jsonl.rs"]
mod jsonl;
#[path = "sessions/model.rs"]
mod model;
#[path = "sessions/sabotage.rs"]
mod sabotage;
#[cfg(feature = "sqlite")]
#[path = "sessions/sqlite.rs"]
mod sqlite;
#[path = "sessions/values.rs"]
mod values;

use folder::Folder;
use zidane::session::{JsonlSessionStore, MemorySessionStore};
use zidane::testing::session_store_conformance;

session_store_conformance!(memory_store, MemorySessionStore::new());
session_store_conformance!(jsonl_store, Folder::new("jsonl").holding(JsonlSessionStore::new));

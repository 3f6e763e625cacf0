//! Floor 1: files and databases as the stores of floor 3 use them.
//!
//! Names that are safe whatever the id, locks that a killed process does not leave behind, files that are replaced
//! whole or not at all, and one error type for all of it. Nothing here knows what is stored, and nothing here runs on
//! the executor: what blocks goes to tokio's blocking threads.

mod blocking;
mod depth;
mod error;
mod files;
mod lock;
mod name;

pub use error::StorageError;

pub(crate) use blocking::blocking;
pub(crate) use depth::check_depth;
pub(crate) use files::{make_folder, read_whole, sync_folder};
pub(crate) use lock::FolderLock;
pub(crate) use name::file_stem;

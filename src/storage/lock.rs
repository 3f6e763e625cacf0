use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::StorageError;

/// A folder has this many lock files at most.
const STRIPES: u8 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The right to write what goes by a name in a folder: against other processes, and against other threads of this one.
///
/// An advisory lock of the system on a file of its own, so that it ends with the process that holds it however that
/// ends, and so that what it guards may be removed or replaced. Names share a few lock files; those are never removed.
#[derive(Debug)]
pub(crate) struct FolderLock {
    file: File,
    scratch: PathBuf,
}

impl FolderLock {
    /// Waits for the lock, for `patience` at most. Blocks the thread.
    pub(crate) fn acquire(folder: &Path, name: &str, patience: Duration) -> Result<Self, StorageError> {
        let [first, ..] = *Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).as_bytes();
        let path = folder.join(format!(".lock-{:02}", first % STRIPES));
        let failed = |error| StorageError::io(path.display(), error);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        let started = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    let scratch = path.with_extension("new");
                    return Ok(Self { file, scratch });
                }
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if started.elapsed() >= patience => {
                    return Err(StorageError::Busy { place: path.display().to_string() });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(pause),
            }
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }
}

impl FolderLock {
    /// A file in the folder that is nobody else's while the lock is held.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing would do, but for a child process that is just being started and still has a copy of the handle.
        let _ = self.file.unlock();
    }
}

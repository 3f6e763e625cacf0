use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use super::{FolderLock, StorageError};

impl FolderLock {
    /// Puts `bytes` in place of a file, in one step that survives a crash: the file has the old content or the new.
    ///
    /// The file is in the lock's folder or below. What is half-written goes by a name of the lock's, which a crash leaves
    /// behind and the next write takes over.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
        let fresh = self.scratch();
        let written = write_synced(fresh, bytes).and_then(|()| fs::rename(fresh, path));
        if let Err(error) = written {
            // Takes up no space on a disk that may be full.
            let _ = fs::remove_file(fresh);
            return Err(StorageError::io(path.display(), error));
        }
        match path.parent() {
            Some(folder) => sync_folder(folder),
            None => Ok(()),
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes a folder and those above it that are missing, so that they survive a crash.
pub(crate) fn make_folder(folder: &Path) -> Result<(), StorageError> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !is_there(folder)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(folder).map_err(|error| StorageError::io(folder.display(), error))?;
    missing.iter().rev().filter_map(|folder| folder.parent()).try_for_each(sync_folder)
}

fn is_there(folder: &Path) -> bool {
    // The last ancestor of a relative path is empty, and means the folder the process is in.
    folder.as_os_str().is_empty() || folder.exists()
}

/// Makes what was created, renamed or removed in a folder survive a crash.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StorageError> {
    // Elsewhere a folder cannot be opened as a file, and its entries are journaled by the system.
    if cfg!(unix) {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| StorageError::io(folder.display(), error))?;
    }
    Ok(())
}

/// All bytes of a file; `None` when there is none.
pub(crate) fn read_whole(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, StorageError> {
    let failed = |error| StorageError::io(path.display(), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let size = file.metadata().map_err(failed)?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or_default());
    // The size may be a lie: the file can grow meanwhile, or be a device.
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        let bytes = size.max(limit.saturating_add(1));
        return Err(StorageError::TooLarge { place: path.display().to_string(), bytes, limit });
    }
    Ok(Some(bytes))
}

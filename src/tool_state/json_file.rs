use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::encode::encode_value;
use super::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};
use crate::storage::{FolderLock, StorageError, blocking, file_stem, make_folder, read_whole};

const FORMAT: u32 = 1;

/// Tool state as files of a folder, one JSON file per scope, replaced whole with every commit.
///
/// A crash leaves the state of the commit before or of the commit after. For state that is small: a commit reads and
/// writes all of the scope. Several processes may use a folder on a local disk.
///
/// Each scope remembers its last 1,024 commit ids (see [`remembered`](Self::remembered)); a repetition of an older one
/// would be applied again. Needs a tokio runtime; the work is done on its blocking threads.
#[derive(Clone, Debug)]
pub struct JsonToolStateStore {
    folder: Arc<Path>,
    remembered: usize,
    max_bytes: u64,
    patience: Duration,
}

/// The file.
struct Stored<'a> {
    state: BTreeMap<String, &'a RawValue>,
    applied: Vec<String>,
    /// Fields that a newer version has added.
    extra: BTreeMap<String, &'a RawValue>,
}

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    scope: &'a str,
    state: &'a BTreeMap<&'a str, &'a RawValue>,
    applied: &'a [&'a str],
    #[serde(flatten)]
    extra: BTreeMap<&'a str, &'a RawValue>,
}

#[derive(Deserialize)]
struct Format {
    v: u32,
}

impl JsonToolStateStore {
    /// A store in a folder, which is made at the first commit.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into().into(),
            remembered: 1024,
            max_bytes: 256 * 1024 * 1024,
            patience: Duration::from_secs(5),
        }
    }

    /// How many commit ids a scope remembers. Default: 1,024; they are written with every commit.
    #[must_use]
    pub fn remembered(self, commits: usize) -> Self {
        Self { remembered: commits, ..self }
    }

    /// The largest file, in bytes; a larger one is neither written nor read. Default: 256 MiB.
    #[must_use]
    pub fn max_bytes(self, bytes: u64) -> Self {
        Self { max_bytes: bytes, ..self }
    }

    /// The file of a scope, which need not exist.
    #[must_use]
    pub fn path(&self, scope: &str) -> PathBuf {
        self.folder.join(format!("{}.json", file_stem(scope)))
    }

    fn read(&self, scope: &str) -> Result<ToolStateSnapshot, StorageError> {
        let path = self.path(scope);
        let Some(bytes) = read_whole(&path, self.max_bytes)? else { return Ok(ToolStateSnapshot::new()) };
        let stored = parse(&path, scope, &bytes)?;
        stored
            .state
            .into_iter()
            .map(|(key, value)| match serde_json::from_str(value.get()) {
                Ok(value) => Ok((key, value)),
                Err(error) => Err(StorageError::corrupt(format!("{}, key `{key}`", path.display()), error)),
            })
            .collect()
    }

    fn apply(&self, commit: &ToolStateCommit) -> Result<(), StorageError> {
        let path = self.path(&commit.scope);
        let values = commit.ops.iter().map(encode_value).collect::<Result<Vec<_>, _>>()?;
        make_folder(&self.folder)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let lock = FolderLock::acquire(&self.folder, name, self.patience)?;
        let bytes = read_whole(&path, self.max_bytes)?;
        let stored = bytes.as_deref().map(|bytes| parse(&path, &commit.scope, bytes)).transpose()?;
        let (mut state, mut applied, mut extra) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        if let Some(stored) = &stored {
            if stored.applied.iter().any(|id| **id == *commit.commit_id) {
                return Ok(());
            }
            state.extend(stored.state.iter().map(|(key, value)| (key.as_str(), *value)));
            applied.extend(stored.applied.iter().map(String::as_str));
            extra.extend(stored.extra.iter().map(|(key, value)| (key.as_str(), *value)));
        }
        for (op, value) in commit.ops.iter().zip(&values) {
            match value {
                Some(value) => state.insert(op.key(), value),
                None => state.remove(op.key()),
            };
        }
        applied.push(&commit.commit_id);
        let forgotten = applied.len().saturating_sub(self.remembered);
        let applied = applied.get(forgotten..).unwrap_or_default();
        let written = Written { v: FORMAT, scope: &commit.scope, state: &state, applied, extra };
        let mut text = serde_json::to_vec(&written).map_err(|error| StorageError::corrupt(path.display(), error))?;
        text.push(b'\n');
        let size = text.len() as u64;
        if size > self.max_bytes {
            let place = path.display().to_string();
            return Err(StorageError::TooLarge { place, bytes: size, limit: self.max_bytes });
        }
        lock.replace(&path, &text)
    }
}

fn parse<'a>(path: &Path, scope: &str, bytes: &'a [u8]) -> Result<Stored<'a>, StorageError> {
    let corrupt = |error| StorageError::corrupt(path.display(), error);
    let Format { v } = serde_json::from_slice(bytes).map_err(corrupt)?;
    if v > FORMAT {
        return Err(StorageError::Newer { place: path.display().to_string(), found: v, reads: FORMAT });
    }
    let mut extra: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes).map_err(corrupt)?;
    extra.remove("v");
    let mut field = |name: &str| {
        let missing = || StorageError::corrupt(path.display(), format_args!("field `{name}` is missing"));
        extra.remove(name).map(RawValue::get).ok_or_else(missing)
    };
    let (of, state, applied) = (field("scope")?, field("state")?, field("applied")?);
    if serde_json::from_str::<String>(of).map_err(corrupt)? != scope {
        return Err(StorageError::corrupt(path.display(), "the file is of another scope"));
    }
    Ok(Stored {
        state: serde_json::from_str(state).map_err(corrupt)?,
        applied: serde_json::from_str(applied).map_err(corrupt)?,
        extra,
    })
}

#[async_trait]
impl ToolStateStore for JsonToolStateStore {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        let (store, scope) = (self.clone(), scope.to_owned());
        Ok(blocking::<_, StorageError>("tool state", move || store.read(&scope)).await?)
    }

    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        // Values are shared, not copied.
        let (store, commit) = (self.clone(), commit.clone());
        Ok(blocking::<_, StorageError>("tool state", move || store.apply(&commit)).await?)
    }
}

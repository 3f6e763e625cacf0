use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::append::{admit, distinct, entry_conflict};
use super::{SessionEntry, SessionError, SessionStore, StoredSession};

/// Sessions that live as long as the process: for tests, and for hosts that keep nothing.
#[derive(Debug, Default)]
pub struct MemorySessionStore {
    sessions: Mutex<BTreeMap<String, Log>>,
}

#[derive(Debug, Default)]
struct Log {
    entries: Vec<SessionEntry>,
    places: HashMap<String, usize>,
}

impl MemorySessionStore {
    /// A store without sessions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Log>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// The version that an entry made, when it is stored with the same content.
    fn find(&self, session: &str, entry: &SessionEntry) -> Result<Option<u64>, SessionError> {
        let Some(place) = self.places.get(entry.id()) else { return Ok(None) };
        match self.entries.get(*place) {
            Some(stored) if stored.same_content(entry) => Ok(Some((*place as u64).saturating_add(1))),
            _ => Err(entry_conflict(session, entry)),
        }
    }
}

#[async_trait]
impl SessionStore for MemorySessionStore {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        Ok(self.lock().get(id).map(|log| StoredSession::new(log.entries.clone())))
    }

    async fn append(&self, id: &str, expected_version: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        let entries = distinct(id, entries)?;
        let mut sessions = self.lock();
        let none = Log::default();
        let log = sessions.get(id).unwrap_or(&none);
        let stored = entries.iter().map(|entry| log.find(id, entry)).collect::<Result<Vec<_>, _>>()?;
        if !admit(id, expected_version, log.entries.len() as u64, &stored)? {
            return Ok(log.entries.len() as u64);
        }
        let log = sessions.entry(id.to_owned()).or_default();
        for (entry, stored) in entries.into_iter().zip(stored) {
            if stored.is_none() {
                log.places.insert(entry.id().to_owned(), log.entries.len());
                log.entries.push(entry);
            }
        }
        Ok(log.entries.len() as u64)
    }

    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        Ok(self.lock().get(id).map_or(0, |log| log.entries.len() as u64))
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let sessions = self.lock();
        Ok(sessions.range::<str, _>((start, Bound::Unbounded)).take(limit).map(|(id, _)| id.clone()).collect())
    }

    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        Ok(self.lock().remove(id).is_some())
    }
}

//! A session store that fails, hangs or panics when it is told to, and writes down what it was given.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use zidane::session::{MemorySessionStore, SessionEntry, SessionError, SessionStore, StoredSession};
use zidane::types::SessionTurn;

/// What an append comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Nothing is stored, and it says so.
    Refused,
    /// All is stored, and it says that it failed.
    Unheard,
    /// Nothing is stored, and its task is lost.
    Panics,
}

#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn SessionStore>,
    faults: Arc<Mutex<BTreeMap<usize, Fault>>>,
    appends: Arc<Mutex<Vec<Vec<String>>>>,
    loads: Arc<Mutex<usize>>,
    /// Appends from this number on wait.
    open: Arc<watch::Sender<usize>>,
    /// Reads from this number on wait.
    readable: Arc<watch::Sender<usize>>,
    /// How long an append takes.
    delay: Duration,
    pending: Arc<AtomicUsize>,
}

impl Default for FaultyStore {
    fn default() -> Self {
        Self::over(Arc::new(MemorySessionStore::new()))
    }
}

impl FaultyStore {
    pub fn over(inner: Arc<dyn SessionStore>) -> Self {
        let open = Arc::new(watch::Sender::new(usize::MAX));
        Self {
            inner,
            faults: Arc::default(),
            appends: Arc::default(),
            loads: Arc::default(),
            open,
            readable: Arc::new(watch::Sender::new(usize::MAX)),
            delay: Duration::ZERO,
            pending: Arc::default(),
        }
    }

    /// Every append takes this long.
    pub fn slow(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How many appends are under way.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// The append with this number, counted from 0, comes to this.
    pub fn fail(self, append: usize, fault: Fault) -> Self {
        self.faults.lock().unwrap().insert(append, fault);
        self
    }

    /// Appends from this number on, counted from 0, wait.
    pub fn hold_at(&self, append: usize) {
        self.open.send_replace(append);
    }

    /// Reads from this number on, counted from 0, wait.
    pub fn hold_reads_at(&self, read: usize) {
        self.readable.send_replace(read);
    }

    /// Those that wait go on.
    pub fn release(&self) {
        self.hold_at(usize::MAX);
    }

    /// What was appended, an append a line, as kinds of entries.
    pub fn appends(&self) -> Vec<Vec<String>> {
        self.appends.lock().unwrap().clone()
    }

    /// How often a session was read.
    pub fn loads(&self) -> usize {
        *self.loads.lock().unwrap()
    }
}

struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn kind(entry: &SessionEntry) -> String {
    let value = serde_json::to_value(entry).unwrap();
    match entry {
        SessionEntry::Turn(turn) => serde_json::to_value(turn.origin).unwrap().as_str().unwrap().to_owned(),
        SessionEntry::Run(run) => if run.end.is_some() { "end" } else { "start" }.to_owned(),
        SessionEntry::Result(result) => format!("result {}", result.result.call_id),
        _ => value["kind"].as_str().unwrap().to_owned(),
    }
}

#[zidane::async_trait]
impl SessionStore for FaultyStore {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        let number = {
            let mut loads = self.loads.lock().unwrap();
            *loads += 1;
            *loads - 1
        };
        self.readable.subscribe().wait_for(|readable| number < *readable).await.unwrap();
        self.inner.load(id).await
    }
    async fn append(&self, id: &str, expected: u64, entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        let number = {
            let mut appends = self.appends.lock().unwrap();
            appends.push(entries.iter().map(kind).collect());
            appends.len() - 1
        };
        self.pending.fetch_add(1, Ordering::Relaxed);
        let _done = Leaving(Arc::clone(&self.pending));
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.open.subscribe().wait_for(|open| number < *open).await.unwrap();
        let fault = self.faults.lock().unwrap().remove(&number);
        let failed = || SessionError::Other { session: id.to_owned(), message: format!("append {number} failed") };
        match fault {
            None => self.inner.append(id, expected, entries).await,
            Some(Fault::Refused) => Err(failed()),
            Some(Fault::Unheard) => {
                self.inner.append(id, expected, entries).await?;
                Err(failed())
            }
            Some(Fault::Panics) => panic!("append {number}"),
        }
    }
    async fn version(&self, id: &str) -> Result<u64, SessionError> {
        self.inner.version(id).await
    }
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        self.inner.list(after, limit).await
    }
    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        self.inner.delete(id).await
    }
}

/// Turns as they are stored, but for what is pending: a live turn says which calls it made, a stored one which are open.
pub fn settled<'a>(turns: impl IntoIterator<Item = &'a SessionTurn>) -> Vec<SessionTurn> {
    let mut turns: Vec<SessionTurn> = turns.into_iter().cloned().collect();
    turns.iter_mut().for_each(|turn| turn.pending.clear());
    turns
}

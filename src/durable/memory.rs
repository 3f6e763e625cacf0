use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;

use super::journal::{Hold, Journal, JournaledRun, MAX_RECORD_BYTES, Stored};
use super::{DurableError, DurableRun, DurableRuntime};
use crate::clock::{Clock, SystemClock};

/// Durable runs in memory: for tests, and where a run must only outlive its agent. Clones share the journal.
///
/// Keeps every run until [`forget`](Self::forget) is called.
#[derive(Clone)]
pub struct MemoryDurable {
    runs: Runs,
    clock: Arc<dyn Clock>,
    max_record_bytes: usize,
}

impl std::fmt::Debug for MemoryDurable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryDurable").field("max_record_bytes", &self.max_record_bytes).finish_non_exhaustive()
    }
}

impl Default for MemoryDurable {
    fn default() -> Self {
        Self { runs: Runs::default(), clock: Arc::new(SystemClock), max_record_bytes: MAX_RECORD_BYTES }
    }
}

impl MemoryDurable {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The largest record, in bytes of JSON. Default: 8 MiB.
    ///
    /// A tool result that would be larger is replaced by one that says so; any other step ends the run with
    /// [`DurableError::TooLarge`], and nothing of it is recorded.
    #[must_use]
    pub fn max_record_bytes(self, bytes: usize) -> Self {
        Self { max_record_bytes: bytes, ..self }
    }

    /// Where the times of records come from. Default: the system's clock.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The runs that were begun and have not come to their end, at most `limit`, in the order of their ids.
    #[must_use]
    pub fn unfinished(&self, limit: usize) -> Vec<String> {
        let runs = self.runs.lock();
        runs.kept.iter().filter(|(_, run)| !run.finished).map(|(id, _)| id.to_string()).take(limit).collect()
    }

    /// Drops what is on record of a run; true when there was anything. Who holds it can record nothing more.
    pub fn forget(&self, run_id: &str) -> bool {
        self.runs.lock().kept.remove(run_id).is_some()
    }
}

impl DurableRuntime for MemoryDurable {
    fn attach(&self, run_id: &str, _: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let run_id: Arc<str> = run_id.into();
        Box::pin(async move {
            let epoch = {
                let mut runs = self.runs.lock();
                // An epoch is never used twice, also where a run was forgotten and begun again.
                runs.attached = runs.attached.saturating_add(1);
                let epoch = runs.attached;
                runs.kept.entry(Arc::clone(&run_id)).or_default().epoch = epoch;
                epoch
            };
            let (clock, limit) = (Arc::clone(&self.clock), self.max_record_bytes);
            Ok(Arc::new(JournaledRun::new(self.runs.clone(), Hold { run_id, epoch }, clock, limit)) as _)
        })
    }
}

#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Shelf>>);

#[derive(Default)]
struct Shelf {
    kept: BTreeMap<Arc<str>, Kept>,
    attached: u64,
}

#[derive(Default)]
struct Kept {
    epoch: u64,
    finished: bool,
    /// By place; and how many there were before it.
    records: BTreeMap<u64, (usize, Arc<str>)>,
}

impl Shelf {
    fn held(&mut self, hold: &Hold) -> Result<&mut Kept, DurableError> {
        self.kept.get_mut(&hold.run_id).filter(|run| run.epoch == hold.epoch).ok_or_else(|| hold.fenced())
    }
}

impl Runs {
    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Runs {
    async fn read(&self, hold: &Hold, first: u64, count: u64) -> Result<Vec<Stored>, DurableError> {
        let mut shelf = self.lock();
        let run = shelf.held(hold)?;
        let range = run.records.range(first..first.saturating_add(count));
        let mut found: Vec<_> =
            range.map(|(place, (number, text))| (*number, Stored { place: *place, text: Arc::clone(text) })).collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        Ok(found.into_iter().map(|(_, stored)| stored).collect())
    }

    async fn write(&self, hold: &Hold, records: Vec<Stored>) -> Result<(), DurableError> {
        let mut shelf = self.lock();
        let run = shelf.held(hold)?;
        for Stored { place, text } in records {
            let number = run.records.len();
            run.records.insert(place, (number, text));
        }
        Ok(())
    }

    async fn finish(&self, hold: &Hold, place: u64) -> Result<Option<Stored>, DurableError> {
        let mut shelf = self.lock();
        let run = shelf.held(hold)?;
        let left = run.records.range(place..).next();
        let left = left.map(|(place, (_, text))| Stored { place: *place, text: Arc::clone(text) });
        run.finished |= left.is_none();
        Ok(left)
    }
}

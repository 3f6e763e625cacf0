use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, join_all};
use uuid::Uuid;

use crate::durable::{DurableError, DurableRun, DurableRuntime, Planned, StepCx, StepError, StepKey, StepRecord, Work};
use crate::types::Timestamp;

/// A durable runtime in memory that can stop a run at any step: for tests of what a run does when it is taken up.
///
/// Every record is kept as JSON text, as an engine would keep it. Times are counted, so that two runs of the same
/// steps have the same records.
#[derive(Clone, Debug, Default)]
pub struct StepJournal {
    runs: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    limit: Option<usize>,
}

impl StepJournal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy that begins with the first `records` of every run.
    #[must_use]
    pub fn prefix(&self, records: usize) -> Self {
        let mut runs = self.lock().clone();
        for run in runs.values_mut() {
            run.truncate(records);
        }
        Self { runs: Arc::new(Mutex::new(runs)), limit: None }
    }

    /// Stops a run, as a crash would, once it has this many records.
    #[must_use]
    pub fn stop_at(mut self, records: usize) -> Self {
        self.limit = Some(records);
        self
    }

    /// The records of a run, as they are stored.
    #[must_use]
    pub fn records(&self, run_id: &str) -> Vec<String> {
        self.lock().get(run_id).cloned().unwrap_or_default()
    }

    /// The keys of a run's records.
    #[must_use]
    pub fn keys(&self, run_id: &str) -> Vec<StepKey> {
        self.records(run_id)
            .iter()
            .filter_map(|text| serde_json::from_str::<StepRecord>(text).ok())
            .map(|record| record.key)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<String>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DurableRuntime for StepJournal {
    fn attach(&self, run_id: &str, _: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let run = JournaledRun {
            journal: self.clone(),
            run_id: run_id.to_owned(),
            place: AtomicU64::new(0),
            uuids: AtomicU64::new(0),
        };
        Box::pin(async move { Ok(Arc::new(run) as Arc<dyn DurableRun>) })
    }
}

struct JournaledRun {
    journal: StepJournal,
    run_id: String,
    place: AtomicU64,
    uuids: AtomicU64,
}

impl JournaledRun {
    fn recorded(&self, place: u64, key: &StepKey) -> Option<Result<StepRecord, DurableError>> {
        let runs = self.journal.lock();
        let text = runs.get(&self.run_id)?.get(usize::try_from(place).ok()?)?;
        Some(match serde_json::from_str::<StepRecord>(text) {
            Err(error) => Err(self.storage(&error)),
            Ok(record) if record.key != *key => Err(DurableError::Diverged {
                run_id: self.run_id.clone(),
                place,
                recorded: record.key,
                requested: key.clone(),
            }),
            Ok(mut record) => {
                record.replayed = true;
                Ok(record)
            }
        })
    }

    fn storage(&self, error: &serde_json::Error) -> DurableError {
        DurableError::Storage { run_id: self.run_id.clone(), message: error.to_string() }
    }

    fn interrupted(&self) -> DurableError {
        DurableError::Interrupted { run_id: self.run_id.clone() }
    }

    fn is_full(&self, place: u64) -> bool {
        self.journal.limit.is_some_and(|limit| usize::try_from(place).unwrap_or(usize::MAX) >= limit)
    }

    /// What stands at a place, or else what its body comes to.
    async fn outcome(&self, place: u64, key: StepKey, work: Work) -> Result<StepRecord, DurableError> {
        match self.recorded(place, &key) {
            Some(record) => record,
            None if self.is_full(place) => Err(self.interrupted()),
            None => {
                let Work::Step(body) = work;
                let outcome = match body(StepCx::default()).await {
                    Ok(value) => Ok(value),
                    Err(StepError::Fail(failure)) => Err(failure),
                    Err(StepError::Interrupted) => return Err(self.interrupted()),
                };
                let at = |offset: u64| Timestamp(1_000_000 + place.saturating_mul(10).saturating_add(offset));
                Ok(StepRecord::new(key, outcome, at(0), at(1)))
            }
        }
    }

    /// Stores a fresh record, and gives back what can be read of it.
    fn store(&self, record: StepRecord) -> Result<StepRecord, DurableError> {
        if record.replayed {
            return Ok(record);
        }
        let text = serde_json::to_string(&record).map_err(|error| self.storage(&error))?;
        let read_back = serde_json::from_str(&text).map_err(|error| self.storage(&error))?;
        self.journal.lock().entry(self.run_id.clone()).or_default().push(text);
        Ok(read_back)
    }
}

impl DurableRun for JournaledRun {
    fn run_id(&self) -> &str {
        &self.run_id
    }

    fn perform(&self, batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>> {
        let first = self.place.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Box::pin(async move {
            let mut bodies = Vec::with_capacity(batch.len());
            let mut settled = Vec::with_capacity(batch.len());
            for (place, planned) in (first..).zip(batch) {
                bodies.push(self.outcome(place, planned.key, planned.work));
                settled.push(planned.settled);
            }
            let mut records = Vec::with_capacity(bodies.len());
            for (outcome, settled) in join_all(bodies).await.into_iter().zip(settled) {
                let record = self.store(outcome?)?;
                if let Some(settled) = settled {
                    settled(&record);
                }
                records.push(record);
            }
            Ok(records)
        })
    }

    fn uuid(&self) -> Uuid {
        let n = self.uuids.fetch_add(1, Ordering::Relaxed);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}:{n}", self.run_id).as_bytes())
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        let place = self.place.load(Ordering::Relaxed);
        let left = self.journal.lock().get(&self.run_id).and_then(|run| run.get(usize::try_from(place).ok()?)).cloned();
        Box::pin(async move {
            let Some(text) = left else { return Ok(()) };
            let record: StepRecord = serde_json::from_str(&text).map_err(|error| self.storage(&error))?;
            Err(DurableError::Diverged {
                run_id: self.run_id.clone(),
                place,
                recorded: record.key,
                requested: StepKey { kind: crate::durable::StepKind::Custom, name: "the end of the run".to_owned() },
            })
        })
    }
}

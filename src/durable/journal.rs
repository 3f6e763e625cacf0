use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    DurableError, DurableRun, Planned, STEP_FORMAT, Settled, StepBody, StepCx, StepError, StepFailure, StepKey,
    StepKind, StepRecord, Work,
};
use crate::clock::Clock;
use crate::types::Timestamp;

/// The largest record, in bytes of JSON, where the host says nothing else.
pub(super) const MAX_RECORD_BYTES: usize = 8 * 1024 * 1024;

/// Where records are kept, by run and place. Whoever holds the run no more is told [`DurableError::Fenced`].
pub(super) trait Journal: Send + Sync + 'static {
    /// What stands at `count` places from `first` on, in the order in which it was written.
    fn read(
        &self,
        hold: &Hold,
        first: u64,
        count: u64,
    ) -> impl Future<Output = Result<Vec<Stored>, DurableError>> + Send;

    /// Writes records in this order, all or none.
    fn write(&self, hold: &Hold, records: Vec<Stored>) -> impl Future<Output = Result<(), DurableError>> + Send;

    /// What stands at the first taken place from `place` on. Where there is none, the run has come to its end.
    fn finish(&self, hold: &Hold, place: u64) -> impl Future<Output = Result<Option<Stored>, DurableError>> + Send;
}

/// A record as it is kept.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) place: u64,
    pub(super) text: Arc<str>,
}

/// A run in the hands of one process.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) run_id: Arc<str>,
    /// How often the run was opened before, and by this.
    pub(super) epoch: u64,
}

impl Hold {
    pub(super) fn fenced(&self) -> DurableError {
        DurableError::Fenced { run_id: self.run_id.to_string() }
    }
}

/// A run whose records are kept in a journal.
pub(super) struct JournaledRun<J> {
    journal: J,
    hold: Hold,
    clock: Arc<dyn Clock>,
    max_record_bytes: usize,
    place: AtomicU64,
    uuids: AtomicU64,
    /// The latest time on record: within a run time does not go back.
    latest: AtomicU64,
}

/// A step that is under way.
struct Step {
    index: usize,
    key: StepKey,
    settled: Option<Settled>,
}

/// A step whose body has ended.
struct Ended {
    step: Step,
    outcome: Result<serde_json::Value, StepError>,
    started_at: Timestamp,
    ended_at: Timestamp,
}

impl<J: Journal> JournaledRun<J> {
    pub(super) fn new(journal: J, hold: Hold, clock: Arc<dyn Clock>, max_record_bytes: usize) -> Self {
        let (place, uuids, latest) = Default::default();
        Self { journal, hold, clock, max_record_bytes, place, uuids, latest }
    }

    fn run_id(&self) -> String {
        self.hold.run_id.to_string()
    }

    async fn now(&self) -> Timestamp {
        let now = self.clock.now().await.0;
        Timestamp(self.latest.fetch_max(now, Ordering::Relaxed).max(now))
    }

    fn parse(&self, stored: &Stored) -> Result<StepRecord, DurableError> {
        #[derive(Deserialize)]
        struct Head {
            v: u32,
        }
        let parsed = serde_json::from_str::<StepRecord>(&stored.text);
        let v =
            parsed.as_ref().map_or_else(|_| serde_json::from_str(&stored.text).map_or(0, |Head { v }| v), |it| it.v);
        if v > STEP_FORMAT {
            let message =
                format!("the record of step {} is of format {v}, this version reads {STEP_FORMAT}", stored.place);
            return Err(DurableError::Version { run_id: self.run_id(), message });
        }
        let mut record = parsed.map_err(|error| {
            // What it was about to parse is not for an error's text.
            let message = format!("the record of step {} is damaged at byte {}", stored.place, error.column());
            DurableError::Storage { run_id: self.run_id(), message }
        })?;
        record.replayed = true;
        self.latest.fetch_max(record.ended_at.0, Ordering::Relaxed);
        Ok(record)
    }

    fn diverged(&self, place: u64, recorded: StepKey, requested: StepKey) -> DurableError {
        DurableError::Diverged { run_id: self.run_id(), place, recorded, requested }
    }

    async fn body(&self, step: Step, body: StepBody) -> Ended {
        let started_at = self.now().await;
        let cx = StepCx { abort: None, max_record_bytes: Some(self.max_record_bytes) };
        let outcome = body(cx).await;
        Ended { step, outcome, started_at, ended_at: self.now().await }
    }

    /// A fresh record, and how it is kept. `None` when the body was interrupted.
    fn encode(&self, first: u64, ended: Ended) -> Result<Option<Fresh>, DurableError> {
        let Ended { step: Step { index, key, settled }, outcome, started_at, ended_at } = ended;
        let outcome: Result<_, StepFailure> = match outcome {
            Ok(value) => Ok(value),
            Err(StepError::Fail(failure)) => Err(failure),
            Err(StepError::Interrupted) => return Ok(None),
        };
        let record = StepRecord::new(key, outcome, started_at, ended_at);
        let text = serde_json::to_string(&record)
            .map_err(|error| DurableError::Storage { run_id: self.run_id(), message: error.to_string() })?;
        if text.len() > self.max_record_bytes {
            let (bytes, limit) = (text.len(), self.max_record_bytes);
            return Err(DurableError::TooLarge { run_id: self.run_id(), key: record.key, bytes, limit });
        }
        let stored = Stored { place: first.saturating_add(index as u64), text: text.into() };
        Ok(Some(Fresh { index, record, settled, stored }))
    }

    /// Does what is left of a batch. A record is written as soon as its body has ended, with those that ended meanwhile.
    async fn live(
        &self,
        first: u64,
        steps: Vec<(Step, StepBody)>,
        records: &mut [Option<StepRecord>],
    ) -> Result<(), DurableError> {
        let mut running: FuturesUnordered<_> = steps.into_iter().map(|(step, body)| self.body(step, body)).collect();
        let mut ended = VecDeque::new();
        let (mut interrupted, mut refused) = (false, None);
        loop {
            if ended.is_empty() {
                let Some(next) = running.next().await else { break };
                ended.push_back(next);
            }
            while let Some(Some(more)) = running.next().now_or_never() {
                ended.push_back(more);
            }
            let (mut fresh, mut texts) = (Vec::new(), Vec::new());
            for ended in ended.drain(..) {
                match self.encode(first, ended) {
                    Ok(None) => interrupted = true,
                    Ok(Some(step)) => {
                        texts.push(step.stored.clone());
                        fresh.push(step);
                    }
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
            if !texts.is_empty() {
                let mut write = pin!(self.journal.write(&self.hold, texts));
                loop {
                    tokio::select! {
                        biased;
                        written = &mut write => break written?,
                        Some(more) = running.next() => ended.push_back(more),
                    }
                }
            }
            for Fresh { index, record, settled, .. } in fresh {
                if let Some(settled) = settled {
                    settled(&record);
                }
                if let Some(slot) = records.get_mut(index) {
                    *slot = Some(record);
                }
            }
        }
        match refused {
            Some(error) => Err(error),
            None if interrupted => Err(DurableError::Interrupted { run_id: self.run_id() }),
            None => Ok(()),
        }
    }

    async fn perform(&self, first: u64, batch: Vec<Planned>) -> Result<Vec<StepRecord>, DurableError> {
        let found = self.journal.read(&self.hold, first, batch.len() as u64).await?;
        let mut replayed = Vec::with_capacity(found.len());
        // All keys are held against the record before anything is done.
        for stored in &found {
            let record = self.parse(stored)?;
            let index = usize::try_from(stored.place.saturating_sub(first)).unwrap_or(usize::MAX);
            match batch.get(index) {
                Some(planned) if planned.key == record.key => replayed.push((index, record)),
                Some(planned) => return Err(self.diverged(stored.place, record.key, planned.key.clone())),
                None => {}
            }
        }
        let mut records: Vec<Option<StepRecord>> = batch.iter().map(|_| None).collect();
        let mut batch: Vec<_> = batch.into_iter().map(Some).collect();
        for (index, record) in replayed {
            if let Some(Planned { settled: Some(settled), .. }) = batch.get_mut(index).and_then(Option::take) {
                settled(&record);
            }
            if let Some(slot) = records.get_mut(index) {
                *slot = Some(record);
            }
        }
        let steps: Vec<_> = batch
            .into_iter()
            .enumerate()
            .filter_map(|(index, planned)| {
                let Planned { key, work: Work::Step(body), settled } = planned?;
                Some((Step { index, key, settled }, body))
            })
            .collect();
        if !steps.is_empty() {
            self.live(first, steps, &mut records).await?;
        }
        Ok(records.into_iter().flatten().collect())
    }
}

/// A record that is about to be written.
struct Fresh {
    index: usize,
    record: StepRecord,
    settled: Option<Settled>,
    stored: Stored,
}

impl<J: Journal> DurableRun for JournaledRun<J> {
    fn run_id(&self) -> &str {
        &self.hold.run_id
    }

    fn perform(&self, batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>> {
        let first = self.place.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Box::pin(self.perform(first, batch))
    }

    fn uuid(&self) -> Uuid {
        let n = self.uuids.fetch_add(1, Ordering::Relaxed);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}:{n}", self.hold.run_id).as_bytes())
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        let place = self.place.load(Ordering::Relaxed);
        Box::pin(async move {
            let Some(left) = self.journal.finish(&self.hold, place).await? else { return Ok(()) };
            let requested = StepKey { kind: StepKind::Custom, name: "the end of the run".to_owned() };
            Err(self.diverged(left.place, self.parse(&left)?.key, requested))
        })
    }
}

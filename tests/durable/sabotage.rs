//! Engines that break one promise each, which the conformance checks must find out.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, join_all};
use uuid::Uuid;
use zidane::durable::{
    DurableError, DurableRun, DurableRuntime, Planned, StepCx, StepError, StepFailure, StepKey, StepKind, StepRecord,
    Work,
};
use zidane::testing::{durable, run_check};
use zidane::types::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    Nothing,
    ForgetsRecords,
    ForgetsTheLast,
    ForgetsFailures,
    RecordsInterruptions,
    ChecksNoKeys,
    ChecksNamesOnly,
    RunsBeforeItChecks,
    NeverFences,
    TakesPlacesLate,
    RunsOneByOne,
    SettlesTwice,
    SettlesNever,
    SettlesAtTheEnd,
    SaysLive,
    TellsTheTimeAnew,
    EndsEarly,
    MakesIdsAnew,
    SharesIds,
    SharesRuns,
    RoundsNumbers,
    ReversesBatches,
}

#[derive(Default)]
struct Kept {
    epoch: u64,
    records: BTreeMap<u64, StepRecord>,
}

type Runs = Arc<Mutex<BTreeMap<String, Kept>>>;

/// An engine that keeps its promises, but for one.
struct Engine(Broken, Runs);

struct Handle {
    how: Broken,
    runs: Runs,
    run_id: String,
    epoch: u64,
    place: AtomicU64,
    uuids: AtomicU64,
}

impl DurableRuntime for Engine {
    fn attach(&self, run_id: &str, _: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let Self(how, runs) = self;
        let mut kept = runs.lock().unwrap();
        let run = kept.entry(shelf(*how, run_id)).or_default();
        run.epoch += 1;
        match how {
            Broken::ForgetsRecords => run.records.clear(),
            Broken::ForgetsTheLast => drop(run.records.pop_last()),
            _ => {}
        }
        let (runs, run_id, epoch) = (Arc::clone(runs), run_id.to_owned(), run.epoch);
        let handle = Handle { how: *how, runs, run_id, epoch, place: 0.into(), uuids: 0.into() };
        Box::pin(async move { Ok(Arc::new(handle) as Arc<dyn DurableRun>) })
    }
}

fn shelf(how: Broken, run_id: &str) -> String {
    if how == Broken::SharesRuns { run_id.to_lowercase() } else { run_id.to_owned() }
}

impl Handle {
    fn kept<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> Result<T, DurableError> {
        let mut runs = self.runs.lock().unwrap();
        let run = runs.get_mut(&shelf(self.how, &self.run_id)).unwrap();
        match run.epoch == self.epoch || self.how == Broken::NeverFences {
            true => Ok(work(run)),
            false => Err(DurableError::Fenced { run_id: self.run_id.clone() }),
        }
    }

    fn diverged(&self, place: u64, recorded: &StepRecord, requested: StepKey) -> DurableError {
        DurableError::Diverged { run_id: self.run_id.clone(), place, recorded: recorded.key.clone(), requested }
    }

    async fn step(&self, place: u64, planned: Planned) -> Result<StepRecord, DurableError> {
        let Planned { key, work, settled, .. } = planned;
        let Work::Step(body) = work else { panic!("a step") };
        let found = self.kept(|run| run.records.get(&place).cloned())?;
        let record = match found {
            Some(mut record) => {
                record.replayed = self.how != Broken::SaysLive;
                if self.how == Broken::TellsTheTimeAnew {
                    record.ended_at = Timestamp(record.ended_at.0 + self.epoch);
                }
                record
            }
            None => {
                let outcome = match (self.how, body(StepCx::default()).await) {
                    (_, Ok(value)) => Ok(value),
                    (_, Err(StepError::Fail(failure))) => Err(failure),
                    (Broken::RecordsInterruptions, Err(_)) => Err(StepFailure { message: "interrupted".into() }),
                    (_, Err(_)) => return Err(DurableError::Interrupted { run_id: self.run_id.clone() }),
                };
                let record = StepRecord::new(key, outcome, Timestamp(place), Timestamp(place + 1));
                let mut text = serde_json::to_string(&record).unwrap();
                if self.how == Broken::RoundsNumbers {
                    text = text.replace("1.5", "2.0");
                }
                let kept = serde_json::from_str(&text).unwrap();
                if self.how != Broken::ForgetsFailures || record.outcome.is_ok() {
                    self.kept(|run| run.records.insert(place, kept))?;
                }
                record
            }
        };
        match (self.how, settled) {
            (Broken::SettlesNever | Broken::SettlesAtTheEnd | Broken::SettlesTwice, _) | (_, None) => {}
            (_, Some(settled)) => settled(&record),
        }
        Ok(record)
    }

    async fn all(&self, first: u64, batch: Vec<Planned>) -> Result<Vec<StepRecord>, DurableError> {
        let check = |run: &mut Kept| {
            for (place, planned) in (first..).zip(&batch) {
                let Some(found) = run.records.get(&place) else { continue };
                let differs = match self.how {
                    Broken::ChecksNoKeys | Broken::RunsBeforeItChecks => false,
                    Broken::ChecksNamesOnly => found.key.name != planned.key.name,
                    _ => found.key != planned.key,
                };
                if differs {
                    return Err(self.diverged(place, found, planned.key.clone()));
                }
            }
            Ok(())
        };
        self.kept(check)??;
        let asked: Vec<_> = batch.iter().map(|planned| planned.key.clone()).collect();
        let steps: Vec<_> = (first..).zip(batch).map(|(place, planned)| self.step(place, planned)).collect();
        let mut records = Vec::new();
        if self.how == Broken::RunsOneByOne {
            for step in steps {
                records.push(step.await?);
            }
        } else {
            for record in join_all(steps).await {
                records.push(record?);
            }
        }
        for ((place, record), key) in (first..).zip(&records).zip(asked) {
            if self.how == Broken::RunsBeforeItChecks && record.key != key {
                return Err(self.diverged(place, record, key));
            }
        }
        if self.how == Broken::ReversesBatches {
            records.reverse();
        }
        Ok(records)
    }
}

impl DurableRun for Handle {
    fn run_id(&self) -> &str {
        &self.run_id
    }

    fn perform(&self, mut batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>> {
        let size = batch.len() as u64;
        let taken = (self.how != Broken::TakesPlacesLate).then(|| self.place.fetch_add(size, Ordering::Relaxed));
        let late = matches!(self.how, Broken::SettlesAtTheEnd | Broken::SettlesTwice);
        let settled: Vec<_> = batch.iter_mut().filter(|_| late).map(|planned| planned.settled.take()).collect();
        Box::pin(async move {
            let first = taken.unwrap_or_else(|| self.place.fetch_add(size, Ordering::Relaxed));
            let records = self.all(first, batch).await?;
            for (settled, record) in settled.into_iter().zip(&records) {
                if let Some(settled) = settled {
                    settled(record);
                }
            }
            Ok(records)
        })
    }

    fn uuid(&self) -> Uuid {
        let n = self.uuids.fetch_add(1, Ordering::Relaxed);
        let name = match self.how {
            Broken::MakesIdsAnew => format!("{} {n} {}", self.run_id, self.epoch),
            Broken::SharesIds => n.to_string(),
            _ => format!("{} {n}", self.run_id),
        };
        Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes())
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        let place = self.place.load(Ordering::Relaxed);
        Box::pin(async move {
            let left =
                self.kept(|run| run.records.range(place..).next().map(|(place, left)| (*place, left.clone())))?;
            match left {
                Some((place, left)) if self.how != Broken::EndsEarly => {
                    Err(self.diverged(place, &left, StepKey { kind: StepKind::Custom, name: "the end".into() }))
                }
                _ => Ok(()),
            }
        })
    }
}

/// How many checks find it out.
fn noticed(how: Broken) -> usize {
    macro_rules! checks {
        ($($check:ident)+) => {
            [$(catch_unwind(AssertUnwindSafe(|| {
                run_check(async {
                    // What waits for an engine forever need not be waited for.
                    tokio::time::pause();
                    durable::$check(&Engine(how, Runs::default())).await;
                });
            })).is_err()),+]
        };
    }
    let noticed = checks!(
        replays_what_it_recorded goes_on_after_the_records keeps_values records_failures_and_no_interruptions
        refuses_another_key refuses_to_end_early fences_the_holder_before takes_places_at_the_call
        runs_a_batch_side_by_side tells_of_each_record_once takes_a_drop_for_a_crash hands_out_the_same_ids
        keeps_runs_apart
    );
    noticed.into_iter().filter(|noticed| *noticed).count()
}

#[test]
fn an_engine_that_breaks_a_promise_is_found_out() {
    assert_eq!(noticed(Broken::Nothing), 0);
    for how in [
        Broken::ForgetsRecords,
        Broken::ForgetsTheLast,
        Broken::ForgetsFailures,
        Broken::RecordsInterruptions,
        Broken::ChecksNoKeys,
        Broken::ChecksNamesOnly,
        Broken::RunsBeforeItChecks,
        Broken::NeverFences,
        Broken::TakesPlacesLate,
        Broken::RunsOneByOne,
        Broken::SettlesTwice,
        Broken::SettlesNever,
        Broken::SettlesAtTheEnd,
        Broken::SaysLive,
        Broken::TellsTheTimeAnew,
        Broken::EndsEarly,
        Broken::MakesIdsAnew,
        Broken::SharesIds,
        Broken::SharesRuns,
        Broken::RoundsNumbers,
        Broken::ReversesBatches,
    ] {
        assert!(noticed(how) > 0, "{how:?} passes");
    }
}

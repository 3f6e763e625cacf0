//! What every durable engine must do. The checks panic where it does not: they are tests.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a failed check is a failed test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, join};
use serde_json::{Value, json};
use tokio::sync::{Barrier, oneshot};

use crate::durable::{
    DurableError, DurableRun, DurableRuntime, Planned, StepError, StepFailure, StepKey, StepKind, StepRecord,
};

/// What is waited for where an engine that breaks its contract would wait forever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Counts the bodies that began.
#[derive(Clone, Default)]
struct Bodies(Arc<AtomicUsize>);

impl Bodies {
    fn begun(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn step(&self, name: &str, outcome: Result<Value, StepError>) -> Planned {
        let count = Arc::clone(&self.0);
        body(name, async move {
            count.fetch_add(1, Ordering::SeqCst);
            outcome
        })
    }

    fn value(&self, name: &str, value: impl Into<Value>) -> Planned {
        self.step(name, Ok(value.into()))
    }
}

fn key(name: &str) -> StepKey {
    StepKey { kind: StepKind::Custom, name: name.to_owned() }
}

fn body(name: &str, body: impl Future<Output = Result<Value, StepError>> + Send + 'static) -> Planned {
    Planned::new(key(name), Box::new(move |_| Box::pin(body)))
}

async fn attach(runtime: &dyn DurableRuntime, run_id: &str) -> Arc<dyn DurableRun> {
    let run = patient(runtime.attach(run_id, None)).await.unwrap();
    assert_eq!(run.run_id(), run_id);
    run
}

async fn patient<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("the engine waits for something forever"))
}

async fn perform(run: &Arc<dyn DurableRun>, batch: Vec<Planned>) -> Vec<StepRecord> {
    let asked: Vec<_> = batch.iter().map(|planned| planned.key.clone()).collect();
    let records = patient(run.perform(batch)).await.unwrap();
    let keys: Vec<_> = records.iter().map(|record| record.key.clone()).collect();
    assert_eq!(keys, asked, "a record for each step, in the order of the batch");
    records
}

fn values(records: &[StepRecord]) -> Vec<Value> {
    records.iter().map(|record| record.outcome.clone().unwrap()).collect()
}

/// The same records, but for where they come from.
#[track_caller]
fn same(one: &[StepRecord], two: &[StepRecord]) {
    let bare = |record: &StepRecord| StepRecord { replayed: false, ..record.clone() };
    assert_eq!(one.iter().map(bare).collect::<Vec<_>>(), two.iter().map(bare).collect::<Vec<_>>());
}

/// What is recorded is handed out ever after, and its body never runs again.
pub async fn replays_what_it_recorded(runtime: &dyn DurableRuntime) {
    let bodies = Bodies::default();
    let steps = |bodies: &Bodies| vec![vec![bodies.value("a", 1)], vec![bodies.value("b", 2), bodies.value("c", 3)]];
    let mut first = Vec::new();
    let run = attach(runtime, "r").await;
    for batch in steps(&bodies) {
        first.extend(perform(&run, batch).await);
    }
    assert_eq!(values(&first), [json!(1), json!(2), json!(3)]);
    assert!(first.iter().all(|record| !record.replayed && record.started_at <= record.ended_at));
    patient(run.finish()).await.unwrap();
    for _ in 0..2 {
        let run = attach(runtime, "r").await;
        let mut again = Vec::new();
        for batch in steps(&bodies) {
            again.extend(perform(&run, batch).await);
        }
        assert!(again.iter().all(|record| record.replayed), "a replayed record says so");
        same(&again, &first);
        patient(run.finish()).await.unwrap();
    }
    assert_eq!(bodies.begun(), 3, "a recorded body ran again");
}

/// A run that is taken up goes on where the records end.
pub async fn goes_on_after_the_records(runtime: &dyn DurableRuntime) {
    let bodies = Bodies::default();
    for taken in 1..=5usize {
        let run = attach(runtime, "r").await;
        let mut replayed = Vec::new();
        for n in 0..taken {
            let record = perform(&run, vec![bodies.value(&n.to_string(), n)]).await.remove(0);
            assert_eq!(record.outcome, Ok(json!(n)));
            replayed.push(record.replayed);
        }
        assert_eq!(replayed, (0..taken).map(|n| n + 1 < taken).collect::<Vec<_>>());
    }
    assert_eq!(bodies.begun(), 5);
    let run = attach(runtime, "r").await;
    assert!(perform(&run, Vec::new()).await.is_empty(), "an empty batch takes no place");
    let all: Vec<_> = (0..6usize).map(|n| bodies.value(&n.to_string(), n)).collect();
    let records = perform(&run, all).await;
    assert_eq!(records.iter().map(|record| record.replayed).collect::<Vec<_>>(), [true, true, true, true, true, false]);
}

/// Values come back as they were.
pub async fn keeps_values(runtime: &dyn DurableRuntime) {
    let deep = (0..60).fold(json!(0), |inner, _| json!([inner]));
    let odd = [
        json!(null),
        json!([1.5, 0.1, 1e300, -0.0, u64::MAX, i64::MIN]),
        json!({"": {"\"\\": "\u{0}\n\u{2028}é\u{1F600}"}, "b": 1, "a": 2}),
        deep,
        json!("ä".repeat(300_000)),
    ];
    let bodies = Bodies::default();
    for round in 0..2 {
        let run = attach(runtime, "r").await;
        let batch =
            odd.iter().enumerate().map(|(n, value)| bodies.value(&format!("é/{n}/\n"), value.clone())).collect();
        let records = perform(&run, batch).await;
        assert_eq!(values(&records), odd, "round {round}");
        let texts = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&values(&records)), texts(&odd), "round {round}: byte for byte");
    }
    assert_eq!(bodies.begun(), odd.len());
}

/// A failure is a record; an interruption is none.
pub async fn records_failures_and_no_interruptions(runtime: &dyn DurableRuntime) {
    let failure = StepFailure { message: "no".to_owned() };
    let failing = Bodies::default();
    for round in 0..2 {
        let run = attach(runtime, "r").await;
        let records = perform(&run, vec![failing.step("fails", Err(StepError::Fail(failure.clone())))]).await;
        assert_eq!((records[0].outcome.clone(), records[0].replayed), (Err(failure.clone()), round == 1));
    }
    assert_eq!(failing.begun(), 1, "a recorded failure ran again");
    let run = attach(runtime, "r").await;
    perform(&run, vec![failing.step("fails", Err(StepError::Fail(failure)))]).await;
    let (before, cut) = (Bodies::default(), Bodies::default());
    let batch = vec![before.value("before", 1), cut.step("cut", Err(StepError::Interrupted))];
    match patient(run.perform(batch)).await {
        Err(DurableError::Interrupted { run_id }) => assert_eq!(run_id, "r"),
        other => panic!("an interrupted body ends the attempt, and there was {other:?}"),
    }
    let run = attach(runtime, "r").await;
    perform(&run, vec![failing.value("fails", 0)]).await;
    let records = perform(&run, vec![before.value("before", 1), cut.value("cut", 2)]).await;
    assert_eq!(values(&records), [json!(1), json!(2)]);
    assert!(!records[1].replayed, "an interruption was recorded");
    assert_eq!((failing.begun(), cut.begun()), (1, 2));
}

#[track_caller]
fn diverged<T: std::fmt::Debug>(answer: Result<T, DurableError>) -> (u64, StepKey, StepKey) {
    match answer {
        Err(error @ DurableError::Diverged { .. }) => {
            let text = error.to_string();
            let DurableError::Diverged { run_id, place, recorded, requested } = error else { panic!("{text}") };
            for part in [&run_id, &recorded.name, &requested.name] {
                assert!(text.contains(part), "{text}");
            }
            assert_eq!(run_id, "the run");
            (place, recorded, requested)
        }
        other => panic!("a divergence was expected, and there was {other:?}"),
    }
}

/// Another key at a recorded place is a divergence that names both; nothing runs, and the record stays.
pub async fn refuses_another_key(runtime: &dyn DurableRuntime) {
    let (recorded, other) = (Bodies::default(), Bodies::default());
    let run = attach(runtime, "the run").await;
    perform(&run, vec![recorded.value("a", 1)]).await;
    perform(&run, vec![recorded.value("b", 2)]).await;

    let run = attach(runtime, "the run").await;
    perform(&run, vec![recorded.value("a", 1)]).await;
    let renamed = patient(run.perform(vec![other.value("renamed", 0), other.value("new", 0)])).await;
    assert_eq!(diverged(renamed), (1, key("b"), key("renamed")));

    let run = attach(runtime, "the run").await;
    let mut kind = other.value("a", 0);
    kind.key.kind = StepKind::Tool;
    let (place, was, asked) = diverged(patient(run.perform(vec![kind])).await);
    assert_eq!((place, was.kind, asked.kind), (0, StepKind::Custom, StepKind::Tool));

    // Swapped within a batch.
    let run = attach(runtime, "the run").await;
    diverged(patient(run.perform(vec![other.value("b", 0), other.value("a", 0)])).await);
    assert_eq!(other.begun(), 0, "a body ran on a run that had diverged");

    let run = attach(runtime, "the run").await;
    let records = perform(&run, vec![recorded.value("a", 0), recorded.value("b", 0)]).await;
    assert_eq!(values(&records), [json!(1), json!(2)]);
    assert_eq!(recorded.begun(), 2);
}

/// A run that ends before its records do has diverged.
pub async fn refuses_to_end_early(runtime: &dyn DurableRuntime) {
    let bodies = Bodies::default();
    let run = attach(runtime, "the run").await;
    perform(&run, vec![bodies.value("a", 1), bodies.value("left over", 2)]).await;
    patient(run.finish()).await.unwrap();
    let run = attach(runtime, "the run").await;
    perform(&run, vec![bodies.value("a", 1)]).await;
    let (place, recorded, _) = diverged(patient(run.finish()).await);
    assert_eq!((place, recorded), (1, key("left over")));
}

/// Who held the run before can record nothing more, and is told so.
pub async fn fences_the_holder_before(runtime: &dyn DurableRuntime) {
    let (old, new) = (Bodies::default(), Bodies::default());
    let first = attach(runtime, "r").await;
    perform(&first, vec![old.value("a", "old")]).await;
    // A body that is under way while the run is taken over.
    let (begun, wait) = oneshot::channel();
    let (go_on, gone_on) = oneshot::channel::<()>();
    let late = body("b", async move {
        let _ = begun.send(());
        let _ = gone_on.await;
        Ok(json!("late"))
    });
    let taken = async {
        wait.await.unwrap();
        let second = attach(runtime, "r").await;
        perform(&second, vec![new.value("a", "new")]).await;
        go_on.send(()).unwrap();
        second
    };
    let (late, second) = patient(join(first.perform(vec![late]), taken)).await;
    let fenced = |answer: Result<_, DurableError>| match answer {
        Err(DurableError::Fenced { run_id }) => assert_eq!(run_id, "r"),
        other => panic!("the holder before was expected to be fenced off, and there was {other:?}"),
    };
    fenced(late.map(drop));
    fenced(patient(first.perform(vec![old.value("c", "old")])).await.map(drop));
    let records = perform(&second, vec![new.value("b", "new")]).await;
    assert_eq!(values(&records), [json!("new")], "the record of a holder that was fenced off is there");
    patient(second.finish()).await.unwrap();
    assert_eq!(new.begun(), 1);
    let third = attach(runtime, "r").await;
    let records = perform(&third, vec![new.value("a", 0), new.value("b", 0)]).await;
    assert_eq!(values(&records), [json!("old"), json!("new")]);
}

/// Places are taken when `perform` is called, whichever future is polled first.
pub async fn takes_places_at_the_call(runtime: &dyn DurableRuntime) {
    let bodies = Bodies::default();
    let run = attach(runtime, "r").await;
    let first = run.perform(vec![bodies.value("first", 1)]);
    let second = run.perform(vec![bodies.value("second", 2)]);
    let (second, first) = patient(join(second, first)).await;
    assert_eq!((values(&first.unwrap()), values(&second.unwrap())), (vec![json!(1)], vec![json!(2)]));
    let run = attach(runtime, "r").await;
    perform(&run, vec![bodies.value("first", 0)]).await;
    perform(&run, vec![bodies.value("second", 0)]).await;
    assert_eq!(bodies.begun(), 2);
}

/// The bodies of a batch run side by side.
pub async fn runs_a_batch_side_by_side(runtime: &dyn DurableRuntime) {
    let run = attach(runtime, "r").await;
    let barrier = Arc::new(Barrier::new(3));
    let batch = (0..3).map(|n| {
        let barrier = Arc::clone(&barrier);
        body(&n.to_string(), async move {
            barrier.wait().await;
            Ok(json!(n))
        })
    });
    assert_eq!(values(&perform(&run, batch.collect()).await), [json!(0), json!(1), json!(2)]);
}

/// `settled` is called once per step, with the record, as soon as it stands, live and replayed.
pub async fn tells_of_each_record_once(runtime: &dyn DurableRuntime) {
    let told = Arc::new(Mutex::new(Vec::new()));
    for round in 0..2 {
        let run = attach(runtime, "r").await;
        let (send, wait) = oneshot::channel();
        let mut batch = vec![
            body("quick", async { Ok(json!("quick")) }),
            body("slow", async move {
                // Ends only once the other is known to be on record.
                let _ = wait.await;
                Ok(json!("slow"))
            }),
        ];
        let mut send = Some(send);
        for planned in &mut batch {
            let (told, send) = (Arc::clone(&told), send.take());
            planned.settled = Some(Box::new(move |record| {
                told.lock().unwrap_or_else(PoisonError::into_inner).push(record.clone());
                if let Some(send) = send {
                    let _ = send.send(());
                }
            }));
        }
        let records = perform(&run, batch).await;
        let told: Vec<StepRecord> = std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
        assert_eq!(told, records, "round {round}");
        assert!(told.iter().all(|record| record.replayed == (round == 1)));
    }
}

/// Dropping `perform` is a crash: what was recorded stays, the rest runs again.
pub async fn takes_a_drop_for_a_crash(runtime: &dyn DurableRuntime) {
    let bodies = Bodies::default();
    let run = attach(runtime, "r").await;
    perform(&run, vec![bodies.value("a", 1)]).await;
    let (begun, wait) = oneshot::channel();
    let stuck = body("b", async move {
        let _ = begun.send(());
        std::future::pending().await
    });
    let performed: BoxFuture<'_, _> = run.perform(vec![stuck]);
    tokio::select! {
        _ = performed => panic!("a body that never ends has ended"),
        begun = patient(wait) => begun.unwrap(),
    }
    drop(run);
    let run = attach(runtime, "r").await;
    let records = perform(&run, vec![bodies.value("a", 1), bodies.value("b", 2)]).await;
    assert_eq!(records.iter().map(|record| record.replayed).collect::<Vec<_>>(), [true, false]);
    assert_eq!((values(&records), bodies.begun()), (vec![json!(1), json!(2)], 2));
}

/// Ids are the same on every attempt, and no other run's.
pub async fn hands_out_the_same_ids(runtime: &dyn DurableRuntime) {
    let mut seen: Vec<Vec<_>> = Vec::new();
    for run in ["r", "r", "s"] {
        let run = attach(runtime, run).await;
        let mut ids = vec![run.uuid(), run.uuid()];
        perform(&run, vec![Bodies::default().value("a", 1)]).await;
        ids.push(run.uuid());
        seen.push(ids);
    }
    assert_eq!(seen[0], seen[1], "the same on every attempt");
    let mut all: Vec<_> = seen[0].iter().chain(&seen[2]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6, "none twice");
}

/// Runs have nothing to do with each other, whatever their ids look like.
pub async fn keeps_runs_apart(runtime: &dyn DurableRuntime) {
    let ids = ["r", "R", "r/", "r/a", "../r", " r", "é", "e\u{301}", "'; --", "r:0", "%72"];
    let mut runs = Vec::new();
    for id in ids {
        runs.push(attach(runtime, id).await);
    }
    let bodies = Bodies::default();
    for (id, run) in ids.iter().zip(&runs) {
        assert!(!perform(run, vec![bodies.value("a", *id)]).await[0].replayed, "{id:?}");
    }
    for id in ids {
        let run = attach(runtime, id).await;
        assert_eq!(values(&perform(&run, vec![bodies.value("a", 0)]).await), [json!(id)]);
    }
    assert_eq!(bodies.begun(), ids.len());
}

/// Tests that a durable engine keeps its contract: a module of `#[test]`s.
///
/// Takes a name for the module and an expression that makes an engine without runs, which may await.
///
/// ```
/// zidane::testing::durable_conformance!(memory, zidane::durable::MemoryDurable::new());
/// # fn main() {}
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! __durable_conformance {
    ($name:ident, $runtime:expr) => {
        $crate::__conformance!(
            $name, $runtime, durable:
            replays_what_it_recorded goes_on_after_the_records keeps_values records_failures_and_no_interruptions
            refuses_another_key refuses_to_end_early fences_the_holder_before takes_places_at_the_call
            runs_a_batch_side_by_side tells_of_each_record_once takes_a_drop_for_a_crash hands_out_the_same_ids
            keeps_runs_apart
        );
    };
}

pub use crate::__durable_conformance as durable_conformance;

//! An engine around another one, which stops an attempt as a crash would, or spoils its keys.
#![allow(unreachable_pub)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use uuid::Uuid;
use zidane::durable::{DurableError, DurableRun, DurableRuntime, Planned, StepKind, StepRecord};

/// Where an attempt ends.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    Never,
    /// Before the step at this place.
    At(usize),
    /// Before the first step of this kind.
    Before(StepKind),
    /// Nowhere, but the step at this place has another name.
    Renamed(usize),
}

pub struct Stopping {
    pub inner: Arc<dyn DurableRuntime>,
    pub stop: Stop,
    /// Steps that were asked for.
    pub asked: Arc<AtomicUsize>,
}

impl Stopping {
    pub fn new(inner: &Arc<dyn DurableRuntime>, stop: Stop) -> Arc<Self> {
        Arc::new(Self { inner: Arc::clone(inner), stop, asked: Arc::default() })
    }
}

struct Attempt {
    inner: Arc<dyn DurableRun>,
    stop: Stop,
    asked: Arc<AtomicUsize>,
}

impl DurableRuntime for Stopping {
    fn attach(&self, run_id: &str, parent: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
        let (run_id, parent) = (run_id.to_owned(), parent.map(str::to_owned));
        Box::pin(async move {
            let inner = self.inner.attach(&run_id, parent.as_deref()).await?;
            Ok(Arc::new(Attempt { inner, stop: self.stop, asked: Arc::clone(&self.asked) }) as Arc<dyn DurableRun>)
        })
    }
}

impl DurableRun for Attempt {
    fn run_id(&self) -> &str {
        self.inner.run_id()
    }

    fn perform(&self, mut batch: Vec<Planned>) -> BoxFuture<'_, Result<Vec<StepRecord>, DurableError>> {
        let first = self.asked.fetch_add(batch.len(), Ordering::SeqCst);
        let kept = match self.stop {
            Stop::At(place) => place.saturating_sub(first).min(batch.len()),
            Stop::Before(kind) => batch.iter().position(|planned| planned.key.kind == kind).unwrap_or(batch.len()),
            Stop::Never => batch.len(),
            Stop::Renamed(place) => {
                if let Some(planned) = place.checked_sub(first).and_then(|index| batch.get_mut(index)) {
                    planned.key.name.push_str("/renamed");
                }
                batch.len()
            }
        };
        let whole = kept == batch.len();
        batch.truncate(kept);
        let performed = self.inner.perform(batch);
        Box::pin(async move {
            let records = performed.await?;
            if whole { Ok(records) } else { Err(DurableError::Interrupted { run_id: self.run_id().to_owned() }) }
        })
    }

    fn uuid(&self) -> Uuid {
        self.inner.uuid()
    }

    fn finish(&self) -> BoxFuture<'_, Result<(), DurableError>> {
        self.inner.finish()
    }
}

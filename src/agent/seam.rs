use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::durable::{DurableError, DurableRun, Planned, StepBody, StepCx, StepError, StepKey, StepKind, StepRecord};
use crate::types::Timestamp;

/// A named step of the loop. It owns what it needs; its effect on the run is what it returns.
pub(super) trait Job: Sized + Send + 'static {
    type Out: Serialize + DeserializeOwned + Send + 'static;
    const KIND: StepKind;
    /// Where in the run; asked for only when steps are recorded.
    fn name(&self) -> String;
    fn run(self, cx: StepCx) -> impl Future<Output = Result<Self::Out, StepError>> + Send + 'static;
}

/// What a step came to.
pub(super) struct Done<T> {
    pub(super) out: T,
    /// When it ended, where that is on record.
    pub(super) at: Option<Timestamp>,
    pub(super) replayed: bool,
}

/// Why a step came to nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SeamError {
    #[error(transparent)]
    Durable(#[from] DurableError),
    #[error("step failed: {0}")]
    Failed(String),
    #[error("a recorded step cannot be read: {0}")]
    Unreadable(String),
}

/// How steps are done: directly and typed, or through a durable run.
#[derive(Clone)]
pub(super) enum Seam {
    Direct,
    Durable(Arc<dyn DurableRun>),
}

impl Seam {
    pub(super) const fn is_durable(&self) -> bool {
        matches!(self, Self::Durable(_))
    }

    /// Does one step.
    pub(super) async fn one<J: Job>(&self, job: J) -> Result<Done<J::Out>, SeamError> {
        match self {
            Self::Direct => direct(job).await,
            Self::Durable(run) => {
                let mut records = run.perform(vec![plan(job)]).await?;
                records.pop().ok_or_else(|| SeamError::Failed("the engine returned no record".into())).and_then(done)
            }
        }
    }

    /// Does several steps, at most `cap` at once.
    pub(super) fn batch<J: Job>(&self, jobs: Vec<J>, cap: usize) -> Batch<J> {
        match self {
            Self::Direct if jobs.len() == 1 => Batch::Lone(jobs.into_iter().next().map(|job| alone(0, job))),
            Self::Direct => Batch::Direct {
                waiting: jobs.into_iter().enumerate().collect(),
                running: FuturesUnordered::new(),
                cap,
                waited: false,
            },
            Self::Durable(run) => Batch::durable(Arc::clone(run), jobs),
        }
    }
}

fn direct<J: Job>(job: J) -> impl Future<Output = Result<Done<J::Out>, SeamError>> + Send + 'static {
    // Mapped and not awaited in a block, which would hold the job twice.
    job.run(StepCx::default()).map(|ended| match ended {
        Ok(out) => Ok(Done { out, at: None, replayed: false }),
        Err(StepError::Fail(failure)) => Err(SeamError::Failed(failure.message)),
        Err(StepError::Interrupted) => Err(SeamError::Failed("interrupted".into())),
    })
}

fn alone<J: Job>(index: usize, job: J) -> BoxFuture<'static, Settled<J::Out>> {
    Box::pin(direct(job).map(move |done| (index, done)))
}

fn plan<J: Job>(job: J) -> Planned {
    let key = StepKey { kind: J::KIND, name: job.name() };
    let body: StepBody = Box::new(move |cx| {
        Box::pin(async move {
            let out = job.run(cx).await?;
            serde_json::to_value(out)
                .map_err(|error| StepError::Fail(crate::durable::StepFailure { message: error.to_string() }))
        })
    });
    Planned::new(key, body)
}

fn done<T: DeserializeOwned>(record: StepRecord) -> Result<Done<T>, SeamError> {
    let value = record.outcome.map_err(|failure| SeamError::Failed(failure.message))?;
    let out =
        serde_json::from_value(value).map_err(|error| SeamError::Unreadable(format!("{}: {error}", record.key)))?;
    Ok(Done { out, at: Some(record.ended_at), replayed: record.replayed })
}

/// The index of a step in its batch, and what it came to.
pub(super) type Settled<T> = (usize, Result<Done<T>, SeamError>);

/// Steps under way. Dropping it drops their bodies.
pub(super) enum Batch<J: Job> {
    /// A single one, as most are. A set of futures would wake its task once for nothing.
    Lone(Option<BoxFuture<'static, Settled<J::Out>>>),
    Direct {
        waiting: VecDeque<(usize, J)>,
        running: FuturesUnordered<BoxFuture<'static, Settled<J::Out>>>,
        cap: usize,
        /// Nothing was done when it was last asked.
        waited: bool,
    },
    Durable {
        records: mpsc::Receiver<(usize, StepRecord)>,
        perform: Option<BoxFuture<'static, Result<Vec<StepRecord>, DurableError>>>,
        delivered: Vec<bool>,
        rest: VecDeque<(usize, StepRecord)>,
    },
}

impl<J: Job> Batch<J> {
    fn durable(run: Arc<dyn DurableRun>, jobs: Vec<J>) -> Self {
        let (sender, records) = mpsc::channel(jobs.len().max(1));
        let delivered = vec![false; jobs.len()];
        let batch = jobs
            .into_iter()
            .enumerate()
            .map(|(index, job)| {
                let sender = sender.clone();
                let mut planned = plan(job);
                // The channel holds the whole batch, so this never finds it full.
                planned.settled = Some(Box::new(move |record| drop(sender.try_send((index, record.clone())))));
                planned
            })
            .collect();
        let perform = Box::pin(async move { run.perform(batch).await });
        Self::Durable { records, perform: Some(perform), delivered, rest: VecDeque::new() }
    }

    /// The next step that is done, with its index in the batch: in the order in which they end where they run
    /// directly, in the order of the records otherwise. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Settled<J::Out>> {
        match self {
            Self::Lone(job) => {
                let settled = job.as_mut()?.await;
                *job = None;
                Some(settled)
            }
            Self::Direct { waiting, running, cap, waited } => {
                while running.len() < (*cap).max(1) {
                    let Some((index, job)) = waiting.pop_front() else { break };
                    running.push(alone(index, job));
                }
                poll_fn(|cx| {
                    // Steps that end together are taken together: what woke us may be the first of many.
                    if std::mem::take(waited) && running.len() > 1 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let next = running.poll_next_unpin(cx);
                    *waited = next.is_pending();
                    next
                })
                .await
            }
            Self::Durable { records, perform, delivered, rest } => loop {
                if let Some((index, record)) = rest.pop_front() {
                    return Some((index, done(record)));
                }
                let Some(future) = perform else { return None };
                tokio::select! {
                    biased;
                    Some((index, record)) = records.recv() => {
                        if let Some(seen) = delivered.get_mut(index) {
                            *seen = true;
                        }
                        return Some((index, done(record)));
                    }
                    result = future => {
                        *perform = None;
                        match result {
                            Err(error) => return Some((usize::MAX, Err(error.into()))),
                            Ok(all) => {
                                while let Ok((index, record)) = records.try_recv() {
                                    if let Some(seen) = delivered.get_mut(index) {
                                        *seen = true;
                                    }
                                    rest.push_back((index, record));
                                }
                                // An engine that does not call `settled` still hands everything back here.
                                rest.extend(all.into_iter().enumerate().filter(|(index, _)| delivered.get(*index) == Some(&false)));
                            }
                        }
                    }
                }
            },
        }
    }
}

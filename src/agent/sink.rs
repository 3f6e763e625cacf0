use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures::Stream;
use futures::future::BoxFuture;

use super::{AgentEvent, RunError, RunOutcome};
use crate::provider::ReaderAway;

/// Where the loop puts events: room for one, so that a slow reader slows the run.
#[derive(Clone, Default)]
pub(super) struct Sink {
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    event: Option<AgentEvent>,
    sender: Option<Waker>,
}

impl Sink {
    /// Waits for room, then puts the event. Cancel safe: an event whose future is dropped was not put.
    pub(super) async fn send(&self, event: AgentEvent) {
        let mut event = Some(event);
        std::future::poll_fn(|cx| {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.event.is_some() {
                match &mut slot.sender {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    sender => *sender = Some(cx.waker().clone()),
                }
                return Poll::Pending;
            }
            slot.event = event.take();
            Poll::Ready(())
        })
        .await;
    }

    fn take(&self, cx: &Context<'_>) -> Option<AgentEvent> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let event = slot.event.take()?;
        // A sender in this very task is polled again anyway.
        if let Some(waker) = slot.sender.take_if(|waker| !waker.will_wake(cx.waker())) {
            drop(slot);
            waker.wake();
        }
        Some(event)
    }
}

/// A run as a stream of events. Pull based: the run goes on only while the stream is polled, and dropping it drops
/// the run. The last event is [`AgentEvent::Done`].
pub struct AgentStream {
    sink: Sink,
    run: Option<BoxFuture<'static, Result<RunOutcome, RunError>>>,
    done: Option<Result<RunOutcome, RunError>>,
    away: Arc<ReaderAway>,
    left_at: Option<Instant>,
}

impl AgentStream {
    pub(super) fn new(
        sink: Sink,
        away: Arc<ReaderAway>,
        run: BoxFuture<'static, Result<RunOutcome, RunError>>,
    ) -> Self {
        Self { sink, run: Some(run), done: None, away, left_at: None }
    }

    fn give(&mut self, event: AgentEvent) -> Poll<Option<AgentEvent>> {
        self.left_at = Some(Instant::now());
        Poll::Ready(Some(event))
    }
}

impl Stream for AgentStream {
    type Item = AgentEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        let this = &mut *self;
        if let Some(left_at) = this.left_at.take() {
            this.away.add(left_at.elapsed());
        }
        if let Some(event) = this.sink.take(cx) {
            return this.give(event);
        }
        if let Some(run) = &mut this.run
            && let Poll::Ready(result) = run.as_mut().poll(cx)
        {
            this.run = None;
            this.done = Some(result);
        }
        if let Some(event) = this.sink.take(cx) {
            return this.give(event);
        }
        if let Some(result) = this.done.take() {
            return this.give(AgentEvent::Done(result.map(Box::new)));
        }
        if this.run.is_some() { Poll::Pending } else { Poll::Ready(None) }
    }
}

impl std::fmt::Debug for AgentStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentStream").field("ended", &self.run.is_none()).finish_non_exhaustive()
    }
}

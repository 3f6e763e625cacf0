use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::Stream;
use futures::future::BoxFuture;
use futures::task::AtomicWaker;

use super::{AgentEvent, RunError, RunOutcome};
use crate::provider::ReaderAway;

/// How many deltas that came in one piece from the network may wait for the reader.
const BURST: usize = 32;

/// Where the loop puts events: room for one, so that a slow reader slows the run; or for a burst of deltas, which
/// nothing waits for.
#[derive(Clone, Default)]
pub(super) struct Sink {
    slot: Arc<Mutex<Slot>>,
}

#[derive(Default)]
struct Slot {
    events: VecDeque<AgentEvent>,
    sender: Option<Waker>,
}

impl Slot {
    fn has_room(&self, event: Option<&AgentEvent>) -> bool {
        match (self.events.back(), event) {
            (Some(last), Some(event)) => is_delta(last) && is_delta(event) && self.events.len() < BURST,
            _ => true,
        }
    }
}

fn is_delta(event: &AgentEvent) -> bool {
    // One of a child holds the event itself, never another of a child.
    let event = if let AgentEvent::Child { event, .. } = event { event } else { event };
    matches!(event, AgentEvent::Text { .. } | AgentEvent::Thinking { .. })
}

impl Sink {
    /// Waits for room, then puts the event. Cancel safe: an event whose future is dropped was not put.
    pub(super) async fn send(&self, event: AgentEvent) {
        let mut event = Some(event);
        std::future::poll_fn(|cx| {
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.has_room(event.as_ref()) {
                if let Some(event) = event.take() {
                    slot.events.push_back(event);
                }
                return Poll::Ready(());
            }
            match &mut slot.sender {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                sender => *sender = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await;
    }

    /// Takes all events, and who waits for room.
    fn take(&self, events: &mut VecDeque<AgentEvent>) -> Option<Waker> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut slot.events, events);
        slot.sender.take()
    }
}

/// Wakes the reader on behalf of the run, and remembers that the run has something to do: a reader that comes back for
/// the next event asks far more often than that.
struct Signal {
    woken: AtomicBool,
    reader: AtomicWaker,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.reader.wake();
    }
}

/// A run as a stream of events. Pull based: the run goes on only while the stream is polled, and dropping it drops
/// the run. The last event is [`AgentEvent::Done`].
pub struct AgentStream {
    sink: Sink,
    /// Events taken from the sink and not yet read.
    ready: VecDeque<AgentEvent>,
    run: Option<BoxFuture<'static, Result<RunOutcome, RunError>>>,
    done: Option<Result<RunOutcome, RunError>>,
    signal: Arc<Signal>,
    /// The signal, as the run gets it.
    waker: Waker,
    away: Arc<ReaderAway>,
}

impl AgentStream {
    pub(super) fn new(
        sink: Sink,
        away: Arc<ReaderAway>,
        run: BoxFuture<'static, Result<RunOutcome, RunError>>,
    ) -> Self {
        let signal = Arc::new(Signal { woken: AtomicBool::new(true), reader: AtomicWaker::new() });
        let waker = Waker::from(Arc::clone(&signal));
        Self { sink, ready: VecDeque::new(), run: Some(run), done: None, signal, waker, away }
    }

    /// Lets the run go on, if there is reason to.
    fn go_on(&mut self, cx: &Context<'_>) {
        // In this order: what wakes the run from here on wakes this reader, and what did so before shows in the flag.
        self.signal.reader.register(cx.waker());
        if !self.signal.woken.swap(false, Ordering::AcqRel) {
            return;
        }
        if let Some(run) = &mut self.run
            && let Poll::Ready(result) = run.as_mut().poll(&mut Context::from_waker(&self.waker))
        {
            self.run = None;
            self.done = Some(result);
        }
    }

    fn take(&mut self) {
        let Some(sender) = self.sink.take(&mut self.ready) else { return };
        if sender.will_wake(&self.waker) {
            // The run itself: it is polled when the reader is through with these events.
            self.signal.woken.store(true, Ordering::Release);
        } else {
            sender.wake();
        }
    }

    fn next_ready(&mut self) -> Option<AgentEvent> {
        let event = self.ready.pop_front()?;
        self.away.left();
        Some(event)
    }
}

impl Stream for AgentStream {
    type Item = AgentEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        let this = &mut *self;
        if let Some(event) = this.next_ready() {
            return Poll::Ready(Some(event));
        }
        this.go_on(cx);
        this.take();
        if let Some(event) = this.next_ready() {
            return Poll::Ready(Some(event));
        }
        if let Some(result) = this.done.take() {
            return Poll::Ready(Some(AgentEvent::Done(result.map(Box::new).map_err(Box::new))));
        }
        if this.run.is_none() {
            return Poll::Ready(None);
        }
        this.away.waits();
        Poll::Pending
    }
}

impl std::fmt::Debug for AgentStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentStream").field("ended", &self.run.is_none()).finish_non_exhaustive()
    }
}

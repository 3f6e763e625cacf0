//! Floor 3: what anybody may do to an agent from outside its loop: steer, follow up, abort, drain, wait.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::types::Prompt;

/// Names a queued message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(pub u64);

/// A message that waits to be delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// Its id.
    pub id: MessageId,
    /// What it says.
    pub prompt: Prompt,
}

/// The queue of messages is full; the message was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue already holds {limit} messages")]
pub struct QueueFull {
    /// How many it holds.
    pub limit: usize,
}

/// Which of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QueueKind {
    /// Delivered at the next turn boundary of the run.
    Steering,
    /// Delivered when the run would end.
    FollowUp,
}

/// A handle to a running, or idle, agent. Cheap to clone; owns neither hooks nor tools nor history.
#[derive(Clone, Debug)]
pub struct AgentHandle {
    control: Arc<Control>,
}

impl AgentHandle {
    pub(crate) fn new(queue_limit: usize) -> Self {
        Self { control: Arc::new(Control { state: Mutex::new(State::new(queue_limit)), idle: Notify::new() }) }
    }

    /// Queues a message for the next turn boundary, where every call is answered. Between runs it waits for the next
    /// run.
    ///
    /// # Errors
    /// [`QueueFull`]; the message was not taken.
    pub fn steer(&self, message: impl Into<Prompt>) -> Result<MessageId, QueueFull> {
        self.control.lock().push(QueueKind::Steering, message.into())
    }

    /// Queues a message for when the run would end by itself; one is delivered at a time.
    ///
    /// # Errors
    /// [`QueueFull`]; the message was not taken.
    pub fn follow_up(&self, message: impl Into<Prompt>) -> Result<MessageId, QueueFull> {
        self.control.lock().push(QueueKind::FollowUp, message.into())
    }

    /// Ends the current run: tokens are cancelled at once, and the run settles with `StopCause::Aborted` when it is
    /// polled next. Aborting twice is the same as once; without a run nothing happens.
    pub fn abort(&self) {
        if let Some(token) = self.control.lock().run.as_ref().map(|run| run.abort.clone()) {
            token.cancel();
        }
    }

    /// Ends the current run after its current turn, calls included, with `StopCause::Drained`; the next run goes on
    /// from there. Without a run nothing happens.
    pub fn drain(&self) {
        if let Some(run) = self.control.lock().run.as_mut() {
            run.halt.get_or_insert(Halt::Drain);
        }
    }

    /// Ends the current run after its current turn, because it goes in circles.
    pub(crate) fn stop_for_loop(&self) {
        if let Some(run) = self.control.lock().run.as_mut() {
            run.halt = Some(Halt::Loop);
        }
    }

    /// Whether a run is active: started, and neither ended nor dropped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.control.lock().run.is_some()
    }

    /// Resolves when no run is active. Cancel safe.
    pub async fn wait_for_idle(&self) {
        loop {
            let idle = self.control.idle.notified();
            if !self.is_running() {
                return;
            }
            idle.await;
        }
    }

    /// The messages that wait, oldest first.
    #[must_use]
    pub fn queued(&self, kind: QueueKind) -> Vec<QueuedMessage> {
        self.control.lock().queue(kind).iter().cloned().collect()
    }

    /// Takes a waiting message back. `None` when it was delivered, or never was.
    #[must_use]
    pub fn unqueue(&self, id: MessageId) -> Option<QueuedMessage> {
        let mut state = self.control.lock();
        [QueueKind::Steering, QueueKind::FollowUp].into_iter().find_map(|kind| {
            let queue = state.queue(kind);
            let index = queue.iter().position(|message| message.id == id)?;
            queue.remove(index)
        })
    }

    /// Claims the agent for a run. An abort of `above` aborts it too.
    pub(crate) fn begin(&self, above: Option<&CancellationToken>) -> Option<RunClaim> {
        let mut state = self.control.lock();
        if state.run.is_some() {
            return None;
        }
        let abort = above.map_or_else(CancellationToken::new, CancellationToken::child_token);
        state.run = Some(ActiveRun { abort: abort.clone(), halt: None });
        Some(RunClaim { handle: self.clone(), abort })
    }

    pub(crate) fn has_queued(&self, kind: QueueKind) -> bool {
        !self.control.lock().queue(kind).is_empty()
    }

    /// Removes messages that were committed.
    pub(crate) fn delivered(&self, kind: QueueKind, ids: &[MessageId]) {
        self.control.lock().queue(kind).retain(|message| !ids.contains(&message.id));
    }

    pub(crate) fn halt(&self) -> Option<Halt> {
        self.control.lock().run.as_ref().and_then(|run| run.halt)
    }
}

/// The one active run. Dropping it, however the run ended, leaves the agent idle.
#[derive(Debug)]
pub(crate) struct RunClaim {
    handle: AgentHandle,
    pub(crate) abort: CancellationToken,
}

impl Drop for RunClaim {
    fn drop(&mut self) {
        // Bodies that are still around end with the run.
        self.abort.cancel();
        self.handle.control.lock().run = None;
        self.handle.control.idle.notify_waiters();
    }
}

#[derive(Debug)]
struct Control {
    state: Mutex<State>,
    idle: Notify,
}

impl Control {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    steering: VecDeque<QueuedMessage>,
    follow_ups: VecDeque<QueuedMessage>,
    limit: usize,
    next_id: u64,
    run: Option<ActiveRun>,
}

#[derive(Debug)]
struct ActiveRun {
    abort: CancellationToken,
    halt: Option<Halt>,
}

/// Why a run is to end after its current turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Halt {
    /// The host wants it to pause.
    Drain,
    /// It goes in circles.
    Loop,
}

impl State {
    const fn new(limit: usize) -> Self {
        Self { steering: VecDeque::new(), follow_ups: VecDeque::new(), limit, next_id: 1, run: None }
    }

    const fn queue(&mut self, kind: QueueKind) -> &mut VecDeque<QueuedMessage> {
        match kind {
            QueueKind::Steering => &mut self.steering,
            QueueKind::FollowUp => &mut self.follow_ups,
        }
    }

    fn push(&mut self, kind: QueueKind, prompt: Prompt) -> Result<MessageId, QueueFull> {
        let limit = self.limit;
        if self.queue(kind).len() >= limit {
            return Err(QueueFull { limit });
        }
        let id = MessageId(self.next_id);
        self.next_id += 1;
        self.queue(kind).push_back(QueuedMessage { id, prompt });
        Ok(id)
    }
}

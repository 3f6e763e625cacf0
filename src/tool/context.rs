use std::any::Any;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Extensions, ToolOutput};
use crate::control::AgentHandle;
use crate::decision::{
    Deciding, DecisionDesk, DecisionEvidence, DecisionFailureReason, DecisionRequest, Question, never,
};
use crate::tool_state::{Settled, ToolStateOp, ToolStateSnapshot, ToolStateView};
use crate::types::ToolOutcome;

/// What a tool is given beside its arguments: who calls, whether to stop, and where to report.
///
/// Owned and cheap to clone; clones are the same context. Once the call has settled (its body returned, or was cut), a
/// clone that lives on can still read, and everything that would add to the call gives [`Settled`].
#[derive(Clone)]
pub struct ToolContext {
    inner: Arc<Inner>,
}

struct Inner {
    parts: ToolContextParts,
    report: Mutex<Report>,
    sealed: Notify,
}

#[derive(Default)]
struct Report {
    outcome: Option<ToolOutcome>,
    interrupted: bool,
    sealed: bool,
}

/// What the loop builds a context from.
pub(crate) struct ToolContextParts {
    pub(crate) call_id: Arc<str>,
    pub(crate) turn_id: Arc<str>,
    pub(crate) run_id: Arc<str>,
    pub(crate) session_id: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) display_name: Arc<str>,
    /// Set where the call continues one of an earlier run; else it is made of run and call.
    pub(crate) idempotency_key: Option<Arc<str>>,
    /// The call's own token, a child of the run's.
    pub(crate) cancel: CancellationToken,
    pub(crate) state: ToolStateView,
    /// Where updates go; `None` when nobody listens.
    pub(crate) progress: Option<mpsc::Sender<ToolProgress>>,
    pub(crate) extensions: Arc<Extensions>,
    pub(crate) agent: AgentHandle,
    /// Runs tools for the tool; `None` outside an agent.
    pub(crate) nested: Option<Arc<dyn NestedCalls>>,
    /// Makes decisions for the tool; `None` outside an agent.
    pub(crate) desk: Option<Arc<DecisionDesk>>,
}

/// Runs tools on behalf of a tool.
pub(crate) trait NestedCalls: Any + Send + Sync {
    fn run_tool(&self, outer: &ToolContext, name: String, input: Value) -> BoxFuture<'static, ToolOutput>;
}

/// What a call leaves behind beside its result.
#[derive(Debug)]
pub(crate) struct Settlement {
    pub(crate) outcome: Option<ToolOutcome>,
    /// What it was to wait for was cut short with it.
    pub(crate) interrupted: bool,
    /// To be committed if the body ended well.
    pub(crate) ops: Vec<ToolStateOp>,
}

/// An update of a running call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolProgress {
    /// The call.
    pub call_id: Arc<str>,
    /// What the tool says.
    pub update: ToolUpdate,
}

/// What a tool says while it runs.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolUpdate {
    /// In words.
    Text(String),
    /// As JSON, in a form that tool and host agreed on.
    Value(Value),
}

impl From<String> for ToolUpdate {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for ToolUpdate {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Value> for ToolUpdate {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

impl ToolContext {
    pub(crate) fn new(parts: ToolContextParts) -> Self {
        Self { inner: Arc::new(Inner { parts, report: Mutex::default(), sealed: Notify::new() }) }
    }

    /// A context outside any agent, to call a tool from its own tests. The ids are fixed (`call`, `turn`, `run`,
    /// `session`), the state is empty, and nobody listens to updates.
    ///
    /// ```
    /// use serde_json::json;
    /// use zidane::tool::{NoInput, Tool, ToolContext, tool_fn};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// let count = tool_fn("count", "Counts its calls", |_: NoInput, cx: ToolContext| async move {
    ///     cx.state().update("n", |old| old.and_then(|n| n.as_u64()).unwrap_or(0) + 1)?;
    ///     Ok(())
    /// });
    /// let cx = ToolContext::for_test("count");
    /// count.call(json!({}), cx.clone()).await.unwrap();
    /// assert_eq!(cx.state().get("n").as_deref(), Some(&json!(1)));
    /// # });
    /// ```
    pub fn for_test(name: impl Into<Arc<str>>) -> Self {
        Self::for_test_with(name, Extensions::new(), ToolStateSnapshot::new())
    }

    /// The same with things of the host's and a state to begin with.
    pub fn for_test_with(name: impl Into<Arc<str>>, extensions: Extensions, state: ToolStateSnapshot) -> Self {
        let name = name.into();
        Self::new(ToolContextParts {
            call_id: "call".into(),
            turn_id: "turn".into(),
            run_id: "run".into(),
            session_id: "session".into(),
            display_name: Arc::clone(&name),
            name,
            idempotency_key: None,
            cancel: CancellationToken::new(),
            state: ToolStateView::new(state),
            progress: None,
            extensions: Arc::new(extensions),
            agent: AgentHandle::new(0),
            nested: None,
            desk: None,
        })
    }

    /// The agent: steer it, queue a follow-up, abort it. A new run of it is refused while this call lasts.
    #[must_use]
    pub fn agent(&self) -> &AgentHandle {
        &self.inner.parts.agent
    }

    /// The provider's id of the call.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.inner.parts.call_id
    }

    /// The assistant turn that made the call.
    #[must_use]
    pub fn turn_id(&self) -> &str {
        &self.inner.parts.turn_id
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.inner.parts.run_id
    }

    /// The session.
    #[must_use]
    pub fn session_id(&self) -> &str {
        &self.inner.parts.session_id
    }

    /// The tool's canonical name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.parts.name
    }

    /// What the model knows the tool as: its alias, else the canonical name.
    #[must_use]
    pub fn display_name(&self) -> &str {
        &self.inner.parts.display_name
    }

    /// The same text each time this call is run, also after a crash, and another for every other call: for services that
    /// do a thing once per key. `{run}:{call}`.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let parts = &self.inner.parts;
        match &parts.idempotency_key {
            Some(key) => key.as_ref().into(),
            None => format!("{}:{}", parts.run_id, parts.call_id),
        }
    }

    /// Waits until the call is to stop: the run was aborted, or the call timed out. The body then has the tool's grace
    /// left. Cancel safe.
    pub async fn cancelled(&self) {
        self.inner.parts.cancel.cancelled().await;
    }

    /// Whether the call is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.inner.parts.cancel.is_cancelled()
    }

    /// The token behind [`cancelled`](Self::cancelled), to hand on. Cancelling it cancels this call only.
    #[must_use]
    pub fn cancel_token(&self) -> &CancellationToken {
        &self.inner.parts.cancel
    }

    /// The tool state as this call sees it.
    #[must_use]
    pub fn state(&self) -> &ToolStateView {
        &self.inner.parts.state
    }

    /// A thing of the host's, by its type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.inner.parts.extensions.get()
    }

    /// Runs another tool of the agent, by its canonical name, as a part of this call.
    ///
    /// It passes the same validation, gates, limits and transforms as a call of the model's; what it stages of the tool
    /// state joins what this call stages. A call that is refused, or that fails, comes back as an output with
    /// `is_error` set. Calls nest at most eight deep. Dropping the future drops the nested call.
    ///
    /// # Errors
    /// [`Settled`] once this call has ended.
    pub async fn run_tool(&self, name: impl Into<String>, input: impl Into<Value>) -> Result<ToolOutput, Settled> {
        match self.nested()? {
            None => Ok(ToolOutput::error("There are no tools here.")),
            Some(nested) => Ok(nested.run_tool(self, name.into(), input.into()).await),
        }
    }

    /// Has the agent's decider answer questions about evidence, as a part of this call. What that uses is filed with the
    /// run, and when the call is to stop it ends with `aborted`. It never fails the call; outside an agent it is
    /// `unavailable`.
    ///
    /// In a durable run it is a part of the call's record: a call that is on record asks nothing again.
    pub fn decide(
        &self,
        evidence: impl Into<DecisionEvidence>,
        questions: impl IntoIterator<Item = Question>,
    ) -> Deciding {
        match &self.inner.parts.desk {
            _ if self.report().sealed => never(DecisionFailureReason::Aborted, "the call has ended"),
            None => never(DecisionFailureReason::Unavailable, "there is no agent to decide here"),
            Some(desk) => desk.decide(DecisionRequest::new(evidence, questions), self.inner.parts.cancel.clone()),
        }
    }

    /// Says what the call did to what it changes. The last report wins. Advisory: it does not end the call, and does not
    /// make its result an error.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended.
    pub fn report_outcome(&self, outcome: ToolOutcome) -> Result<(), Settled> {
        let mut report = self.report();
        if report.sealed {
            return Err(Settled);
        }
        report.outcome = Some(outcome);
        Ok(())
    }

    /// What was reported last.
    #[must_use]
    pub fn outcome(&self) -> Option<ToolOutcome> {
        self.report().outcome
    }

    /// Sends an update to whoever watches the run; does nothing when nobody does. Waits for room, so that a tool cannot
    /// outrun its listener. Updates of one task arrive in order, and none after the end of the call. Dropping the future
    /// while it waits sends nothing.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended, also while waiting.
    pub async fn progress(&self, update: impl Into<ToolUpdate> + Send) -> Result<(), Settled> {
        let mut sealed = pin!(self.inner.sealed.notified());
        // Listen before looking, or a seal in between goes unheard.
        sealed.as_mut().enable();
        let Some(sender) = self.progress_sender()? else { return Ok(()) };
        let permit = tokio::select! {
            biased;
            () = sealed => return Err(Settled),
            permit = sender.reserve() => permit.map_err(|_closed| Settled)?,
        };
        self.send(permit, update.into())
    }

    /// Sends an update if there is room, and drops it otherwise: for bodies that cannot wait. `true` unless it was
    /// dropped.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended.
    pub fn try_progress(&self, update: impl Into<ToolUpdate>) -> Result<bool, Settled> {
        let Some(sender) = self.progress_sender()? else { return Ok(true) };
        match sender.try_reserve() {
            Ok(permit) => self.send(permit, update.into()).map(|()| true),
            Err(mpsc::error::TrySendError::Full(())) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(())) => Err(Settled),
        }
    }

    /// Ends the call: nothing can be added from here on, and every update sent is in the channel.
    pub(crate) fn seal(&self) -> Settlement {
        let (outcome, interrupted) = {
            let mut report = self.report();
            report.sealed = true;
            (report.outcome, report.interrupted)
        };
        self.inner.sealed.notify_waiters();
        Settlement { outcome, interrupted, ops: self.inner.parts.state.seal() }
    }

    /// What runs tools for it, while the call lasts; `None` outside an agent.
    pub(crate) fn nested(&self) -> Result<Option<&Arc<dyn NestedCalls>>, Settled> {
        if self.report().sealed { Err(Settled) } else { Ok(self.inner.parts.nested.as_ref()) }
    }

    /// The call was cut short, though its body will give a result.
    pub(crate) fn interrupted(&self) {
        self.report().interrupted = true;
    }

    fn progress_sender(&self) -> Result<Option<&mpsc::Sender<ToolProgress>>, Settled> {
        if self.report().sealed { Err(Settled) } else { Ok(self.inner.parts.progress.as_ref()) }
    }

    fn send(&self, permit: mpsc::Permit<'_, ToolProgress>, update: ToolUpdate) -> Result<(), Settled> {
        let progress = ToolProgress { call_id: Arc::clone(&self.inner.parts.call_id), update };
        // Under the lock, so that no update gets in after the seal. Sending only stores it and wakes the reader.
        let report = self.report();
        if report.sealed {
            return Err(Settled);
        }
        permit.send(progress);
        drop(report);
        Ok(())
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        self.inner.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext")
            .field("call_id", &self.inner.parts.call_id)
            .field("name", &self.inner.parts.name)
            .field("run_id", &self.inner.parts.run_id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(room: usize) -> (ToolContext, mpsc::Receiver<ToolProgress>) {
        let (sender, receiver) = mpsc::channel(room);
        let parts = ToolContextParts {
            call_id: "c1".into(),
            turn_id: "t1".into(),
            run_id: "r1".into(),
            session_id: "s1".into(),
            name: "read_file".into(),
            display_name: "Read".into(),
            idempotency_key: None,
            cancel: CancellationToken::new(),
            state: ToolStateView::new(ToolStateSnapshot::new()),
            progress: Some(sender),
            extensions: Arc::default(),
            agent: AgentHandle::new(0),
            nested: None,
            desk: None,
        };
        (ToolContext::new(parts), receiver)
    }

    fn texts(receiver: &mut mpsc::Receiver<ToolProgress>) -> Vec<ToolUpdate> {
        std::iter::from_fn(|| receiver.try_recv().ok()).map(|progress| progress.update).collect()
    }

    #[tokio::test]
    async fn updates_arrive_in_order_and_wait_for_room() {
        let (cx, mut receiver) = watched(1);
        cx.progress("1").await.unwrap();
        let mut second = Box::pin(cx.progress(Value::from(2)));
        assert!(futures::poll!(second.as_mut()).is_pending());
        assert_eq!(cx.try_progress("dropped"), Ok(false));
        let first = receiver.recv().await.unwrap();
        assert_eq!((&*first.call_id, first.update), ("c1", "1".into()));
        second.await.unwrap();
        assert_eq!(receiver.recv().await.unwrap().update, ToolUpdate::Value(2.into()));
        assert_eq!(cx.try_progress("3"), Ok(true));
        assert_eq!(texts(&mut receiver), ["3".into()]);
    }

    #[tokio::test]
    async fn nothing_gets_in_after_the_seal() {
        let (cx, mut receiver) = watched(1);
        let left_behind = cx.clone();
        cx.progress("in time").await.unwrap();
        cx.state().set("k", 1).unwrap();
        cx.report_outcome(ToolOutcome::Edited).unwrap();
        let mut waiting = Box::pin(left_behind.progress("late"));
        assert!(futures::poll!(waiting.as_mut()).is_pending());

        let settlement = cx.seal();
        assert_eq!(settlement.outcome, Some(ToolOutcome::Edited));
        assert_eq!(settlement.ops, [ToolStateOp::set("k", 1)]);
        assert_eq!(waiting.await, Err(Settled), "it does not wait for room that is not coming");
        assert_eq!(texts(&mut receiver), ["in time".into()]);
        assert_eq!(left_behind.progress("later").await, Err(Settled));
        assert_eq!(left_behind.try_progress("later"), Err(Settled));
        assert_eq!(left_behind.report_outcome(ToolOutcome::Failed), Err(Settled));
        assert_eq!(left_behind.state().set("k", 2), Err(Settled));
        assert_eq!(left_behind.state().get("k").as_deref(), Some(&Value::from(1)));
        assert_eq!(texts(&mut receiver), []);
        let again = cx.seal();
        assert_eq!((again.outcome, again.ops), (Some(ToolOutcome::Edited), vec![]));
    }

    /// Tasks that a body leaves behind race the seal; what was said to be sent is in the channel by then.
    #[test]
    fn an_update_that_was_accepted_was_sent_before_the_seal() {
        for _ in 0..200 {
            let (cx, mut receiver) = watched(8);
            let racing = cx.clone();
            let task = std::thread::spawn(move || (0..4).filter(|_| racing.try_progress("x") == Ok(true)).count());
            let _ = cx.seal();
            let at_seal = texts(&mut receiver).len();
            assert_eq!(task.join().unwrap(), at_seal);
            assert_eq!(texts(&mut receiver).len(), 0);
        }
    }

    #[tokio::test]
    async fn a_listener_that_went_away_ends_the_call_for_the_tool() {
        let (cx, receiver) = watched(1);
        drop(receiver);
        assert_eq!(cx.progress("x").await, Err(Settled));
        assert_eq!(cx.try_progress("x"), Err(Settled));
    }

    #[test]
    fn the_key_of_an_earlier_run_is_kept() {
        let cx = ToolContext::for_test("t");
        assert_eq!(cx.idempotency_key(), "run:call");
        let (cx, _receiver) = watched(1);
        assert_eq!((cx.idempotency_key().as_str(), cx.name(), cx.display_name()), ("r1:c1", "read_file", "Read"));
    }
}

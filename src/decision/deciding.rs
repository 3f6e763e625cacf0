use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{Decision, DecisionRequest};

type Start = Box<dyn FnOnce(DecisionRequest, CancellationToken) -> BoxFuture<'static, Decision> + Send>;

/// A decision to be made: a future of its answers, `Send` and `'static`. Dropping it ends the request; what that had
/// used by then is not known to anybody.
#[must_use = "nothing is decided until it is polled"]
pub struct Deciding {
    state: State,
}

enum State {
    Waiting(Option<Box<Plan>>),
    Running(BoxFuture<'static, Decision>),
}

struct Plan {
    request: DecisionRequest,
    cancel: CancellationToken,
    start: Start,
}

impl Deciding {
    pub(crate) fn new(
        request: DecisionRequest,
        start: impl FnOnce(DecisionRequest, CancellationToken) -> BoxFuture<'static, Decision> + Send + 'static,
    ) -> Self {
        let plan = Plan { request, cancel: CancellationToken::new(), start: Box::new(start) };
        Self { state: State::Waiting(Some(Box::new(plan))) }
    }

    fn plan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        if let State::Waiting(Some(plan)) = &mut self.state {
            change(plan);
        }
        self
    }

    /// How long it may take in all. Default: what the decider allows.
    pub fn timeout(self, time: Duration) -> Self {
        self.plan(|plan| plan.request.timeout = Some(time))
    }

    /// Ends the decision with `aborted` once the token is cancelled.
    pub fn cancelled_by(self, token: CancellationToken) -> Self {
        self.plan(|plan| plan.cancel = token)
    }
}

impl Future for Deciding {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        if let State::Waiting(plan) = &mut self.state {
            let Some(plan) = plan.take() else { return Poll::Pending };
            let Plan { request, cancel, start } = *plan;
            self.state = State::Running(start(request, cancel));
        }
        match &mut self.state {
            State::Running(decision) => {
                let polled = decision.as_mut().poll(cx);
                if polled.is_ready() {
                    self.state = State::Waiting(None);
                }
                polled
            }
            State::Waiting(_) => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Deciding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Waiting(Some(_)) => "not started",
            State::Waiting(None) => "ended",
            State::Running(_) => "running",
        };
        f.debug_tuple("Deciding").field(&state).finish()
    }
}

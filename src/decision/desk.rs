use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::{Decider, Deciding, Decision, DecisionFailure, DecisionFailureReason, DecisionLedger, DecisionRequest};
use crate::hooks::{DecisionAfter, DecisionAfterCx, Firing};

/// Names the limit of the run that is used up.
type UsedUp = Box<dyn Fn() -> Option<&'static str> + Send + Sync>;

/// Makes the decisions of an agent, within a run or outside of any: what they use is filed with a run, and
/// `decision:after` is told.
pub(crate) struct DecisionDesk {
    pub(crate) decider: Decider,
    pub(crate) ledger: DecisionLedger,
    /// Its base has no desk, so that an observer of decisions makes none.
    pub(crate) firing: Firing,
    pub(crate) used_up: UsedUp,
}

impl DecisionDesk {
    /// A decision that ends with `aborted` when `token` is cancelled.
    pub(crate) fn decide(self: &Arc<Self>, request: DecisionRequest, token: CancellationToken) -> Deciding {
        let this = Arc::clone(self);
        Deciding::new(request, move |request, cancel| {
            Box::pin(async move {
                let started = Instant::now();
                let mut decision = this.answer(&request, &token, &cancel).await;
                let usage = match &mut decision {
                    Ok(answers) => &mut answers.usage,
                    Err(failure) => &mut failure.usage,
                };
                usage.iter_mut().for_each(|entry| (*this.firing.base.run.run_id).clone_into(&mut entry.run_id));
                this.ledger.add(usage);
                if this.firing.has::<DecisionAfter>() {
                    let mut cx = DecisionAfterCx::new(&this.firing.base, &request, &decision, started.elapsed());
                    this.firing.observe::<DecisionAfter>(&mut cx).await;
                }
                decision
            })
        })
    }

    async fn answer(
        &self,
        request: &DecisionRequest,
        token: &CancellationToken,
        cancel: &CancellationToken,
    ) -> Decision {
        if let Some(limit) = (self.used_up)() {
            let message = format!("the run has reached its limit of {limit}");
            return Err(DecisionFailure::new(DecisionFailureReason::Unavailable, message));
        }
        let stop = pin!(async {
            tokio::select! {
                () = token.cancelled() => {}
                () = cancel.cancelled() => {}
            }
        });
        self.decider.answer(request, stop).await
    }
}

impl fmt::Debug for DecisionDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionDesk").field("decider", &self.decider).finish_non_exhaustive()
    }
}

/// A decision that fails before anybody is asked.
pub(crate) fn never(reason: DecisionFailureReason, message: &'static str) -> Deciding {
    let request = DecisionRequest::new("", []);
    Deciding::new(request, move |_, _| Box::pin(async move { Err(DecisionFailure::new(reason, message)) }))
}

use std::time::Duration;

use super::{context, marker};
use crate::decision::{Decision, DecisionRequest};

marker! {
    /// `decision:after`: a decision was made, or failed. Told of the decisions of an agent: in its tools, in its hooks, and
    /// by itself, where the run's id is empty. Live only: a replay makes no decisions.
    DecisionAfter
}
context! {
    /// Context of [`DecisionAfter`].
    DecisionAfterCx { request: &'a DecisionRequest, decision: &'a Decision, elapsed: Duration }
}
impl DecisionAfterCx<'_> {
    /// What was asked.
    #[must_use]
    pub const fn request(&self) -> &DecisionRequest {
        self.request
    }

    /// The answers, or why there are none.
    pub const fn decision(&self) -> &Decision {
        self.decision
    }

    /// How long it took.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

use super::{Trigger, weight};
use crate::hooks::CompactionReason;
use crate::provider::{History, RequestHead};
use crate::session::cut_for_budget;
use crate::types::TurnOrigin;

/// What a summary is to stand in for. Sizes are estimates, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The first turn that is kept.
    pub(super) place: usize,
    /// What goes.
    pub(super) removed: u64,
    /// Everything, system text and tools included.
    pub(super) whole: u64,
}

impl Cut {
    /// Where to cut a conversation of this size; `None` when that would not help.
    pub(super) fn of(
        history: &History,
        head: &RequestHead,
        trigger: Trigger,
        size: u64,
        reason: CompactionReason,
    ) -> Option<Self> {
        let weights: Vec<u64> = history.iter().map(weight::of_turn).collect();
        let sum = |weights: &[u64]| weights.iter().copied().fold(0, u64::saturating_add);
        let whole = weight::of_head(head).saturating_add(sum(&weights));
        let limit = match (trigger.threshold, reason) {
            (Some(threshold), CompactionReason::Threshold) => threshold,
            (threshold, _) => size.min(threshold.unwrap_or(size)),
        };
        // Turns are weighed by estimate, and the size may be a report: by its measure the estimates are wrong by as much.
        let keep = scaled(trigger.keep.min(limit / 2), whole, size);
        let mut next = weights.iter();
        let place = cut_for_budget(history.iter(), keep, |_| next.next().copied().unwrap_or(0));
        let has_summary = history.turns().first().is_some_and(|first| first.origin == TurnOrigin::Summary);
        if place <= usize::from(has_summary) {
            return None;
        }
        let removed = sum(weights.get(..place).unwrap_or_default());
        (removed.saturating_mul(10) >= whole).then_some(Self { place, removed, whole })
    }

    /// The size once a summary of this weight stands in.
    pub(super) fn after(self, size: u64, summary: u64) -> u64 {
        scaled(size, self.whole.saturating_sub(self.removed), self.whole).saturating_add(summary)
    }
}

/// `amount * part / whole`.
fn scaled(amount: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(amount).saturating_mul(u128::from(part)).checked_div(u128::from(whole));
    scaled.map_or(amount, |scaled| u64::try_from(scaled).unwrap_or(u64::MAX))
}

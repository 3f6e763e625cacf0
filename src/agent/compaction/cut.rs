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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Role, SessionContentBlock, SessionTurn};

    fn conversation(weights: &[usize], first: TurnOrigin) -> History {
        let turn = |(place, weight): (usize, &usize)| {
            let (role, origin) = match place {
                0 => (Role::User, first),
                place if place % 2 == 1 => (Role::Assistant, TurnOrigin::Model),
                _ => (Role::User, TurnOrigin::Prompt),
            };
            SessionTurn::new(place.to_string(), role, origin, vec![SessionContentBlock::text("abcd".repeat(*weight))])
        };
        weights.iter().enumerate().map(turn).collect()
    }

    fn place(
        history: &History,
        keep: u64,
        threshold: Option<u64>,
        size: u64,
        reason: CompactionReason,
    ) -> Option<usize> {
        let trigger = Trigger { threshold, keep, max_per_run: 1, now: false };
        Cut::of(history, &RequestHead::default(), trigger, size, reason).map(|cut| cut.place)
    }

    #[test]
    fn what_is_kept_is_measured_as_the_provider_measures() {
        use CompactionReason::{Overflow, Threshold};
        let history = conversation(&[100; 10], TurnOrigin::Prompt);
        assert_eq!(place(&history, 300, Some(1_000), 1_000, Threshold), Some(7));
        // The provider counts twice as much.
        assert_eq!(place(&history, 300, Some(2_000), 2_000, Threshold), Some(9));
        // Never more than half of the threshold, nor of what was refused.
        assert_eq!(place(&history, 1_000, Some(1_000), 1_000, Threshold), Some(5));
        assert_eq!(place(&history, 1_000, None, 1_000, Overflow), Some(5));
        assert_eq!(place(&history, 1_000, Some(100_000), 1_000, Overflow), Some(5));
        assert_eq!(place(&history, 0, None, 0, Overflow), Some(9), "something is kept");
    }

    #[test]
    fn a_cut_that_would_not_help_is_none() {
        use CompactionReason::Overflow;
        assert_eq!(place(&conversation(&[], TurnOrigin::Prompt), 0, None, 0, Overflow), None);
        assert_eq!(place(&conversation(&[500], TurnOrigin::Prompt), 0, None, 500, Overflow), None);
        assert_eq!(place(&conversation(&[500, 5_000], TurnOrigin::Prompt), 10, None, 5_500, Overflow), None);
        let beginning = [5_000, 100];
        assert_eq!(place(&conversation(&beginning, TurnOrigin::Prompt), 200, None, 5_100, Overflow), Some(1));
        assert_eq!(
            place(&conversation(&beginning, TurnOrigin::Summary), 200, None, 5_100, Overflow),
            None,
            "only a summary"
        );
    }

    #[test]
    fn sizes_do_not_wrap_around() {
        let cut = Cut { place: 1, removed: 5, whole: 10 };
        assert_eq!((cut.after(u64::MAX, u64::MAX), cut.after(100, 7)), (u64::MAX, 57));
        assert_eq!(scaled(7, 3, 0), 7);
    }
}

use std::iter::Sum;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{AgentStats, walk_decisions, walk_turns};
use crate::types::{DecisionUsage, NanoUsd, TokenUsage, TurnUsage};

/// The sums over a usage tree. All additions saturate, so the order of the entries cannot matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Fresh input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from caches.
    pub cache_read: u64,
    /// Tokens written to caches.
    pub cache_write: u64,
    /// Cost of the priced entries.
    #[serde(rename = "costNanoUsd")]
    pub cost: NanoUsd,
    /// Turn entries without a price.
    pub unpriced_turns: u64,
}

impl Totals {
    pub(super) fn of_turn(usage: &TurnUsage) -> Self {
        Self { unpriced_turns: u64::from(usage.cost.is_none()), ..Self::of(&usage.tokens, usage.cost) }
    }

    pub(super) fn of_decision(usage: &DecisionUsage) -> Self {
        Self::of(&usage.tokens, usage.cost)
    }

    fn of(tokens: &TokenUsage, cost: Option<NanoUsd>) -> Self {
        Self {
            input: tokens.input,
            output: tokens.output,
            cache_read: tokens.cache_read,
            cache_write: tokens.cache_write,
            cost: cost.unwrap_or_default(),
            unpriced_turns: 0,
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.cost += other.cost;
        self.unpriced_turns = self.unpriced_turns.saturating_add(other.unpriced_turns);
    }
}

impl Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |mut sum, more| {
            sum += more;
            sum
        })
    }
}

/// The totals of a tree, added up from its entries: `fold(walk_turns) + fold(walk_decisions)`.
///
/// Equal to [`AgentStats::totals`] for every tree that was built with the `push_` methods.
#[must_use]
pub fn fold_totals(stats: &AgentStats) -> Totals {
    walk_turns(stats).map(Totals::of_turn).chain(walk_decisions(stats).map(Totals::of_decision)).sum()
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::types::{DecisionUsage, NanoUsd, TurnUsage};

/// What a run, with everything it spawns, may use. Nothing is limited by default.
///
/// Checked before each model request and before the calls of a turn: a batch of calls that would exceed a limit does
/// not run at all. An answer that is under way is not cut, so the last one may go over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Model turns.
    pub turns: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Tokens: input, output and cache together.
    pub tokens: Option<u64>,
    /// Cost of the turns whose price is known.
    pub cost: Option<NanoUsd>,
    /// Time since the run started.
    pub wall_clock: Option<Duration>,
}

impl Limits {
    /// No limits.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Limits the model turns.
    #[must_use]
    pub const fn turns(mut self, turns: u64) -> Self {
        self.turns = Some(turns);
        self
    }

    /// Limits the tool calls.
    #[must_use]
    pub const fn tool_calls(mut self, calls: u64) -> Self {
        self.tool_calls = Some(calls);
        self
    }

    /// Limits the tokens.
    #[must_use]
    pub const fn tokens(mut self, tokens: u64) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Limits the cost.
    #[must_use]
    pub const fn cost(mut self, cost: NanoUsd) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Limits the time.
    #[must_use]
    pub const fn wall_clock(mut self, time: Duration) -> Self {
        self.wall_clock = Some(time);
        self
    }
}

/// Which of the [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Limit {
    /// Model turns.
    Turns,
    /// Tool calls.
    ToolCalls,
    /// Tokens.
    Tokens,
    /// Cost.
    Cost,
    /// Time.
    WallClock,
}

impl Limit {
    /// The name, in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::ToolCalls => "tool calls",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::WallClock => "time",
        }
    }
}

/// Limits and what has been used of them. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    limits: Arc<Limits>,
    spent: Arc<Spent>,
}

#[derive(Debug)]
struct Spent {
    turns: AtomicU64,
    calls: AtomicU64,
    tokens: AtomicU64,
    cost: AtomicU64,
    started: Instant,
}

fn add(counter: &AtomicU64, amount: u64) {
    // Saturating: a wrapped counter would lift the limit.
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| Some(spent.saturating_add(amount)));
}

impl Meter {
    pub(super) fn new(limits: Limits) -> Self {
        let spent = Spent {
            turns: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            started: Instant::now(),
        };
        Self { limits: Arc::new(limits), spent: Arc::new(spent) }
    }

    /// The limit that forbids another model turn.
    pub(super) fn forbids_turn(&self) -> Option<Limit> {
        let turns = self.spent.turns.load(Ordering::Relaxed);
        self.limits.turns.filter(|limit| turns >= *limit).map(|_| Limit::Turns).or_else(|| self.used_up())
    }

    /// The limit that forbids these calls. They are counted when none does.
    pub(super) fn forbids_calls(&self, calls: u64) -> Option<Limit> {
        if let Some(limit) = self.used_up() {
            return Some(limit);
        }
        let counted = self.spent.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| {
            let after = spent.saturating_add(calls);
            (calls == 0 || self.limits.tool_calls.is_none_or(|limit| after <= limit)).then_some(after)
        });
        counted.is_err().then_some(Limit::ToolCalls)
    }

    /// Counts calls that are on record as allowed.
    pub(super) fn count_calls(&self, calls: u64) {
        add(&self.spent.calls, calls);
    }

    /// Counts a turn.
    pub(super) fn count_turn(&self, usage: &TurnUsage) {
        add(&self.spent.turns, 1);
        add(&self.spent.tokens, usage.tokens.total());
        add(&self.spent.cost, usage.cost.unwrap_or_default().0);
    }

    /// Counts a request beside the turns.
    pub(super) fn count_side(&self, usage: &TurnUsage) {
        add(&self.spent.tokens, usage.tokens.total());
        add(&self.spent.cost, usage.cost.unwrap_or_default().0);
    }

    /// Counts a decision.
    pub(super) fn count_decision(&self, usage: &DecisionUsage) {
        add(&self.spent.tokens, usage.tokens.total());
        add(&self.spent.cost, usage.cost.unwrap_or_default().0);
    }

    /// The limit of tokens, cost or time that is reached.
    pub(super) fn used_up(&self) -> Option<Limit> {
        let over =
            |counter: &AtomicU64, limit: Option<u64>| limit.is_some_and(|l| counter.load(Ordering::Relaxed) >= l);
        if over(&self.spent.tokens, self.limits.tokens) {
            Some(Limit::Tokens)
        } else if over(&self.spent.cost, self.limits.cost.map(|cost| cost.0)) {
            Some(Limit::Cost)
        } else if self.limits.wall_clock.is_some_and(|limit| self.spent.started.elapsed() >= limit) {
            Some(Limit::WallClock)
        } else {
            None
        }
    }
}

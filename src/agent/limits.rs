use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::types::{NanoUsd, TurnUsage};

/// What a run, with everything it spawns, may use. Nothing is limited by default.
///
/// Checked before each model request and before the calls of a turn: a batch of calls that would exceed a limit does
/// not run at all. An answer that is under way is not cut, so the last one, or those that agents of the tree wait for at
/// the same time, may go over in tokens, cost and time.
///
/// A run that is spawned counts toward the limits of those above it, and may have narrower ones of its own, which stop
/// it alone.
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

/// Limits and what has been used of them, by a run and everything it spawns. What is used here is used of the meter above
/// too, and either may forbid. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    level: Arc<Level>,
}

#[derive(Debug)]
struct Level {
    limits: Limits,
    turns: AtomicU64,
    calls: AtomicU64,
    tokens: AtomicU64,
    cost: AtomicU64,
    started: Instant,
    above: Option<Meter>,
}

fn add(counter: &AtomicU64, amount: u64) {
    // Saturating: a wrapped counter would lift the limit.
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| Some(spent.saturating_add(amount)));
}

impl Meter {
    /// A meter of its own for `limits`, and a part of the one `above`.
    pub(super) fn new(limits: Limits, above: Option<Self>) -> Self {
        let level = Level {
            limits,
            turns: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            tokens: AtomicU64::new(0),
            cost: AtomicU64::new(0),
            started: Instant::now(),
            above,
        };
        Self { level: Arc::new(level) }
    }

    /// This run's level and those of the runs above it.
    fn levels(&self) -> impl Iterator<Item = &Level> {
        std::iter::successors(Some(&*self.level), |level| level.above.as_ref().map(|meter| &*meter.level))
    }

    /// The limit that forbids another model turn.
    pub(super) fn forbids_turn(&self) -> Option<Limit> {
        self.levels().find_map(Level::forbids_turn)
    }

    /// Takes a model turn, unless a limit forbids it. Runs of a tree that ask at the same time get no more of them than
    /// there are.
    pub(super) fn take_turn(&self) -> Result<TurnPermit, Limit> {
        if let Some(limit) = self.levels().find_map(Level::used_up) {
            return Err(limit);
        }
        let mut permit = TurnPermit { meter: self.clone(), levels: 0 };
        for level in self.levels() {
            if !take(&level.turns, 1, level.limits.turns) {
                return Err(Limit::Turns);
            }
            permit.levels += 1;
        }
        Ok(permit)
    }

    /// The limit that forbids these calls. They are counted when none does.
    pub(super) fn forbids_calls(&self, calls: u64) -> Option<Limit> {
        if let Some(limit) = self.levels().find_map(Level::used_up) {
            return Some(limit);
        }
        for (taken, level) in self.levels().enumerate() {
            if calls > 0 && !take(&level.calls, calls, level.limits.tool_calls) {
                self.levels().take(taken).for_each(|level| give_back(&level.calls, calls));
                return Some(Limit::ToolCalls);
            }
        }
        None
    }

    /// Counts calls that are on record as allowed.
    pub(super) fn count_calls(&self, calls: u64) {
        self.levels().for_each(|level| add(&level.calls, calls));
    }

    /// Counts a turn; where it was taken, that turn.
    pub(super) fn count_turn(&self, usage: &TurnUsage, taken: Option<TurnPermit>) {
        match taken {
            // It has been counted already.
            Some(mut permit) => permit.levels = 0,
            None => self.levels().for_each(|level| add(&level.turns, 1)),
        }
        self.count_side(usage);
    }

    /// Counts a request beside the turns.
    pub(super) fn count_side(&self, usage: &TurnUsage) {
        let (tokens, cost) = (usage.tokens.total(), usage.cost.unwrap_or_default().0);
        for level in self.levels() {
            add(&level.tokens, tokens);
            add(&level.cost, cost);
        }
    }
}

/// Adds to a counter, unless that goes over the limit.
fn take(counter: &AtomicU64, amount: u64, limit: Option<u64>) -> bool {
    let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| {
        let after = spent.saturating_add(amount);
        limit.is_none_or(|limit| after <= limit).then_some(after)
    });
    taken.is_ok()
}

fn give_back(counter: &AtomicU64, amount: u64) {
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| Some(spent.saturating_sub(amount)));
}

/// A model turn that was taken and has not been counted. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct TurnPermit {
    meter: Meter,
    /// How many levels it was taken from.
    levels: usize,
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        self.meter.levels().take(self.levels).for_each(|level| give_back(&level.turns, 1));
    }
}

impl Level {
    fn forbids_turn(&self) -> Option<Limit> {
        let turns = self.turns.load(Ordering::Relaxed);
        self.limits.turns.filter(|limit| turns >= *limit).map(|_| Limit::Turns).or_else(|| self.used_up())
    }

    fn used_up(&self) -> Option<Limit> {
        let over =
            |counter: &AtomicU64, limit: Option<u64>| limit.is_some_and(|l| counter.load(Ordering::Relaxed) >= l);
        if over(&self.tokens, self.limits.tokens) {
            Some(Limit::Tokens)
        } else if over(&self.cost, self.limits.cost.map(|cost| cost.0)) {
            Some(Limit::Cost)
        } else if self.limits.wall_clock.is_some_and(|limit| self.started.elapsed() >= limit) {
            Some(Limit::WallClock)
        } else {
            None
        }
    }
}

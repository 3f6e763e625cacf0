//! The usage tree of a run: what it used, and what every sub-agent below it used.
//!
//! The totals of a node always equal the fold over the entries of its subtree. Cloning, comparing, printing, dropping
//! and (de)serializing a tree never recurse, so its depth is bounded by memory alone.

mod children;
mod rollup;
mod totals;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use children::Children;
pub use rollup::{ModelUsage, stats_by_model, stats_by_provider_model, stats_by_run};
pub use totals::{Totals, fold_totals};
pub use walk::{walk_decisions, walk_turns};

use super::{DecisionUsage, Extra, NanoUsd, TurnUsage, UsageKind};

/// Usage of a run and of everything below it.
///
/// Add to it with [`push_turn`](Self::push_turn), [`push_decision`](Self::push_decision) and
/// [`push_child`](Self::push_child), which keep the totals. After changing a field by hand, or when the data came
/// from outside, [`recompute`](Self::recompute) makes them right again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentStats {
    /// Fresh input tokens of the whole tree.
    pub total_in: u64,
    /// Output tokens of the whole tree.
    pub total_out: u64,
    /// Tokens read from caches, whole tree.
    pub total_cache_read: u64,
    /// Tokens written to caches, whole tree.
    pub total_cache_write: u64,
    /// Cost of the priced entries of the whole tree.
    #[serde(rename = "totalCostNanoUsd")]
    pub total_cost: NanoUsd,
    /// Turn entries of the whole tree that have no price. While it is not 0, `total_cost` is a lower bound.
    pub unpriced_turns: u64,
    /// Turns of this loop alone, side requests not counted.
    pub turns: u32,
    /// How long the run took. Live only, never stored.
    #[serde(skip)]
    pub elapsed: Duration,
    /// This loop's own entries, side requests included. Shared with the turns they are of.
    pub turn_usage: Vec<Arc<TurnUsage>>,
    /// This loop's own decisions.
    pub decisions: Vec<DecisionUsage>,
    /// Sub-agents, in completion order.
    pub children: Children,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl AgentStats {
    /// Adds one of this loop's own entries.
    pub fn push_turn(&mut self, usage: impl Into<Arc<TurnUsage>>) {
        let usage = usage.into();
        self.add(&Totals::of_turn(&usage));
        if usage.kind == UsageKind::Turn {
            self.turns = self.turns.saturating_add(1);
        }
        self.turn_usage.push(usage);
    }

    /// Adds one of this loop's own decisions.
    pub fn push_decision(&mut self, usage: DecisionUsage) {
        self.add(&Totals::of_decision(&usage));
        self.decisions.push(usage);
    }

    /// Adds a finished sub-agent. Its own totals are taken as they stand.
    pub fn push_child(&mut self, child: ChildStats) {
        self.add(&child.stats.totals());
        self.children.push(child);
    }

    /// The totals as they stand.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        Totals {
            input: self.total_in,
            output: self.total_out,
            cache_read: self.total_cache_read,
            cache_write: self.total_cache_write,
            cost: self.total_cost,
            unpriced_turns: self.unpriced_turns,
        }
    }

    /// Sets totals and turn counts of every node of the tree to what its entries say.
    pub fn recompute(&mut self) {
        self.children.rebuild(|child| child.stats.recompute_node());
        self.recompute_node();
    }

    /// Usage per answering model, see [`stats_by_model`].
    ///
    /// ```
    /// # use zidane::types::{AgentStats, NanoUsd, TokenUsage, TurnUsage};
    /// # let mut stats = AgentStats::default();
    /// # stats.push_turn(TurnUsage {
    /// #     tokens: TokenUsage { input: 1_234, output: 56, ..TokenUsage::default() },
    /// #     cost: Some(NanoUsd::from_usd(0.0123)),
    /// #     model_id: Some("some-model".into()),
    /// #     ..TurnUsage::default()
    /// # });
    /// # let mut lines = Vec::new();
    /// for (model, usage) in stats.by_model() {
    ///     println!("{model}: {usage}");
    /// #   lines.push(format!("{model}: {usage}"));
    /// }
    /// # assert_eq!(lines, ["some-model: 1,234 in, 56 out, $0.0123, 1 turn"]);
    /// ```
    #[must_use]
    pub fn by_model(&self) -> Vec<(String, ModelUsage)> {
        stats_by_model(self)
    }

    /// Recomputes this node, given that its children are right.
    fn recompute_node(&mut self) {
        let own = self
            .turn_usage
            .iter()
            .map(|usage| Totals::of_turn(usage))
            .chain(self.decisions.iter().map(Totals::of_decision));
        let totals = own.chain(self.children.iter().map(|child| child.stats.totals())).sum();
        let turns = self.turn_usage.iter().filter(|usage| usage.kind == UsageKind::Turn).count();
        self.set(totals);
        self.turns = u32::try_from(turns).unwrap_or(u32::MAX);
    }

    fn add(&mut self, more: &Totals) {
        let mut totals = self.totals();
        totals += *more;
        self.set(totals);
    }

    const fn set(&mut self, totals: Totals) {
        self.total_in = totals.input;
        self.total_out = totals.output;
        self.total_cache_read = totals.cache_read;
        self.total_cache_write = totals.cache_write;
        self.total_cost = totals.cost;
        self.unpriced_turns = totals.unpriced_turns;
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChildStatus {
    /// It finished.
    #[default]
    Completed,
    /// It was aborted.
    Aborted,
    /// It failed.
    Failed,
    /// A limit stopped it.
    Limit,
    /// It waits for an approval.
    Deferred,
    /// A newer format's. Never written by this version's loop.
    #[serde(other)]
    Unknown,
}

impl ChildStatus {
    /// The name, as it is stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
            Self::Failed => "failed",
            Self::Limit => "limit",
            Self::Deferred => "deferred",
            Self::Unknown => "unknown",
        }
    }
}

/// A sub-agent's part of the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildStats {
    /// The child's run id.
    pub id: String,
    /// The call that spawned it, when a call did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What it was asked to do.
    pub task: String,
    /// How it ended.
    pub status: ChildStatus,
    /// What it used.
    pub stats: AgentStats,
}

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DecisionUsage, NanoUsd, TokenUsage, TurnUsage};

/// Usage of a run and of everything below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
    pub total_cost: NanoUsd,
    /// Turn entries of the whole tree that have no price.
    pub unpriced_turns: u64,
    /// Turns of this loop alone, side requests not counted.
    pub turns: u32,
    /// How long the run took. Live only, never stored.
    #[serde(skip)]
    pub elapsed: Duration,
    /// This loop's own entries.
    pub turn_usage: Vec<TurnUsage>,
    /// This loop's own decisions.
    pub decisions: Vec<DecisionUsage>,
    /// Sub-agents, in completion order.
    pub children: Vec<ChildStats>,
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

/// Cumulative usage of one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// The tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// Cost of the priced entries; `None` when none was priced.
    #[serde(default, rename = "costNanoUsd", skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Entries attributed to the model; decisions add none.
    pub turns: u64,
}

impl AgentStats {
    /// Adds one of this loop's own entries.
    pub fn push_turn(&mut self, usage: TurnUsage) {
        self.turn_usage.push(usage);
    }
}

/// Walk.
pub fn walk_turns(stats: &AgentStats) -> impl Iterator<Item = &TurnUsage> {
    stats.turn_usage.iter()
}

/// Walk.
pub fn walk_decisions(stats: &AgentStats) -> impl Iterator<Item = &DecisionUsage> {
    stats.decisions.iter()
}

/// By model.
#[must_use]
pub fn stats_by_model(_stats: &AgentStats) -> Vec<(String, ModelUsage)> {
    Vec::new()
}

/// By provider and model.
#[must_use]
pub fn stats_by_provider_model(_stats: &AgentStats) -> Vec<((String, String), ModelUsage)> {
    Vec::new()
}

/// By run.
#[must_use]
pub fn stats_by_run(_stats: &AgentStats) -> Vec<(String, ModelUsage)> {
    Vec::new()
}

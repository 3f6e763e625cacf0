use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::{AgentStats, walk_decisions, walk_turns};
use crate::types::usage::Grouped;
use crate::types::{DecisionUsage, NanoUsd, TokenUsage, TurnUsage};

/// Where entries go that do not say what they belong to.
const UNKNOWN: &str = "(unknown)";

/// Cumulative usage of one model.
///
/// Prints as `1,234 in, 56 out, 800 cache read, $0.0123, 3 turns`; caches only where they were used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// The tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// Cost of the priced entries; `None` when none was priced.
    #[serde(default, rename = "costNanoUsd", skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// Turn entries without a price. While it is not 0, `cost` is a lower bound.
    #[serde(default)]
    pub unpriced_turns: u64,
    /// Turn entries attributed to the model, side requests included; decisions add none.
    pub turns: u64,
}

impl ModelUsage {
    fn add(&mut self, tokens: TokenUsage, cost: Option<NanoUsd>) {
        self.tokens += tokens;
        if let Some(cost) = cost {
            *self.cost.get_or_insert_default() += cost;
        }
    }
}

impl fmt::Display for ModelUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TokenUsage { input, output, cache_read, cache_write, .. } = self.tokens;
        write!(f, "{} in, {} out", Grouped(input), Grouped(output))?;
        if cache_read > 0 {
            write!(f, ", {} cache read", Grouped(cache_read))?;
        }
        if cache_write > 0 {
            write!(f, ", {} cache write", Grouped(cache_write))?;
        }
        if let Some(cost) = self.cost {
            write!(f, ", {cost}")?;
        }
        write!(f, ", {} {}", Grouped(self.turns), if self.turns == 1 { "turn" } else { "turns" })?;
        if self.unpriced_turns > 0 {
            write!(f, " ({} unpriced)", Grouped(self.unpriced_turns))?;
        }
        Ok(())
    }
}

/// Cumulative usage per model that answered, over the whole tree.
///
/// Models come in the order in which [`walk_turns`] first meets them, then those that only [`walk_decisions`] meets.
/// Entries without a model id, or with an empty one, are grouped under the literal `(unknown)`.
#[must_use]
pub fn stats_by_model(stats: &AgentStats) -> Vec<(String, ModelUsage)> {
    let groups = group(stats, |turn| named(turn.model_id.as_deref()), |decision| named(decision.model_id.as_deref()));
    groups.into_iter().map(|(model, usage)| (model.to_owned(), usage)).collect()
}

/// Cumulative usage per provider and model, as [`stats_by_model`]. Either name may be `(unknown)`.
#[must_use]
pub fn stats_by_provider_model(stats: &AgentStats) -> Vec<((String, String), ModelUsage)> {
    let groups = group(
        stats,
        |turn| (named(Some(&turn.provider)), named(turn.model_id.as_deref())),
        |decision| (named(Some(&decision.provider)), named(decision.model_id.as_deref())),
    );
    groups.into_iter().map(|((provider, model), usage)| ((provider.to_owned(), model.to_owned()), usage)).collect()
}

/// Cumulative usage per run id, as [`stats_by_model`]: each agent's own part of the tree.
#[must_use]
pub fn stats_by_run(stats: &AgentStats) -> Vec<(String, ModelUsage)> {
    let groups = group(stats, |turn| named(Some(&turn.run_id)), |decision| named(Some(&decision.run_id)));
    groups.into_iter().map(|(run, usage)| (run.to_owned(), usage)).collect()
}

fn named(id: Option<&str>) -> &str {
    id.filter(|id| !id.is_empty()).unwrap_or(UNKNOWN)
}

/// Groups by key, in first-seen order.
fn group<'a, K: Copy + Eq + Hash>(
    stats: &'a AgentStats,
    turn_key: impl Fn(&'a TurnUsage) -> K,
    decision_key: impl Fn(&'a DecisionUsage) -> K,
) -> Vec<(K, ModelUsage)> {
    let mut groups = Groups { list: Vec::new(), places: HashMap::new() };
    for turn in walk_turns(stats) {
        groups.change(turn_key(turn), |usage| {
            usage.add(turn.tokens, turn.cost);
            usage.turns = usage.turns.saturating_add(1);
            usage.unpriced_turns = usage.unpriced_turns.saturating_add(u64::from(turn.cost.is_none()));
        });
    }
    for decision in walk_decisions(stats) {
        groups.change(decision_key(decision), |usage| usage.add(decision.tokens, decision.cost));
    }
    groups.list
}

struct Groups<K> {
    list: Vec<(K, ModelUsage)>,
    places: HashMap<K, usize>,
}

impl<K: Copy + Eq + Hash> Groups<K> {
    fn change(&mut self, key: K, change: impl FnOnce(&mut ModelUsage)) {
        let place = match self.places.entry(key) {
            Entry::Occupied(place) => *place.get(),
            Entry::Vacant(free) => {
                let place = *free.insert(self.list.len());
                self.list.push((key, ModelUsage::default()));
                place
            }
        };
        if let Some((_, usage)) = self.list.get_mut(place) {
            change(usage);
        }
    }
}

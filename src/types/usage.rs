use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use super::{Extra, TurnFinishReason};

/// Money, in billionths of a US dollar. An integer, so that the order of addition cannot matter. Saturates.
///
/// Prints in dollars with four decimals, or with as many as it takes below `$0.0001`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(pub u64);

impl NanoUsd {
    /// From dollars, rounded to the nearest unit. Negative and not-a-number give 0.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn from_usd(usd: f64) -> Self {
        Self((usd * 1e9).round() as u64)
    }

    /// In dollars.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for NanoUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DOLLAR: u64 = 1_000_000_000;
        const FOURTH: u64 = 100_000;
        if self.0 > 0 && self.0 < FOURTH {
            let decimals = format!("{:09}", self.0);
            return write!(f, "$0.{}", decimals.trim_end_matches('0'));
        }
        // Rounded half up.
        let fourths = self.0.saturating_add(FOURTH / 2) / FOURTH;
        let per_dollar = DOLLAR / FOURTH;
        write!(f, "${}.{:04}", Grouped(fourths / per_dollar), fourths % per_dollar)
    }
}

/// A number with a comma after every third digit.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl Add for NanoUsd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for NanoUsd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for NanoUsd {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Add::add)
    }
}

/// Token counts of one response, in buckets that do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Fresh prompt tokens: neither read from nor written to a cache.
    #[serde(default)]
    pub input: u64,
    /// Everything generated, reasoning included.
    #[serde(default)]
    pub output: u64,
    /// Prompt tokens read from a cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Prompt tokens written to a cache.
    #[serde(default)]
    pub cache_write: u64,
    /// The part of `output` that was reasoning, where the provider says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

impl TokenUsage {
    /// All four buckets together. Saturates.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output).saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

impl AddAssign for TokenUsage {
    fn add_assign(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.reasoning = match (self.reasoning, other.reasoning) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
    }
}

/// What a request was for. Only `Turn` counts toward max turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum UsageKind {
    /// A turn of the loop.
    #[default]
    Turn,
    /// A description of an image for a model that cannot see.
    Vision,
    /// A summary of older turns.
    Compaction,
    /// A second try at structured output.
    Repair,
    /// A newer format's.
    #[serde(other)]
    Other,
}

/// Usage of one model turn, or of a side request of the loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnUsage {
    /// The tokens; those of failed attempts that were billed included.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// `None` when nobody knows the price: never counted as 0.
    #[serde(default, rename = "costNanoUsd", skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// The model that answered, as it names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The model that was asked for.
    #[serde(default)]
    pub requested_model: String,
    /// The provider's id, e.g. `anthropic`.
    #[serde(default)]
    pub provider: String,
    /// Why the model stopped. `None` when the stream was cut before it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<TurnFinishReason>,
    /// The provider's own word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_finish_reason: Option<String>,
    /// The run it belongs to.
    #[serde(default)]
    pub run_id: String,
    /// The turn it belongs to.
    #[serde(default)]
    pub turn_id: String,
    /// The run that spawned the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// 0 at the root of the tree.
    #[serde(default)]
    pub depth: u32,
    /// What the request was for.
    #[serde(default)]
    pub kind: UsageKind,
    /// False when the stream was cut before the final usage: the numbers are a lower bound.
    #[serde(default)]
    pub complete: bool,
    /// Requests made for it; 1 without retries.
    #[serde(default)]
    pub attempts: u32,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Usage of one decision. Adds tokens and cost to the tree, no turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionUsage {
    /// The tokens.
    #[serde(flatten)]
    pub tokens: TokenUsage,
    /// `None` when nobody knows the price.
    #[serde(default, rename = "costNanoUsd", skip_serializing_if = "Option::is_none")]
    pub cost: Option<NanoUsd>,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// The model that was asked for.
    #[serde(default)]
    pub requested_model: String,
    /// The provider's id.
    #[serde(default)]
    pub provider: String,
    /// The run it belongs to.
    #[serde(default)]
    pub run_id: String,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

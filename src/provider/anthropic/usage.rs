use serde::{Deserialize, Deserializer};

use super::super::UsageSnapshot;
use crate::types::{NanoUsd, TokenUsage};

/// A `usage` object. What is absent or null says nothing.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Usage {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation: Option<CacheCreation>,
    #[serde(default)]
    output_tokens_details: Option<OutputDetails>,
    #[serde(default)]
    iterations: Option<Vec<Iteration>>,
    /// OpenRouter, in dollars.
    #[serde(default)]
    cost: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct CacheCreation {
    #[serde(default, deserialize_with = "count")]
    ephemeral_5m_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct OutputDetails {
    #[serde(default, deserialize_with = "count")]
    thinking_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Iteration {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(flatten)]
    tokens: IterationTokens,
}

#[derive(Debug, Deserialize)]
struct IterationTokens {
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(default)]
    cache_creation: Option<CacheCreation>,
}

/// A count in whatever form. Anything that is not a number says nothing.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Whole(u64),
        Other(f64),
        Not(serde::de::IgnoredAny),
    }
    Ok(match Option::<Count>::deserialize(deserializer)? {
        Some(Count::Whole(count)) => Some(count),
        // Saturates; negative counts are 0.
        Some(Count::Other(count)) => Some(count as u64),
        Some(Count::Not(_)) | None => None,
    })
}

/// The usage of one answer. Its parts come several times, each time cumulative: the last that says something counts.
#[derive(Debug, Default)]
pub(super) struct UsageTally {
    tokens: TokenUsage,
    cache_1h: u64,
    /// Passes that the API bills beside its own sums.
    beside: TokenUsage,
    beside_1h: u64,
    cost: Option<NanoUsd>,
}

impl UsageTally {
    pub(super) fn update(&mut self, usage: Usage) -> UsageSnapshot {
        let split = usage.cache_creation.unwrap_or_default();
        let written = usage.cache_creation_input_tokens.or_else(|| split.total());
        let prompt = [usage.input_tokens, usage.cache_read_input_tokens, written];
        // A prompt of nothing at all is a field that was filled in, not a count.
        if prompt.iter().flatten().any(|count| *count > 0) {
            let own = &mut self.tokens;
            for (field, new) in [&mut own.input, &mut own.cache_read, &mut own.cache_write].into_iter().zip(prompt) {
                *field = new.unwrap_or(*field);
            }
            self.cache_1h = split.ephemeral_1h_input_tokens.unwrap_or(self.cache_1h);
        }
        self.tokens.output = usage.output_tokens.unwrap_or(self.tokens.output);
        let thinking = usage.output_tokens_details.and_then(|details| details.thinking_tokens);
        self.tokens.reasoning = thinking.or(self.tokens.reasoning);
        self.cost = usage.cost.filter(|cost| cost.is_finite()).map(NanoUsd::from_usd).or(self.cost);
        if let Some(iterations) = usage.iterations {
            self.beside = TokenUsage::default();
            self.beside_1h = 0;
            for pass in iterations.iter().filter(|pass| pass.is_beside_the_sums()) {
                self.beside += pass.tokens.usage();
                let split = pass.tokens.cache_creation.unwrap_or_default();
                self.beside_1h = self.beside_1h.saturating_add(split.ephemeral_1h_input_tokens.unwrap_or(0));
            }
        }
        self.snapshot()
    }

    fn snapshot(&self) -> UsageSnapshot {
        let mut tokens = self.tokens;
        tokens += self.beside;
        UsageSnapshot { tokens, cache_write_1h: self.cache_1h.saturating_add(self.beside_1h), cost: self.cost }
    }
}

impl CacheCreation {
    fn total(self) -> Option<u64> {
        match (self.ephemeral_5m_input_tokens, self.ephemeral_1h_input_tokens) {
            (None, None) => None,
            (short, long) => Some(short.unwrap_or(0).saturating_add(long.unwrap_or(0))),
        }
    }
}

impl Iteration {
    /// The top-level counts hold the `message` passes (or the `fallback_message` one) and nothing else.
    fn is_beside_the_sums(&self) -> bool {
        self.kind.as_deref().is_some_and(|kind| kind.starts_with("compaction") || kind.starts_with("advisor"))
    }
}

impl IterationTokens {
    fn usage(&self) -> TokenUsage {
        TokenUsage {
            input: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.unwrap_or(0),
            reasoning: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tally(parts: &[serde_json::Value]) -> UsageSnapshot {
        let mut tally = UsageTally::default();
        let snapshots = parts.iter().map(|part| tally.update(Usage::deserialize(part).unwrap()));
        snapshots.last().unwrap()
    }

    #[test]
    fn the_last_value_counts_and_null_says_nothing() {
        let usage = tally(&[
            json!({"input_tokens": 25, "cache_read_input_tokens": 10, "output_tokens": 1}),
            json!({"output_tokens": 9, "input_tokens": null}),
            json!({"output_tokens": 15, "input_tokens": 30, "cache_creation": null}),
        ]);
        let expected = TokenUsage { input: 30, output: 15, cache_read: 10, cache_write: 0, reasoning: None };
        assert_eq!(usage.tokens, expected);
    }

    #[test]
    fn zeros_that_only_fill_the_object_do_not_erase() {
        let usage = tally(&[
            json!({"input_tokens": 25, "output_tokens": 1}),
            json!({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 4}),
        ]);
        assert_eq!((usage.tokens.input, usage.tokens.output), (25, 4));
    }

    #[test]
    fn cache_writes_split_and_thinking_stay_parts() {
        let usage = tally(&[json!({
            "input_tokens": 1, "output_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
            "output_tokens_details": {"thinking_tokens": 20}, "cost": 0.000112,
        })]);
        assert_eq!((usage.tokens.cache_write, usage.cache_write_1h), (7, 4));
        assert_eq!(usage.tokens.reasoning, Some(20));
        assert_eq!(usage.cost, Some(NanoUsd(112_000)));
    }

    #[test]
    fn passes_beside_the_sums_are_added_once() {
        let iterations = json!([
            {"type": "compaction", "input_tokens": 100, "output_tokens": 83, "cache_read_input_tokens": 55},
            {"type": "message", "input_tokens": 181, "output_tokens": 8},
            {"type": "fallback_message", "input_tokens": 9, "output_tokens": 9},
        ]);
        let part = json!({"input_tokens": 181, "output_tokens": 8, "iterations": iterations});
        let usage = tally(&[part.clone(), part]).tokens;
        assert_eq!((usage.input, usage.output, usage.cache_read), (281, 91, 55));
    }

    #[test]
    fn odd_numbers_are_read_or_passed_over() {
        let usage =
            tally(&[json!({"input_tokens": 12.0, "output_tokens": -3, "cache_read_input_tokens": "many"})]).tokens;
        assert_eq!((usage.input, usage.output, usage.cache_read), (12, 0, 0));
    }
}

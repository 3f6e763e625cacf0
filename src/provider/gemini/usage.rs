use serde::Deserialize;

use super::super::UsageSnapshot;
use super::super::lenient::Count;
use crate::types::TokenUsage;

/// A `usageMetadata` object. What is absent says nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Usage {
    prompt_token_count: Count,
    cached_content_token_count: Count,
    candidates_token_count: Count,
    thoughts_token_count: Count,
    tool_use_prompt_token_count: Count,
}

/// The usage of one answer. Each chunk's is cumulative, and the last that says something counts, field by field: chunks
/// in the middle leave fields out, and the prompt grows when the provider runs tools.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageTally {
    last: Usage,
}

impl UsageTally {
    /// `None` as long as there is no count at all: the first chunks of a stream may hold only the kind of traffic.
    pub(super) fn update(&mut self, usage: Usage) -> Option<UsageSnapshot> {
        let last = &mut self.last;
        let mut counted = false;
        for (field, new) in [
            (&mut last.prompt_token_count, usage.prompt_token_count),
            (&mut last.cached_content_token_count, usage.cached_content_token_count),
            (&mut last.candidates_token_count, usage.candidates_token_count),
            (&mut last.thoughts_token_count, usage.thoughts_token_count),
            (&mut last.tool_use_prompt_token_count, usage.tool_use_prompt_token_count),
        ] {
            if new.0.is_some() {
                *field = new;
                counted = true;
            }
        }
        counted.then(|| UsageSnapshot::new(last.tokens()))
    }
}

impl Usage {
    /// The prompt includes what was read from a cache, but not what the provider's own tools put in; candidates do not
    /// include thoughts. Cache writes are not reported.
    fn tokens(&self) -> TokenUsage {
        let count = |count: Count| count.0.unwrap_or(0);
        let cache_read = count(self.cached_content_token_count);
        let fresh = count(self.prompt_token_count).saturating_sub(cache_read);
        let thoughts = self.thoughts_token_count;
        TokenUsage {
            input: fresh.saturating_add(count(self.tool_use_prompt_token_count)),
            output: count(self.candidates_token_count).saturating_add(count(thoughts)),
            cache_read,
            cache_write: 0,
            reasoning: thoughts.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tally(parts: &[serde_json::Value]) -> Option<TokenUsage> {
        let mut tally = UsageTally::default();
        let snapshots = parts.iter().map(|part| tally.update(Usage::deserialize(part).unwrap()));
        snapshots.last().unwrap().map(|snapshot| snapshot.tokens)
    }

    #[test]
    fn buckets_do_not_overlap() {
        let usage = json!({"promptTokenCount": 100, "cachedContentTokenCount": 40, "candidatesTokenCount": 5,
            "thoughtsTokenCount": 7, "toolUsePromptTokenCount": 3, "totalTokenCount": 115});
        let expected = TokenUsage { input: 63, output: 12, cache_read: 40, cache_write: 0, reasoning: Some(7) };
        assert_eq!(tally(&[usage]), Some(expected));
        assert_eq!(tally(&[json!({"promptTokenCount": 1, "cachedContentTokenCount": 9})]).unwrap().input, 0);
    }

    #[test]
    fn the_last_count_of_each_field_stays() {
        let parts = [
            json!({"promptTokenCount": 91, "candidatesTokenCount": 37, "thoughtsTokenCount": 113}),
            json!({"promptTokenCount": 91}),
            json!({"promptTokenCount": 265.0, "candidatesTokenCount": 88, "thoughtsTokenCount": null}),
        ];
        let usage = tally(&parts).unwrap();
        assert_eq!((usage.input, usage.output, usage.reasoning), (265, 201, Some(113)));
    }

    #[test]
    fn no_count_is_no_usage() {
        assert_eq!(tally(&[json!({"trafficType": "ON_DEMAND"})]), None);
        assert_eq!(tally(&[json!({"promptTokenCount": "many"})]), None);
    }
}

use serde::Deserialize;
use serde_json::value::RawValue;

use super::profile::UsageStyle;
use crate::provider::UsageSnapshot;
use crate::provider::lenient::Count;
use crate::types::{NanoUsd, TokenUsage};

/// Usage counts as vendors spell them. The same number stands under one name or another.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Report<'a> {
    prompt_tokens: Count,
    completion_tokens: Count,
    total_tokens: Count,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    /// Mistral, at times.
    #[serde(borrow)]
    prompt_token_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
    /// Moonshot, Together.
    cached_tokens: Count,
    /// Mistral.
    num_cached_tokens: Count,
    /// DeepSeek.
    prompt_cache_hit_tokens: Count,
    /// Venice, Doubleword.
    cache_read_input_tokens: Count,
    /// Vercel gateway, Doubleword.
    cache_creation_input_tokens: Count,
    /// Copilot.
    reasoning_tokens: Count,
    /// OpenRouter: dollars. Perplexity: an object.
    #[serde(borrow)]
    cost: Option<&'a RawValue>,
    #[serde(borrow)]
    cost_details: Option<&'a RawValue>,
    is_byok: Option<&'a RawValue>,
    /// xAI: dollars × 10¹⁰.
    cost_in_usd_ticks: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    cached_tokens: Count,
    cache_write_tokens: Count,
    reasoning_tokens: Count,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CostObject {
    total_cost: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CostDetails {
    upstream_inference_cost: Option<f64>,
}

/// What is known of a response's usage. Reports are cumulative: a later one replaces an earlier one field by field, so
/// that a last report without details does not lose them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    reasoning: Option<u64>,
    cost: Option<NanoUsd>,
}

fn parse<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> T {
    raw.map(RawValue::get)
        .filter(|raw| raw.starts_with('{'))
        .and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_default()
}

impl Usage {
    /// Takes a report in. What is not an object of counts is passed over.
    pub(super) fn take(&mut self, raw: &RawValue) {
        let report: Report<'_> = parse(Some(raw));
        let prompt: Details = parse(report.prompt_tokens_details);
        let prompt_alias: Details = parse(report.prompt_token_details);
        let completion: Details = parse(report.completion_tokens_details);
        let cached = [
            prompt.cached_tokens,
            prompt_alias.cached_tokens,
            report.cached_tokens,
            report.num_cached_tokens,
            report.prompt_cache_hit_tokens,
            report.cache_read_input_tokens,
        ];
        let written = [prompt.cache_write_tokens, prompt_alias.cache_write_tokens, report.cache_creation_input_tokens];
        replace(&mut self.prompt, report.prompt_tokens.0);
        replace(&mut self.completion, report.completion_tokens.0);
        replace(&mut self.total, report.total_tokens.0);
        replace(&mut self.cached, cached.iter().filter_map(|count| count.0).max());
        replace(&mut self.written, written.iter().filter_map(|count| count.0).max());
        replace(&mut self.reasoning, completion.reasoning_tokens.0.or(report.reasoning_tokens.0));
        replace(&mut self.cost, report.cost());
    }

    /// The counts in buckets that do not overlap; `None` while nothing is known.
    pub(super) fn snapshot(&self, style: UsageStyle) -> Option<UsageSnapshot> {
        if self.prompt.is_none() && self.completion.is_none() {
            return None;
        }
        let prompt = self.prompt.unwrap_or(0);
        let completion = self.completion.unwrap_or(0);
        let counted = prompt.saturating_add(completion);
        let mut reasoning = self.reasoning;
        let beside = completion.saturating_add(reasoning.unwrap_or(0));
        let output = match self.total {
            // The total settles whether reasoning was inside.
            Some(total) if total == prompt.saturating_add(beside) => beside,
            Some(total) if style == UsageStyle::ReasoningInTotal && total > counted => {
                reasoning = reasoning.or(Some(total.saturating_sub(counted)));
                total.saturating_sub(prompt)
            }
            Some(total) if total == counted => completion,
            _ if style == UsageStyle::ReasoningBeside => beside,
            _ => completion,
        };
        // Some hosts report more cached tokens than prompt tokens (xAI's models on Azure).
        let cache_read = self.cached.unwrap_or(0).min(prompt);
        let cache_write = self.written.unwrap_or(0).min(prompt.saturating_sub(cache_read));
        let tokens = TokenUsage {
            input: prompt.saturating_sub(cache_read).saturating_sub(cache_write),
            output,
            cache_read,
            cache_write,
            reasoning: reasoning.map(|count| count.min(output)),
        };
        Some(UsageSnapshot { cost: self.cost, ..UsageSnapshot::new(tokens) })
    }
}

/// What a usage object says that the response cost.
pub(in crate::provider) fn reported_cost(raw: &RawValue) -> Option<NanoUsd> {
    parse::<Report<'_>>(Some(raw)).cost()
}

fn replace<T>(known: &mut Option<T>, reported: Option<T>) {
    if reported.is_some() {
        *known = reported;
    }
}

impl Report<'_> {
    fn cost(&self) -> Option<NanoUsd> {
        if let Some(ticks) = self.cost_in_usd_ticks.0 {
            return Some(NanoUsd(ticks / 10));
        }
        let raw = self.cost?.get();
        if raw.starts_with('{') {
            return serde_json::from_str::<CostObject>(raw).ok()?.total_cost.map(NanoUsd::from_usd);
        }
        let own = serde_json::from_str::<f64>(raw).ok()?;
        // With the user's own key `cost` is the router's fee alone.
        let upstream = match self.is_byok.map(RawValue::get) {
            Some("true") => parse::<CostDetails>(self.cost_details).upstream_inference_cost.unwrap_or(0.0),
            _ => 0.0,
        };
        Some(NanoUsd::from_usd(own + upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(style: UsageStyle, reports: &[&str]) -> Option<UsageSnapshot> {
        let mut usage = Usage::default();
        for report in reports {
            usage.take(&RawValue::from_string((*report).to_owned()).unwrap());
        }
        usage.snapshot(style)
    }

    fn tokens(style: UsageStyle, report: &str) -> TokenUsage {
        read(style, &[report]).unwrap().tokens
    }

    fn buckets(input: u64, cache_read: u64, cache_write: u64, output: u64, reasoning: Option<u64>) -> TokenUsage {
        TokenUsage { input, output, cache_read, cache_write, reasoning }
    }

    #[test]
    fn cached_and_written_tokens_are_inside_the_prompt() {
        let report = r#"{"prompt_tokens":100,"completion_tokens":9,"total_tokens":109,
            "prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},
            "completion_tokens_details":{"reasoning_tokens":4}}"#;
        assert_eq!(tokens(UsageStyle::Inclusive, report), buckets(10, 60, 30, 9, Some(4)));
    }

    #[test]
    fn the_cached_count_has_many_names() {
        for field in [
            r#""cached_tokens":7"#,
            r#""num_cached_tokens":7"#,
            r#""prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":3"#,
            r#""cache_read_input_tokens":7"#,
            r#""prompt_token_details":{"cached_tokens":7}"#,
        ] {
            let report = format!(r#"{{"prompt_tokens":10,"completion_tokens":1,{field}}}"#);
            assert_eq!(tokens(UsageStyle::Inclusive, &report), buckets(3, 7, 0, 1, None), "{field}");
        }
    }

    #[test]
    fn the_total_says_whether_reasoning_was_inside() {
        let outside = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":35,
            "completion_tokens_details":{"reasoning_tokens":20}}"#;
        assert_eq!(tokens(UsageStyle::ReasoningBeside, outside), buckets(10, 0, 0, 25, Some(20)));
        assert_eq!(tokens(UsageStyle::Inclusive, outside), buckets(10, 0, 0, 25, Some(20)));
        let inside = r#"{"prompt_tokens":10,"completion_tokens":25,"total_tokens":35,
            "completion_tokens_details":{"reasoning_tokens":20}}"#;
        assert_eq!(tokens(UsageStyle::ReasoningBeside, inside), buckets(10, 0, 0, 25, Some(20)));
        let no_total =
            r#"{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":20}}"#;
        assert_eq!(tokens(UsageStyle::ReasoningBeside, no_total), buckets(10, 0, 0, 25, Some(20)));
        assert_eq!(tokens(UsageStyle::Inclusive, no_total), buckets(10, 0, 0, 5, Some(5)));
        let hidden = r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":40}"#;
        assert_eq!(tokens(UsageStyle::ReasoningInTotal, hidden), buckets(10, 0, 0, 30, Some(25)));
        assert_eq!(tokens(UsageStyle::Inclusive, hidden), buckets(10, 0, 0, 5, None));
    }

    #[test]
    fn more_cached_than_there_was_is_clamped() {
        let report = r#"{"prompt_tokens":10,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":99}}"#;
        assert_eq!(tokens(UsageStyle::Inclusive, report), buckets(0, 10, 0, 1, None));
    }

    #[test]
    fn a_later_report_replaces_field_by_field() {
        let first = r#"{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":90}}"#;
        let last = r#"{"prompt_tokens":100,"completion_tokens":8,"total_tokens":108}"#;
        let merged = read(UsageStyle::Inclusive, &[first, last]).unwrap().tokens;
        assert_eq!(merged, buckets(10, 90, 0, 8, None));
    }

    #[test]
    fn odd_reports_are_unknown_or_counted_as_far_as_they_go() {
        assert_eq!(read(UsageStyle::Inclusive, &["null"]), None);
        assert_eq!(read(UsageStyle::Inclusive, &["{}", "[]", "\"x\"", "3"]), None);
        let odd = r#"{"prompt_tokens":3.0,"completion_tokens":-2,"prompt_tokens_details":[1],"total_tokens":"x"}"#;
        assert_eq!(tokens(UsageStyle::Inclusive, odd), buckets(3, 0, 0, 0, None));
    }

    #[test]
    fn a_reported_cost_is_kept() {
        let cost = |report: &str| read(UsageStyle::Inclusive, &[report]).unwrap().cost;
        assert_eq!(cost(r#"{"prompt_tokens":1,"cost":0.00125}"#), Some(NanoUsd(1_250_000)));
        assert_eq!(cost(r#"{"prompt_tokens":1,"cost":{"total_cost":0.005}}"#), Some(NanoUsd(5_000_000)));
        assert_eq!(cost(r#"{"prompt_tokens":1,"cost_in_usd_ticks":50}"#), Some(NanoUsd(5)));
        let byok = r#"{"prompt_tokens":1,"cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.01}}"#;
        assert_eq!(cost(byok), Some(NanoUsd(11_000_000)));
        assert_eq!(cost(r#"{"prompt_tokens":1}"#), None);
    }
}

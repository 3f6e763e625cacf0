use serde::Deserialize;
use serde_json::value::RawValue;

use super::events::parse;
use crate::provider::UsageSnapshot;
use crate::provider::lenient::Count;
use crate::provider::openai_chat::reported_cost;
use crate::types::TokenUsage;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Report<'a> {
    input_tokens: Count,
    output_tokens: Count,
    #[serde(borrow)]
    input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens_details: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    cached_tokens: Count,
    cache_write_tokens: Count,
    reasoning_tokens: Count,
}

/// A usage object in buckets that do not overlap; `None` when it holds no counts. Cached and written tokens are part of
/// the input there, reasoning of the output.
pub(super) fn snapshot(raw: &RawValue) -> Option<UsageSnapshot> {
    let report: Report<'_> = parse(raw.get());
    if report.input_tokens.0.is_none() && report.output_tokens.0.is_none() {
        return None;
    }
    let details = |raw: Option<&RawValue>| raw.map_or_else(Details::default, |raw| parse(raw.get()));
    let (input_details, output_details) = (details(report.input_tokens_details), details(report.output_tokens_details));
    let input = report.input_tokens.0.unwrap_or(0);
    let output = report.output_tokens.0.unwrap_or(0);
    let cache_read = input_details.cached_tokens.0.unwrap_or(0).min(input);
    let cache_write = input_details.cache_write_tokens.0.unwrap_or(0).min(input.saturating_sub(cache_read));
    let tokens = TokenUsage {
        input: input.saturating_sub(cache_read).saturating_sub(cache_write),
        output,
        cache_read,
        cache_write,
        // Some hosts report more reasoning than output.
        reasoning: output_details.reasoning_tokens.0.map(|count| count.min(output)),
    };
    Some(UsageSnapshot { cost: reported_cost(raw), ..UsageSnapshot::new(tokens) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::NanoUsd;

    fn read(json: &str) -> Option<UsageSnapshot> {
        snapshot(&RawValue::from_string(json.to_owned()).unwrap())
    }

    #[test]
    fn the_buckets_do_not_overlap() {
        let usage = read(
            r#"{"input_tokens":100,"input_tokens_details":{"cached_tokens":60,"cache_write_tokens":30},
                "output_tokens":9,"output_tokens_details":{"reasoning_tokens":4},"total_tokens":109}"#,
        );
        let tokens = TokenUsage { input: 10, output: 9, cache_read: 60, cache_write: 30, reasoning: Some(4) };
        assert_eq!(usage.unwrap().tokens, tokens);
    }

    #[test]
    fn odd_reports_are_unknown_or_clamped() {
        for unknown in ["null", "{}", "[]", "3", r#"{"total_tokens":5}"#] {
            assert_eq!(read(unknown), None, "{unknown}");
        }
        let usage = read(
            r#"{"input_tokens":3,"input_tokens_details":{"cached_tokens":9},"output_tokens":2,
                "output_tokens_details":{"reasoning_tokens":7}}"#,
        );
        let tokens = TokenUsage { cache_read: 3, output: 2, reasoning: Some(2), ..TokenUsage::default() };
        assert_eq!(usage.unwrap().tokens, tokens);
        assert_eq!(read(r#"{"output_tokens":2,"input_tokens_details":null}"#).unwrap().tokens.reasoning, None);
    }

    #[test]
    fn a_reported_cost_is_kept() {
        let cost = |json: &str| read(json).unwrap().cost;
        assert_eq!(cost(r#"{"input_tokens":1,"cost":0.00125}"#), Some(NanoUsd(1_250_000)));
        assert_eq!(cost(r#"{"input_tokens":1,"cost_in_usd_ticks":50}"#), Some(NanoUsd(5)));
        assert_eq!(cost(r#"{"input_tokens":1}"#), None);
    }
}

mod table;

use std::collections::HashMap;

use super::UsageSnapshot;
use crate::types::NanoUsd;

/// What tokens of a model cost, in billionths of a US dollar per million tokens.
///
/// `None` means that nobody says: tokens of such a bucket leave the whole turn without a price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Fresh input.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input read from a cache.
    pub cache_read: Option<u64>,
    /// Input written to a cache for the usual time (5 or 30 minutes).
    pub cache_write: Option<u64>,
    /// Input written to a cache for an hour.
    pub cache_write_1h: Option<u64>,
}

impl Rates {
    /// Rates from dollars per million tokens; a cache rate that is not given is not known.
    #[must_use]
    pub fn usd(input: f64, output: f64) -> Self {
        Self { input: NanoUsd::from_usd(input).0, output: NanoUsd::from_usd(output).0, ..Self::default() }
    }

    /// Sets the rates of the cache, in dollars per million tokens.
    #[must_use]
    pub fn cache_usd(mut self, read: f64, write: f64) -> Self {
        self.cache_read = Some(NanoUsd::from_usd(read).0);
        self.cache_write = Some(NanoUsd::from_usd(write).0);
        self
    }

    fn cost(&self, usage: &UsageSnapshot) -> Option<NanoUsd> {
        let tokens = &usage.tokens;
        let hour = usage.cache_write_1h.min(tokens.cache_write);
        let short = tokens.cache_write.saturating_sub(hour);
        let buckets = [
            (tokens.input, Some(self.input)),
            (tokens.output, Some(self.output)),
            (tokens.cache_read, self.cache_read),
            (short, self.cache_write),
            (hour, self.cache_write_1h),
        ];
        let mut total = 0_u128;
        for (count, rate) in buckets {
            if count > 0 {
                total = total.saturating_add(u128::from(count).saturating_mul(u128::from(rate?)));
            }
        }
        // Rounded to the nearest billionth, once per turn.
        let nano = total.saturating_add(500_000) / 1_000_000;
        Some(NanoUsd(u64::try_from(nano).unwrap_or(u64::MAX)))
    }
}

/// Prices by provider and model: a built-in table, and the host's own, which win.
///
/// A cost that the provider itself reports wins over both. Unknown models have no price: never 0.
///
/// ```
/// use zidane::provider::{PriceBook, Rates};
///
/// let prices = PriceBook::builtin().set("my-gateway", "small-model", Rates::usd(0.10, 0.40));
/// assert!(prices.rates("anthropic", "claude-haiku-4-5-20251001", 1000).is_some());
/// assert!(prices.rates("my-gateway", "large-model", 1000).is_none());
/// ```
#[derive(Clone, Debug)]
pub struct PriceBook {
    own: HashMap<(String, String), Rates>,
    builtin: bool,
}

impl Default for PriceBook {
    fn default() -> Self {
        Self::builtin()
    }
}

impl PriceBook {
    /// The built-in table.
    #[must_use]
    pub fn builtin() -> Self {
        Self { own: HashMap::new(), builtin: true }
    }

    /// No prices at all but those that are set.
    #[must_use]
    pub fn empty() -> Self {
        Self { own: HashMap::new(), builtin: false }
    }

    /// The date of the built-in numbers.
    #[must_use]
    pub const fn as_of() -> &'static str {
        table::AS_OF
    }

    /// Sets the rates of a model; they win over the table's, whatever the size of the prompt.
    #[must_use]
    pub fn set(mut self, provider: impl Into<String>, model: impl Into<String>, rates: Rates) -> Self {
        self.own.insert((provider.into(), model.into()), rates);
        self
    }

    /// The rates of a model for a prompt of this many tokens, cached ones included. Dated ids
    /// (`…-20251001`, `…-2026-01-31`) have the price of the id without the date.
    #[must_use]
    pub fn rates(&self, provider: &str, model: &str, prompt_tokens: u64) -> Option<Rates> {
        self.exact(provider, model, prompt_tokens).or_else(|| self.exact(provider, undated(model)?, prompt_tokens))
    }

    fn exact(&self, provider: &str, model: &str, prompt_tokens: u64) -> Option<Rates> {
        if !self.own.is_empty()
            && let Some(rates) = self.own.get(&(provider.to_owned(), model.to_owned()))
        {
            return Some(*rates);
        }
        if !self.builtin {
            return None;
        }
        let vendor = table_name(provider);
        let index = table::TABLE.binary_search_by(|row| (row.0, row.1).cmp(&(vendor, model))).ok()?;
        let (_, _, base, tiers) = table::TABLE.get(index)?;
        let tier = tiers.iter().filter(|(above, _)| prompt_tokens > *above).max_by_key(|(above, _)| *above);
        Some(tier.map_or(*base, |(_, rates)| *rates))
    }

    /// What a response cost: what the provider says, else by the model that answered, else by the one asked for.
    #[must_use]
    pub fn cost(&self, provider: &str, answered: Option<&str>, asked: &str, usage: &UsageSnapshot) -> Option<NanoUsd> {
        if usage.cost.is_some() {
            return usage.cost;
        }
        let tokens = &usage.tokens;
        let prompt = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        let rates = answered
            .and_then(|model| self.rates(provider, model, prompt))
            .or_else(|| self.rates(provider, asked, prompt))?;
        rates.cost(usage)
    }
}

/// The table's name of the vendor behind a provider's id.
pub(super) fn table_name(provider: &str) -> &str {
    match provider {
        "openai-responses" | "openai-chat" => "openai",
        "gemini" => "google",
        other => other,
    }
}

/// A model id without the date at its end.
pub(super) fn undated(model: &str) -> Option<&str> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (head, last) = model.rsplit_once('-')?;
    if last.len() == 8 && digits(last) {
        return Some(head);
    }
    let (head, month) = head.rsplit_once('-')?;
    let (head, year) = head.rsplit_once('-')?;
    (last.len() == 2 && month.len() == 2 && year.len() == 4 && digits(last) && digits(month) && digits(year))
        .then_some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TokenUsage;

    fn usage(input: u64, output: u64, cache_read: u64, cache_write: u64) -> UsageSnapshot {
        UsageSnapshot::new(TokenUsage { input, output, cache_read, cache_write, reasoning: None })
    }

    #[test]
    fn the_table_is_sorted_and_whole() {
        assert!(table::TABLE.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
        assert!(table::TABLE.len() > 70);
    }

    #[test]
    fn buckets_are_priced_apart() {
        let prices = PriceBook::builtin();
        let cost = |usage| prices.cost("anthropic", None, "claude-fable-5-1", &usage).unwrap().usd();
        assert!((cost(usage(1_000_000, 0, 0, 0)) - 10.0).abs() < 1e-9);
        assert!((cost(usage(0, 1_000, 0, 0)) - 0.05).abs() < 1e-9);
        assert!((cost(usage(0, 0, 1_000_000, 0)) - 0.25).abs() < 1e-9);
        assert!((cost(usage(0, 0, 0, 1_000_000)) - 12.5).abs() < 1e-9);
        let hour = UsageSnapshot { cache_write_1h: 1_000_000, ..usage(0, 0, 0, 1_000_000) };
        assert!((cost(hour) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn large_prompts_have_their_tier() {
        let with_tiers = table::TABLE.iter().find(|row| !row.3.is_empty()).unwrap();
        let (above, dear) = with_tiers.3[0];
        let prices = PriceBook::builtin();
        assert_eq!(prices.rates(with_tiers.0, with_tiers.1, above), Some(with_tiers.2));
        assert_eq!(prices.rates(with_tiers.0, with_tiers.1, above + 1), Some(dear));
    }

    #[test]
    fn dates_are_cut_and_unknown_models_have_no_price() {
        let prices = PriceBook::builtin();
        assert!(prices.rates("anthropic", "claude-haiku-4-5-20251001", 1).is_some());
        assert!(prices.rates("openai", "gpt-5.4-mini-2026-03-17", 1).is_some());
        assert_eq!(prices.rates("anthropic", "claude-unheard-of", 1), None);
        assert_eq!(prices.cost("custom", Some("local"), "local", &usage(1, 1, 0, 0)), None);
    }

    #[test]
    fn what_the_provider_says_wins_and_the_hosts_prices_come_next() {
        let prices = PriceBook::builtin().set("anthropic", "claude-fable-5-1", Rates::usd(1.0, 1.0));
        let mut spent = usage(1_000_000, 0, 0, 0);
        assert_eq!(prices.cost("anthropic", None, "claude-fable-5-1", &spent), Some(NanoUsd(1_000_000_000)));
        assert_eq!(prices.cost("anthropic", None, "claude-fable-5-1", &usage(0, 0, 1, 0)), None, "no rate, no price");
        spent.cost = Some(NanoUsd(5));
        assert_eq!(prices.cost("anthropic", None, "claude-fable-5-1", &spent), Some(NanoUsd(5)));
    }
}

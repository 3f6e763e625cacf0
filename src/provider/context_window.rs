use super::prices::{table_name, undated};

/// The most tokens that a conversation with a model may have, as of 20 November 2026, from public catalogues: the
/// model's window, or its limit on input where that is stated and smaller.
///
/// Sorted by vendor and model.
#[rustfmt::skip]
const TABLE: &[(&str, &str, u64)] = &[
    ("anthropic", "claude-fable-5-1", 1_000_000),
    ("anthropic", "claude-fable-5-2", 1_000_000),
    ("anthropic", "claude-haiku-4-5", 200_000),
    ("anthropic", "claude-haiku-5-5", 1_000_000),
    ("anthropic", "claude-opus-4-7", 1_000_000),
    ("anthropic", "claude-opus-4-8", 1_000_000),
    ("anthropic", "claude-opus-5", 1_000_000),
    ("anthropic", "claude-opus-5-5", 1_000_000),
    ("anthropic", "claude-sonnet-4-6", 1_000_000),
    ("anthropic", "claude-sonnet-5", 1_000_000),
    ("anthropic", "claude-sonnet-5-5", 1_000_000),
    ("cerebras", "gemma-4-31b", 131_072),
    ("cerebras", "gpt-oss-120b", 131_072),
    ("cerebras", "qwen-3.8-27b", 131_072),
    ("deepseek", "deepseek-flash", 1_000_000),
    ("deepseek", "deepseek-v4-pro", 1_000_000),
    ("google", "gemini-2.5-flash", 1_048_576),
    ("google", "gemini-2.5-flash-lite", 1_048_576),
    ("google", "gemini-2.5-pro", 1_048_576),
    ("google", "gemini-3.1-flash-lite", 1_048_576),
    ("google", "gemini-3.1-pro-preview", 1_048_576),
    ("google", "gemini-3.5-flash", 1_048_576),
    ("google", "gemini-3.5-flash-lite", 1_048_576),
    ("google", "gemini-3.6-flash", 1_048_576),
    ("google", "gemini-3.8-flash", 1_048_576),
    ("google", "gemini-4-argon", 1_048_576),
    ("google", "gemini-4-carbon", 1_048_576),
    ("google", "gemini-4-hydrogen", 1_048_576),
    ("google", "gemini-4-neon", 1_048_576),
    ("groq", "llama-3.1-8b-instant", 131_072),
    ("groq", "llama-3.3-70b-versatile", 131_072),
    ("groq", "openai/gpt-oss-120b", 131_072),
    ("groq", "openai/gpt-oss-20b", 131_072),
    ("groq", "qwen/qwen3.8-27b", 131_072),
    ("mistral", "codestral-2508", 256_000),
    ("mistral", "devstral-2512", 262_144),
    ("mistral", "ministral-14b-2512", 262_144),
    ("mistral", "mistral-large-2512", 262_144),
    ("mistral", "mistral-large-4", 1_048_576),
    ("mistral", "mistral-medium-2604", 262_144),
    ("mistral", "mistral-small-2603", 262_144),
    ("openai", "gpt-5.4", 1_050_000),
    ("openai", "gpt-5.4-mini", 272_000),
    ("openai", "gpt-5.4-nano", 272_000),
    ("openai", "gpt-5.5", 1_050_000),
    ("openai", "gpt-5.6-luna", 922_000),
    ("openai", "gpt-5.6-sol", 922_000),
    ("openai", "gpt-5.6-terra", 922_000),
    ("openai", "gpt-6-astra", 922_000),
    ("openai", "gpt-6-luna", 922_000),
    ("openai", "gpt-6-sol", 922_000),
    ("openai", "gpt-6.1-sol", 922_000),
    ("openai", "gpt-6.1-terra", 922_000),
    ("openai", "gpt-6.2-astra", 1_050_000),
    ("openai", "gpt-6.2-sol", 1_050_000),
    ("openrouter", "anthropic/claude-fable-5.2", 1_000_000),
    ("openrouter", "anthropic/claude-haiku-5.5", 1_000_000),
    ("openrouter", "anthropic/claude-opus-5.5", 1_000_000),
    ("openrouter", "anthropic/claude-sonnet-5.5", 1_000_000),
    ("openrouter", "deepseek/deepseek-v4-pro", 1_048_576),
    ("openrouter", "deepseek/deepseek-v4.1-flash", 1_048_576),
    ("openrouter", "google/gemini-4-hydrogen", 1_048_576),
    ("openrouter", "google/gemini-4-neon", 1_048_576),
    ("openrouter", "meta/muse-spark-1.3", 1_048_576),
    ("openrouter", "minimax/minimax-m3", 524_288),
    ("openrouter", "mistralai/mistral-large-4-0", 1_048_576),
    ("openrouter", "moonshotai/kimi-k3", 1_048_576),
    ("openrouter", "moonshotai/kimi-k3.1-pro", 1_048_576),
    ("openrouter", "openai/gpt-6-luna", 1_050_000),
    ("openrouter", "openai/gpt-6.1-terra", 1_050_000),
    ("openrouter", "openai/gpt-6.2-astra", 1_050_000),
    ("openrouter", "openai/gpt-6.2-sol", 1_050_000),
    ("openrouter", "openai/gpt-oss-120b", 131_072),
    ("openrouter", "qwen/qwen4-max", 1_000_000),
    ("openrouter", "x-ai/grok-4.7", 500_000),
    ("openrouter", "z-ai/glm-5.3", 1_048_576),
    ("xai", "grok-4.3", 1_000_000),
    ("xai", "grok-4.5", 500_000),
    ("xai", "grok-4.6", 500_000),
    ("xai", "grok-4.7", 500_000),
];

/// The window of a model, where the table knows it. Dated ids have that of the id without the date.
pub(super) fn context_window(provider: &str, model: &str) -> Option<u64> {
    exact(provider, model).or_else(|| exact(provider, undated(model)?))
}

fn exact(provider: &str, model: &str) -> Option<u64> {
    let vendor = table_name(provider);
    let index = TABLE.binary_search_by(|row| (row.0, row.1).cmp(&(vendor, model))).ok()?;
    TABLE.get(index).map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_known_by_provider_and_model() {
        assert!(TABLE.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
        assert_eq!(context_window("anthropic", "claude-haiku-4-5-20251001"), Some(200_000));
        assert_eq!(context_window("openai-responses", "gpt-5.4-mini-2026-03-17"), Some(272_000));
        assert_eq!(context_window("gemini", "gemini-4-neon"), Some(1_048_576));
        assert_eq!(context_window("anthropic", "gpt-5.4-mini"), None);
        assert_eq!(context_window("custom", ""), None);
    }
}

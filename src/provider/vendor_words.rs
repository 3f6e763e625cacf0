//! What vendors say when a request fails, as data. Servers that speak one wire pass on the errors of another, so all
//! wires look for the same.

/// Codes of money that ran out; they decide by themselves, whatever the status.
pub(crate) const QUOTA_WORDS: &[&str] = &[
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
    "usage_limit_reached",
    "usage_limit_exceeded",
    "payment_required",
    "exceeded_current_quota_error",
    // Z.ai: account in arrears, plan limit.
    "1113",
    "1308",
];

/// Codes of an overflow.
pub(crate) const OVERFLOW_WORDS: &[&str] = &[
    "context_length_exceeded",
    "exceed_context_size_error",
    "context_window_exceeded",
    "too_many_prompt_tokens",
    "model_context_window_exceeded",
    "request_too_large",
    // Z.ai.
    "1261",
];

/// Parts of the texts of an overflow, in lower case.
pub(crate) const OVERFLOW_TEXTS: &[&str] = &[
    "exceeds the context window",
    "maximum context length",
    "maximum prompt length is",
    "reduce the length of the messages",
    "longer than the model's context length",
    "exceeds the available context size",
    "greater than the context length",
    "exceeded model token limit",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "range of input length should be",
    "exceed context limit",
    "exceeds the maximum number of tokens allowed",
    "input is too long",
    "context length exceeded",
    "context window exceeded",
];

/// OpenAI's code of a string that is too long: of content, which is an overflow, and not of an id. `text` is in lower
/// case.
pub(crate) fn is_overlong_content(code: &str, text: &str) -> bool {
    code == "string_above_max_length" && (text.contains("content") || text.contains(".text")) && !text.contains(".id'")
}

//! The class of a recorded failure.

use std::time::Duration;

use serde_json::Value;
use zidane::provider::ProviderErrorKind as Kind;

use super::super::answer::Failure;
use super::super::corpus::Exchange;

/// `status` is the HTTP status, or what an error inside a 200 says of itself.
pub fn of_body(exchange: &Exchange, status: Option<u16>, body: &Value) -> Failure {
    // In array mode Google wraps an error as well.
    let body = body.get(0).unwrap_or(body);
    let error = &body["error"];
    let words = format!("{body}").to_lowercase();
    let code = [&error["type"], &error["code"], &body["type"], &body["code"]]
        .iter()
        .filter_map(|value| value.as_str())
        .collect::<Vec<_>>()
        .join(" ");
    let own = [&error["status_code"], &error["code"], &body["raw_status_code"]];
    let own = own.iter().find_map(|value| value.as_u64()).and_then(|code| u16::try_from(code).ok());
    let told = if exchange.status >= 400 { status } else { own.or(status.filter(|status| *status >= 400)) };
    let kinds = kinds(told, &code, &words);
    let retryable = match exchange.header("x-should-retry") {
        Some("true") => Some(true),
        Some("false") => Some(false),
        // The model wrote a call that the host would not take: nothing is wrong with the request, and a second try
        // may well work. Both views are defensible.
        _ if code.contains("tool_use_failed") => None,
        _ if kinds.iter().any(|kind| kind.is_retryable() != kinds[0].is_retryable()) => None,
        _ => Some(kinds[0].is_retryable()),
    };
    Failure {
        kinds,
        retryable,
        status: (exchange.status >= 400).then_some(exchange.status),
        retry_after: retry_after(exchange).or_else(|| retry_info(error)),
        request_ids: request_ids(exchange),
    }
}

fn kinds(status: Option<u16>, code: &str, words: &str) -> Vec<Kind> {
    const TOO_LONG: [&str; 6] = [
        "exceeds the maximum number of tokens allowed",
        "prompt is too long",
        "maximum context length",
        "too_many_prompt_tokens",
        "exceed_context_size_error",
        "exceeds the context window",
    ];
    if TOO_LONG.iter().any(|text| words.contains(text)) {
        return vec![Kind::ContextOverflow];
    }
    // Google: a refused key is a bad request, and a quota that is over for the day is over.
    if words.contains("api_key_invalid") {
        return vec![Kind::Auth];
    }
    if words.contains("perday") {
        return vec![Kind::Quota];
    }
    if words.contains("insufficient_quota") || words.contains("credit balance") {
        return vec![Kind::Quota];
    }
    if words.contains("content violates usage guidelines") {
        // A refused prompt that comes as 403: the status says "auth", the sense says "invalid".
        return vec![Kind::Invalid, Kind::Auth];
    }
    if words.contains("increasing context size or reducing parallel") {
        // The local server's cache is full: by this conversation or by others, it does not say.
        return vec![Kind::Server, Kind::ContextOverflow];
    }
    if code.contains("rate_limit_exceeded") {
        return vec![Kind::RateLimited];
    }
    if code.contains("overloaded") {
        return vec![Kind::Overloaded];
    }
    match status {
        Some(401 | 403) => vec![Kind::Auth],
        Some(402) => vec![Kind::Quota],
        Some(408 | 504) => vec![Kind::Timeout],
        // The references class it as invalid in one place and as an overflow in two others.
        Some(413) => vec![Kind::ContextOverflow, Kind::Invalid],
        Some(429) => vec![Kind::RateLimited],
        Some(503 | 529) => vec![Kind::Overloaded],
        Some(400..=499) => vec![Kind::Invalid],
        // No code at all, or one of the server's own.
        _ => vec![Kind::Server],
    }
}

/// The header's and the body's, which are one but where the recording hid one of them.
pub fn request_ids(exchange: &Exchange) -> Vec<String> {
    let body: Value = serde_json::from_str(exchange.body.trim()).unwrap_or_default();
    let all = [exchange.header("request-id"), exchange.header("x-request-id"), body["request_id"].as_str()];
    all.into_iter().flatten().map(str::to_owned).collect()
}

/// The exact header wins, unless it says "at once" while the other asks for patience: a delay is never shortened.
fn retry_after(exchange: &Exchange) -> Option<Duration> {
    let number = |name: &str| exchange.header(name).and_then(|value| value.parse::<u64>().ok());
    match (number("retry-after-ms"), number("retry-after")) {
        (Some(millis), _) if millis > 0 => Some(Duration::from_millis(millis)),
        (_, Some(seconds)) => Some(Duration::from_secs(seconds)),
        (millis, None) => millis.map(Duration::from_millis),
    }
}

/// Google writes the delay into the body: `"retryDelay": "48s"`.
fn retry_info(error: &Value) -> Option<Duration> {
    let details = error["details"].as_array()?;
    let delay = details.iter().find_map(|detail| detail["retryDelay"].as_str())?;
    Duration::try_from_secs_f64(delay.strip_suffix('s')?.parse().ok()?).ok()
}

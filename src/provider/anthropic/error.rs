use serde_json::Value;

use super::super::delay::{delay_hint, retry_info};
use super::super::response::{excerpt, is_html, kind_of_status};
use super::super::vendor_words::{OVERFLOW_TEXTS, OVERFLOW_WORDS, QUOTA_WORDS, is_overlong_content};
use super::super::{ProviderError, ProviderErrorKind};
use super::Wire;

/// Texts of an overflow at servers that speak this wire, beside those that all are checked for.
const OVERFLOW: [&str; 6] = [
    "exceeds the context",
    "context size",
    "context window",
    "context length",
    "maximum number of tokens allowed",
    "too many prompt tokens",
];
/// Texts and parts of codes of money that ran out, whatever the status, beside the words that all are checked for.
const QUOTA: [&str; 8] = [
    "credit balance is too low",
    "spend limit",
    "spend_limit",
    "spending limit",
    "usage limits",
    "insufficient_quota",
    "insufficient balance",
    "insufficient credits",
];

/// The error that a body describes: of a failed request, or, without a status, of an `error` event in a stream.
///
/// Takes the vendor's shape, OpenAI's, and what proxies make of them.
pub(super) fn from_body(wire: &Wire, status: Option<u16>, body: &[u8]) -> ProviderError {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let Some(parsed) = parsed else { return unparsed(wire, status, body) };
    let error = parsed.get("error").filter(|error| !error.is_null()).unwrap_or(&parsed);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let message = error
        .as_str()
        .map(str::to_owned)
        .or_else(|| text(error, "message"))
        .or_else(|| text(&parsed, "message"))
        .or_else(|| text(&parsed, "detail"))
        .unwrap_or_else(|| excerpt(body));
    let own_type = text(error, "type").filter(|kind| kind != "error");
    let detail = error.pointer("/details/error_code").and_then(Value::as_str).map(str::to_owned);
    let code = detail.or_else(|| text(error, "code")).or_else(|| own_type.clone());
    // Some proxies put the status into the body of a 200.
    let inner_status = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = status.or(inner_status.filter(|status| (400..600).contains(status)));

    let kind = kind_of(own_type.as_deref(), status, code.as_deref(), &message);
    // Clouds that host the models put a delay into the body.
    let retry_after = match kind {
        ProviderErrorKind::RateLimited | ProviderErrorKind::Overloaded => {
            error.as_object().and_then(retry_info).or_else(|| delay_hint(&message))
        }
        _ => None,
    };
    let mut result = wire.error(kind, message);
    result.status = status;
    result.retry_after = retry_after;
    result.code = code;
    result.request_id = text(&parsed, "request_id");
    // A conflict is over the next time.
    if own_type.as_deref() == Some("conflict_error") {
        result.should_retry = Some(true);
    }
    result
}

fn unparsed(wire: &Wire, status: Option<u16>, body: &[u8]) -> ProviderError {
    let text = String::from_utf8_lossy(body);
    let kind = kind_of(None, status, None, &text);
    let what = if is_html(body) { "a web page" } else { "a body that is not JSON" };
    let mut error = wire.error(kind, format!("the server answered with {what}"));
    error.status = status;
    error.body_excerpt = Some(excerpt(body)).filter(|text| !text.is_empty());
    error
}

fn kind_of(own_type: Option<&str>, status: Option<u16>, code: Option<&str>, message: &str) -> ProviderErrorKind {
    use ProviderErrorKind as Kind;
    let message = message.to_ascii_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    let by_status = status.map(kind_of_status);
    let by_type = match own_type {
        Some("authentication_error" | "permission_error") => Some(Kind::Auth),
        Some("billing_error") => Some(Kind::Quota),
        Some("rate_limit_error") => Some(Kind::RateLimited),
        Some("overloaded_error") => Some(Kind::Overloaded),
        Some("api_error" | "server_error" | "internal_server_error") => Some(Kind::Server),
        Some("timeout_error") => Some(Kind::Timeout),
        Some("request_too_large" | "exceed_context_size_error") => Some(Kind::ContextOverflow),
        Some("invalid_request_error" | "not_found_error" | "conflict_error") => Some(Kind::Invalid),
        _ => None,
    };
    let kind = match (by_type, by_status) {
        // OpenAI's shape calls a refused key an invalid request; the status knows better.
        (Some(Kind::Invalid), Some(status)) => status,
        (Some(kind), _) | (None, Some(kind)) => kind,
        // An error event of unknown type.
        (None, None) => Kind::Server,
    };
    let has = |known: &[&str]| [own_type, code].into_iter().flatten().any(|word| known.contains(&word));
    let out_of_money =
        || has(QUOTA_WORDS) || code.is_some_and(|code| QUOTA.iter().any(|text| code.contains(text))) || says(&QUOTA);
    let too_long = || {
        let overlong = code.is_some_and(|code| is_overlong_content(code, &message));
        status == Some(413) || says(&OVERFLOW) || says(OVERFLOW_TEXTS) || has(OVERFLOW_WORDS) || overlong
    };
    match kind {
        _ if out_of_money() => Kind::Quota,
        Kind::Invalid if too_long() => Kind::ContextOverflow,
        // llama.cpp reports an overflow with status 500 in older builds.
        Kind::Server if says(&["context size", "context window"]) => Kind::ContextOverflow,
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use ProviderErrorKind as Kind;

    fn of(status: impl Into<Option<u16>>, body: &str) -> ProviderError {
        from_body(&Wire::new("anthropic", "2023-06-01"), status.into(), body.as_bytes())
    }

    fn own(kind: &str, message: &str) -> String {
        serde_json::json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"})
            .to_string()
    }

    #[test]
    fn types_and_statuses_become_kinds() {
        for (status, kind, expected) in [
            (400, "invalid_request_error", Kind::Invalid),
            (401, "authentication_error", Kind::Auth),
            (402, "billing_error", Kind::Quota),
            (403, "permission_error", Kind::Auth),
            (404, "not_found_error", Kind::Invalid),
            (413, "request_too_large", Kind::ContextOverflow),
            (429, "rate_limit_error", Kind::RateLimited),
            (500, "api_error", Kind::Server),
            (504, "timeout_error", Kind::Timeout),
            (529, "overloaded_error", Kind::Overloaded),
            (503, "made_up_error", Kind::Overloaded),
        ] {
            let error = of(status, &own(kind, "words"));
            assert_eq!((error.kind, error.status, error.code.as_deref()), (expected, Some(status), Some(kind)));
            assert_eq!((error.message.as_str(), error.request_id.as_deref()), ("words", Some("req_1")));
            // In a stream there is no status.
            if kind != "made_up_error" {
                assert_eq!(of(None, &own(kind, "words")).kind, expected);
            }
        }
        assert!(of(409, &own("conflict_error", "")).is_retryable());
        assert!(of(None, &own("overloaded_error", "")).is_retryable());
        assert!(!of(None, &own("invalid_request_error", "")).is_retryable());
    }

    #[test]
    fn overflow_and_money_are_told_from_plain_refusals() {
        let long = "prompt is too long: 205132 tokens > 200000 maximum";
        assert_eq!(of(400, &own("invalid_request_error", long)).kind, Kind::ContextOverflow);
        assert_eq!(of(413, "<html>too large</html>").kind, Kind::ContextOverflow);
        assert_eq!(of(400, &own("exceed_context_size_error", "n_ctx")).kind, Kind::ContextOverflow);
        let poor = "Your credit balance is too low to access the API.";
        assert_eq!(of(400, &own("invalid_request_error", poor)).kind, Kind::Quota);
        let cap = r#"{"error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        let error = of(429, cap);
        assert_eq!((error.kind, error.code.as_deref()), (Kind::Quota, Some("enforced_spend_limit_reached")));
    }

    #[test]
    fn errors_of_other_vendors_are_passed_on_by_proxies() {
        let foreign =
            |code: &str, message: &str| serde_json::json!({"error": {"code": code, "message": message}}).to_string();
        assert_eq!(of(429, r#"{"type":"usage_limit_reached","message":"x"}"#).kind, Kind::Quota);
        assert_eq!(of(400, &foreign("1261", "Prompt too long")).kind, Kind::ContextOverflow);
        let long = |place: &str| foreign("string_above_max_length", &format!("Invalid '{place}': string too long."));
        assert_eq!(of(400, &long("input[5].content[1].text")).kind, Kind::ContextOverflow);
        assert_eq!(of(400, &long("messages[2].tool_calls[0].id")).kind, Kind::Invalid);
    }

    #[test]
    fn a_delay_in_the_body_is_the_servers() {
        let weekly = of(429, &own("rate_limit_error", "Weekly usage limit reached. Resets in 6hr 29min."));
        let expected = Some(Duration::from_secs(6 * 3600 + 29 * 60));
        assert_eq!((weekly.kind, weekly.retry_after), (Kind::RateLimited, expected));
        let cloud = r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"quota","details":[{"retryDelay":"34s"}]}}"#;
        assert_eq!(of(429, cloud).retry_after, Some(Duration::from_secs(34)));
        assert_eq!(of(400, &own("invalid_request_error", "try again in 5s")).retry_after, None);
    }

    #[test]
    fn other_shapes_are_read() {
        let openai = r#"{"error":{"message":"Incorrect key","type":"invalid_request_error","code":"invalid_api_key"}}"#;
        let error = of(401, openai);
        assert_eq!((error.kind, error.code.as_deref()), (Kind::Auth, Some("invalid_api_key")));
        assert_eq!(of(500, r#"{"error":"boom"}"#).message, "boom");
        assert_eq!(of(422, r#"{"detail":"no such field"}"#).message, "no such field");
        assert_eq!(of(None, r#"{"error":{"code":502,"message":"bad gateway"}}"#).status, Some(502));
        assert_eq!(of(400, "[]").message, "[]");
    }

    #[test]
    fn a_page_is_kept_as_an_excerpt() {
        let error = of(502, "<html><h1>Bad gateway</h1></html>");
        assert_eq!(error.kind, Kind::Server);
        assert_eq!(error.body_excerpt.as_deref(), Some("<html><h1>Bad gateway</h1></html>"));
        assert_eq!(of(529, "").body_excerpt, None);
    }
}

use std::time::Duration;

use serde_json::Value;

use super::super::delay::{delay_hint, retry_info};
use super::super::response::{excerpt, is_html, kind_of_status};
use super::super::vendor_words::{OVERFLOW_TEXTS, OVERFLOW_WORDS, QUOTA_WORDS, is_overlong_content};
use super::super::{ProviderError, ProviderErrorKind};
use super::Wire;

/// Texts of money that ran out, whatever the status.
const MONEY: [&str; 4] = ["spending cap", "spend cap", "prepayment credits", "enable billing"];

/// The error that a body describes: of a failed request, or, without a status, of an error inside a stream. The body
/// may be wrapped in an array.
pub(super) fn from_body(wire: &Wire, status: Option<u16>, body: &[u8]) -> ProviderError {
    let parsed = serde_json::from_slice::<Value>(body).ok();
    let Some(parsed) = parsed else { return unparsed(wire, status, body) };
    let parsed = match parsed {
        Value::Array(mut items) if !items.is_empty() => items.swap_remove(0),
        other => other,
    };
    let error = parsed.get("error").filter(|error| !error.is_null()).unwrap_or(&parsed);
    let text = |key: &str| error.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let message = text("message").or_else(|| error.as_str()).map_or_else(|| excerpt(body), str::to_owned);
    // Gateways write the number as a text.
    let own = match error.get("code") {
        Some(Value::String(code)) => code.parse().ok(),
        code => code.and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()),
    };
    let status = status.or_else(|| own.filter(|status| (400..600).contains(status)));
    let details = Details::of(error);

    // The last two are other vendors', which gateways pass on.
    let word = text("status").or_else(|| text("code").filter(|_| own.is_none())).or_else(|| text("type"));
    let mut result = wire.error(kind_of(status, word, &details, &message), message);
    result.status = status;
    result.code = details.reason.or(word).map(str::to_owned);
    result.retry_after = details.delay.or_else(|| delay_hint(&result.message));
    result
}

fn unparsed(wire: &Wire, status: Option<u16>, body: &[u8]) -> ProviderError {
    let text = String::from_utf8_lossy(body);
    let what = if is_html(body) { "a web page" } else { "a body that is not JSON" };
    let kind = kind_of(status, None, &Details::default(), &text);
    let mut error = wire.error(kind, format!("the server answered with {what}"));
    error.status = status;
    error.body_excerpt = Some(excerpt(body)).filter(|text| !text.is_empty());
    error
}

/// What `details` says: each entry names its type.
#[derive(Debug, Default)]
struct Details<'a> {
    /// `ErrorInfo.reason`.
    reason: Option<&'a str>,
    /// `RetryInfo.retryDelay`. There is no header for it.
    delay: Option<Duration>,
    /// A quota that is over for the day (`QuotaFailure`).
    daily: bool,
}

impl<'a> Details<'a> {
    fn of(error: &'a Value) -> Self {
        let mut details = Self { delay: error.as_object().and_then(retry_info), ..Self::default() };
        for entry in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            let reason = entry.get("reason").and_then(Value::as_str).filter(|reason| !reason.is_empty());
            details.reason = details.reason.or(reason);
            let violations = entry.get("violations").and_then(Value::as_array).into_iter().flatten();
            details.daily |= violations
                .filter_map(|violation| violation.get("quotaId").and_then(Value::as_str))
                .any(|quota| quota.contains("PerDay"));
        }
        details
    }
}

fn kind_of(status: Option<u16>, word: Option<&str>, details: &Details<'_>, message: &str) -> ProviderErrorKind {
    use ProviderErrorKind as Kind;
    let message = message.to_ascii_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    // A refused key is a bad request here.
    if details.reason.is_some_and(|reason| reason.starts_with("API_KEY_")) {
        return Kind::Auth;
    }
    let is_word = |known: &[&str]| word.is_some_and(|word| known.contains(&word));
    if is_word(QUOTA_WORDS) {
        return Kind::Quota;
    }
    let kind = match (status, word) {
        // A cancelled request is no server failure, though a proxy may have made it one.
        (_, Some("CANCELLED")) => Kind::Invalid,
        (Some(status), _) => kind_of_status(status),
        (None, Some("UNAUTHENTICATED" | "PERMISSION_DENIED")) => Kind::Auth,
        (None, Some("RESOURCE_EXHAUSTED")) => Kind::RateLimited,
        (None, Some("UNAVAILABLE")) => Kind::Overloaded,
        (None, Some("DEADLINE_EXCEEDED")) => Kind::Timeout,
        (None, Some("INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "NOT_FOUND" | "OUT_OF_RANGE")) => Kind::Invalid,
        (None, _) => Kind::Server,
    };
    match kind {
        Kind::RateLimited if details.daily || says(&MONEY) => Kind::Quota,
        Kind::Invalid if says(&MONEY) => Kind::Quota,
        Kind::Invalid if status == Some(413) || is_word(OVERFLOW_WORDS) || says(OVERFLOW_TEXTS) => {
            Kind::ContextOverflow
        }
        Kind::Invalid if word.is_some_and(|word| is_overlong_content(word, &message)) => Kind::ContextOverflow,
        Kind::Invalid if says(&["api key not valid", "api key expired"]) => Kind::Auth,
        kind => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProviderErrorKind as Kind;
    use serde_json::json;

    fn of(status: impl Into<Option<u16>>, body: &str) -> ProviderError {
        from_body(&Wire::new("gemini"), status.into(), body.as_bytes())
    }

    fn own(code: u16, status: &str, message: &str, details: Value) -> String {
        json!({"error": {"code": code, "message": message, "status": status, "details": details}}).to_string()
    }

    #[test]
    fn statuses_become_kinds_with_and_without_http() {
        for (status, word, expected) in [
            (400, "INVALID_ARGUMENT", Kind::Invalid),
            (400, "FAILED_PRECONDITION", Kind::Invalid),
            (401, "UNAUTHENTICATED", Kind::Auth),
            (403, "PERMISSION_DENIED", Kind::Auth),
            (404, "NOT_FOUND", Kind::Invalid),
            (429, "RESOURCE_EXHAUSTED", Kind::RateLimited),
            (499, "CANCELLED", Kind::Invalid),
            (500, "INTERNAL", Kind::Server),
            (503, "UNAVAILABLE", Kind::Overloaded),
            (504, "DEADLINE_EXCEEDED", Kind::Timeout),
        ] {
            let body = own(status, word, "words", Value::Null);
            for error in [of(status, &body), of(None, &body), of(None, &format!("[{body}]"))] {
                assert_eq!((error.kind, error.status, error.code.as_deref()), (expected, Some(status), Some(word)));
                assert_eq!(error.message, "words");
            }
            let without = json!({"error": {"status": word, "message": "words"}}).to_string();
            assert_eq!(of(None, &without).kind, expected, "{word}");
        }
    }

    #[test]
    fn a_refused_key_is_told_from_a_bad_request() {
        let info = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]);
        let error = of(400, &own(400, "INVALID_ARGUMENT", "API key not valid.", info));
        assert_eq!((error.kind, error.code.as_deref()), (Kind::Auth, Some("API_KEY_INVALID")));
        assert_eq!(of(400, &own(400, "INVALID_ARGUMENT", "API key expired.", Value::Null)).kind, Kind::Auth);
    }

    #[test]
    fn the_delay_stands_in_the_details_or_in_the_text() {
        let quota = |id: &str| {
            json!([
                {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": id}]},
                {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48.5s"},
            ])
        };
        let error = of(429, &own(429, "RESOURCE_EXHAUSTED", "Please retry in 7s.", quota("TokensPerMinute")));
        assert_eq!((error.kind, error.retry_after), (Kind::RateLimited, Some(Duration::from_millis(48_500))));
        let error = of(429, &own(429, "RESOURCE_EXHAUSTED", "x", quota("GenerateRequestsPerDayPerProject-FreeTier")));
        assert_eq!(error.kind, Kind::Quota);
        let error = of(429, &own(429, "RESOURCE_EXHAUSTED", "Please retry in 7s.", Value::Null));
        assert_eq!((error.kind, error.retry_after), (Kind::RateLimited, Some(Duration::from_secs(7))));
    }

    #[test]
    fn overflow_and_money_are_told_from_plain_refusals() {
        let long = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).";
        assert_eq!(of(400, &own(400, "INVALID_ARGUMENT", long, Value::Null)).kind, Kind::ContextOverflow);
        assert_eq!(of(413, "<html>too large</html>").kind, Kind::ContextOverflow);
        let cap = "Your project has exceeded its monthly spending cap.";
        assert_eq!(of(429, &own(429, "RESOURCE_EXHAUSTED", cap, Value::Null)).kind, Kind::Quota);
        assert_eq!(of(402, "{}").kind, Kind::Quota);
    }

    #[test]
    fn other_shapes_are_read() {
        assert_eq!(of(500, r#"{"error":"boom"}"#).message, "boom");
        assert_eq!(of(400, "[]").message, "[]");
        let gateway = of(None, r#"{"error":{"code":"429","message":"slow"}}"#);
        assert_eq!((gateway.kind, gateway.status, gateway.code), (Kind::RateLimited, Some(429), None));
        let page = of(502, "<html>Bad gateway</html>");
        assert_eq!((page.kind, page.body_excerpt.as_deref()), (Kind::Server, Some("<html>Bad gateway</html>")));
    }
}

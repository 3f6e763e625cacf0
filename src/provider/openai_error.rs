//! Errors of OpenAI's APIs and of what speaks them, whatever their shape.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Map, Value};

use super::delay::{delay_hint, retry_info};
use super::vendor_words::{OVERFLOW_TEXTS, OVERFLOW_WORDS, QUOTA_WORDS, is_overlong_content};
use super::{ProviderError, ProviderErrorKind};

/// Whose errors are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorSource<'a> {
    /// The provider's id.
    pub(crate) provider: &'a str,
    /// Parts of texts that mean an overflow, lower case, beside those that everybody's are checked for.
    pub(crate) overflow_texts: &'a [Cow<'static, str>],
}

/// What an error body says, in whatever shape.
#[derive(Debug, Default, PartialEq)]
struct Said {
    message: String,
    /// The most specific code or type.
    code: Option<String>,
    /// Everything that may hold a code word.
    words: Vec<String>,
    /// An HTTP status inside the body.
    status: Option<u16>,
    retry_after: Option<Duration>,
}

/// An error from a refused request, or from a 200 whose body is an error.
///
/// `status` and what stands in the headers are filled in by the caller where they are known.
pub(crate) fn from_body<'a>(source: impl Into<ErrorSource<'a>>, status: Option<u16>, body: &[u8]) -> ProviderError {
    let source = source.into();
    let said = serde_json::from_slice::<Value>(body).ok().and_then(|value| read(&value));
    match said {
        Some(said) => build(source, status, said),
        None => {
            let text = String::from_utf8_lossy(body.get(..EXCERPT_BYTES).unwrap_or(body)).trim().to_owned();
            let code = status.unwrap_or(0);
            let message = if text.is_empty() {
                "an error without a body".to_owned()
            } else {
                format!("an error page that is not JSON (HTTP {code})")
            };
            // The body may still say it: overflow is told in plain text at some servers, and by nothing at Cerebras.
            let kind = kind_of(source, status, &[], &text, text.is_empty());
            ProviderError {
                status,
                body_excerpt: (!text.is_empty()).then_some(text),
                ..ProviderError::new(kind, source.provider, message)
            }
        }
    }
}

/// An error that came inside a stream.
pub(crate) fn from_stream<'a>(source: impl Into<ErrorSource<'a>>, json: &str) -> ProviderError {
    let source = source.into();
    let said = serde_json::from_str::<Value>(json).ok().and_then(|value| read(&value));
    build(source, None, said.unwrap_or_else(|| Said { message: clip(json, EXCERPT_BYTES), ..Said::default() }))
}

/// Whether a JSON body without choices is an error in one of the flat shapes.
pub(crate) fn is_error(body: &Value) -> bool {
    read(body).is_some()
}

const EXCERPT_BYTES: usize = 1024;
/// Parts of messages that come from elsewhere are cut there.
const UPSTREAM_BYTES: usize = 512;

fn build(source: ErrorSource<'_>, status: Option<u16>, said: Said) -> ProviderError {
    let status = status.filter(|status| *status >= 400).or(said.status);
    let kind = kind_of(source, status, &said.words, &said.message, false);
    // The model's own call was malformed; another try may not be.
    let should_retry = said.words.iter().any(|word| word == "tool_use_failed").then_some(true);
    let retry_after = match kind {
        ProviderErrorKind::RateLimited | ProviderErrorKind::Overloaded => {
            said.retry_after.or_else(|| delay_hint(&said.message))
        }
        _ => said.retry_after,
    };
    ProviderError {
        status,
        code: said.code,
        retry_after,
        should_retry,
        ..ProviderError::new(kind, source.provider, said.message)
    }
}

/// Reads `{error: {…}}`, `{error: "…"}`, `{object: "error", …}`, `{detail: …}`, `{errors: […]}`, `{message, …}` and an
/// error object by itself.
fn read(value: &Value) -> Option<Said> {
    let object = match value {
        Value::Array(items) => return read(items.first()?),
        Value::String(text) => return Some(Said { message: text.clone(), ..Said::default() }),
        Value::Object(object) => object,
        _ => return None,
    };
    let mut said = Said::default();
    match object.get("error").or_else(|| object.get("detail")).or_else(|| object.get("errors")) {
        Some(Value::Object(error)) => read_object(error, &mut said),
        Some(Value::String(text)) => {
            said.message.clone_from(text);
            read_object(object, &mut said);
        }
        // FastAPI's list of what is invalid.
        Some(Value::Array(items)) if !items.is_empty() => {
            let texts = items.iter().map(|item| match item {
                Value::Object(item) => {
                    item.get("msg").or_else(|| item.get("message")).and_then(Value::as_str).unwrap_or_default()
                }
                Value::String(text) => text,
                _ => "",
            });
            said.message = clip(&texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; "), EXCERPT_BYTES);
        }
        _ => read_object(object, &mut said),
    }
    if let Some(status) = object.get("status_code").and_then(status_of) {
        said.status = said.status.or(Some(status));
    }
    let told = !said.message.is_empty() || said.code.is_some();
    (told && !object.contains_key("choices") || object.get("error").is_some_and(|error| !error.is_null()))
        .then_some(said)
}

fn read_object(error: &Map<String, Value>, said: &mut Said) {
    if said.message.is_empty() {
        said.message = match error.get("message").or_else(|| error.get("detail")) {
            Some(Value::String(text)) => text.clone(),
            // Mistral: an object of what is invalid.
            Some(other @ (Value::Object(_) | Value::Array(_))) => clip(&other.to_string(), EXCERPT_BYTES),
            _ => String::new(),
        };
    }
    let metadata = error.get("metadata").and_then(Value::as_object);
    let error_type = metadata.and_then(|metadata| metadata.get("error_type"));
    for word in [error.get("code"), error.get("type"), error_type, error.get("status")].into_iter().flatten() {
        match word {
            Value::String(word) if !word.is_empty() => {
                said.words.push(word.to_lowercase());
                let is_word = !word.contains(' ') && word != "error";
                if is_word && said.code.is_none() {
                    said.code = Some(word.clone());
                }
            }
            Value::Number(number) => {
                said.words.push(number.to_string());
                if said.code.is_none() && status_of(word).is_none() {
                    said.code = Some(number.to_string());
                }
            }
            _ => {}
        }
    }
    let status = [error.get("status_code"), error.get("raw_status_code"), error.get("code"), error.get("status")];
    said.status = status.into_iter().flatten().find_map(status_of);
    if let Some(metadata) = metadata {
        read_upstream(metadata, said);
    }
    said.retry_after = retry_info(error);
}

/// OpenRouter hands the upstream's error on as JSON text.
fn read_upstream(metadata: &Map<String, Value>, said: &mut Said) {
    let Some(raw) = metadata.get("raw").and_then(Value::as_str) else { return };
    // One level: what an upstream says is not followed further.
    let text = match serde_json::from_str::<Value>(raw) {
        Ok(Value::Object(object)) => {
            let error = object.get("error").unwrap_or(&Value::Null);
            let message = error.get("message").or(error.as_str().map(|_| error)).or_else(|| object.get("message"));
            for word in [error.get("code"), error.get("type")].into_iter().flatten().filter_map(Value::as_str) {
                said.words.push(word.to_lowercase());
            }
            message.and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    };
    let text = clip(text.as_deref().unwrap_or(raw), UPSTREAM_BYTES);
    if !text.is_empty() && !said.message.contains(&text) {
        said.message = format!("{}: {text}", said.message);
    }
}

fn status_of(value: &Value) -> Option<u16> {
    let number = match value {
        Value::Number(number) => number.as_u64()?,
        Value::String(text) if text.len() == 3 => text.parse().ok()?,
        _ => return None,
    };
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

fn clip(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

const RATE_TEXTS: &[&str] = &["rate limit", "too many requests", "tokens per min", "requests per min"];

fn kind_of(
    source: ErrorSource<'_>,
    status: Option<u16>,
    words: &[String],
    message: &str,
    no_body: bool,
) -> ProviderErrorKind {
    use ProviderErrorKind as Kind;
    let text = message.to_lowercase();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&&**word));
    let says = |known: &[&str]| known.iter().any(|part| text.contains(part));

    if has(QUOTA_WORDS) || status == Some(402) {
        return Kind::Quota;
    }
    if status == Some(429) || has(&["rate_limit_exceeded", "rate_limit_error", "rate_limited", "resource_exhausted"]) {
        return Kind::RateLimited;
    }
    let limited = says(RATE_TEXTS);
    let too_long_string = words.iter().any(|word| is_overlong_content(word, &text));
    let vendor_says = source.overflow_texts.iter().any(|part| text.contains(&**part));
    if !limited && (has(OVERFLOW_WORDS) || too_long_string || says(OVERFLOW_TEXTS) || vendor_says) {
        return Kind::ContextOverflow;
    }
    if has(&["content_policy_violation", "content_filter", "refusal"]) {
        return Kind::Invalid;
    }
    match status {
        Some(413) => Kind::ContextOverflow,
        // Cerebras refuses a prompt that is too long with a bare 400.
        Some(400) if no_body && source.provider == "cerebras" => Kind::ContextOverflow,
        Some(400) if says(&["incorrect api key", "invalid api key", "api key not valid"]) => Kind::Auth,
        Some(401 | 403) => Kind::Auth,
        Some(408 | 504) => Kind::Timeout,
        Some(503 | 529) => Kind::Overloaded,
        // A conflict passes.
        Some(409 | 500 | 502..) => Kind::Server,
        Some(_) => Kind::Invalid,
        None => kind_by_words(&has, limited, says(&["overloaded", "try again later", "capacity"])),
    }
}

/// The kind of an error in a stream that gives no status.
fn kind_by_words(has: &dyn Fn(&[&str]) -> bool, limited: bool, overloaded: bool) -> ProviderErrorKind {
    use ProviderErrorKind as Kind;
    if limited {
        Kind::RateLimited
    } else if has(&["server_is_overloaded", "slow_down", "overloaded_error", "provider_overloaded", "overloaded"])
        || has(&["service_unavailable_error", "provider_unavailable", "engine_overloaded_error"])
        || overloaded
    {
        Kind::Overloaded
    } else if has(&["invalid_api_key", "authentication", "authentication_error", "permission_denied"]) {
        Kind::Auth
    } else if has(&["invalid_request_error", "invalid_request", "not_found", "model_not_found", "tool_use_failed"]) {
        Kind::Invalid
    } else if has(&["timeout"]) {
        Kind::Timeout
    } else {
        Kind::Server
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::openai_chat::ChatProfile;
    use ProviderErrorKind as Kind;

    fn error(status: u16, body: &str) -> ProviderError {
        from_body(&ChatProfile::openai(), Some(status), body.as_bytes())
    }

    #[test]
    fn every_shape_gives_its_message_and_code() {
        let cases: &[(u16, &str, Kind, Option<&str>, &str)] = &[
            (
                401,
                r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
                Kind::Auth,
                Some("invalid_api_key"),
                "no",
            ),
            (403, r#"{"error":{"code":403,"message":"flagged"},"user_id":"u"}"#, Kind::Auth, None, "flagged"),
            (
                400,
                r#"{"code":"Client said something odd","error":"Incorrect API key provided"}"#,
                Kind::Auth,
                None,
                "Incorrect API key provided",
            ),
            (
                400,
                r#"{"object":"error","message":"bad","type":"invalid_request_message","code":3230}"#,
                Kind::Invalid,
                Some("3230"),
                "bad",
            ),
            (401, r#"{"detail":"Unauthorized"}"#, Kind::Auth, None, "Unauthorized"),
            (422, r#"{"detail":[{"loc":["body"],"msg":"field required"}]}"#, Kind::Invalid, None, "field required"),
            (404, r#"{"error":{"code":"404","message":"gone"}}"#, Kind::Invalid, Some("404"), "gone"),
            (500, r#"[{"error":{"message":"oops"}}]"#, Kind::Server, None, "oops"),
        ];
        for (status, body, kind, code, message) in cases {
            let error = error(*status, body);
            assert_eq!((error.kind, error.code.as_deref(), &*error.message), (*kind, *code, *message), "{body}");
            assert_eq!(error.status, Some(*status));
        }
    }

    #[test]
    fn an_upstream_error_is_part_of_the_message() {
        let body = r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":
            "{\"error\":{\"message\":\"This model's maximum context length is 8 tokens\",\"code\":\"x\"}}"}}}"#;
        let error = error(400, body);
        assert_eq!(error.kind, Kind::ContextOverflow);
        assert!(error.message.starts_with("Provider returned error: This model's maximum"), "{}", error.message);
    }

    #[test]
    fn overflow_is_told_from_a_rate_limit() {
        let message = |text: &str| format!(r#"{{"error":{{"message":"{text}"}}}}"#);
        for text in [
            "Your input exceeds the context window of this model",
            "The input (3 tokens) is longer than the model's context length (2 tokens).",
            "too large for model with 5 maximum context length",
            "Prompt exceeds max length",
        ] {
            assert_eq!(error(400, &message(text)).kind, Kind::ContextOverflow, "{text}");
        }
        assert_eq!(error(413, "").kind, Kind::ContextOverflow);
        let limit = message("Rate limit reached: please reduce the length of the messages");
        assert_eq!(error(400, &limit).kind, Kind::Invalid);
        assert_eq!(error(429, &limit).kind, Kind::RateLimited);
        assert_eq!(error(400, &message("max_tokens: 9 > 8, the maximum")).kind, Kind::Invalid);
        let long = |at: &str| format!(r#"{{"error":{{"code":"string_above_max_length","message":"Invalid '{at}'"}}}}"#);
        assert_eq!(error(400, &long("messages[1].content")).kind, Kind::ContextOverflow);
        assert_eq!(error(400, &long("messages[2].tool_calls[0].id")).kind, Kind::Invalid);
        let bare = from_body(&ChatProfile::cerebras(), Some(400), b"");
        assert_eq!(bare.kind, Kind::ContextOverflow);
    }

    #[test]
    fn money_is_told_from_haste() {
        assert_eq!(error(429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#).kind, Kind::Quota);
        assert_eq!(error(429, r#"{"error":{"type":"insufficient_quota","code":"credit_x"}}"#).kind, Kind::Quota);
        assert_eq!(error(429, r#"{"type":"usage_limit_reached","message":"x"}"#).kind, Kind::Quota);
        assert_eq!(error(402, r#"{"error":{"message":"pay"}}"#).kind, Kind::Quota);
        let slow = error(429, r#"{"error":{"message":"Rate limit. Please try again in 1m2.5s."}}"#);
        assert_eq!((slow.kind, slow.retry_after), (Kind::RateLimited, Some(Duration::from_millis(62_500))));
        let google = error(
            429,
            r#"{"error":{"status":"RESOURCE_EXHAUSTED","message":"current quota","details":[{"retryDelay":"34s"}]}}"#,
        );
        assert_eq!((google.kind, google.retry_after), (Kind::RateLimited, Some(Duration::from_secs(34))));
    }

    #[test]
    fn a_page_is_kept_as_an_excerpt() {
        let error = error(502, "<html>bad gateway</html>");
        assert_eq!(error.kind, Kind::Server);
        assert_eq!(error.body_excerpt.as_deref(), Some("<html>bad gateway</html>"));
        let long = "é".repeat(2000);
        assert!(from_body(&ChatProfile::openai(), Some(502), long.as_bytes()).body_excerpt.unwrap().len() < 1100);
    }

    #[test]
    fn errors_in_a_stream_go_by_their_own_status_and_words() {
        let kind = |json: &str| from_stream(&ChatProfile::openai(), json).kind;
        assert_eq!(kind(r#"{"error":{"code":502,"message":"x"}}"#), Kind::Server);
        assert_eq!(kind(r#"{"error":{"code":429,"message":"x"}}"#), Kind::RateLimited);
        assert_eq!(kind(r#"{"message":"x","type":"server_error"}"#), Kind::Server);
        assert_eq!(kind(r#"{"code":"server_is_overloaded","message":"x"}"#), Kind::Overloaded);
        assert_eq!(kind("not json"), Kind::Server);
        let groq = from_stream(
            &ChatProfile::groq(),
            r#"{"error":{"message":"m","type":"invalid_request_error","code":"tool_use_failed","status_code":400}}"#,
        );
        assert_eq!((groq.kind, groq.should_retry), (Kind::Invalid, Some(true)));
        let local = r#"{"detail":"failed to decode","error":{"message":"failed to decode, try again"}}"#;
        assert_eq!(kind(local), Kind::Server);
    }
}

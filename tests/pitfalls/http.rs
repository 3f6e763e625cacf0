//! Form `http`: responses to consecutive requests, through a provider and the loop's retries.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use zidane::provider::RetryPolicy;
use zidane::testing::{HttpReply, SseServer};

use super::body::{Body, headers, plain};
use super::fields::Fields;
use super::findings::Findings;
use super::outcome::{self, Ran, Setup};
use super::secrets;
use super::stream::{abort, names};
use super::wires::{self, Protocol};

/// Backoff that takes no time worth waiting for; a delay above it is a server's.
const BACKOFF: Duration = Duration::from_millis(2);

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let protocols = wires::of(case.take("protocol"), findings);
    if protocols.is_empty() {
        return case.skip();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let now = case.text("now").map(str::to_owned);
    let longest = case.number("max_delay_ms").map(Duration::from_millis);
    let table = case.list("table");
    let attempts = case.list("attempts");
    let expect = case.take("expect").unwrap_or(&Value::Null);
    if let Some(key) = case.text("api_key") {
        for protocol in protocols {
            findings.at(protocol.name());
            runtime.block_on(secrets::attempts_of(protocol, key, attempts, expect, findings));
        }
        return findings.at("");
    }
    if !table.is_empty() {
        for protocol in &protocols {
            for (number, row) in table.iter().enumerate() {
                findings.at(format!("{}, row {}", protocol.name(), number + 1));
                runtime.block_on(row_of(*protocol, row, now.as_deref(), longest, findings));
            }
        }
        findings.at("");
    }
    if !attempts.is_empty() {
        let abort_after = abort(case, findings);
        findings.is_a_race |= abort_after.is_some();
        for protocol in protocols {
            runtime.block_on(attempts_of(protocol, attempts, expect, abort_after, findings));
        }
    }
}

async fn attempts_of(
    protocol: Protocol,
    attempts: &[Value],
    expect: &Value,
    abort_after: Option<Duration>,
    findings: &mut Findings,
) {
    let server = SseServer::start([]).await.unwrap();
    let mut tools = std::collections::BTreeSet::new();
    for attempt in attempts {
        let mut attempt = Fields::new("attempts", attempt);
        if let Some(body) = attempt.take("body") {
            let mut reply = HttpReply::json(status(&mut attempt), plain(body));
            for (name, value) in headers(attempt.take("headers")) {
                reply = reply.header(name, value);
            }
            server.push(reply);
        } else {
            let mut body = Body::read(&mut attempt, None, findings);
            body.status = status(&mut attempt);
            body.headers = headers(attempt.take("headers"));
            tools.extend(names(&body));
            server.push(body.reply());
        }
        attempt.finish(findings);
    }
    let provider = protocol.provider(&server.url(), None);
    let retry = RetryPolicy::default().base_delay(BACKOFF).after_output(true);
    let ran = outcome::run(Setup { abort_after, tools, retry, ..Setup::new(provider) }).await;
    let Some(ran) = ran else { return findings.wrong("it hangs") };
    let mut expect = Fields::new("expect", expect);
    if let Some(requests) = expect.number("requests") {
        findings.equal("requests", &requests, &(server.requests().len() as u64));
    }
    ran.compare(&mut expect, true, findings);
    expect.finish(findings);
}

fn status(fields: &mut Fields<'_>) -> u16 {
    fields.number("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(429)
}

/// A row is one failed request. A good response follows, so that a retry succeeds.
async fn row_of(
    protocol: Protocol,
    row: &Value,
    now: Option<&str>,
    longest: Option<Duration>,
    findings: &mut Findings,
) {
    let mut row = Fields::new("table", row);
    let body = row.take("body").map_or_else(|| r#"{"error":{"message":"no"}}"#.to_owned(), plain);
    let mut reply = HttpReply::json(status(&mut row), body);
    for (name, value) in headers(row.take("headers")) {
        reply = reply.header(name, value);
    }
    // A server's dates are told by the server's own clock.
    if let Some(now) = now {
        reply = reply.header("date", httpdate::fmt_http_date(parse_time(now)));
    }
    let server = SseServer::start([reply, good(protocol)]).await.unwrap();
    let mut retry = RetryPolicy::default().base_delay(BACKOFF);
    if let Some(longest) = longest {
        retry = retry.max_server_delay(longest);
    }
    let setup = Setup { retry, longest_wait: Some(BACKOFF), ..Setup::new(protocol.provider(&server.url(), None)) };
    let Some(ran) = outcome::run(setup).await else { return findings.wrong("it hangs") };
    let retried = compare_row(&mut row, &ran, findings);
    let expected = if retried.is_some_and(|delay| delay <= BACKOFF) { 2 } else { 1 };
    findings.equal("requests", &expected, &server.requests().len());
    row.finish(findings);
}

fn good(protocol: Protocol) -> HttpReply {
    HttpReply::sse(protocol.answer("ok"))
}

/// Compares the one failure of a row. The delay after which it was made again.
fn compare_row(row: &mut Fields<'_>, ran: &Ran, findings: &mut Findings) -> Option<Duration> {
    let failure = ran.failures.first();
    findings.equal("failures", &1, &ran.failures.len());
    let (error, delay) = (failure.map(|(error, _)| error), failure.and_then(|(_, delay)| *delay));
    if let Some(class) = row.text("class") {
        let kind = error.map(|error| error.kind);
        findings.ensure(kind.is_some_and(|kind| outcome::is_class(kind, class)), || {
            format!("expected an error of class {class}, got {kind:?}")
        });
    }
    let asked = error.and_then(|error| error.retry_after);
    let gave_up = |findings: &mut Findings| {
        findings.equal("delay", &None, &delay);
        findings.ensure(asked.is_some(), || "the error does not carry the server's delay".to_owned());
    };
    match row.take("retried") {
        None => {}
        Some(Value::Bool(expected)) => findings.equal("made again", expected, &delay.is_some()),
        Some(word) if word == "give_up_and_report" => gave_up(findings),
        Some(other) => findings.need(format!("an adapter for retried `{other}`")),
    }
    if let Some(expected) = row.number("delay_ms") {
        findings.equal("delay", &Some(Duration::from_millis(expected)), &delay);
    }
    match row.text("delay") {
        None => {}
        Some("backoff") => {
            let is_backoff = asked.is_none() && delay.is_some_and(|delay| delay <= BACKOFF);
            findings.ensure(is_backoff, || format!("expected backoff, got {delay:?} (server: {asked:?})"));
        }
        Some("give_up_and_report") => gave_up(findings),
        Some(other) => findings.need(format!("an adapter for delay `{other}`")),
    }
    delay
}

/// `2026-01-01T00:00:00Z`, by way of an HTTP date.
fn parse_time(text: &str) -> SystemTime {
    let number = |range| text.get::<std::ops::Range<usize>>(range).and_then(|part| part.parse::<u64>().ok()).unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS[usize::try_from(month).unwrap() - 1];
    // The asctime form does not check the day of the week.
    let date = format!("Thu {month} {day:>2} {hour:02}:{minute:02}:{second:02} {year}");
    httpdate::parse_http_date(&date).unwrap()
}

#[test]
fn times_are_read() {
    let time = parse_time("2026-01-01T00:00:20Z");
    assert_eq!(httpdate::fmt_http_date(time), "Thu, 01 Jan 2026 00:00:20 GMT");
}

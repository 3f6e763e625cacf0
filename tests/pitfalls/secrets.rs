//! Form `http` with a key: nothing that a host may show or store contains it.

use std::collections::BTreeMap;
use std::error::Error;

use futures::StreamExt as _;
use serde_json::Value;
use zidane::provider::RetryPolicy;
use zidane::testing::{HttpReply, SseServer};
use zidane::{Agent, AgentEvent};

use super::body::plain;
use super::fields::Fields;
use super::findings::Findings;
use super::wires::{MODEL, Protocol};

/// Each attempt is a run of its own, so that every error is the last.
pub async fn attempts_of(protocol: Protocol, key: &str, attempts: &[Value], expect: &Value, findings: &mut Findings) {
    let mut expect = Fields::new("expect", expect);
    let never: Vec<_> = expect.list("never_contains").iter().map(plain).collect();
    let places: Vec<_> = expect.list("in").iter().map(plain).collect();
    let url_has_no_key = expect.flag("request_url_has_no_key");
    expect.finish(findings);
    for attempt in attempts {
        let mut attempt = Fields::new("attempts", attempt);
        let server = SseServer::start([]).await.unwrap();
        let mut url = server.url();
        if attempt.flag("connect_error") {
            // Nobody listens on the discard port of the loopback.
            url = "http://127.0.0.1:9".to_owned();
        } else {
            let status = attempt.number("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
            server.push(HttpReply::json(status, attempt.take("body").map(plain).unwrap_or_default()));
        }
        attempt.finish(findings);
        let shown = shown(protocol, &url, key).await;
        for place in &places {
            let Some(text) = shown.get(place.as_str()) else {
                findings.need(format!("an adapter for what is shown in `{place}`"));
                continue;
            };
            findings.ensure(!text.is_empty(), || format!("there is no {place}"));
            for secret in &never {
                findings.ensure(!text.contains(secret), || format!("{place} contains {secret}: {text}"));
            }
        }
        for request in server.requests() {
            let sent = request.headers.iter().any(|(_, value)| value.contains(key));
            findings.ensure(sent, || "the key was not sent".to_owned());
            if url_has_no_key {
                findings.ensure(!request.path.contains(key), || format!("the key is in {}", request.path));
            }
        }
    }
}

/// All that a failed run shows, by the names that cases use.
async fn shown(protocol: Protocol, url: &str, key: &str) -> BTreeMap<&'static str, String> {
    let (provider, debug) = protocol.with_key(url, key);
    let agent = Agent::builder().provider(provider).model(MODEL).retry(RetryPolicy::never()).build().unwrap();
    let mut stream = agent.run("Go").stream();
    let mut events = String::new();
    let mut shown = BTreeMap::new();
    while let Some(event) = stream.next().await {
        events.push_str(&format!("{event:?}\n"));
        if let AgentEvent::Done(Err(error)) = &event {
            shown.insert("error.display", error.to_string());
            shown.insert("error.debug", format!("{error:?} {error:#?}"));
            shown.insert("error.source_chain", chain(error));
        }
    }
    let session: Vec<_> = agent.history().iter().map(|turn| serde_json::to_string(turn).unwrap()).collect();
    shown.insert("events", events);
    shown.insert("session", session.join("\n"));
    shown.insert("client.debug", format!("{debug} {agent:?}"));
    shown
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!("\n{error} {error:?}"));
        source = error.source();
    }
    text
}

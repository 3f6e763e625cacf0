//! Form `stream`: the body of one response.
//!
//! Each is run through an agent three times: with exactly the reads that the case lists, byte by byte, and over a
//! connection, where the case's idle limit applies.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;
use zidane::provider::{
    Capabilities, ModelRequest, Provider, ProviderError, ProviderStream, RawResponse, RequestContext, StreamEvent,
};
use zidane::testing::SseServer;

use super::body::{Body, End, Seen};
use super::fields::Fields;
use super::findings::Findings;
use super::json_path;
use super::outcome::{self, Ran, Setup};
use super::wires::{self, MODEL, Protocol};

/// Bodies longer than this are not also read byte by byte through an agent; their events are compared all the same.
const LONG: usize = 200_000;

/// An idle limit that nothing here reaches, for cases that ask for none.
const OFF: Duration = Duration::from_secs(3600);

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let protocols = wires::of(case.take("protocol"), findings);
    if protocols.is_empty() {
        return case.skip();
    }
    let base = serde_json::json!({ "http": case.take("http"), "chunks": case.take("chunks"), "end": case.take("end") });
    let variants = case.list("variants");
    for protocol in protocols {
        judge_one(protocol, case, &base, findings);
        for (number, variant) in variants.iter().enumerate() {
            let mut fields = Fields::new(format!("variants[{number}]"), variant);
            let place = format!("variant {}", number + 1);
            fields.take("title");
            findings.at(place);
            judge_one(protocol, &mut fields, &base, findings);
            fields.finish(findings);
        }
        findings.at("");
    }
}

fn judge_one(protocol: Protocol, fields: &mut Fields<'_>, base: &Value, findings: &mut Findings) {
    let body = Body::read(fields, Some(base), findings);
    let expect = fields.take("expect").unwrap_or(&Value::Null);
    let request_expect = fields.take("request_expect");
    let mut idle = None;
    if let Some(mut options) = fields.object("options") {
        idle = options.number("idle_timeout_ms").map(|ms| if ms == 0 { OFF } else { Duration::from_millis(ms) });
        options.finish(findings);
    }
    let abort_after = abort(fields, findings);
    findings.is_a_race |= abort_after.is_some() || idle.is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (whole, bytewise) = (events(protocol, &body, &body).await, events(protocol, &body, &body.recut(1)).await);
        if body.end != End::Stall {
            findings.equal("events of byte-by-byte reads", &whole, &bytewise);
        }
        let stalls_for_idle = body.end == End::Stall && idle.is_some() && abort_after.is_none() && idle != Some(OFF);
        for (place, body) in [("as cut", body.clone()), ("byte by byte", body.recut(1))] {
            // Only a connection has an idle limit.
            if stalls_for_idle || (place == "byte by byte" && body.bytes().len() > LONG) {
                continue;
            }
            let provider = Replay::new(protocol, &body);
            let (seen, missed) = (Seen::clone(&provider.seen), Arc::clone(&provider.missed));
            let setup = Setup { seen, abort_after, tools: names(&body), ..Setup::new(Arc::new(provider)) };
            compare(place, outcome::run(setup).await, expect, place == "as cut", findings);
            for missed in missed.lock().unwrap().iter() {
                findings.wrong(missed);
            }
        }
        let server = SseServer::start([body.reply()]).await.unwrap();
        let provider = protocol.provider(&server.url(), idle);
        let setup = Setup { abort_after, tools: names(&body), ..Setup::new(provider) };
        compare("over a connection", outcome::run(setup).await, expect, true, findings);
        findings.equal("requests", &1, &server.requests().len());
        if let Some(request_expect) = request_expect {
            let sent = server.requests().first().and_then(|request| request.json().ok()).unwrap_or_default();
            compare_request(request_expect, &sent, findings);
        }
    });
}

fn compare(place: &str, ran: Option<Ran>, expect: &Value, timed: bool, findings: &mut Findings) {
    let Some(ran) = ran else { return findings.wrong(format!("{place}: it hangs")) };
    let mut here = Findings::default();
    let mut expect = Fields::new("expect", expect);
    ran.compare(&mut expect, timed, &mut here);
    expect.finish(&mut here);
    findings.merge(place, here);
}

fn compare_request(expect: &Value, sent: &Value, findings: &mut Findings) {
    let mut expect = Fields::new("request_expect", expect);
    for pair in expect.list("body_path_equals") {
        let path = pair[0].as_str().unwrap_or_default();
        findings.equal(format!("request {path}"), &Some(&pair[1]), &json_path::get(sent, path));
    }
    expect.finish(findings);
}

/// `actions`, of which only an abort after some time makes sense here.
pub fn abort(fields: &mut Fields<'_>, findings: &mut Findings) -> Option<Duration> {
    let mut after = None;
    for action in fields.list("actions") {
        let mut action = Fields::new("actions", action);
        let (at, what) = (action.text("at").unwrap_or_default(), action.text("do").unwrap_or_default());
        let delay = at.strip_prefix('+').and_then(|at| at.strip_suffix("ms")).and_then(|at| at.trim().parse().ok());
        match (what, delay) {
            ("abort", Some(delay)) => after = Some(Duration::from_millis(delay)),
            _ => findings.need(format!("an adapter for the action `{what}` at `{at}`")),
        }
        action.finish(findings);
    }
    after
}

/// The events of a body, as text, up to where `timed` bodies would make one wait.
async fn events(protocol: Protocol, whole: &Body, body: &Body) -> Vec<String> {
    let mut body = body.clone();
    body.steps.retain(|step| matches!(step, super::body::Step::Read(_)));
    if whole.end == End::Stall {
        body.end = End::Eof;
    }
    let mut stream = protocol.decode(MODEL, body.raw(Seen::default(), Arc::default())).unwrap();
    let mut all = Vec::new();
    while let Some(event) = stream.next().await {
        all.push(match event {
            Ok(event) => line(&event),
            Err(error) => format!("{error:?}"),
        });
    }
    all
}

/// An event on a line; a large one by its length and hash.
fn line(event: &StreamEvent) -> String {
    let text = format!("{event:?}");
    if text.len() <= 1000 {
        return text;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{} bytes, hash {:x}", text.len(), hasher.finish())
}

/// Every `"name":"…"` in a body: what the model may call.
pub fn names(body: &Body) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&body.bytes()).into_owned();
    let rest = text.split("\"name\":").skip(1);
    rest.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A provider that decodes given bytes.
struct Replay {
    protocol: Protocol,
    body: Body,
    seen: Seen,
    missed: Arc<Mutex<Vec<String>>>,
}

impl Replay {
    fn new(protocol: Protocol, body: &Body) -> Self {
        Self { protocol, body: body.clone(), seen: Seen::default(), missed: Arc::default() }
    }

    fn response(&self) -> RawResponse {
        self.body.raw(Arc::clone(&self.seen), Arc::clone(&self.missed))
    }
}

#[zidane::async_trait]
impl Provider for Replay {
    fn id(&self) -> &str {
        self.protocol.name()
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        self.protocol.provider("http://127.0.0.1:9", None).capabilities(model)
    }

    async fn stream(&self, _: Arc<ModelRequest>, _: &RequestContext) -> Result<ProviderStream, ProviderError> {
        self.protocol.decode(MODEL, self.response())
    }
}

//! Decisions on loopback: what one costs over the bare HTTP call, and how many there are in a second.
//!
//! `cargo bench --bench decision`

use std::error::Error;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt as _;
use serde_json::json;
use tokio::runtime::Runtime;
use zidane::decision::{Decider, DecisionApi, DecisionProfile, DecisionRequest, Question};
use zidane::testing::{HttpReply, SseServer};

/// Decisions that are under way at the same time.
const AT_ONCE: usize = 32;

fn questions() -> [Question; 3] {
    [
        Question::bool("replace", "Does the writer ask for a replacement?"),
        Question::choice("queue", "Which queue fits?", ["shipping", "billing"]),
        Question::score("urgency", "How urgent is it?", ["can wait", "this week", "today"]),
    ]
}

const EVIDENCE: &str = "Parcel 88 arrived soaked; please send a new one.";

fn answer() -> String {
    json!({"model": "jev-latest", "answers": {
        "replace": {"type": "noul", "noul": 0.98},
        "queue": {"type": "choice", "choice": "shipping", "probabilities": {"shipping": 0.95, "billing": 0.05}, "confidence": 0.9},
        "urgency": {"type": "score", "score": 1.2, "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3}, "confidence": 0.4}},
        "usage": {"input_tokens": 96, "output_tokens": 6}})
    .to_string()
}

/// A server that keeps no more than it must: one that has had its fill of requests is replaced.
async fn server() -> Result<SseServer, Box<dyn Error>> {
    let body = answer();
    Ok(SseServer::with_handler(move |_| HttpReply::json(200, body.clone())).await?)
}

fn api(url: String) -> Result<DecisionApi, Box<dyn Error>> {
    let mut profile = DecisionProfile::typesafe();
    profile.key_required = false;
    Ok(DecisionApi::builder(profile).base_url(url).build()?)
}

/// Calls of the same body over the same client, without a decision.
async fn bare(url: &str, body: &bytes::Bytes, count: u64) -> Result<Duration, Box<dyn Error>> {
    let client = reqwest::Client::new();
    let url = format!("{url}/v1/systemone");
    let send = || client.post(&url).header("content-type", "application/json").body(body.clone()).send();
    send().await?.bytes().await?;
    let started = Instant::now();
    for _ in 0..count {
        send().await?.bytes().await?;
    }
    Ok(started.elapsed())
}

async fn decided(url: String, count: u64, at_once: usize) -> Result<Duration, Box<dyn Error>> {
    let decider = Decider::new(api(url)?);
    decider.decide(EVIDENCE, questions()).await?;
    let started = Instant::now();
    let mut decisions =
        futures::stream::iter(0..count).map(|_| decider.decide(EVIDENCE, questions())).buffer_unordered(at_once);
    while let Some(decision) = decisions.next().await {
        decision?;
    }
    Ok(started.elapsed())
}

/// A bench whose set-up can fail measures nothing then.
fn measure(c: &mut Criterion) {
    let Ok(runtime) = Runtime::new() else { return };
    let mut group = c.benchmark_group("decision");
    group.throughput(Throughput::Elements(1)).sample_size(10).measurement_time(Duration::from_secs(2));
    let request = DecisionRequest::new(EVIDENCE, questions());
    let timed = |work: &dyn Fn(String, u64) -> Result<Duration, Box<dyn Error>>, count: u64| {
        let (mut left, mut total) = (count, Duration::ZERO);
        while left > 0 {
            let now = left.min(1_000);
            left -= now;
            let spent = runtime.block_on(server()).and_then(|server| work(server.url(), now));
            total += spent.unwrap_or_else(|error| {
                eprintln!("{error}");
                Duration::ZERO
            });
        }
        total
    };
    let body = api("http://127.0.0.1:1".into()).ok().and_then(|api| api.encode(&request).ok()).unwrap_or_default();
    group.bench_function("bare-http", |b| {
        b.iter_custom(|count| timed(&|url, now| runtime.block_on(bare(&url, &body, now)), count));
    });
    group.bench_function("one-by-one", |b| {
        b.iter_custom(|count| timed(&|url, now| runtime.block_on(decided(url, now, 1)), count));
    });
    group.bench_function("32-at-once", |b| {
        b.iter_custom(|count| timed(&|url, now| runtime.block_on(decided(url, now, AT_ONCE)), count));
    });
    group.finish();
}

criterion_group!(benches, measure);
criterion_main!(benches);

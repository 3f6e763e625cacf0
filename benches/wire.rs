//! The wires without a network: framing, decoding an answer, encoding a request.

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zidane::provider::sse::SseFramer;
use zidane::provider::{Anthropic, Gemini, History, HistoryTurn, ModelRequest, OpenAi, OpenAiChat, ProviderError};
use zidane::types::{Role, SessionContentBlock, SessionTurn, ToolCallBlock, TurnOrigin};

use self::support::traffic::{Failure, Wire, conversation, grow, request, request_with};

const DELTAS: usize = 1_000;
const WIRES: [&str; 2] = ["anthropic", "openai"];
const ENCODED: [&str; 4] = ["anthropic", "openai", "responses", "gemini"];

/// How an answer is cut into chunks: by event, as services flush, or by the size of a network read.
fn cuts(events: &[Bytes]) -> [(&'static str, Vec<Bytes>); 2] {
    let whole = Bytes::from(events.concat());
    let mut reads = Vec::new();
    let mut at = 0;
    while at < whole.len() {
        let end = whole.len().min(at + 16 * 1024);
        reads.push(whole.slice(at..end));
        at = end;
    }
    [("by-event", events.to_vec()), ("16-KiB", reads)]
}

fn framing(c: &mut Criterion) {
    let Ok(wire) = Wire::new("anthropic") else { return };
    let mut group = c.benchmark_group("sse-framing");
    group.throughput(Throughput::Elements(DELTAS as u64));
    for (cut, chunks) in cuts(&wire.answer(DELTAS)) {
        group.bench_with_input(BenchmarkId::from_parameter(cut), &chunks, |b, chunks| {
            b.iter(|| {
                let mut framer = SseFramer::new();
                let mut bytes = 0;
                for chunk in chunks {
                    framer.feed(chunk.clone());
                    while let Ok(Some(event)) = framer.next_event() {
                        bytes += event.data.len();
                    }
                }
                bytes
            });
        });
    }
    group.finish();
}

fn decoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(DELTAS as u64));
    for name in WIRES {
        let Ok(wire) = Wire::new(name) else { continue };
        for (cut, chunks) in cuts(&wire.answer(DELTAS)) {
            group.bench_with_input(BenchmarkId::new(name, cut), &chunks, |b, chunks| {
                b.iter(|| futures::executor::block_on(wire.decode(chunks.clone())));
            });
        }
    }
    group.finish();
}

type Encode = Box<dyn Fn(&ModelRequest) -> Result<Bytes, ProviderError>>;

/// What turns requests into bodies: one of all four wires.
struct Encoder(Encode);

impl Encoder {
    fn new(name: &str) -> Result<Self, Failure> {
        let encode: Encode = match name {
            "anthropic" => {
                let wire = Anthropic::builder().api_key("k").build()?;
                Box::new(move |request| wire.encode(request))
            }
            "openai" => {
                let wire = OpenAiChat::builder().api_key("k").build()?;
                Box::new(move |request| wire.encode(request))
            }
            "responses" => {
                let wire = OpenAi::builder().api_key("k").build()?;
                Box::new(move |request| wire.encode(request))
            }
            "gemini" => {
                let wire = Gemini::builder().api_key("k").build()?;
                Box::new(move |request| wire.encode(request))
            }
            _ => return Err(format!("unknown wire {name}").into()),
        };
        Ok(Self(encode))
    }

    /// The size of the request's body.
    fn encode(&self, request: &ModelRequest) -> Result<usize, Failure> {
        Ok((self.0)(request)?.len())
    }
}

/// A conversation with one call whose arguments are about that long.
fn long_call(bytes: usize) -> History {
    let text = "a \\\"quoted\\\" word\\n".repeat(bytes / 20);
    let arguments = format!("{{\"path\":\"{text}\"}}");
    let call =
        ToolCallBlock { id: "call_1".to_owned(), name: "read".to_owned(), arguments, ..ToolCallBlock::default() };
    let content = vec![SessionContentBlock::ToolCall(call)];
    let turn = SessionTurn::new("turn-1", Role::Assistant, TurnOrigin::Model, content);
    let mut history = conversation(1);
    history.push(Arc::new(HistoryTurn::new(turn)));
    history
}

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for name in ENCODED {
        let Ok(wire) = Encoder::new(name) else { continue };
        for turns in [10, 1_000, 10_000] {
            let history = conversation(turns);
            group.bench_with_input(BenchmarkId::new(format!("{name}/cold"), turns), &history, |b, history| {
                b.iter(|| wire.encode(&request(history.clone())));
            });
            group.bench_with_input(BenchmarkId::new(format!("{name}/appended"), turns), &history, |b, history| {
                b.iter_custom(|times| appended(&wire, history, times).unwrap_or(Duration::MAX));
            });
        }
    }
    group.finish();

    // Work per byte of arguments: the time for ten times as many is ten times as long.
    let mut group = c.benchmark_group("arguments");
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for name in ENCODED {
        let Ok(wire) = Encoder::new(name) else { continue };
        for bytes in [100_000, 1_000_000] {
            let history = long_call(bytes);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_with_input(BenchmarkId::new(name, bytes), &history, |b, history| {
                b.iter(|| wire.encode(&request(history.clone())));
            });
        }
    }
    group.finish();
}

/// The time to encode a request of a conversation that grew by a call and its result since the last one. The
/// conversation starts anew before it has grown by much.
fn appended(wire: &Encoder, from: &History, times: u64) -> Result<Duration, Failure> {
    let room = from.len() / 10 + 2;
    let (mut history, mut cache) = (from.clone(), Arc::default());
    let mut elapsed = Duration::ZERO;
    for time in 0..times {
        if history.len() > from.len() + room || time == 0 {
            history = from.clone();
            cache = Arc::default();
            wire.encode(&request_with(history.clone(), &cache))?;
        }
        grow(&mut history);
        let request = request_with(history, &cache);
        let started = Instant::now();
        black_box(wire.encode(&request)?);
        elapsed += started.elapsed();
        history = request.history;
    }
    Ok(elapsed)
}

criterion_group!(benches, framing, decoding, encoding);
criterion_main!(benches);

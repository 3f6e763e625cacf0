//! The wires without a network: framing, decoding an answer, encoding a request.

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use zidane::provider::History;
use zidane::provider::sse::SseFramer;

use self::support::traffic::{Failure, conversation, grow, long_call, request, request_with};
use self::support::wires::{WIRES, Wire};

const DELTAS: usize = 1_000;

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

fn encoding(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    for name in WIRES {
        let Ok(wire) = Wire::new(name) else { continue };
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

    // Work per byte of arguments: the time for ten times as many is ten times as long, but for what no longer fits a
    // cache.
    let mut group = c.benchmark_group("arguments");
    group.sample_size(10).warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
    for name in WIRES {
        let Ok(wire) = Wire::new(name) else { continue };
        for bytes in [100_000, 1_000_000] {
            let history = long_call(bytes);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_with_input(BenchmarkId::new(format!("{name}/encode"), bytes), &history, |b, history| {
                b.iter(|| wire.encode(&request(history.clone())));
            });
            let answer = wire.long_answer(bytes);
            group.bench_with_input(BenchmarkId::new(format!("{name}/decode"), bytes), &answer, |b, answer| {
                b.iter(|| futures::executor::block_on(wire.decode(answer.clone())));
            });
        }
    }
    group.finish();
}

/// The time to encode a request of a conversation that grew by a call and its result since the last one. The
/// conversation starts anew before it has grown by much.
fn appended(wire: &Wire, from: &History, times: u64) -> Result<Duration, Failure> {
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

//! The turn loop on a model in memory: what a turn, a delta, a hook and a call cost.

mod support;

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use zidane::hooks::{Scope, StreamText};
use zidane::tool::{Concurrency, ToolContext, ToolError, ToolResultExt as _, tool_fn_value};
use zidane::{Agent, AgentBuilder, AgentEvent, RunError};

use self::support::model::Model;

const DELTAS: usize = 1_000;

fn runtime() -> Option<Runtime> {
    Builder::new_current_thread().enable_all().build().ok()
}

fn builder(model: Model) -> AgentBuilder {
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
        "required": ["a", "b"],
    });
    let add = tool_fn_value("add", "Adds two integers", schema, |input, _| async move {
        let number = |name| input.get(name).and_then(Value::as_i64).ok_or("two integers are needed");
        Ok::<_, ToolError>((number("a")? + number("b")?).to_string())
    });
    Agent::builder().provider(model).model("m").tool(add.concurrency(Concurrency::Shared)).max_turns(None)
}

/// An agent that can be built; benchmarks of one that cannot would measure nothing.
fn agent(builder: &AgentBuilder) -> Agent {
    builder.build().unwrap_or_else(|error| unreachable!("the benchmark's agent is complete: {error}"))
}

async fn read(agent: Agent) -> Result<usize, RunError> {
    let mut events = agent.run("go").stream();
    let mut bytes = 0;
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::Text { delta } => bytes += delta.len(),
            AgentEvent::Done(outcome) => return outcome.map(|_| bytes).map_err(|error| *error),
            _ => {}
        }
    }
    Ok(bytes)
}

/// Fifty turns with a call: awaited, and read as a stream.
fn turns(c: &mut Criterion) {
    const TURNS: usize = 50;
    let Some(runtime) = runtime() else { return };
    let mut group = c.benchmark_group("turn");
    group.throughput(Throughput::Elements(TURNS as u64 + 1));
    for deltas in [1, 20] {
        let builder = builder(Model { turns: TURNS, calls: 1, deltas });
        group.bench_function(BenchmarkId::new("awaited", deltas), |b| {
            b.iter_batched(|| agent(&builder), |agent| runtime.block_on(agent.run("go")), BatchSize::SmallInput);
        });
        group.bench_function(BenchmarkId::new("streamed", deltas), |b| {
            b.iter_batched(|| agent(&builder), |agent| runtime.block_on(read(agent)), BatchSize::SmallInput);
        });
    }
    group.finish();
}

type Register = fn(&Agent);

/// One turn of many deltas, with handlers on each.
fn hooks(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let mut group = c.benchmark_group("hook-per-delta");
    group.throughput(Throughput::Elements(DELTAS as u64));
    let builder = builder(Model { turns: 0, calls: 0, deltas: DELTAS });
    let handlers: [(&str, Register); 3] = [
        ("none", |_| {}),
        ("sync", |agent| {
            agent.hooks().on::<StreamText>(|cx: &mut zidane::hooks::StreamTextCx<'_>| {
                black_box(cx.delta());
            });
        }),
        ("async", |agent| {
            agent.hooks().on_async::<StreamText>(|cx: &mut zidane::hooks::StreamTextCx<'_>| {
                Box::pin(async move {
                    black_box(cx.delta());
                })
            });
        }),
    ];
    for (name, register) in handlers {
        group.bench_function(name, |b| {
            let prepared = || {
                let agent = agent(&builder);
                register(&agent);
                agent
            };
            b.iter_batched(prepared, |agent| runtime.block_on(agent.run("go")), BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// The calls of one turn.
fn dispatch(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let mut group = c.benchmark_group("dispatch");
    for calls in [1, 8, 64] {
        group.throughput(Throughput::Elements(calls as u64));
        let builder = builder(Model { turns: 1, calls, deltas: 0 });
        group.bench_function(BenchmarkId::from_parameter(calls), |b| {
            b.iter_batched(|| agent(&builder), |agent| runtime.block_on(agent.run("go")), BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// A tool that gives its task to another agent.
fn parent(builder: AgentBuilder, calls: usize) -> AgentBuilder {
    let spawn = tool_fn_value("add", "Adds two integers", json!({ "type": "object" }), move |_, cx: ToolContext| {
        let child = cx.spawn(&builder, "go").max_concurrent(64);
        async move { Ok::<_, ToolError>(child.await.expose()?.text) }
    });
    let model = Model { turns: 1, calls, deltas: 0 };
    Agent::builder().provider(model).model("m").tool(spawn.concurrency(Concurrency::Shared)).max_turns(None)
}

/// The children of one turn, each of one turn with nothing in it.
fn spawn(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let mut group = c.benchmark_group("spawn");
    for calls in [1, 8, 64] {
        group.throughput(Throughput::Elements(calls as u64));
        let builder = parent(builder(Model { turns: 0, calls: 0, deltas: 1 }), calls);
        group.bench_function(BenchmarkId::from_parameter(calls), |b| {
            b.iter_batched(|| agent(&builder), |agent| runtime.block_on(agent.run("go")), BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// As `hooks`, three levels below the agent that listens.
fn hooks_from_above(c: &mut Criterion) {
    let Some(runtime) = runtime() else { return };
    let mut group = c.benchmark_group("hook-per-delta-three-ancestors");
    group.throughput(Throughput::Elements(DELTAS as u64));
    let leaf = builder(Model { turns: 0, calls: 0, deltas: DELTAS });
    let builder = (0..3).fold(leaf, |below, _| parent(below, 1));
    for listens in [false, true] {
        group.bench_function(if listens { "sync" } else { "none" }, |b| {
            let prepared = || {
                let agent = agent(&builder);
                if listens {
                    agent.hooks().scope(Scope::Tree).on::<StreamText>(|cx: &mut zidane::hooks::StreamTextCx<'_>| {
                        black_box(cx.delta());
                    });
                }
                agent
            };
            b.iter_batched(prepared, |agent| runtime.block_on(agent.run("go")), BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, turns, hooks, hooks_from_above, dispatch, spawn);
criterion_main!(benches);

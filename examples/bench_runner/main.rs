//! Runs one benchmark scenario and prints what it cost as one line of JSON.
//!
//! The workload is a scripted model: over a server that speaks the Anthropic or the OpenAI Chat wire, or in memory.
//! Every run is a fresh agent with one tool, read through its stream of events to the end, and is checked against
//! what the script must give.
//!
//! ```text
//! bench_runner --api inproc --model loop-50-20 --runs 20 --warmup 2
//! bench_runner --api anthropic --base http://127.0.0.1:4000 --model text-8MB-16
//! ```
//!
//! `BENCH_RT=current` puts it on a single-threaded runtime. `BENCH_T0_NS`, a reading of the monotonic clock, asks for
//! the time from there to the first text.

mod args;
mod in_memory;
mod meter;
mod script;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use zidane::provider::{Anthropic, OpenAiChat, Provider};
use zidane::tool::{Concurrency, ToolError, tool_fn_value};
use zidane::{Agent, AgentBuilder, AgentEvent, StopCause};

use self::args::{Api, Args};
use self::in_memory::InMemory;
use self::meter::Meter;
use self::script::Script;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(message) => {
            eprintln!("bench_runner: {message}");
            return ExitCode::from(2);
        }
    };
    let result = runtime().and_then(|runtime| runtime.block_on(measure(&args)));
    let failed = result.is_err();
    let mut line = result.unwrap_or_else(|error| json!({ "ok": false, "error": error.to_string() }));
    line["peer"] = "zidane".into();
    line["api"] = args.api.as_str().into();
    line["scenario"] = args.scenario.into();
    line["model"] = args.model.into();
    println!("{line}");
    if failed { ExitCode::from(3) } else { ExitCode::SUCCESS }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let current = std::env::var("BENCH_RT").is_ok_and(|runtime| runtime == "current");
    let mut builder = if current {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    Ok(builder.enable_all().build()?)
}

/// What one run said.
#[derive(Default)]
struct Said {
    deltas: u64,
    bytes: u64,
    /// The whole text of the last turn.
    answer: String,
}

async fn measure(args: &Args) -> Result<Value, Failure> {
    let script = Script::parse(&args.model)?;
    let meter = Arc::new(Meter::default());
    let builder = agent_builder(args, &script, &meter)?;
    for _ in 0..args.warmup {
        start(&builder, &meter).await??;
    }
    meter.reset((args.scenario == "s4").then_some(script.calls.saturating_mul(args.runs)));

    let base_rss_kb = meter::rss_kb();
    let mut said = Vec::with_capacity(args.runs);
    let mut run_ms = Vec::new();
    let (cpu, wall) = (meter::cpu_ms(), Instant::now());
    if args.concurrency <= 1 {
        for _ in 0..args.runs {
            let begun = Instant::now();
            said.push(start(&builder, &meter).await??);
            run_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    } else {
        while said.len() < args.runs {
            let wave = args.concurrency.min(args.runs - said.len());
            let running: Vec<_> = (0..wave).map(|_| start(&builder, &meter)).collect();
            for run in running {
                said.push(run.await??);
            }
        }
    }
    let wall_ms = wall.elapsed().as_secs_f64() * 1e3;
    let cpu_ms = meter::cpu_ms() - cpu;

    let tool_calls = meter.check(&script, args.runs)?;
    for run in &said {
        script.check(run)?;
    }
    let mut line = json!({
        "ok": true,
        "n": args.runs,
        "wall_ms": wall_ms,
        "cpu_ms": cpu_ms,
        "peak_rss_kb": meter::peak_rss_kb(),
        "base_rss_kb": base_rss_kb,
        "turns": script.turns * args.runs,
        "deltas": said.iter().map(|run| run.deltas).sum::<u64>(),
        "text_bytes": said.iter().map(|run| run.bytes).sum::<u64>(),
        "tool_calls": tool_calls,
    });
    run_ms.sort_by(f64::total_cmp);
    if let (Some(min), Some(median)) = (run_ms.first(), run_ms.get(run_ms.len() / 2)) {
        line["run_ms_min"] = (*min).into();
        line["run_ms_median"] = (*median).into();
    }
    meter.add_to(&mut line);
    Ok(line)
}

fn agent_builder(args: &Args, script: &Script, meter: &Arc<Meter>) -> Result<AgentBuilder, Failure> {
    let provider: Arc<dyn Provider> = match args.api {
        Api::Anthropic => Arc::new(Anthropic::builder().api_key("k").base_url(&args.base).build()?),
        Api::OpenAi => {
            let base = format!("{}/v1", args.base);
            Arc::new(OpenAiChat::builder().api_key("k").base_url(base).build()?)
        }
        Api::InMemory => Arc::new(InMemory::new(script)?),
    };
    let schema = json!({
        "type": "object",
        "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
        "required": ["a", "b"],
    });
    let (meter, sleep) = (Arc::clone(meter), Duration::from_millis(args.tool_sleep_ms));
    let add = tool_fn_value("add", "Add two integers and return the sum.", schema, move |input, _| {
        let meter = Arc::clone(&meter);
        async move {
            if !sleep.is_zero() {
                tokio::time::sleep(sleep).await;
            }
            let number = |name| input.get(name).and_then(Value::as_i64).ok_or("two integers are needed");
            let sum = number("a")?.checked_add(number("b")?).ok_or("the sum is too large")?;
            meter.call(sum);
            Ok::<_, ToolError>(sum.to_string())
        }
    })
    .concurrency(Concurrency::Shared);
    Ok(Agent::builder()
        .provider(provider)
        .model(&args.model)
        .system("You are a careful calculator. Use the add tool.")
        .tool(add)
        .max_turns(u32::try_from(script.turns)?.saturating_add(5)))
}

/// Starts one run of a fresh agent, as a task of its own.
fn start(builder: &AgentBuilder, meter: &Arc<Meter>) -> tokio::task::JoinHandle<Result<Said, Failure>> {
    let (agent, meter) = (builder.build(), Arc::clone(meter));
    tokio::spawn(async move {
        let mut events = agent?.run("Please add the numbers, one call at a time.").stream();
        let mut said = Said::default();
        while let Some(event) = events.next().await {
            match event {
                AgentEvent::Text { delta } => {
                    if said.deltas == 0 {
                        meter.first_text();
                    }
                    said.deltas += 1;
                    said.bytes += delta.len() as u64;
                }
                AgentEvent::Done(outcome) => {
                    let outcome = outcome?;
                    if outcome.stop != StopCause::Stop {
                        return Err(format!("the run ended with {:?}", outcome.stop).into());
                    }
                    said.answer = outcome.text;
                    return Ok(said);
                }
                _ => {}
            }
        }
        Err("the stream ended without an outcome".into())
    })
}

//! Random parallel programs over shared keys: what they leave is what the segments give one after the other, and the
//! store has what the agent has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use zidane::Agent;
use zidane::agent::ToolExecution;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{Concurrency, ToolContext, ToolError, tool_fn_value};
use zidane::tool_state::{MemoryToolStateStore, ToolStateSnapshot};
use zidane::types::{ToolStatus, tool_result_to_text};

/// Few keys, so that calls meet on them.
const KEYS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u8),
    /// Adds an item to what is there.
    Append(usize, u8),
    Delete(usize),
    Read(usize),
    Discard,
    /// Lets the others go on.
    Wait(u8),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Good,
    Fails,
    Panics,
    TimesOut,
}

#[derive(Clone, Debug)]
struct Call {
    steps: Vec<Step>,
    end: End,
    exclusive: bool,
}

fn call() -> impl Strategy<Value = Call> {
    let key = 0..KEYS;
    let step = prop_oneof![
        4 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        4 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Append(key, value)),
        2 => key.clone().prop_map(Step::Delete),
        4 => key.prop_map(Step::Read),
        1 => Just(Step::Discard),
        3 => (0..4u8).prop_map(Step::Wait),
    ];
    let end =
        prop_oneof![8 => Just(End::Good), 1 => Just(End::Fails), 1 => Just(End::Panics), 1 => Just(End::TimesOut)];
    (prop::collection::vec(step, 0..6), end, prop::bool::weighted(0.3)).prop_map(|(steps, end, exclusive)| Call {
        steps,
        end,
        exclusive,
    })
}

type State = BTreeMap<String, Value>;

fn appended(old: Option<&Value>, item: u8) -> Value {
    let mut items = old.and_then(Value::as_array).cloned().unwrap_or_default();
    items.push(item.into());
    Value::Array(items)
}

/// What the calls do to the state, and what each of them reads.
fn model(turns: &[Vec<Call>]) -> (State, Vec<Vec<Value>>) {
    let (mut state, mut reads) = (State::new(), Vec::new());
    for turn in turns {
        let mut rest = turn.as_slice();
        while let Some(first) = rest.first() {
            let shared = rest.iter().take_while(|call| !call.exclusive).count();
            let (segment, later) = rest.split_at(if first.exclusive { 1 } else { shared });
            rest = later;
            let base = state.clone();
            for call in segment {
                let (mut view, mut ops, mut seen) = (base.clone(), Vec::new(), Vec::new());
                for step in &call.steps {
                    let (key, value) = match *step {
                        Step::Set(key, value) => (key, Some(json!(value))),
                        Step::Append(key, item) => (key, Some(appended(view.get(&name(key)), item))),
                        Step::Delete(key) => (key, None),
                        Step::Read(key) => {
                            seen.push(view.get(&name(key)).cloned().unwrap_or_default());
                            continue;
                        }
                        Step::Discard => {
                            (view, ops) = (base.clone(), Vec::new());
                            continue;
                        }
                        Step::Wait(_) => continue,
                    };
                    apply(&mut view, key, value.clone());
                    ops.push((key, value));
                }
                if call.end == End::Good {
                    for (key, value) in ops {
                        apply(&mut state, key, value);
                    }
                }
                reads.push(seen);
            }
        }
    }
    (state, reads)
}

fn name(key: usize) -> String {
    format!("k{key}")
}

fn apply(state: &mut State, key: usize, value: Option<Value>) {
    match value {
        Some(value) => state.insert(name(key), value),
        None => state.remove(&name(key)),
    };
}

async fn run(call: Call, cx: ToolContext) -> Result<String, ToolError> {
    let (state, mut seen) = (cx.state(), Vec::new());
    for step in call.steps {
        match step {
            Step::Set(key, value) => state.set(name(key), value).unwrap(),
            Step::Append(key, item) => state.update(name(key), |old| appended(old, item)).unwrap(),
            Step::Delete(key) => state.delete(name(key)).unwrap(),
            Step::Read(key) => seen.push(state.get(&name(key)).map(|value| (*value).clone()).unwrap_or_default()),
            Step::Discard => state.discard().unwrap(),
            Step::Wait(ticks) => tokio::time::sleep(Duration::from_millis(ticks.into())).await,
        }
    }
    match call.end {
        End::Good => Ok(Value::Array(seen).to_string()),
        End::Fails => Err("as asked".into()),
        End::Panics => panic!("as asked"),
        End::TimesOut => std::future::pending().await,
    }
}

async fn check(turns: Vec<Vec<Call>>) {
    let replies = turns.iter().enumerate().map(|(turn, calls)| {
        calls.iter().enumerate().fold(Reply::empty(), |reply, (index, call)| {
            reply.and_call(if call.exclusive { "alone" } else { "beside" }, json!({ "turn": turn, "index": index }))
        })
    });
    let model_provider = ScriptedProvider::new(replies.chain([Reply::text("Done.")]));
    let store = std::sync::Arc::new(MemoryToolStateStore::new());
    let program = std::sync::Arc::new(turns.clone());
    let tool = |name: &str, concurrency| {
        let program = program.clone();
        tool_fn_value(name, "Runs its part", json!({ "type": "object" }), move |input: Value, cx| {
            let at = |field: &str| usize::try_from(input[field].as_u64().unwrap()).unwrap();
            run(program[at("turn")][at("index")].clone(), cx)
        })
        .concurrency(concurrency)
        .timeout(Duration::from_secs(1))
    };
    let agent = Agent::builder()
        .provider(model_provider)
        .model("any")
        .session_id("s")
        .tool(tool("alone", Concurrency::Exclusive))
        .tool(tool("beside", Concurrency::Shared))
        .tool_execution(ToolExecution::Declared)
        .max_consecutive_failures(100)
        .cancel_grace(Duration::from_millis(10))
        .tool_state(store.clone())
        .build()
        .unwrap();
    agent.run("Go").await.unwrap();

    let (expected, reads) = model(&turns);
    let of = |snapshot: ToolStateSnapshot| -> State {
        snapshot.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()
    };
    assert_eq!(of(agent.tool_state().snapshot()), expected, "the agent's");
    assert_eq!(of(store.snapshot("s")), expected, "the store's");
    let history = agent.history();
    let results: Vec<_> = history.iter().flat_map(|turn| turn.tool_results()).collect();
    assert_eq!(results.len(), reads.len());
    for (result, reads) in results.into_iter().zip(reads) {
        if result.status == ToolStatus::Ok {
            assert_eq!(tool_result_to_text(&result.output), Value::Array(reads).to_string());
        }
    }
}

#[test]
fn parallel_programs_come_to_what_their_segments_do_one_after_the_other() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let programs = prop::collection::vec(prop::collection::vec(call(), 1..7), 1..4);
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) });
    runner
        .run(&programs, |turns| {
            runtime.block_on(check(turns));
            Ok(())
        })
        .unwrap();
}

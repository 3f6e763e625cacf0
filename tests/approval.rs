//! Calls that wait for the host: answers that fit and that do not, in this process and in others, and the helper that
//! asks somebody.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "approval/answers.rs"]
mod answers;
#[path = "approval/asking.rs"]
mod asking;
#[path = "harness/folder.rs"]
mod folder;
mod harness;
#[path = "approval/processes.rs"]
mod processes;
#[path = "approval/random.rs"]
mod random;

use harness::{Notes, tool};
use serde_json::Value;
use zidane::hooks::ToolGate;
use zidane::session::SessionStore;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::Concurrency;
use zidane::types::{DeferredCall, SessionTurn, ToolStatus};
use zidane::{Agent, AgentBuilder, StopCause};

/// An agent with the tools `ask`, which is deferred, `side`, which may run beside others, and `late`, which may not.
/// Each notes what it runs with.
pub(crate) fn builder(model: &ScriptedProvider, notes: &Notes) -> AgentBuilder {
    let noting = |name: &'static str, concurrency| {
        let notes = notes.clone();
        let mut tool = tool(name, move |input: Value, cx| {
            notes.add(format!("{name} {input} {}", cx.idempotency_key()));
            Box::pin(async move { Ok(format!("{name} {input}").into()) })
        });
        tool.spec.concurrency = Some(concurrency);
        tool
    };
    Agent::builder()
        .provider(model.clone())
        .model("test")
        .session_id("s")
        .tool(noting("ask", Concurrency::Shared))
        .tool(noting("side", Concurrency::Shared))
        .tool(noting("late", Concurrency::Exclusive))
}

/// Defers calls of `ask`.
pub(crate) fn deferring(agent: Agent) -> Agent {
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.name() == "ask" {
            cx.defer("a person must see this");
        }
    });
    agent
}

pub(crate) fn kept(model: &ScriptedProvider, notes: &Notes, store: &(impl SessionStore + Clone + 'static)) -> Agent {
    deferring(builder(model, notes).session_store(store.clone()).build().unwrap())
}

#[track_caller]
pub(crate) fn deferred(stop: StopCause) -> Vec<DeferredCall> {
    match stop {
        StopCause::Deferred(calls) => calls,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn statuses(turn: &SessionTurn) -> Vec<ToolStatus> {
    turn.tool_results().map(|result| result.status).collect()
}

/// Two calls that are deferred, one beside them, and one after them.
pub(crate) fn mixed() -> Reply {
    Reply::call("ask", serde_json::json!({"n": 1}))
        .and_call("side", serde_json::json!({"n": 2}))
        .and_call("ask", serde_json::json!({"n": 3}))
        .and_call("late", serde_json::json!({"n": 4}))
}

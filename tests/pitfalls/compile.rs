//! Form `compile`: what must compile. That this file does is the test; a case only says which parts it asks for.

use std::cell::Cell;

use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{NoInput, Tool, ToolContext, ToolFn, tool_fn};
use zidane::{Agent, AgentStream, Run};

use super::fields::Fields;
use super::findings::Findings;

fn assert_send<T: Send>(_: T) {}
const fn is_send<T: Send + 'static>() {}
const fn is_send_sync<T: ?Sized + Send + Sync + 'static>() {}

const _: () = {
    is_send::<Run>();
    is_send::<AgentStream>();
    is_send_sync::<Agent>();
    is_send_sync::<dyn Tool>();
};

/// A value that is `Send` and not `Sync` lives across an await.
fn holds_a_cell() -> ToolFn {
    tool_fn("cell", "Holds a cell across an await", |_: NoInput, _cx: ToolContext| async move {
        let cell = Cell::new(1_u8);
        tokio::task::yield_now().await;
        cell.set(cell.get() + 1);
        Ok(cell.get().to_string())
    })
}

/// An agent inside a tool of an agent.
fn agent_as_tool(inner: Agent) -> ToolFn {
    tool_fn("ask", "Asks another agent", move |_: NoInput, _cx| {
        let inner = inner.clone();
        async move { Ok(inner.run("Go").await?.text) }
    })
}

fn agent(replies: impl IntoIterator<Item = Reply>, tools: impl IntoIterator<Item = ToolFn>) -> Agent {
    let mut builder = Agent::builder().provider(ScriptedProvider::new(replies)).model("test");
    for tool in tools {
        builder = builder.tool(tool);
    }
    builder.build().unwrap()
}

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for assert in case.list("asserts") {
        let assert = assert.as_str().unwrap_or_default();
        let text = match assert {
            "fn assert_send<T: Send>(_: T)" | "run future is Send" => {
                let agent = agent([Reply::text("ok"), Reply::text("ok")], []);
                assert_send(agent.run("Go"));
                runtime.block_on(async { tokio::spawn(agent.run("Go")).await.unwrap().map(|outcome| outcome.text) })
            }
            "event stream is Send" => {
                assert_send(agent([], []).run("Go").stream());
                Ok("ok".to_owned())
            }
            "Agent: Send + Sync" => Ok("ok".to_owned()),
            "Tool future may hold Cell<u8> across await" => {
                let call = Reply::call("cell", serde_json::json!({}));
                let agent = agent([call, Reply::text("ok")], [holds_a_cell()]);
                runtime.block_on(agent.run("Go")).map(|outcome| outcome.text)
            }
            "agent-as-tool compiles" => {
                let inner = agent([Reply::text("inner")], []);
                let call = Reply::call("ask", serde_json::json!({}));
                let outer = agent([call, Reply::text("ok")], [agent_as_tool(inner)]);
                runtime.block_on(outer.run("Go")).map(|outcome| outcome.text)
            }
            other => {
                findings.need(format!("an adapter for the assertion `{other}`"));
                continue;
            }
        };
        findings.ensure(text.as_deref().is_ok_and(|text| text == "ok"), || format!("{assert}: {text:?}"));
    }
}

//! Tools may be aliased, and aliases renamed, between the runs of one conversation: requests stay valid, policies match
//! canonical names, and the stored history does not change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::sync::Arc;

use harness::{Notes, echo};
use serde_json::{Value, json};
use zidane::hooks::ToolGate;
use zidane::session::MemorySessionStore;
use zidane::testing::{HttpReply, SseServer};
use zidane::types::SessionTurn;
use zidane::{Agent, AgentBuilder, Anthropic, OpenAiChat};

fn anthropic(name: Option<&str>) -> String {
    let block = match name {
        Some(name) => json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {"n": 1}}),
        None => json!({"type": "text", "text": "done"}),
    };
    let stop = if name.is_some() { "tool_use" } else { "end_turn" };
    json!({"type": "message", "id": "m", "role": "assistant", "model": "m", "content": [block], "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}}).to_string()
}

fn chat(name: Option<&str>) -> String {
    let (message, finish) = match name {
        Some(name) => (
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": name, "arguments": "{\"n\": 1}"}}]}),
            "tool_calls",
        ),
        None => (json!({"role": "assistant", "content": "done"}), "stop"),
    };
    json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}).to_string()
}

/// The tool names of a request: declared, and called in its history.
fn names(request: &Value, is_chat: bool) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let messages = request["messages"].as_array().unwrap();
    let tools = request["tools"].as_array().unwrap();
    if is_chat {
        let calls = messages.iter().filter_map(|m| m["tool_calls"].as_array()).flatten();
        (
            tools.iter().map(|tool| text(&tool["function"]["name"])).collect(),
            calls.map(|call| text(&call["function"]["name"])).collect(),
        )
    } else {
        let calls =
            messages.iter().filter_map(|m| m["content"].as_array()).flatten().filter(|b| b["type"] == "tool_use");
        (tools.iter().map(|tool| text(&tool["name"])).collect(), calls.map(|call| text(&call["name"])).collect())
    }
}

async fn run(
    server: &SseServer,
    wire: fn(&SseServer) -> AgentBuilder,
    alias: Option<&str>,
    history: Vec<SessionTurn>,
    prompt: &str,
) -> (Vec<SessionTurn>, Vec<String>) {
    let mut builder = wire(server).model("m").tool(echo()).history(history);
    if let Some(alias) = alias {
        builder = builder.tool_aliases([("echo", alias)]);
    }
    let agent = builder.build().unwrap();
    let gated = Notes::default();
    let log = gated.clone();
    agent.hooks().on::<ToolGate>(move |cx| log.add(format!("{} as {}", cx.name(), cx.display_name())));
    agent.run(prompt).await.unwrap();
    (agent.history().iter().cloned().collect(), gated.all())
}

async fn renamed_between_runs(wire: fn(&SseServer) -> AgentBuilder, answer: fn(Option<&str>) -> String, is_chat: bool) {
    let odd = "weiß/es.noch.nicht";
    let server = SseServer::start([]).await.unwrap();
    let mut history = Vec::new();
    let mut before = Vec::new();
    for (alias, called) in [(None, "echo"), (Some("parrot"), "parrot"), (Some("repeat"), "echo"), (Some(odd), "")] {
        // The model calls by what it was shown; where that is mapped, by what the request says.
        let called = if called.is_empty() { "echo" } else { called };
        server.push(HttpReply::json(200, answer(Some(called))));
        server.push(HttpReply::json(200, answer(None)));
        let seen = server.requests().len();
        let (turns, gated) = run(&server, wire, alias, history, "Again").await;
        let shown = alias.unwrap_or("echo");
        assert_eq!(gated, [format!("echo as {shown}")]);
        assert!(turns.iter().flat_map(SessionTurn::tool_calls).all(|call| call.name == "echo"), "canonical names only");
        assert_eq!(turns[..before.len()], before, "the stored history has changed");
        for request in &server.requests()[seen..] {
            let (declared, calls) = names(&request.json().unwrap(), is_chat);
            assert_eq!(declared.len(), 1);
            let on_the_wire = &declared[0];
            if alias != Some(odd) {
                assert_eq!(on_the_wire, shown);
            }
            assert!(on_the_wire.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{on_the_wire}");
            assert!(calls.iter().all(|call| call == on_the_wire), "{calls:?} are not {on_the_wire}");
        }
        before.clone_from(&turns);
        history = turns;
    }
}

#[tokio::test]
async fn on_anthropic() {
    let wire = |server: &SseServer| {
        Agent::builder().provider(Anthropic::builder().api_key("k").base_url(server.url()).build().unwrap())
    };
    renamed_between_runs(wire, anthropic, false).await;
}

#[tokio::test]
async fn on_chat() {
    let wire = |server: &SseServer| {
        Agent::builder().provider(OpenAiChat::builder().api_key("k").base_url(server.url()).build().unwrap())
    };
    renamed_between_runs(wire, chat, true).await;
}

/// One stored session, taken up by an agent made anew for each prompt: under other aliases, on the other wire, and at
/// last with the tool under another canonical name.
#[tokio::test]
async fn a_stored_session_is_taken_up_under_other_names_and_on_another_wire() {
    let store = Arc::new(MemorySessionStore::new());
    let server = SseServer::start([]).await.unwrap();
    let mut before: Vec<SessionTurn> = Vec::new();
    let rounds = [
        (false, "echo", None),
        (true, "echo", Some("parrot")),
        (false, "echo", Some("repeat")),
        (true, "echo", Some("weiß/es.noch.nicht")),
        (false, "say", None),
        (true, "say", Some("echo")),
    ];
    for (number, (is_chat, canonical, alias)) in rounds.into_iter().enumerate() {
        // Where the name is mapped for the wire, the model may also use the canonical one.
        let called = alias.filter(|alias| alias.is_ascii()).unwrap_or(canonical);
        for name in [Some(called), None] {
            server.push(HttpReply::json(200, if is_chat { chat(name) } else { anthropic(name) }));
        }
        let builder = Agent::builder();
        let mut builder = if is_chat {
            builder.provider(OpenAiChat::builder().api_key("k").base_url(server.url()).build().unwrap())
        } else {
            builder.provider(Anthropic::builder().api_key("k").base_url(server.url()).build().unwrap())
        };
        let mut tool = echo();
        tool.spec.name = canonical.to_owned();
        builder = builder.model("m").tool(tool).session_store(Arc::clone(&store)).session_id("s");
        if let Some(alias) = alias {
            builder = builder.tool_aliases([(canonical, alias)]);
        }
        let agent = builder.build().unwrap();
        let gated = Notes::default();
        let log = gated.clone();
        agent.hooks().on::<ToolGate>(move |cx| log.add(format!("{} as {}", cx.name(), cx.display_name())));
        let seen = server.requests().len();
        agent.run(format!("Again {number}")).await.unwrap();
        assert_eq!(gated.all(), [format!("{canonical} as {}", alias.unwrap_or(canonical))]);
        let session = agent.session().await.unwrap().unwrap();
        let turns: Vec<SessionTurn> = session.turns.iter().map(|turn| (***turn).clone()).collect();
        assert_eq!(turns[..before.len()], before, "what is stored has changed");
        assert_eq!(turns.len(), before.len() + 4);
        let last = turns.iter().flat_map(SessionTurn::tool_calls).last().unwrap();
        assert_eq!(last.name, canonical, "canonical names only");
        for request in &server.requests()[seen..] {
            let (declared, calls) = names(&request.json().unwrap(), is_chat);
            assert!(calls.len() >= number);
            // Calls of the tool there is go by its name on this wire; those of one that is gone by what it was.
            for (call, turn) in calls.iter().zip(turns.iter().flat_map(SessionTurn::tool_calls)) {
                assert_eq!(*call, if turn.name == canonical { &*declared[0] } else { &*turn.name }, "round {number}");
            }
        }
        before = turns;
    }
}

//! A model that falls silent on a real connection, and a host that leaves.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use zidane::testing::{HttpEnd, HttpReply, HttpReplyState, SseServer};
use zidane::{Agent, AgentEvent};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::super::wires::{BUILT, MODEL, Protocol};
use super::Script;
use super::action::{Action, At, Do};

pub fn judge(case: &mut Fields<'_>, script: &Script<'_>, actions: &[Action], findings: &mut Findings) {
    let repeat = case.number("repeat").unwrap_or(1);
    let text = script.model[0]["stall_after"].as_str().unwrap_or("x");
    let leaves = matches!(actions, [Action { at: At::FirstDelta, what: Do::Drop, .. }]);
    if script.model.len() != 1 || script.tools.is_some() || !script.hooks.is_empty() || !leaves {
        return findings.need("an adapter for other scenarios on a stalled connection");
    }
    let server_side = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // Its tasks are those of the agent and the client only.
    let client_side = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for protocol in BUILT {
        findings.at(protocol.name());
        let server = server_side.block_on(SseServer::with_handler({
            let text = text.to_owned();
            move |_| HttpReply::sse(beginning(protocol, &text)).end(HttpEnd::Stall)
        }));
        let server = server.unwrap();
        let (slowest, tasks) = client_side.block_on(leave(protocol, &server, repeat));
        let mut expect = Fields::new("expect", script.expect);
        if let Some(limit) = expect.number("server_sees_close_within_ms") {
            findings.within(Duration::from_millis(limit), slowest);
        }
        if let Some(delta) = expect.take("live_tasks_delta").and_then(serde_json::Value::as_i64) {
            findings.equal("change in the number of tasks", &delta, &tasks);
        }
        expect.finish(findings);
    }
    findings.at("");
}

/// The beginning of an answer.
fn beginning(protocol: Protocol, text: &str) -> String {
    let whole = protocol.answer(text);
    match protocol {
        Protocol::Anthropic => {
            let end = whole.find("data: {\"type\":\"content_block_stop\"").unwrap();
            whole[..end].to_owned()
        }
        Protocol::Responses => {
            let end = whole.find("data: {\"type\":\"response.completed\"").unwrap();
            whole[..end].to_owned()
        }
        Protocol::Chat => {
            let text = serde_json::Value::from(text);
            format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":{text}}}}}]}}\n\n")
        }
        Protocol::Gemini => whole.replace(",\"finishReason\":\"STOP\"", ""),
    }
}

/// Reads the first delta and leaves, again and again. How long the slowest took to be noticed, and by how many tasks
/// there are more.
async fn leave(protocol: Protocol, server: &SseServer, repeat: u64) -> (Duration, i64) {
    let agent = |url: &str| Agent::builder().provider(protocol.provider(url, None)).model(MODEL).build().unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks() as i64;
    let before = tasks();
    let mut slowest = Duration::ZERO;
    for number in 0..usize::try_from(repeat).unwrap() {
        let mut stream = agent(&server.url()).run("Go").stream();
        while let Some(event) = stream.next().await {
            match event {
                AgentEvent::Text { .. } => break,
                AgentEvent::Done(result) => panic!("it ended: {result:?}"),
                _ => {}
            }
        }
        drop(stream);
        let left = Instant::now();
        let state = tokio::time::timeout(Duration::from_secs(10), server.wait_for_reply(number)).await;
        assert_eq!(state, Ok(HttpReplyState::ClientLeft), "repetition {number}");
        slowest = slowest.max(left.elapsed());
    }
    // A task that was told to end needs a poll to do it.
    for _ in 0..200 {
        if tasks() <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    (slowest, tasks() - before)
}

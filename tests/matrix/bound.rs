//! Reasoning that its API binds to what came before it goes back as long as that is still what is sent.

use serde_json::{Value, json};
use zidane::provider::RetryPolicy;
use zidane::testing::{HttpReply, SseServer};
use zidane::types::SessionTurn;
use zidane::{Agent, AgentBuilder, Anthropic};

fn answer(signature: &str) -> HttpReply {
    let content = json!([
        {"type": "thinking", "thinking": "Hm.", "signature": signature},
        {"type": "text", "text": "Well."},
    ]);
    HttpReply::json(200, json!({"type": "message", "content": content, "stop_reason": "end_turn"}).to_string())
}

fn builder(server: &SseServer) -> AgentBuilder {
    let provider = Anthropic::builder().api_key("k").base_url(server.url()).build().unwrap();
    Agent::builder().provider(provider).model("claude-opus-5-5").system("Be kind.").retry(RetryPolicy::never())
}

/// The signatures in the last request.
fn sent(server: &SseServer) -> Vec<String> {
    let body = server.requests().last().unwrap().json().unwrap();
    let messages = body["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    blocks.filter_map(|block| block.get("signature").and_then(Value::as_str).map(str::to_owned)).collect()
}

#[tokio::test]
async fn it_is_kept_over_a_reload_and_left_out_once_the_system_text_changed() {
    let server = SseServer::start(["S1", "S2", "S3"].map(answer)).await.unwrap();
    let agent = builder(&server).build().unwrap();
    for prompt in ["One.", "Two.", "Three."] {
        agent.run(prompt).await.unwrap();
    }
    assert_eq!(sent(&server), ["S1", "S2"]);
    let stored = serde_json::to_string(&agent.history().iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(stored.matches("\"prefixDigest\"").count(), 3);
    let turns = || serde_json::from_str::<Vec<SessionTurn>>(&stored).unwrap();

    let server = SseServer::start(["S4"].map(answer)).await.unwrap();
    builder(&server).history(turns()).build().unwrap().run("Four.").await.unwrap();
    assert_eq!(sent(&server), ["S1", "S2", "S3"]);

    let server = SseServer::start(["T4", "T5"].map(answer)).await.unwrap();
    let agent = builder(&server).system("Be brief.").history(turns()).build().unwrap();
    agent.run("Four.").await.unwrap();
    assert_eq!(sent(&server), [""; 0]);
    agent.run("Five.").await.unwrap();
    assert_eq!(sent(&server), ["T4"]);
}

//! A hosted tool that asks for approval: the run ends, and goes on once the host has put its answer into the history.

use serde_json::{Value, json};
use zidane::provider::RetryPolicy;
use zidane::testing::{HttpReply, SseServer};
use zidane::types::{OpaqueBlock, Role, SessionContentBlock, SessionTurn, SignatureProducer, TurnOrigin};
use zidane::{Agent, AgentBuilder, OpenAi, StopCause};

fn answer(output: Value) -> HttpReply {
    HttpReply::json(200, json!({"object": "response", "id": "r", "status": "completed", "output": output}).to_string())
}

fn builder(server: &SseServer) -> AgentBuilder {
    let provider = OpenAi::builder().api_key("k").base_url(server.url()).build().unwrap();
    Agent::builder().provider(provider).model("gpt-6-luna").retry(RetryPolicy::never())
}

#[tokio::test]
async fn the_run_ends_and_goes_on_with_the_hosts_answer() {
    let request = json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "delete", "arguments": "{}",
        "server_label": "files"});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "content":
        [{"type": "output_text", "text": "Deleted.", "annotations": []}]});
    let server = SseServer::start([answer(json!([request])), answer(json!([message]))]).await.unwrap();
    let agent = builder(&server).build().unwrap();
    let outcome = agent.run("Delete it.").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Paused);
    // Nothing to send before the host has answered.
    assert!(agent.run("").await.is_err());
    assert_eq!(server.requests().len(), 1);

    let yes = json!({"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true});
    let block = OpaqueBlock::new(SignatureProducer::OPENAI_RESPONSES, "gpt-6-luna", yes.clone());
    let mut turns: Vec<_> = agent.history().iter().cloned().collect();
    let content = vec![SessionContentBlock::Opaque(block)];
    turns.push(SessionTurn::new("yes", Role::User, TurnOrigin::Prompt, content));
    let outcome = builder(&server).history(turns).build().unwrap().run("").await.unwrap();
    assert_eq!((outcome.stop, &*outcome.text), (StopCause::Stop, "Deleted."));
    let input = server.requests()[1].json().unwrap()["input"].clone();
    assert_eq!((&input[1], &input[2]), (&request, &yes));
}

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::super::{History, HistoryTurn, ModelRequest, RequestHead, ToolChoice, ToolDefinition};
use super::super::Wire;
use super::super::request::{Encoded, encode};
use crate::types::{Role, SessionContentBlock, SessionTurn, Signature, SignatureProducer, ThinkingBlock, TurnOrigin};

fn head() -> RequestHead {
    RequestHead {
        model: "claude-opus-5-5".into(),
        system: Some("Be kind.".into()),
        tools: [ToolDefinition::new("ls", "Lists", json!({"type": "object"}))].into(),
        ..RequestHead::default()
    }
}

fn send(request: &ModelRequest) -> Encoded {
    encode(&Wire::new("anthropic", "2023-06-01"), request).unwrap()
}

fn user(text: &str) -> Arc<HistoryTurn> {
    Arc::new(SessionTurn::new("u", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into())
}

/// An answer that was made after what was sent.
fn answer(signature: &str, sent: &Encoded) -> Arc<HistoryTurn> {
    let thinking = SessionContentBlock::Thinking(ThinkingBlock {
        text: "hm".into(),
        signature: Some(Signature {
            producer: SignatureProducer::ANTHROPIC,
            model: "claude-opus-5-5".into(),
            value: signature.into(),
        }),
        ..ThinkingBlock::default()
    });
    let content = vec![thinking, SessionContentBlock::text("well")];
    let mut turn = SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, content);
    turn.prefix_digest = sent.digest.map(|digest| digest.to_string());
    Arc::new(turn.into())
}

/// A conversation of so many answered prompts, and one more prompt.
fn conversation(answers: usize) -> ModelRequest {
    let mut request = ModelRequest::new(head(), History::new());
    for number in 0..answers {
        request.history.push(user(&format!("prompt {number}")));
        let sent = send(&request);
        request.history.push(answer(&format!("S{number}"), &sent));
    }
    request.history.push(user("and now?"));
    request
}

/// The signatures that go out, the same with a memory of earlier requests and without one.
fn signatures(request: &ModelRequest) -> Vec<String> {
    let kept = send(request);
    let fresh = send(&ModelRequest::new((*request.head).clone(), request.history.clone()));
    assert_eq!(kept.bytes, fresh.bytes);
    assert_eq!(kept.digest, fresh.digest);
    let body: Value = serde_json::from_slice(&kept.bytes).unwrap();
    let blocks = body["messages"].as_array().unwrap().iter().flat_map(|turn| turn["content"].as_array().unwrap());
    blocks.filter_map(|block| block["signature"].as_str().map(str::to_owned)).collect()
}

fn changed(answers: usize, change: impl FnOnce(&mut RequestHead)) -> ModelRequest {
    let mut request = conversation(answers);
    change(Arc::make_mut(&mut request.head));
    request
}

#[test]
fn reasoning_goes_back_while_nothing_before_it_changed() {
    assert_eq!(signatures(&conversation(3)), ["S0", "S1", "S2"]);
    // None of these is what it is bound to.
    let unbound = changed(3, |head| {
        head.cache = true;
        head.max_tokens = Some(5);
        head.tool_choice = ToolChoice::None;
    });
    assert_eq!(signatures(&unbound), ["S0", "S1", "S2"]);
}

#[test]
fn reasoning_of_a_changed_prefix_is_left_out_from_the_start() {
    let another = || ToolDefinition::new("cat", "Shows", json!({"type": "object"}));
    let mut request = changed(2, |head| head.tools = [another()].into());
    assert_eq!(signatures(&request), [""; 0]);
    // What is made after the change stays.
    let sent = send(&request);
    request.history.push(answer("S2", &sent));
    request.history.push(user("more"));
    assert_eq!(signatures(&request), ["S2"]);
    assert_eq!(signatures(&changed(1, |head| head.system = Some("Be brief.".into()))), [""; 0]);

    let mut turns = conversation(3).history.turns().to_vec();
    turns[2] = user("something else");
    assert_eq!(signatures(&ModelRequest::new(head(), History::from_turns(turns))), [""; 0]);
    let mut turns = conversation(3).history.turns().to_vec();
    turns[6] = user("something else");
    assert_eq!(signatures(&ModelRequest::new(head(), History::from_turns(turns))), ["S0", "S1", "S2"]);
}

#[test]
fn only_models_that_bind_are_held_to_it() {
    let edited = |model: &str| {
        changed(1, |head| {
            head.model = model.into();
            head.system = None;
        })
    };
    assert_eq!(signatures(&edited("claude-opus-4-8")), ["S0"]);
    assert!(send(&edited("claude-opus-4-8")).digest.is_none());
    assert_eq!(signatures(&edited("claude-fable-5-2")), [""; 0]);
    // Turns of before digests were kept, and hosts that leave it to the API.
    let mut request = conversation(1);
    let mut turn = SessionTurn::clone(&request.history.turns()[1]);
    turn.prefix_digest = None;
    let turns = vec![user("prompt 0"), Arc::new(turn.into()), user("on")];
    request.history = History::from_turns(turns);
    Arc::make_mut(&mut request.head).system = None;
    assert_eq!(signatures(&request), ["S0"]);
    let by_server = json!({"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}});
    let request = changed(1, |head| {
        head.system = None;
        head.extra.insert("thinking".into(), by_server);
    });
    assert_eq!(signatures(&request), ["S0"]);
}

//! What a newer format stores must survive load → save in this version.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zidane::types::*;

/// Loads and saves, and returns what was loaded. Nothing may be lost.
fn survives<T: Serialize + DeserializeOwned>(stored: &Value) -> T {
    let text = stored.to_string();
    let loaded: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(&serde_json::to_value(&loaded).unwrap(), stored);
    loaded
}

fn with(mut stored: Value, field: &str, value: Value) -> Value {
    stored.as_object_mut().unwrap().insert(field.to_owned(), value);
    stored
}

fn blocks() -> Vec<Value> {
    vec![
        json!({"type": "text", "text": "hi"}),
        json!({"type": "image", "mediaType": "image/png", "data": "aGk="}),
        json!({"type": "image", "ref": "k"}),
        json!({"type": "document", "name": "a", "mediaType": "text/plain", "text": "b"}),
        json!({"type": "tool_call", "id": "c", "name": "n", "arguments": "{}"}),
        json!({"type": "partial_tool_call", "id": "c", "name": "n", "arguments": "{"}),
        json!({"type": "tool_result", "callId": "c", "name": "n", "output": "x", "status": "ok"}),
        json!({"type": "thinking", "text": "hm"}),
        json!({"type": "opaque", "producer": "gemini", "model": "g", "value": null}),
    ]
}

#[test]
fn unknown_fields_survive_in_every_block() {
    for stored in blocks() {
        for value in [json!(1), json!(null), json!({"deep": [true, {"er": "x"}]}), json!("s")] {
            let block: SessionContentBlock = survives(&with(stored.clone(), "newField", value));
            assert!(!matches!(block, SessionContentBlock::Unknown(_)), "{stored} is still itself");
        }
    }
}

#[test]
fn unknown_fields_survive_in_stored_structs() {
    let usage = serde_json::to_value(TurnUsage::default()).unwrap();
    survives::<TurnUsage>(&with(usage.clone(), "tier", json!("flex")));
    survives::<DecisionUsage>(&with(serde_json::to_value(DecisionUsage::default()).unwrap(), "tier", json!([])));
    survives::<PendingCall>(&json!({"callId": "c", "since": 3}));
    let turn = SessionTurn::new("t", Role::User, TurnOrigin::Prompt, Vec::new());
    let turn = with(serde_json::to_value(turn).unwrap(), "usage", with(usage, "tier", json!("flex")));
    survives::<SessionTurn>(&with(turn, "branch", json!({"of": "t0"})));
    for content in [
        json!({"type": "image", "data": "aGk=", "alt": "a cat"}),
        json!({"type": "audio", "data": "aGk=", "seconds": 2.5}),
        json!({"type": "video", "url": "https://example.org/v", "seconds": 9}),
        json!({"type": "resource", "uri": "u", "text": "t", "annotations": {"priority": 1}}),
        json!({"type": "image", "data": "aGk=", "url": "https://example.org/i"}),
        json!({"type": "resource", "text": "t", "blob": "aGk="}),
    ] {
        let loaded: ToolResultContent = survives(&content);
        assert!(!matches!(loaded, ToolResultContent::Unknown(_)), "{content} is still itself");
    }
    let mut stats = AgentStats::default();
    stats.push_child(ChildStats { id: "c".into(), ..ChildStats::default() });
    let mut stored = with(serde_json::to_value(&stats).unwrap(), "engine", json!("x"));
    let child = stored.pointer_mut("/children/0").unwrap();
    *child = with(child.clone(), "region", json!("eu"));
    survives::<AgentStats>(&stored);
}

#[test]
fn unknown_blocks_survive() {
    for stored in [
        json!({"type": "hologram", "data": {"x": 1}}),
        json!({"no": "type"}),
        json!({"type": 7}),
        json!({}),
        json!("just a string"),
        json!([1, 2]),
        json!(null),
    ] {
        let block: SessionContentBlock = survives(&stored);
        assert!(matches!(block, SessionContentBlock::Unknown(_)), "{stored}");
        assert_eq!(survives::<ToolResultContent>(&stored), ToolResultContent::Unknown(stored));
    }
}

#[test]
fn known_blocks_with_broken_content_survive_as_unknown() {
    for stored in [
        json!({"type": "text"}),
        json!({"type": "text", "text": 7}),
        json!({"type": "text", "text": "x", "signature": {"producer": "anthropic"}}),
        json!({"type": "image", "mediaType": "image/png"}),
        json!({"type": "image", "fileId": "f_1"}),
        json!({"type": "image", "data": ["a"]}),
        json!({"type": "document", "name": 1, "text": "x"}),
        json!({"type": "tool_call", "name": "n"}),
        json!({"type": "tool_call", "id": "c", "name": "n", "arguments": {"a": 1}}),
        json!({"type": "tool_result", "callId": "c", "name": "n", "output": 5, "status": "ok"}),
        json!({"type": "tool_result", "callId": "c", "name": "n", "output": "x", "status": {"a": 1}}),
        json!({"type": "opaque", "value": 1}),
    ] {
        let block: SessionContentBlock = survives(&stored);
        assert!(matches!(block, SessionContentBlock::Unknown(_)), "{stored}");
    }
}

#[test]
fn a_result_with_a_block_of_a_newer_format_still_answers_its_call() {
    let stored = json!({
        "type": "tool_result", "callId": "c", "name": "n", "status": "ok",
        "output": [{"type": "text", "text": "hi"}, {"type": "hologram", "data": "aGk="}],
    });
    let block: SessionContentBlock = survives(&stored);
    assert_eq!(block.as_tool_result().unwrap().call_id, "c");
}

#[test]
fn unknown_enum_values_do_not_fail_a_load() {
    let stored = json!({
        "id": "t", "runId": "r", "role": "assistant", "origin": "teleport", "createdAt": 1,
        "finishReason": "sudden-end",
        "usage": {"kind": "oracle", "finishReason": "sudden-end", "rawFinishReason": "SUDDEN_END"},
        "content": [{
            "type": "tool_result", "callId": "c", "name": "n", "output": "x", "isError": true,
            "status": "quarantined", "outcome": "renamed",
        }],
    });
    let turn: SessionTurn = serde_json::from_value(stored).unwrap();
    assert_eq!(turn.origin, TurnOrigin::Unknown);
    assert_eq!(turn.finish_reason, Some(TurnFinishReason::Other));
    let usage = turn.usage.as_ref().unwrap();
    assert_eq!((usage.kind, usage.finish_reason), (UsageKind::Other, Some(TurnFinishReason::Other)));
    assert_eq!(usage.raw_finish_reason.as_deref(), Some("SUDDEN_END"));
    let result = turn.tool_results().next().expect("still the answer to its call");
    assert_eq!(result.status, ToolStatus::Unknown);
    assert_eq!(result.outcome, Some(ToolOutcome::Unknown));
    assert!(result.is_error);
}

#[test]
fn a_role_that_is_not_known_is_refused() {
    let stored = json!({"id": "t", "runId": "r", "role": "referee", "origin": "prompt", "content": [], "createdAt": 1});
    let error = serde_json::from_value::<SessionTurn>(stored).unwrap_err().to_string();
    assert!(error.contains("referee"), "{error}");
}

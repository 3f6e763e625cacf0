//! One stored sample per variant and struct. These texts are in users' files: a change here breaks their sessions.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zidane::types::*;

fn golden<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, text: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), text);
    assert_eq!(&serde_json::from_str::<T>(text).unwrap(), value, "{text}");
}

fn signature() -> Signature {
    Signature::new(SignatureProducer::ANTHROPIC, "claude-sonnet-5-5", "EqQB+/==")
}

fn tokens() -> TokenUsage {
    TokenUsage { input: 1, output: 2, cache_read: 3, cache_write: 4, reasoning: Some(1) }
}

fn turn_usage() -> TurnUsage {
    TurnUsage {
        tokens: tokens(),
        cost: Some(NanoUsd(12_345)),
        model_id: Some("claude-sonnet-5-5-20260101".into()),
        requested_model: "claude-sonnet-5-5".into(),
        provider: "anthropic".into(),
        finish_reason: Some(TurnFinishReason::ToolCalls),
        raw_finish_reason: Some("tool_use".into()),
        run_id: "r1".into(),
        turn_id: "t1".into(),
        parent_run_id: Some("r0".into()),
        depth: 1,
        kind: UsageKind::Turn,
        complete: true,
        attempts: 2,
        ..TurnUsage::default()
    }
}

const TURN_USAGE: &str = concat!(
    r#"{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"reasoning":1,"costNanoUsd":12345,"#,
    r#""modelId":"claude-sonnet-5-5-20260101","requestedModel":"claude-sonnet-5-5","provider":"anthropic","#,
    r#""finishReason":"tool-calls","rawFinishReason":"tool_use","runId":"r1","turnId":"t1","parentRunId":"r0","#,
    r#""depth":1,"kind":"turn","complete":true,"attempts":2}"#
);

#[test]
fn turn_usage_is_stored_as_ever() {
    golden(&turn_usage(), TURN_USAGE);
    golden(
        &TurnUsage::default(),
        concat!(
            r#"{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"requestedModel":"","provider":"","runId":"","#,
            r#""turnId":"","depth":0,"kind":"turn","complete":false,"attempts":0}"#
        ),
    );
}

#[test]
fn decision_usage_is_stored_as_ever() {
    golden(
        &DecisionUsage {
            tokens: TokenUsage { input: 5, ..TokenUsage::default() },
            cost: Some(NanoUsd(7)),
            model_id: Some("m".into()),
            requested_model: "m".into(),
            provider: "p".into(),
            run_id: "r1".into(),
            ..DecisionUsage::default()
        },
        concat!(
            r#"{"input":5,"output":0,"cacheRead":0,"cacheWrite":0,"costNanoUsd":7,"modelId":"m","#,
            r#""requestedModel":"m","provider":"p","runId":"r1"}"#
        ),
    );
}

#[test]
fn a_usage_tree_is_stored_flat() {
    let leaf = |id: &str, input| {
        let mut stats = AgentStats::default();
        let tokens = TokenUsage { input, ..TokenUsage::default() };
        stats.push_decision(DecisionUsage { tokens, ..DecisionUsage::default() });
        ChildStats { id: id.into(), call_id: None, task: "look".into(), status: ChildStatus::Failed, stats }
    };
    let mut first = leaf("a", 1);
    first.call_id = Some("call_1".into());
    first.stats.push_child(leaf("b", 2));
    let mut stats = AgentStats::default();
    stats.push_turn(TurnUsage { tokens: tokens(), ..TurnUsage::default() });
    stats.push_child(first);
    stats.push_child(leaf("c", 4));
    golden(
        &stats,
        concat!(
            r#"{"totalIn":8,"totalOut":2,"totalCacheRead":3,"totalCacheWrite":4,"totalCostNanoUsd":0,"#,
            r#""unpricedTurns":1,"turns":1,"turnUsage":[{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"#,
            r#""reasoning":1,"requestedModel":"","provider":"","runId":"","turnId":"","depth":0,"kind":"turn","#,
            r#""complete":false,"attempts":0}],"decisions":[],"children":["#,
            r#"{"id":"a","callId":"call_1","task":"look","status":"failed","totalIn":3,"totalOut":0,"#,
            r#""totalCacheRead":0,"totalCacheWrite":0,"totalCostNanoUsd":0,"unpricedTurns":0,"turns":0,"#,
            r#""turnUsage":[],"decisions":[{"input":1,"output":0,"cacheRead":0,"cacheWrite":0,"requestedModel":"","#,
            r#""provider":"","runId":""}]},"#,
            r#"{"parent":0,"id":"b","task":"look","status":"failed","totalIn":2,"totalOut":0,"totalCacheRead":0,"#,
            r#""totalCacheWrite":0,"totalCostNanoUsd":0,"unpricedTurns":0,"turns":0,"turnUsage":[],"#,
            r#""decisions":[{"input":2,"output":0,"cacheRead":0,"cacheWrite":0,"requestedModel":"","provider":"","#,
            r#""runId":""}]},"#,
            r#"{"id":"c","task":"look","status":"failed","totalIn":4,"totalOut":0,"totalCacheRead":0,"#,
            r#""totalCacheWrite":0,"totalCostNanoUsd":0,"unpricedTurns":0,"turns":0,"turnUsage":[],"#,
            r#""decisions":[{"input":4,"output":0,"cacheRead":0,"cacheWrite":0,"requestedModel":"","provider":"","#,
            r#""runId":""}]}]}"#
        ),
    );
    golden(
        &leaf("d", 0),
        concat!(
            r#"{"id":"d","task":"look","status":"failed","stats":{"totalIn":0,"totalOut":0,"totalCacheRead":0,"#,
            r#""totalCacheWrite":0,"totalCostNanoUsd":0,"unpricedTurns":0,"turns":0,"turnUsage":[],"#,
            r#""decisions":[{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"requestedModel":"","provider":"","#,
            r#""runId":""}],"children":[]}}"#
        ),
    );
}

#[test]
fn a_rollup_entry_is_stored_as_ever() {
    golden(
        &ModelUsage { tokens: tokens(), cost: Some(NanoUsd(9)), unpriced_turns: 1, turns: 2 },
        concat!(
            r#"{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"reasoning":1,"costNanoUsd":9,"#,
            r#""unpricedTurns":1,"turns":2}"#
        ),
    );
}

#[test]
fn totals_are_stored_as_ever() {
    golden(
        &Totals { input: 1, output: 2, cache_read: 3, cache_write: 4, cost: NanoUsd(5), unpriced_turns: 6 },
        r#"{"input":1,"output":2,"cacheRead":3,"cacheWrite":4,"costNanoUsd":5,"unpricedTurns":6}"#,
    );
}

#[test]
fn enum_values_are_stored_as_ever() {
    for (value, text) in [
        (TurnFinishReason::Stop, "stop"),
        (TurnFinishReason::ToolCalls, "tool-calls"),
        (TurnFinishReason::Length, "length"),
        (TurnFinishReason::ContentFilter, "content-filter"),
        (TurnFinishReason::Pause, "pause"),
        (TurnFinishReason::Error, "error"),
        (TurnFinishReason::Other, "other"),
    ] {
        golden(&value, &format!("\"{text}\""));
        assert_eq!(value.as_str(), text);
        assert_eq!(value.to_string(), text);
    }
    for (value, text) in [
        (ToolOutcome::Created, "created"),
        (ToolOutcome::Updated, "updated"),
        (ToolOutcome::Edited, "edited"),
        (ToolOutcome::Noop, "noop"),
        (ToolOutcome::Failed, "failed"),
        (ToolOutcome::Unknown, "unknown"),
    ] {
        golden(&value, &format!("\"{text}\""));
        assert_eq!(value.as_str(), text);
    }
    for (value, text) in [
        (ToolStatus::Ok, "ok"),
        (ToolStatus::Error, "error"),
        (ToolStatus::Blocked, "blocked"),
        (ToolStatus::Invalid, "invalid"),
        (ToolStatus::UnknownTool, "unknown_tool"),
        (ToolStatus::Skipped, "skipped"),
        (ToolStatus::NotStarted, "not_started"),
        (ToolStatus::Interrupted, "interrupted"),
        (ToolStatus::Unknown, "unknown"),
    ] {
        golden(&value, &format!("\"{text}\""));
        assert_eq!(value.as_str(), text);
        assert_eq!(value.is_error(), text != "ok");
    }
    for (value, text) in [
        (TurnOrigin::Prompt, "prompt"),
        (TurnOrigin::Model, "model"),
        (TurnOrigin::Results, "results"),
        (TurnOrigin::Steering, "steering"),
        (TurnOrigin::FollowUp, "follow_up"),
        (TurnOrigin::Budget, "budget"),
        (TurnOrigin::Pause, "pause"),
        (TurnOrigin::Continue, "continue"),
        (TurnOrigin::Repair, "repair"),
        (TurnOrigin::Summary, "summary"),
        (TurnOrigin::Unknown, "unknown"),
    ] {
        golden(&value, &format!("\"{text}\""));
    }
    for (value, text) in [
        (UsageKind::Turn, "turn"),
        (UsageKind::Vision, "vision"),
        (UsageKind::Compaction, "compaction"),
        (UsageKind::Repair, "repair"),
        (UsageKind::Other, "other"),
    ] {
        golden(&value, &format!("\"{text}\""));
    }
    for (value, text) in [
        (ChildStatus::Completed, "completed"),
        (ChildStatus::Aborted, "aborted"),
        (ChildStatus::Failed, "failed"),
        (ChildStatus::Limit, "limit"),
        (ChildStatus::Deferred, "deferred"),
        (ChildStatus::Unknown, "unknown"),
    ] {
        golden(&value, &format!("\"{text}\""));
    }
    for (value, text) in [(Role::User, "user"), (Role::Assistant, "assistant")] {
        golden(&value, &format!("\"{text}\""));
    }
    for (value, text) in [
        (SignatureProducer::ANTHROPIC, "anthropic"),
        (SignatureProducer::OPENAI_RESPONSES, "openai-responses"),
        (SignatureProducer::GEMINI, "gemini"),
        (SignatureProducer::new("some-vendor"), "some-vendor"),
    ] {
        golden(&value, &format!("\"{text}\""));
        assert_eq!(value.as_str(), text);
    }
    golden(&Timestamp(1_764_547_200_000), "1764547200000");
    golden(&NanoUsd(u64::MAX), "18446744073709551615");
}

#[test]
fn media_is_stored_as_ever() {
    golden(&Media::base64("image/png", "aGk="), r#"{"mediaType":"image/png","data":"aGk="}"#);
    assert_eq!(Media::bytes("image/png", "hi"), Media::base64("image/png", "aGk="));
    golden(&Media::url("https://example.org/a.png"), r#"{"url":"https://example.org/a.png"}"#);
    golden(&Media::new(None, MediaSource::Ref("sha256:ab".into())), r#"{"ref":"sha256:ab"}"#);
    golden(&Document::text("a.txt", "hi"), r#"{"name":"a.txt","mediaType":"text/plain","text":"hi"}"#);
    golden(&Document::pdf("a.pdf", "hi"), r#"{"name":"a.pdf","mediaType":"application/pdf","data":"aGk="}"#);
}

#[test]
fn prompts_are_stored_as_ever() {
    golden(&PromptPart::text("hi"), r#"{"type":"text","text":"hi"}"#);
    golden(
        &PromptPart::Image(Media::base64("image/png", "aGk=")),
        r#"{"type":"image","mediaType":"image/png","data":"aGk="}"#,
    );
    golden(
        &PromptPart::Document(Document::text("a", "b")),
        r#"{"type":"document","name":"a","mediaType":"text/plain","text":"b"}"#,
    );
    golden(&Prompt::from("hi"), r#"[{"type":"text","text":"hi"}]"#);
    golden(&Prompt::none(), "[]");
    assert_eq!(Prompt::from(&String::from("hi")), Prompt::from(String::from("hi")));
    assert_eq!(Prompt::from([PromptPart::text("hi")]), Prompt::from(PromptPart::text("hi")));
    assert_eq!(Prompt::from(vec![PromptPart::text("hi")]), Prompt::from("hi"));
}

#[test]
fn tool_result_content_is_stored_as_ever() {
    let resource = |content| ToolResultContent::Resource(Resource::new("file:///a", content));
    golden(&ToolResultContent::text("hi"), r#"{"type":"text","text":"hi"}"#);
    golden(
        &ToolResultContent::Image(Media::base64("image/png", "aGk=")),
        r#"{"type":"image","mediaType":"image/png","data":"aGk="}"#,
    );
    golden(
        &ToolResultContent::Audio(Media::base64("audio/wav", "aGk=")),
        r#"{"type":"audio","mediaType":"audio/wav","data":"aGk="}"#,
    );
    golden(&ToolResultContent::Video(Media::new(None, MediaSource::Ref("k".into()))), r#"{"type":"video","ref":"k"}"#);
    golden(&resource(ResourceContent::Text("hi".into())), r#"{"type":"resource","uri":"file:///a","text":"hi"}"#);
    golden(&resource(ResourceContent::Blob("aGk=".into())), r#"{"type":"resource","uri":"file:///a","blob":"aGk="}"#);
    golden(&resource(ResourceContent::Ref("k".into())), r#"{"type":"resource","uri":"file:///a","ref":"k"}"#);
    golden(
        &ToolResultContent::Resource(Resource {
            uri: None,
            media_type: Some("text/html".into()),
            content: ResourceContent::Link("A page".into()),
            extra: Extra::default(),
        }),
        r#"{"type":"resource","mediaType":"text/html","link":"A page"}"#,
    );
    golden(&ToolResultContent::Unknown(json!({"type": "hologram"})), r#"{"type":"hologram"}"#);
    golden(&ToolResultBody::from("hi"), r#""hi""#);
    golden(&ToolResultBody::from(vec![ToolResultContent::text("hi")]), r#"[{"type":"text","text":"hi"}]"#);
    assert_eq!(ToolResultBody::default(), ToolResultBody::from(String::new()));
}

#[test]
fn content_blocks_are_stored_as_ever() {
    golden(&SessionContentBlock::text("hi"), r#"{"type":"text","text":"hi"}"#);
    golden(
        &SessionContentBlock::Text(TextBlock { signature: Some(signature()), ..TextBlock::default() }),
        concat!(
            r#"{"type":"text","text":"","signature":{"producer":"anthropic","model":"claude-sonnet-5-5","#,
            r#""value":"EqQB+/=="}}"#
        ),
    );
    golden(
        &SessionContentBlock::Image(Media::base64("image/png", "aGk=")),
        r#"{"type":"image","mediaType":"image/png","data":"aGk="}"#,
    );
    golden(
        &SessionContentBlock::Document(Document::text("a", "b")),
        r#"{"type":"document","name":"a","mediaType":"text/plain","text":"b"}"#,
    );
    let call = ToolCallBlock {
        id: "call_1".into(),
        name: "read_file".into(),
        arguments: r#"{"path": "a"}"#.into(),
        signature: Some(signature()),
        ..ToolCallBlock::default()
    };
    let call_text = concat!(
        r#""id":"call_1","name":"read_file","arguments":"{\"path\": \"a\"}","signature":{"producer":"anthropic","#,
        r#""model":"claude-sonnet-5-5","value":"EqQB+/=="}}"#
    );
    golden(&SessionContentBlock::ToolCall(call.clone()), &format!(r#"{{"type":"tool_call",{call_text}"#));
    golden(&SessionContentBlock::PartialToolCall(call), &format!(r#"{{"type":"partial_tool_call",{call_text}"#));
    golden(
        &SessionContentBlock::ToolResult(ToolResultBlock {
            call_id: "call_1".into(),
            name: "write_file".into(),
            input: Some(json!({"path": "a"})),
            output: "done".into(),
            is_error: true,
            status: ToolStatus::Interrupted,
            outcome: Some(ToolOutcome::Noop),
            structured: Some(json!([1])),
            extra: Extra::default(),
        }),
        concat!(
            r#"{"type":"tool_result","callId":"call_1","name":"write_file","input":{"path":"a"},"output":"done","#,
            r#""isError":true,"status":"interrupted","outcome":"noop","structured":[1]}"#
        ),
    );
    golden(
        &SessionContentBlock::ToolResult(ToolResultBlock {
            call_id: "c".into(),
            name: "n".into(),
            input: None,
            output: vec![ToolResultContent::text("hi")].into(),
            is_error: false,
            status: ToolStatus::Ok,
            outcome: None,
            structured: None,
            extra: Extra::default(),
        }),
        concat!(
            r#"{"type":"tool_result","callId":"c","name":"n","output":[{"type":"text","text":"hi"}],"#,
            r#""status":"ok"}"#
        ),
    );
    golden(
        &SessionContentBlock::Thinking(ThinkingBlock {
            text: "hm".into(),
            signature: Some(signature()),
            ..ThinkingBlock::default()
        }),
        concat!(
            r#"{"type":"thinking","text":"hm","signature":{"producer":"anthropic","model":"claude-sonnet-5-5","#,
            r#""value":"EqQB+/=="}}"#
        ),
    );
    golden(
        &SessionContentBlock::Thinking(ThinkingBlock { redacted: true, ..ThinkingBlock::default() }),
        r#"{"type":"thinking","text":"","redacted":true}"#,
    );
    golden(
        &SessionContentBlock::Opaque(OpaqueBlock::new(SignatureProducer::GEMINI, "g", json!({"executableCode": {}}))),
        r#"{"type":"opaque","producer":"gemini","model":"g","value":{"executableCode":{}}}"#,
    );
    golden(
        &SessionContentBlock::Unknown(json!({"data": [1, null, 2.5], "type": "hologram"})),
        r#"{"data":[1,null,2.5],"type":"hologram"}"#,
    );
}

#[test]
fn turns_are_stored_as_ever() {
    let mut turn = SessionTurn::new("t1", Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::text("hi")]);
    golden(
        &turn,
        concat!(
            r#"{"id":"t1","runId":"","role":"assistant","origin":"model","content":[{"type":"text","text":"hi"}],"#,
            r#""createdAt":0}"#
        ),
    );
    turn.run_id = "r1".into();
    turn.usage = Some(turn_usage().into());
    turn.finish_reason = Some(TurnFinishReason::ContentFilter);
    turn.created_at = Timestamp(1_764_547_200_000);
    turn.pending = vec![PendingCall::open("c1"), PendingCall::deferred("c2")];
    turn.interrupted = true;
    turn.prefix_digest = Some("ab".into());
    golden(
        &turn,
        &[
            r#"{"id":"t1","runId":"r1","role":"assistant","origin":"model","content":[{"type":"text","text":"hi"}],"usage":"#,
            TURN_USAGE,
            r#","finishReason":"content-filter","createdAt":1764547200000,"#,
            r#""pending":[{"callId":"c1"},{"callId":"c2","deferred":true}],"interrupted":true,"prefixDigest":"ab"}"#,
        ]
        .concat(),
    );
}

#[test]
fn unknown_fields_read_back_by_name() {
    let block: TextBlock = serde_json::from_value(json!({"text": "hi", "lang": "en"})).unwrap();
    assert_eq!(block.extra.get("lang"), Some(&Value::from("en")));
    assert_eq!(block.extra.get("text"), None, "a known field is not eaten");
    assert!(TextBlock::default().extra.is_empty());
}

use zidane::testing::{TranscriptRule, validate_transcript};
use zidane::types::*;

fn call(id: &str) -> SessionContentBlock {
    SessionContentBlock::ToolCall(ToolCallBlock { id: id.into(), name: "t".into(), ..ToolCallBlock::default() })
}

fn cut(id: &str) -> SessionContentBlock {
    SessionContentBlock::PartialToolCall(ToolCallBlock { id: id.into(), ..ToolCallBlock::default() })
}

fn result(id: &str) -> SessionContentBlock {
    SessionContentBlock::ToolResult(ToolResultBlock {
        call_id: id.into(),
        name: "t".into(),
        input: None,
        output: "x".into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    })
}

fn text(text: &str) -> SessionContentBlock {
    SessionContentBlock::text(text)
}

fn user(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("u", Role::User, TurnOrigin::Prompt, content)
}

fn model(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, content)
}

fn deferring(content: Vec<SessionContentBlock>, ids: &[&str]) -> SessionTurn {
    let mut turn = model(content);
    turn.pending = ids.iter().map(|id| PendingCall::deferred(*id)).collect();
    turn
}

#[track_caller]
fn holds(turns: &[SessionTurn]) {
    assert_eq!(validate_transcript(turns), Ok(()));
}

#[track_caller]
fn breaks(turns: &[SessionTurn], turn: usize, call_id: Option<&str>, rule: TranscriptRule) {
    let error = validate_transcript(turns).unwrap_err();
    assert_eq!((error.turn, error.call_id.as_deref(), error.rule), (turn, call_id, rule));
}

#[test]
fn sound_transcripts_pass() {
    holds(&[]);
    holds(&[user(vec![text("hi")])]);
    holds(&[user(vec![text("hi")]), model(vec![text("hello")]), user(vec![text("bye")]), model(vec![])]);
    holds(&[
        user(vec![text("hi")]),
        model(vec![text("let me see"), call("1"), call("2"), cut("3")]),
        user(vec![result("1"), result("2")]),
        user(vec![text("too much output")]),
        model(vec![call("1")]),
        user(vec![result("1"), text("and be quick")]),
        model(vec![text("done")]),
    ]);
    // A paused turn and its continuation.
    holds(&[user(vec![text("hi")]), model(vec![text("a")]), model(vec![text("b")])]);
}

#[test]
fn deferred_calls_may_wait_at_the_end_only() {
    let asks = || vec![call("1"), call("2"), call("3")];
    holds(&[deferring(asks(), &["1", "2", "3"])]);
    holds(&[deferring(asks(), &["2"]), user(vec![result("1"), result("3")])]);
    holds(&[deferring(asks(), &["2"]), user(vec![result("1"), result("2"), result("3")]), model(vec![])]);
    breaks(&[deferring(asks(), &["2"])], 0, Some("1"), TranscriptRule::Unanswered);
    breaks(
        &[deferring(asks(), &["2"]), user(vec![result("1"), result("3")]), user(vec![text("so?")])],
        2,
        Some("2"),
        TranscriptRule::DeferredNotLast,
    );
    breaks(
        &[deferring(asks(), &["2"]), user(vec![result("1"), result("3"), text("so?")])],
        1,
        Some("2"),
        TranscriptRule::DeferredNotLast,
    );
    breaks(
        &[deferring(vec![call("1")], &["1"]), user(vec![text("so?")])],
        1,
        Some("1"),
        TranscriptRule::DeferredNotLast,
    );
    breaks(&[deferring(vec![call("1")], &["1"]), model(vec![])], 1, Some("1"), TranscriptRule::DeferredNotLast);
}

#[test]
fn an_open_call_that_is_not_deferred_is_unanswered() {
    let mut turn = model(vec![call("1")]);
    turn.pending = vec![PendingCall::open("1")];
    breaks(&[turn], 0, Some("1"), TranscriptRule::Unanswered);
    breaks(&[model(vec![call("1")]), user(vec![text("hi")])], 0, Some("1"), TranscriptRule::Unanswered);
    breaks(&[model(vec![call("1")]), model(vec![])], 0, Some("1"), TranscriptRule::Unanswered);
    let late = [model(vec![call("1")]), user(vec![text("hi")]), user(vec![result("1")])];
    breaks(&late, 0, Some("1"), TranscriptRule::Unanswered);
    breaks(
        &[model(vec![]), model(vec![call("1"), call("2")]), user(vec![result("1")])],
        1,
        Some("2"),
        TranscriptRule::Unanswered,
    );
}

#[test]
fn results_answer_the_calls_before_them_once_and_in_order() {
    let asks = || model(vec![call("1"), call("2")]);
    breaks(&[user(vec![result("1")])], 0, Some("1"), TranscriptRule::OrphanResult);
    breaks(&[asks(), user(vec![result("1"), result("2"), result("3")])], 1, Some("3"), TranscriptRule::OrphanResult);
    breaks(
        &[asks(), user(vec![result("1"), result("2")]), user(vec![result("2")])],
        2,
        Some("2"),
        TranscriptRule::OrphanResult,
    );
    breaks(&[asks(), user(vec![result("2"), result("1")])], 1, Some("1"), TranscriptRule::ResultOrder);
    breaks(&[asks(), user(vec![result("1"), result("1")])], 1, Some("1"), TranscriptRule::AnsweredTwice);
    breaks(&[model(vec![cut("1")]), user(vec![result("1")])], 1, Some("1"), TranscriptRule::OrphanResult);
    breaks(&[asks(), user(vec![result("1"), text("x"), result("2")])], 1, Some("2"), TranscriptRule::ResultsFirst);
}

#[test]
fn blocks_stand_in_turns_of_their_role() {
    breaks(&[user(vec![call("1")])], 0, Some("1"), TranscriptRule::CallInUserTurn);
    breaks(&[user(vec![cut("1")])], 0, Some("1"), TranscriptRule::CallInUserTurn);
    breaks(&[model(vec![call("1"), result("1")])], 0, Some("1"), TranscriptRule::ResultInAssistantTurn);
    breaks(&[model(vec![call("1"), call("1")])], 0, Some("1"), TranscriptRule::DuplicateCallId);
}

#[test]
fn nothing_is_blank() {
    breaks(&[user(vec![])], 0, None, TranscriptRule::EmptyTurn);
    breaks(&[user(vec![text("hi")]), model(vec![text(" \n")])], 1, None, TranscriptRule::BlankText);
    breaks(&[user(vec![text("")])], 0, None, TranscriptRule::BlankText);
    let signature = Some(Signature::new(SignatureProducer::GEMINI, "g", "s"));
    let signed = SessionContentBlock::Text(TextBlock { signature, ..TextBlock::default() });
    holds(&[model(vec![signed])]);
}

#[test]
fn the_error_says_where_and_what() {
    let error = validate_transcript(&[model(vec![call("call_9")])]).unwrap_err();
    assert_eq!(error.to_string(), "turn 0, call `call_9`: the call is neither answered in the next turn nor deferred");
    let error = validate_transcript(&[user(vec![])]).unwrap_err();
    assert_eq!(error.to_string(), "turn 0: a user turn is empty");
}

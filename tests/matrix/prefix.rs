//! The messages of a request begin with those of the one before it, byte for byte.

use serde_json::json;
use zidane::types::{PromptPart, SessionTurn, TurnOrigin};

use super::pairs::{EMPTY, FAIL, LOOK, ODD, say, stretch_with};
use super::strict_json;
use super::wire::{Answer, End, Step, WIRES, Wire};

/// Where requests are no continuation of the one before. The last message of Gemini may grow: the parts of one side that
/// follow each other are one content there.
pub(crate) fn breaks(end: End, bodies: &[Vec<u8>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, pair) in bodies.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let (Some(before), Some(after)) =
            (strict_json::field(before, end.messages_field()), strict_json::field(after, end.messages_field()))
        else {
            found.push(format!("request {at}: no messages"));
            continue;
        };
        let tail = if end.wire == Wire::Gemini { "]}]" } else { "]" };
        let kept = before.strip_suffix(tail).unwrap_or(before);
        if !after.starts_with(kept) {
            let same = kept.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
            let around = |text: &str| {
                String::from_utf8_lossy(&text.as_bytes()[same.saturating_sub(60)..])
                    .chars()
                    .take(120)
                    .collect::<String>()
            };
            found.push(format!(
                "request {}: byte {same} is not what it was: {} / {}",
                at + 1,
                around(kept),
                around(after)
            ));
        }
    }
    found
}

/// A long conversation with everything that the loop adds by itself: retries, steering, a nudge at the budget, a pause,
/// an answer that was cut, and calls whose results were lost.
async fn long(end: End) {
    let pause = Answer { number: 3, thinking: "Hm.", text: "So far.".into(), pauses: true, ..Answer::default() };
    let cut = Answer {
        number: 5,
        text: "Well, cut here".into(),
        calls: vec![(ODD, json!({}))],
        stalls: true,
        ..Answer::default()
    };
    let mut steps = vec![
        Step::Fail(503),
        say(1, "First.", "Looking.", vec![(LOOK, json!({"n": 1, "steer": "Shorter."})), (EMPTY, json!({}))]),
        say(2, "", "", vec![(LOOK, json!({"n": 2}))]),
    ];
    if end.wire == Wire::Anthropic {
        steps.push(Step::Say(pause));
    }
    steps.extend([say(4, "Then.", "Half of it.", Vec::new()), Step::Say(cut)]);
    for number in 6..14 {
        steps.push(say(number, "More.", "On.", vec![(ODD, json!({ "n": number })), (FAIL, json!({ "list": ["x"] }))]));
        if number % 3 == 0 {
            steps.push(Step::Fail(503));
        }
    }
    steps.push(say(14, "", "The end.", Vec::new()));
    let prompts = ["Begin.", "Go on.", "And on."].map(|text| vec![PromptPart::text(text)]);
    let build = |builder: zidane::AgentBuilder| builder.tool_output_budget(8);
    let (stored, mut bodies) = stretch_with(end, "[]", steps, prompts.to_vec(), build).await;
    let mut turns: Vec<SessionTurn> = serde_json::from_str(&stored).unwrap();
    for origin in [TurnOrigin::Steering, TurnOrigin::Budget] {
        assert!(turns.iter().any(|turn| turn.origin == origin), "{end:?}: no {origin:?}");
    }
    assert!(turns.iter().any(|turn| turn.interrupted));
    // As if the process had died before the last results were stored.
    let last = turns.iter().rposition(|turn| turn.tool_calls().next().is_some()).unwrap();
    turns.truncate(last + 1);
    bodies.pop();
    let steps = vec![say(20, "Again.", "Once more.", vec![(ODD, json!({}))]), say(21, "", "Now it is.", Vec::new())];
    let prompts = vec![vec![PromptPart::text("What happened?")]];
    let (stored, more) = stretch_with(end, &serde_json::to_string(&turns).unwrap(), steps, prompts, build).await;
    assert!(stored.contains("may or may not have taken effect"));
    bodies.extend(more);
    assert!(bodies.len() > 16, "{}", bodies.len());
    let faults: Vec<_> = bodies.iter().flat_map(|body| end.check(body).1.faults).collect();
    assert!(faults.is_empty(), "{end:?}: {}", faults.join("\n"));
    let found = breaks(end, &bodies);
    assert!(found.is_empty(), "{end:?}: {}", found.join("\n"));
}

#[tokio::test]
async fn a_long_conversation_is_only_ever_appended_to() {
    for wire in WIRES {
        long(End { wire, second: false }).await;
    }
}

#[test]
fn a_changed_byte_is_found_and_added_messages_are_not() {
    let chat = End { wire: Wire::Chat, second: false };
    let body = |messages: &str| format!("{{\"messages\":{messages}}}").into_bytes();
    assert!(breaks(chat, &[body("[1]"), body("[1,2]"), body("[1,2]")]).is_empty());
    assert_eq!(breaks(chat, &[body("[1,2]"), body("[1, 2]"), body("[1]")]).len(), 2);
    let gemini = End { wire: Wire::Gemini, second: false };
    let body = |parts: &str| format!("{{\"contents\":[{{\"parts\":[{parts}]}}]}}").into_bytes();
    assert!(breaks(gemini, &[body("1"), body("1,2")]).is_empty());
    assert_eq!(breaks(gemini, &[body("1"), body("3")]).len(), 1);
}

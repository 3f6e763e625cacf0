//! A conversation that the vendor refuses as too long, in its own words, goes on from a summary that its model writes.

use serde_json::json;
use zidane::agent::Compaction;
use zidane::types::{PromptPart, SessionTurn, TurnOrigin};

use super::pairs::{EMPTY, LOOK, ODD, say, stretch_with};
use super::prefix::breaks;
use super::rules::Said;
use super::wire::{End, Step, WIRES};

async fn refused(end: End) {
    let steps = vec![
        say(1, "First.", &"Looking. ".repeat(100), vec![(LOOK, json!({"n": 1})), (EMPTY, json!({}))]),
        say(2, "Then.", "On.", vec![(ODD, json!({"n": 2}))]),
        Step::TooLong,
        say(3, "", "The user wants everything looked at.", Vec::new()),
        say(4, "So.", "And on.", vec![(LOOK, json!({"n": 4}))]),
        say(5, "", "The end.", Vec::new()),
    ];
    let prompts = vec![vec![PromptPart::text("Look at everything. ".repeat(100))]];
    // What is kept is the last pair.
    let build = |builder: zidane::AgentBuilder| builder.compaction(Compaction::new().keep(10));
    let (stored, bodies) = stretch_with(end, "[]", steps, prompts, build).await;
    let turns: Vec<SessionTurn> = serde_json::from_str(&stored).unwrap();
    let origins: Vec<_> = turns.iter().map(|turn| turn.origin).collect();
    let (results, model) = (TurnOrigin::Results, TurnOrigin::Model);
    assert_eq!(origins, [TurnOrigin::Summary, model, results, model, results, model], "{end:?}");

    let reports: Vec<_> = bodies.iter().map(|body| end.check(body).1).collect();
    let faults: Vec<_> = reports.iter().flat_map(|report| report.faults.clone()).collect();
    assert!(faults.is_empty(), "{end:?}: {}", faults.join("\n"));
    let [_, _, _, asked, again, _] = reports.as_slice() else { panic!("{end:?}: {} requests", reports.len()) };
    assert!(matches!(asked.said.as_slice(), [Said::User(text)] if text.contains("[user]\nLook at everything.")));
    assert!(matches!(&again.said[0], Said::User(text) if text.ends_with("\n\nThe user wants everything looked at.")));
    assert!(!format!("{:?}", again.said).contains("Looking."), "{end:?}");
    for stretch in [&bodies[..3], &bodies[4..]] {
        let found = breaks(end, stretch);
        assert!(found.is_empty(), "{end:?}: {}", found.join("\n"));
    }
}

#[tokio::test]
async fn every_wire_goes_on_from_a_summary() {
    for wire in WIRES {
        refused(End { wire, second: false }).await;
    }
}

//! What the host does, and when.

use std::time::Duration;

use serde_json::Value;

use super::super::fields::Fields;
use super::super::findings::Findings;

#[derive(Clone, Debug, PartialEq)]
pub enum At {
    /// Before the first run is polled.
    Start,
    After(Duration),
    ToolBefore(String, Duration),
    /// The model's answer of a turn is complete, and no tool was started.
    AfterModel,
    DuringTurn(u32),
    AfterResult(String),
    FirstDelta,
    /// The number of updates that tools have sent.
    Update(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Do {
    Abort,
    Drop,
    Steer(String),
    FollowUp(String),
    /// The host reads an event, then waits.
    ReadEvery(Duration),
    /// Another agent on the same runtime, with a delta each time.
    SecondRun(Duration),
}

#[derive(Clone, Debug)]
pub struct Action {
    pub at: At,
    pub what: Do,
    pub alternatives: Vec<Do>,
}

impl Action {
    pub fn new(at: At, what: Do) -> Self {
        Self { at, what, alternatives: Vec::new() }
    }

    /// The action in one of its alternatives.
    pub fn choose(&self, number: usize) -> Self {
        let what = self.alternatives.get(number).unwrap_or(&self.what).clone();
        Self::new(self.at.clone(), what)
    }
}

pub fn read(actions: &[Value], findings: &mut Findings) -> Vec<Action> {
    let mut all = Vec::new();
    for action in actions {
        let mut action = Fields::new("actions", action);
        let (at, what) = (action.text("at").unwrap_or_default(), action.text("do").unwrap_or_default());
        action.finish(findings);
        let alternatives: Vec<_> = what.split('|').map(what_of).collect();
        match (at_of(at), alternatives.into_iter().collect::<Option<Vec<_>>>()) {
            (Some(at), Some(alternatives)) => {
                all.push(Action { at, what: alternatives[0].clone(), alternatives });
            }
            _ => findings.need(format!("an adapter for the action `{what}` at `{at}`")),
        }
    }
    all
}

fn millis(text: &str) -> Option<Duration> {
    text.trim().strip_suffix("ms")?.trim().parse().ok().map(Duration::from_millis)
}

fn at_of(text: &str) -> Option<At> {
    if text.is_empty() {
        return Some(At::Start);
    }
    if let Some(after) = text.strip_prefix('+') {
        return millis(after).map(At::After);
    }
    if let Some(rest) = text.strip_prefix("tool:before ") {
        let (call, delay) = rest.split_once('+').unwrap_or((rest, "0ms"));
        return Some(At::ToolBefore(call.trim().to_owned(), millis(delay)?));
    }
    if let Some(rest) = text.strip_prefix("during model turn ") {
        return rest.parse().ok().map(At::DuringTurn);
    }
    if let Some(rest) = text.strip_prefix("after result ") {
        let (call, then) = rest.split_once(',').unwrap_or((rest, ""));
        return (then.is_empty() || then.trim().starts_with("before turn")).then(|| At::AfterResult(call.to_owned()));
    }
    match text {
        "turn:after-model" => Some(At::AfterModel),
        "after first delta" => Some(At::FirstDelta),
        _ => None,
    }
}

fn what_of(text: &str) -> Option<Do> {
    if let Some(text) = text.strip_prefix("steer:") {
        return Some(Do::Steer(text.to_owned()));
    }
    if let Some(text) = text.strip_prefix("follow_up:") {
        return Some(Do::FollowUp(text.to_owned()));
    }
    if let Some(rest) = text.strip_prefix("read one event per ") {
        return millis(rest).map(Do::ReadEvery);
    }
    if let Some(rest) = text.strip_prefix("second run with a delta every ") {
        return millis(rest).map(Do::SecondRun);
    }
    match text {
        "abort" | "abort root" => Some(Do::Abort),
        "drop" | "drop the event stream and the run future" => Some(Do::Drop),
        _ => None,
    }
}

#[test]
fn moments_and_deeds_are_read() {
    let ms = Duration::from_millis;
    assert_eq!(at_of("tool:before c1 +20ms"), Some(At::ToolBefore("c1".into(), ms(20))));
    assert_eq!(at_of("tool:before c1"), Some(At::ToolBefore("c1".into(), ms(0))));
    assert_eq!(at_of("after result c2, before turn 2"), Some(At::AfterResult("c2".into())));
    assert_eq!(at_of("+50ms"), Some(At::After(ms(50))));
    assert_eq!(at_of("some day"), None);
    assert_eq!(what_of("steer:look here"), Some(Do::Steer("look here".into())));
    assert_eq!(what_of("kill"), None);
}

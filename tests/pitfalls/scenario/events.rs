//! The events of a run, and whether they nest as they should.

use std::collections::BTreeMap;

use zidane::AgentEvent;

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    TurnStart(u32),
    TurnEnd(u32),
    ToolStart(String),
    ToolUpdate(String),
    ToolEnd(String),
    Text,
    Done { ok: bool },
    Other,
}

impl Event {
    pub fn of(event: &AgentEvent) -> Self {
        match event {
            AgentEvent::TurnStart { number } => Self::TurnStart(*number),
            AgentEvent::TurnEnd { number, .. } => Self::TurnEnd(*number),
            AgentEvent::ToolStart { call_id, .. } => Self::ToolStart(call_id.clone()),
            AgentEvent::ToolUpdate { call_id, .. } => Self::ToolUpdate(call_id.clone()),
            AgentEvent::ToolEnd { result } => Self::ToolEnd(result.call_id.clone()),
            AgentEvent::Text { .. } => Self::Text,
            AgentEvent::Done(result) => Self::Done { ok: result.is_ok() },
            _ => Self::Other,
        }
    }
}

/// What is wrong with the order of a run's events. A call that was refused has an end and no start.
pub fn disorder(events: &[Event]) -> Vec<String> {
    let mut found = Vec::new();
    let mut turn = None;
    let mut open: BTreeMap<&str, bool> = BTreeMap::new();
    for (at, event) in events.iter().enumerate() {
        match event {
            Event::TurnStart(number) if turn.is_none() => turn = Some(*number),
            Event::TurnStart(number) => found.push(format!("turn {number} starts inside turn {turn:?}")),
            Event::TurnEnd(number) if turn == Some(*number) => {
                turn = None;
                let left: Vec<_> = open.iter().filter(|(_, open)| **open).map(|(id, _)| *id).collect();
                if !left.is_empty() {
                    found.push(format!("turn {number} ends before {left:?}"));
                }
            }
            Event::TurnEnd(number) => found.push(format!("turn {number} ends inside turn {turn:?}")),
            Event::ToolStart(id) => {
                if turn.is_none() || open.insert(id, true).is_some() {
                    found.push(format!("{id} starts outside of a turn or twice"));
                }
            }
            Event::ToolUpdate(id) => {
                if open.get(id.as_str()) != Some(&true) {
                    found.push(format!("an update of {id} outside of it"));
                }
            }
            Event::ToolEnd(id) => {
                if open.insert(id, false) == Some(false) {
                    found.push(format!("{id} ends twice"));
                }
            }
            Event::Done { .. } => {
                if at + 1 != events.len() {
                    found.push("the end of the run is not its last event".to_owned());
                }
            }
            Event::Text | Event::Other => {}
        }
    }
    let left: Vec<_> = open.iter().filter(|(_, open)| **open).map(|(id, _)| *id).collect();
    if !left.is_empty() {
        found.push(format!("{left:?} never end"));
    }
    if let Some(number) = turn {
        found.push(format!("turn {number} never ends"));
    }
    if events.iter().filter(|event| matches!(event, Event::Done { .. })).count() != 1 {
        found.push("there is not one end of the run".to_owned());
    }
    found
}

#[test]
fn disorder_is_found() {
    use Event::{Done, ToolEnd, ToolStart, ToolUpdate, TurnEnd, TurnStart};
    let id = || "c".to_owned();
    let right = vec![TurnStart(1), ToolStart(id()), ToolUpdate(id()), ToolEnd(id()), TurnEnd(1), Done { ok: true }];
    assert_eq!(disorder(&right), Vec::<String>::new());
    for at in 0..right.len() {
        let mut without = right.clone();
        let gone = without.remove(at);
        // An update may be left out; a call without a start is one that was refused.
        assert_eq!(disorder(&without).is_empty(), gone == ToolUpdate(id()), "{at}");
        for other in 0..at {
            let mut swapped = right.clone();
            swapped.swap(at, other);
            assert!(!disorder(&swapped).is_empty(), "{at} {other}");
        }
    }
}

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use uuid::Uuid;

use super::Agent;
use crate::hooks::{HookId, Scope, ToolAfter, TurnAfter};
use crate::types::{ToolOutcome, ToolResultBody};

/// A shipped hook against loops: the same call with the same result, or one that says again that it changed nothing.
///
/// After [`steer_at`](Self::steer_at) such calls in a row the model is told so by a steering message; after
/// [`stop_at`](Self::stop_at) the run ends with `StopCause::LoopGuard`. Other calls in between do not break the row as
/// long as the call comes back within [`window`](Self::window) turns.
///
/// ```
/// # fn guard(agent: &zidane::Agent) {
/// use zidane::agent::LoopGuard;
///
/// LoopGuard::new().stop_at(5).attach(agent);
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a guard does nothing until it is attached"]
pub struct LoopGuard {
    steer_at: u32,
    stop_at: u32,
    window: u32,
    message: String,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self {
            steer_at: 3,
            stop_at: 6,
            window: 8,
            message: "You have made the same call several times with the same result. Try something else, or say what \
                      is missing."
                .to_owned(),
        }
    }
}

impl LoopGuard {
    /// A guard that steers at the third repetition in a row and stops at the sixth.
    pub fn new() -> Self {
        Self::default()
    }

    /// The call in a row at which the model is told. 0 never tells.
    pub const fn steer_at(mut self, calls: u32) -> Self {
        self.steer_at = calls;
        self
    }

    /// The call in a row at which the run ends. 0 never ends it.
    pub const fn stop_at(mut self, calls: u32) -> Self {
        self.stop_at = calls;
        self
    }

    /// How many turns may pass until a call is forgotten. Default 8.
    pub const fn window(mut self, turns: u32) -> Self {
        self.window = turns;
        self
    }

    /// What the model is told.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Registers it with an agent; the ids take it away again.
    pub fn attach(self, agent: &Agent) -> [HookId; 2] {
        let rows = Arc::new(Mutex::new(Rows::default()));
        let turns = Arc::clone(&rows);
        let window = self.window;
        let calls = agent.hooks().scope(Scope::Agent).on::<ToolAfter>(move |cx| {
            if cx.replaying() {
                return;
            }
            let key = key(cx.name(), cx.input(), cx.call().raw_arguments());
            let row = {
                let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                rows.count(key, digest(cx.output()), cx.outcome() == Some(ToolOutcome::Noop))
            };
            if self.stop_at > 0 && row >= self.stop_at {
                cx.agent().stop_for_loop();
            } else if self.steer_at > 0 && row == self.steer_at {
                // A full queue holds enough to say already.
                drop(cx.agent().steer(self.message.as_str()));
            }
        });
        let turns = agent.hooks().scope(Scope::Agent).on::<TurnAfter>(move |_| {
            turns.lock().unwrap_or_else(PoisonError::into_inner).end_turn(window);
        });
        [calls, turns]
    }
}

fn key(name: &str, input: Option<&Value>, raw: &str) -> Uuid {
    let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes());
    let input = input.map_or_else(|| raw.to_owned(), Value::to_string);
    Uuid::new_v5(&name, input.as_bytes())
}

fn digest(output: &ToolResultBody) -> Uuid {
    match output {
        ToolResultBody::Text(text) => Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()),
        // What cannot be written as JSON repeats nothing.
        ToolResultBody::Blocks(blocks) => {
            let bytes = serde_json::to_vec(blocks).unwrap_or_default();
            Uuid::new_v5(&Uuid::NAMESPACE_URL, &bytes)
        }
    }
}

#[derive(Default)]
struct Rows {
    rows: HashMap<Uuid, Row>,
}

struct Row {
    result: Uuid,
    calls: u32,
    /// Turns since it was seen.
    age: u32,
}

impl Rows {
    /// Counts a call; how many in a row it makes.
    fn count(&mut self, key: Uuid, result: Uuid, noop: bool) -> u32 {
        let row = self.rows.entry(key).or_insert(Row { result, calls: 0, age: 0 });
        row.calls = if row.result == result || noop { row.calls.saturating_add(1) } else { 1 };
        row.result = result;
        row.age = 0;
        row.calls
    }

    fn end_turn(&mut self, window: u32) {
        self.rows.retain(|_, row| {
            row.age = row.age.saturating_add(1);
            row.age <= window
        });
    }
}

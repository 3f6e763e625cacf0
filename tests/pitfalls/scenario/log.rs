//! What happened while a case was played.

use std::sync::Mutex;

use serde_json::Value;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub struct Log {
    entries: Mutex<Entries>,
}

#[derive(Clone, Debug, Default)]
pub struct Entries {
    pub spans: Vec<Span>,
    /// Calls whose tool saw that it was to stop.
    pub cancelled: Vec<String>,
    pub effects: usize,
    pub processes: Vec<u32>,
    /// What a call read of the tool state while it ran.
    pub reads: Vec<(String, Value)>,
    /// What refused because a run was under way.
    pub busy: Vec<String>,
    /// Commits as the store got them: call and keys.
    pub commits: Vec<(String, Vec<String>)>,
    /// What a hook did that should not have happened.
    pub wrong: Vec<String>,
    pub updates: usize,
}

#[derive(Clone, Debug)]
pub struct Span {
    pub call: String,
    pub start: Instant,
    pub end: Option<Instant>,
}

impl Log {
    pub fn add(&self, change: impl FnOnce(&mut Entries)) {
        change(&mut self.entries.lock().unwrap());
    }

    pub fn entries(&self) -> Entries {
        self.entries.lock().unwrap().clone()
    }

    /// Notes that a body runs, until what it returns is dropped.
    pub fn span<'a>(&'a self, call: &str) -> impl Drop + use<'a> {
        let mut index = 0;
        self.add(|entries| {
            index = entries.spans.len();
            entries.spans.push(Span { call: call.to_owned(), start: Instant::now(), end: None });
        });
        Open { log: self, index }
    }
}

struct Open<'a> {
    log: &'a Log,
    index: usize,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.log.add(|entries| entries.spans[self.index].end = Some(Instant::now()));
    }
}

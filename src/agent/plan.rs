use std::sync::Arc;

use serde_json::Value;

use super::gate_step::Gated;
use super::options::ToolExecution;
use crate::hooks::ToolCallInfo;
use crate::provider::HistoryTurn;
use crate::tool::{CompiledTool, Concurrency, ToolSet};
use crate::types::ToolStatus;

/// How many valid names an unknown tool's answer lists.
const NAMES_LISTED: usize = 20;

/// A call, looked up and with its arguments prepared.
pub(super) struct PlannedCall {
    pub(super) info: Arc<ToolCallInfo>,
    pub(super) ready: Result<Arc<CompiledTool>, Refusal>,
    /// The arguments, where the call may be gated and run.
    pub(super) input: Value,
    /// What is decided of it already.
    pub(super) course: Course,
    /// Set where the call is one of an earlier run.
    pub(super) key: Option<Arc<str>>,
}

/// What an earlier run, and the host's answer, make of a call.
#[derive(Clone, Debug, Default)]
pub(super) enum Course {
    /// Nothing: the gates decide.
    #[default]
    Open,
    /// The host has approved its input.
    Approved,
    /// It is decided, and no gate is asked.
    Decided(Box<Gated>),
}

impl PlannedCall {
    /// Whether it runs, unless a gate or a limit has something against it.
    pub(super) const fn would_run(&self) -> bool {
        self.ready.is_ok() && !matches!(self.course, Course::Decided(_))
    }
}

/// A call that cannot run, and what the model is told.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: ToolStatus,
    pub(super) text: String,
}

/// Looks the calls of a turn up, in call order. `visible` are the tools the model was shown, where a hook hid some.
pub(super) fn plan(turn: &Arc<HistoryTurn>, tools: &ToolSet, visible: Option<&[String]>) -> Vec<PlannedCall> {
    let turn_id: Arc<str> = turn.id.as_str().into();
    turn.content
        .iter()
        .enumerate()
        .filter_map(|(block, content)| Some((block, content.as_tool_call()?)))
        .map(|(block, call)| {
            let display_name = tools.names().display(&call.name);
            let info = Arc::new(ToolCallInfo::new(turn, block, Arc::clone(&turn_id), display_name));
            let shown = visible.is_none_or(|names| names.contains(&call.name));
            let ready = match tools.get(&call.name).filter(|_| shown) {
                None => Err(unknown(display_name, tools, visible)),
                Some(entry) => match entry.prepare(&call.arguments) {
                    Ok(input) => Ok((Arc::clone(entry), input)),
                    Err(invalid) => Err(Refusal { status: ToolStatus::Invalid, text: invalid.to_string() }),
                },
            };
            let (ready, input) = match ready {
                Ok((entry, input)) => (Ok(entry), input),
                Err(refusal) => (Err(refusal), Value::Null),
            };
            PlannedCall { info, ready, input, course: Course::Open, key: None }
        })
        .collect()
}

pub(super) fn unknown(name: &str, tools: &ToolSet, visible: Option<&[String]>) -> Refusal {
    let names: Vec<&str> = tools
        .definitions()
        .iter()
        .filter(|tool| visible.is_none_or(|names| names.contains(&tool.name)))
        .map(|tool| tools.names().display(&tool.name))
        .collect();
    let text = if names.is_empty() {
        format!("There is no tool named `{name}`; no tools are available.")
    } else {
        let listed = names.iter().take(NAMES_LISTED).copied().collect::<Vec<_>>().join("`, `");
        let more = names.len().saturating_sub(NAMES_LISTED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("There is no tool named `{name}`. Available tools: `{listed}`{more}.")
    };
    Refusal { status: ToolStatus::UnknownTool, text }
}

/// Cuts the calls of a turn into barrier segments: shared calls together, an exclusive one alone, in call order. Calls
/// that cannot run form no barrier.
pub(super) fn segments(calls: Vec<PlannedCall>, execution: ToolExecution) -> Vec<Vec<PlannedCall>> {
    let mut segments: Vec<Vec<PlannedCall>> = Vec::new();
    // Whether the last segment may still take a call that is to run.
    let mut open = true;
    for call in calls {
        let exclusive = match &call.ready {
            Err(_) => None,
            Ok(entry) => Some(match execution {
                ToolExecution::Sequential => true,
                ToolExecution::Declared => entry.spec().concurrency != Some(Concurrency::Shared),
                ToolExecution::Parallel => entry.spec().concurrency == Some(Concurrency::Exclusive),
            }),
        };
        let runs = |segment: &Vec<PlannedCall>| segment.iter().any(|call| call.ready.is_ok());
        let joins = match exclusive {
            None => !segments.is_empty(),
            Some(false) => open && !segments.is_empty(),
            Some(true) => segments.last().is_some_and(|segment| !runs(segment)),
        };
        match segments.last_mut().filter(|_| joins) {
            Some(segment) => segment.push(call),
            None => segments.push(vec![call]),
        }
        if let Some(exclusive) = exclusive {
            open = !exclusive;
        }
    }
    segments
}

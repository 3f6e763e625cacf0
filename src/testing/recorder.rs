use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::Agent;
use crate::hooks::{
    AgentAbort, AgentDone, AgentStart, AttemptFailed, AttemptStart, CompactionFailed, DecisionAfter, HistoryReplaced,
    HookError, QueueUpdate, SessionRepaired, SessionSaved, SpawnBefore, SpawnComplete, SpawnError, SpawnGate,
    SteerInject, StreamEnd, StreamReset, SystemBefore, ToolAfter, ToolBefore, ToolBudgetExceeded, ToolError, ToolGate,
    ToolStateCommitFailed, ToolStateLoadFailed, ToolTransform, ToolUpdate, TurnAfter, TurnBefore, TurnUsageHook,
};
use crate::hooks::{Hook, Hooks, SyncHandler};

/// Writes down which events an agent fires, in order, each as its name and what it was about, e.g.
/// `tool:after weather ok`. Deltas are left out.
#[derive(Clone, Debug, Default)]
pub struct EventRecorder {
    events: Arc<Mutex<Vec<String>>>,
}

impl EventRecorder {
    /// A recorder that listens to an agent from now on.
    #[must_use]
    pub fn attach(agent: &Agent) -> Self {
        let recorder = Self::default();
        recorder.listen(agent.hooks());
        recorder
    }

    /// What was fired so far.
    #[must_use]
    pub fn events(&self) -> Vec<String> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many events begin with this, e.g. `agent:done`.
    #[must_use]
    pub fn count(&self, beginning: &str) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).iter().filter(|e| e.starts_with(beginning)).count()
    }

    fn note<H: Hook>(&self, about: String) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(format!("{} {about}", H::NAME).trim_end().to_owned());
    }

    fn listen(&self, hooks: &Hooks) {
        macro_rules! record {
            ($($hook:ident |$cx:ident| $about:expr;)*) => {$({
                let recorder = self.clone();
                on::<$hook>(hooks, move |$cx| recorder.note::<$hook>($about));
            })*};
        }
        record! {
            AgentStart |_cx| String::new();
            AgentDone |cx| cx.stop().to_owned();
            AgentAbort |_cx| String::new();
            SystemBefore |_cx| String::new();
            TurnBefore |cx| cx.number().to_string();
            TurnAfter |cx| cx.number().to_string();
            TurnUsageHook |cx| cx.usage().tokens.total().to_string();
            StreamEnd |cx| (if cx.complete() { "complete" } else { "cut" }).to_owned();
            StreamReset |_cx| String::new();
            ToolGate |cx| cx.name().to_owned();
            ToolBefore |cx| cx.name().to_owned();
            ToolUpdate |cx| cx.name().to_owned();
            ToolTransform |cx| format!("{} {}", cx.name(), cx.status().as_str());
            ToolAfter |cx| format!("{} {}", cx.name(), cx.status().as_str());
            ToolError |cx| format!("{} {}", cx.name(), cx.status().as_str());
            ToolBudgetExceeded |cx| format!("{} of {}", cx.total(), cx.budget());
            ToolStateCommitFailed |cx| cx.call_id().to_owned();
            ToolStateLoadFailed |_cx| String::new();
            SteerInject |cx| cx.turn().text();
            QueueUpdate |cx| cx.waiting().to_string();
            AttemptStart |cx| cx.attempt().to_string();
            AttemptFailed |cx| format!("{} {}", cx.attempt(), cx.error().kind);
            SessionRepaired |cx| cx.answered().join(",");
            HistoryReplaced |cx| cx.reason().as_str().to_owned();
            CompactionFailed |cx| format!("{} {}", cx.reason().as_str(), cx.error());
            DecisionAfter |cx| cx.decision().as_ref().map_or_else(|failure| failure.reason.as_str(), |_| "ok").to_owned();
            SessionSaved |cx| cx.version().to_string();
            SpawnGate |cx| cx.child().name().to_owned();
            SpawnBefore |cx| cx.child().name().to_owned();
            SpawnError |cx| format!("{} {}", cx.child().name(), cx.status().as_str());
            SpawnComplete |cx| format!("{} {}", cx.child().name(), cx.status().as_str());
            HookError |cx| cx.hook().to_owned();
        }
    }
}

fn on<H: Hook>(hooks: &Hooks, f: impl SyncHandler<H>) {
    hooks.on::<H>(f);
}

//! The hooks of a case.

use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;
use zidane::hooks::{ToolAfter, ToolBefore, ToolGate, TurnAfter, TurnBefore};
use zidane::{Agent, RunErrorKind};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::log::Log;

pub fn register(hooks: &[Value], agent: &Agent, log: &Arc<Log>, findings: &mut Findings) {
    for hook in hooks {
        let mut hook = Fields::new("hooks", hook);
        let (on, what) = (hook.text("on").unwrap_or_default(), hook.text("do").unwrap_or_default());
        let name = hook.text("name").map(str::to_owned);
        hook.finish(findings);
        if let Some(reason) = what.strip_prefix("block:") {
            // A block is what gates are for; `tool:before` only watches.
            let reason = reason.to_owned();
            agent.hooks().on::<ToolGate>(move |cx| {
                if name.as_deref().is_none_or(|name| name == cx.name()) {
                    cx.block(reason.clone());
                }
            });
        } else if let Some(calls) = what.strip_prefix("call ")
            && on == "tool:before"
        {
            call_back(calls, agent, log, findings);
        } else if on == "context-overflow" && what.starts_with("compact") {
            // What reacts to a refusal is an option of the agent.
        } else if what == "err" || what == "panic" {
            fail(on, what == "panic", agent, findings);
        } else {
            findings.need(format!("an adapter for the hook `{what}` on {on}"));
        }
    }
}

fn fail(on: &str, panics: bool, agent: &Agent, findings: &mut Findings) {
    let fail = move || -> Result<(), &'static str> {
        assert!(!panics, "the hook panics");
        Err("the hook fails")
    };
    match on {
        "tool:before" => drop(agent.hooks().on::<ToolBefore>(move |_| fail())),
        "tool:after" => drop(agent.hooks().on::<ToolAfter>(move |_| fail())),
        "tool:gate" => drop(agent.hooks().on::<ToolGate>(move |_| fail())),
        "turn:before" => drop(agent.hooks().on::<TurnBefore>(move |_| fail())),
        "turn:after" => drop(agent.hooks().on::<TurnAfter>(move |_| fail())),
        _ => findings.need(format!("an adapter for a failing hook on {on}")),
    }
}

/// A hook that calls its own agent, in every way the case lists.
fn call_back(calls: &str, agent: &Agent, log: &Arc<Log>, findings: &mut Findings) {
    let calls: Vec<_> = calls.split(", ").map(str::to_owned).collect();
    const KNOWN: [&str; 7] = [
        "agent.stats",
        "agent.steer",
        "agent.follow_up",
        "agent.abort",
        "hooks.add",
        "hooks.remove(self)",
        "agent.run (expect busy)",
    ];
    for call in calls.iter().filter(|call| !KNOWN.contains(&call.as_str())) {
        findings.need(format!("an adapter for a hook that calls `{call}`"));
    }
    let (own, id) = (agent.clone(), Arc::new(OnceLock::new()));
    let (log, this) = (Arc::clone(log), Arc::clone(&id));
    // The clone in its own hook is never freed, which a test may do.
    let registered = agent.hooks().on_async::<ToolBefore>(move |_| {
        let (own, log, this, calls) = (own.clone(), Arc::clone(&log), Arc::clone(&this), calls.clone());
        Box::pin(async move {
            for call in calls {
                match call.as_str() {
                    // What an agent says of itself while it runs.
                    "agent.stats" => {
                        let _ = (own.history().len(), own.tool_state().keys(""), own.is_running(), format!("{own:?}"));
                    }
                    "agent.steer" => drop(own.steer("steered")),
                    "agent.follow_up" => drop(own.follow_up("followed up")),
                    "agent.abort" => own.abort(),
                    "hooks.add" => drop(own.hooks().on::<ToolAfter>(|_| ())),
                    "hooks.remove(self)" => {
                        let removed = this.get().is_some_and(|id| own.hooks().remove(*id));
                        if !removed {
                            log.add(|entries| entries.wrong.push("the hook could not remove itself".to_owned()));
                        }
                    }
                    _ => {
                        let refused = own.run("Again").await;
                        if matches!(&refused, Err(error) if matches!(error.kind, RunErrorKind::AlreadyRunning)) {
                            log.add(|entries| entries.busy.push("agent.run".to_owned()));
                        }
                    }
                }
            }
        })
    });
    let _ = id.set(registered);
}

/// Something that happens once.
#[derive(Clone, Default)]
pub struct Once(Arc<Mutex<bool>>);

impl Once {
    /// True the first time.
    pub fn first(&self) -> bool {
        !std::mem::replace(&mut *self.0.lock().unwrap(), true)
    }
}

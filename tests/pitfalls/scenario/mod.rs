//! Form `scenario`: a scripted model, tools by what they do, hooks, and a host that acts at certain moments.
//!
//! Time is tokio's own and paused, unless something outside of tokio has to be waited for.

mod action;
mod behaviour;
mod compare;
mod events;
mod family;
mod hooks;
mod host;
mod log;
mod model;
mod network;
mod taken_up;
mod two_runs;

use serde_json::Value;

use super::fields::Fields;
use super::findings::Findings;
use action::{Action, At, Do};
use host::{Host, Options};

/// A case, read.
pub struct Script<'a> {
    pub model: &'a [Value],
    pub tools: Option<&'a Value>,
    pub hooks: &'a [Value],
    pub options: Options,
    pub expect: &'a Value,
}

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    for (key, what) in [("mcp", "the MCP client")] {
        if case.take(key).is_some_and(|value| *value != Value::Bool(false)) {
            findings.need(what);
            return case.skip();
        }
    }
    if let Some(agents) = case.take("agents") {
        return family::judge(agents, case, findings);
    }
    let mut options = Options::default();
    options.read(case, findings);
    let script = Script {
        model: case.list("model"),
        tools: case.take("tools"),
        hooks: case.list("hooks"),
        options,
        expect: case.take("expect").unwrap_or(&Value::Null),
    };
    if case.switch("durable") {
        return taken_up::judge(case, &script, findings);
    }
    let actions = action::read(case.list("actions"), findings);
    if script.model.iter().any(|entry| entry.get("stall_after").is_some()) {
        return network::judge(case, &script, &actions, findings);
    }
    if actions.iter().any(|action| matches!(action.what, Do::SecondRun(_))) {
        return two_runs::judge(case, &script, &actions, findings);
    }
    for (name, actions) in variants(&actions, script.expect) {
        findings.at(name);
        play(&script, &actions, findings);
    }
    findings.at("");
}

/// Every way to play the actions: each alternative of `abort|drop`, and, where the order of events is what counts, also
/// with an abort half way.
fn variants(actions: &[Action], expect: &Value) -> Vec<(String, Vec<Action>)> {
    let alternatives = actions.iter().map(|action| action.alternatives.len()).max().unwrap_or(0);
    let mut all = Vec::new();
    for number in 0..alternatives.max(1) {
        let chosen: Vec<_> = actions.iter().map(|action| action.choose(number)).collect();
        let name = if alternatives > 1 { format!("alternative {}", number + 1) } else { String::new() };
        all.push((name, chosen));
    }
    if expect.get("event_log").is_some() {
        let mut aborted = actions.to_vec();
        aborted.push(Action::new(At::Update(50), Do::Abort));
        all.push(("aborted half way".to_owned(), aborted));
    }
    all
}

fn play(script: &Script<'_>, actions: &[Action], findings: &mut Findings) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all();
    if !behaviour::needs_real_time(script.tools) {
        builder.start_paused(true);
    }
    builder.build().unwrap().block_on(async {
        let Some(mut host) = Host::new(script, actions, findings) else { return };
        host.play(actions).await;
        let mut expect = Fields::new("expect", script.expect);
        compare::compare(&mut host, &mut expect, findings).await;
        expect.finish(findings);
    });
}

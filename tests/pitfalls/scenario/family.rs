//! Cases of several agents: `spawn:x` is a call of the tool by which one gives a task to another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zidane::agent::Spawn;
use zidane::hooks::{AgentDone, AgentStart, Scope, SpawnBefore, ToolAfter, ToolBefore, ToolGate};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{Tool as _, ToolFn};
use zidane::types::{Role, ToolResultBlock, ToolStatus, stats_by_run, tool_result_to_text};
use zidane::{Agent, AgentBuilder, RunError, RunOutcome};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::super::outcome::GUARD;
use super::action::{Action, At, Do};
use super::log::Log;
use super::{action, behaviour, model};

const PREFIX: &str = "spawn_";

/// One agent of a case.
struct Member {
    replies: Vec<Reply>,
    tools: Vec<ToolFn>,
    /// The agents that it may give tasks to.
    spawns: Vec<String>,
    max_turns: Option<u32>,
}

struct Family {
    members: BTreeMap<String, Member>,
    max_depth: Option<u32>,
}

/// What happened, in all of the runs.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, String>,
    calls: Vec<Call>,
    results: Vec<(u32, ToolResultBlock)>,
    started: usize,
    done: usize,
}

struct Call {
    id: String,
    run: String,
    parent: Option<String>,
    session: String,
    depth: u32,
}

pub fn judge(agents: &Value, case: &mut Fields<'_>, findings: &mut Findings) {
    let log = Arc::<Log>::default();
    let Some(tools) = behaviour::tools(case.take("tools"), &log, findings) else { return case.skip() };
    match case.text("mode") {
        None | Some("sequential" | "parallel") => {}
        Some(other) => findings.need(format!("an adapter for the mode `{other}`")),
    }
    let mut max_depth = None;
    if let Some(mut options) = case.object("options") {
        max_depth = options.number("max_depth").and_then(|depth| u32::try_from(depth).ok());
        options.finish(findings);
    }
    let members = agents.as_object().into_iter().flatten();
    let members = members.map(|(name, agent)| (name.clone(), member(agent, &tools, findings))).collect();
    let family = Arc::new(Family { members, max_depth });
    let spawned: BTreeSet<_> = family.members.values().flat_map(|member| &member.spawns).collect();
    let mut roots = family.members.keys().filter(|name| !spawned.contains(name));
    let root = roots.next().or_else(|| family.members.keys().next()).cloned();
    let Some(root) = root else { return findings.need("an agent") };
    let actions = action::read(case.list("actions"), findings);
    let hooks = case.list("hooks");
    let expect = case.take("expect").unwrap_or(&Value::Null);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let agent = build(&family, &root).build().unwrap();
        let seen = watch(&agent);
        block(hooks, &root, &agent, findings);
        actions.iter().for_each(|action| arm(action, &agent, findings));
        let started = tokio::time::Instant::now();
        let result = tokio::time::timeout(GUARD, agent.run("Go").run_id("root")).await;
        let Ok(result) = result else { return findings.wrong("it hangs") };
        let elapsed = started.elapsed();
        let mut seen = seen.lock().unwrap();
        seen.names.insert("root".to_owned(), root.clone());
        let mut expect = Fields::new("expect", expect);
        let told = Told { agent: &agent, result: &result, elapsed, seen: &seen, effects: log.entries().effects };
        told.compare(&mut expect, findings);
        expect.finish(findings);
    });
}

/// `spawn:x` as the tool that it is.
fn spawn_name(call: &str) -> Option<String> {
    call.strip_prefix("spawn:").map(str::to_owned)
}

fn member(agent: &Value, tools: &[ToolFn], findings: &mut Findings) -> Member {
    let mut agent = Fields::new("agents", agent);
    let mut entries = agent.list("model").to_vec();
    let mut spawns = BTreeSet::new();
    for entry in &mut entries {
        for call in entry["tool_calls"].as_array_mut().into_iter().flatten() {
            if let Some(name) = call[1].as_str().and_then(spawn_name) {
                call[1] = json!(format!("{PREFIX}{name}"));
                call[2] = json!({ "task": format!("Be {name}.") });
                spawns.insert(name);
            }
        }
        // What reads the script takes every key that is there.
        if entry["tool_calls"].is_null() {
            entry.as_object_mut().unwrap().remove("tool_calls");
        }
    }
    let replies = model::replies(&entries, findings);
    let listed = agent.take("tools").and_then(Value::as_array);
    let has = |name: &str| listed.is_none_or(|listed| listed.iter().any(|tool| tool == name));
    let tools = tools.iter().filter(|tool| has(&tool.spec().name)).cloned().collect();
    let spawns = if has("spawn") { spawns.into_iter().collect() } else { Vec::new() };
    let mut max_turns = None;
    if let Some(mut options) = agent.object("options") {
        max_turns = options.number("max_turns").and_then(|turns| u32::try_from(turns).ok());
        options.finish(findings);
    }
    agent.finish(findings);
    Member { replies, tools, spawns, max_turns }
}

fn build(family: &Arc<Family>, name: &str) -> AgentBuilder {
    let member = &family.members[name];
    let mut builder = Agent::builder().provider(ScriptedProvider::new(member.replies.clone())).model("test");
    for tool in &member.tools {
        builder = builder.tool(tool.clone());
    }
    if let Some(turns) = member.max_turns {
        builder = builder.max_turns(turns);
    }
    for below in &member.spawns {
        let (own, other) = (Arc::clone(family), below.clone());
        let mut spawn = Spawn::new(format!("{PREFIX}{below}"), "Another agent", move || build(&own, &other));
        if let Some(depth) = family.max_depth {
            spawn = spawn.max_depth(depth);
        }
        builder = builder.tool(spawn);
    }
    builder
}

fn watch(agent: &Agent) -> Arc<Mutex<Seen>> {
    let seen = Arc::<Mutex<Seen>>::default();
    macro_rules! on {
        ($hook:ident |$cx:ident, $seen:ident| $do:expr) => {{
            let log = Arc::clone(&seen);
            agent.hooks().scope(Scope::Tree).on::<$hook>(move |$cx| {
                let mut $seen = log.lock().unwrap();
                $do;
            });
        }};
    }
    on!(AgentStart | _cx, seen | seen.started += 1);
    on!(AgentDone | _cx, seen | seen.done += 1);
    on!(
        SpawnBefore | cx,
        seen | {
            let name = cx.child().name().trim_start_matches(PREFIX).to_owned();
            seen.names.insert(cx.child().run_id().to_owned(), name)
        }
    );
    on!(
        ToolBefore | cx,
        seen | seen.calls.push(Call {
            id: cx.call_id().to_owned(),
            run: cx.run_id().to_owned(),
            parent: cx.parent_run_id().map(str::to_owned),
            session: cx.session_id().to_owned(),
            depth: cx.depth(),
        })
    );
    on!(ToolAfter | cx, seen | seen.results.push((cx.depth(), cx.result().clone())));
    seen
}

fn block(hooks: &[Value], root: &str, agent: &Agent, findings: &mut Findings) {
    for hook in hooks {
        let mut hook = Fields::new("hooks", hook);
        let (what, name) = (hook.text("do").unwrap_or_default(), hook.text("name").map(str::to_owned));
        let on = hook.text("on").unwrap_or_default();
        if hook.text("agent").is_some_and(|agent| agent != root) {
            findings.need("an adapter for a hook of a child");
        }
        hook.finish(findings);
        match what.strip_prefix("block:") {
            // A block is what gates are for; `tool:before` only watches.
            Some(reason) => {
                let reason = reason.to_owned();
                agent.hooks().on::<ToolGate>(move |cx| {
                    if name.as_deref().is_none_or(|name| name == cx.name()) {
                        cx.block(reason.clone());
                    }
                });
            }
            // Everything is recorded.
            None if what == "record payload" && on == "tool:before" => {}
            None => findings.need(format!("an adapter for the hook `{what}` on {on}")),
        }
    }
}

fn arm(action: &Action, agent: &Agent, findings: &mut Findings) {
    let (At::ToolBefore(call, delay), Do::Abort) = (&action.at, &action.what) else {
        return findings.need("an adapter for the actions of a case of several agents");
    };
    let (call, delay, root) = (call.clone(), *delay, agent.handle().clone());
    agent.hooks().scope(Scope::Tree).on::<ToolBefore>(move |cx| {
        if cx.call_id() == call {
            let root = root.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                root.abort();
            });
        }
    });
}

struct Told<'a> {
    agent: &'a Agent,
    result: &'a Result<RunOutcome, RunError>,
    elapsed: Duration,
    seen: &'a Seen,
    effects: usize,
}

impl Told<'_> {
    fn name(&self, run: &str) -> &str {
        self.seen.names.get(run).map_or("?", String::as_str)
    }

    fn compare(&self, expect: &mut Fields<'_>, findings: &mut Findings) {
        let seen = self.seen;
        if let Some(expected) = expect.number("effects") {
            findings.equal("effects", &expected, &(self.effects as u64));
        }
        if let Some(expected) = expect.number("runs") {
            findings.equal("runs", &expected, &(seen.started as u64));
        }
        if let Some(expected) = expect.number("live_runs_after") {
            findings.equal("live runs", &expected, &((seen.started - seen.done) as u64));
        }
        if let Some(limit) = expect.number("within_ms") {
            findings.within(Duration::from_millis(limit), self.elapsed);
        }
        if let Some(expected) = expect.text("finish") {
            let history = self.agent.history();
            let last = history.iter().rfind(|turn| turn.role == Role::Assistant);
            let finish = last.and_then(|turn| turn.finish_reason).map(|reason| reason.as_str());
            findings.equal("finish", &Some(expected), &finish);
        }
        if let Some(expected) = expect.take("run_result.denials") {
            let denials = self.result.as_ref().map_or(&[][..], |outcome| &outcome.denials);
            let denial = |denial: &zidane::agent::Denial| json!({ "agent": self.name(&denial.run_id), "call_id": denial.call_id, "reason": denial.reason });
            findings.equal("denials", expected, &Value::from_iter(denials.iter().map(denial)));
        }
        for expected in expect.list("child_results") {
            let call = expected["call_id"].as_str().unwrap_or_default();
            let found = seen.results.iter().find(|(depth, result)| *depth > 0 && result.call_id == call);
            self.result(call, &Fields::new("child_results", expected), found.map(|(_, result)| result), findings);
        }
        if let Some(expected) = expect.object("deepest_result") {
            let deepest = seen.results.iter().max_by_key(|(depth, _)| *depth).map(|(_, result)| result);
            self.result("the deepest", &expected, deepest, findings);
        }
        if let Some(expected) = expect.number("distinct_run_ids") {
            let runs: BTreeSet<_> = seen.calls.iter().map(|call| &call.run).collect();
            findings.equal("runs in payloads", &expected, &(runs.len() as u64));
            let sessions: BTreeSet<_> = seen.calls.iter().map(|call| &call.session).collect();
            findings.equal("sessions in payloads", &runs.len(), &sessions.len());
        }
        if let Some(depths) = expect.take("depth").and_then(Value::as_object) {
            for (call, depth) in depths {
                let got = seen.calls.iter().find(|seen| seen.id == *call).map(|call| u64::from(call.depth));
                findings.equal(format!("depth of {call}"), &depth.as_u64(), &got);
            }
        }
        if let Some(expected) = expect.take("usage_includes").and_then(Value::as_array) {
            let stats = match self.result {
                Ok(outcome) => &outcome.stats,
                Err(error) => &error.stats,
            };
            let runs = stats_by_run(stats);
            let names: Vec<_> = runs.iter().map(|(run, _)| json!(self.name(run))).collect();
            for name in expected {
                findings.ensure(names.contains(name), || format!("no usage of {name}: {names:?}"));
            }
        }
        let keys: Vec<_> = expect.keys().map(str::to_owned).collect();
        let history = self.agent.history();
        for key in keys {
            if let Some(call) = key.strip_suffix(".parent") {
                let found = seen.calls.iter().find(|seen| seen.id == call);
                let parent = found.and_then(|call| call.parent.as_deref()).map(|run| self.name(run));
                findings.equal(&key, &expect.text(&key), &parent);
                continue;
            }
            let result = history.iter().flat_map(|turn| turn.tool_results()).find(|result| result.call_id == key);
            if result.is_some()
                && let Some(expected) = expect.object(&key)
            {
                self.result(&key, &expected, result, findings);
            }
        }
    }

    fn result(&self, what: &str, expected: &Fields<'_>, got: Option<&ToolResultBlock>, findings: &mut Findings) {
        let Some(got) = got else { return findings.wrong(format!("no result of {what}")) };
        let mut expected = expected.clone();
        expected.take("call_id");
        if let Some(expected) = expected.take("is_error") {
            findings.equal(format!("error of {what}"), expected, &json!(got.is_error));
        }
        if let Some(expected) = expected.take("interrupted") {
            let interrupted = got.status == ToolStatus::Interrupted;
            findings.equal(format!("interruption of {what}"), expected, &json!(interrupted));
        }
        let text = tool_result_to_text(&got.output);
        for part in expected.list("contains").iter().filter_map(Value::as_str) {
            findings.ensure(text.contains(part), || format!("{what} does not contain {part:?}: {text}"));
        }
        expected.finish(findings);
    }
}

//! The host program of a case: it builds the agent, acts, reads events, and keeps what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use zidane::agent::{Compaction, SteerMode, ToolExecution};
use zidane::control::{AgentHandle, QueueKind};
use zidane::hooks::{StreamEnd, StreamText, ToolAfter, ToolBefore, ToolUpdate, TurnBefore};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool_state::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};
use zidane::types::{Prompt, PromptPart, Role, SessionContentBlock, SessionTurn, TurnOrigin};
use zidane::{Agent, AgentEvent, RunError, RunOutcome};

use super::super::fields::Fields;
use super::super::findings::Findings;
use super::super::outcome::GUARD;
use super::action::{Action, At, Do};
use super::events::Event;
use super::hooks::Once;
use super::log::Log;
use super::{Script, behaviour, hooks, model};

/// The options of a case.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub max_turns: Option<u32>,
    pub parallel: bool,
    pub skip_unstarted: bool,
    /// The host starts the next run with what is queued.
    pub auto_continue: bool,
    /// Messages at which the conversation is compacted.
    pub context_budget: Option<u64>,
}

impl Options {
    pub fn read(&mut self, case: &mut Fields<'_>, findings: &mut Findings) {
        match case.text("mode") {
            None | Some("sequential") => {}
            Some("parallel") => self.parallel = true,
            Some(other) => findings.need(format!("an adapter for the mode `{other}`")),
        }
        let Some(mut options) = case.object("options") else { return };
        self.max_turns = options.number("max_turns").and_then(|turns| u32::try_from(turns).ok());
        self.auto_continue = options.switch("auto_continue");
        self.context_budget = options.number("context_budget_messages");
        // The stream holds one event, whatever a host would ask for.
        options.take("event_buffer");
        match options.text("steer_mode") {
            None | Some("after_batch") => {}
            Some("skip_remaining") => self.skip_unstarted = true,
            Some(other) => findings.need(format!("an adapter for the steer mode `{other}`")),
        }
        options.finish(findings);
    }
}

/// One run, as the host saw it.
pub struct RunEnd {
    /// `None` when the host dropped it.
    pub result: Option<Result<RunOutcome, RunError>>,
    pub events: Vec<Event>,
    pub hung: bool,
    pub elapsed: Duration,
    /// The requests made before it.
    pub first_request: usize,
}

pub struct Host {
    pub agent: Agent,
    pub model: ScriptedProvider,
    /// What writes summaries, where the case compacts.
    pub writer: ScriptedProvider,
    pub log: Arc<Log>,
    pub runs: Vec<RunEnd>,
    /// The conversation that was there before the first run.
    pub before: Vec<SessionTurn>,
    dropped: Arc<Notify>,
    pace: Option<Duration>,
    auto_continue: bool,
}

impl Host {
    /// `None` when the case does something that is not known here.
    pub fn new(script: &Script<'_>, actions: &[Action], findings: &mut Findings) -> Option<Self> {
        let log = Arc::<Log>::default();
        let options = &script.options;
        let mut replies = model::replies(script.model, findings);
        if options.context_budget.is_some() {
            // What counts is how long the conversation is, which the script does not report.
            replies = replies.into_iter().map(Reply::without_usage).collect();
        }
        let model = ScriptedProvider::new(replies);
        let writer = ScriptedProvider::repeating(Reply::text("So far.")).allow_prefix_breaks();
        let before = earlier();
        let mut builder = Agent::builder()
            .provider(model.clone())
            .model("test")
            .history(before.clone())
            .tool_state(Store(Arc::clone(&log)));
        if options.parallel {
            builder = builder.tool_execution(ToolExecution::Parallel);
        }
        if options.skip_unstarted {
            builder = builder.steer_mode(SteerMode::SkipUnstarted);
        }
        if let Some(turns) = options.max_turns {
            builder = builder.max_turns(turns);
        }
        if let Some(compaction) = compaction(script, &writer) {
            builder = builder.compaction(compaction);
        }
        for tool in behaviour::tools(script.tools, &log, findings)? {
            builder = builder.tool(tool);
        }
        let agent = builder.build().unwrap();
        hooks::register(script.hooks, &agent, &log, findings);
        let dropped = Arc::<Notify>::default();
        for action in actions {
            arm(action, &agent, &dropped);
        }
        let counted = Arc::clone(&log);
        agent.hooks().on::<ToolUpdate>(move |_| counted.add(|entries| entries.updates += 1));
        let pace = actions.iter().find_map(|action| match action.what {
            Do::ReadEvery(time) => Some(time),
            _ => None,
        });
        let auto_continue = options.auto_continue;
        Some(Self { agent, model, writer, log, runs: Vec::new(), before, dropped, pace, auto_continue })
    }

    /// Plays the case's run, and those that the host starts by itself.
    pub async fn play(&mut self, actions: &[Action]) {
        for action in actions {
            match action.at {
                At::Start => act(&action.what, self.agent.handle(), &self.dropped),
                At::After(time) => later(time, action.what.clone(), self.agent.handle(), &self.dropped),
                _ => {}
            }
        }
        self.run("Go").await;
        while self.auto_continue && self.runs.len() < 10 {
            let queued = self.agent.handle().queued(QueueKind::FollowUp);
            let Some(message) = queued.first().and_then(|message| self.agent.handle().unqueue(message.id)) else {
                break;
            };
            self.run(message.prompt).await;
        }
    }

    pub async fn run(&mut self, prompt: impl Into<Prompt>) -> &RunEnd {
        let first_request = self.model.requests().len();
        let started = Instant::now();
        let mut events = Vec::new();
        let mut stream = self.agent.run(prompt).stream();
        let dropped = self.dropped.notified();
        let (pace, seen) = (self.pace, &mut events);
        let reading = async {
            while let Some(event) = stream.next().await {
                seen.push(Event::of(&event));
                if let AgentEvent::Done(result) = event {
                    return Some(result.map(|outcome| *outcome).map_err(|error| *error));
                }
                if let Some(pace) = pace {
                    tokio::time::sleep(pace).await;
                }
            }
            None
        };
        let result = tokio::select! {
            result = reading => result,
            () = dropped => None,
            () = tokio::time::sleep(GUARD) => {
                drop(stream);
                self.runs.push(RunEnd { result: None, events, hung: true, elapsed: started.elapsed(), first_request });
                return self.last();
            }
        };
        drop(stream);
        self.runs.push(RunEnd { result, events, hung: false, elapsed: started.elapsed(), first_request });
        self.last()
    }

    pub fn last(&self) -> &RunEnd {
        self.runs.last().expect("a run was made")
    }
}

/// Tokens that a message of these cases comes to, call or result.
const MESSAGE: u64 = 8;

/// Where a case says that the conversation is compacted, the crate's own compaction does it.
fn compaction(script: &Script<'_>, writer: &ScriptedProvider) -> Option<Compaction> {
    let reacts = script.hooks.iter().any(|hook| hook["on"] == "context-overflow");
    let policy = Compaction::new().model(writer.clone(), "writer").keep(4 * MESSAGE);
    match script.options.context_budget {
        Some(messages) => Some(policy.tokens(messages * MESSAGE)),
        None => reacts.then_some(policy),
    }
}

/// A conversation that is over, so that what a run does to earlier turns shows.
fn earlier() -> Vec<SessionTurn> {
    let turn =
        |id: &str, role, origin, text: &str| SessionTurn::new(id, role, origin, vec![SessionContentBlock::text(text)]);
    vec![
        turn("before-1", Role::User, TurnOrigin::Prompt, "Hello"),
        turn("before-2", Role::Assistant, TurnOrigin::Model, "Hello to you"),
    ]
}

pub fn prompt_text(prompt: &Prompt) -> String {
    prompt
        .parts
        .iter()
        .filter_map(|part| match part {
            PromptPart::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn act(what: &Do, agent: &AgentHandle, dropped: &Notify) {
    match what {
        Do::Abort => agent.abort(),
        Do::Drop => dropped.notify_waiters(),
        Do::Steer(text) => drop(agent.steer(text.as_str())),
        Do::FollowUp(text) => drop(agent.follow_up(text.as_str())),
        Do::ReadEvery(_) | Do::SecondRun(_) => {}
    }
}

fn later(time: Duration, what: Do, agent: &AgentHandle, dropped: &Arc<Notify>) {
    let (agent, dropped) = (agent.clone(), Arc::clone(dropped));
    tokio::spawn(async move {
        tokio::time::sleep(time).await;
        act(&what, &agent, &dropped);
    });
}

/// Hooks that act when the moment has come, once.
fn arm(action: &Action, agent: &Agent, dropped: &Arc<Notify>) {
    let Action { at, what, .. } = action.clone();
    let (once, dropped) = (Once::default(), Arc::clone(dropped));
    let hooks = agent.hooks();
    match at {
        At::Start | At::After(_) => {}
        At::ToolBefore(call, delay) => drop(hooks.on::<ToolBefore>(move |cx| {
            if cx.call_id() == call && once.first() {
                if delay.is_zero() {
                    act(&what, cx.agent(), &dropped);
                } else {
                    later(delay, what.clone(), cx.agent(), &dropped);
                }
            }
        })),
        At::AfterModel => drop(hooks.on::<StreamEnd>(move |cx| {
            if once.first() {
                act(&what, cx.agent(), &dropped);
            }
        })),
        At::AfterResult(call) => drop(hooks.on::<ToolAfter>(move |cx| {
            if cx.call_id() == call && once.first() {
                act(&what, cx.agent(), &dropped);
            }
        })),
        At::FirstDelta => drop(hooks.on::<StreamText>(move |cx| {
            if once.first() {
                act(&what, cx.agent(), &dropped);
            }
        })),
        At::DuringTurn(number) => {
            let turn = Arc::new(AtomicU32::new(0));
            let counted = Arc::clone(&turn);
            hooks.on::<TurnBefore>(move |cx| counted.store(cx.number(), Ordering::Relaxed));
            hooks.on::<StreamText>(move |cx| {
                if turn.load(Ordering::Relaxed) == number && once.first() {
                    act(&what, cx.agent(), &dropped);
                }
            });
        }
        At::Update(number) => {
            let seen = AtomicU32::new(0);
            hooks.on::<ToolUpdate>(move |cx| {
                let count = seen.fetch_add(1, Ordering::Relaxed) + 1;
                if usize::try_from(count).is_ok_and(|count| count >= number) && once.first() {
                    act(&what, cx.agent(), &dropped);
                }
            });
        }
    }
}

/// A tool-state store that notes what it is given.
struct Store(Arc<Log>);

#[zidane::async_trait]
impl ToolStateStore for Store {
    async fn load(&self, _: &str) -> Result<ToolStateSnapshot, StoreError> {
        Ok(ToolStateSnapshot::new())
    }

    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        let keys = commit.ops.iter().map(|op| op.key().to_owned()).collect();
        self.0.add(|entries| entries.commits.push((commit.call_id.to_string(), keys)));
        Ok(())
    }
}

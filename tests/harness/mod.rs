//! Runs a scenario as it is, through a journal, and from every prefix of that journal, and holds the runs against
//! each other.
#![allow(dead_code, unreachable_pub)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zidane::durable::{DurableError, DurableRuntime, StepKind, StepRecord};
use zidane::hooks::ToolGate;
use zidane::session::{MemorySessionStore, SessionStore};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider, StepJournal, VirtualClock, validate_transcript};
use zidane::tool::{Repeat, Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use zidane::types::{AgentStats, SessionTurn, fold_totals};
use zidane::{Agent, AgentBuilder, Run, RunError, RunErrorKind, RunOutcome};

/// A run to be told in several ways.
pub struct Scenario {
    pub replies: Vec<Reply>,
    pub prompt: &'static str,
    pub history: Vec<SessionTurn>,
    build: Box<dyn Fn(AgentBuilder) -> AgentBuilder>,
    hooks: Box<dyn Fn(&Agent)>,
    run: Box<dyn Fn(Run) -> Run>,
    model: Box<dyn Fn(ScriptedProvider) -> ScriptedProvider>,
}

/// What one telling came to.
pub struct Told {
    pub result: Result<RunOutcome, RunError>,
    pub events: Vec<String>,
    pub agent: Agent,
    pub model: ScriptedProvider,
    /// Times a gate was asked.
    pub gates: usize,
}

impl Told {
    #[track_caller]
    pub fn outcome(&self) -> &RunOutcome {
        self.result.as_ref().unwrap_or_else(|error| panic!("the run failed: {error}"))
    }

    #[track_caller]
    pub fn error(&self) -> &RunError {
        match &self.result {
            Ok(outcome) => panic!("the run did not fail: {:?}", outcome.stop),
            Err(error) => error,
        }
    }

    pub fn stats(&self) -> &AgentStats {
        match &self.result {
            Ok(outcome) => &outcome.stats,
            Err(error) => &error.stats,
        }
    }

    /// The conversation, a line a turn.
    pub fn transcript(&self) -> Vec<String> {
        self.agent.history().iter().map(line).collect()
    }

    /// The conversation as it is stored.
    pub fn stored(&self) -> String {
        serde_json::to_string(&self.agent.history().iter().collect::<Vec<_>>()).unwrap()
    }
}

/// A turn on one line: `prompt: Hi`, `model: text | call echo {"n":1} …`, `results: ok 1, error oops`.
pub fn line(turn: &SessionTurn) -> String {
    use zidane::types::SessionContentBlock as Block;
    let origin = serde_json::to_value(turn.origin).unwrap();
    let blocks: Vec<String> = turn
        .content
        .iter()
        .map(|block| match block {
            Block::Text(text) => text.text.clone(),
            Block::Thinking(thinking) => format!("({})", thinking.text),
            Block::ToolCall(call) => format!("call {} {}", call.name, call.arguments),
            Block::PartialToolCall(call) => format!("cut call {} {}", call.name, call.arguments),
            Block::ToolResult(result) => {
                let text = zidane::types::tool_result_to_text(&result.output).into_owned();
                let text: String = text.chars().take(60).collect();
                format!("{}{} {text}", result.status.as_str(), if result.is_error { "!" } else { "" })
            }
            other => format!("{other:?}"),
        })
        .collect();
    let cut = if turn.interrupted { " (interrupted)" } else { "" };
    format!("{}{cut}: {}", origin.as_str().unwrap(), blocks.join(" | "))
}

impl Scenario {
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: replies.into_iter().collect(),
            prompt: "Go",
            history: Vec::new(),
            build: Box::new(|builder| builder),
            hooks: Box::new(|_| ()),
            run: Box::new(|run| run),
            model: Box::new(|model| model),
        }
    }

    pub fn build(mut self, build: impl Fn(AgentBuilder) -> AgentBuilder + 'static) -> Self {
        self.build = Box::new(build);
        self
    }

    pub fn hooks(mut self, hooks: impl Fn(&Agent) + 'static) -> Self {
        self.hooks = Box::new(hooks);
        self
    }

    pub fn run(mut self, run: impl Fn(Run) -> Run + 'static) -> Self {
        self.run = Box::new(run);
        self
    }

    pub fn model(mut self, model: impl Fn(ScriptedProvider) -> ScriptedProvider + 'static) -> Self {
        self.model = Box::new(model);
        self
    }

    pub fn prompt(mut self, prompt: &'static str) -> Self {
        self.prompt = prompt;
        self
    }

    pub fn history(mut self, history: Vec<SessionTurn>) -> Self {
        self.history = history;
        self
    }

    async fn once(&self, journal: Option<StepJournal>, skip: usize, store: Option<&Arc<MemorySessionStore>>) -> Told {
        let model = (self.model)(ScriptedProvider::new(self.replies.clone()));
        model.skip(skip);
        let mut builder = Agent::builder()
            .provider(model.clone())
            .model("test")
            .session_id("session")
            .clock(VirtualClock::new(zidane::types::Timestamp(1_000)))
            .history(self.history.clone())
            .cancel_grace(std::time::Duration::from_millis(50));
        if let Some(journal) = journal {
            builder = builder.durable(Arc::new(journal) as Arc<dyn DurableRuntime>);
        }
        if let Some(store) = store {
            builder = builder.session_store(Arc::clone(store));
        }
        let agent = (self.build)(builder).build().unwrap();
        let recorder = EventRecorder::attach(&agent);
        let gates = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&gates);
        agent.hooks().on::<ToolGate>(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (self.hooks)(&agent);
        let result = (self.run)(agent.run(self.prompt).run_id("run")).await;
        Told { result, events: recorder.events(), agent, model, gates: gates.load(Ordering::Relaxed) }
    }

    /// Tells it as it is. Whatever came of it, the history must pair every call, the totals must add up, and the run
    /// must be told done once.
    pub async fn tell(&self) -> Told {
        let told = self.once(None, 0, None).await;
        check(&told);
        told
    }

    /// Tells it with a session store, which must change nothing, and have all of it.
    async fn tell_kept(&self, direct: &Told) {
        let store = Arc::new(MemorySessionStore::new());
        let kept = self.once(None, 0, Some(&store)).await;
        check(&kept);
        assert_eq!(kept.transcript(), direct.transcript(), "keeping the session changed the run");
        assert_eq!(meaning(&kept.result), meaning(&direct.result));
        let Some(session) = kept.agent.session().await.unwrap() else { return assert!(kept.result.is_err()) };
        assert!(session.notes.is_empty(), "{:?}", session.notes);
        let stored: Vec<_> = session.history().iter().map(line).collect();
        // Results of calls beside ones that wait are no turn yet.
        assert_eq!(stored[..], kept.transcript()[..stored.len()]);
        assert_eq!(kept.transcript().len() - stored.len(), usize::from(!session.open.is_empty()));
        let run = session.runs.last().unwrap();
        let end = run.end.as_ref().unwrap();
        match &kept.result {
            Ok(outcome) => assert_eq!(end.stop, outcome.stop.as_str()),
            Err(error) => assert_eq!(end.error.as_ref().unwrap(), &error.to_string()),
        }
        assert_eq!(end.stats.as_ref().unwrap().totals(), kept.stats().totals());
    }

    /// Tells it as it is, through a journal, and from every prefix of that journal: the same must come of it, and what
    /// is on record must not be done again.
    pub async fn tell_all(&self) -> Told {
        let direct = self.tell().await;
        self.tell_kept(&direct).await;
        let journal = StepJournal::new();
        let store = Arc::new(MemorySessionStore::new());
        let whole = self.once(Some(journal.clone()), 0, Some(&store)).await;
        let entries = entries(&store).await;
        check(&whole);
        assert_eq!(whole.transcript(), direct.transcript(), "recording changed the run");
        assert_eq!(meaning(&whole.result), meaning(&direct.result));
        let records = journal.records("run");
        let of = |record: &String| serde_json::from_str::<StepRecord>(record).unwrap();
        for kept in 0..=records.len() {
            let store = Arc::new(MemorySessionStore::new());
            let store = (kept % 2 == 0).then_some(&store);
            let stopped = self.once(Some(StepJournal::new().stop_at(kept)), 0, store).await;
            if kept < records.len() {
                match &stopped.error().kind {
                    RunErrorKind::Durable(DurableError::Interrupted { .. }) => {}
                    other => panic!("stopped after {kept} steps: {other}"),
                }
                validate_after_stop(&stopped);
            }
            let asked: u64 = records[..kept]
                .iter()
                .map(of)
                .filter(|record| record.key.kind == StepKind::Model)
                .map(|record| record.outcome.unwrap()["attempts"].as_u64().unwrap())
                .sum();
            let resumed = self.once(Some(journal.prefix(kept)), usize::try_from(asked).unwrap(), store).await;
            check(&resumed);
            if let Some(store) = store {
                assert_eq!(
                    self::entries(store).await,
                    entries,
                    "stored, taken up after {kept} of {} steps",
                    records.len()
                );
            }
            assert_eq!(resumed.stored(), whole.stored(), "taken up after {kept} of {} steps", records.len());
            assert_eq!(meaning(&resumed.result), meaning(&whole.result));
            assert_eq!(
                resumed.events.iter().filter(|e| e.starts_with("tool:after")).count(),
                whole.events.iter().filter(|e| e.starts_with("tool:after")).count()
            );
            // What is on record is not done again: the two halves make up the whole, exactly.
            let asked = |told: &Told| told.model.requests().len();
            assert_eq!(stopped.gates + resumed.gates, whole.gates, "gates, taken up after {kept} steps");
            assert_eq!(asked(&stopped) + asked(&resumed), asked(&whole), "requests, taken up after {kept} steps");
            if kept == records.len() {
                assert_eq!((resumed.gates, asked(&resumed)), (0, 0), "a finished run asked again");
            }
        }
        direct
    }
}

/// What a store has, as it is stored.
async fn entries(store: &MemorySessionStore) -> Vec<Value> {
    let stored = store.load("session").await.unwrap().unwrap_or_default();
    stored.entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect()
}

fn meaning(result: &Result<RunOutcome, RunError>) -> Value {
    match result {
        Ok(outcome) => json!([outcome.stop.as_str(), outcome.text, outcome.stats.totals().input, outcome.stats.turns]),
        Err(error) => json!([error.to_string(), error.stats.totals().input, error.stats.turns]),
    }
}

fn validate_after_stop(told: &Told) {
    assert_eq!(told.events.iter().filter(|event| event.starts_with("agent:done")).count(), 1);
}

#[track_caller]
fn check(told: &Told) {
    let history = told.agent.history();
    validate_transcript(history.iter()).unwrap_or_else(|error| panic!("{error}: {:#?}", told.transcript()));
    let stats = told.stats();
    assert_eq!(stats.totals(), fold_totals(stats));
    assert_eq!(told.events.iter().filter(|event| event.starts_with("agent:done")).count(), 1, "{:?}", told.events);
    assert!(!told.agent.is_running());
}

type Body =
    dyn Fn(Value, ToolContext) -> futures::future::BoxFuture<'static, Result<ToolOutput, ToolError>> + Send + Sync;

/// A tool by its spec and an async body, for tests.
pub struct Scripted {
    pub spec: ToolSpec,
    pub body: Box<Body>,
}

#[zidane::async_trait]
impl Tool for Scripted {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        (self.body)(input, cx).await
    }
}

/// A tool that gives its input back.
pub fn echo() -> Scripted {
    tool("echo", |input, _| Box::pin(async move { Ok(ToolOutput::from(input)) }))
}

/// A tool of any arguments.
pub fn tool(
    name: &str,
    body: impl Fn(Value, ToolContext) -> futures::future::BoxFuture<'static, Result<ToolOutput, ToolError>>
    + Send
    + Sync
    + 'static,
) -> Scripted {
    // Whatever a test stops, it may go on with.
    let spec = ToolSpec::new(name, format!("The {name} tool")).repeat(Repeat::Safe);
    Scripted { spec, body: Box::new(body) }
}

/// A tool that must not be called.
pub fn forbidden(name: &str) -> Scripted {
    tool(name, |_, _| Box::pin(async { panic!("this tool must not be called") }))
}

/// Notes, in order, from anywhere.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

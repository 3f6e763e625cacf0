use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::Value;

use super::inner::AgentInner;
use super::options::{AgentOptions, Fallback, LoadFailure, SteerMode, ToolExecution};
use super::{Agent, Compaction, Limits, OutputSpill};
use crate::clock::{Clock, SystemClock};
use crate::control::AgentHandle;
use crate::decision::{Decider, DecisionLedger};
use crate::durable::DurableRuntime;
use crate::hooks::Hooks;
use crate::provider::{
    History, PriceBook, Provider, ProviderErrorKind, RequestHead, RetryPolicy, ThinkingLevel, ToolChoice,
};
use crate::session::{BlobStore, Blobs, Keeper, LiveSession, SessionStore};
use crate::tool::{Extensions, Tool, ToolSet, ToolSetError};
use crate::tool_state::{ToolStateController, ToolStateStore};
use crate::types::SessionTurn;

/// Bytes over which media goes to the blob store.
const BLOB_THRESHOLD: usize = 64 * 1024;

/// Why an agent cannot be built.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No provider was given.
    #[error("an agent needs a provider: `.provider(..)`")]
    NoProvider,
    /// No model was given, or a blank one.
    #[error("an agent needs a model: `.model(..)`")]
    NoModel,
    /// The tools do not fit together.
    #[error(transparent)]
    Tools(#[from] ToolSetError),
}

/// Builds agents. Cloning is cheap; agents built from clones share compiled tools and clients, and nothing else.
#[derive(Clone)]
#[must_use]
pub struct AgentBuilder {
    provider: Option<Arc<dyn Provider>>,
    head: RequestHead,
    tools: Vec<Arc<dyn Tool>>,
    aliases: HashMap<String, String>,
    compiled: Arc<OnceLock<Result<Arc<ToolSet>, ToolSetError>>>,
    options: AgentOptions,
    session_id: Option<String>,
    session_store: Option<Arc<dyn SessionStore>>,
    blob_store: Option<Arc<dyn BlobStore>>,
    blob_threshold: usize,
    history: Vec<SessionTurn>,
    state_store: Option<Arc<dyn ToolStateStore>>,
    extensions: Extensions,
    clock: Arc<dyn Clock>,
    durable: Option<Arc<dyn DurableRuntime>>,
    /// The host gave prices.
    priced: bool,
    decider: Option<Decider>,
}

impl AgentBuilder {
    pub(super) fn new() -> Self {
        let head = RequestHead { cache: true, ..RequestHead::default() };
        Self {
            provider: None,
            head,
            tools: Vec::new(),
            aliases: HashMap::new(),
            compiled: Arc::default(),
            options: AgentOptions::default(),
            session_id: None,
            session_store: None,
            blob_store: None,
            blob_threshold: BLOB_THRESHOLD,
            history: Vec::new(),
            state_store: None,
            extensions: Extensions::new(),
            clock: Arc::new(SystemClock),
            durable: None,
            priced: false,
            decider: None,
        }
    }

    /// The model provider. Required.
    pub fn provider(mut self, provider: impl Provider + 'static) -> Self {
        self.provider = Some(Arc::new(provider));
        self
    }

    /// The model's id. Required.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.head.model = model.into();
        self
    }

    /// The system text. Default none.
    pub fn system(mut self, system: impl Into<Arc<str>>) -> Self {
        self.head.system = Some(system.into());
        self
    }

    /// Adds a tool.
    pub fn tool(self, tool: impl Tool + 'static) -> Self {
        self.shared_tool(Arc::new(tool))
    }

    /// Adds a tool that is shared already.
    pub fn shared_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self.compiled = Arc::default();
        self
    }

    /// Shows tools to the model under other names: `canonical → alias`. The session, hooks and policies only ever hold
    /// the canonical name, so that an alias may change at any time.
    pub fn tool_aliases<C: Into<String>, A: Into<String>>(mut self, aliases: impl IntoIterator<Item = (C, A)>) -> Self {
        self.aliases.extend(aliases.into_iter().map(|(canonical, alias)| (canonical.into(), alias.into())));
        self.compiled = Arc::default();
        self
    }

    /// How hard the model thinks. Default: nothing is sent.
    pub fn thinking(mut self, level: ThinkingLevel) -> Self {
        self.head.thinking = Some(level);
        self
    }

    /// Output limit per turn, in tokens. Default: the provider's, or the wire's where one must be sent.
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.head.max_tokens = Some(tokens);
        self
    }

    /// Sampling temperature. Default: nothing is sent; several models of 2026 refuse any.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.head.temperature = Some(temperature);
        self
    }

    /// Texts at which the model stops. Default none.
    pub fn stop_sequences<S: Into<String>>(mut self, sequences: impl IntoIterator<Item = S>) -> Self {
        self.head.stop_sequences = sequences.into_iter().map(Into::into).collect();
        self
    }

    /// Whether and which tool the model must call. Default: it decides.
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.head.tool_choice = choice;
        self
    }

    /// Marks stable parts of requests for the provider's prompt cache, where it needs marks. Default true.
    pub fn prompt_cache(mut self, cache: bool) -> Self {
        self.head.cache = cache;
        self
    }

    /// A field merged into every request body as it is; it wins over what the wire would send.
    pub fn request_field(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.head.extra.insert(name.into(), value.into());
        self
    }

    /// Model turns a run may make; `None` for no cap. Default 50.
    pub fn max_turns(mut self, turns: impl Into<Option<u32>>) -> Self {
        self.options.max_turns = turns.into();
        self
    }

    /// What a run, with everything it spawns, may use. Default: nothing is limited. A run's own limits win.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// When steering messages are delivered. Default: after all calls of the turn.
    pub fn steer_mode(mut self, mode: SteerMode) -> Self {
        self.options.steer_mode = mode;
        self
    }

    /// Which calls of a turn may run at the same time. Default: as each tool declares.
    pub fn tool_execution(mut self, execution: ToolExecution) -> Self {
        self.options.tool_execution = execution;
        self
    }

    /// How many calls may run at the same time. Default 64; 0 counts as 1.
    pub fn max_parallel_tools(mut self, calls: usize) -> Self {
        self.options.max_parallel_tools = calls.max(1);
        self
    }

    /// How long a tool, or an async hook, may go on after it was told to stop, and how long an abort waits for an append
    /// to the session. Default 100 ms; a tool may set its own.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.options.cancel_grace = grace;
        self
    }

    /// Batches of calls in a row that may bring nothing but failures before the run ends. Default 5.
    pub fn max_consecutive_failures(mut self, batches: u32) -> Self {
        self.options.max_consecutive_failures = batches;
        self
    }

    /// Continues once per run when an answer was cut by the output limit. Default false: the run ends with
    /// `StopCause::Length`.
    pub fn continue_after_length(mut self, once: bool) -> Self {
        self.options.continue_after_length = once;
        self
    }

    /// Asks once more when the model says nothing right after tool results. Default true.
    pub fn continue_after_empty(mut self, once: bool) -> Self {
        self.options.continue_after_empty = once;
        self
    }

    /// Reading size, in bytes per turn, of tool results over which the model is told to ask for less. Nothing is ever
    /// cut. Default: no budget.
    pub fn tool_output_budget(mut self, bytes: usize) -> Self {
        self.options.tool_output_budget = Some(bytes);
        self
    }

    /// Adds a model to ask when those before it cannot answer: when their retries are used up, nothing of the answer has
    /// been streamed, and the error is of a kind to fall back on. The next turn asks the usual model first again, and
    /// usage is filed under the model that answered.
    pub fn fallback(mut self, provider: impl Provider + 'static, model: impl Into<String>) -> Self {
        self.options.fallbacks.push(Fallback { provider: Arc::new(provider), model: model.into() });
        self
    }

    /// The kinds of errors to fall back on. Default: overloaded, server, rate limited, timeout and transport.
    pub fn fallback_on(mut self, kinds: impl IntoIterator<Item = ProviderErrorKind>) -> Self {
        self.options.fallback_on = kinds.into_iter().collect();
        self
    }

    /// Drops the reasoning of the conversation so far, and asks once more, when an API refuses it: it was bound to a
    /// prefix that a hook has changed, or to another account. Default true.
    pub fn drop_refused_reasoning(mut self, once: bool) -> Self {
        self.options.drop_refused_reasoning = once;
        self
    }

    /// Puts what is said into the spans of runs: system text, messages, arguments and results. Default false: spans say
    /// who, how long and how much, and nothing of what. See the module [`agent`](crate::agent).
    pub fn trace_content(mut self, content: bool) -> Self {
        self.options.trace_content = content;
        self
    }

    /// A model that describes images to one that cannot see: each image once, by a request of its own, whose usage is
    /// filed under that model as `vision`. The description stands in for the image in every request after it.
    pub fn vision_fallback(mut self, provider: impl Provider + 'static, model: impl Into<String>) -> Self {
        self.options.vision = Some(Fallback { provider: Arc::new(provider), model: model.into() });
        self
    }

    /// Cuts long tool output and keeps the whole as a blob. Default: nothing is cut.
    pub fn output_spill(mut self, spill: OutputSpill) -> Self {
        self.options.spill = Some(spill);
        self
    }

    /// Has a summary stand in for older turns when the conversation nears the model's window. Default: never; a
    /// conversation that is too long fails the run.
    pub fn compaction(mut self, compaction: Compaction) -> Self {
        self.options.compaction = Some(compaction);
        self
    }

    /// What tokens cost. Default: the built-in table; a cost that the provider reports wins over any.
    pub fn prices(mut self, prices: PriceBook) -> Self {
        self.options.prices = Arc::new(prices);
        self.priced = true;
        self
    }

    /// When and how failed requests are made again. Default: three retries before the first output.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.retry = policy;
        self
    }

    /// The session's id. Default: a random one.
    pub fn session_id(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// Where the session is kept. Default: nowhere, the conversation lives as long as the agent.
    ///
    /// With the id of a stored session the agent goes on from it. It is read when the first run begins, and again when
    /// a run finds that somebody else has appended. A run stores the prompt before anything is sent, the model's turn
    /// before any of its calls starts, each result as soon as it is final, and how it ended. It fails with
    /// [`RunErrorKind::Session`](super::RunErrorKind::Session) when an append does; of two agents that work on a session
    /// at the same time one fails with a conflict, and nothing is overwritten.
    ///
    /// An append is always brought to its end. An abort waits for it as long as for a tool
    /// ([`cancel_grace`](Self::cancel_grace)), a drop not at all; the next run, or [`Agent::session`], waits for the
    /// rest. Sub-agents do not inherit the store.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::sync::Arc;
    /// # use zidane::testing::{Reply, ScriptedProvider};
    /// use zidane::session::MemorySessionStore; // or JsonlSessionStore, SqliteSessionStore
    ///
    /// let store = Arc::new(MemorySessionStore::new());
    /// # let model = ScriptedProvider::new([Reply::text("Hello."), Reply::text("Yes.")]);
    /// let agent = || {
    ///     let builder = zidane::Agent::builder().model("any").session_store(Arc::clone(&store)).session_id("chat-1");
    /// #   let builder = builder.provider(model.clone());
    ///     builder.build()
    /// };
    /// agent()?.run("Hi, I am Ada.").await?;
    /// let later = agent()?; // another process, another day
    /// later.run("Do you remember me?").await?;
    /// assert_eq!(later.history().len(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn session_store(mut self, store: impl SessionStore + 'static) -> Self {
        self.session_store = Some(Arc::new(store));
        self
    }

    /// Where large media of the session is kept; the stored session refers to it. Default: in the session itself. Means
    /// nothing without a session store.
    pub fn blob_store(mut self, store: impl BlobStore + 'static) -> Self {
        self.blob_store = Some(Arc::new(store));
        self
    }

    /// Size of media, in bytes, over which it goes to the blob store. Default 64 KiB.
    pub fn blob_threshold(mut self, bytes: usize) -> Self {
        self.blob_threshold = bytes;
        self
    }

    /// The conversation to go on from. Calls without results are settled when the first run starts.
    ///
    /// With a session store it is what a new session begins with. One that is stored must begin with the same turns, and
    /// goes on from what is stored; otherwise the run fails.
    pub fn history(mut self, turns: impl IntoIterator<Item = SessionTurn>) -> Self {
        self.history = turns.into_iter().collect();
        self
    }

    /// The durable backing of the tool state. Default: none, the state lives as long as the agent.
    pub fn tool_state(mut self, store: impl ToolStateStore + 'static) -> Self {
        self.state_store = Some(Arc::new(store));
        self
    }

    /// What a run does when the tool state cannot be loaded. Default: it fails.
    pub fn on_state_load_failure(mut self, failure: LoadFailure) -> Self {
        self.options.load_failure = failure;
        self
    }

    /// Something of the host's that tools find by its type: `cx.get::<Db>()`.
    pub fn extension<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.extensions.insert(value);
        self
    }

    /// How many messages each queue holds. Default 1024.
    pub fn queue_limit(mut self, messages: usize) -> Self {
        self.options.queue_limit = messages;
        self
    }

    /// Where times and ids come from that land in the session. Default: the system's. A run's own clock wins.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Who answers the questions of [`Agent::decide`], of tools and of hooks. Default: the agent's own model, through
    /// structured output or a tool; [`Decider::disabled`] for nobody. Its prices are the agent's unless it has its own.
    pub fn decider(mut self, decider: Decider) -> Self {
        self.decider = Some(decider);
        self
    }

    /// Records runs in a durable engine. Default: none.
    pub fn durable(mut self, runtime: Arc<dyn DurableRuntime>) -> Self {
        self.durable = Some(runtime);
        self
    }

    /// Builds an agent.
    ///
    /// # Errors
    /// [`BuildError`] when provider or model are missing, or the tools do not fit together.
    pub fn build(&self) -> Result<Agent, BuildError> {
        self.build_with(Hooks::default(), Arc::clone(&self.clock), self.durable.clone())
    }

    /// Builds an agent below another: it has that one's hooks of [`Scope::Tree`](crate::hooks::Scope::Tree), its
    /// provider, model and prices where it was given none of its own, and the clock of the run. Its steps are a part of
    /// the call's record.
    pub(super) fn build_child(
        mut self,
        parent: &AgentInner,
        clock: Arc<dyn Clock>,
        session_id: String,
    ) -> Result<Agent, BuildError> {
        self.provider.get_or_insert_with(|| Arc::clone(&parent.provider));
        if self.head.model.trim().is_empty() {
            self.head.model.clone_from(&parent.head.model);
        }
        if !self.priced {
            self.options.prices = Arc::clone(&parent.options.prices);
        }
        self.session_id.get_or_insert(session_id);
        self.build_with(Hooks::new(Some(parent.hooks.clone())), clock, None)
    }

    fn build_with(
        &self,
        hooks: Hooks,
        clock: Arc<dyn Clock>,
        durable: Option<Arc<dyn DurableRuntime>>,
    ) -> Result<Agent, BuildError> {
        let provider = self.provider.clone().ok_or(BuildError::NoProvider)?;
        if self.head.model.trim().is_empty() {
            return Err(BuildError::NoModel);
        }
        let tools = self
            .compiled
            .get_or_init(|| ToolSet::new(self.tools.clone(), self.aliases.clone()).map(Arc::new))
            .clone()?;
        let decider = match &self.decider {
            Some(decider) => decider.clone(),
            None => Decider::of_model(Arc::clone(&provider), self.head.model.as_str()),
        };
        let mut head = self.head.clone();
        head.tools = Arc::clone(tools.definitions());
        head.names = Arc::clone(tools.names());
        let session_id = self.session_id.clone().unwrap_or_else(|| clock.random_uuid().to_string());
        let tool_state = match &self.state_store {
            Some(store) => ToolStateController::with_store(session_id.as_str(), Arc::clone(store)),
            None => ToolStateController::new(session_id.as_str()),
        };
        let history: History = self.history.iter().cloned().collect();
        let keeper = self.session_store.as_ref().map(|store| {
            let blobs = self.blob_store.clone().map(|store| Blobs::new(store, self.blob_threshold));
            Keeper::new(&session_id, Arc::clone(store), blobs, history.turns().to_vec())
        });
        Ok(Agent::new(AgentInner {
            provider,
            head: Arc::new(head),
            tools,
            options: self.options.clone(),
            hooks,
            handle: AgentHandle::new(self.options.queue_limit),
            session: LiveSession::new(session_id, history, keeper),
            tool_state,
            extensions: Arc::new(self.extensions.clone()),
            clock,
            durable,
            decider: decider.or_prices(&self.options.prices),
            decisions: DecisionLedger::default(),
            stand_ins: Mutex::default(),
            unreasoned: Mutex::default(),
        }))
    }
}

impl std::fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentBuilder")
            .field("provider", &self.provider.as_ref().map(|provider| provider.id().to_owned()))
            .field("model", &self.head.model)
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}

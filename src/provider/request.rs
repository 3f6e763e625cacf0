use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::{BodyCache, History, OutputSchema};

/// How hard the model should think. Unset sends nothing at all: some models refuse even `disabled`.
///
/// A wire maps a level that the model lacks to the nearest one it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ThinkingLevel {
    /// Not at all (0 tokens).
    Off,
    /// 1,024 tokens where a budget is what the wire takes.
    Minimal,
    /// 4,096 tokens.
    Low,
    /// 10,240 tokens.
    Medium,
    /// 32,768 tokens.
    High,
}

impl ThinkingLevel {
    /// The budget in tokens, for wires that take one.
    #[must_use]
    pub const fn budget_tokens(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Minimal => 1_024,
            Self::Low => 4_096,
            Self::Medium => 10_240,
            Self::High => 32_768,
        }
    }
}

/// Whether and which tool the model must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides. Nothing is sent.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// A call of this tool (canonical name).
    Tool(String),
    /// No calls, although tools are declared.
    None,
}

/// A tool as the model is told of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The canonical name.
    pub name: String,
    /// What the model reads to decide.
    pub description: String,
    /// JSON Schema of the arguments; the root is an object.
    pub input_schema: Arc<Value>,
    /// Ask the provider to hold the model to the schema, where the wire has that.
    pub strict: bool,
}

impl ToolDefinition {
    /// A definition.
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: Value) -> Self {
        Self { name: name.into(), description: description.into(), input_schema: Arc::new(input_schema), strict: false }
    }
}

/// The names under which the model sees tools: canonical → alias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolNames {
    aliases: HashMap<String, String>,
}

impl ToolNames {
    /// Names with these aliases.
    #[must_use]
    pub const fn new(aliases: HashMap<String, String>) -> Self {
        Self { aliases }
    }

    /// What the model is shown for a canonical name.
    #[must_use]
    pub fn display<'a>(&'a self, canonical: &'a str) -> &'a str {
        self.aliases.get(canonical).map_or(canonical, String::as_str)
    }

    /// All aliases, canonical → alias.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.aliases.iter().map(|(canonical, alias)| (canonical.as_str(), alias.as_str()))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.aliases.is_empty()
    }
}

/// Everything of a request but the conversation. Shared between the turns of a run as long as nothing changes it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RequestHead {
    /// The model id to ask for.
    pub model: String,
    /// The system text. Blank is not sent.
    pub system: Option<Arc<str>>,
    /// The tools, in the order declared.
    pub tools: Arc<[ToolDefinition]>,
    /// What the model sees tools as.
    pub names: Arc<ToolNames>,
    /// Whether and which tool must be called.
    pub tool_choice: ToolChoice,
    /// Output limit in tokens. `None` leaves it to the provider, or to the wire's default where it must be sent.
    pub max_tokens: Option<u32>,
    /// How hard to think.
    pub thinking: Option<ThinkingLevel>,
    /// Sampling temperature. Several models of 2026 refuse any.
    pub temperature: Option<f32>,
    /// Texts at which the model stops.
    pub stop_sequences: Vec<String>,
    /// Mark stable parts for the provider's prompt cache, where it needs marks. Default true in the agent.
    pub cache: bool,
    /// What the final answer must be. A wire without a mode for it ignores this; the agent then tells the model in words.
    pub output: Option<Arc<OutputSchema>>,
    /// Fields merged into the request body last, as they are; they win over what the wire would send.
    pub extra: Map<String, Value>,
}

/// One request to a model. Retries share it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ModelRequest {
    /// Everything but the conversation.
    pub head: Arc<RequestHead>,
    /// The conversation.
    pub history: History,
    /// The body of the conversation's earlier requests.
    pub body_cache: Arc<BodyCache>,
}

impl ModelRequest {
    /// A request with its own, empty cache.
    #[must_use]
    pub fn new(head: RequestHead, history: History) -> Self {
        Self { head: Arc::new(head), history, body_cache: Arc::default() }
    }
}

/// What a provider is told about the attempt it makes.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct RequestContext {
    /// 1 for the first try.
    pub attempt: u32,
    /// Told of what goes over the wire, secrets removed.
    pub observer: Option<Arc<dyn WireObserver>>,
    /// Whether anybody asks the stream for more: silence towards nobody is not the provider's.
    pub reader_away: Option<Arc<ReaderAway>>,
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestContext").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Watches requests and responses. Called from inside the request; must be quick.
pub trait WireObserver: Send + Sync {
    /// A request is about to be sent.
    fn request(&self, request: &WireRequest<'_>);
    /// The head of the response arrived.
    fn response(&self, response: &WireResponse<'_>);
}

/// A request as it goes out.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WireRequest<'a> {
    /// The address, without query.
    pub url: &'a str,
    /// Headers; secret values are `***`.
    pub headers: &'a [(String, String)],
    /// Size of the body in bytes.
    pub body_bytes: usize,
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WireResponse<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The provider's request id.
    pub request_id: Option<&'a str>,
    /// Time from sending to the response's head.
    pub elapsed: Duration,
}

/// Whether a pull-based reader waits for more, and since when: only then can a provider be called silent.
///
/// Told by whoever stands between the provider's stream and the reader; asked by the provider when it has waited long.
#[derive(Debug)]
pub struct ReaderAway {
    origin: Instant,
    /// Nanoseconds after `origin`; `AWAY` while the reader is.
    since: AtomicU64,
}

const AWAY: u64 = u64::MAX;

impl ReaderAway {
    /// The reader got something and went away with it.
    pub fn left(&self) {
        self.since.store(AWAY, Ordering::Relaxed);
    }

    /// The reader is back, or still there, and there is nothing for it.
    pub fn waits(&self) {
        self.since.store(self.now(), Ordering::Relaxed);
    }

    /// How long the reader has waited by now. Zero while it is away, or when it has only just come back.
    #[must_use]
    pub fn waiting(&self) -> Duration {
        // Away is later than any time there is.
        Duration::from_nanos(self.now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(AWAY)
    }
}

impl Default for ReaderAway {
    /// A reader that waits from now on.
    fn default() -> Self {
        Self { origin: Instant::now(), since: AtomicU64::new(0) }
    }
}

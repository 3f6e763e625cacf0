use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use crate::provider::{
    Capabilities, History, ModelRequest, Provider, ProviderError, ProviderErrorKind, ProviderStream, RequestContext,
    RequestHead, Resume, StreamEvent, UsageSnapshot,
};
use crate::types::{SessionTurn, SignatureProducer, TokenUsage, TurnFinishReason, TurnOrigin, validate_transcript};

/// A provider that says what a script says, without a network.
///
/// Every request is checked: its conversation must pair every call with its result, and must begin with all of the
/// last request that began with the same turn; only one that begins with a summary may begin anew. A broken one gets
/// an `invalid` error that names the rule, as an API would give.
///
/// ```
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use zidane::testing::{Reply, ScriptedProvider};
/// use zidane::Agent;
///
/// let model = ScriptedProvider::new([Reply::text("Hello!")]);
/// let agent = Agent::builder().provider(model.clone()).model("any").build()?;
/// assert_eq!(agent.run("Hi").await?.text, "Hello!");
/// assert_eq!(model.requests().len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ScriptedProvider {
    inner: Arc<Inner>,
}

struct Inner {
    id: String,
    capabilities: Capabilities,
    resume: Resume,
    prefix_breaks: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    replies: VecDeque<Reply>,
    last: Option<Reply>,
    requests: Vec<ScriptedRequest>,
    calls: u64,
}

/// A request that a [`ScriptedProvider`] was sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScriptedRequest {
    /// Everything but the conversation.
    pub head: Arc<RequestHead>,
    /// The conversation.
    pub turns: Vec<SessionTurn>,
    /// 1 for the first try.
    pub attempt: u32,
}

/// One answer of a script.
#[derive(Clone, Debug)]
#[must_use]
pub struct Reply {
    steps: Vec<Step>,
    usage: Option<UsageSnapshot>,
    finish: Option<(TurnFinishReason, Option<String>)>,
    model: Option<String>,
    delay: Duration,
    refused: Option<ProviderError>,
    blocks: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Event(StreamEvent),
    Call { block: u32, id: Option<String>, name: String, arguments: String, complete: bool },
    Pause(Duration),
    Error(ProviderError),
    Stall,
}

impl Reply {
    /// An answer with nothing in it.
    pub fn empty() -> Self {
        Self {
            steps: Vec::new(),
            usage: Some(UsageSnapshot::new(TokenUsage { input: 10, output: 5, ..TokenUsage::default() })),
            finish: None,
            model: None,
            delay: Duration::ZERO,
            refused: None,
            blocks: 0,
        }
    }

    /// An answer of one text, in one delta.
    pub fn text(text: impl Into<String>) -> Self {
        Self::empty().and_text(text)
    }

    /// An answer of one text, in one delta per item.
    pub fn deltas<S: Into<String>>(deltas: impl IntoIterator<Item = S>) -> Self {
        let mut reply = Self::empty();
        let block = reply.next_block();
        reply
            .steps
            .extend(deltas.into_iter().map(|delta| Step::Event(StreamEvent::Text { block, delta: delta.into() })));
        reply
    }

    /// An answer of one call.
    pub fn call(name: impl Into<String>, arguments: impl Into<Value>) -> Self {
        Self::empty().and_call(name, arguments)
    }

    /// A request that fails before anything of the answer.
    pub fn error(error: ProviderError) -> Self {
        Self { refused: Some(error), ..Self::empty() }
    }

    /// The same, of a kind.
    pub fn fails(kind: ProviderErrorKind) -> Self {
        Self::error(ProviderError::new(kind, "scripted", "scripted failure"))
    }

    /// Adds a text block.
    pub fn and_text(mut self, text: impl Into<String>) -> Self {
        let block = self.next_block();
        self.event(StreamEvent::Text { block, delta: text.into() })
    }

    /// Adds a thinking block.
    pub fn and_thinking(mut self, text: impl Into<String>, signature: Option<&str>) -> Self {
        let block = self.next_block();
        let mut reply = self.event(StreamEvent::Thinking { block, delta: text.into() });
        if let Some(value) = signature {
            let producer = SignatureProducer::new("scripted");
            reply = reply.event(StreamEvent::Signature { block, producer, value: value.to_owned() });
        }
        reply
    }

    /// Adds a call; its id is `call_1`, `call_2`, … in the order of the provider's life.
    pub fn and_call(self, name: impl Into<String>, arguments: impl Into<Value>) -> Self {
        self.raw_call(None, name, arguments.into().to_string())
    }

    /// Adds a call with an id and argument text of your own, which need not be JSON.
    pub fn raw_call(mut self, id: Option<&str>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let block = self.next_block();
        self.steps.push(Step::Call {
            block,
            id: id.map(ToOwned::to_owned),
            name: name.into(),
            arguments: arguments.into(),
            complete: true,
        });
        self
    }

    /// Adds a call that is cut before its arguments end.
    pub fn partial_call(mut self, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let block = self.next_block();
        self.steps.push(Step::Call {
            block,
            id: None,
            name: name.into(),
            arguments: arguments.into(),
            complete: false,
        });
        self
    }

    /// Adds an event as it is.
    pub fn event(mut self, event: StreamEvent) -> Self {
        self.steps.push(Step::Event(event));
        self
    }

    /// Waits here.
    pub fn pause(mut self, time: Duration) -> Self {
        self.steps.push(Step::Pause(time));
        self
    }

    /// Fails here, after what came before.
    pub fn then_error(mut self, error: ProviderError) -> Self {
        self.steps.push(Step::Error(error));
        self
    }

    /// Says nothing more here, and never ends.
    pub fn then_stall(mut self) -> Self {
        self.steps.push(Step::Stall);
        self
    }

    /// Waits before the request is answered at all.
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Finishes for this reason. Default: `tool-calls` with calls, else `stop`.
    pub fn finish(mut self, reason: TurnFinishReason, raw: Option<&str>) -> Self {
        self.finish = Some((reason, raw.map(ToOwned::to_owned)));
        self
    }

    /// Uses these tokens. Default: 10 in, 5 out.
    pub const fn usage(mut self, tokens: TokenUsage) -> Self {
        self.usage = Some(UsageSnapshot::new(tokens));
        self
    }

    /// Reports no usage.
    pub const fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Names the model that answers. Default: the one that was asked for.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    const fn next_block(&mut self) -> u32 {
        self.blocks += 1;
        self.blocks - 1
    }

    fn steps(self, asked: &str, calls: &mut u64) -> Vec<Step> {
        let has_calls = self.steps.iter().any(|step| matches!(step, Step::Call { .. }));
        let start =
            StreamEvent::Start { model: Some(self.model.unwrap_or_else(|| asked.to_owned())), response_id: None };
        let mut out = vec![Step::Event(start)];
        for step in self.steps {
            match step {
                Step::Call { block, id, name, arguments, complete } => {
                    *calls += 1;
                    let id = id.unwrap_or_else(|| format!("call_{calls}"));
                    out.push(Step::Event(StreamEvent::ToolCallStart { block, id, name }));
                    out.push(Step::Event(StreamEvent::ToolCallDelta { block, delta: arguments }));
                    if complete {
                        out.push(Step::Event(StreamEvent::ToolCallEnd { block }));
                    }
                }
                step => out.push(step),
            }
        }
        out.extend(self.usage.map(|usage| Step::Event(StreamEvent::Usage(usage))));
        let default = if has_calls { TurnFinishReason::ToolCalls } else { TurnFinishReason::Stop };
        let (reason, raw) = self.finish.unwrap_or((default, None));
        out.push(Step::Event(StreamEvent::Finish { reason, raw }));
        out
    }
}

/// Whether two turns are the same to an API. Which calls are pending is nothing that it is told: a turn that was loaded
/// says which still are.
fn same_turn(a: &SessionTurn, b: &SessionTurn) -> bool {
    a == b
        || a.pending != b.pending && {
            let settled = |turn: &SessionTurn| SessionTurn { pending: Vec::new(), ..turn.clone() };
            settled(a) == settled(b)
        }
}

impl ScriptedProvider {
    /// A provider that gives these answers in turn, then an `invalid` error that says the script has ended.
    pub fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let state = State { replies: replies.into_iter().collect(), ..State::default() };
        Self::build(state)
    }

    /// A provider that gives the same answer every time.
    pub fn repeating(reply: Reply) -> Self {
        Self::build(State { last: Some(reply), ..State::default() })
    }

    fn build(state: State) -> Self {
        let capabilities = Capabilities {
            images: true,
            documents: true,
            images_in_tool_results: true,
            documents_in_tool_results: true,
            thinking: true,
            ..Capabilities::TEXT
        };
        Self {
            inner: Arc::new(Inner {
                id: "scripted".to_owned(),
                capabilities,
                resume: Resume::UserText,
                prefix_breaks: false,
                state: Mutex::new(state),
            }),
        }
    }

    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            id: self.inner.id.clone(),
            capabilities: self.inner.capabilities,
            resume: self.inner.resume,
            prefix_breaks: self.inner.prefix_breaks,
            state: Mutex::new(std::mem::take(&mut *self.lock())),
        };
        change(&mut inner);
        Self { inner: Arc::new(inner) }
    }

    /// Sets the provider's id. Default `scripted`.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        self.change(|inner| inner.id = id.into())
    }

    /// Sets what the model takes. Default: everything but decisions and structured output.
    #[must_use]
    pub fn capabilities(self, capabilities: Capabilities) -> Self {
        self.change(|inner| inner.capabilities = capabilities)
    }

    /// Sets how a paused turn is continued. Default: by user text.
    #[must_use]
    pub fn resume(self, resume: Resume) -> Self {
        self.change(|inner| inner.resume = resume)
    }

    /// Lets a request begin differently from the one before it: for tests that edit the history on purpose.
    #[must_use]
    pub fn allow_prefix_breaks(self) -> Self {
        self.change(|inner| inner.prefix_breaks = true)
    }

    /// Passes over the first `replies` answers, as if they had been given.
    pub fn skip(&self, replies: usize) {
        let mut state = self.lock();
        for _ in 0..replies {
            let Some(reply) = state.replies.pop_front() else { return };
            let calls = reply.steps.iter().filter(|step| matches!(step, Step::Call { .. })).count();
            if reply.refused.is_none() {
                state.calls = state.calls.saturating_add(calls as u64);
            }
        }
    }

    /// Adds an answer.
    pub fn push(&self, reply: Reply) {
        self.lock().replies.push_back(reply);
    }

    /// The requests so far, retries included.
    #[must_use]
    pub fn requests(&self) -> Vec<ScriptedRequest> {
        self.lock().requests.clone()
    }

    /// How many answers are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.lock().replies.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse(&self, message: impl Into<String>) -> ProviderError {
        ProviderError::new(ProviderErrorKind::Invalid, self.inner.id.as_str(), message)
    }

    /// What an API would refuse, and what would break a prompt cache.
    fn inspect(&self, history: &History) -> Result<(), ProviderError> {
        validate_transcript(history.iter()).map_err(|error| self.refuse(error.to_string()))?;
        if self.inner.prefix_breaks {
            return Ok(());
        }
        let state = self.lock();
        let starts_as = |turns: &[SessionTurn]| match (turns.first(), history.iter().next()) {
            (Some(before), Some(first)) => same_turn(before, first),
            (before, first) => before.is_none() && first.is_none(),
        };
        let starts_anew = history.iter().next().is_some_and(|first| first.origin == TurnOrigin::Summary);
        // One that asks for a summary stands beside the conversation.
        let beside = |turns: &[SessionTurn]| matches!(turns, [only] if only.origin == TurnOrigin::Summary);
        let requests = || state.requests.iter().rev();
        let last = requests().find(|request| !beside(&request.turns)).filter(|_| !starts_anew);
        let Some(before) = requests().find(|request| starts_as(&request.turns)).or(last) else { return Ok(()) };
        let kept = before.turns.iter().zip(history.iter()).take_while(|(a, b)| same_turn(a, b)).count();
        if kept < before.turns.len() {
            return Err(self.refuse(format!("turn {kept} differs from the one sent before")));
        }
        Ok(())
    }
}

impl std::fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedProvider").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    fn id(&self) -> &str {
        &self.inner.id
    }

    fn capabilities(&self, _: &str) -> Capabilities {
        self.inner.capabilities
    }

    fn resume(&self, _: &SessionTurn) -> Resume {
        self.inner.resume
    }

    async fn stream(&self, request: Arc<ModelRequest>, cx: &RequestContext) -> Result<ProviderStream, ProviderError> {
        self.inspect(&request.history)?;
        let reply = {
            let mut state = self.lock();
            state.requests.push(ScriptedRequest {
                head: Arc::clone(&request.head),
                turns: request.history.iter().cloned().collect(),
                attempt: cx.attempt,
            });
            state.replies.pop_front().or_else(|| state.last.clone())
        };
        let Some(reply) = reply else { return Err(self.refuse("the script has ended")) };
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        if let Some(error) = reply.refused {
            return Err(error);
        }
        let steps = reply.steps(&request.head.model, &mut self.lock().calls);
        let events = stream::iter(steps).filter_map(|step| async move {
            match step {
                Step::Event(event) => Some(Ok(event)),
                Step::Error(error) => Some(Err(error)),
                Step::Pause(time) => {
                    tokio::time::sleep(time).await;
                    None
                }
                Step::Stall => std::future::pending().await,
                Step::Call { .. } => None,
            }
        });
        Ok(ProviderStream::new(events))
    }
}

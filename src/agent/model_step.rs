use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::StreamExt as _;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use uuid::Uuid;

use super::Limit;
use super::assemble::{Assembler, Changed};
use super::context::RunCx;
use super::event::AgentEvent;
use super::limits::TurnPermit;
use super::options::Fallback;
use super::seam::Job;
use super::spans;
use super::vision::{Description, describe};
use crate::durable::{StepCx, StepError, StepKind};
use crate::hooks::{
    AttemptFailed, AttemptFailedCx, AttemptStart, AttemptStartCx, ContextTransform, ContextTransformCx,
    ProviderRequest, ProviderRequestCx, ProviderResponse, ProviderResponseCx, StreamEnd, StreamEndCx, StreamReset,
    StreamResetCx, StreamText, StreamTextCx, StreamThinking, StreamThinkingCx, TurnBefore, TurnBeforeCx,
};
use crate::provider::{
    BodyCache, History, ModelRequest, Provider, ProviderError, ProviderErrorKind, RequestContext, RequestHead, Resume,
    StreamEvent, UsageSnapshot, WireObserver, WireRequest, WireResponse,
};
use crate::types::{
    DecisionUsage, NanoUsd, Role, SessionContentBlock, TokenUsage, TranscriptError, TurnFinishReason,
    validate_transcript,
};

/// Asks the model, retries included.
pub(super) struct ModelJob {
    pub(super) cx: Arc<RunCx>,
    pub(super) number: u32,
    pub(super) turn_id: Uuid,
    /// Asked again, after the conversation was compacted.
    pub(super) again: bool,
    pub(super) head: Arc<RequestHead>,
    pub(super) history: History,
    pub(super) body_cache: Arc<BodyCache>,
}

/// What the model answered, and how that ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ModelOut {
    pub(super) end: ModelEnd,
    pub(super) blocks: Vec<SessionContentBlock>,
    pub(super) tokens: TokenUsage,
    pub(super) cost: Option<NanoUsd>,
    pub(super) complete: bool,
    pub(super) attempts: u32,
    pub(super) model_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prefix_digest: Option<String>,
    pub(super) requested_model: String,
    pub(super) provider: String,
    pub(super) finish: Option<TurnFinishReason>,
    pub(super) raw_finish: Option<String>,
    /// Canonical names of the tools the model was shown, where a hook hid some.
    pub(super) visible_tools: Option<Vec<String>>,
    /// How a pause is continued.
    pub(super) resume: Option<Continuation>,
    /// Images that were described for a model that cannot see.
    pub(super) visions: Vec<Description>,
    /// The turn it took of the run's limits, until it is counted. One from a record has none.
    #[serde(skip)]
    pub(super) permit: Option<TurnPermit>,
    /// What decisions have used meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) decisions: Vec<DecisionUsage>,
}

impl ModelOut {
    /// This answer, where the request before it came to nothing.
    pub(super) fn after(mut self, before: Self) -> Self {
        let unpriced = |out: &Self| out.tokens.total() > 0 && out.cost.is_none();
        let either_unpriced = unpriced(&self) || unpriced(&before);
        self.cost = if either_unpriced { None } else { add_cost(self.cost, before.cost) };
        self.tokens += before.tokens;
        self.attempts = self.attempts.saturating_add(before.attempts);
        self.visions.splice(0..0, before.visions);
        self.decisions.splice(0..0, before.decisions);
        self
    }
}

/// [`Resume`], on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Continuation {
    UserText,
    AsIs,
    Host,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ModelEnd {
    /// The answer is complete.
    Complete,
    /// The run was aborted; the blocks are what had arrived.
    Aborted,
    /// The provider failed; the blocks are what had arrived.
    Provider(Box<ProviderError>),
    /// A hook that shapes the request failed; nothing was sent.
    Hook { hook: String, message: String },
    /// The request would not pair calls and results; nothing was sent.
    Transcript(TranscriptError),
    /// The conversation ends with the model's turn; nothing was sent.
    NothingToSend,
    /// A limit forbids the turn; nothing was sent.
    Limit(Limit),
}

impl Job for ModelJob {
    type Out = ModelOut;
    const KIND: StepKind = StepKind::Model;

    fn name(&self) -> String {
        format!("t{}/model{}", self.number, if self.again { "/again" } else { "" })
    }

    async fn run(self, _: StepCx) -> Result<ModelOut, StepError> {
        let cx = Arc::clone(&self.cx);
        let mut out = ask(self).await;
        out.decisions = cx.agent.decisions.take();
        Ok(out)
    }
}

/// A request that can be sent.
struct Ready {
    provider: Arc<dyn Provider>,
    request: Arc<ModelRequest>,
    visible_tools: Option<Vec<String>>,
    permit: Option<TurnPermit>,
}

async fn ask(job: ModelJob) -> ModelOut {
    let (cx, turn_id) = (Arc::clone(&job.cx), job.turn_id);
    let mut visions = Vec::new();
    match prepare(job, &mut visions).await {
        Ok(mut ready) => {
            let permit = ready.permit.take();
            let span = spans::chat(&cx, ready.provider.id(), &ready.request);
            if span.is_disabled() {
                return ModelOut { visions, permit, ..converse(&cx, turn_id, ready).await };
            }
            let request = Arc::clone(&ready.request);
            let out = Box::pin(converse(&cx, turn_id, ready).instrument(span.clone())).await;
            spans::answered(&cx, &span, &request, &out);
            ModelOut { visions, permit, ..out }
        }
        Err(failed) => {
            let provider = cx.agent.provider.id().to_owned();
            ModelOut {
                end: failed,
                blocks: Vec::new(),
                tokens: TokenUsage::default(),
                cost: None,
                complete: true,
                attempts: 0,
                model_id: None,
                prefix_digest: None,
                requested_model: cx.agent.head.model.clone(),
                provider,
                finish: None,
                raw_finish: None,
                visible_tools: None,
                resume: None,
                visions,
                permit: None,
                decisions: Vec::new(),
            }
        }
    }
}

/// Runs the shape hooks and checks what they leave.
async fn prepare(job: ModelJob, visions: &mut Vec<Description>) -> Result<Ready, ModelEnd> {
    let ModelJob { cx, number, mut head, mut history, body_cache, .. } = job;
    let permit = Some(cx.meter.take_turn().map_err(ModelEnd::Limit)?);
    let mut provider = None;
    let declared = Arc::clone(&head.tools);
    if cx.live.has::<TurnBefore>() {
        let mut hook_cx = TurnBeforeCx::new(&cx.live.base, number, &mut head, &mut provider);
        cx.live.fire::<TurnBefore>(&mut hook_cx).await.map_err(hook_end)?;
    }
    let visible_tools =
        (!Arc::ptr_eq(&declared, &head.tools)).then(|| head.tools.iter().map(|tool| tool.name.clone()).collect());
    let provider = provider.unwrap_or_else(|| Arc::clone(&cx.agent.provider));
    let mut transformed = false;
    if cx.live.has::<ContextTransform>() {
        let mut turns = history.turns().to_vec();
        let mut hook_cx = ContextTransformCx::new(&cx.live.base, &mut turns);
        cx.live.fire::<ContextTransform>(&mut hook_cx).await.map_err(hook_end)?;
        let same = turns.len() == history.len()
            && turns.iter().zip(history.turns()).all(|(now, before)| Arc::ptr_eq(now, before));
        if !same {
            transformed = true;
            history = History::from_turns(turns);
        }
    }
    if transformed || cfg!(debug_assertions) {
        validate_transcript(history.iter()).map_err(ModelEnd::Transcript)?;
    }
    let answerable = match history.last() {
        None => false,
        Some(last) if last.role == Role::Assistant => {
            last.finish_reason == Some(TurnFinishReason::Pause) && provider.resume(last).is_sent_again()
        }
        Some(_) => true,
    };
    if !answerable {
        return Err(ModelEnd::NothingToSend);
    }
    if let Some(fallback) = &cx.agent.options.vision
        && !provider.capabilities(&head.model).images
    {
        history = seen_for(&cx, fallback, history, visions).await?;
    }
    history = cx.agent.unreasoned.lock().unwrap_or_else(PoisonError::into_inner).view(history);
    // A view that hooks changed is nothing that later requests begin with.
    let body_cache = if transformed { Arc::default() } else { body_cache };
    let request = ModelRequest { head, history, body_cache };
    Ok(Ready { provider, request: Arc::new(request), visible_tools, permit })
}

/// The conversation in words, for a model that cannot see.
async fn seen_for(
    cx: &RunCx,
    fallback: &Fallback,
    history: History,
    visions: &mut Vec<Description>,
) -> Result<History, ModelEnd> {
    let stand_ins = || cx.agent.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
    let unknown = stand_ins().unknown(&history);
    for (image, media) in unknown {
        let described = match describe(cx, fallback, image, media).await {
            Ok(described) => described,
            Err(error) if error.kind == ProviderErrorKind::Aborted => return Err(ModelEnd::Aborted),
            Err(error) => return Err(ModelEnd::Provider(Box::new(error))),
        };
        stand_ins().learn(&described);
        visions.push(described);
    }
    Ok(stand_ins().view(&history))
}

fn hook_end(failure: crate::hooks::HookFailure) -> ModelEnd {
    ModelEnd::Hook { hook: failure.hook.to_owned(), message: failure.cause.to_string() }
}

/// Tokens of attempts that came to nothing, which were paid for all the same.
#[derive(Default)]
pub(super) struct Lost {
    pub(super) tokens: TokenUsage,
    cost: Option<NanoUsd>,
    /// Some of it has no price, and so the turn has none.
    unpriced: bool,
}

impl Lost {
    pub(super) fn add(&mut self, usage: &UsageSnapshot, cost: Option<NanoUsd>) {
        self.tokens += usage.tokens;
        self.cost = add_cost(self.cost, cost);
        self.unpriced |= cost.is_none();
    }

    /// What everything cost together with the last attempt.
    pub(super) fn with(&self, usage: Option<UsageSnapshot>, cost: Option<NanoUsd>) -> Option<NanoUsd> {
        let unpriced = self.unpriced || (usage.is_some() && cost.is_none());
        if unpriced { None } else { add_cost(self.cost, cost) }
    }
}

/// What an answer cost, as far as its usage is known.
fn price(cx: &RunCx, provider: &dyn Provider, request: &ModelRequest, answer: &Assembler) -> Option<NanoUsd> {
    let usage = answer.usage.as_ref()?;
    cx.agent.options.prices.cost(provider.id(), answer.model_id.as_deref(), &request.head.model, usage)
}

fn add_cost(a: Option<NanoUsd>, b: Option<NanoUsd>) -> Option<NanoUsd> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or_default() + b.unwrap_or_default()),
    }
}

async fn converse(cx: &RunCx, turn_id: Uuid, ready: Ready) -> ModelOut {
    let Ready { mut provider, mut request, visible_tools, .. } = ready;
    let policy = &cx.agent.options.retry;
    let mut fallbacks = cx.agent.options.fallbacks.iter();
    // Attempts with the model at hand; `attempt` counts all of them.
    let mut tries = 1;
    let mut dropped = false;
    let wire =
        (cx.live.has::<ProviderRequest>() || cx.live.has::<ProviderResponse>()).then(|| Arc::new(WireLog::default()));
    let mut lost = Lost::default();
    let mut attempt = 1;
    let (end, assembler) = loop {
        if cx.live.has::<AttemptStart>() {
            let mut hook_cx = AttemptStartCx::new(&cx.live.base, attempt, provider.id(), &request.head.model);
            cx.live.observe::<AttemptStart>(&mut hook_cx).await;
        }
        let mut assembler = Assembler::new();
        let request_cx = RequestContext {
            attempt,
            reader_away: cx.outlet.is_some().then(|| Arc::clone(&cx.away)),
            observer: wire.clone().map(|wire| wire as Arc<dyn WireObserver>),
        };
        let answer = stream(cx, &*provider, &request, &request_cx, wire.as_deref(), &mut assembler);
        let error = match until_cancelled(&cx.abort, answer).await {
            None => break (ModelEnd::Aborted, assembler),
            Some(Ok(())) => break (ModelEnd::Complete, assembler),
            Some(Err(error)) => error,
        };
        let output = assembler.has_output();
        let mut delay = policy.delay(tries, &error, output);
        let refused = cx.agent.options.drop_refused_reasoning && !output && !dropped && error.refuses_reasoning();
        if refused {
            delay = Some(Duration::ZERO);
        }
        let fallback = if delay.is_none() && !output && cx.agent.options.fallback_on.contains(&error.kind) {
            fallbacks.next()
        } else {
            None
        };
        if fallback.is_some() {
            delay = Some(Duration::ZERO);
        }
        if cx.live.has::<AttemptFailed>() {
            let mut hook_cx = AttemptFailedCx::new(&cx.live.base, attempt, &error, delay);
            cx.live.observe::<AttemptFailed>(&mut hook_cx).await;
        }
        let Some(delay) = delay else { break (ModelEnd::Provider(Box::new(error)), assembler) };
        if let Some(usage) = &assembler.usage {
            lost.add(usage, price(cx, &*provider, &request, &assembler));
        }
        if output {
            if cx.live.has::<StreamReset>() {
                let text = assembler.text();
                let mut hook_cx = StreamResetCx::new(&cx.live.base, &text);
                cx.live.observe::<StreamReset>(&mut hook_cx).await;
            }
            cx.emit(|| AgentEvent::Reset).await;
        }
        cx.emit(|| AgentEvent::Retry { attempt, error: Box::new(error) }).await;
        tries += 1;
        if refused {
            dropped = true;
            let mut unreasoned = cx.agent.unreasoned.lock().unwrap_or_else(PoisonError::into_inner);
            unreasoned.drop_all(&request.history);
            let history = unreasoned.view(request.history.clone());
            let head = Arc::clone(&request.head);
            request = Arc::new(ModelRequest { head, history, body_cache: Arc::default() });
        }
        if let Some(fallback) = fallback {
            provider = Arc::clone(&fallback.provider);
            let head = RequestHead { model: fallback.model.clone(), ..(*request.head).clone() };
            // Its own cache: the usual model's body stays for the next turn.
            request = Arc::new(ModelRequest::new(head, request.history.clone()));
            tries = 1;
        }
        if cx.abort.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            break (ModelEnd::Aborted, Assembler::new());
        }
        attempt += 1;
    };
    if cx.live.has::<StreamEnd>() {
        let text = assembler.text();
        let mut hook_cx = StreamEndCx::new(&cx.live.base, &text, matches!(end, ModelEnd::Complete));
        cx.live.observe::<StreamEnd>(&mut hook_cx).await;
    }
    let (finish, raw_finish) = assembler.finish.clone().map_or((None, None), |(class, raw)| (Some(class), raw));
    let usage = assembler.usage;
    let cost = price(cx, &*provider, &request, &assembler);
    let model_id = assembler.model_id.clone();
    let prefix_digest = assembler.prefix_digest.clone();
    let model = request.head.model.clone();
    let blocks = assembler
        .into_blocks(&model, turn_id, |display| cx.agent.tools.canonical_of(display).unwrap_or(display).to_owned());
    let resume = (finish == Some(TurnFinishReason::Pause)).then(|| continuation(&*provider, &blocks));
    let mut tokens = lost.tokens;
    tokens += usage.map(|usage| usage.tokens).unwrap_or_default();
    ModelOut {
        complete: matches!(end, ModelEnd::Complete) && usage.is_some(),
        end,
        blocks,
        tokens,
        cost: lost.with(usage, cost),
        attempts: attempt,
        model_id,
        prefix_digest,
        requested_model: model,
        provider: provider.id().to_owned(),
        finish,
        raw_finish,
        visible_tools,
        resume,
        visions: Vec::new(),
        permit: None,
        decisions: Vec::new(),
    }
}

/// As `run_until_cancelled`, but for many polls by one task: it waits for the token once, and then only looks at it.
async fn until_cancelled<T>(token: &CancellationToken, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut cancelled = pin!(token.cancelled());
    let mut waits: Option<Waker> = None;
    poll_fn(|cx| {
        if token.is_cancelled() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(value) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        if !waits.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            if cancelled.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            waits = Some(cx.waker().clone());
        }
        Poll::Pending
    })
    .await
}

fn continuation(provider: &dyn Provider, blocks: &[SessionContentBlock]) -> Continuation {
    let turn = crate::types::SessionTurn::new(
        String::new(),
        Role::Assistant,
        crate::types::TurnOrigin::Model,
        blocks.to_vec(),
    );
    match provider.resume(&turn) {
        Resume::UserText => Continuation::UserText,
        Resume::AsIs | Resume::Token => Continuation::AsIs,
        Resume::Host => Continuation::Host,
    }
}

/// Reads one answer to its end.
async fn stream(
    cx: &RunCx,
    provider: &dyn Provider,
    request: &Arc<ModelRequest>,
    request_cx: &RequestContext,
    wire: Option<&WireLog>,
    assembler: &mut Assembler,
) -> Result<(), ProviderError> {
    let opened = provider.stream(Arc::clone(request), request_cx).await;
    if let Some(wire) = wire {
        wire.tell(cx).await;
    }
    let mut events = opened?;
    while let Some(event) = events.next().await {
        let event = event?;
        match assembler.apply(&event) {
            Changed::Text { index } => {
                if cx.live.has::<StreamText>()
                    && let StreamEvent::Text { delta, .. } = &event
                {
                    let mut hook_cx = StreamTextCx::new(&cx.live.base, delta, assembler.block_text(index));
                    cx.live.observe::<StreamText>(&mut hook_cx).await;
                }
                if let (Some(outlet), StreamEvent::Text { delta, .. }) = (&cx.outlet, event) {
                    outlet.send(AgentEvent::Text { delta }).await;
                }
            }
            Changed::Thinking { index } => {
                if cx.live.has::<StreamThinking>()
                    && let StreamEvent::Thinking { delta, .. } = &event
                {
                    let mut hook_cx = StreamThinkingCx::new(&cx.live.base, delta, assembler.block_text(index));
                    cx.live.observe::<StreamThinking>(&mut hook_cx).await;
                }
                if let (Some(outlet), StreamEvent::Thinking { delta, .. }) = (&cx.outlet, event) {
                    outlet.send(AgentEvent::Thinking { delta }).await;
                }
            }
            Changed::Call { index } => {
                if let (Some(outlet), Some((id, name))) = (&cx.outlet, assembler.call(index)) {
                    let event = AgentEvent::ToolCall { call_id: id.to_owned(), name: name.to_owned() };
                    outlet.send(event).await;
                }
            }
            Changed::Nothing => {}
            Changed::TooMany => {
                return Err(ProviderError::new(
                    ProviderErrorKind::Protocol,
                    provider.id(),
                    "the answer has more blocks than any answer may have",
                ));
            }
        }
        if assembler.finish.is_some() {
            break;
        }
    }
    match &assembler.finish {
        None => Err(ProviderError::new(
            ProviderErrorKind::TruncatedStream,
            provider.id(),
            "the stream ended before the answer did",
        )),
        Some((TurnFinishReason::Error, raw)) => {
            let mut error = ProviderError::new(
                ProviderErrorKind::Server,
                provider.id(),
                "the provider classified the turn as failed",
            );
            error.code.clone_from(raw);
            if let Some(said) = &assembler.finish_message {
                error.message.clone_from(said);
            }
            Err(error)
        }
        Some(_) => Ok(()),
    }
}

/// Keeps what went over the wire until it can be told to hooks, which may be async.
#[derive(Default)]
struct WireLog {
    seen: Mutex<Vec<Seen>>,
}

enum Seen {
    Request { url: String, headers: Vec<(String, String)>, body_bytes: usize },
    Response { status: u16, request_id: Option<String>, elapsed: Duration },
}

impl WireLog {
    async fn tell(&self, cx: &RunCx) {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        for event in &seen {
            match event {
                Seen::Request { url, headers, body_bytes } => {
                    let mut hook_cx = ProviderRequestCx::new(&cx.live.base, url, headers, *body_bytes);
                    cx.live.observe::<ProviderRequest>(&mut hook_cx).await;
                }
                Seen::Response { status, request_id, elapsed } => {
                    let mut hook_cx = ProviderResponseCx::new(&cx.live.base, *status, request_id.as_deref(), *elapsed);
                    cx.live.observe::<ProviderResponse>(&mut hook_cx).await;
                }
            }
        }
    }

    fn push(&self, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl WireObserver for WireLog {
    fn request(&self, request: &WireRequest<'_>) {
        self.push(Seen::Request {
            url: request.url.to_owned(),
            headers: request.headers.to_vec(),
            body_bytes: request.body_bytes,
        });
    }

    fn response(&self, response: &WireResponse<'_>) {
        self.push(Seen::Response {
            status: response.status,
            request_id: response.request_id.map(ToOwned::to_owned),
            elapsed: response.elapsed,
        });
    }
}

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::future::BoxFuture;
use tracing::Instrument as _;

use super::context::RunCx;
use super::decide::{desk, firing};
use super::deferral::DeferredResult;
use super::inner::AgentInner;
use super::limits::{Limit, Limits, Meter};
use super::lineage::{Lineage, Outlet};
use super::offspring::Offspring;
use super::outcome::{RunError, RunErrorKind, RunOutcome, StopCause};
use super::sink::{AgentStream, Sink};
use super::spans;
use super::structured::Output;
use super::turn_loop::{TurnLoop, seam};
use crate::clock::Clock;
use crate::control::{QueueKind, RunClaim};
use crate::hooks::{AgentAbort, AgentAbortCx, AgentDone, AgentDoneCx, Firing, HookBase, Hooks, RunInfo};
use crate::provider::{OutputSchema, ReaderAway};
use crate::tool::{SchemaCheck, ToolInput};
use crate::types::{AgentStats, Prompt};

/// A run of an agent: a future of its outcome. `Send + 'static`, so it can be spawned as it is.
///
/// ```no_run
/// # async fn example(agent: zidane::Agent) -> Result<(), Box<dyn std::error::Error>> {
/// let outcome = agent.run("Tidy up.").max_turns(4).await?;
/// println!("{}", outcome.text);
/// # Ok(()) }
/// ```
#[must_use = "a run does nothing until it is polled"]
pub struct Run {
    state: State,
}

enum State {
    Waiting(Option<Box<Plan>>),
    Running(BoxFuture<'static, RunEnd>),
}

pub(super) type RunEnd = Result<RunOutcome, RunError>;

/// What a run is to do.
struct Plan {
    agent: Arc<AgentInner>,
    prompt: Prompt,
    max_turns: Option<Option<u32>>,
    limits: Option<Limits>,
    clock: Option<Arc<dyn Clock>>,
    run_id: Option<String>,
    output: Option<OutputSchema>,
    compact: bool,
    answers: Vec<DeferredResult>,
    abandon: bool,
    lineage: Option<Lineage>,
}

impl Run {
    pub(super) fn new(agent: Arc<AgentInner>, prompt: Prompt) -> Self {
        let plan = Plan {
            agent,
            prompt,
            max_turns: None,
            limits: None,
            clock: None,
            run_id: None,
            output: None,
            compact: false,
            answers: Vec::new(),
            abandon: false,
            lineage: None,
        };
        Self { state: State::Waiting(Some(Box::new(plan))) }
    }

    fn plan(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        if let State::Waiting(Some(plan)) = &mut self.state {
            change(plan);
        }
        self
    }

    /// Model turns this run may make; `None` for no cap. Default: the agent's.
    pub fn max_turns(self, turns: impl Into<Option<u32>>) -> Self {
        let turns = turns.into();
        self.plan(|plan| plan.max_turns = Some(turns))
    }

    /// What this run may use. Default: the agent's limits.
    pub fn limits(self, limits: Limits) -> Self {
        self.plan(|plan| plan.limits = Some(limits))
    }

    /// Where this run's times and ids come from. Default: the agent's clock.
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        self.plan(|plan| plan.clock = Some(Arc::new(clock)))
    }

    /// The run's id. Default: one of the clock's. A durable run with a known id is taken up where it was:
    /// with the same prompt, or with an empty one, for which the one on record stands.
    pub fn run_id(self, id: impl Into<String>) -> Self {
        let id = id.into();
        self.plan(|plan| plan.run_id = Some(id))
    }

    /// Compacts the conversation before the first turn, whatever its size: by the agent's
    /// [`Compaction`](super::Compaction), or the default one. When that comes to nothing the run goes on all the same.
    pub fn compact(self) -> Self {
        self.plan(|plan| plan.compact = true)
    }

    /// Answers calls that an earlier run of the session left to the host
    /// ([`StopCause::Deferred`](super::StopCause::Deferred)), in this process or another one, and goes on from there. It
    /// takes no prompt.
    ///
    /// The calls stand in [`Session::deferred`](crate::session::Session::deferred) too. Answers may come a few at a time:
    /// the approved calls are run, and while others wait the run ends with `StopCause::Deferred` again, with nothing
    /// sent. Once all are answered, calls that came after them are gated and run, and the model reads the results.
    ///
    /// An approved call goes through its gates like any other, but that none of them can defer it; it is run at most
    /// once, with the [idempotency key](crate::ToolContext::idempotency_key) it had. That it is taken on is stored before
    /// it starts: when the run is dropped or its process dies, the call is `interrupted`, and an answer to it is refused.
    /// An abort answers whatever has not started with `not_started`, calls that wait included.
    ///
    /// Answers that do not fit fail the run before anything is stored or run, with
    /// [`RunErrorKind::Answer`](super::RunErrorKind::Answer).
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use zidane::testing::{Reply, ScriptedProvider};
    /// # use zidane::tool::{NoInput, tool_fn};
    /// use zidane::StopCause;
    /// use zidane::hooks::ToolGate;
    ///
    /// # let model = ScriptedProvider::new([Reply::call("deploy", serde_json::json!({})), Reply::text("Done.")]);
    /// # let deploy = tool_fn("deploy", "Deploys", |_: NoInput, _cx| async { Ok("deployed") });
    /// # let agent = zidane::Agent::builder().provider(model).model("any").tool(deploy).build()?;
    /// agent.hooks().on::<ToolGate>(|cx| cx.defer("a person must see this"));
    /// let outcome = agent.run("Deploy it.").await?;
    /// let StopCause::Deferred(calls) = outcome.stop else { panic!() };
    /// // Show them to somebody; then, or on another day:
    /// let outcome = agent.resume(calls.iter().map(|call| call.approve())).await?;
    /// assert_eq!(outcome.text, "Done.");
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn resume(self, answers: impl IntoIterator<Item = DeferredResult>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        self.plan(|plan| plan.answers = answers)
    }

    /// Gives up calls that wait and have no answer, and so lets a new prompt in: those that wait for the host are
    /// `not_started`, those of a durable run that has not ended are `interrupted`. Default false: the run fails with
    /// [`RunErrorKind::Pending`](super::RunErrorKind::Pending).
    pub fn abandon(self, abandon: bool) -> Self {
        self.plan(|plan| plan.abandon = abandon)
    }

    /// What the final answer must be: a JSON object that matches the schema. The wire holds the model to it where it has
    /// a mode for that; elsewhere the model is told in words. Tools stay usable. An answer that does not match is asked
    /// for once more; then the run fails with `RunErrorKind::Output`.
    pub fn output_schema(self, schema: OutputSchema) -> Self {
        self.plan(|plan| plan.output = Some(schema))
    }

    /// A run whose final answer is a value of `T`.
    ///
    /// ```no_run
    /// # use schemars::JsonSchema; use serde::Deserialize;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Verdict { ok: bool, why: String }
    ///
    /// # async fn example(agent: zidane::Agent) -> Result<(), Box<dyn std::error::Error>> {
    /// let (verdict, outcome) = agent.run_typed::<Verdict>("Is 17 prime?").await?;
    /// println!("{} because {} ({} tokens)", verdict.ok, verdict.why, outcome.stats.total_out);
    /// # Ok(()) }
    /// ```
    pub fn typed<T: ToolInput>(self) -> TypedRun<T> {
        TypedRun { run: self.output_schema(OutputSchema::new("answer", T::schema())), value: PhantomData }
    }

    /// The run as a stream of events, the outcome last.
    #[must_use = "a stream does nothing until it is polled"]
    pub fn stream(self) -> AgentStream {
        let (sink, away) = (Sink::default(), Arc::<ReaderAway>::default());
        let run: BoxFuture<'static, _> = match self.state {
            State::Waiting(Some(plan)) => Box::pin(drive(*plan, Some(Outlet::Stream(sink.clone())), Arc::clone(&away))),
            State::Running(run) => run,
            State::Waiting(None) => Box::pin(std::future::pending()),
        };
        AgentStream::new(sink, away, run)
    }
}

/// Drives a run that a tool spawned, to its end.
pub(super) fn drive_child(run: Run, lineage: Lineage, outlet: Option<Outlet>) -> BoxFuture<'static, RunEnd> {
    let away = Arc::clone(&lineage.parent.away);
    match run.plan(|plan| plan.lineage = Some(lineage)).state {
        State::Waiting(Some(plan)) => Box::pin(drive(*plan, outlet, away)),
        State::Running(run) => run,
        State::Waiting(None) => Box::pin(std::future::pending()),
    }
}

impl Future for Run {
    type Output = Result<RunOutcome, RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waiting(plan) = &mut self.state {
            let Some(plan) = plan.take() else { return Poll::Pending };
            self.state = State::Running(Box::pin(drive(*plan, None, Arc::default())));
        }
        match &mut self.state {
            State::Running(run) => {
                let polled = run.as_mut().poll(cx);
                if polled.is_ready() {
                    self.state = State::Waiting(None);
                }
                polled
            }
            State::Waiting(_) => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = match &self.state {
            State::Waiting(Some(_)) => "not started",
            State::Waiting(None) => "ended",
            State::Running(_) => "running",
        };
        f.debug_tuple("Run").field(&state).finish()
    }
}

/// A run whose outcome comes with its answer as a value.
#[derive(Debug)]
#[must_use = "a run does nothing until it is polled"]
pub struct TypedRun<T> {
    run: Run,
    value: PhantomData<fn() -> T>,
}

impl<T: ToolInput> Future for TypedRun<T> {
    type Output = Result<(T, RunOutcome), RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = std::task::ready!(Pin::new(&mut self.run).poll(cx))?;
        let failed = |message: String, outcome: &RunOutcome| RunError {
            kind: RunErrorKind::Output(message),
            turns: outcome.turns.clone(),
            stats: Box::new(outcome.stats.clone()),
            denials: outcome.denials.clone(),
        };
        Poll::Ready(match outcome.output.clone() {
            None => Err(failed(format!("the run ended with {} and no answer", outcome.stop.as_str()), &outcome)),
            Some(value) => match T::parse(value) {
                Ok(value) => Ok((value, outcome)),
                Err(error) => Err(failed(error.to_string(), &outcome)),
            },
        })
    }
}

/// Leaves the agent idle and without the run's own hooks, however the run ends.
struct Active {
    claim: RunClaim,
    hooks: Hooks,
}

impl Drop for Active {
    fn drop(&mut self) {
        self.hooks.end_run();
    }
}

fn failed(kind: RunErrorKind) -> RunError {
    RunError { kind, turns: Vec::new(), stats: Box::default(), denials: Vec::new() }
}

async fn drive(plan: Plan, outlet: Option<Outlet>, away: Arc<ReaderAway>) -> Result<RunOutcome, RunError> {
    let Plan { agent, prompt, max_turns, limits, clock, run_id, output, compact, answers, abandon, lineage } = plan;
    if tokio::runtime::Handle::try_current().is_err() {
        return Err(failed(RunErrorKind::NoRuntime));
    }
    let output = match output.map(prepare_output).transpose() {
        Ok(output) => output,
        Err(bad) => return Err(failed(RunErrorKind::Output(bad))),
    };
    let Some(claim) = agent.handle.begin(lineage.as_ref().map(|lineage| &lineage.token)) else {
        return Err(failed(RunErrorKind::AlreadyRunning));
    };
    let active = Active { claim, hooks: agent.hooks.clone() };
    let started = Instant::now();
    let clock = clock.unwrap_or_else(|| Arc::clone(&agent.clock));
    let run_id = run_id.unwrap_or_else(|| clock.random_uuid().to_string());
    let durable = match &agent.durable {
        None => None,
        Some(runtime) => {
            Some(runtime.attach(&run_id, None).await.map_err(|error| failed(RunErrorKind::Durable(error)))?)
        }
    };
    let info = Arc::new(RunInfo {
        session_id: agent.session.id().into(),
        run_id: run_id.into(),
        parent_run_id: lineage.as_ref().map(|lineage| Arc::clone(&lineage.parent.info.run_id)),
        depth: lineage.as_ref().map_or(0, |lineage| lineage.child.depth()),
    });
    let abort = active.claim.abort.clone();
    let above = lineage.as_ref().map(|lineage| lineage.parent.meter.clone());
    let meter = Meter::new(limits.unwrap_or_else(|| agent.options.limits.clone()), above);
    let desk = {
        let meter = meter.clone();
        desk(&agent, Arc::clone(&info), abort.clone(), move || meter.used_up().map(Limit::as_str))
    };
    let firing = firing(&agent, Arc::clone(&info), abort.clone(), Some(Arc::new(desk)));
    let live = Firing { base: HookBase { replaying: Arc::default(), ..firing.base.clone() }, ..firing.clone() };
    agent.session.mark();
    let max_turns = max_turns.unwrap_or(agent.options.max_turns);
    let name = lineage.as_ref().map(|lineage| lineage.child.name());
    let span = spans::invoke_agent(&info, agent.provider.id(), &agent.head.model, name);
    let cx = Arc::new(RunCx {
        agent: Arc::clone(&agent),
        firing,
        live,
        clock,
        info,
        outlet,
        away,
        abort,
        meter,
        span,
        lineage,
        own_children: Offspring::default(),
    });
    let mut run = TurnLoop::new(Arc::clone(&cx), seam(durable.clone()), max_turns, output);
    run.compact_first = compact;
    (run.answers, run.abandon) = (answers, abandon);
    let mut result = if cx.span.is_disabled() {
        run.run(prompt).await
    } else {
        Box::pin(run.run(prompt).instrument(cx.span.clone())).await
    };
    if let (Some(durable), Ok(_)) = (&durable, &result)
        && let Err(error) = durable.finish().await
    {
        result = Err(RunErrorKind::Durable(error));
    }
    // Children of calls that came to no result.
    run.file_children(cx.children().take(None));
    if durable.is_none() {
        // A durable run files only what is on record; the rest waits for the next.
        run.record_decisions(agent.decisions.take());
    }
    let mut stats = std::mem::take(&mut run.stats);
    if agent.session.is_kept() {
        result = Box::pin(run.save_end(result, &stats)).await;
    }
    stats.elapsed = started.elapsed();
    spans::run_ended(&cx.span, &result);
    tell_end(&cx.firing, &stats, &result).await;
    let turns = agent.session.added();
    match result {
        Ok(stop) => {
            let mut undelivered = agent.handle.queued(QueueKind::Steering);
            undelivered.extend(agent.handle.queued(QueueKind::FollowUp));
            Ok(RunOutcome {
                run_id: (*cx.info.run_id).to_owned(),
                text: run.text,
                stop,
                stats,
                turns,
                undelivered,
                denials: run.denials,
                output: run.value,
            })
        }
        Err(kind) => Err(RunError { kind, turns, stats: Box::new(stats), denials: run.denials }),
    }
}

fn prepare_output(schema: OutputSchema) -> Result<Output, String> {
    let check = SchemaCheck::compile(&schema.schema)?;
    Ok(Output { schema: Arc::new(schema), check: Arc::new(check) })
}

async fn tell_end(firing: &Firing, stats: &AgentStats, result: &Result<StopCause, RunErrorKind>) {
    if matches!(result, Ok(StopCause::Aborted)) && firing.has::<AgentAbort>() {
        firing.observe::<AgentAbort>(&mut AgentAbortCx::new(&firing.base, stats)).await;
    }
    if firing.has::<AgentDone>() {
        let error = result.as_ref().err().map(ToString::to_string);
        let stop = result.as_ref().map_or("error", StopCause::as_str);
        firing.observe::<AgentDone>(&mut AgentDoneCx::new(&firing.base, stats, stop, error.as_deref())).await;
    }
}

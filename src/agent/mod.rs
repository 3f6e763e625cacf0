//! Floor 4: the agent and its turn loop.
//!
//! In comes a prompt, out come a [`RunOutcome`] or a [`RunError`], and on the way [`AgentEvent`]s, hooks and a
//! session that is valid at every instant. The loop asks the model, answers every call, and asks again; everything
//! that must not be done twice is a named step behind one seam (`seam.rs`).
//!
#![doc = include_str!("scenarios.md")]
//!
//! # Spans
//!
//! A run, its requests and the bodies of its calls are `tracing` spans of the target `zidane::gen_ai` and the level
//! `INFO`, named by OpenTelemetry's conventions for generative AI, version 1.41: `invoke_agent`, `chat`, `execute_tool`.
//! Usage stands on `chat` spans only, with cached tokens among those of the input, as the convention wants it; summaries
//! and descriptions of images are `chat` spans too. What is said is left out, unless
//! [`AgentBuilder::trace_content`] asks for it. Where nobody subscribes no span is built. A replayed step has none.
//! `examples/otel.rs` exports them.

mod accounts;
mod assemble;
mod batch;
mod begin;
mod builder;
mod commit_step;
mod compaction;
mod context;
mod decide;
mod deferral;
mod derived;
mod event;
mod gate_step;
mod inner;
mod input_step;
mod limits;
mod lineage;
mod loop_guard;
mod model_step;
mod nested;
mod offspring;
mod options;
mod outcome;
mod plan;
mod record_limit;
mod resume;
mod run;
mod save;
mod seam;
mod side_request;
mod sink;
mod spans;
mod spawn;
mod spill;
mod start_step;
mod structured;
mod tool_step;
mod turn_loop;
mod vision;

use std::sync::Arc;

pub use builder::{AgentBuilder, BuildError};
pub use compaction::Compaction;
pub use deferral::{AnswerError, DeferredResult};
pub use event::AgentEvent;
pub use limits::{Limit, Limits};
pub use loop_guard::LoopGuard;
pub use options::{LoadFailure, SteerMode, ToolExecution};
pub use outcome::{Denial, RunError, RunErrorKind, RunOutcome, StopCause};
pub use run::{Run, TypedRun};
pub use sink::AgentStream;
pub use spawn::{ChildError, ChildOutcome, ChildRun, ChildSource, Spawn};
pub use spill::OutputSpill;

use inner::AgentInner;

use crate::control::{AgentHandle, MessageId, QueueFull};
use crate::decision::{Deciding, DecisionEvidence, Question};
use crate::hooks::Hooks;
use crate::provider::History;
use crate::session::{Session, SessionError};
use crate::tool::ToolInput;
use crate::tool_state::ToolState;
use crate::types::Prompt;

/// An agent: a model, tools, hooks, and one conversation that its runs continue. A cheap clone.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<AgentInner>,
}

impl Agent {
    /// Starts to build one.
    pub fn builder() -> AgentBuilder {
        AgentBuilder::new()
    }

    fn new(inner: AgentInner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// A run of the agent on a prompt. Nothing happens until it is polled; then it goes to the end by itself, or, as
    /// [`Run::stream`], event by event.
    ///
    /// Dropping it is like a crash: bodies under way are cancelled, no further hook fires, and the agent stays usable;
    /// the next run settles what was left open. [`abort`](Self::abort) is the orderly way.
    #[must_use = "a run does nothing until it is polled"]
    pub fn run(&self, prompt: impl Into<Prompt>) -> Run {
        Run::new(Arc::clone(&self.inner), prompt.into())
    }

    /// A run whose final answer is a value of `T`; see [`Run::typed`].
    #[must_use = "a run does nothing until it is polled"]
    pub fn run_typed<T: ToolInput>(&self, prompt: impl Into<Prompt>) -> TypedRun<T> {
        self.run(prompt).typed()
    }

    /// Has the agent's decider answer questions about evidence. It is no turn: the conversation does not see it, and a run
    /// may be under way. Its usage is filed with that run, else with the next.
    ///
    /// Dropping it ends the request; an abort of a run does not.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use zidane::testing::{Reply, ScriptedProvider};
    /// use zidane::decision::Question;
    ///
    /// # let model = ScriptedProvider::new([Reply::text(r#"{"harmless": true}"#), Reply::text("Hello.")]);
    /// # let model = model.allow_prefix_breaks();
    /// # let agent = zidane::Agent::builder().provider(model).model("any").build().unwrap();
    /// let prompt = "Hi there!";
    /// let decision = agent.decide(prompt, [Question::bool("harmless", "Is this a harmless request?")]).await;
    /// if decision.is_ok_and(|answers| answers.is_yes("harmless", 0.8)) {
    ///     agent.run(prompt).await.unwrap();
    /// }
    /// # assert_eq!(agent.history().len(), 2);
    /// # });
    /// ```
    pub fn decide(
        &self,
        evidence: impl Into<DecisionEvidence>,
        questions: impl IntoIterator<Item = Question>,
    ) -> Deciding {
        decide::outside(&self.inner, evidence.into(), questions.into_iter().collect())
    }

    /// A run that goes on with calls which an earlier one left to the host; see [`Run::resume`].
    #[must_use = "a run does nothing until it is polled"]
    pub fn resume(&self, answers: impl IntoIterator<Item = DeferredResult>) -> Run {
        self.run("").resume(answers)
    }

    /// The hook bus.
    #[must_use]
    pub fn hooks(&self) -> &Hooks {
        &self.inner.hooks
    }

    /// A handle for other tasks.
    #[must_use]
    pub fn handle(&self) -> &AgentHandle {
        &self.inner.handle
    }

    /// See [`AgentHandle::steer`].
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn steer(&self, message: impl Into<Prompt>) -> Result<MessageId, QueueFull> {
        self.inner.handle.steer(message)
    }

    /// See [`AgentHandle::follow_up`].
    ///
    /// # Errors
    /// [`QueueFull`].
    pub fn follow_up(&self, message: impl Into<Prompt>) -> Result<MessageId, QueueFull> {
        self.inner.handle.follow_up(message)
    }

    /// See [`AgentHandle::abort`].
    pub fn abort(&self) {
        self.inner.handle.abort();
    }

    /// See [`AgentHandle::drain`].
    pub fn drain(&self) {
        self.inner.handle.drain();
    }

    /// See [`AgentHandle::is_running`].
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.inner.handle.is_running()
    }

    /// See [`AgentHandle::wait_for_idle`].
    pub async fn wait_for_idle(&self) {
        self.inner.handle.wait_for_idle().await;
    }

    /// What the tools have committed so far; reads are live.
    #[must_use]
    pub fn tool_state(&self) -> ToolState {
        self.inner.tool_state.window()
    }

    /// The conversation so far, as it is sent. Shares the turns.
    ///
    /// Where there is a session store, it is read when the first run begins: until then this is the history that the
    /// agent was built with.
    ///
    /// While calls wait for the host, the last turn may hold the results of others that were made beside them; it is
    /// replaced once all are answered.
    #[must_use]
    pub fn history(&self) -> History {
        self.inner.session.shown()
    }

    /// The session as it is stored: turns, runs with their usage, notes. `None` without a session store, or when nothing
    /// is stored yet. Reads all of it.
    ///
    /// Waits for an append that is under way, also for one that a dropped or aborted run has left to itself.
    ///
    /// # Errors
    /// As [`SessionStore::load`](crate::session::SessionStore::load).
    pub async fn session(&self) -> Result<Option<Session>, SessionError> {
        self.inner.session.stored().await
    }

    /// The session's id.
    #[must_use]
    pub fn session_id(&self) -> &str {
        self.inner.session.id()
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent")
            .field("provider", &self.inner.provider.id())
            .field("model", &self.inner.head.model)
            .field("session", &self.inner.session.id())
            .field("running", &self.is_running())
            .finish_non_exhaustive()
    }
}

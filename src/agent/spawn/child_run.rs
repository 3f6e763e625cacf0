use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::caps::SpawnCaps;
use super::outcome::{ChildError, ChildOutcome};
use super::report::{SpawnReport, What};
use crate::agent::Limits;
use crate::agent::builder::AgentBuilder;
use crate::agent::lineage::{Ids, Lineage, Outlet, Upward};
use crate::agent::nested::{Nested, NestedReport};
use crate::agent::offspring::{ChildRecord, Place};
use crate::agent::outcome::{RunError, RunErrorKind};
use crate::agent::run::{Run, drive_child};
use crate::agent::turn_loop::id_text;
use crate::hooks::{ChildInfo, SpawnComplete, SpawnGate, SpawnGateCx, panic_text};
use crate::provider::OutputSchema;
use crate::session::child_id;
use crate::tool::ToolContext;
use crate::types::{AgentStats, Prompt, PromptPart};

impl ToolContext {
    /// Spawns a run of another agent, as a part of this call: await it for how it ended.
    ///
    /// The child is below this run: the gates and the other hooks of [`Scope::Tree`](crate::hooks::Scope::Tree) of every
    /// agent above see and may stop all it does; an abort of this call aborts it; what it uses counts toward every limit
    /// above it and is in this run's stats, however it ends. A builder without provider, model or prices takes those of
    /// this agent; clock and durability are this run's. Tool state, session, steering and the other hooks are its own.
    ///
    /// Dropping the future drops the child as a crash would; what it used until then counts.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use zidane::{Agent, testing::{Reply, ScriptedProvider}, tool::{NoInput, ToolContext, ToolResultExt, tool_fn}};
    /// # let model = ScriptedProvider::new([Reply::text("Fine.")]);
    /// let reviewer = Agent::builder().provider(model).model("any").system("You review.");
    /// let review = tool_fn("review", "Has the change reviewed", move |_: NoInput, cx: ToolContext| {
    ///     let reviewer = reviewer.clone();
    ///     async move {
    ///         let review = cx.spawn(&reviewer, "Review the change.").max_turns(4).await.expose()?;
    ///         Ok(format!("{:?}: {}", review.status, review.text))
    ///     }
    /// });
    /// # let model = ScriptedProvider::new([Reply::call("review", serde_json::json!({})), Reply::text("ok")]);
    /// # let agent = Agent::builder().provider(model).model("any").tool(review).build().unwrap();
    /// # assert_eq!(agent.run("Go").await.unwrap().stats.children[0].stats.turns, 1);
    /// # });
    /// ```
    pub fn spawn(&self, child: &AgentBuilder, task: impl Into<Prompt>) -> ChildRun {
        ChildRun::new(self.clone(), child.clone(), task.into())
    }
}

/// A run to be spawned: a future of how it ended.
#[must_use = "a run does nothing until it is awaited"]
pub struct ChildRun {
    cx: ToolContext,
    request: Box<Request>,
}

struct Request {
    builder: AgentBuilder,
    task: Prompt,
    name: Option<Arc<str>>,
    caps: SpawnCaps,
    max_turns: Option<Option<u32>>,
    limits: Option<Limits>,
    output: Option<OutputSchema>,
}

impl ChildRun {
    pub(super) fn new(cx: ToolContext, builder: AgentBuilder, task: Prompt) -> Self {
        let caps = SpawnCaps::default();
        let request = Request { builder, task, name: None, caps, max_turns: None, limits: None, output: None };
        Self { cx, request: Box::new(request) }
    }

    /// What the host calls it. Default: the name of the tool.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.request.name = Some(name.into());
        self
    }

    /// Model turns it may make; `None` for no cap. Default: its builder's.
    pub fn max_turns(mut self, turns: impl Into<Option<u32>>) -> Self {
        self.request.max_turns = Some(turns.into());
        self
    }

    /// What it may use, with everything below it, beside the limits above it. Default: its builder's.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.request.limits = Some(limits);
        self
    }

    /// What its answer must be; see [`Run::output_schema`].
    pub fn output_schema(mut self, schema: OutputSchema) -> Self {
        self.request.output = Some(schema);
        self
    }

    /// How deep the tree may become, the root being 0. A smaller cap above wins. Default 3, at most 16.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.request.caps.max_depth = depth;
        self
    }

    /// How many children this run may have at work at the same time; this one waits for its place. Default 8.
    pub fn max_concurrent(mut self, runs: u64) -> Self {
        self.request.caps.max_concurrent = runs;
        self
    }

    /// How many runs there may be below the root, in all of its run. A smaller cap above wins. Default 256.
    pub fn total(mut self, runs: u64) -> Self {
        self.request.caps.total = runs;
        self
    }

    pub(super) fn caps(mut self, caps: SpawnCaps) -> Self {
        self.request.caps = caps;
        self
    }
}

impl IntoFuture for ChildRun {
    type Output = Result<ChildOutcome, ChildError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(spawn(self.cx, *self.request))
    }
}

impl std::fmt::Debug for ChildRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildRun").field("call_id", &self.cx.call_id()).finish_non_exhaustive()
    }
}

async fn spawn(outer: ToolContext, request: Request) -> Result<ChildOutcome, ChildError> {
    let nested = match outer.nested()? {
        Some(nested) => (&**nested as &dyn Any).downcast_ref::<Nested>().cloned(),
        None => None,
    };
    let nested = nested.ok_or(ChildError::Settled)?;
    let Nested { cx, reports, call, .. } = &nested;
    let name = request.name.unwrap_or_else(|| outer.name().into());
    // The same on every attempt at the call. Some servers give the calls of every turn the same ids.
    let id = child_id(outer.turn_id(), &format!("{}/{}", outer.call_id(), nested.next_number()));
    let run_id: Arc<str> = id_text(id).into();
    let above = cx.lineage.as_ref();
    let child = Arc::new(ChildInfo::new(
        Arc::clone(&run_id),
        Arc::clone(&cx.info.run_id),
        name,
        above.map(|lineage| &*lineage.child),
        outer.call_id().into(),
    ));
    let task: Arc<str> = text_of(&request.task).into();
    let report = |what| {
        let report = SpawnReport { child: Arc::clone(&child), task: Arc::clone(&task), what };
        let heard = SpawnReport::is_heard(cx);
        async move {
            if heard {
                // Nobody listens any more only when the run is gone.
                drop(reports.nested.send(NestedReport::Spawn(Box::new(report))).await);
            }
        }
    };
    let caps = request.caps.below(above.map(|lineage| &lineage.caps));
    let built = admit(&nested, &outer, &child, &task, caps).await.and_then(|place| {
        let session_id = id_text(child_id(&run_id, "session"));
        let agent = request.builder.build_child(&cx.agent, Arc::clone(&cx.clock), session_id);
        Ok((agent.map_err(ChildError::Build)?, place))
    });
    let (agent, place) = match built {
        Ok(built) => built,
        Err(refused) => {
            report(What::Refused { error: refused.to_string() }).await;
            return Err(refused);
        }
    };
    let (told, begins) = oneshot::channel();
    report(What::Begins { told }).await;
    // What is told of its beginning comes before all it does. Where nobody is told, the other end is gone.
    let _ = outer.cancel_token().run_until_cancelled(begins).await;
    let token = outer.cancel_token().child_token();
    let ledger = cx.children().open(call, &run_id, outer.call_id(), (*task).to_owned(), &token);
    let lineage = Lineage {
        parent: Arc::clone(cx),
        child: Arc::clone(&child),
        caps,
        ledger: Arc::clone(&ledger),
        token,
        ids: Ids::new(id),
    };
    let upward = || Outlet::Parent(Upward { reports: reports.nested.clone(), child: Arc::clone(&child) });
    let outlet = cx.outlet.as_ref().map(|_| upward());
    let mut run = agent.run(request.task).run_id(&*run_id);
    run = request.max_turns.into_iter().fold(run, Run::max_turns);
    run = request.limits.into_iter().fold(run, Run::limits);
    run = request.output.into_iter().fold(run, Run::output_schema);
    let ended = AssertUnwindSafe(drive_child(run, lineage, outlet)).catch_unwind().await;
    let (result, denials) = match ended {
        Ok(Ok(mut outcome)) => {
            let denials = std::mem::take(&mut outcome.denials);
            (Ok(outcome), denials)
        }
        Ok(Err(mut error)) => {
            let denials = std::mem::take(&mut error.denials);
            (Err(error), denials)
        }
        Err(panic) => {
            let kind = RunErrorKind::Step(format!("the run panicked: {}", panic_text(&*panic)));
            let ChildRecord { child: used, denials } = ledger.so_far();
            let (turns, stats) = (agent.history().turns().to_vec(), Box::new(used.stats));
            (Err(RunError { kind, turns, stats, denials: Vec::new() }), denials)
        }
    };
    let outcome = ChildOutcome::new(Arc::clone(&child), result);
    drop(place);
    ledger.end(outcome.status, outcome.stats.clone(), denials);
    cx.children().ended(&ledger);
    // A copy only where it is looked at.
    let stats = if cx.firing.has::<SpawnComplete>() { outcome.stats.clone() } else { AgentStats::default() };
    report(What::Ended { status: outcome.status, stats, error: outcome.cause() }).await;
    Ok(outcome)
}

/// Whether there may be another run below this one; its place among those at work.
async fn admit<'a>(
    nested: &'a Nested,
    outer: &ToolContext,
    child: &ChildInfo,
    task: &str,
    caps: SpawnCaps,
) -> Result<Place<'a>, ChildError> {
    let cx = &nested.cx;
    if child.depth() > caps.max_depth {
        return Err(ChildError::TooDeep { max_depth: caps.max_depth });
    }
    if cx.firing.has::<SpawnGate>() {
        let mut blocked = None;
        let fired = {
            let mut hook_cx = SpawnGateCx::new(&cx.firing.base, child, task, &mut blocked);
            cx.firing.fire_until::<SpawnGate>(&mut hook_cx, |hook_cx| hook_cx.is_blocked()).await
        };
        if let Err(failure) = fired {
            cx.firing.report(&failure).await;
            return Err(ChildError::Blocked(format!(
                "No other agent was started: its gate failed ({}).",
                failure.cause
            )));
        }
        if let Some(reason) = blocked {
            return Err(ChildError::Blocked(reason));
        }
    }
    let place = outer.cancel_token().run_until_cancelled(cx.children().place(caps.max_concurrent)).await;
    let place = place.filter(|_| !outer.is_cancelled()).ok_or(ChildError::Aborted)?;
    if let Some(limit) = cx.meter.forbids_turn() {
        return Err(ChildError::Limit(limit));
    }
    if !cx.root().children().count(caps.total) {
        return Err(ChildError::TooMany { total: caps.total });
    }
    Ok(place)
}

/// The text of a task.
fn text_of(task: &Prompt) -> String {
    let texts = task.parts.iter().filter_map(|part| match part {
        PromptPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::caps::SpawnCaps;
use super::child_run::ChildRun;
use super::outcome::{ChildError, ChildOutcome};
use crate::agent::{AgentBuilder, Limits};
use crate::provider::OutputSchema;
use crate::tool::{Concurrency, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolResultExt as _, ToolSpec};
use crate::types::ChildStatus;

/// Where a [`Spawn`] tool has its agents from: a builder, or a function that makes one for each.
pub trait ChildSource: Send + Sync + 'static {
    /// The builder of the next agent.
    fn builder(&self) -> AgentBuilder;
}

impl ChildSource for AgentBuilder {
    fn builder(&self) -> AgentBuilder {
        self.clone()
    }
}

impl<F: Fn() -> AgentBuilder + Send + Sync + 'static> ChildSource for F {
    fn builder(&self) -> AgentBuilder {
        self()
    }
}

/// A tool by which the model gives a task to another agent. Calls of a turn run beside each other.
///
/// The name and the description are what the model decides by: say what the other agent is good at, what it knows, and
/// what it gives back. The input is a `task` in words, all that the other agent is told. The result is what it said
/// last; when it did not complete, an error that says so beside what there is. See [`ToolContext::spawn`] for what an
/// agent has from the one above it.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use zidane::agent::Spawn;
/// # use zidane::{Agent, testing::{Reply, ScriptedProvider}};
/// # use serde_json::json;
/// # let model = ScriptedProvider::new([Reply::text("It is about tides.")]);
/// # let parent = ScriptedProvider::new([Reply::call("read", json!({ "task": "Read it." })), Reply::text("Tides.")]);
///
/// let reader = Agent::builder().provider(model).model("small").system("You read and summarise.");
/// let agent = Agent::builder()
///     .provider(parent)
///     .model("large")
///     .tool(Spawn::new("read", "Reads a text and says in a sentence what it is about", reader).max_concurrent(4))
///     .build()?;
/// let outcome = agent.run("What is the text about?").await?;
/// assert_eq!(outcome.stats.children.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
#[must_use]
pub struct Spawn {
    spec: ToolSpec,
    source: Arc<dyn ChildSource>,
    model: Option<String>,
    limits: Option<Limits>,
    max_turns: Option<Option<u32>>,
    output: Option<OutputSchema>,
    caps: SpawnCaps,
}

impl Spawn {
    /// A tool that gives tasks to agents of this builder, or of a function that makes one: agents that spawn their like
    /// need a function.
    pub fn new(name: impl Into<String>, description: impl Into<String>, child: impl ChildSource) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "task": { "type": "string", "description": "All that the other agent needs to know to do it" }
            },
            "required": ["task"],
        });
        Self {
            spec: ToolSpec::new(name, description).input_schema(schema).concurrency(Concurrency::Shared),
            source: Arc::new(child),
            model: None,
            limits: None,
            max_turns: None,
            output: None,
            caps: SpawnCaps::default(),
        }
    }

    /// The model of the agents. Default: their builder's, else that of the agent that calls.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// What each of them may use, with everything below it, beside the limits above. Default: their builder's.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Model turns each may make; `None` for no cap. Default: their builder's.
    pub fn max_turns(mut self, turns: impl Into<Option<u32>>) -> Self {
        self.max_turns = Some(turns.into());
        self
    }

    /// What their answers must be: the result is JSON, and a value for hosts.
    pub fn output_schema(mut self, schema: OutputSchema) -> Self {
        self.output = Some(schema);
        self
    }

    /// As [`output_schema`](Self::output_schema), with the schema of a type.
    pub fn output<T: ToolInput>(self) -> Self {
        self.output_schema(OutputSchema::new("answer", T::schema()))
    }

    /// How deep the tree may become, the root being 0. A smaller cap above wins. Default 3, at most 16.
    pub fn max_depth(mut self, depth: u32) -> Self {
        self.caps.max_depth = depth;
        self
    }

    /// How many children one run may have at work at the same time; further calls wait. Default 8.
    pub fn max_concurrent(mut self, runs: u64) -> Self {
        self.caps.max_concurrent = runs;
        self
    }

    /// How many runs there may be below the root, in all of its run. A smaller cap above wins. Default 256.
    pub fn total(mut self, runs: u64) -> Self {
        self.caps.total = runs;
        self
    }

    /// Changes how the tool may be run.
    pub fn configure(mut self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        self.spec = change(self.spec);
        self
    }
}

#[async_trait]
impl Tool for Spawn {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    async fn call(&self, input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        let task = input.get("task").and_then(Value::as_str).ok_or("/task: text is required")?;
        let mut builder = self.source.builder();
        if let Some(model) = &self.model {
            builder = builder.model(model);
        }
        let mut run = ChildRun::new(cx.clone(), builder, task.into()).name(self.spec.name.as_str()).caps(self.caps);
        if let Some(limits) = &self.limits {
            run = run.limits(limits.clone());
        }
        if let Some(turns) = self.max_turns {
            run = run.max_turns(turns);
        }
        if let Some(output) = &self.output {
            run = run.output_schema(output.clone());
        }
        match run.await {
            Ok(outcome) => {
                if outcome.status == ChildStatus::Aborted && cx.is_cancelled() {
                    cx.interrupted();
                }
                said(outcome)
            }
            // In words for the model; what was set up wrong is the host's.
            Err(error @ ChildError::Build(_)) => Err(error).tell_model("This agent is not set up right."),
            Err(error) => Ok(ToolOutput::error(error.to_string())),
        }
    }
}

/// What the model reads of an end.
fn said(outcome: ChildOutcome) -> Result<ToolOutput, ToolError> {
    match outcome.status {
        ChildStatus::Completed => {}
        ChildStatus::Failed => {
            let text = outcome.shortfall();
            return match outcome.error {
                Some(error) => Err(error).tell_model(text),
                None => Err(ToolError::new(text)),
            };
        }
        _ => return Ok(ToolOutput::error(outcome.shortfall())),
    }
    if let Some(value) = outcome.output {
        return Ok(ToolOutput::from(value.to_string()).with_structured(value));
    }
    let text = outcome.text;
    Ok(if text.trim().is_empty() { "It ended without a word.".into() } else { text.into() })
}

impl std::fmt::Debug for Spawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawn").field("spec", &self.spec).field("caps", &self.caps).finish_non_exhaustive()
    }
}

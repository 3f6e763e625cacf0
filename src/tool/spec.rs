use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

/// Whether a call may run beside others of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Concurrency {
    /// Beside other shared calls.
    Shared,
    /// Alone: what came before is finished and committed, what comes after waits.
    Exclusive,
}

/// Whether a call whose end was not recorded may run again after a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Repeat {
    /// No: the model is told that the outcome is unknown.
    #[default]
    Never,
    /// Yes, with the same [`idempotency_key`](super::ToolContext::idempotency_key). Right for reads, and for writes that
    /// the other side deduplicates by that key.
    Safe,
}

/// What a tool is called, what it takes, and how it may be run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolSpec {
    /// The canonical name: what sessions, hooks and policies hold. Not blank, unique in an agent.
    pub name: String,
    /// What the model reads to decide whether to call it.
    pub description: String,
    /// JSON Schema of the arguments; its root takes an object. Default: an object without properties.
    pub input_schema: Arc<Value>,
    /// Whether calls may run beside others. Undeclared, the agent decides: `Exclusive`, unless the host said otherwise.
    pub concurrency: Option<Concurrency>,
    /// Whether a call may run again after a crash. Default [`Repeat::Never`].
    pub repeat: Repeat,
    /// How long one call may take; then it is `interrupted`. Default: no limit of its own.
    pub timeout: Option<Duration>,
    /// How long a cancelled body may go on before it is dropped. Default: the agent's (100 ms).
    pub cancel_grace: Option<Duration>,
    /// Ask the provider to hold the model to the schema, where the wire has that. Default false.
    pub strict: bool,
    /// Mark the end of this definition for the provider's prompt cache, where it needs marks. Default false.
    pub cache: bool,
}

impl ToolSpec {
    /// A tool without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: Arc::new(json!({ "type": "object", "properties": {} })),
            concurrency: None,
            repeat: Repeat::Never,
            timeout: None,
            cancel_grace: None,
            strict: false,
            cache: false,
        }
    }

    /// Sets the schema of the arguments.
    #[must_use]
    pub fn input_schema(self, schema: impl Into<Arc<Value>>) -> Self {
        Self { input_schema: schema.into(), ..self }
    }

    /// Declares whether calls may run beside others.
    #[must_use]
    pub fn concurrency(self, concurrency: Concurrency) -> Self {
        Self { concurrency: Some(concurrency), ..self }
    }

    /// Declares whether a call may run again after a crash.
    #[must_use]
    pub fn repeat(self, repeat: Repeat) -> Self {
        Self { repeat, ..self }
    }

    /// Limits how long one call may take.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sets how long a cancelled body may go on.
    #[must_use]
    pub fn cancel_grace(self, grace: Duration) -> Self {
        Self { cancel_grace: Some(grace), ..self }
    }

    /// Asks the provider to hold the model to the schema.
    #[must_use]
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Marks the definition for the provider's prompt cache.
    #[must_use]
    pub fn cache(self, cache: bool) -> Self {
        Self { cache, ..self }
    }
}

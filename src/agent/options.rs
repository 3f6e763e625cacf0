use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Compaction, Limits, OutputSpill};
use crate::provider::{PriceBook, Provider, ProviderErrorKind, RetryPolicy};

/// When steering messages are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SteerMode {
    /// After all calls of the turn are done.
    #[default]
    AfterBatch,
    /// As soon as the calls that run are done; those not started are answered as skipped.
    SkipUnstarted,
}

/// Which calls of a turn may run at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolExecution {
    /// As each tool declares; a tool that declares nothing runs alone.
    #[default]
    Declared,
    /// As each tool declares; a tool that declares nothing runs beside others.
    Parallel,
    /// One after the other, whatever tools declare.
    Sequential,
}

/// What a run does when the tool state cannot be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFailure {
    /// The run fails: an empty state could overwrite good data.
    #[default]
    FailRun,
    /// The run goes on with what this process has; `tool-state:load-failed` fires.
    ContinueEmpty,
}

/// The settings of an agent's loop.
#[derive(Clone)]
pub(super) struct AgentOptions {
    pub(super) max_turns: Option<u32>,
    pub(super) steer_mode: SteerMode,
    pub(super) tool_execution: ToolExecution,
    pub(super) max_parallel_tools: usize,
    pub(super) cancel_grace: Duration,
    pub(super) max_consecutive_failures: u32,
    pub(super) max_pauses: u32,
    pub(super) continue_after_length: bool,
    pub(super) continue_after_empty: bool,
    pub(super) tool_output_budget: Option<usize>,
    pub(super) spill: Option<OutputSpill>,
    pub(super) compaction: Option<Compaction>,
    pub(super) retry: RetryPolicy,
    pub(super) load_failure: LoadFailure,
    pub(super) queue_limit: usize,
    pub(super) limits: Limits,
    pub(super) prices: Arc<PriceBook>,
    pub(super) fallbacks: Vec<Fallback>,
    pub(super) fallback_on: Vec<ProviderErrorKind>,
    pub(super) vision: Option<Fallback>,
    pub(super) drop_refused_reasoning: bool,
    pub(super) trace_content: bool,
}

/// A model to ask when the usual one cannot answer.
#[derive(Clone)]
pub(super) struct Fallback {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) model: String,
}

impl Default for AgentOptions {
    fn default() -> Self {
        Self {
            max_turns: Some(50),
            steer_mode: SteerMode::default(),
            tool_execution: ToolExecution::default(),
            max_parallel_tools: 64,
            cancel_grace: Duration::from_millis(100),
            max_consecutive_failures: 5,
            max_pauses: 8,
            continue_after_length: false,
            continue_after_empty: true,
            tool_output_budget: None,
            spill: None,
            compaction: None,
            retry: RetryPolicy::default(),
            load_failure: LoadFailure::default(),
            queue_limit: 1024,
            limits: Limits::none(),
            prices: Arc::default(),
            fallbacks: Vec::new(),
            fallback_on: vec![
                ProviderErrorKind::Overloaded,
                ProviderErrorKind::Server,
                ProviderErrorKind::RateLimited,
                ProviderErrorKind::Timeout,
                ProviderErrorKind::Transport,
            ],
            vision: None,
            drop_refused_reasoning: true,
            trace_content: false,
        }
    }
}

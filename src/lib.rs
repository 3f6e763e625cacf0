//! An embeddable agent runtime.

pub mod agent;
pub mod clock;
pub mod control;
pub mod durable;
pub mod hooks;
pub mod provider;
mod session;
pub mod testing;
pub mod tool;
pub mod tool_state;
pub mod types;

pub use agent::{
    Agent, AgentBuilder, AgentEvent, AgentStream, BuildError, Run, RunError, RunErrorKind, RunOutcome, StopCause,
};
pub use async_trait::async_trait;
#[cfg(feature = "anthropic")]
pub use provider::Anthropic;
#[cfg(feature = "openai")]
pub use provider::OpenAiChat;
pub use tool::{Tool, ToolContext, ToolError, ToolOutput, TypedTool, tool_fn};

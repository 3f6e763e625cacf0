//! An embeddable agent runtime.
//!
//! A host builds an [`Agent`] from a model provider, tools and hooks, and runs it on prompts:
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use zidane::testing::{Reply, ScriptedProvider};
//! use zidane::tool::{NoInput, tool_fn};
//!
//! let agent = zidane::Agent::builder()
//!     .provider(ScriptedProvider::new([Reply::call("now", serde_json::json!({})), Reply::text("It is noon.")]))
//!     .model("any")
//!     .tool(tool_fn("now", "The time of day", |_: NoInput, _cx| async { Ok("12:00") }))
//!     .build()?;
//! let outcome = agent.run("What time is it?").await?;
//! assert_eq!(outcome.text, "It is noon.");
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! # The house
//!
//! Data flows down one staircase: prompt → agent → provider → stream events → turn → tool dispatch → results →
//! session → next turn. A lower floor knows nothing of the floors above.
//!
//! | floor | rooms | what for |
//! |---|---|---|
//! | 4 | [`agent`] | the builder, runs, the turn loop |
//! | 3 | [`hooks`], [`tool`], [`tool_state`], [`session`], [`control`], [`decision`], [`durable`] | events, tools and their state, conversations that are kept, queues and abort, typed questions to models, engines that record runs |
//! | 2 | [`provider`] | requests, stream events, errors, retry, and the wires, each in a folder of its own |
//! | 1 | [`clock`], [`storage`] | time and ids that land in a session; files and databases as stores use them |
//! | 0 | [`types`] | plain data and pure functions: usage, content, sizes, the transcript check |
//!
//! [`testing`] stands beside the staircase: doubles for everything that would need a network, a key or a clock.
//!
//! # What holds
//!
//! - Whatever ends a run, every tool call has exactly one result, in call order ([`types::validate_transcript`]).
//! - The totals of a run's usage are the fold of its entries, after aborts and failures too ([`types::AgentStats`]).
//! - A session only ever holds canonical tool names; aliases exist on the wire alone.
//! - History is append-only: the messages of a request begin with those of the request before it, byte for byte.
//! - Nothing is unbounded: queues, retries, pauses, parallel calls, event sizes.

pub mod agent;
pub mod clock;
pub mod control;
pub mod decision;
pub mod durable;
pub mod hooks;
pub mod provider;
pub mod session;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod storage;
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
#[cfg(feature = "gemini")]
pub use provider::Gemini;
#[cfg(feature = "openai")]
pub use provider::{OpenAi, OpenAiChat};
pub use tool::{Tool, ToolContext, ToolError, ToolOutput, TypedTool, tool_fn};

/// The README's code, compiled.
#[cfg(all(doctest, feature = "anthropic", feature = "json-schema"))]
#[doc = include_str!("../README.md")]
struct Readme;

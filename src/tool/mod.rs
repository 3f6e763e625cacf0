//! Floor 3: tools.
//!
//! A [`Tool`] has a [`ToolSpec`] that says what it is called, what it takes and how it may be run, and a body that is
//! given the arguments and a [`ToolContext`] and gives a [`ToolOutput`] or a [`ToolError`]. Three ways to make one:
//!
//! - [`tool_fn`] from a closure, and [`tool_fn_blocking`] from one that blocks;
//! - [`TypedTool`] on a type of one's own, with a typed input;
//! - [`Tool`] itself, with JSON in hand; [`tool_fn_value`] is its closure.
//!
//! A [`ToolSet`] is what the agent makes of its tools once: names and aliases looked up by what the model wrote, schemas
//! compiled, definitions ready to be sent. It also turns the model's argument text into the one value that hooks,
//! journal and tool all see.
//!
//! ```
//! use zidane::tool::{NoInput, Repeat, Tool, ToolContext, ToolResultExt, tool_fn};
//!
//! let motd = tool_fn("motd", "The message of the day", |_: NoInput, _cx| async move {
//!     let text = std::env::var("MOTD").tell_model("there is no message today")?;
//!     Ok(text)
//! })
//! .repeat(Repeat::Safe);
//!
//! assert_eq!(motd.spec().name, "motd");
//! ```
//!
//! Nothing here runs a tool, fires a hook or knows a turn: the agent's loop does.

mod closure;
mod context;
mod error;
mod extensions;
mod input;
mod normalise;
mod output;
mod schema_shape;
mod spec;
mod toolset;
mod typed;
mod validate;

use async_trait::async_trait;
use serde_json::Value;

pub use closure::{ToolFn, tool_fn, tool_fn_blocking, tool_fn_value};
pub(crate) use context::{NestedCalls, ToolContextParts};
pub use context::{ToolContext, ToolProgress, ToolUpdate};
pub use error::{ToolError, ToolResultExt};
pub use extensions::Extensions;
pub use input::{NoInput, ToolInput};
pub use output::ToolOutput;
pub use spec::{Concurrency, Repeat, ToolSpec};
pub use toolset::{CompiledTool, ToolSet, ToolSetError};
pub use typed::TypedTool;
pub(crate) use validate::SchemaCheck;
pub use validate::{InvalidArguments, Violation};

pub use crate::tool_state::Settled;

/// Something the model can call.
///
/// Implement it directly when the schema is not known at compile time; otherwise [`tool_fn`] and [`TypedTool`] are
/// shorter.
///
/// The body runs in a task of its own. An abort cancels [`ToolContext::cancel_token`] and, after the tool's grace, drops
/// the body at its next `.await`; a body that blocks its thread instead cannot be bounded and belongs in
/// [`tool_fn_blocking`] or `spawn_blocking`. A panic becomes an error result, and the run goes on.
///
/// ```
/// use serde_json::{Value, json};
/// use zidane::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
///
/// struct Echo;
///
/// #[zidane::async_trait]
/// impl Tool for Echo {
///     fn spec(&self) -> ToolSpec {
///         ToolSpec::new("echo", "Says it again").input_schema(json!({
///             "type": "object",
///             "properties": { "text": { "type": "string" } },
///             "required": ["text"],
///         }))
///     }
///     async fn call(&self, input: Value, _cx: ToolContext) -> Result<ToolOutput, ToolError> {
///         let text = input.get("text").and_then(Value::as_str).ok_or("text is missing")?;
///         Ok(text.into())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    note = "make one with `tool_fn(name, description, |input: MyInput, cx| async move {{ Ok(..) }})`, or implement `TypedTool` or `Tool`"
)]
#[async_trait]
pub trait Tool: Send + Sync {
    /// What the tool is. Asked once, when it is registered.
    fn spec(&self) -> ToolSpec;

    /// Does the work. `input` is an object, normalised and valid by the schema (without the feature `json-schema` only
    /// an object).
    ///
    /// # Errors
    /// The model is told [the error's text](ToolError), and what the body staged in tool state is dropped. An answer
    /// that says no and keeps the staged writes is [`ToolOutput::error`].
    async fn call(&self, input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError>;
}

// Tools are kept as `Arc<dyn Tool>`.
const _: Option<&dyn Tool> = None;

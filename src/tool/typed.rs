use async_trait::async_trait;
use serde_json::Value;

use super::{Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec};

/// A tool as a type of one's own, with typed arguments. Every typed tool is a [`Tool`].
///
/// ```
/// # #[cfg(feature = "json-schema")] {
/// use zidane::tool::{Concurrency, ToolContext, ToolError, ToolOutput, ToolSpec, TypedTool};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add { a: i64, b: i64 }
///
/// struct Adder;
///
/// impl TypedTool for Adder {
///     type Input = Add;
///     const NAME: &'static str = "add";
///     const DESCRIPTION: &'static str = "Add two numbers";
///
///     async fn run(&self, input: Add, _cx: &ToolContext) -> Result<ToolOutput, ToolError> {
///         let sum = input.a.checked_add(input.b).ok_or("the sum is too large")?;
///         Ok(sum.to_string().into())
///     }
///     fn configure(&self, spec: ToolSpec) -> ToolSpec {
///         spec.concurrency(Concurrency::Shared)
///     }
/// }
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a typed tool",
    note = "implement `TypedTool` for it, or make a tool from a closure with `tool_fn`"
)]
pub trait TypedTool: Send + Sync {
    /// The arguments.
    type Input: ToolInput;
    /// The canonical name.
    const NAME: &'static str;
    /// What the model reads to decide whether to call it.
    const DESCRIPTION: &'static str;

    /// Does the work. See [`Tool::call`].
    ///
    /// # Errors
    /// As for [`Tool::call`].
    fn run(&self, input: Self::Input, cx: &ToolContext) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// Changes the spec made of name, description and input: how the tool may be run. Default: as it is.
    fn configure(&self, spec: ToolSpec) -> ToolSpec {
        spec
    }
}

#[async_trait]
impl<T: TypedTool> Tool for T {
    fn spec(&self) -> ToolSpec {
        self.configure(ToolSpec::new(T::NAME, T::DESCRIPTION).input_schema(T::Input::schema()))
    }

    async fn call(&self, input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        self.run(T::Input::parse(input)?, &cx).await
    }
}

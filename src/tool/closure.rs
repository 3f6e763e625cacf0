use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::{Concurrency, Repeat, Tool, ToolContext, ToolError, ToolInput, ToolOutput, ToolSpec};

type BodyFuture = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;
type Body = dyn Fn(Value, ToolContext) -> BodyFuture + Send + Sync;

/// A tool made of a closure. Cloning shares the closure.
#[derive(Clone)]
pub struct ToolFn {
    spec: ToolSpec,
    body: Arc<Body>,
}

/// A tool from an async closure with typed arguments.
///
/// The closure gives anything that becomes a [`ToolOutput`]: text, JSON, blocks, `()`. Its error is a [`ToolError`], into
/// which `?` turns any error and any `&'static str` or `String`.
///
/// ```
/// # #[cfg(feature = "json-schema")] {
/// use zidane::tool::{Concurrency, tool_fn};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Lines {
///     /// A path below the working directory.
///     path: String,
/// }
///
/// let lines = tool_fn("lines", "Counts the lines of a file", |input: Lines, _cx| async move {
///     if input.path.contains("..") {
///         return Err("the path leaves the working directory".into());
///     }
///     let text = tokio::fs::read_to_string(&input.path).await?;
///     Ok(text.lines().count().to_string())
/// })
/// .concurrency(Concurrency::Shared);
/// # }
/// ```
pub fn tool_fn<I, F, Fut, O>(name: impl Into<String>, description: impl Into<String>, body: F) -> ToolFn
where
    I: ToolInput,
    F: Fn(I, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    O: Into<ToolOutput>,
{
    let body = Arc::new(body);
    ToolFn::new(ToolSpec::new(name, description).input_schema(I::schema()), move |input, cx| {
        let body = Arc::clone(&body);
        Box::pin(async move { body(I::parse(input)?, cx).await.map(Into::into) })
    })
}

/// A tool from an async closure that takes its arguments as JSON, with a schema at hand.
///
/// ```
/// use serde_json::json;
/// use zidane::tool::tool_fn_value;
///
/// let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
/// let weather = tool_fn_value("weather", "Current weather of a city", schema, |input, _cx| async move {
///     let city = input.get("city").and_then(|city| city.as_str()).ok_or("/city: text is required")?;
///     Ok(format!("{city}: 21 °C, clear"))
/// });
/// ```
pub fn tool_fn_value<F, Fut, O>(
    name: impl Into<String>,
    description: impl Into<String>,
    input_schema: Value,
    body: F,
) -> ToolFn
where
    F: Fn(Value, ToolContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send,
    O: Into<ToolOutput>,
{
    let body = Arc::new(body);
    ToolFn::new(ToolSpec::new(name, description).input_schema(input_schema), move |input, cx| {
        let body = Arc::clone(&body);
        Box::pin(async move { body(input, cx).await.map(Into::into) })
    })
}

/// A tool from a closure that blocks: file systems, processes, long computations. It runs on tokio's blocking pool, so
/// that streams, timers and aborts of other runs go on.
///
/// A thread cannot be stopped from outside. After an abort the run goes on without the result, while the closure runs to
/// its end unless it looks at [`ToolContext::is_cancelled`]; if it was still waiting for a thread it never starts.
///
/// ```
/// use zidane::tool::{NoInput, tool_fn_blocking};
///
/// let list = tool_fn_blocking("list", "Names of the files here", |_: NoInput, cx| {
///     let mut names = Vec::new();
///     for entry in std::fs::read_dir(".")? {
///         if cx.is_cancelled() {
///             return Err("cancelled".into());
///         }
///         names.push(entry?.file_name().to_string_lossy().into_owned());
///     }
///     Ok(names.join("\n"))
/// });
/// ```
pub fn tool_fn_blocking<I, F, O>(name: impl Into<String>, description: impl Into<String>, body: F) -> ToolFn
where
    I: ToolInput,
    F: Fn(I, ToolContext) -> Result<O, ToolError> + Send + Sync + 'static,
    O: Into<ToolOutput>,
{
    let body = Arc::new(body);
    ToolFn::new(ToolSpec::new(name, description).input_schema(I::schema()), move |input, cx| {
        let body = Arc::clone(&body);
        Box::pin(async move {
            let input = I::parse(input)?;
            let runtime = tokio::runtime::Handle::try_current()?;
            let work = runtime.spawn_blocking(move || body(input, cx).map(Into::into));
            match AbortOnDropHandle::new(work).await {
                Ok(result) => result,
                // The panic goes on in the body's task, where the loop catches it like any other.
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(shut_down) => Err(shut_down.into()),
                },
            }
        })
    })
}

impl ToolFn {
    fn new(spec: ToolSpec, body: impl Fn(Value, ToolContext) -> BodyFuture + Send + Sync + 'static) -> Self {
        Self { spec, body: Arc::new(body) }
    }

    /// Changes the spec: anything that has no method of its own here.
    #[must_use]
    pub fn configure(self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        Self { spec: change(self.spec), body: self.body }
    }

    /// Declares whether calls may run beside others; see [`ToolSpec::concurrency`].
    #[must_use]
    pub fn concurrency(self, concurrency: Concurrency) -> Self {
        self.configure(|spec| spec.concurrency(concurrency))
    }

    /// Declares whether a call may run again after a crash; see [`ToolSpec::repeat`].
    #[must_use]
    pub fn repeat(self, repeat: Repeat) -> Self {
        self.configure(|spec| spec.repeat(repeat))
    }

    /// Limits how long one call may take; see [`ToolSpec::timeout`].
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.configure(|spec| spec.timeout(timeout))
    }
}

// Written out, so that the body's own box is the only one.
impl Tool for ToolFn {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call<'this, 'call>(
        &'this self,
        input: Value,
        cx: ToolContext,
    ) -> Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send + 'call>>
    where
        'this: 'call,
        Self: 'call,
    {
        (self.body)(input, cx)
    }
}

impl std::fmt::Debug for ToolFn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolFn").field("spec", &self.spec).finish_non_exhaustive()
    }
}

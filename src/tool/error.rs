use std::any::Any;
use std::borrow::Cow;
use std::error::Error;

type BoxError = Box<dyn Error + Send + Sync>;

/// A failed tool call: what the model reads, and the cause, which only the host sees.
///
/// - From text (`"no such city".into()`, `Err("no such city")?`, [`new`](Self::new)) the text is what the model reads:
///   it was written for it.
/// - From an error (`?` on any error, `anyhow`'s included) the model reads only that the tool failed. An error's own text
///   may hold paths, addresses or keys, and nobody decided to show it. To say more, use
///   [`tell_model`](ToolResultExt::tell_model) with words of your own, or [`expose`](ToolResultExt::expose) to show it.
///
/// `Display` gives what the model reads; `Debug` and [`source`](Self::source) the cause. It is not itself an
/// [`Error`], so that every error can convert into it.
///
/// ```
/// use zidane::tool::{ToolError, ToolResultExt};
///
/// fn read() -> Result<String, ToolError> {
///     let name = std::env::var("ZIDANE_NO_SUCH_NAME").tell_model("the name is not configured")?;
///     if name.is_empty() {
///         return Err("the name is empty".into());
///     }
///     Ok(std::fs::read_to_string(name)?)
/// }
/// let error = read().unwrap_err();
/// assert_eq!(error.to_string(), "the name is not configured");
/// assert!(error.source().is_some());
/// ```
pub struct ToolError {
    model: Option<Cow<'static, str>>,
    source: Option<BoxError>,
}

impl ToolError {
    /// A failure in words for the model.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self { model: Some(text.into()), source: None }
    }

    /// A failure whose own text the model may read.
    pub fn expose(error: impl Into<BoxError>) -> Self {
        let source = error.into();
        Self { model: Some(source.to_string().into()), source: Some(source) }
    }

    /// The same failure, in these words for the model.
    #[must_use]
    pub fn tell_model(self, text: impl Into<Cow<'static, str>>) -> Self {
        Self { model: Some(text.into()), ..self }
    }

    /// The cause, for the host's logs.
    #[must_use]
    pub fn source(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// What the model reads when it knows the tool by this name.
    pub(crate) fn for_model(&self, name: &str) -> Cow<'_, str> {
        match &self.model {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(format!("The tool `{name}` failed.")),
        }
    }
}

impl std::fmt::Display for ToolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.model.as_deref().unwrap_or("The tool failed."))
    }
}

impl std::fmt::Debug for ToolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolError").field("model", &self.model).field("source", &self.source).finish()
    }
}

/// Text is for the model; of an error the model reads only that the tool failed.
// One impl for both: an impl for text beside one for every `Error` is refused by coherence, and this one also takes
// boxed errors, which are not errors themselves.
impl<E: Into<BoxError> + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut slot = Some(error);
        let any: &mut dyn Any = &mut slot;
        let text = if let Some(text) = any.downcast_mut::<Option<String>>() {
            text.take().map(Cow::Owned)
        } else if let Some(text) = any.downcast_mut::<Option<&'static str>>() {
            text.take().map(Cow::Borrowed)
        } else if let Some(text) = any.downcast_mut::<Option<Cow<'static, str>>>() {
            text.take()
        } else {
            None
        };
        Self { model: text, source: slot.map(Into::into) }
    }
}

/// Says what the model reads of an error, where it happens.
pub trait ToolResultExt<T> {
    /// The model reads this text; the host keeps the error.
    ///
    /// # Errors
    /// The error, in these words for the model.
    fn tell_model(self, text: impl Into<Cow<'static, str>>) -> Result<T, ToolError>;

    /// The model reads the error's own text.
    ///
    /// # Errors
    /// The error, in its own words.
    fn expose(self) -> Result<T, ToolError>;
}

impl<T, E: Into<BoxError>> ToolResultExt<T> for Result<T, E> {
    fn tell_model(self, text: impl Into<Cow<'static, str>>) -> Result<T, ToolError> {
        self.map_err(|error| ToolError { model: Some(text.into()), source: Some(error.into()) })
    }

    fn expose(self) -> Result<T, ToolError> {
        self.map_err(ToolError::expose)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_cause_leaves_the_name_of_the_tool() {
        let error = ToolError::from(std::io::Error::other("10.0.0.7 refused"));
        assert_eq!(error.for_model("Read"), "The tool `Read` failed.");
        assert_eq!(ToolError::from("no such file").for_model("Read"), "no such file");
    }
}

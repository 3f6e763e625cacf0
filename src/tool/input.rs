use serde_json::Value;
#[cfg(not(feature = "json-schema"))]
use serde_json::json;

use super::ToolError;

/// The typed arguments of a tool.
///
/// With the feature `json-schema`, any type that is `Deserialize` and `JsonSchema` is one: the schema the model is held to
/// is derived from the type. Without it, implement this by hand:
///
/// ```
/// # #[cfg(not(feature = "json-schema"))] {
/// use serde_json::{Value, json};
/// use zidane::tool::{ToolError, ToolInput};
///
/// struct Weather { city: String }
///
/// impl ToolInput for Weather {
///     fn schema() -> Value {
///         json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] })
///     }
///     fn parse(value: Value) -> Result<Self, ToolError> {
///         let city = value.get("city").and_then(Value::as_str).ok_or("/city: text is required")?;
///         Ok(Self { city: city.to_owned() })
///     }
/// }
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the input of a tool",
    label = "not a tool input",
    note = "derive `Deserialize` and `JsonSchema` for it: `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "without the feature `json-schema`, implement `ToolInput` by hand"
)]
pub trait ToolInput: Sized + Send + 'static {
    /// JSON Schema of the arguments. Its root takes an object.
    fn schema() -> Value;

    /// Reads the arguments, an object.
    ///
    /// # Errors
    /// The text tells the model what is wrong with its arguments.
    fn parse(value: Value) -> Result<Self, ToolError>;
}

#[cfg(feature = "json-schema")]
impl<T: serde::de::DeserializeOwned + schemars::JsonSchema + Send + 'static> ToolInput for T {
    fn schema() -> Value {
        let mut settings = schemars::generate::SchemaSettings::draft2020_12();
        settings.meta_schema = None;
        let mut schema = settings.into_generator().into_root_schema_for::<T>();
        // The name of a Rust type says nothing to the model.
        schema.remove("title");
        schema.into()
    }

    fn parse(value: Value) -> Result<Self, ToolError> {
        T::deserialize(value).map_err(|error| unreadable(&error))
    }
}

/// The model wrote the arguments, so it may read what is wrong with them.
#[cfg(feature = "json-schema")]
fn unreadable(error: &serde_json::Error) -> ToolError {
    use super::validate::clip;
    ToolError::new(format!("The arguments could not be read: {}.", clip(&error.to_string(), 300)))
}

/// The input of a tool that takes no arguments. Whatever the model sends is ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "json-schema", derive(serde::Deserialize, schemars::JsonSchema))]
#[non_exhaustive]
pub struct NoInput {}

#[cfg(not(feature = "json-schema"))]
impl ToolInput for NoInput {
    fn schema() -> Value {
        json!({ "type": "object", "properties": {} })
    }

    fn parse(_value: Value) -> Result<Self, ToolError> {
        Ok(Self {})
    }
}

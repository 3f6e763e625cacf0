use std::sync::Arc;

use serde_json::Value;

use crate::provider::{OutputSchema, json_of};
use crate::tool::SchemaCheck;

/// What the final answer of a run must be, and how that is checked.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) schema: Arc<OutputSchema>,
    pub(super) check: Arc<SchemaCheck>,
}

impl Output {
    /// What the model is told where the wire cannot hold it to the schema.
    pub(super) fn instruction(&self) -> String {
        format!(
            "When you give your final answer, give only a JSON object that matches this JSON Schema, with no other text \
             around it:\n{}",
            self.schema.schema
        )
    }

    /// The answer as a value that matches the schema, or what is wrong with it in words for the model.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let value = json_of(text)?;
        match self.check.check(&value) {
            Ok(()) => Ok(value),
            // A strict mode writes null for what is not given.
            Err(invalid) => {
                let value = without_nulls(value);
                self.check
                    .check(&value)
                    .map(|()| value)
                    .map_err(|_| format!("The answer does not match the schema:{invalid}"))
            }
        }
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(
            map.into_iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k, without_nulls(v))).collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

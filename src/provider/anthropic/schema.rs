use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::root_schema;

/// Keywords that the API refuses at the root of a tool's schema.
const REFUSED_AT_ROOT: [&str; 3] = ["anyOf", "oneOf", "allOf"];
/// Keywords that strict mode refuses anywhere.
const REFUSED_WHEN_STRICT: [&str; 21] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "prefixItems",
    "$ref",
];
const MAX_DEPTH: usize = 64;

/// A tool's schema as the API takes it.
pub(super) fn lowered(schema: &Value) -> Cow<'_, Value> {
    root_schema::lowered(schema, &REFUSED_AT_ROOT)
}

/// Whether strict mode takes a schema as it is: closed objects, and nothing of what it refuses.
pub(super) fn fits_strict(schema: &Value) -> bool {
    fits(schema, MAX_DEPTH)
}

fn fits(schema: &Value, depth: usize) -> bool {
    let Value::Object(schema) = schema else { return false };
    if depth == 0 || REFUSED_WHEN_STRICT.iter().any(|keyword| schema.contains_key(*keyword)) {
        return false;
    }
    let is_object = schema.get("type").is_some_and(|kind| match kind {
        Value::String(kind) => kind == "object",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    });
    if (is_object || schema.contains_key("properties"))
        && schema.get("additionalProperties") != Some(&Value::Bool(false))
    {
        return false;
    }
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    let variants = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    properties.chain(variants).chain(schema.get("items")).all(|inner| fits(inner, depth - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strict_wants_closed_objects() {
        let closed = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string"}}});
        assert!(fits_strict(&closed));
        assert!(!fits_strict(&json!({"type": "object", "properties": {}})));
        let inner = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"minLength": 1}}});
        assert!(!fits_strict(&inner));
    }
}

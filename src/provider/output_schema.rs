#[cfg(any(feature = "anthropic", feature = "openai"))]
use serde_json::Map;
use serde_json::Value;

/// Keywords that strict output modes refuse, by the vendors' lists of 2026. What they say moves into the description; the
/// answer is checked against the real schema in any case.
#[cfg(any(feature = "anthropic", feature = "openai"))]
const REFUSED: [&str; 20] = [
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
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
];
#[cfg(any(feature = "anthropic", feature = "openai"))]
const MAX_DEPTH: usize = 64;

/// The schema that a model's final answer is held to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OutputSchema {
    /// A name for it: letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// JSON Schema; the root is an object.
    pub schema: Value,
}

impl OutputSchema {
    /// A schema by its name.
    pub fn new(name: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), schema }
    }

    /// The schema as strict output modes take it: every object closed, nothing of what they refuse. With `all_required`,
    /// every property is required, as OpenAI's strict mode wants it, and what was optional may be null.
    #[cfg(any(feature = "anthropic", feature = "openai"))]
    pub(crate) fn closed(&self, all_required: bool) -> Value {
        close(&self.schema, all_required, MAX_DEPTH)
    }
}

#[cfg(any(feature = "anthropic", feature = "openai"))]
fn close(schema: &Value, all_required: bool, depth: usize) -> Value {
    let Value::Object(map) = schema else { return schema.clone() };
    // Deeper than any wire takes: what is left out is still checked.
    let Some(depth) = depth.checked_sub(1) else { return Value::Object(Map::new()) };
    let inner = |value: &Value| close(value, all_required, depth);
    let each = |value: &Value| match value {
        Value::Object(map) => Value::Object(map.iter().map(|(name, value)| (name.clone(), inner(value))).collect()),
        other => other.clone(),
    };
    let list = |value: &Value| match value {
        Value::Array(items) => Value::Array(items.iter().map(inner).collect()),
        other => other.clone(),
    };
    let mut out = Map::new();
    let mut notes = Vec::new();
    for (key, value) in map {
        match key.as_str() {
            "properties" | "$defs" | "definitions" => drop(out.insert(key.clone(), each(value))),
            "items" | "additionalItems" | "contains" => drop(out.insert(key.clone(), inner(value))),
            "anyOf" | "allOf" => drop(out.insert(key.clone(), list(value))),
            // Both modes read alternatives as `anyOf` only.
            "oneOf" => drop(out.insert("anyOf".to_owned(), list(value))),
            "const" => drop(out.insert("enum".to_owned(), Value::Array(vec![value.clone()]))),
            "$schema" | "$id" | "default" | "examples" => {}
            refused if REFUSED.contains(&refused) => notes.push(format!("{key}: {value}")),
            _ => drop(out.insert(key.clone(), value.clone())),
        }
    }
    if !notes.is_empty() {
        let said = out.get("description").and_then(Value::as_str).unwrap_or_default();
        let description = format!("{said} ({})", notes.join(", "));
        out.insert("description".to_owned(), description.trim().into());
    }
    let is_object = out.contains_key("properties") || out.get("type").is_some_and(|kind| *kind == "object");
    if is_object {
        out.insert("additionalProperties".to_owned(), Value::Bool(false));
        if all_required {
            require_all(&mut out);
        }
    }
    Value::Object(out)
}

#[cfg(any(feature = "anthropic", feature = "openai"))]
fn require_all(object: &mut Map<String, Value>) {
    let required: Vec<Value> = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties.iter_mut() {
        if !required.iter().any(|required| required.as_str() == Some(name)) {
            let own = std::mem::take(property);
            *property = serde_json::json!({ "anyOf": [own, { "type": "null" }] });
        }
    }
    let names: Vec<Value> = properties.keys().cloned().map(Value::String).collect();
    object.insert("required".to_owned(), Value::Array(names));
}

#[cfg(all(test, any(feature = "anthropic", feature = "openai")))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_closed_and_what_is_refused_is_said_in_words() {
        let schema = OutputSchema::new(
            "x",
            json!({
                "$schema": "s",
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 1, "description": "A number"}, "o": {"$ref": "#/$defs/O"}},
                "required": ["n"],
                "$defs": {"O": {"type": "object", "properties": {"k": {"const": "a"}}}}
            }),
        );
        let closed = schema.closed(false);
        assert_eq!(closed["additionalProperties"], false);
        assert_eq!(closed["$defs"]["O"]["additionalProperties"], false);
        assert_eq!(closed["$defs"]["O"]["properties"]["k"]["enum"], json!(["a"]));
        assert_eq!(closed["properties"]["n"], json!({"type": "integer", "description": "A number (minimum: 1)"}));
        assert_eq!(closed["required"], json!(["n"]));
        let strict = schema.closed(true);
        assert_eq!(strict["required"], json!(["n", "o"]));
        assert_eq!(strict["properties"]["o"], json!({"anyOf": [{"$ref": "#/$defs/O"}, {"type": "null"}]}));
    }

    #[test]
    fn depth_is_bounded() {
        let mut schema = json!({});
        for _ in 0..100 {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let _ = OutputSchema::new("deep", schema).closed(true);
    }
}

use std::borrow::Cow;

use serde_json::{Map, Value, json};

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

/// A tool's schema as the API takes it: an object at the root, without alternatives there. Their properties stay
/// visible, and what they said goes into the description; the arguments are checked against the real schema anyway.
pub(super) fn lowered(schema: &Value) -> Cow<'_, Value> {
    let Value::Object(root) = schema else { return Cow::Owned(json!({"type": "object"})) };
    let is_object = root.get("type").and_then(Value::as_str) == Some("object");
    if is_object && !REFUSED_AT_ROOT.iter().any(|keyword| root.contains_key(*keyword)) {
        return Cow::Borrowed(schema);
    }
    let mut lowered = root.clone();
    lowered.insert("type".into(), "object".into());
    for keyword in REFUSED_AT_ROOT {
        let Some(variants) = lowered.remove(keyword) else { continue };
        for variant in variants.as_array().into_iter().flatten() {
            adopt(&mut lowered, variant, keyword == "allOf");
        }
        let note = format!("{keyword}: {variants}");
        let description = match lowered.get("description").and_then(Value::as_str) {
            Some(text) if !text.trim().is_empty() => format!("{text}\n{note}"),
            _ => note,
        };
        lowered.insert("description".into(), description.into());
    }
    Cow::Owned(Value::Object(lowered))
}

fn adopt(root: &mut Map<String, Value>, variant: &Value, binding: bool) {
    if let Some(properties) = variant.get("properties").and_then(Value::as_object)
        && let Some(own) = root.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    {
        for (name, property) in properties {
            own.entry(name.clone()).or_insert_with(|| property.clone());
        }
    }
    if binding
        && let Some(required) = variant.get("required").and_then(Value::as_array)
        && let Some(own) = root.entry("required").or_insert_with(|| json!([])).as_array_mut()
    {
        for name in required {
            if !own.contains(name) {
                own.push(name.clone());
            }
        }
    }
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
    use super::*;

    #[test]
    fn a_plain_object_is_not_touched() {
        let schema = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        assert!(matches!(lowered(&schema), Cow::Borrowed(_)));
    }

    #[test]
    fn alternatives_at_the_root_move_into_the_description() {
        let schema = json!({
            "oneOf": [
                {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
                {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]},
            ],
            "allOf": [{"required": ["z"], "properties": {"z": {}}}],
        });
        let lowered = lowered(&schema);
        assert_eq!(lowered["type"], "object");
        assert!(REFUSED_AT_ROOT.iter().all(|keyword| lowered.get(keyword).is_none()));
        assert_eq!(lowered["properties"], json!({"x": {"type": "integer"}, "y": {"type": "integer"}, "z": {}}));
        assert_eq!(lowered["required"], json!(["z"]));
        assert!(lowered["description"].as_str().unwrap().contains(r#"oneOf: [{"properties":{"x""#));
    }

    #[test]
    fn anything_else_becomes_an_object() {
        for schema in [json!(true), json!({}), json!({"type": "string"})] {
            assert_eq!(lowered(&schema)["type"], "object");
        }
    }

    #[test]
    fn strict_wants_closed_objects() {
        let closed = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string"}}});
        assert!(fits_strict(&closed));
        assert!(!fits_strict(&json!({"type": "object", "properties": {}})));
        let inner = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"minLength": 1}}});
        assert!(!fits_strict(&inner));
    }
}

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::provider::root_schema;

/// Keywords that the API refuses at the root of a tool's schema.
const REFUSED_AT_ROOT: [&str; 5] = ["anyOf", "oneOf", "allOf", "enum", "not"];
/// Keywords that strict mode refuses anywhere, or is not known to take.
const REFUSED_WHEN_STRICT: [&str; 20] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "uniqueItems",
    "contains",
    "prefixItems",
    "default",
    "examples",
];
/// The levels of nesting that strict mode takes.
const MAX_STRICT_DEPTH: usize = 10;

/// Whether the API refuses a tool's schema for its root.
pub(super) fn has_refused_root(schema: &Value) -> bool {
    let is_object = schema.get("type").and_then(Value::as_str) == Some("object");
    !is_object || REFUSED_AT_ROOT.iter().any(|keyword| schema.get(keyword).is_some())
}

/// A tool's schema as the API takes it: an object with properties at the root.
pub(in crate::provider) fn lowered(schema: &Value) -> Cow<'_, Value> {
    let mut lowered = root_schema::lowered(schema, &REFUSED_AT_ROOT);
    let lacks = |schema: &Value| schema.get("properties").is_none() && schema.get("$ref").is_none();
    if lacks(&lowered)
        && let Some(root) = lowered.to_mut().as_object_mut()
    {
        root.insert("properties".into(), json!({}));
    }
    lowered
}

/// Whether strict mode takes a schema as it is: closed objects all of whose properties are required, and nothing of
/// what it refuses.
pub(in crate::provider) fn fits_strict(schema: &Value) -> bool {
    !has_refused_root(schema) && fits(schema, MAX_STRICT_DEPTH)
}

fn fits(schema: &Value, depth: usize) -> bool {
    let Value::Object(schema) = schema else { return false };
    let says_something = ["type", "anyOf", "$ref", "enum", "const"].iter().any(|keyword| schema.contains_key(*keyword));
    if depth == 0 || !says_something || REFUSED_WHEN_STRICT.iter().any(|keyword| schema.contains_key(*keyword)) {
        return false;
    }
    let is_object = schema.get("type").is_some_and(|kind| match kind {
        Value::String(kind) => kind == "object",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        _ => false,
    });
    if (is_object || schema.contains_key("properties")) && !is_closed(schema) {
        return false;
    }
    let inside = |keyword: &str| schema.get(keyword).and_then(Value::as_object).into_iter().flat_map(Map::values);
    let variants = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let inner = inside("properties").chain(inside("$defs")).chain(inside("definitions"));
    inner.chain(variants).chain(schema.get("items")).all(|inner| fits(inner, depth.saturating_sub(1)))
}

/// Nothing but the properties, and all of them.
fn is_closed(schema: &Map<String, Value>) -> bool {
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut names = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && names.all(|name| required.iter().any(|known| known == name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_an_object_with_properties() {
        let fine = json!({"type": "object", "properties": {"a": {"enum": ["x"]}}});
        assert!(matches!(lowered(&fine), Cow::Borrowed(_)));
        for schema in [json!(true), json!({}), json!({"type": "object"}), json!({"enum": ["a"]})] {
            let lowered = lowered(&schema);
            assert_eq!((&lowered["type"], &lowered["properties"]), (&json!("object"), &json!({})), "{schema}");
        }
        let variants = json!({"anyOf": [{"properties": {"a": {"type": "string"}}}]});
        assert_eq!(lowered(&variants)["properties"], json!({"a": {"type": "string"}}));
    }

    #[test]
    fn strict_wants_closed_objects_with_everything_required() {
        let of = |properties: Value, required: Value| json!({"type": "object", "additionalProperties": false, "properties": properties, "required": required});
        assert!(fits_strict(&of(json!({"a": {"type": ["string", "null"]}}), json!(["a"]))));
        assert!(fits_strict(&of(json!({}), json!([]))));
        assert!(!fits_strict(&of(json!({"a": {"type": "string"}}), json!([]))), "optional");
        assert!(!fits_strict(&of(json!({"a": {"minLength": 1, "type": "string"}}), json!(["a"]))));
        assert!(!fits_strict(&of(json!({"a": {}}), json!(["a"]))), "anything at all");
        assert!(!fits_strict(&json!({"type": "object", "properties": {}})), "open");
        let mut deep = json!({"type": "string"});
        for _ in 0..20 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(!fits_strict(&of(json!({"a": deep}), json!(["a"]))), "too deep");
        let cycle = json!({"$ref": "#/$defs/node"});
        let mut root = of(json!({"a": cycle}), json!(["a"]));
        root["$defs"] = json!({"node": of(json!({"next": {"anyOf": [cycle, {"type": "null"}]}}), json!(["next"]))});
        assert!(fits_strict(&root), "recursion is fine");
    }
}

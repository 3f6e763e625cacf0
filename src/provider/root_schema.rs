//! The root of a tool's schema, where APIs take less than inside it.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// A tool's schema with an object at the root, and without the `refused` keywords there. The properties of alternatives
/// stay visible, and what was removed goes into the description; the arguments are checked against the real schema
/// anyway.
pub(crate) fn lowered<'a>(schema: &'a Value, refused: &[&str]) -> Cow<'a, Value> {
    let Value::Object(root) = schema else { return Cow::Owned(json!({"type": "object"})) };
    let is_object = root.get("type").and_then(Value::as_str) == Some("object");
    if is_object && !refused.iter().any(|keyword| root.contains_key(*keyword)) {
        return Cow::Borrowed(schema);
    }
    let mut lowered = root.clone();
    lowered.insert("type".into(), "object".into());
    for keyword in refused {
        let Some(variants) = lowered.remove(*keyword) else { continue };
        for variant in variants.as_array().into_iter().flatten() {
            adopt(&mut lowered, variant, *keyword == "allOf");
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

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: [&str; 3] = ["anyOf", "oneOf", "allOf"];

    #[test]
    fn a_plain_object_is_not_touched() {
        let schema = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        assert!(matches!(lowered(&schema, &REFUSED), Cow::Borrowed(_)));
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
        let lowered = lowered(&schema, &REFUSED);
        assert_eq!(lowered["type"], "object");
        assert!(REFUSED.iter().all(|keyword| lowered.get(keyword).is_none()));
        assert_eq!(lowered["properties"], json!({"x": {"type": "integer"}, "y": {"type": "integer"}, "z": {}}));
        assert_eq!(lowered["required"], json!(["z"]));
        assert!(lowered["description"].as_str().unwrap().contains(r#"oneOf: [{"properties":{"x""#));
    }

    #[test]
    fn anything_else_becomes_an_object() {
        for schema in [json!(true), json!({}), json!({"type": "string"})] {
            assert_eq!(lowered(&schema, &REFUSED)["type"], "object");
        }
    }
}

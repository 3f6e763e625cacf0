//! Tool schemas in the part of JSON Schema that the API takes: what it cannot say goes into the description. Arguments
//! are checked against the original anyway. Source: the vendor's list of keywords, 2026-11; the result also fits the
//! narrower list of the older field, so that every model and gateway reads it.

use serde_json::{Map, Value, json};

/// Deeper schemas are cut: the API stops far sooner.
const MAX_DEPTH: usize = 24;
/// References can multiply; beyond this many objects a schema is cut.
const MAX_NODES: usize = 4_000;
const MAX_NOTE: usize = 400;

/// Said as they are.
const KEPT: [&str; 7] = ["title", "minimum", "maximum", "minItems", "maxItems", "nullable", "propertyOrdering"];
/// Of no meaning to a model.
const DROPPED: [&str; 10] = [
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "$comment",
    "$anchor",
    "$ref",
    "contentEncoding",
    "contentMediaType",
    "deprecated",
];
const FORMATS: [&str; 7] = ["date-time", "date", "time", "int32", "int64", "float", "double"];

/// A tool's schema as it is declared. `None` for a tool without arguments, which is declared without one.
pub(super) fn lowered(schema: &Value) -> Option<Value> {
    let mut lowering = Lowering { root: schema, nodes: 0, refs: Vec::new() };
    let mut lowered = lowering.schema(schema, MAX_DEPTH);
    // The root is an object: alternatives there are brought together, and what they said is in the description.
    let mut notes = Vec::new();
    if let Some(Value::Array(variants)) = lowered.remove("anyOf") {
        for variant in &variants {
            adopt(&mut lowered, variant);
        }
        notes.push(format!("any of: {}", Value::Array(variants)));
    }
    lowered.insert("type".into(), "object".into());
    for keyword in ["enum", "items", "format", "nullable"] {
        lowered.remove(keyword);
    }
    note(&mut lowered, &notes);
    let has_properties = lowered.get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
    has_properties.then_some(Value::Object(lowered))
}

struct Lowering<'a> {
    root: &'a Value,
    nodes: usize,
    /// The references that are being followed.
    refs: Vec<&'a str>,
}

impl<'a> Lowering<'a> {
    fn schema(&mut self, schema: &'a Value, depth: usize) -> Map<String, Value> {
        self.nodes = self.nodes.saturating_add(1);
        let Value::Object(fields) = schema else { return Map::new() };
        if depth == 0 || self.nodes > MAX_NODES {
            return cut(fields);
        }
        let Some(reference) = fields.get("$ref").and_then(Value::as_str) else { return self.object(fields, depth) };
        let target = (!self.refs.contains(&reference)).then(|| resolve(self.root, reference)).flatten();
        let mut lowered = match target {
            Some(target) => {
                self.refs.push(reference);
                let lowered = self.schema(target, depth - 1);
                self.refs.pop();
                lowered
            }
            // A cycle, or nothing: an object is the likeliest.
            None => cut(&Map::new()),
        };
        // What stands beside a reference wins.
        let own = self.object(fields, depth);
        merge(&mut lowered, own);
        lowered
    }

    fn object(&mut self, fields: &'a Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut out = Map::new();
        let mut notes = Vec::new();
        if let Some(description) = fields.get("description").and_then(Value::as_str) {
            out.insert("description".into(), description.into());
        }
        for (keyword, value) in fields {
            match keyword.as_str() {
                "description" => {}
                "type" => _ = out.insert(keyword.clone(), value.clone()),
                "properties" => {
                    let properties = value.as_object().into_iter().flatten();
                    let lowered: Map<_, _> = properties
                        .map(|(name, inner)| (name.clone(), Value::Object(self.schema(inner, depth - 1))))
                        .collect();
                    if !lowered.is_empty() {
                        out.insert(keyword.clone(), Value::Object(lowered));
                    }
                }
                "items" if value.is_object() => {
                    out.insert(keyword.clone(), Value::Object(self.schema(value, depth - 1)));
                }
                "anyOf" | "oneOf" => {
                    let variants = value.as_array().into_iter().flatten();
                    let lowered: Vec<_> = variants.map(|inner| Value::Object(self.schema(inner, depth - 1))).collect();
                    match out.get_mut("anyOf").and_then(Value::as_array_mut) {
                        Some(_) => notes.push(format!("{keyword}: {}", Value::Array(lowered))),
                        None => _ = out.insert("anyOf".into(), Value::Array(lowered)),
                    }
                }
                "allOf" => {
                    for inner in value.as_array().into_iter().flatten() {
                        let inner = self.schema(inner, depth - 1);
                        merge(&mut out, inner);
                    }
                }
                "const" => constant(&mut out, value, &mut notes),
                "enum" => choices(&mut out, value, &mut notes),
                "format" if value.as_str().is_some_and(|format| FORMATS.contains(&format)) => {
                    out.insert(keyword.clone(), value.clone());
                }
                "required" => merge_required(&mut out, value),
                "additionalProperties" if value.is_boolean() => {}
                kept if KEPT.contains(&kept) => _ = out.insert(keyword.clone(), value.clone()),
                dropped if DROPPED.contains(&dropped) || dropped.starts_with("x-") => {}
                _ => notes.push(format!("{keyword}: {value}")),
            }
        }
        settle(&mut out);
        note(&mut out, &notes);
        out
    }
}

/// What remains of a schema that is not followed further.
fn cut(fields: &Map<String, Value>) -> Map<String, Value> {
    let kind = fields.get("type").filter(|kind| kind.is_string()).cloned().unwrap_or_else(|| "object".into());
    let mut out = Map::new();
    if kind == "array" {
        out.insert("items".into(), json!({}));
    }
    out.insert("type".into(), kind);
    out
}

/// The value behind a local reference: `#`, `#/$defs/T`, `#/properties/a`.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(&pointer.replace("%24", "$").replace("%20", " "))
}

/// Only strings can be listed; a constant of another type is told in words.
fn constant(out: &mut Map<String, Value>, value: &Value, notes: &mut Vec<String>) {
    match value {
        Value::String(text) if !text.is_empty() => {
            out.insert("type".into(), "string".into());
            out.insert("enum".into(), json!([text]));
        }
        other => {
            out.entry("type").or_insert_with(|| type_of(other).into());
            notes.push(format!("always {other}"));
        }
    }
}

fn choices(out: &mut Map<String, Value>, value: &Value, notes: &mut Vec<String>) {
    let Some(values) = value.as_array().filter(|values| !values.is_empty()) else { return };
    let texts: Vec<_> = values.iter().filter(|value| value.as_str().is_some_and(|text| !text.is_empty())).collect();
    let others = values.iter().find(|value| !value.is_string() && !value.is_null());
    if others.is_some() || texts.is_empty() {
        let kind = others.map_or("string", type_of);
        out.entry("type").or_insert_with(|| kind.into());
        notes.push(format!("one of {value}"));
        return;
    }
    if values.iter().any(Value::is_null) {
        out.insert("type".into(), json!(["string", "null"]));
    } else {
        out.entry("type").or_insert_with(|| "string".into());
    }
    if texts.len() < values.len() {
        notes.push(format!("one of {value}"));
    }
    out.insert("enum".into(), texts.into_iter().cloned().collect());
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_i64() || number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Brings what two schemas demand together. Fields of the second win, but for properties, which are joined.
fn merge(out: &mut Map<String, Value>, other: Map<String, Value>) {
    for (keyword, value) in other {
        match (keyword.as_str(), out.get_mut(&keyword), value) {
            ("properties", Some(Value::Object(own)), Value::Object(theirs)) => own.extend(theirs),
            ("required", Some(_), value) => merge_required(out, &value),
            ("description", Some(Value::String(own)), Value::String(theirs)) if !own.contains(&theirs) => {
                *own = format!("{theirs}\n{own}");
            }
            ("description", Some(_), _) => {}
            (_, _, value) => _ = out.insert(keyword, value),
        }
    }
}

fn merge_required(out: &mut Map<String, Value>, names: &Value) {
    let own = out.entry("required").or_insert_with(|| json!([]));
    let Some(own) = own.as_array_mut() else { return };
    for name in names.as_array().into_iter().flatten().filter(|name| name.is_string()) {
        if !own.contains(name) {
            own.push(name.clone());
        }
    }
}

/// The properties of one alternative. None of them is required in all.
fn adopt(root: &mut Map<String, Value>, variant: &Value) {
    if let Some(properties) = variant.get("properties").and_then(Value::as_object)
        && let Some(own) = root.entry("properties").or_insert_with(|| json!({})).as_object_mut()
    {
        for (name, property) in properties {
            own.entry(name.clone()).or_insert_with(|| property.clone());
        }
    }
}

/// What the API refuses in combination: required names without a property, lists without items, `enum` on other types.
fn settle(out: &mut Map<String, Value>) {
    if let Some(Value::Array(mut names)) = out.remove("required") {
        if let Some(properties) = out.get("properties").and_then(Value::as_object) {
            names.retain(|name| name.as_str().is_some_and(|name| properties.contains_key(name)));
        }
        if !names.is_empty() {
            out.insert("required".into(), names.into());
        }
    }
    let is = |kind: &str| match out.get("type") {
        Some(Value::String(own)) => own == kind,
        Some(Value::Array(own)) => own.iter().any(|own| own == kind),
        _ => false,
    };
    let (list, text) = (is("array"), is("string"));
    if list && !out.contains_key("items") {
        out.insert("items".into(), json!({}));
    }
    if !text {
        out.remove("enum");
    }
}

/// Adds what could not be said otherwise to the description.
fn note(out: &mut Map<String, Value>, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let mut text = notes.join("; ");
    if text.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    let description = match out.get("description").and_then(Value::as_str).filter(|own| !own.trim().is_empty()) {
        Some(own) => format!("{own}\n({text})"),
        None => format!("({text})"),
    };
    out.insert("description".into(), description.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(value: &Value, found: &mut Vec<String>, inside_properties: bool) {
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    if !inside_properties {
                        found.push(name.clone());
                    }
                    keys(inner, found, name == "properties" && !inside_properties);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found, false)),
            _ => {}
        }
    }

    #[test]
    fn no_refused_keyword_is_left_at_any_depth() {
        let schema = json!({
            "$schema": "x", "type": "object", "additionalProperties": false, "required": ["kind", "gone"],
            "properties": {
                "kind": {"const": "a"}, "n": {"const": 3}, "e": {"enum": ["a", "", null]}, "num": {"enum": [1, 2]},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"$ref": "#/properties/map"}},
                "bare": {"type": "array"},
                "target": {"oneOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]},
                "all": {"allOf": [{"$ref": "#/$defs/T"}, {"required": ["id"]}], "description": "both"},
                "text": {"type": "string", "minLength": 1, "pattern": "^a", "format": "uri"},
                "when": {"type": ["string", "null"], "format": "date-time"},
                "any": true,
            },
            "$defs": {"T": {"type": "object", "properties": {"id": {"type": "integer", "format": "uint8"}}}},
        });
        let lowered = lowered(&schema).unwrap();
        let mut found = Vec::new();
        keys(&lowered, &mut found, false);
        for refused in ["$ref", "$defs", "$schema", "const", "oneOf", "allOf", "additionalProperties", "pattern"] {
            assert!(!found.iter().any(|key| key == refused), "{refused} in {lowered}");
        }
        let at = |pointer: &str| lowered.pointer(pointer).cloned().unwrap_or_default();
        assert_eq!(at("/required"), json!(["kind"]));
        assert_eq!(at("/properties/kind/enum"), json!(["a"]));
        assert_eq!(at("/properties/n"), json!({"type": "integer", "description": "(always 3)"}));
        assert_eq!(at("/properties/e/enum"), json!(["a"]));
        assert_eq!(at("/properties/num"), json!({"type": "integer", "description": "(one of [1,2])"}));
        assert_eq!(at("/properties/list/items/type"), "object");
        assert_eq!(at("/properties/bare/items"), json!({}));
        assert_eq!(at("/properties/target/anyOf/0/properties/id/type"), "integer");
        assert_eq!(at("/properties/all/required"), json!(["id"]));
        assert!(at("/properties/text/description").as_str().unwrap().contains("pattern: \"^a\""));
        assert_eq!(at("/properties/when/format"), "date-time");
    }

    #[test]
    fn cycles_and_multiplying_references_end() {
        let cyclic = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "list": {"$ref": "#/nowhere"}}});
        let lowered_cyclic = lowered(&cyclic).unwrap();
        assert_eq!(lowered_cyclic.pointer("/properties/next/properties/next/type"), Some(&json!("object")));
        let mut defs = Map::new();
        for level in 0..30 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({"type": "object", "properties": {"a": next, "b": next}}));
        }
        let bomb = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs});
        assert!(lowered(&bomb).unwrap().to_string().len() < 2_000_000);
        let deep =
            (0..500).fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}));
        assert!(lowered(&deep).is_some());
    }

    #[test]
    fn alternatives_at_the_root_become_optional_properties() {
        let schema = json!({"oneOf": [
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
            {"type": "object", "properties": {"y": {"type": "integer"}}, "required": ["y"]},
        ]});
        let lowered = lowered(&schema).unwrap();
        assert_eq!(lowered["type"], "object");
        assert_eq!(lowered["properties"], json!({"x": {"type": "integer"}, "y": {"type": "integer"}}));
        assert!(lowered.get("anyOf").is_none() && lowered["description"].as_str().unwrap().contains("any of"));
    }

    #[test]
    fn a_tool_without_arguments_has_no_schema() {
        for schema in [json!({}), json!(true), json!({"type": "object", "properties": {}}), json!({"type": "string"})] {
            assert_eq!(lowered(&schema), None);
        }
    }
}

//! Whatever schema and arguments: preparing ends, keeps what is valid valid, and a second time changes nothing.
#![cfg(feature = "json-schema")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use zidane::tool::{CompiledTool, tool_fn_value};

const KEYS: [&str; 4] = ["a", "b", "c", "kind"];

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(&KEYS[..]).prop_map(str::to_owned)
}

/// Values that mean something to the schemas below: whole floats, nulls, empty strings, JSON in strings.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3_i64..3).prop_map(Value::from),
        (-3_i32..3).prop_map(|n| json!(f64::from(n))),
        Just(json!(1.5)),
        Just(json!(1e300)),
        prop::sample::select(&["", "x", "kind", "{}", "[]", "[1.0]", "{\"a\":null}", "{oops", "null", "5"][..])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner.clone(), 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            inner.prop_map(|value| Value::String(value.to_string())),
        ]
    })
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop::sample::select(&["null", "boolean", "integer", "number", "string", "array", "object"][..])
            .prop_map(|name| json!({ "type": name })),
        prop::collection::vec(prop::sample::select(&["null", "integer", "string", "object"][..]), 1..3).prop_map(
            |mut names| {
                names.sort_unstable();
                names.dedup();
                json!({ "type": names })
            }
        ),
        Just(json!({"$ref": "#"})),
        Just(json!({"$ref": "#/$defs/d"})),
        Just(json!({"const": "kind"})),
        Just(json!({"const": 1})),
        Just(json!({"enum": ["x", 1.0, null]})),
        Just(json!({"type": "string", "minLength": 1})),
        any::<bool>().prop_map(Value::from),
        Just(json!({})),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            (
                prop::collection::btree_map(key(), inner.clone(), 0..4),
                prop::collection::btree_set(key(), 0..2),
                prop::option::of(inner.clone()),
                any::<bool>(),
            )
                .prop_map(|(properties, required, additional, typed)| {
                    let mut schema = Map::new();
                    if typed {
                        schema.insert("type".into(), "object".into());
                    }
                    schema.insert("properties".into(), properties.into_iter().collect::<Map<_, _>>().into());
                    schema.insert("required".into(), required.into_iter().collect::<Vec<_>>().into());
                    if let Some(additional) = additional {
                        schema.insert("additionalProperties".into(), additional);
                    }
                    Value::Object(schema)
                }),
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            (list.clone(), inner.clone()).prop_map(|(prefix, items)| json!({ "prefixItems": prefix, "items": items })),
            list.clone().prop_map(|list| json!({ "anyOf": list })),
            list.clone().prop_map(|list| json!({ "oneOf": list })),
            list.prop_map(|list| json!({ "allOf": list })),
            inner.prop_map(|not| json!({ "not": not })),
        ]
    })
}

fn root() -> impl Strategy<Value = Value> {
    (prop::collection::btree_map(key(), schema(), 0..4), prop::collection::btree_set(key(), 0..2), schema(), schema())
        .prop_map(|(properties, required, def, also)| {
            json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "allOf": [also],
                "$defs": { "d": def },
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn preparing_keeps_what_is_valid_and_settles(schema in root(), argument in value()) {
        let tool = tool_fn_value("t", "d", schema, |_, _cx| async move { Ok(()) });
        // A root that can take no object is refused when the tool is registered.
        let Ok(tool) = CompiledTool::compile(Arc::new(tool)) else { return Ok(()) };
        let was_valid = tool.check(&argument).is_ok();
        let prepared = tool.prepare(&argument.to_string());
        if was_valid {
            prop_assert!(prepared.is_ok(), "valid as it was: {prepared:?}");
        }
        if let Ok(once) = prepared {
            prop_assert!(tool.check(&once).is_ok());
            prop_assert_eq!(tool.prepare_value(once.clone()).unwrap(), once.clone());
            prop_assert_eq!(tool.prepare(&once.to_string()).unwrap(), once);
        }
    }

    #[test]
    fn any_text_is_answered(raw in "\\PC{0,40}|[\\[\\]{}\",:0-9ntf \\\\]{0,40}") {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        let tool = tool_fn_value("t", "d", schema, |_, _cx| async move { Ok(()) });
        let tool = CompiledTool::compile(Arc::new(tool)).unwrap();
        match tool.prepare(&raw) {
            Ok(value) => prop_assert!(value.is_object()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

//! Cases with one expectation changed, to see that it is looked at.

use serde_json::{Value, json};

use super::case::Case;

/// Every case that differs from this one in one expected value, with the place of the change.
pub fn mutations(case: &Case) -> Vec<(String, Case)> {
    let mut places = Vec::new();
    find(&case.json, String::new(), false, &mut places);
    places
        .into_iter()
        .map(|place| {
            let mut json = case.json.clone();
            let key = place.rsplit('/').next().unwrap_or_default().to_owned();
            let value = json.pointer_mut(&place).unwrap();
            *value = other(&key, value);
            (place, Case { json, ..case.clone() })
        })
        .collect()
}

/// What goes in, lists of what must not be there (anything else is not there either), and background.
const SKIPPED: [&str; 10] = [
    "chunks",
    "history",
    "absent_block_types",
    "root_forbidden",
    "path_absent",
    "forbidden_keys_anywhere",
    "no_object_key_anywhere",
    "never_contains",
    "not_committed",
    "table_of_legal_orders",
];

/// The leaves of what is expected, as JSON pointers.
fn find(value: &Value, place: String, expected: bool, places: &mut Vec<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map.iter().filter(|(key, _)| !SKIPPED.contains(&key.as_str())) {
                let place = format!("{place}/{}", key.replace('~', "~0").replace('/', "~1"));
                find(value, place, expected || is_expected(key), places);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, value) in items.iter().enumerate() {
                find(value, format!("{place}/{index}"), expected, places);
            }
        }
        _ if expected => places.push(place),
        _ => {}
    }
}

fn is_expected(key: &str) -> bool {
    const EXPECTED: [&str; 13] = [
        "expect",
        "expect_cost",
        "request_expect",
        "class",
        "retried",
        "delay",
        "delay_ms",
        "valid",
        "normalised",
        "media_type",
        "lower",
        "kept",
        "asserts",
    ];
    EXPECTED.contains(&key)
}

/// Something else of the same kind. A lower bound becomes one that nothing comes to, an upper bound becomes one that nothing keeps to.
fn other(key: &str, value: &Value) -> Value {
    let is_bound = key.ends_with("_ms") && key != "delay_ms" || key.ends_with("_at_most");
    match value {
        Value::Number(_) if key.ends_with("_at_least") => json!(1_000_000),
        Value::Number(_) if is_bound => json!(0),
        Value::Number(number) => json!(number.as_i64().unwrap_or(0) + 1),
        Value::String(text) => json!(format!("{text}~")),
        Value::Bool(is) => json!(!is),
        Value::Null => json!("~"),
        Value::Array(_) => json!(["~"]),
        Value::Object(_) => json!({ "~": 1 }),
    }
}

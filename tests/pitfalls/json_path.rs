//! Paths such as `messages[2].content[0].is_error`.

use serde_json::Value;

pub fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    let mut at = value;
    for part in path.split('.') {
        let (key, indexes) = part.split_once('[').map_or((part, None), |(key, rest)| (key, Some(rest)));
        if !key.is_empty() {
            at = at.get(key)?;
        }
        for index in indexes.into_iter().flat_map(|rest| rest.split('[')) {
            at = at.get(index.trim_end_matches(']').parse::<usize>().ok()?)?;
        }
    }
    Some(at)
}

/// Calls `see` with every object, and with every text with the key it stands under.
pub fn walk<'a>(value: &'a Value, key: &'a str, see: &mut impl FnMut(&'a str, &'a Value)) {
    see(key, value);
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| walk(value, key, see)),
        Value::Array(items) => items.iter().for_each(|item| walk(item, key, see)),
        _ => {}
    }
}

#[test]
fn paths_lead_to_values() {
    let value = serde_json::json!({"a": [{"b": 1}, [2, 3]], "c": null});
    assert_eq!(get(&value, "a[0].b"), Some(&1.into()));
    assert_eq!(get(&value, "a[1][1]"), Some(&3.into()));
    assert_eq!(get(&value, "c"), Some(&Value::Null));
    assert_eq!(get(&value, "a[2]"), None);
    assert_eq!(get(&value, "a.b"), None);
}

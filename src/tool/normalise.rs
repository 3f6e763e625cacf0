//! What models write in place of the arguments they mean, put right once, before anything looks at them.
//!
//! - no text, `null`, or an empty string → `{}`; a JSON string that holds an object → that object;
//! - where the schema takes an object or an array and no string: a string that holds one → that;
//! - where it takes an integer and no fraction: `5.0` → `5`, as long as the number is exact;
//! - at a property that is not required: `null` or `""` where the schema has no place for it → gone.
//!
//! What the schema takes as it is stays as it is.

use serde_json::{Map, Number, Value};

use super::schema_shape::{NodeId, Shape, Types};

/// How deep a string is opened and looked into. Parsing bounds the rest: a text may be nested 127 deep.
const MAX_OPENED_DEPTH: usize = 32;
/// Up to here every integer has a float of its own, so none stands for two.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// The value that a model's argument text means, before the schema is looked at. Not always an object.
pub(super) fn parse(raw: &str) -> Result<Value, serde_json::Error> {
    if raw.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    Ok(opened(serde_json::from_str(raw)?))
}

/// The root of the arguments is an object, whatever it came wrapped in.
pub(super) fn opened(value: Value) -> Value {
    match value {
        Value::Null => Value::Object(Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Null) => Value::Object(Map::new()),
            Ok(Value::Object(map)) => Value::Object(map),
            _ => Value::String(text),
        },
        other => other,
    }
}

/// Puts right what the schema says how to.
pub(super) fn normalise(shape: &Shape, value: &mut Value) {
    if may_mean_another(value) {
        walk(shape, &[0], value, 0);
    }
}

/// Whether anything in a value may be put right at all. Most values need no look at the schema.
fn may_mean_another(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.is_f64(),
        Value::String(text) => text.is_empty() || text.trim_start().starts_with(['{', '[']),
        Value::Array(items) => items.iter().any(may_mean_another),
        Value::Object(map) => map.values().any(may_mean_another),
    }
}

fn walk(shape: &Shape, ids: &[NodeId], value: &mut Value, depth: usize) {
    if ids.is_empty() {
        return;
    }
    let accepts = shape.accepts(ids);
    match value {
        Value::Number(number) if accepts.has(Types::INTEGER) && !accepts.has(Types::FRACTION) => {
            if let Some(integer) = integral(number) {
                *number = integer;
            }
        }
        Value::String(text) if depth < MAX_OPENED_DEPTH && !accepts.has(Types::STRING) => {
            if let Some(held) = held(text, accepts) {
                *value = held;
            }
        }
        _ => {}
    }
    if !matches!(value, Value::Object(_) | Value::Array(_)) {
        return;
    }
    let nodes = shape.applicable(ids, value);
    match value {
        Value::Object(map) => map.retain(|key, child| {
            let ids: Vec<NodeId> = nodes.iter().filter_map(|node| node.property(key)).collect();
            walk(shape, &ids, child, depth.saturating_add(1));
            let is_optional = nodes.iter().any(|node| node.properties.contains_key(key))
                && !nodes.iter().any(|node| node.required.contains(key));
            !(is_optional && is_absent(child, shape.accepts(&ids)))
        }),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let ids: Vec<NodeId> = nodes.iter().filter_map(|node| node.item(index)).collect();
                walk(shape, &ids, item, depth.saturating_add(1));
            }
        }
        _ => {}
    }
}

/// Whether a value stands for nothing at a place that takes other types.
fn is_absent(value: &Value, accepts: Types) -> bool {
    match value {
        Value::Null => !accepts.has(Types::NULL),
        Value::String(text) => text.is_empty() && !accepts.has(Types::STRING),
        _ => false,
    }
}

/// The integer that a float is, if it is exactly one.
fn integral(number: &Number) -> Option<Number> {
    if !number.is_f64() {
        return None;
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() <= MAX_EXACT)?;
    #[allow(clippy::cast_possible_truncation, reason = "an integer within ±2^53")]
    let integer = float as i64;
    Some(integer.into())
}

/// The object or array that a string holds, where that is what is wanted.
fn held(text: &str, accepts: Types) -> Option<Value> {
    let wanted = match text.trim_start().as_bytes().first()? {
        b'{' => Types::OBJECT,
        b'[' => Types::ARRAY,
        _ => return None,
    };
    if accepts.has(wanted) { serde_json::from_str(text).ok() } else { None }
}

/// Takes away the empty strings at these pointers, which the schema refused, where the property is not required.
/// Whether any was taken.
#[cfg(feature = "json-schema")]
pub(super) fn remove_empty<'a>(shape: &Shape, value: &mut Value, pointers: impl IntoIterator<Item = &'a str>) -> bool {
    let mut removed = false;
    for pointer in pointers {
        let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
        let key = unescaped(key);
        if !is_optional_at(shape, value, parent, &key) {
            continue;
        }
        if let Some(Value::Object(map)) = value.pointer_mut(parent)
            && map.get(&key).is_some_and(|child| child.as_str() == Some(""))
        {
            removed |= map.remove(&key).is_some();
        }
    }
    removed
}

#[cfg(feature = "json-schema")]
fn is_optional_at(shape: &Shape, root: &Value, parent: &str, key: &str) -> bool {
    let mut ids: Vec<NodeId> = vec![0];
    let mut value = root;
    for token in parent.split('/').skip(1) {
        let token = unescaped(token);
        let nodes = shape.applicable(&ids, value);
        let below = match value {
            Value::Object(map) => {
                map.get(&token).map(|child| (child, nodes.iter().filter_map(|node| node.property(&token)).collect()))
            }
            Value::Array(items) => token.parse().ok().and_then(|index: usize| {
                items.get(index).map(|child| (child, nodes.iter().filter_map(|node| node.item(index)).collect()))
            }),
            _ => None,
        };
        let Some(below) = below else { return false };
        (value, ids) = below;
    }
    let nodes = shape.applicable(&ids, value);
    nodes.iter().any(|node| node.properties.contains_key(key)) && !nodes.iter().any(|node| node.required.contains(key))
}

#[cfg(feature = "json-schema")]
fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

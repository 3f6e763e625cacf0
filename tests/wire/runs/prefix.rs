//! History is append-only on the wire: what was sent once is sent again as it was.

use serde_json::Value;

/// Places where the messages of a request do not begin with those of the one before, cache marks aside.
///
/// The newest models bind reasoning to the exact prefix, and every provider's cache works on it.
pub fn breaks(sent: &[Value]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, pair) in sent.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        for field in ["system", "instructions", "systemInstruction", "tools"] {
            if unmarked(&before[field]) != unmarked(&after[field]) {
                found.push(format!("request {}: {field} changed", at + 1));
            }
        }
        let (before, after) = (messages(before), messages(after));
        let same = before.iter().zip(&after).take_while(|(before, after)| before == after).count();
        if same < before.len() {
            found.push(format!("request {}: message {same} is not what it was", at + 1));
        }
    }
    found
}

/// As text, so that the order of keys counts too.
fn messages(request: &Value) -> Vec<String> {
    let messages = ["messages", "input", "contents"].into_iter().find_map(|field| request[field].as_array());
    let messages = messages.map(Vec::as_slice).unwrap_or_default();
    messages.iter().map(|message| unmarked(message).to_string()).collect()
}

fn unmarked(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(unmarked).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "cache_control");
            Value::Object(kept.map(|(name, value)| (name.clone(), unmarked(value))).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn a_changed_message_is_found_and_an_added_one_is_not() {
    let request = |messages: Value| serde_json::json!({ "messages": messages });
    let one = request(serde_json::json!([{ "a": 1, "cache_control": {} }]));
    let two = request(serde_json::json!([{ "a": 1 }, { "b": 1 }]));
    let other = request(serde_json::json!([{ "a": 2 }, { "b": 1 }]));
    assert!(breaks(&[one.clone(), two.clone()]).is_empty());
    assert_eq!(breaks(&[one, other]), ["request 1: message 0 is not what it was"]);
    assert_eq!(breaks(&[two.clone(), request(serde_json::json!([{ "a": 1 }]))]).len(), 1);
}

//! What is kept of an output item beside its text, so that it can go back as it came. It stands in the signature of the
//! item's block: for reasoning the whole item as the wire had it, else an object of what the block does not say.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The most characters of an item's id that the API takes back. Some hosts give longer ones, a new one at every sight.
const MAX_ITEM_ID: usize = 64;

/// The state of a message's text.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct TextState<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<Cow<'a, str>>,
    /// `commentary` or `final_answer`.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<Vec<&'a RawValue>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) refusal: bool,
}

impl TextState<'_> {
    /// As it is stored; `None` when there is nothing to say.
    pub(super) fn stored(&self) -> Option<String> {
        let empty = self.id.is_none() && self.phase.is_none() && self.annotations.is_none() && !self.refusal;
        if empty { None } else { serde_json::to_string(self).ok() }
    }
}

/// The state of a call: the fields of its item that the block does not hold, `type` among them where it is not
/// `function_call`.
pub(super) type CallState<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Fields of a call's item that are in its block, or that only answers have.
const CALL_BLOCK_FIELDS: [&str; 7] = ["call_id", "name", "arguments", "input", "status", "item_id", "output_index"];

/// The state of a call's item, as it is stored. `None` when there is nothing to say.
pub(super) fn of_call(item: &RawValue) -> Option<String> {
    let mut state: CallState<'_> = serde_json::from_str(item.get()).ok()?;
    state.retain(|name, value| {
        !CALL_BLOCK_FIELDS.contains(&&**name)
            && value.get() != "null"
            && !(name == "type" && value.get() == "\"function_call\"")
    });
    if state.is_empty() { None } else { serde_json::to_string(&state).ok() }
}

/// Whether an id may go back.
pub(super) fn is_returnable(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ITEM_ID
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_keeps_what_its_block_does_not_hold() {
        let state = |json: &str| of_call(&RawValue::from_string(json.to_owned()).unwrap());
        let plain = r#"{"type":"function_call","call_id":"c","name":"n","arguments":"{}","status":"completed"}"#;
        assert_eq!(state(plain), None);
        let full = r#"{"type":"function_call","id":"fc_1","call_id":"c","name":"n","arguments":"{}","namespace":"ns",
            "caller":{"type":"program", "caller_id":"p"},"async":null}"#;
        let expected = r#"{"caller":{"type":"program", "caller_id":"p"},"id":"fc_1","namespace":"ns"}"#;
        assert_eq!(state(full).as_deref(), Some(expected));
        let custom = r#"{"type":"custom_tool_call","id":"ctc_1","call_id":"c","name":"n","input":"x"}"#;
        assert_eq!(state(custom).as_deref(), Some(r#"{"id":"ctc_1","type":"custom_tool_call"}"#));
    }

    #[test]
    fn ids_that_are_too_long_stay_here() {
        assert!(is_returnable("fc_1") && is_returnable(&"x".repeat(64)));
        assert!(!is_returnable("") && !is_returnable(&"x".repeat(65)));
    }
}

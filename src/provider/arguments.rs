//! A call's arguments, as the model wrote them, for wires that want an object.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// The arguments as an object: themselves where they are one, else wrapped as `{"INVALID_JSON": raw}`.
pub(crate) fn object(arguments: &str) -> Cow<'_, RawValue> {
    let arguments = arguments.trim();
    let text = if arguments.is_empty() { "{}" } else { arguments };
    match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw),
        _ => {
            let wrapped = to_raw_value(&BTreeMap::from([("INVALID_JSON", arguments)]));
            wrapped.map_or(Cow::Borrowed(RawValue::NULL), Cow::Owned)
        }
    }
}

//! Whatever a session can hold comes back as it was.

use proptest::collection::vec;
use proptest::prelude::*;
use zidane::types::*;

use super::generate;

proptest! {
    #[test]
    fn blocks_come_back(block in generate::block()) {
        let text = serde_json::to_string(&block).unwrap();
        let back: SessionContentBlock = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &block, "{}", text);
        prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn turns_come_back(content in vec(generate::block(), 0..5), usage in generate::turn_usage(), at in any::<u64>()) {
        let mut turn = SessionTurn::new("t", Role::Assistant, TurnOrigin::Model, content);
        turn.usage = Some(usage.into());
        turn.created_at = Timestamp(at);
        turn.pending = vec![PendingCall::deferred("c")];
        let text = serde_json::to_string(&turn).unwrap();
        let back: SessionTurn = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &turn, "{}", text);
        prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn any_json_object_loads_as_a_block_and_loses_nothing(
        kind in prop::sample::select(vec!["text", "image", "tool_call", "tool_result", "thinking", "opaque", "x"]),
        fields in prop::collection::btree_map(
            prop::sample::select(vec!["text", "data", "id", "name", "output", "callId", "model", "value", "new"]),
            prop::sample::select(vec!["\"s\"", "1", "[]", "{}", "true"]),
            0..6,
        ),
    ) {
        let mut text = format!("{{\"type\":\"{kind}\"");
        for (name, value) in fields {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
        text.push('}');
        let stored: serde_json::Value = serde_json::from_str(&text).unwrap();
        let block: SessionContentBlock = serde_json::from_str(&text).unwrap();
        let mut saved = serde_json::to_value(&block).unwrap();
        // Fields with a default may be written out.
        if let (Some(saved), Some(stored)) = (saved.as_object_mut(), stored.as_object()) {
            saved.retain(|name, value| stored.contains_key(name) || value != "");
        }
        prop_assert_eq!(saved, stored);
    }
}

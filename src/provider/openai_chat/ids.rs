use std::borrow::Cow;
use std::collections::HashMap;

use uuid::Uuid;

use super::profile::CallIds;
use crate::provider::RequestHead;

const MAX_NAME: usize = 64;
const NAMESPACE: Uuid = Uuid::from_u128(0x8f2b_61d4_3c0e_5a7b_9d15_2e64_c0a8_7f31);

/// The tool's name on the wire: at most 64 of `[A-Za-z0-9_-]`. What must be changed gets a hash of the whole.
pub(super) fn tool_name(name: &str) -> Cow<'_, str> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(legal) {
        return Cow::Borrowed(name);
    }
    let clean: String = name.chars().map(|c| if legal(c) { c } else { '_' }).take(MAX_NAME - 11).collect();
    Cow::Owned(format!("{clean}_{}", hash(name)))
}

/// The call id as the vendor accepts it.
pub(super) fn call_id(rule: CallIds, id: &str) -> Cow<'_, str> {
    match rule {
        CallIds::Nine if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) => Cow::Borrowed(id),
        CallIds::Nine => Cow::Owned(nine(id)),
        CallIds::MaxLength(max) if id.chars().count() > max => {
            let kept: String = id.chars().take(max.saturating_sub(11)).collect();
            Cow::Owned(format!("{kept}_{}", hash(id)))
        }
        CallIds::MaxLength(_) | CallIds::Free => Cow::Borrowed(id),
    }
}

fn hash(text: &str) -> String {
    Uuid::new_v5(&NAMESPACE, text.as_bytes()).simple().to_string().chars().take(10).collect()
}

fn nine(id: &str) -> String {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut number = Uuid::new_v5(&NAMESPACE, id.as_bytes()).as_u128();
    let mut out = String::with_capacity(9);
    for _ in 0..9 {
        let digit = usize::try_from(number % 36).unwrap_or_default();
        out.push(DIGITS.get(digit).copied().map_or('0', char::from));
        number /= 36;
    }
    out
}

/// Brings back the names that had to be changed for the wire.
#[derive(Debug, Default)]
pub(super) struct WireNames {
    changed: HashMap<String, String>,
}

impl WireNames {
    pub(super) fn new(head: &RequestHead) -> Self {
        let shown = head.tools.iter().map(|tool| head.names.display(&tool.name));
        let changed = shown.filter_map(|shown| match tool_name(shown) {
            Cow::Owned(wire) => Some((wire, shown.to_owned())),
            Cow::Borrowed(_) => None,
        });
        Self { changed: changed.collect() }
    }

    /// The name as it was before.
    pub(super) fn restore<'a>(&'a self, wire: &'a str) -> &'a str {
        self.changed.get(wire).map_or(wire, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legal_names_and_ids_stay() {
        assert_eq!(tool_name("read_file-2"), "read_file-2");
        assert_eq!(call_id(CallIds::Free, "functions.get:0"), "functions.get:0");
        assert_eq!(call_id(CallIds::MaxLength(40), "call_1"), "call_1");
        assert_eq!(call_id(CallIds::Nine, "aB3dE6gH9"), "aB3dE6gH9");
    }

    #[test]
    fn others_are_made_legal_and_stay_apart() {
        let long = |c: char| c.to_string().repeat(70);
        for (a, b) in [("mcp/x.y", "mcp.x.y"), ("é", "è"), (&*format!("{}1", long('a')), &*format!("{}2", long('a')))]
        {
            let (a, b) = (tool_name(a), tool_name(b));
            assert_ne!(a, b);
            assert!(a.len() <= 64 && a.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
            assert_eq!(a, tool_name(&a), "mapping is idempotent");
        }
        let ids = ["call_1", "é", "call|fc_1", "", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaab"];
        let nine: std::collections::HashSet<_> = ids.iter().map(|id| call_id(CallIds::Nine, id)).collect();
        assert_eq!(nine.len(), ids.len());
        assert!(nine.iter().all(|id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())));
        let long = call_id(CallIds::MaxLength(40), &"é".repeat(50)).into_owned();
        assert_eq!(long.chars().count(), 40);
    }
}

//! Tool names and call ids as a wire takes them: pure functions, so that a stored conversation is encoded the same way
//! every time. What fits stays as it is; what does not gets a stable suffix from its SHA-1.

use std::borrow::Cow;
use std::collections::HashMap;

use uuid::Uuid;

use super::RequestHead;

/// What a wire takes as a tool name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRule {
    /// The most characters.
    pub(crate) max: usize,
    /// Characters besides ASCII letters, digits and `_`.
    pub(crate) also: &'static str,
    /// The first character must be a letter or `_`.
    pub(crate) first_alphabetic: bool,
}

impl NameRule {
    /// `[a-zA-Z0-9_-]{1,64}`: Anthropic (whose server lets 128 pass, but documents 64) and OpenAI.
    pub(crate) const PORTABLE: Self = Self { max: 64, also: "-", first_alphabetic: false };
    /// Gemini.
    pub(crate) const GEMINI: Self = Self { max: 128, also: "-.:", first_alphabetic: true };

    fn allows(self, char: char) -> bool {
        char.is_ascii_alphanumeric() || char == '_' || self.also.contains(char)
    }

    fn fits(self, name: &str) -> bool {
        let first = name.chars().next();
        name.len() <= self.max
            && name.chars().all(|char| self.allows(char))
            && first.is_some_and(|first| !self.first_alphabetic || first.is_ascii_alphabetic() || first == '_')
    }

    /// The name on the wire: itself when it fits, else cleaned, cut, and with ten hex digits of its hash.
    pub(crate) fn wire_name(self, name: &str) -> Cow<'_, str> {
        if self.fits(name) {
            return Cow::Borrowed(name);
        }
        let mut wire = String::with_capacity(self.max);
        if self.first_alphabetic && !name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
            wire.push('_');
        }
        let room = self.max.saturating_sub(11);
        wire.extend(name.chars().map(|char| if self.allows(char) { char } else { '_' }).take(room - wire.len()));
        wire.push('_');
        wire.push_str(&digest(name, 10));
        Cow::Owned(wire)
    }
}

/// Brings names that a wire changed back to what the loop declared.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameTable {
    changed: HashMap<String, String>,
}

impl NameTable {
    /// The declared tools of a request whose names do not fit.
    pub(crate) fn new(head: &RequestHead, rule: NameRule) -> Self {
        let mut changed = HashMap::new();
        for tool in head.tools.iter() {
            let shown = head.names.display(&tool.name);
            if let Cow::Owned(wire) = rule.wire_name(shown) {
                changed.insert(wire, shown.to_owned());
            }
        }
        Self { changed }
    }

    /// The declared name behind a wire name; any other name as it is.
    pub(crate) fn original<'a>(&'a self, wire: &'a str) -> &'a str {
        self.changed.get(wire).map_or(wire, String::as_str)
    }
}

/// A call id of at most `max` characters, ASCII letters, digits, `_` and `-`. One that fits stays as it is.
pub(crate) fn call_id(id: &str, max: usize) -> Cow<'_, str> {
    let allowed = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    if !id.is_empty() && id.len() <= max && id.chars().all(allowed) {
        return Cow::Borrowed(id);
    }
    let mut wire: String = id.chars().filter(|char| allowed(*char)).take(max.min(40).saturating_sub(17)).collect();
    if !wire.is_empty() {
        wire.push('_');
    }
    wire.push_str(&digest(id, 16));
    Cow::Owned(wire)
}

/// A call id of exactly nine letters and digits, as Mistral wants it. One that is stays as it is.
pub(crate) fn call_id_nine(id: &str) -> Cow<'_, str> {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut number = hash(id);
    let mut wire = String::with_capacity(9);
    for _ in 0..9 {
        wire.push(DIGITS.get((number % 62) as usize).map_or('0', |digit| char::from(*digit)));
        number /= 62;
    }
    Cow::Owned(wire)
}

fn hash(text: &str) -> u128 {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).as_u128()
}

fn digest(text: &str, digits: usize) -> String {
    let mut hex = format!("{:032x}", hash(text));
    hex.truncate(digits);
    hex
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use super::super::ToolDefinition;
    use super::*;

    #[test]
    fn what_fits_is_not_touched() {
        assert!(matches!(NameRule::PORTABLE.wire_name("read_file-2"), Cow::Borrowed("read_file-2")));
        assert!(matches!(NameRule::GEMINI.wire_name("mcp.files:read"), Cow::Borrowed(_)));
        for id in ["call_1", "toolu_01A-b"] {
            assert!(matches!(call_id(id, 64), Cow::Borrowed(same) if same == id));
        }
        assert_eq!(call_id_nine("aB3dE6gH9"), "aB3dE6gH9");
    }

    #[test]
    fn a_changed_name_is_stable_and_comes_back() {
        // Stored conversations depend on the exact names.
        assert_eq!(NameRule::PORTABLE.wire_name("files/read"), "files_read_031fd00115");
        assert_eq!(NameRule::GEMINI.wire_name("1st"), NameRule::GEMINI.wire_name("1st"));
        assert!(NameRule::GEMINI.wire_name("1st").starts_with('_'));
        let tools = ["files/read", "ls"].map(|name| ToolDefinition::new(name, "", json!({})));
        let head = RequestHead { tools: Arc::new(tools), ..RequestHead::default() };
        let table = NameTable::new(&head, NameRule::PORTABLE);
        assert_eq!(table.original(&NameRule::PORTABLE.wire_name("files/read")), "files/read");
        assert_eq!(table.original("ls"), "ls");
        assert_eq!(table.original("made_up"), "made_up");
    }

    #[test]
    fn ids_of_other_providers_become_legal_and_stay_apart() {
        let long = "a".repeat(65);
        let ids = ["functions.get:0", "functionsget0", "é", "", "call|fc_1", &long, "call_fc_1"];
        let wires: Vec<_> = ids.iter().map(|id| call_id(id, 64).into_owned()).collect();
        let nines: Vec<_> = ids.iter().map(|id| call_id_nine(id).into_owned()).collect();
        for (at, wire) in wires.iter().enumerate() {
            assert!(wire.len() <= 40 && !wire.is_empty() && !wires[..at].contains(wire), "{wire}");
            assert!(nines[at].len() == 9 && !nines[..at].contains(&nines[at]), "{}", nines[at]);
        }
    }

    proptest! {
        #[test]
        fn any_name_fits_afterwards(name in ".{0,200}") {
            for rule in [NameRule::PORTABLE, NameRule::GEMINI] {
                let wire = rule.wire_name(&name).into_owned();
                prop_assert!(rule.fits(&wire), "{}", wire);
                prop_assert_eq!(&rule.wire_name(&wire), &wire);
            }
            prop_assert!(matches!(call_id(&call_id(&name, 40), 40), Cow::Borrowed(_)));
        }
    }
}

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{Extra, SessionTurn, ToolCallBlock};

/// A call that waits for the host: a gate deferred it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeferredCall {
    /// The call.
    pub call_id: String,
    /// The canonical tool name.
    #[serde(default)]
    pub name: String,
    /// What it would run with: the arguments, checked, as the gates left them.
    #[serde(default)]
    pub input: Value,
    /// Digest of the name, the model's arguments and the input. An approval names it, and so approves this and nothing
    /// else.
    #[serde(default)]
    pub digest: String,
    /// Why it was deferred.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Unknown fields.
    #[serde(flatten)]
    pub extra: Extra,
}

impl DeferredCall {
    /// A call of which nothing but its id is on record.
    pub fn new(call_id: impl Into<String>) -> Self {
        Self {
            call_id: call_id.into(),
            name: String::new(),
            input: Value::Null,
            digest: String::new(),
            reason: String::new(),
            extra: Extra::default(),
        }
    }

    /// What an approval of a call is bound to.
    #[must_use]
    pub fn digest_of(name: &str, arguments: &str, input: &Value) -> String {
        let input = input.to_string();
        let mut bytes = Vec::with_capacity(name.len() + arguments.len() + input.len() + 16);
        // With their lengths, so that no two triples read the same.
        for part in [name, arguments] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        bytes.extend_from_slice(input.as_bytes());
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &bytes).to_string()
    }

    /// The calls of a turn that wait, as far as the turn itself says so: which of them were asked about it does not say.
    pub(crate) fn of_turn(turn: &SessionTurn) -> Vec<Self> {
        let waits = |call: &&ToolCallBlock| turn.pending.iter().any(|p| p.deferred && p.call_id == call.id);
        turn.tool_calls().filter(waits).map(Self::of).collect()
    }

    fn of(call: &ToolCallBlock) -> Self {
        let mut deferred = Self::new(&*call.id);
        deferred.complete(call);
        deferred
    }

    /// Adds what is not on record, from the call itself.
    pub(crate) fn complete(&mut self, call: &ToolCallBlock) {
        if self.digest.is_empty() {
            self.name.clone_from(&call.name);
            self.input = serde_json::from_str(&call.arguments).unwrap_or_default();
            self.digest = Self::digest_of(&self.name, &call.arguments, &self.input);
        }
    }
}

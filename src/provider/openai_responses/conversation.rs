use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::host_items::{self, Fate};
use super::items::{Call, CallOutput, Content, Item, Message, MessagePart, UserMessage};
use super::profile::ResponsesProfile;
use super::state::{CallState, TextState, is_returnable};
use crate::provider::arguments;
use crate::provider::names::NameRule;
use crate::provider::openai_chat::parts::{Accepts, Part, PartsOrText};
use crate::provider::openai_chat::{CallIds, ReasoningEcho};
use crate::provider::outgoing::outgoing;
use crate::provider::{HistoryTurn, ProviderError, ProviderErrorKind, RequestHead};
use crate::types::{
    OpaqueBlock, Role, SessionContentBlock, Signature, SignatureProducer, TextBlock, ThinkingBlock, ToolCallBlock,
    ToolResultBlock, TurnFinishReason,
};

/// The longest call id that the API takes.
const CALL_IDS: CallIds = CallIds::MaxLength(64);

/// Where the items of a conversation go.
pub(super) trait Sink: io::Write {
    /// How many bytes there are.
    fn written(&self) -> usize;
}

/// How much of what was written stays as it is, whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stable {
    pub(super) turns: usize,
    pub(super) bytes: usize,
}

/// Media of call outputs, which wait for the last output in a row.
type Attached<'a> = Vec<Part<'a>>;

/// Turns the turns of a conversation into items.
pub(super) struct Conversation<'r> {
    profile: &'r ResponsesProfile,
    head: &'r RequestHead,
    producer: SignatureProducer,
    accepts: Accepts<'r>,
}

impl<'r> Conversation<'r> {
    pub(super) fn new(profile: &'r ResponsesProfile, head: &'r RequestHead) -> Self {
        Self { profile, head, producer: profile.producer(), accepts: profile.accepts(&head.model) }
    }

    /// Writes the items of `turns` from `from` on, each with a comma before it unless it is the `first`.
    pub(super) fn write(
        &self,
        out: &mut impl Sink,
        turns: &[Arc<HistoryTurn>],
        from: usize,
        mut first: bool,
    ) -> Result<Stable, ProviderError> {
        let mut attached = Attached::new();
        let mut stable = Stable { turns: from, bytes: out.written() };
        for index in from..turns.len() {
            let Some(turn) = turns.get(index) else { break };
            match turn.role {
                Role::User => self.user(out, &mut first, turns, index, &mut attached)?,
                Role::Assistant => {
                    self.attachments(out, &mut first, &mut attached)?;
                    for item in self.assistant(turns, index) {
                        self.item(out, &mut first, &item)?;
                    }
                }
            }
            if attached.is_empty() && !host_items::is_open(turns, index, &self.producer) {
                stable = Stable { turns: index.saturating_add(1), bytes: out.written() };
            }
        }
        self.attachments(out, &mut first, &mut attached)?;
        Ok(stable)
    }

    fn user<'a>(
        &self,
        out: &mut impl Sink,
        first: &mut bool,
        turns: &'a [Arc<HistoryTurn>],
        index: usize,
        attached: &mut Attached<'a>,
    ) -> Result<(), ProviderError> {
        let blocks = outgoing(turns, index);
        for result in blocks.iter().filter_map(|block| block.as_tool_result()) {
            let output = self.output(turns, index, result, attached);
            self.item(out, first, &output)?;
        }
        let mut parts = Vec::new();
        for block in &blocks {
            if let SessionContentBlock::Opaque(opaque) = block {
                if opaque.producer == self.producer {
                    self.item(out, first, &Item::Verbatim { value: &opaque.value, id: true })?;
                }
                continue;
            }
            parts.extend(self.accepts.part(block).map_err(|refused| {
                let content = turns.get(index).map_or(&[][..], |turn| &turn.content);
                let place = content.iter().position(|stored| std::ptr::eq(stored, *block)).unwrap_or_default();
                self.accepts.unsupported(&format!("part {place} of turn {index}"), &refused)
            })?);
        }
        match PartsOrText::of(parts) {
            Some(content) => {
                self.attachments(out, first, attached)?;
                self.item(out, first, &UserMessage::new(content))
            }
            None => Ok(()),
        }
    }

    fn output<'a>(
        &self,
        turns: &'a [Arc<HistoryTurn>],
        index: usize,
        result: &'a ToolResultBlock,
        attached: &mut Attached<'a>,
    ) -> CallOutput<'a> {
        let call = call_of(turns, index, &result.call_id);
        let state = call.map(|call| self.call_state(call)).unwrap_or_default();
        CallOutput {
            r#type: if is_custom(&state) { "custom_tool_call_output" } else { "function_call_output" },
            call_id: CALL_IDS.wire_id(&result.call_id),
            output: Content(self.accepts.result(result, attached)),
            caller: state.get("caller").copied(),
        }
    }

    /// The media of the outputs before, in a message of their own.
    fn attachments(
        &self,
        out: &mut impl Sink,
        first: &mut bool,
        attached: &mut Attached<'_>,
    ) -> Result<(), ProviderError> {
        if attached.is_empty() {
            return Ok(());
        }
        let mut parts = vec![Part::Text { text: "Attachments of the tool results above, in order:".into() }];
        parts.append(attached);
        self.item(out, first, &UserMessage::new(PartsOrText::Parts(parts)))
    }

    /// The items of an assistant turn, in the order in which they came.
    fn assistant<'a>(&self, turns: &'a [Arc<HistoryTurn>], index: usize) -> Vec<Item<'a>>
    where
        'r: 'a,
    {
        let Some(turn) = turns.get(index) else { return Vec::new() };
        let mut blocks = Vec::new();
        for block in outgoing(turns, index) {
            if let SessionContentBlock::Opaque(opaque) = block {
                if opaque.producer != self.producer {
                    continue;
                }
                let fate = host_items::fate(turns, index, &opaque.value, &self.producer);
                if matches!(fate, Some(Fate::Open | Fate::Unanswered)) {
                    // What led to it goes with it.
                    drop_reasoning(&mut blocks);
                    continue;
                }
            }
            blocks.push(block);
        }
        // Reasoning must be followed by what it led to.
        if turn.finish_reason != Some(TurnFinishReason::Pause) {
            drop_reasoning(&mut blocks);
        }
        let lost = |block: &&SessionContentBlock| match block {
            SessionContentBlock::Thinking(thinking) => self.reasoning(thinking).is_none(),
            _ => false,
        };
        // An id ties its item to the reasoning before it; where that is missing ids are refused.
        let intact = !blocks.iter().any(lost);
        let mut items = Vec::with_capacity(blocks.len());
        for block in blocks {
            match block {
                SessionContentBlock::Text(text) => self.text(text, intact, &mut items),
                SessionContentBlock::Thinking(thinking) => items.extend(self.reasoning(thinking)),
                SessionContentBlock::ToolCall(call) => items.push(Item::Call(self.call(call, intact))),
                SessionContentBlock::Opaque(opaque) => self.opaque(opaque, intact, &mut items),
                _ => {}
            }
        }
        if self.profile.calls_last {
            items.sort_by_key(|item| matches!(item, Item::Call(_)));
        }
        if self.profile.needs_message_ids {
            give_ids(&mut items, &turn.id);
        }
        items
    }

    fn own<'a>(&self, signature: Option<&'a Signature>) -> Option<&'a Signature> {
        signature.filter(|signature| signature.producer == self.producer)
    }

    /// Reasoning of this vendor and this model, as it came.
    fn reasoning<'a>(&self, thinking: &'a ThinkingBlock) -> Option<Item<'a>> {
        let signature = self.own(thinking.signature.as_ref())?;
        if signature.model != self.head.model || signature.value.is_empty() {
            return None;
        }
        if !signature.value.starts_with('{') {
            return Some(Item::Encrypted { summary: &thinking.text, content: &signature.value });
        }
        let mut fields: CallState<'a> = serde_json::from_str(&signature.value).ok()?;
        fields.retain(|name, value| {
            let is_empty = value.get() == "null" || name == "content" && value.get() == "[]";
            name != "status" && !is_empty
        });
        let encrypted = fields.get("encrypted_content").is_some_and(|content| content.get() != "\"\"");
        let sent = match self.profile.reasoning_echo {
            ReasoningEcho::Always => true,
            ReasoningEcho::Signed => encrypted,
            _ => false,
        };
        if !sent {
            return None;
        }
        if !fields.contains_key("summary") {
            fields.insert(Cow::Borrowed("summary"), serde_json::from_str::<&RawValue>("[]").ok()?);
        }
        Some(Item::Reasoning(fields))
    }

    fn text<'a>(&self, text: &'a TextBlock, intact: bool, items: &mut Vec<Item<'a>>) {
        if text.text.trim().is_empty() {
            return;
        }
        let signature = self.own(text.signature.as_ref());
        let state: TextState<'a> =
            signature.and_then(|signature| serde_json::from_str(&signature.value).ok()).unwrap_or_default();
        let goes_back = intact && signature.is_some_and(|signature| signature.model == self.head.model);
        let part = if state.refusal {
            MessagePart::Refusal(&text.text)
        } else {
            MessagePart::Text { text: &text.text, annotations: state.annotations.unwrap_or_default() }
        };
        add_part(items, state.id, state.phase, goes_back, part);
    }

    fn opaque<'a>(&self, opaque: &'a OpaqueBlock, intact: bool, items: &mut Vec<Item<'a>>) {
        let value = &opaque.value;
        let text = |field: &str| value.get(field).and_then(Value::as_str);
        match text("type") {
            Some("message") => {
                let goes_back = intact && opaque.model == self.head.model;
                for part in value.get("content").and_then(Value::as_array).into_iter().flatten() {
                    let (id, phase) = (text("id").map(Cow::Borrowed), text("phase").map(Cow::Borrowed));
                    add_part(items, id, phase, goes_back, MessagePart::Verbatim(part));
                }
            }
            Some("compaction") => items.push(Item::Verbatim { value, id: true }),
            _ if intact => items.push(Item::Verbatim { value, id: true }),
            // Without its id only an item that is known by its call can be named.
            _ if text("call_id").is_some() => items.push(Item::Verbatim { value, id: false }),
            _ => {}
        }
    }

    fn call_state<'a>(&self, call: &'a ToolCallBlock) -> CallState<'a> {
        let signature = self.own(call.signature.as_ref());
        signature.and_then(|signature| serde_json::from_str(&signature.value).ok()).unwrap_or_default()
    }

    fn call<'a>(&self, call: &'a ToolCallBlock, intact: bool) -> Call<'a>
    where
        'r: 'a,
    {
        let mut state = self.call_state(call);
        let custom = is_custom(&state);
        state.remove("type");
        let same_model = call.signature.as_ref().is_some_and(|signature| signature.model == self.head.model);
        let id = state.get("id").map(|id| id.get().trim_matches('"'));
        if !(intact && same_model && id.is_some_and(is_returnable)) {
            state.remove("id");
        }
        Call {
            call_id: CALL_IDS.wire_id(&call.id),
            name: NameRule::PORTABLE.wire_name(self.head.names.display(&call.name)),
            arguments: if custom { custom_input(&call.arguments) } else { argument_text(&call.arguments) },
            state,
            custom,
        }
    }

    fn item(&self, out: &mut impl Sink, first: &mut bool, item: &impl Serialize) -> Result<(), ProviderError> {
        let separator: &[u8] = if std::mem::take(first) { b"" } else { b"," };
        let written = out.write_all(separator).map_err(serde_json::Error::io);
        written.and_then(|()| serde_json::to_writer(out, item)).map_err(|error| {
            let message = format!("the conversation cannot be written as JSON: {error}");
            ProviderError::new(ProviderErrorKind::Invalid, &*self.profile.id, message)
        })
    }
}

/// The call that a result of turn `index` answers.
fn call_of<'a>(turns: &'a [Arc<HistoryTurn>], index: usize, id: &str) -> Option<&'a ToolCallBlock> {
    let before = turns.get(..index)?;
    let turn = before.iter().rev().find(|turn| turn.role == Role::Assistant)?;
    turn.content.iter().filter_map(SessionContentBlock::as_tool_call).find(|call| call.id == id)
}

fn is_custom(state: &CallState<'_>) -> bool {
    state.get("type").is_some_and(|kind| kind.get() == "\"custom_tool_call\"")
}

fn drop_reasoning(blocks: &mut Vec<&SessionContentBlock>) {
    while let Some(SessionContentBlock::Thinking(_)) = blocks.last() {
        blocks.pop();
    }
}

/// Adds a part to the message that it belongs to: the one just before it, if it has the same id.
fn add_part<'a>(
    items: &mut Vec<Item<'a>>,
    key: Option<Cow<'a, str>>,
    phase: Option<Cow<'a, str>>,
    goes_back: bool,
    part: MessagePart<'a>,
) {
    match items.last_mut() {
        Some(Item::Message(message)) if message.key == key && message.phase == phase => message.parts.push(part),
        _ => {
            let id = key.clone().filter(|id| goes_back && is_returnable(id));
            items.push(Item::Message(Message { key, id, phase, parts: vec![part] }));
        }
    }
}

/// Ids for messages that have none, for vendors that refuse such. The same every time.
fn give_ids(items: &mut [Item<'_>], turn: &str) {
    for (place, item) in items.iter_mut().enumerate() {
        if let Item::Message(message @ Message { id: None, .. }) = item {
            let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{turn}/{place}").as_bytes());
            message.id = Some(Cow::Owned(format!("msg_{}", id.simple())));
        }
    }
}

/// The arguments as the model wrote them, if they are an object.
fn argument_text(raw: &str) -> Cow<'_, str> {
    match arguments::object(raw) {
        Cow::Borrowed(_) if !raw.trim().is_empty() => Cow::Borrowed(raw),
        Cow::Borrowed(object) => Cow::Borrowed(object.get()),
        Cow::Owned(object) => Cow::Owned(object.get().to_owned()),
    }
}

/// The text behind the JSON string that the input of a custom tool is kept as.
fn custom_input(arguments: &str) -> Cow<'_, str> {
    serde_json::from_str::<String>(arguments).map_or(Cow::Borrowed(arguments), Cow::Owned)
}

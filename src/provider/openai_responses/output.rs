use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::events::{Event, Item, Part, json_text, parse};
use super::finish::Seen;
use super::profile::ResponsesProfile;
use super::state::{self, TextState};
use crate::provider::StreamEvent;
use crate::provider::lenient::Few;
use crate::provider::names::NameTable;
use crate::provider::openai_chat::ReasoningEcho;
use crate::provider::wire::Events;
use crate::types::SignatureProducer;

/// More items, or parts of one item, than any answer has.
const MAX_ITEMS: usize = 4096;

/// Why the output cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    TooMany,
    /// The arguments of a call are not what had been streamed of them.
    Arguments,
}

impl Bad {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "the answer holds more items than can be",
            Self::Arguments => "the arguments of a tool call are not what was streamed of them",
        }
    }
}

/// Where a delta goes: enough to take the next one of the same place without a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Text { item: usize, part: usize, block: u32 },
    Thinking { item: usize, block: u32 },
    Arguments { item: usize, block: u32 },
}

/// Puts the output items of an answer together.
///
/// An event belongs to the item with its `output_index`; servers without indexes are matched by `item_id`. (At one host
/// the id changes with every event, so the index comes first.) An item is what its `output_item.done` says; what had
/// been streamed before is not repeated.
pub(super) struct Output {
    profile: Arc<ResponsesProfile>,
    names: NameTable,
    producer: SignatureProducer,
    items: Vec<Entry>,
    blocks: u32,
    pub(super) seen: Seen,
    /// Makes call ids unique over a conversation, where the vendor does not.
    id_suffix: String,
}

#[derive(Debug)]
struct Entry {
    index: Option<i64>,
    id: String,
    done: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Message(Vec<TextPart>),
    Reasoning(Reasoning),
    Call(Call),
    /// An item that is taken whole at its end.
    Other,
}

#[derive(Debug)]
struct TextPart {
    index: Option<i64>,
    /// The block, once there was text.
    block: Option<u32>,
    /// How many bytes of text there were.
    length: usize,
}

#[derive(Debug)]
struct Reasoning {
    block: u32,
    /// What is shown of it: whichever of summary and reasoning itself came first, and the number of its part.
    shown: Option<(Shown, i64)>,
    /// How many bytes of that part there were.
    length: usize,
    any: bool,
    signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Summary,
    Content,
}

#[derive(Debug, Default)]
struct Call {
    call_id: String,
    name: String,
    custom: bool,
    /// The block, once the call was announced.
    block: Option<u32>,
    /// The arguments so far.
    arguments: String,
    /// `…arguments.done` was seen.
    whole: bool,
    ended: bool,
}

impl Output {
    pub(super) fn new(profile: Arc<ResponsesProfile>, names: NameTable) -> Self {
        Self {
            producer: profile.producer(),
            profile,
            names,
            items: Vec::new(),
            blocks: 0,
            seen: Seen::default(),
            id_suffix: String::new(),
        }
    }

    /// The response's id is known.
    pub(super) fn response(&mut self, id: &str) {
        if self.profile.repeats_call_ids && !id.is_empty() {
            let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, id.as_bytes()).simple().to_string();
            self.id_suffix = format!("_{}", hash.get(..12).unwrap_or(&hash));
        }
    }

    /// More text at a place known from the delta before.
    pub(super) fn more(&mut self, place: Place, delta: String, out: &mut Events) {
        match place {
            Place::Text { item, part, block } => {
                if let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get_mut(item)
                    && let Some(part) = parts.get_mut(part)
                {
                    part.length = part.length.saturating_add(delta.len());
                    out.push_back(StreamEvent::Text { block, delta });
                }
            }
            Place::Thinking { item, block } => {
                if let Some(Entry { kind: Kind::Reasoning(reasoning), .. }) = self.items.get_mut(item) {
                    reasoning.length = reasoning.length.saturating_add(delta.len());
                    out.push_back(StreamEvent::Thinking { block, delta });
                }
            }
            Place::Arguments { item, block } => {
                if let Some(Entry { kind: Kind::Call(call), .. }) = self.items.get_mut(item) {
                    call.arguments.push_str(&delta);
                    out.push_back(StreamEvent::ToolCallDelta { block, delta });
                }
            }
        }
    }

    fn next_block(&mut self) -> u32 {
        let block = self.blocks;
        self.blocks = block.saturating_add(1);
        block
    }

    fn push(&mut self, index: Option<i64>, id: &str, kind: Kind) -> Result<usize, Bad> {
        if self.items.len() >= MAX_ITEMS {
            return Err(Bad::TooMany);
        }
        self.items.push(Entry { index, id: id.to_owned(), done: false, kind });
        Ok(self.items.len().saturating_sub(1))
    }

    /// The item that an event is about.
    fn find(&self, index: Option<i64>, id: &str) -> Option<usize> {
        let by_index = || self.items.iter().rposition(|entry| entry.index == index);
        let by_id = || self.items.iter().rposition(|entry| entry.id == id);
        match (index, id) {
            (Some(_), "") => by_index(),
            (Some(_), _) => by_index().or_else(by_id),
            (None, "") => self.items.len().checked_sub(1).filter(|last| self.items.get(*last).is_some_and(|e| !e.done)),
            (None, _) => by_id(),
        }
    }

    /// The item that a delta is about, of the kind that it needs; a new one where it was never announced.
    fn find_or_open(
        &mut self,
        event: &Event<'_>,
        fits: impl Fn(&Kind) -> bool,
        new: impl FnOnce(&mut Self, &mut Events) -> Kind,
        out: &mut Events,
    ) -> Result<usize, Bad> {
        let found = self.find(event.output_index.0, &event.item_id.0);
        match found.filter(|at| self.items.get(*at).is_some_and(|entry| fits(&entry.kind))) {
            Some(at) => Ok(at),
            None => {
                let kind = new(self, out);
                self.push(event.output_index.0, &event.item_id.0, kind)
            }
        }
    }

    fn new_reasoning(&mut self, out: &mut Events) -> Kind {
        let block = self.next_block();
        // Opened at once: encrypted reasoning has no text that would.
        out.push_back(StreamEvent::Thinking { block, delta: String::new() });
        Kind::Reasoning(Reasoning { block, shown: None, length: 0, any: false, signed: false })
    }

    /// `response.output_item.added`.
    pub(super) fn added(&mut self, event: &Event<'_>, out: &mut Events) -> Result<(), Bad> {
        let Some(raw) = event.item else { return Ok(()) };
        let item: Item<'_> = parse(raw.get());
        self.open(event.output_index.0, &item, out).map(drop)
    }

    fn open(&mut self, index: Option<i64>, item: &Item<'_>, out: &mut Events) -> Result<usize, Bad> {
        let kind = match &*item.r#type.0 {
            "message" => Kind::Message(Vec::new()),
            "reasoning" => self.new_reasoning(out),
            word @ ("function_call" | "custom_tool_call") => {
                Kind::Call(Call { custom: word == "custom_tool_call", ..Call::default() })
            }
            _ => Kind::Other,
        };
        let at = self.push(index, &item.id.0, kind)?;
        self.announce(at, item, out);
        Ok(at)
    }

    /// Announces a call as soon as its name and id are known.
    fn announce(&mut self, at: usize, item: &Item<'_>, out: &mut Events) {
        let next = self.blocks;
        let Some(Entry { kind: Kind::Call(call), .. }) = self.items.get_mut(at) else { return };
        if call.block.is_some() {
            return;
        }
        if call.call_id.is_empty() && !item.call_id.0.is_empty() {
            call.call_id = item.call_id.0.clone().into_owned();
            if is_counted(&call.call_id) {
                call.call_id.push_str(&self.id_suffix);
            }
        }
        if call.name.is_empty() {
            self.names.original(&item.name.0).clone_into(&mut call.name);
        }
        if call.name.is_empty() || call.call_id.is_empty() {
            return;
        }
        call.block = Some(next);
        self.blocks = next.saturating_add(1);
        out.push_back(StreamEvent::ToolCallStart { block: next, id: call.call_id.clone(), name: call.name.clone() });
        if !call.arguments.is_empty() {
            out.push_back(StreamEvent::ToolCallDelta { block: next, delta: call.arguments.clone() });
        }
    }

    /// `response.content_part.added`: without indexes only this tells one part from the next.
    pub(super) fn part_added(&mut self, event: &Event<'_>) -> Result<(), Bad> {
        let found = self.find(event.output_index.0, &event.item_id.0);
        if let Some(Entry { kind: Kind::Message(parts), .. }) = found.and_then(|at| self.items.get_mut(at)) {
            let index = event.content_index.0;
            if index.is_none() || !parts.iter().any(|part| part.index == index) {
                push_part(parts, index)?;
            }
        }
        Ok(())
    }

    /// Text or a refusal. Gives its place.
    pub(super) fn text(&mut self, event: &Event<'_>, text: &str, out: &mut Events) -> Result<Option<Place>, Bad> {
        if text.is_empty() {
            return Ok(None);
        }
        let fits = |kind: &Kind| matches!(kind, Kind::Message(_));
        let item = self.find_or_open(event, fits, |_, _| Kind::Message(Vec::new()), out)?;
        let part = self.part(item, event.content_index.0)?;
        Ok(self.part_text(item, part, text, out))
    }

    /// The whole text of a part: what was not streamed of it follows.
    pub(super) fn whole_text(&mut self, event: &Event<'_>, text: &str, out: &mut Events) -> Result<(), Bad> {
        let item = match self.find(event.output_index.0, &event.item_id.0) {
            Some(item) => item,
            None if text.is_empty() => return Ok(()),
            None => self.push(event.output_index.0, &event.item_id.0, Kind::Message(Vec::new()))?,
        };
        if let Some(Entry { done: false, kind: Kind::Message(_), .. }) = self.items.get(item) {
            let part = self.part(item, event.content_index.0)?;
            self.rest_of_part(item, part, text, out);
        }
        Ok(())
    }

    /// The part of a message with a number; without one, the last.
    fn part(&mut self, item: usize, index: Option<i64>) -> Result<usize, Bad> {
        let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get_mut(item) else { return Ok(0) };
        let found = match index {
            Some(_) => parts.iter().rposition(|part| part.index == index),
            None => parts.len().checked_sub(1),
        };
        match found {
            Some(part) => Ok(part),
            None => push_part(parts, index),
        }
    }

    fn part_text(&mut self, item: usize, part: usize, text: &str, out: &mut Events) -> Option<Place> {
        let next = self.blocks;
        let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get_mut(item) else { return None };
        let known = parts.get_mut(part)?;
        let block = *known.block.get_or_insert(next);
        known.length = known.length.saturating_add(text.len());
        self.blocks = self.blocks.max(block.saturating_add(1));
        out.push_back(StreamEvent::Text { block, delta: text.to_owned() });
        Some(Place::Text { item, part, block })
    }

    fn rest_of_part(&mut self, item: usize, part: usize, text: &str, out: &mut Events) {
        let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get(item) else { return };
        let length = parts.get(part).map_or(0, |part| part.length);
        if let Some(rest) = text.get(length..).filter(|rest| !rest.is_empty()) {
            self.part_text(item, part, rest, out);
        }
    }

    /// A piece of reasoning or of its summary. Gives its place if the event holds nothing but that.
    pub(super) fn reasoning(
        &mut self,
        event: &Event<'_>,
        is_summary: bool,
        text: &str,
        out: &mut Events,
    ) -> Result<Option<Place>, Bad> {
        if text.is_empty() {
            return Ok(None);
        }
        let fits = |kind: &Kind| matches!(kind, Kind::Reasoning(_));
        let item = self.find_or_open(event, fits, Self::new_reasoning, out)?;
        let Some(Entry { kind: Kind::Reasoning(reasoning), .. }) = self.items.get_mut(item) else { return Ok(None) };
        let (shown, part) = part_of_reasoning(event, is_summary);
        match reasoning.shown {
            Some((known, _)) if known != shown => return Ok(None),
            Some((_, known)) if known == part => {}
            _ => {
                reasoning.shown = Some((shown, part));
                reasoning.length = 0;
            }
        }
        let block = reasoning.block;
        let begins = reasoning.length == 0 && reasoning.any;
        reasoning.any = true;
        reasoning.length = reasoning.length.saturating_add(text.len());
        let delta = if begins { format!("\n\n{text}") } else { text.to_owned() };
        out.push_back(StreamEvent::Thinking { block, delta });
        Ok((!begins).then_some(Place::Thinking { item, block }))
    }

    /// The whole of a part of reasoning or of its summary: what was not streamed of it follows.
    pub(super) fn whole_reasoning(
        &mut self,
        event: &Event<'_>,
        is_summary: bool,
        text: &str,
        out: &mut Events,
    ) -> Result<(), Bad> {
        let found = self.find(event.output_index.0, &event.item_id.0).and_then(|at| self.items.get(at));
        let length = match found {
            Some(Entry { kind: Kind::Reasoning(reasoning), .. })
                if reasoning.shown == Some(part_of_reasoning(event, is_summary)) =>
            {
                reasoning.length
            }
            _ => 0,
        };
        match text.get(length..) {
            Some(rest) => self.reasoning(event, is_summary, rest, out).map(drop),
            None => Ok(()),
        }
    }

    /// A piece of a call's arguments. Gives its place if all it did was to add to an announced call.
    pub(super) fn arguments(
        &mut self,
        event: &Event<'_>,
        custom: bool,
        text: &str,
        out: &mut Events,
    ) -> Result<Option<Place>, Bad> {
        let fits = |kind: &Kind| matches!(kind, Kind::Call(_));
        let new = |_: &mut Self, _: &mut Events| Kind::Call(Call { custom, ..Call::default() });
        let item = self.find_or_open(event, fits, new, out)?;
        let Some(Entry { kind: Kind::Call(call), .. }) = self.items.get_mut(item) else { return Ok(None) };
        if call.ended || text.is_empty() {
            return Ok(None);
        }
        let text = call.spelled(text);
        call.arguments.push_str(&text);
        let Some(block) = call.block else { return Ok(None) };
        out.push_back(StreamEvent::ToolCallDelta { block, delta: text.into_owned() });
        Ok((!custom).then_some(Place::Arguments { item, block }))
    }

    /// All of a call's arguments.
    pub(super) fn whole_arguments(&mut self, event: &Event<'_>, text: &str, out: &mut Events) -> Result<(), Bad> {
        let found = self.find(event.output_index.0, &event.item_id.0);
        match found.and_then(|at| self.items.get_mut(at)) {
            Some(Entry { kind: Kind::Call(call), done: false, .. }) => {
                call.complete(text, out)?;
                call.whole = true;
                Ok(())
            }
            // Names and ids come with the item only, and so do then its arguments.
            _ => Ok(()),
        }
    }

    /// `response.output_item.done`.
    pub(super) fn done(&mut self, event: &Event<'_>, out: &mut Events) -> Result<(), Bad> {
        let Some(raw) = event.item else { return Ok(()) };
        let item: Item<'_> = parse(raw.get());
        let found = self.find(event.output_index.0, &item.id.0);
        let at = match found.and_then(|at| self.items.get(at).map(|entry| (at, entry))) {
            Some((at, entry)) if !entry.done => at,
            // Said twice.
            Some((_, entry)) if !entry.id.is_empty() && entry.id == item.id.0 => return Ok(()),
            _ => self.open(event.output_index.0, &item, out)?,
        };
        self.settle(at, &item, raw, out)
    }

    /// The items of a finished response. Most were streamed; what was not follows.
    pub(super) fn finished(&mut self, output: &Few<&RawValue>, out: &mut Events) -> Result<(), Bad> {
        let streamed = self.items.len();
        for (place, raw) in output.iter().enumerate() {
            let item: Item<'_> = parse(raw.get());
            let same_id = |entry: &Entry| !item.id.0.is_empty() && entry.id == item.id.0;
            let known = self.items.iter().position(same_id).or((place < streamed).then_some(place));
            match known {
                Some(at) if self.items.get(at).is_some_and(|entry| !entry.done) => self.settle(at, &item, raw, out)?,
                Some(at) => self.sign_late(at, &item, raw, out),
                None => {
                    let at = self.open(None, &item, out)?;
                    self.settle(at, &item, raw, out)?;
                }
            }
        }
        Ok(())
    }

    /// Some hosts give the encrypted reasoning only at the end.
    fn sign_late(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) {
        if let Some(Entry { kind: Kind::Reasoning(reasoning), .. }) = self.items.get_mut(at)
            && !reasoning.signed
            && &*item.r#type.0 == "reasoning"
            && !item.encrypted_content.0.is_empty()
        {
            reasoning.signed = true;
            let (block, value) = (reasoning.block, raw.get().to_owned());
            out.push_back(StreamEvent::Signature { block, producer: self.producer.clone(), value });
        }
    }

    /// An answer ended well in which calls were never said to be done. Those that are whole count.
    pub(super) fn end_calls(&mut self, out: &mut Events) {
        for entry in &mut self.items {
            if let (false, Kind::Call(call)) = (entry.done, &mut entry.kind)
                && (call.whole || serde_json::from_str::<serde::de::IgnoredAny>(&call.arguments).is_ok())
                && let Some(block) = call.block
            {
                call.ended = true;
                entry.done = true;
                self.seen.calls = true;
                out.push_back(StreamEvent::ToolCallEnd { block });
            }
        }
    }

    /// The item is complete.
    fn settle(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) -> Result<(), Bad> {
        let Some(entry) = self.items.get_mut(at) else { return Ok(()) };
        entry.done = true;
        if !item.id.0.is_empty() {
            item.id.0.as_ref().clone_into(&mut entry.id);
        }
        match (&entry.kind, &*item.r#type.0) {
            (Kind::Message(_), "message") => self.settle_message(at, item, out),
            (Kind::Reasoning(_), "reasoning") => {
                self.settle_reasoning(at, item, raw, out);
                Ok(())
            }
            (Kind::Call(_), "function_call" | "custom_tool_call") => self.settle_call(at, item, raw, out),
            (Kind::Other, word) => {
                self.seen.approval |= word == "mcp_approval_request";
                if let Ok(value) = serde_json::from_str::<Value>(raw.get()) {
                    let block = self.next_block();
                    out.push_back(StreamEvent::Opaque { block, producer: self.producer.clone(), value });
                }
                Ok(())
            }
            // Announced as one thing and ended as another: what was streamed stands.
            _ => Ok(()),
        }
    }

    fn settle_message(&mut self, at: usize, item: &Item<'_>, out: &mut Events) -> Result<(), Bad> {
        let content = item.content.map_or("", RawValue::get);
        if content.starts_with('"') {
            let part = self.part(at, Some(0))?;
            self.rest_of_part(at, part, &json_text(item.content), out);
            self.sign_text(at, part, item, &Part::default(), out);
            return Ok(());
        }
        for (place, raw) in parse::<Few<&RawValue>>(content).iter().enumerate() {
            let part: Part<'_> = parse(raw.get());
            let is_refusal = &*part.r#type.0 == "refusal";
            if !is_refusal && !matches!(&*part.r#type.0, "output_text" | "text") {
                self.unknown_part(item, raw, out);
                continue;
            }
            self.seen.refusal |= is_refusal;
            let text = if is_refusal { &part.refusal.0 } else { &part.text.0 };
            let known = self.part_in_order(at, place)?;
            self.rest_of_part(at, known, text, out);
            self.sign_text(at, known, item, &part, out);
        }
        Ok(())
    }

    /// The streamed part that stands at `place` in the finished message.
    fn part_in_order(&mut self, at: usize, place: usize) -> Result<usize, Bad> {
        let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get_mut(at) else { return Ok(0) };
        let index = i64::try_from(place).ok();
        let numbered = parts.iter().rposition(|part| part.index == index);
        // Without numbers, or where a host counts them on from item to item.
        match numbered.or(parts.get(place).map(|_| place)) {
            Some(part) => Ok(part),
            None => push_part(parts, index),
        }
    }

    fn sign_text(&self, at: usize, part: usize, item: &Item<'_>, known: &Part<'_>, out: &mut Events) {
        let Some(Entry { kind: Kind::Message(parts), .. }) = self.items.get(at) else { return };
        let Some(block) = parts.get(part).and_then(|part| part.block) else { return };
        let given = |text: &Cow<'_, str>| (!text.is_empty()).then(|| Cow::Owned(text.clone().into_owned()));
        let annotations = known.annotations.as_ref().filter(|all| !all.is_empty());
        let state = TextState {
            id: given(&item.id.0),
            phase: given(&item.phase.0),
            annotations: annotations.map(|all| all.iter().copied().collect()),
            refusal: &*known.r#type.0 == "refusal",
        };
        if let Some(value) = state.stored() {
            out.push_back(StreamEvent::Signature { block, producer: self.producer.clone(), value });
        }
    }

    /// A part of a new type: kept as a message of its own with the same id, so that it finds its place again.
    fn unknown_part(&mut self, item: &Item<'_>, part: &RawValue, out: &mut Events) {
        let Ok(part) = serde_json::from_str::<Value>(part.get()) else { return };
        let mut value = serde_json::json!({ "type": "message", "role": "assistant", "content": [part] });
        for (name, text) in [("id", &item.id.0), ("phase", &item.phase.0)] {
            if let (false, Some(fields)) = (text.is_empty(), value.as_object_mut()) {
                fields.insert(name.to_owned(), Value::from(text.as_ref()));
            }
        }
        let block = self.next_block();
        out.push_back(StreamEvent::Opaque { block, producer: self.producer.clone(), value });
    }

    fn settle_reasoning(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) {
        let producer = self.producer.clone();
        let echoed = !item.encrypted_content.0.is_empty() || self.profile.reasoning_echo == ReasoningEcho::Always;
        let Some(Entry { kind: Kind::Reasoning(reasoning), .. }) = self.items.get_mut(at) else { return };
        let block = reasoning.block;
        if !reasoning.any {
            let content = item.content.map_or("", RawValue::get);
            let delta = joined(&item.summary).or_else(|| joined(&parse(content)));
            if let Some(delta) = delta {
                reasoning.any = true;
                out.push_back(StreamEvent::Thinking { block, delta });
            }
        }
        // What can never go back need not be kept.
        if echoed {
            reasoning.signed = true;
            out.push_back(StreamEvent::Signature { block, producer, value: raw.get().to_owned() });
        }
    }

    fn settle_call(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) -> Result<(), Bad> {
        self.announce(at, item, out);
        let next = self.blocks;
        let Some(Entry { kind: Kind::Call(call), .. }) = self.items.get_mut(at) else { return Ok(()) };
        let block = match call.block {
            Some(block) => block,
            None => {
                // No id or no name to the end: the loop makes an id, and answers a call of no name.
                call.block = Some(next);
                self.blocks = next.saturating_add(1);
                let (id, name) = (call.call_id.clone(), call.name.clone());
                out.push_back(StreamEvent::ToolCallStart { block: next, id, name });
                if !call.arguments.is_empty() {
                    out.push_back(StreamEvent::ToolCallDelta { block: next, delta: call.arguments.clone() });
                }
                next
            }
        };
        let text = if call.custom { item.input.0.clone() } else { json_text(item.arguments) };
        let is_cut = &*item.status.0 == "incomplete";
        if !is_cut || !text.is_empty() {
            call.complete(&text, out)?;
        }
        if let Some(value) = state::of_call(raw) {
            out.push_back(StreamEvent::Signature { block, producer: self.producer.clone(), value });
        }
        if !is_cut {
            call.ended = true;
            self.seen.calls = true;
            out.push_back(StreamEvent::ToolCallEnd { block });
        }
        Ok(())
    }
}

impl Call {
    /// A piece of the input as a piece of JSON: the text of a custom tool becomes a JSON string, its closing quote
    /// aside.
    fn spelled<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.custom {
            return Cow::Borrowed(text);
        }
        let quoted = Value::from(text).to_string();
        let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
        let opening = if self.arguments.is_empty() { "\"" } else { "" };
        Cow::Owned(format!("{opening}{inner}"))
    }

    /// Brings what was streamed of the arguments to what they are.
    fn complete(&mut self, text: &str, out: &mut Events) -> Result<(), Bad> {
        let whole = if self.custom { Cow::Owned(Value::from(text).to_string()) } else { Cow::Borrowed(text) };
        if let Some(rest) = whole.strip_prefix(&*self.arguments) {
            if let (Some(block), false) = (self.block, rest.is_empty()) {
                out.push_back(StreamEvent::ToolCallDelta { block, delta: rest.to_owned() });
            }
            self.arguments = whole.into_owned();
            return Ok(());
        }
        // An end without arguments, or the same value in another spelling.
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        let same = whole.is_empty() || value(&whole).is_some_and(|whole| value(&self.arguments) == Some(whole));
        if same { Ok(()) } else { Err(Bad::Arguments) }
    }
}

/// `call_0`, `call_1`, …
fn is_counted(call_id: &str) -> bool {
    let number = call_id.strip_prefix("call_").unwrap_or_default();
    (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn push_part(parts: &mut Vec<TextPart>, index: Option<i64>) -> Result<usize, Bad> {
    if parts.len() >= MAX_ITEMS {
        return Err(Bad::TooMany);
    }
    parts.push(TextPart { index, block: None, length: 0 });
    Ok(parts.len().saturating_sub(1))
}

fn part_of_reasoning(event: &Event<'_>, is_summary: bool) -> (Shown, i64) {
    if is_summary {
        (Shown::Summary, event.summary_index.0.unwrap_or(0))
    } else {
        (Shown::Content, event.content_index.0.unwrap_or(0))
    }
}

/// The texts of parts, with a blank line between. `None` when there is none.
fn joined(parts: &Few<&RawValue>) -> Option<String> {
    let texts = parts.iter().map(|part| parse::<Part<'_>>(part.get()).text.0.into_owned());
    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

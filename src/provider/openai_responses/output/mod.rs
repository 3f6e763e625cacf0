mod call;
mod message;
mod reasoning;

use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use self::call::Call;
use self::message::TextPart;
use self::reasoning::Reasoning;
use super::events::{Event, Item, parse};
use super::finish::Seen;
use super::profile::ResponsesProfile;
use crate::provider::StreamEvent;
use crate::provider::lenient::Few;
use crate::provider::names::NameTable;
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
        let unnumbered = || self.items.iter().rposition(|entry| entry.index.is_none() && entry.id == id);
        match (index, id) {
            (Some(_), "") => by_index(),
            (Some(_), _) => by_index().or_else(unnumbered),
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
}

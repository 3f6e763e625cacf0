use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::events::{Event, Item, Part, json_text, parse};
use super::super::state::TextState;
use super::{Bad, Entry, Kind, MAX_ITEMS, Output, Place};
use crate::provider::StreamEvent;
use crate::provider::lenient::Few;
use crate::provider::wire::Events;

#[derive(Debug)]
pub(super) struct TextPart {
    pub(super) index: Option<i64>,
    /// The block, once there was text.
    pub(super) block: Option<u32>,
    /// How many bytes of text there were.
    pub(super) length: usize,
}

impl Output {
    /// `response.content_part.added`: without indexes only this tells one part from the next.
    pub(in crate::provider::openai_responses) fn part_added(&mut self, event: &Event<'_>) -> Result<(), Bad> {
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
    pub(in crate::provider::openai_responses) fn text(
        &mut self,
        event: &Event<'_>,
        text: &str,
        out: &mut Events,
    ) -> Result<Option<Place>, Bad> {
        if text.is_empty() {
            return Ok(None);
        }
        let fits = |kind: &Kind| matches!(kind, Kind::Message(_));
        let item = self.find_or_open(event, fits, |_, _| Kind::Message(Vec::new()), out)?;
        let part = self.part(item, event.content_index.0)?;
        Ok(self.part_text(item, part, text, out))
    }

    /// The whole text of a part: what was not streamed of it follows.
    pub(in crate::provider::openai_responses) fn whole_text(
        &mut self,
        event: &Event<'_>,
        text: &str,
        out: &mut Events,
    ) -> Result<(), Bad> {
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

    pub(super) fn settle_message(&mut self, at: usize, item: &Item<'_>, out: &mut Events) -> Result<(), Bad> {
        let content = item.content.map_or("", RawValue::get);
        if content.starts_with('"') {
            let part = self.part(at, Some(0))?;
            let text = json_text(item.content);
            self.rest_of_part(at, part, &text, out);
            if !text.trim().is_empty() {
                self.sign_text(at, part, item, &Part::default(), out);
            }
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
            // Blank text that is signed would be kept.
            if !text.trim().is_empty() {
                self.sign_text(at, known, item, &part, out);
            }
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

    /// Gives a part's block the state of its item.
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
}

fn push_part(parts: &mut Vec<TextPart>, index: Option<i64>) -> Result<usize, Bad> {
    if parts.len() >= MAX_ITEMS {
        return Err(Bad::TooMany);
    }
    parts.push(TextPart { index, block: None, length: 0 });
    Ok(parts.len().saturating_sub(1))
}

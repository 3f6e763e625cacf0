use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::super::events::{Event, Item, json_text};
use super::super::state;
use super::{Bad, Entry, Kind, Output, Place};
use crate::provider::StreamEvent;
use crate::provider::wire::Events;

#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) custom: bool,
    /// The block, once the call was announced.
    pub(super) block: Option<u32>,
    /// The arguments so far.
    pub(super) arguments: String,
    /// `…arguments.done` was seen.
    pub(super) whole: bool,
    pub(super) ended: bool,
}

impl Output {
    /// Announces a call as soon as its name and id are known.
    pub(super) fn announce(&mut self, at: usize, item: &Item<'_>, out: &mut Events) {
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

    /// A piece of a call's arguments. Gives its place if all it did was to add to an announced call.
    pub(in crate::provider::openai_responses) fn arguments(
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
    pub(in crate::provider::openai_responses) fn whole_arguments(
        &mut self,
        event: &Event<'_>,
        text: &str,
        out: &mut Events,
    ) -> Result<(), Bad> {
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

    /// An answer ended well in which calls were never said to be done. Those that are whole count.
    pub(in crate::provider::openai_responses) fn end_calls(&mut self, out: &mut Events) {
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

    pub(super) fn settle_call(
        &mut self,
        at: usize,
        item: &Item<'_>,
        raw: &RawValue,
        out: &mut Events,
    ) -> Result<(), Bad> {
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

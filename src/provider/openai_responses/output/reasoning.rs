use serde_json::value::RawValue;

use super::super::events::{Event, Item, Part, parse};
use super::{Bad, Entry, Kind, Output, Place};
use crate::provider::StreamEvent;
use crate::provider::lenient::Few;
use crate::provider::openai_chat::ReasoningEcho;
use crate::provider::wire::Events;

#[derive(Debug)]
pub(super) struct Reasoning {
    pub(super) block: u32,
    /// What is shown of it: whichever of summary and reasoning itself came first, and the number of its part.
    pub(super) shown: Option<(Shown, i64)>,
    /// How many bytes of that part there were.
    pub(super) length: usize,
    pub(super) any: bool,
    pub(super) signed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Summary,
    Content,
}

impl Output {
    pub(super) fn new_reasoning(&mut self, out: &mut Events) -> Kind {
        let block = self.next_block();
        // Opened at once: encrypted reasoning has no text that would.
        out.push_back(StreamEvent::Thinking { block, delta: String::new() });
        Kind::Reasoning(Reasoning { block, shown: None, length: 0, any: false, signed: false })
    }

    /// A piece of reasoning or of its summary. Gives its place if the event holds nothing but that.
    pub(in crate::provider::openai_responses) fn reasoning(
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
    pub(in crate::provider::openai_responses) fn whole_reasoning(
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

    /// Some hosts give the encrypted reasoning only at the end.
    pub(super) fn sign_late(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) {
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

    pub(super) fn settle_reasoning(&mut self, at: usize, item: &Item<'_>, raw: &RawValue, out: &mut Events) {
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

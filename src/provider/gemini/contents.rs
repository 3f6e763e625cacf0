//! The contents of a conversation. Turns of one side in a row are one content, as the API's rules on the order of turns
//! want it; the last content stays open in what is kept, so that more parts can be appended to it.

use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use serde_json::Value;

use super::super::outgoing::outgoing;
use super::super::{HistoryTurn, ProviderError, ProviderErrorKind, RequestHead};
use super::models::family;
use super::parts::{CallPlace, Part, Parts};
use super::{TOKEN, Wire};
use crate::types::{Role, SessionContentBlock, SessionTurn};

/// What closes a content, and what stands between two.
const CLOSE: &[u8] = b"]}";

/// The turns of a request, written one after the other.
pub(super) struct Contents<'a> {
    wire: &'a Wire,
    turns: &'a [Arc<HistoryTurn>],
    parts: Parts<'a>,
    /// Whose content is open.
    open: Option<Role>,
}

impl<'a> Contents<'a> {
    /// Contents of which the turns before `from` are written, the last content still open.
    pub(super) fn new(wire: &'a Wire, head: &'a RequestHead, turns: &'a [Arc<HistoryTurn>], from: usize) -> Self {
        let parts = Parts { wire, family: family(&head.model), head };
        let contents = Self { wire, turns, parts, open: None };
        let last = (0..from).rev().find(|index| contents.turn(*index).is_ok_and(|parts| !parts.is_empty()));
        let open = last.and_then(|index| turns.get(index)).map(|turn| turn.role);
        Self { open, ..contents }
    }

    /// Writes turn `index`, or nothing when nothing of it is for this wire. Its content stays open.
    ///
    /// # Errors
    /// `Unsupported`, naming turn and block, for what this wire cannot say.
    pub(super) fn write(&mut self, index: usize, buffer: &mut BytesMut) -> Result<(), ProviderError> {
        let Some(turn) = self.turns.get(index) else { return Ok(()) };
        let parts = self.turn(index)?;
        for (place, part) in parts.iter().enumerate() {
            if place > 0 || self.open == Some(turn.role) {
                buffer.put_u8(b',');
            } else {
                if self.open.is_some() {
                    buffer.extend_from_slice(CLOSE);
                    buffer.put_u8(b',');
                }
                let opening: &[u8] = match turn.role {
                    Role::User => br#"{"role":"user","parts":["#,
                    Role::Assistant => br#"{"role":"model","parts":["#,
                };
                buffer.extend_from_slice(opening);
                self.open = Some(turn.role);
            }
            serde_json::to_writer((&mut *buffer).writer(), part).map_err(|error| {
                self.wire.error(ProviderErrorKind::Invalid, format!("turn {index} cannot be written as JSON: {error}"))
            })?;
        }
        Ok(())
    }

    /// Closes the last content.
    pub(super) fn close(&self, buffer: &mut BytesMut) {
        if self.open.is_some() {
            buffer.extend_from_slice(CLOSE);
        }
    }

    fn turn(&self, index: usize) -> Result<Vec<Part<'a>>, ProviderError> {
        let Some(turn) = self.turns.get(index) else { return Ok(Vec::new()) };
        let blocks = outgoing(self.turns, index);
        let mut parts = Vec::with_capacity(blocks.len());
        if turn.role == Role::User {
            self.responses(index, &blocks, &mut parts);
        }
        let mut place =
            CallPlace { first: !self.continues_calls(index), own: turn.role == Role::Assistant && self.is_own(turn) };
        for block in blocks {
            let part = self.parts.part(block, place).map_err(|what| {
                let place = turn.content.iter().position(|stored| std::ptr::eq(stored, block)).unwrap_or_default();
                unsupported(self.wire, &format!("block {place} ({what}) of turn {index}"))
            })?;
            place.first &= block.as_tool_call().is_none();
            parts.extend(part);
        }
        Ok(parts)
    }

    /// The results of a turn, before anything else of it: the API counts the responses that follow calls.
    fn responses(&self, index: usize, blocks: &[&'a SessionContentBlock], parts: &mut Vec<Part<'a>>) {
        let mut results = blocks.iter().filter_map(|block| block.as_tool_result()).peekable();
        if results.peek().is_none() {
            return;
        }
        let before = self.turns.get(..index).unwrap_or_default();
        let own = before.iter().rev().find(|turn| turn.role == Role::Assistant).is_some_and(|turn| self.is_own(turn));
        let mut beside = Vec::new();
        for result in results {
            parts.push(self.parts.response(result, own, &mut beside));
        }
        parts.extend(beside.into_iter().map(Part::Media));
    }

    /// Whether the content that turn `index` goes into has calls already.
    fn continues_calls(&self, index: usize) -> bool {
        let before = self.turns.get(..index).unwrap_or_default();
        before
            .iter()
            .rev()
            .take_while(|turn| turn.role == Role::Assistant)
            .any(|turn| turn.tool_calls().next().is_some())
    }

    /// Whether this API made a turn. Its usage says so; in turns without one, its signatures and blocks do.
    fn is_own(&self, turn: &SessionTurn) -> bool {
        if let Some(usage) = turn.usage.as_ref().filter(|usage| !usage.provider.is_empty()) {
            return *usage.provider == *self.wire.id;
        }
        turn.content.iter().any(|block| {
            let producer = match block {
                SessionContentBlock::Text(text) => text.signature.as_ref().map(|signature| &signature.producer),
                SessionContentBlock::Thinking(block) => block.signature.as_ref().map(|signature| &signature.producer),
                SessionContentBlock::ToolCall(call) => call.signature.as_ref().map(|signature| &signature.producer),
                SessionContentBlock::Opaque(opaque) => Some(&opaque.producer),
                _ => None,
            };
            producer == Some(&self.wire.producer)
        })
    }
}

pub(super) fn unsupported(wire: &Wire, what: &str) -> ProviderError {
    wire.error(ProviderErrorKind::Unsupported, format!("{what} cannot be sent on this wire"))
}

/// The token that takes a paused turn up again.
pub(super) fn token<'t>(wire: &Wire, content: impl Iterator<Item = &'t SessionContentBlock>) -> Option<&'t str> {
    let mut tokens = content.filter_map(|block| match block {
        SessionContentBlock::Opaque(opaque) if opaque.producer == wire.producer => {
            opaque.value.get(TOKEN).and_then(Value::as_str)
        }
        _ => None,
    });
    tokens.next()
}

/// Where the paused turns begin with which a conversation ends, and the token of the last. A request that takes them up
/// is the one before and the token; they go on the wire once something follows them.
pub(super) fn paused<'t>(wire: &Wire, model: &str, turns: &'t [Arc<HistoryTurn>]) -> Option<(usize, &'t str)> {
    let own = |turn: &'t Arc<HistoryTurn>| {
        let asked = turn.usage.as_ref().is_none_or(|usage| usage.requested_model == model);
        if turn.role == Role::Assistant && asked { token(wire, turn.content.iter()) } else { None }
    };
    let last = own(turns.last()?)?;
    let count = turns.iter().rev().take_while(|turn| own(turn).is_some()).count();
    Some((turns.len().saturating_sub(count), last))
}

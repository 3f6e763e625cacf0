//! The request body: head fields, then `"messages":[`, one message per turn, and a tail of two characters. What was
//! encoded for an earlier request of the conversation is kept and appended to.

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;

use super::super::media_fit::{Rules, check_whole, fitted};
use super::super::names::NameRule;
use super::super::outgoing::outgoing;
use super::super::prefix_digest::{Bound, PrefixDigest};
use super::super::{HistoryTurn, ModelRequest, ProviderError, ProviderErrorKind, RequestHead, ToolChoice, ToolNames};
use super::Wire;
use super::blocks::Blocks;
use super::call_ids::CallIds;
use super::fields::{CacheControl, Choice, Format, OutputConfig, System, ThinkingField, digest, tools};
use super::models::{Family, Thinking, family};
use super::server_calls::{Fate, call_of, fate, is_open};
use crate::types::{Role, SessionContentBlock, SessionTurn, TurnFinishReason};

const TAIL: &[u8] = b"]}";

/// Encodes a request, from what the conversation's cache holds where it can.
///
/// # Errors
/// `Unsupported`, naming turn and block, for what this wire cannot say.
pub(super) fn encode(wire: &Wire, request: &ModelRequest) -> Result<Encoded, ProviderError> {
    let family = family(&request.head.model);
    if request.head.extra.contains_key("messages") {
        let mut body = Body::new(wire, family, &request.head);
        body.head()?;
        body.buffer.put_u8(b'}');
        return Ok(Encoded { bytes: body.buffer.freeze(), digest: None });
    }
    let key = format!("anthropic-messages {} {}", wire.id, wire.sampling);
    let request = &*with_rules(wire, family, |rules| fitted(request, &key, rules))?;
    let ModelRequest { head, history, body_cache } = request;
    let turns = history.turns();
    let cached = body_cache.take(&key, head, history).filter(|cached| !joins_previous(turns, cached.turns));
    #[cfg(debug_assertions)]
    let was_kept = cached.is_some();
    let mut body = Body::new(wire, family, head);
    let from = match cached {
        Some(cached) => {
            body.buffer = cached.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            body.bound = cached.bound;
            cached.turns
        }
        None => {
            body.begin(0)?;
            0
        }
    };
    let mut stable = body.messages(turns, from)?;
    if body.void > body.bound.map_or(0, |bound| bound.dropped) {
        (body, stable) = Body::fresh(wire, family, head, turns, body.void)?;
    }
    body.buffer.extend_from_slice(TAIL);
    let digest = body.bound.map(|bound| bound.digest);
    let bytes = body.buffer.freeze();
    let kept = bytes.slice(..stable.bytes);
    body_cache.put_bound(key, Arc::clone(head), history, stable.turns, kept, stable.bound);

    #[cfg(debug_assertions)]
    if was_kept {
        let (mut fresh, _) = Body::fresh(wire, family, head, turns, 0)?;
        if fresh.void > 0 {
            (fresh, _) = Body::fresh(wire, family, head, turns, fresh.void)?;
        }
        fresh.buffer.extend_from_slice(TAIL);
        debug_assert_eq!(bytes, fresh.buffer, "the kept body is not what would be encoded now");
        debug_assert_eq!(digest, fresh.bound.map(|bound| bound.digest), "the kept digest is not what it would be now");
    }
    Ok(Encoded { bytes, digest })
}

/// A request's body, and the digest of what reasoning will be bound to, for models that bind it.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Bytes,
    pub(super) digest: Option<PrefixDigest>,
}

/// Checks that blocks can be sent.
///
/// # Errors
/// `Unsupported`, naming the first block that cannot.
pub(super) fn check(wire: &Wire, family: &Family, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
    let names = ToolNames::default();
    let blocks = Blocks { wire, family, names: &names, ids: &CallIds::default() };
    for (index, block) in content.iter().enumerate() {
        blocks.block(block).map_err(|what| unsupported(wire, &format!("block {index} ({what})")))?;
    }
    with_rules(wire, family, |rules| check_whole(content, rules))
}

fn with_rules<T>(wire: &Wire, family: &Family, with: impl FnOnce(&Rules<'_>) -> T) -> T {
    let names = ToolNames::default();
    let ids = CallIds::default();
    let blocks = Blocks { wire, family, names: &names, ids: &ids };
    let fault = |_: Role, block: &SessionContentBlock| blocks.block(block).err();
    with(&Rules { provider: &wire.id, part: family.media(), whole: family.request_media(), fault: &fault })
}

fn unsupported(wire: &Wire, what: &str) -> ProviderError {
    wire.error(ProviderErrorKind::Unsupported, format!("{what} cannot be sent on this wire"))
}

/// How much of a body will never change.
struct Stable {
    turns: usize,
    bytes: usize,
    bound: Option<Bound>,
}

struct Body<'a> {
    wire: &'a Wire,
    head: &'a RequestHead,
    family: &'static Family,
    buffer: BytesMut,
    bound: Option<Bound>,
    /// Turns from the start whose reasoning was bound to something else than what is written here.
    void: usize,
}

impl<'a> Body<'a> {
    fn new(wire: &'a Wire, family: &'static Family, head: &'a RequestHead) -> Self {
        Self { wire, head, family, buffer: BytesMut::new(), bound: None, void: 0 }
    }

    /// A body from its first byte, without the reasoning of the first `dropped` turns.
    fn fresh(
        wire: &'a Wire,
        family: &'static Family,
        head: &'a RequestHead,
        turns: &[Arc<HistoryTurn>],
        dropped: usize,
    ) -> Result<(Self, Stable), ProviderError> {
        let mut body = Self::new(wire, family, head);
        body.begin(dropped)?;
        let stable = body.messages(turns, 0)?;
        Ok((body, stable))
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), ProviderError> {
        serde_json::to_writer((&mut self.buffer).writer(), value)
            .map_err(|error| self.wire.error(ProviderErrorKind::Invalid, format!("the request is no JSON: {error}")))
    }

    /// A field of the head, unless the host sends its own.
    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), ProviderError> {
        if self.head.extra.contains_key(name) {
            return Ok(());
        }
        self.key(name)?;
        self.json(value)
    }

    fn key(&mut self, name: &str) -> Result<(), ProviderError> {
        if self.buffer.last() != Some(&b'{') {
            self.buffer.put_u8(b',');
        }
        self.json(name)?;
        self.buffer.put_u8(b':');
        Ok(())
    }

    fn begin(&mut self, dropped: usize) -> Result<(), ProviderError> {
        if self.family.binds {
            let digest = digest(self.head).map_err(|error| {
                self.wire.error(ProviderErrorKind::Invalid, format!("the tools are no JSON: {error}"))
            })?;
            self.bound = Some(Bound { digest, dropped });
        }
        self.head()?;
        self.key("messages")?;
        self.buffer.put_u8(b'[');
        Ok(())
    }

    fn head(&mut self) -> Result<(), ProviderError> {
        let head = self.head;
        let max_tokens = head.max_tokens.unwrap_or(self.family.max_tokens);
        let forced = self.family.forced_choice
            && !head.tools.is_empty()
            && matches!(head.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
        let thinking = head.thinking.and_then(|level| self.family.thinking(level, max_tokens, forced));

        self.buffer.put_u8(b'{');
        self.field("model", &head.model)?;
        self.field("max_tokens", &max_tokens)?;
        self.field("stream", &true)?;
        if head.cache {
            self.field("cache_control", &CacheControl::EPHEMERAL)?;
        }
        if let Some(system) = head.system.as_deref().filter(|system| !system.trim().is_empty()) {
            self.field(
                "system",
                &[System { kind: "text", text: system, cache_control: CacheControl::when(head.cache) }],
            )?;
        }
        if !head.tools.is_empty() {
            self.field("tools", &tools(head, head.cache))?;
            if let Some(choice) = self.tool_choice() {
                self.field("tool_choice", &choice)?;
            }
        }
        let effort = match thinking {
            Some(Thinking::Adaptive { effort } | Thinking::BetweenTools { effort }) => Some(effort),
            _ => None,
        };
        let schema = head.output.as_ref().filter(|_| self.family.structured_output());
        let format = schema.map(|output| Format { kind: "json_schema", schema: output.closed(false) });
        if effort.is_some() || format.is_some() {
            self.field("output_config", &OutputConfig { effort, format })?;
        }
        match thinking {
            None => {}
            Some(Thinking::Disabled) => self.field("thinking", &ThinkingField::of("disabled"))?,
            Some(Thinking::Enabled { budget }) => {
                let field = ThinkingField { budget_tokens: Some(budget), ..ThinkingField::of("enabled") };
                self.field("thinking", &field)?;
            }
            Some(Thinking::Adaptive { .. }) => self.field("thinking", &ThinkingField::of("adaptive"))?,
            Some(Thinking::BetweenTools { .. }) => self.field("thinking", &ThinkingField::of("between_tools"))?,
        }
        let thinks = matches!(thinking, Some(Thinking::Adaptive { .. } | Thinking::Enabled { .. }));
        if let Some(temperature) = head.temperature.filter(|temperature| temperature.is_finite())
            && self.family.sampling
            && self.wire.sampling
            && !thinks
        {
            self.field("temperature", &temperature)?;
        }
        let stops: Vec<_> = head.stop_sequences.iter().filter(|stop| !stop.trim().is_empty()).collect();
        if !stops.is_empty() {
            self.field("stop_sequences", &stops)?;
        }
        for (name, value) in &head.extra {
            self.key(name)?;
            self.json(value)?;
        }
        Ok(())
    }

    /// Whether the reasoning of a turn was bound to something else than what is written before it.
    fn is_void(&self, turn: &SessionTurn) -> bool {
        let Some((bound, stored)) = self.bound.zip(turn.prefix_digest.as_deref()) else { return false };
        // The host has the API itself leave it out.
        let by_server = self.head.extra.get("thinking").is_some_and(|own| own.get("block_binding").is_some());
        let thinks = |block: &SessionContentBlock| match block {
            SessionContentBlock::Thinking(thinking) => {
                thinking.signature.as_ref().is_some_and(|signature| signature.producer == self.wire.producer)
            }
            _ => false,
        };
        !bound.digest.is(stored) && !by_server && turn.content.iter().any(thinks)
    }

    fn tool_choice(&self) -> Option<Choice<'a>> {
        let head = self.head;
        match &head.tool_choice {
            ToolChoice::None => Some(Choice { kind: "none", name: None }),
            // Several models refuse to be forced; their choice is left to them.
            ToolChoice::Required if self.family.forced_choice => Some(Choice { kind: "any", name: None }),
            ToolChoice::Tool(name) if self.family.forced_choice => {
                Some(Choice { kind: "tool", name: Some(NameRule::PORTABLE.wire_name(head.names.display(name))) })
            }
            _ => None,
        }
    }

    /// Writes the turns from `from` on.
    fn messages(&mut self, turns: &[Arc<HistoryTurn>], from: usize) -> Result<Stable, ProviderError> {
        let mut stable = Stable { turns: from, bytes: self.buffer.len(), bound: self.bound };
        let mut settled = true;
        let mut ids = CallIds::default();
        ids.go_before(turns, from, &self.wire.id);
        let mut at = from;
        while at < turns.len() {
            let mut end = at + 1;
            while joins_previous(turns, end) {
                end += 1;
            }
            if let Some(turn) = turns.get(at).filter(|turn| turn.role == Role::Assistant) {
                ids.go_to(turns, at, &self.wire.id);
                if self.is_void(turn) {
                    self.void = at + 1;
                }
            }
            self.message(turns, at..end, &ids)?;
            settled = settled && !is_open(turns, at, &self.wire.producer);
            if settled {
                stable = Stable { turns: end, bytes: self.buffer.len(), bound: self.bound };
            }
            at = end;
        }
        Ok(stable)
    }

    /// Writes one message, or nothing when nothing of the turns is for this wire.
    fn message(
        &mut self,
        turns: &[Arc<HistoryTurn>],
        range: Range<usize>,
        ids: &CallIds<'_>,
    ) -> Result<(), ProviderError> {
        let start = self.buffer.len();
        if self.buffer.last() != Some(&b'[') {
            self.buffer.put_u8(b',');
        }
        let is_user = turns.get(range.start).is_some_and(|turn| turn.role == Role::User);
        let opening: &[u8] =
            if is_user { br#"{"role":"user","content":["# } else { br#"{"role":"assistant","content":["# };
        self.buffer.extend_from_slice(opening);
        let content = self.buffer.len();

        let index = range.start;
        let blocks = if is_user { user_blocks(turns, range) } else { self.assistant_blocks(turns, range.start) };
        let writer = Blocks { wire: self.wire, family: self.family, names: &self.head.names, ids };
        let mut digested = false;
        for (place, stored) in blocks.into_iter().enumerate() {
            let block = writer
                .block(stored)
                .map_err(|what| unsupported(self.wire, &format!("block {place} ({what}) of turn {index}")))?;
            let Some(block) = block else { continue };
            if self.buffer.len() > content {
                self.buffer.put_u8(b',');
            }
            let begins = self.buffer.len();
            self.json(&block)?;
            if let Some(bound) = self.bound.as_mut().filter(|_| !matches!(stored, SessionContentBlock::Thinking(_))) {
                if !std::mem::replace(&mut digested, true) {
                    bound.digest.add(opening);
                }
                bound.digest.add(self.buffer.get(begins..).unwrap_or_default());
            }
        }
        if self.buffer.len() == content {
            self.buffer.truncate(start);
        } else {
            self.buffer.extend_from_slice(TAIL);
        }
        Ok(())
    }

    fn assistant_blocks<'t>(&self, turns: &'t [Arc<HistoryTurn>], index: usize) -> Vec<&'t SessionContentBlock> {
        let producer = &self.wire.producer;
        let mut blocks = outgoing(turns, index);
        blocks.retain(|block| call_of(block, producer).is_none_or(|id| fate(turns, index, id) != Fate::Abandoned));
        if self.bound.is_some_and(|bound| index < bound.dropped) {
            blocks.retain(|block| !matches!(block, SessionContentBlock::Thinking(_)));
        }
        // What the first model had thought and called is void once another took over.
        if let Some(fallback) = blocks.iter().rposition(|block| is_fallback(block)) {
            let mut place = 0;
            blocks.retain(|block| {
                place += 1;
                place > fallback
                    || !matches!(block, SessionContentBlock::Thinking(_) | SessionContentBlock::ToolCall(_))
            });
        }
        // A message must not end in reasoning, unless the server is to take it up again there.
        if turns.get(index).is_some_and(|turn| turn.finish_reason != Some(TurnFinishReason::Pause)) {
            while let Some(SessionContentBlock::Thinking(_)) = blocks.last() {
                blocks.pop();
            }
        }
        blocks
    }
}

/// Results first, as the wire demands, then the rest in order.
fn user_blocks(turns: &[Arc<HistoryTurn>], range: Range<usize>) -> Vec<&SessionContentBlock> {
    let void =
        range.start.checked_sub(1).and_then(|before| turns.get(before)).map_or_else(Vec::new, |turn| void_calls(turn));
    let blocks: Vec<_> = range.flat_map(|index| outgoing(turns, index)).collect();
    let (results, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|block| block.as_tool_result().is_some());
    let answered = |block: &&SessionContentBlock| {
        block.as_tool_result().is_some_and(|result| !void.contains(&result.call_id.as_str()))
    };
    results.into_iter().filter(answered).chain(rest).collect()
}

/// The calls of a turn that stand before its last fallback.
fn void_calls(turn: &SessionTurn) -> Vec<&str> {
    let fallback = turn.content.iter().rposition(is_fallback).unwrap_or(0);
    let before = turn.content.get(..fallback).unwrap_or_default();
    before.iter().filter_map(|block| block.as_tool_call()).map(|call| call.id.as_str()).collect()
}

fn is_fallback(block: &SessionContentBlock) -> bool {
    match block {
        SessionContentBlock::Opaque(opaque) => opaque.value.get("type").and_then(Value::as_str) == Some("fallback"),
        _ => false,
    }
}

/// Whether turn `index` holds results that belong into the message of the turn before: all results of a turn's calls
/// must stand in one message.
fn joins_previous(turns: &[Arc<HistoryTurn>], index: usize) -> bool {
    let has_results = |turn: &Arc<HistoryTurn>| turn.role == Role::User && turn.tool_results().next().is_some();
    let before = index.checked_sub(1).and_then(|before| turns.get(before));
    turns.get(index).is_some_and(has_results) && before.is_some_and(has_results)
}

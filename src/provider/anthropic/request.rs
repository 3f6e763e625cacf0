//! The request body: head fields, then `"messages":[`, one message per turn, and a tail of two characters. What was
//! encoded for an earlier request of the conversation is kept and appended to.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::Value;

use super::super::media_fit::{Rules, check_whole, fitted};
use super::super::names::NameRule;
use super::super::outgoing::outgoing;
use super::super::{HistoryTurn, ModelRequest, ProviderError, ProviderErrorKind, RequestHead, ToolChoice, ToolNames};
use super::Wire;
use super::blocks::Blocks;
use super::call_ids::CallIds;
use super::models::{Family, Thinking, family};
use super::schema::{fits_strict, lowered};
use super::server_calls::{Fate, call_of, fate, is_open};
use crate::types::{Role, SessionContentBlock, SessionTurn, TurnFinishReason};

const TAIL: &[u8] = b"]}";

/// Encodes a request, from what the conversation's cache holds where it can.
///
/// # Errors
/// `Unsupported`, naming turn and block, for what this wire cannot say.
pub(super) fn encode(wire: &Wire, request: &ModelRequest) -> Result<Bytes, ProviderError> {
    if request.head.extra.contains_key("messages") {
        let mut body = Body::new(wire, &request.head);
        body.head()?;
        body.buffer.put_u8(b'}');
        return Ok(body.buffer.freeze());
    }
    let key = format!("anthropic-messages {} {}", wire.id, wire.sampling);
    let family = family(&request.head.model);
    let request = &*with_rules(wire, family, |rules| fitted(request, &key, rules))?;
    let ModelRequest { head, history, body_cache } = request;
    let turns = history.turns();
    let mut body = Body::new(wire, head);
    let cached = body_cache.take(&key, head, history).filter(|cached| !joins_previous(turns, cached.turns));
    let from = match cached {
        Some(cached) => {
            body.buffer = cached.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            cached.turns
        }
        None => {
            body.begin()?;
            0
        }
    };
    let stable = body.messages(turns, from)?;
    body.buffer.extend_from_slice(TAIL);
    let bytes = body.buffer.freeze();
    body_cache.put(key, Arc::clone(head), history, stable.turns, bytes.slice(..stable.bytes));

    #[cfg(debug_assertions)]
    if from > 0 {
        let mut fresh = Body::new(wire, head);
        fresh.begin()?;
        fresh.messages(turns, 0)?;
        fresh.buffer.extend_from_slice(TAIL);
        debug_assert_eq!(bytes, fresh.buffer, "the kept body is not what would be encoded now");
    }
    Ok(bytes)
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
}

struct Body<'a> {
    wire: &'a Wire,
    head: &'a RequestHead,
    family: &'static Family,
    buffer: BytesMut,
}

impl<'a> Body<'a> {
    fn new(wire: &'a Wire, head: &'a RequestHead) -> Self {
        Self { wire, head, family: family(&head.model), buffer: BytesMut::new() }
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

    fn begin(&mut self) -> Result<(), ProviderError> {
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
            self.field("tools", &tools(head))?;
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
        let mut stable = Stable { turns: from, bytes: self.buffer.len() };
        let mut settled = true;
        let mut ids = CallIds::default();
        ids.go_before(turns, from, &self.wire.id);
        let mut at = from;
        while at < turns.len() {
            let mut end = at + 1;
            while joins_previous(turns, end) {
                end += 1;
            }
            if turns.get(at).is_some_and(|turn| turn.role == Role::Assistant) {
                ids.go_to(turns, at, &self.wire.id);
            }
            self.message(turns, at..end, &ids)?;
            settled = settled && !is_open(turns, at, &self.wire.producer);
            if settled {
                stable = Stable { turns: end, bytes: self.buffer.len() };
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
        for (place, block) in blocks.into_iter().enumerate() {
            let block = writer
                .block(block)
                .map_err(|what| unsupported(self.wire, &format!("block {place} ({what}) of turn {index}")))?;
            let Some(block) = block else { continue };
            if self.buffer.len() > content {
                self.buffer.put_u8(b',');
            }
            self.json(&block)?;
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

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl CacheControl {
    const EPHEMERAL: Self = Self { kind: "ephemeral" };

    fn when(wanted: bool) -> Option<Self> {
        wanted.then_some(Self::EPHEMERAL)
    }
}

#[derive(Serialize)]
struct System<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    input_schema: Cow<'a, Value>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

fn tools(head: &RequestHead) -> Vec<Tool<'_>> {
    let last = head.tools.len().saturating_sub(1);
    head.tools
        .iter()
        .enumerate()
        .map(|(place, tool)| Tool {
            name: NameRule::PORTABLE.wire_name(head.names.display(&tool.name)),
            description: tool.description.trim(),
            input_schema: lowered(&tool.input_schema),
            strict: tool.strict && fits_strict(&tool.input_schema),
            cache_control: CacheControl::when(head.cache && place == last),
        })
        .collect()
}

#[derive(Serialize)]
struct Choice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct ThinkingField {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
}

impl ThinkingField {
    const fn of(kind: &'static str) -> Self {
        Self { kind, budget_tokens: None }
    }
}

#[derive(Serialize)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Serialize)]
struct Format {
    #[serde(rename = "type")]
    kind: &'static str,
    schema: Value,
}

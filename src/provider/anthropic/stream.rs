use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::names::NameTable;
use super::super::prefix_digest::PrefixDigest;
use super::super::wire::{Decoder, Events, json_error, repair};
use super::super::{ProviderError, ProviderErrorKind, StreamEvent};
use super::events::{Block, Delta, Envelope, Message, Plain, Tag, is_known, plain};
use super::usage::UsageTally;
use super::{Wire, error};
use crate::types::TurnFinishReason;

/// Reads one message, streamed or whole.
#[derive(Debug)]
pub(super) struct MessageDecoder {
    wire: Wire,
    names: NameTable,
    /// Blocks that have begun and not ended, in any order. The wire numbers them itself, and may interleave them.
    open: Vec<OpenBlock>,
    /// How many blocks were given a number.
    numbered: u32,
    usage: UsageTally,
    stop_reason: Option<String>,
    has_calls: bool,
    started: bool,
    finished: bool,
    digest: Option<PrefixDigest>,
}

#[derive(Debug)]
struct OpenBlock {
    /// The wire's number.
    index: u64,
    /// Ours, once something of the block was sent on.
    number: Option<u32>,
    kind: BlockKind,
}

#[derive(Debug)]
enum BlockKind {
    /// Text, with the citations that came for it.
    Text {
        citations: Vec<Box<RawValue>>,
    },
    Thinking,
    /// A call, with the input that its start held.
    Call {
        whole_input: Option<String>,
    },
    /// A block that goes back as it is, with the text of its streamed input.
    Opaque {
        value: Value,
        input: String,
    },
}

impl MessageDecoder {
    pub(super) fn new(wire: Wire, names: NameTable) -> Self {
        Self {
            wire,
            names,
            open: Vec::new(),
            numbered: 0,
            usage: UsageTally::default(),
            stop_reason: None,
            has_calls: false,
            started: false,
            finished: false,
            digest: None,
        }
    }

    /// Says what the answer's reasoning is bound to.
    pub(super) const fn bound(mut self, digest: Option<PrefixDigest>) -> Self {
        self.digest = digest;
        self
    }

    fn unreadable(&self, error: &serde_json::Error, json: &str) -> ProviderError {
        let mut error = json_error(&self.wire.id, error, json.as_bytes());
        // The event itself arrived whole.
        error.kind = ProviderErrorKind::Protocol;
        error
    }

    fn envelope(&mut self, event: Envelope<'_>, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        let index = event.index.unwrap_or(0);
        match event.kind.as_ref().map_or("", |kind| &kind.0) {
            "content_block_delta" => {
                if let Some(delta) = event.delta {
                    self.delta(index, delta, data, out);
                }
            }
            "content_block_start" => {
                if let Some(block) = event.content_block {
                    self.end_block(index, out);
                    self.start_block(index, block, out)?;
                }
            }
            "content_block_stop" => self.end_block(index, out),
            "message_start" => {
                if let Some(message) = event.message {
                    let message = parse::<Message<'_>>(message.get()).map_err(|error| self.unreadable(&error, data))?;
                    self.message(message, out)?;
                }
            }
            "message_delta" => {
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.stop_reason = Some(reason);
                }
                if let Some(usage) = event.usage {
                    out.push_back(StreamEvent::Usage(self.usage.update(usage)));
                }
            }
            "message_stop" => self.finish(out),
            // `ping`, and whatever is added to the protocol.
            _ => {}
        }
        Ok(())
    }

    /// The head of a streamed message, which may hold blocks already, or a whole one.
    fn message(&mut self, message: Message<'_>, out: &mut Events) -> Result<(), ProviderError> {
        if !self.started {
            self.started = true;
            out.push_back(StreamEvent::Start { model: message.model, response_id: message.id });
            out.extend(self.digest.map(|digest| StreamEvent::PrefixDigest(digest.to_string())));
        }
        if let Some(usage) = message.usage {
            out.push_back(StreamEvent::Usage(self.usage.update(usage)));
        }
        // A number that no streamed block has.
        const WHOLE: u64 = u64::MAX;
        for block in message.content.into_iter().flatten() {
            self.start_block(WHOLE, block, out)?;
            self.end_block(WHOLE, out);
        }
        self.stop_reason = message.stop_reason.or(self.stop_reason.take());
        Ok(())
    }

    fn number(&mut self) -> u32 {
        let number = self.numbered;
        self.numbered = self.numbered.saturating_add(1);
        number
    }

    fn start_block(&mut self, index: u64, raw: &RawValue, out: &mut Events) -> Result<(), ProviderError> {
        let json = raw.get();
        let tag = parse::<Tag<'_>>(json).map_err(|error| self.unreadable(&error, json))?;
        let kind = tag.kind.as_ref().map_or("", |kind| &kind.0);
        if !matches!(kind, "text" | "thinking" | "redacted_thinking" | "tool_use") {
            let value = parse::<Value>(json).map_err(|error| self.unreadable(&error, json))?;
            self.open.push(OpenBlock { index, number: None, kind: BlockKind::Opaque { value, input: String::new() } });
            return Ok(());
        }
        let block = parse::<Block<'_>>(json).map_err(|error| self.unreadable(&error, json))?;
        match kind {
            "text" => {
                let citations = block.citations.unwrap_or_default();
                self.open.push(OpenBlock { index, number: None, kind: BlockKind::Text { citations } });
                self.text(index, block.text.unwrap_or_default(), out);
            }
            "thinking" => {
                // Opened at once: with the display omitted, a signature is all that follows.
                let number = self.number();
                self.open.push(OpenBlock { index, number: Some(number), kind: BlockKind::Thinking });
                out.push_back(StreamEvent::Thinking { block: number, delta: block.thinking.unwrap_or_default() });
                self.signature(number, block.signature.unwrap_or_default(), out);
            }
            "redacted_thinking" => {
                let (block, data) = (self.number(), block.data.unwrap_or_default());
                out.push_back(StreamEvent::RedactedThinking { block, producer: self.wire.producer.clone(), data });
            }
            _ => self.start_call(index, block, out),
        }
        Ok(())
    }

    fn start_call(&mut self, index: u64, block: Block<'_>, out: &mut Events) {
        let number = self.number();
        let name = block.name.unwrap_or_default();
        let name = match self.names.original(&name) {
            same if same == name => name,
            original => original.to_owned(),
        };
        out.push_back(StreamEvent::ToolCallStart { block: number, id: block.id.unwrap_or_default(), name });
        self.signature(number, call_state(block.caller, block.toolset_name), out);
        let whole_input = block.input.map(RawValue::get).filter(|input| !matches!(*input, "{}" | "null"));
        let whole_input = whole_input.map(str::to_owned);
        self.open.push(OpenBlock { index, number: Some(number), kind: BlockKind::Call { whole_input } });
    }

    fn signature(&self, block: u32, value: String, out: &mut Events) {
        if !value.is_empty() {
            out.push_back(StreamEvent::Signature { block, producer: self.wire.producer.clone(), value });
        }
    }

    fn find(&mut self, index: u64) -> Option<&mut OpenBlock> {
        self.open.iter_mut().rev().find(|block| block.index == index)
    }

    /// More text of a text block. One that was never announced is opened; other blocks keep theirs.
    fn text(&mut self, index: u64, delta: String, out: &mut Events) {
        if delta.is_empty() {
            return;
        }
        let next = self.numbered;
        let block = match self.find(index) {
            Some(OpenBlock { kind: BlockKind::Text { .. }, number, .. }) => *number.get_or_insert(next),
            Some(_) => return,
            None => {
                let kind = BlockKind::Text { citations: Vec::new() };
                self.open.push(OpenBlock { index, number: Some(next), kind });
                next
            }
        };
        self.numbered = self.numbered.max(block.saturating_add(1));
        out.push_back(StreamEvent::Text { block, delta });
    }

    fn thinking(&mut self, index: u64, delta: String, out: &mut Events) {
        let next = self.numbered;
        let block = match self.find(index) {
            Some(OpenBlock { kind: BlockKind::Thinking, number, .. }) => *number.get_or_insert(next),
            Some(_) => return,
            None => {
                self.open.push(OpenBlock { index, number: Some(next), kind: BlockKind::Thinking });
                next
            }
        };
        self.numbered = self.numbered.max(block.saturating_add(1));
        if !delta.is_empty() {
            out.push_back(StreamEvent::Thinking { block, delta });
        }
    }

    fn input(&mut self, index: u64, delta: String, out: &mut Events) {
        if delta.is_empty() {
            return;
        }
        if let Some(OpenBlock { kind: BlockKind::Call { whole_input }, number: Some(number), .. }) = self.find(index) {
            *whole_input = None;
            out.push_back(StreamEvent::ToolCallDelta { block: *number, delta });
        }
    }

    fn delta(&mut self, index: u64, delta: Delta<'_>, data: &str, out: &mut Events) {
        let kind = delta.kind.as_ref().map_or("", |kind| &kind.0);
        if let Some(OpenBlock { kind: BlockKind::Opaque { value, input }, .. }) = self.find(index) {
            match delta.partial_json {
                Some(json) if kind == "input_json_delta" => input.push_str(&json),
                _ => merge_delta(value, data),
            }
            return;
        }
        match kind {
            "text_delta" => self.text(index, delta.text.unwrap_or_default(), out),
            "thinking_delta" => self.thinking(index, delta.thinking.unwrap_or_default(), out),
            "input_json_delta" => {
                self.input(index, delta.partial_json.unwrap_or_default(), out);
            }
            "signature_delta" => {
                let number = self.find(index).and_then(|block| block.number);
                if let (Some(number), Some(value)) = (number, delta.signature) {
                    self.signature(number, value, out);
                }
            }
            "citations_delta" => {
                if let (Some(OpenBlock { kind: BlockKind::Text { citations }, .. }), Some(citation)) =
                    (self.find(index), delta.citation)
                {
                    citations.push(citation);
                }
            }
            _ => {}
        }
    }

    fn end_block(&mut self, index: u64, out: &mut Events) {
        let Some(at) = self.open.iter().rposition(|block| block.index == index) else { return };
        let block = self.open.remove(at);
        match (block.kind, block.number) {
            (BlockKind::Call { whole_input }, Some(block)) => {
                if let Some(delta) = whole_input {
                    out.push_back(StreamEvent::ToolCallDelta { block, delta });
                }
                self.has_calls = true;
                out.push_back(StreamEvent::ToolCallEnd { block });
            }
            (BlockKind::Opaque { mut value, input }, _) => {
                if let (false, Some(fields)) = (input.trim().is_empty(), value.as_object_mut()) {
                    let input = parse::<Value>(&input).unwrap_or_else(|_| serde_json::json!({ "INVALID_JSON": input }));
                    fields.insert("input".into(), input);
                }
                let block = self.number();
                out.push_back(StreamEvent::Opaque { block, producer: self.wire.producer.clone(), value });
            }
            (BlockKind::Text { citations }, Some(block)) if !citations.is_empty() => {
                let value = serde_json::to_string(&citations).unwrap_or_default();
                self.signature(block, value, out);
            }
            _ => {}
        }
    }

    fn finish(&mut self, out: &mut Events) {
        while let Some(index) = self.open.first().map(|block| block.index) {
            self.end_block(index, out);
        }
        let raw = self.stop_reason.take();
        out.push_back(StreamEvent::Finish { reason: finish_reason(raw.as_deref(), self.has_calls), raw });
        self.finished = true;
    }
}

impl Decoder for MessageDecoder {
    fn plain(&mut self, data: &[u8], out: &mut Events) -> bool {
        let Some((index, event)) = plain(data) else { return false };
        // What streams into an opaque block is kept with all its fields; a beginning ends it first.
        if matches!(self.find(index), Some(OpenBlock { kind: BlockKind::Opaque { .. }, .. })) {
            return false;
        }
        match event {
            Plain::Text(text) => self.text(index, text, out),
            Plain::Thinking(text) => self.thinking(index, text, out),
            Plain::Input(json) => self.input(index, json, out),
            Plain::BlockStop => self.end_block(index, out),
            Plain::TextStart => {
                self.end_block(index, out);
                let kind = BlockKind::Text { citations: Vec::new() };
                self.open.push(OpenBlock { index, number: None, kind });
            }
            Plain::CallStart { id, name } => {
                self.end_block(index, out);
                self.start_call(index, Block { id: Some(id), name: Some(name), ..Block::default() }, out);
            }
        }
        true
    }

    fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        if data.trim() == "[DONE]" {
            return if self.stop_reason.is_some() { self.eof(out) } else { Ok(()) };
        }
        if name == "error" {
            return Err(error::from_body(&self.wire, None, data.as_bytes()));
        }
        let failed = match serde_json::from_str::<Envelope<'_>>(data) {
            Ok(event) if event.kind.is_some() => {
                if event.kind.as_ref().is_some_and(|kind| kind.0 == "error") {
                    return Err(error::from_body(&self.wire, None, data.as_bytes()));
                }
                return self.envelope(event, data, out);
            }
            Ok(_) => None,
            Err(failed) => Some(failed),
        };
        if let Some(repaired) = failed.as_ref().and_then(|_| repair(data)) {
            return self.event(name, &repaired, out);
        }
        match parse::<Value>(data) {
            // No type: an error in another vendor's shape, or nothing of ours.
            Ok(value) if value.get("error").is_some_and(|error| !error.is_null()) => {
                Err(error::from_body(&self.wire, None, data.as_bytes()))
            }
            Ok(value) => match (failed, value.get("type").and_then(Value::as_str)) {
                (Some(failed), Some(kind)) if is_known(kind) => Err(self.unreadable(&failed, data)),
                _ => Ok(()),
            },
            Err(failed) => Err(self.unreadable(&failed, data)),
        }
    }

    fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let tag = match parse::<Value>(&text) {
            Ok(value) => value,
            Err(failed) => match repair(&text) {
                Some(repaired) if parse::<Value>(&repaired).is_ok() => return self.body(repaired.as_bytes(), out),
                _ => return Err(json_error(&self.wire.id, &failed, body)),
            },
        };
        let has = |key: &str| tag.get(key).is_some_and(|value| !value.is_null());
        if has("error") || !has("content") && !has("stop_reason") {
            let mut error = error::from_body(&self.wire, None, body);
            if !has("error") {
                error.kind = ProviderErrorKind::Protocol;
                error.message = "the response is not a message".into();
            }
            error.body_excerpt = Some(super::super::response::excerpt(body));
            return Err(error);
        }
        let message = parse::<Message<'_>>(&text).map_err(|error| json_error(&self.wire.id, &error, body))?;
        self.message(message, out)?;
        self.finish(out);
        Ok(())
    }

    /// A stop reason is as good as `message_stop`: some compatible servers send nothing after it.
    fn eof(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        if self.stop_reason.is_some() {
            self.finish(out);
            return Ok(());
        }
        let what = if self.started { "in the middle of the answer" } else { "before the answer began" };
        Err(self.wire.error(ProviderErrorKind::TruncatedStream, format!("the stream ended {what}")))
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn status_error(&self, status: u16, body: &[u8]) -> ProviderError {
        error::from_body(&self.wire, Some(status), body)
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json)
}

/// What a call must carry when it goes back: who made it, unless the model did itself, and its toolset.
fn call_state(caller: Option<&RawValue>, toolset: Option<&RawValue>) -> String {
    let by_code = caller.filter(|caller| {
        parse::<Tag<'_>>(caller.get()).is_ok_and(|tag| tag.kind.is_some_and(|kind| kind.0 != "direct"))
    });
    let toolset = toolset.filter(|toolset| toolset.get() != "null");
    match (by_code, toolset) {
        (None, None) => String::new(),
        (Some(caller), None) => format!(r#"{{"caller":{caller}}}"#),
        (None, Some(toolset)) => format!(r#"{{"toolset_name":{toolset}}}"#),
        (Some(caller), Some(toolset)) => format!(r#"{{"caller":{caller},"toolset_name":{toolset}}}"#),
    }
}

/// Adds the fields of a delta to a block that is kept as it is: texts grow, anything else is replaced.
fn merge_delta(block: &mut Value, data: &str) {
    let Ok(Value::Object(mut event)) = parse::<Value>(data) else { return };
    let (Some(Value::Object(delta)), Some(block)) = (event.remove("delta"), block.as_object_mut()) else { return };
    for (key, value) in delta {
        match (block.get_mut(&key), value) {
            _ if key == "type" => {}
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (Some(old), Value::Null) if !old.is_null() => {}
            (_, value) => _ = block.insert(key, value),
        }
    }
}

/// The class of a stop reason. Calls that are there beat a reason that does not mention them, and the other way round.
fn finish_reason(raw: Option<&str>, has_calls: bool) -> TurnFinishReason {
    let raw = raw.map(str::to_ascii_lowercase);
    match raw.as_deref() {
        Some("max_tokens" | "length" | "model_context_window_exceeded") => TurnFinishReason::Length,
        Some("refusal" | "content_filter") => TurnFinishReason::ContentFilter,
        Some("pause_turn" | "compaction") => TurnFinishReason::Pause,
        Some("end_turn" | "stop_sequence" | "stop" | "eos" | "completed" | "tool_use" | "tool_calls") if !has_calls => {
            TurnFinishReason::Stop
        }
        Some("end_turn" | "stop_sequence" | "stop" | "eos" | "completed" | "tool_use" | "tool_calls") => {
            TurnFinishReason::ToolCalls
        }
        None if has_calls => TurnFinishReason::ToolCalls,
        _ => TurnFinishReason::Other,
    }
}

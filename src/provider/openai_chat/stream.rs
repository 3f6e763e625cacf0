use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::calls::{BadCall, CallPiece, CallSink, Calls};
use super::chunk::{Choice, Chunk, Content, Delta, Function, Part};
use super::details::{Details, piece_text};
use super::finish;
use super::profile::ChatProfile;
use super::usage::Usage;
use crate::provider::delta_shape::Shape;
use crate::provider::names::NameTable;
use crate::provider::openai_error;
use crate::provider::response::excerpt;
use crate::provider::wire::{Decoder, Events, json_error, repair};
use crate::provider::{ProviderError, ProviderErrorKind, StreamEvent, UsageSnapshot};
use crate::types::{SignatureProducer, TurnFinishReason};

/// Turns chunks, or one whole response, into events.
///
/// The answer is complete at `[DONE]`, or at the end of the body once a finish reason was seen: several vendors send no
/// `[DONE]`. Usage and errors may still come after the finish reason, so reading goes on until then.
pub(super) struct ChatDecoder {
    profile: Arc<ChatProfile>,
    names: NameTable,
    producer: SignatureProducer,
    started: bool,
    finished: bool,
    blocks: u32,
    open: Open,
    first_thinking: Option<u32>,
    last_text: Option<u32>,
    calls: Calls,
    details: Details,
    thinking_signature: Option<String>,
    text_signature: Option<String>,
    usage: Usage,
    reported: Option<UsageSnapshot>,
    answered: bool,
    refused: bool,
    reason: Option<String>,
    shape: Shape<DeltaKind>,
    /// The response names a time to wait.
    may_retry: bool,
}

/// What a delta of the remembered shape does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeltaKind {
    /// Text of a block.
    Text(u32),
    /// Reasoning of a block.
    Thinking(u32),
    /// Arguments of the last call.
    Arguments(u32),
}

/// The block to which text or reasoning is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    None,
    Text(u32),
    Thinking(u32),
}

impl ChatDecoder {
    pub(super) fn new(profile: Arc<ChatProfile>, names: NameTable, may_retry: bool) -> Self {
        Self {
            producer: SignatureProducer::new(profile.id.clone()),
            profile,
            names,
            started: false,
            finished: false,
            blocks: 0,
            open: Open::None,
            first_thinking: None,
            last_text: None,
            calls: Calls::default(),
            details: Details::default(),
            thinking_signature: None,
            text_signature: None,
            usage: Usage::default(),
            reported: None,
            answered: false,
            refused: false,
            reason: None,
            shape: Shape::default(),
            may_retry,
        }
    }

    fn fast(&mut self, kind: DeltaKind, delta: String, out: &mut Events) -> bool {
        out.push_back(match kind {
            DeltaKind::Text(block) => StreamEvent::Text { block, delta },
            DeltaKind::Thinking(block) => StreamEvent::Thinking { block, delta },
            DeltaKind::Arguments(block) => {
                if !self.calls.feed_last(block, &delta) {
                    return false;
                }
                StreamEvent::ToolCallDelta { block, delta }
            }
        });
        true
    }

    fn chunk(&mut self, chunk: &Chunk<'_>, data: &str, whole: bool, out: &mut Events) -> Result<(), ProviderError> {
        self.shape.forget();
        let before = out.len();
        self.start(chunk, out);
        let mut learned = None;
        for choice in chunk.choices.iter().filter(|choice| choice.is_first()) {
            learned = self.choice(choice, whole, out)?;
        }
        let group = chunk.x_groq.as_ref();
        for usage in [group.and_then(|group| group.usage), chunk.usage].into_iter().flatten() {
            self.usage.take(usage);
        }
        self.report_usage(out);
        // Last, so that what the chunk says besides is not lost.
        let choice_errors = chunk.choices.iter().map(|choice| choice.error);
        let errors = [chunk.error, group.and_then(|group| group.error)].into_iter().chain(choice_errors);
        if let Some(raw) = errors.flatten().find(|raw| !matches!(raw.get(), "null" | "{}" | "\"\"" | "false")) {
            let _ = self.end_calls(true, out);
            return Err(self.chunk_error(raw, data));
        }
        if let Some((text, kind)) = learned
            && out.len() == before.saturating_add(1)
            && !whole
        {
            self.shape.learn(data.as_bytes(), text, kind);
        }
        Ok(())
    }

    fn chunk_error(&self, raw: &RawValue, data: &str) -> ProviderError {
        // The code may stand beside the error, so the whole chunk is read; with choices, the error alone.
        match serde_json::from_str::<Value>(data) {
            Ok(value) if value.get("choices").is_none() => {
                openai_error::from_body(&*self.profile, None, data.as_bytes())
            }
            _ => openai_error::from_stream(&*self.profile, raw.get()),
        }
    }

    fn start(&mut self, chunk: &Chunk<'_>, out: &mut Events) {
        let model = (!chunk.model.0.is_empty()).then(|| chunk.model.0.clone().into_owned());
        if self.started || model.is_none() && chunk.choices.is_empty() {
            return;
        }
        self.started = true;
        let response_id = (!chunk.id.0.is_empty()).then(|| chunk.id.0.clone().into_owned());
        out.push_back(StreamEvent::Start { model, response_id });
    }

    /// Takes the first choice in. Gives a delta whose chunk may teach the fast path.
    fn choice<'c>(
        &mut self,
        choice: &'c Choice<'_>,
        whole: bool,
        out: &mut Events,
    ) -> Result<Option<(&'c str, DeltaKind)>, ProviderError> {
        let mut learned = None;
        // Perplexity repeats the answer so far as a `message` in every chunk.
        let message = choice.message.as_ref().filter(|_| whole || !self.answered);
        if let Some(delta) = choice.delta.as_ref().filter(|_| !whole).or(message) {
            learned = self.delta(delta, whole, out)?;
        }
        self.answered = true;
        if !choice.finish_reason.0.is_empty() {
            self.reason = Some(choice.finish_reason.0.clone().into_owned());
        }
        if let Some(usage) = choice.usage {
            self.usage.take(usage);
        }
        Ok(learned)
    }

    fn delta<'c>(
        &mut self,
        delta: &'c Delta<'_>,
        whole: bool,
        out: &mut Events,
    ) -> Result<Option<(&'c str, DeltaKind)>, ProviderError> {
        let mut learned = self.reasoning(delta, whole, out);
        match &delta.content {
            Content::None => {}
            Content::Text(text) => {
                if let Some(block) = self.text(text, out) {
                    learned = borrowed(text).map(|text| (text, DeltaKind::Text(block)));
                }
            }
            Content::Parts(parts) => parts.iter().for_each(|part| self.part(part, out)),
        }
        if !delta.refusal.0.is_empty() {
            self.refused = true;
            self.text(&delta.refusal.0, out);
        }
        if let Some(extra) = delta.extra_content.filter(|raw| raw.get() != "null") {
            self.text_signature = Some(extra.get().to_owned());
        }
        for call in delta.tool_calls.iter() {
            let custom = call.custom.as_ref();
            let function = call.function.as_ref();
            let arguments = match (custom, function) {
                (Some(custom), None) => Cow::Borrowed(&*custom.input.0),
                (_, function) => function.map(Function::arguments).unwrap_or_default(),
            };
            let name = function.map(|function| &*function.name.0).or(custom.map(|custom| &*custom.name.0));
            let piece = CallPiece {
                index: call.index.0,
                id: &call.id.0,
                name: name.unwrap_or_default(),
                arguments: &arguments,
                custom: custom.is_some() && function.is_none(),
                signature: call.extra_content.map(RawValue::get).filter(|raw| *raw != "null"),
            };
            if let Some(block) = self.call(&piece, out)?
                && let Cow::Borrowed(text) = arguments
                && self.calls.is_last(block)
            {
                learned = Some((text, DeltaKind::Arguments(block)));
            }
        }
        if let Some(function) = &delta.function_call {
            let arguments = function.arguments();
            if !function.name.0.is_empty() || !arguments.is_empty() {
                let piece = CallPiece { name: &function.name.0, arguments: &arguments, ..CallPiece::default() };
                self.call(&piece, out)?;
            }
        }
        Ok(learned.filter(|_| delta.reasoning_details.is_empty() && delta.extra_content.is_none()))
    }

    /// The first name that holds text wins: gateways repeat it under several.
    fn reasoning<'c>(&mut self, delta: &'c Delta<'_>, whole: bool, out: &mut Events) -> Option<(&'c str, DeltaKind)> {
        let names = [&delta.reasoning_content.0, &delta.reasoning.0, &delta.reasoning_text.0];
        let text = names.into_iter().find(|text| !text.is_empty());
        let mut learned = None;
        if let Some(text) = text {
            let block = self.thinking(text, out);
            learned = borrowed(text).map(|text| (text, DeltaKind::Thinking(block)));
        }
        if delta.reasoning_details.is_empty() {
            return learned;
        }
        for raw in delta.reasoning_details.iter() {
            if text.is_none() {
                let text = piece_text(raw);
                if !text.is_empty() {
                    self.thinking(&text, out);
                }
            }
            if !whole {
                self.details.take(raw);
            }
        }
        if whole {
            self.details.take_whole(&delta.reasoning_details);
        }
        if self.first_thinking.is_none() {
            // Encrypted through and through: an empty block carries it.
            self.thinking("", out);
        }
        None
    }

    fn part(&mut self, part: &Part<'_>, out: &mut Events) {
        for text in part.thinking.0.iter() {
            if !text.is_empty() {
                self.thinking(text, out);
            }
        }
        if !part.signature.0.is_empty() && &*part.r#type.0 == "thinking" {
            if self.first_thinking.is_none() {
                self.thinking("", out);
            }
            self.thinking_signature = Some(part.signature.0.clone().into_owned());
        }
        if !part.refusal.0.is_empty() {
            self.refused = true;
            self.text(&part.refusal.0, out);
        }
        self.text(&part.text.0, out);
    }

    fn text(&mut self, text: &str, out: &mut Events) -> Option<u32> {
        if text.is_empty() {
            return None;
        }
        let block = match self.open {
            Open::Text(block) => block,
            _ => self.next_block(),
        };
        self.open = Open::Text(block);
        self.last_text = Some(block);
        out.push_back(StreamEvent::Text { block, delta: text.to_owned() });
        Some(block)
    }

    fn thinking(&mut self, text: &str, out: &mut Events) -> u32 {
        let block = match self.open {
            Open::Thinking(block) => block,
            _ => self.next_block(),
        };
        self.open = Open::Thinking(block);
        self.first_thinking.get_or_insert(block);
        out.push_back(StreamEvent::Thinking { block, delta: text.to_owned() });
        block
    }

    fn call(&mut self, piece: &CallPiece<'_>, out: &mut Events) -> Result<Option<u32>, ProviderError> {
        self.open = Open::None;
        let mut sink = CallSink { out, blocks: &mut self.blocks, names: &self.names, producer: &self.producer };
        let taken = self.calls.take(piece, &mut sink);
        taken.map_err(|bad| self.bad_call(bad))
    }

    fn end_calls(&mut self, cut: bool, out: &mut Events) -> Result<(), ProviderError> {
        let mut sink = CallSink { out, blocks: &mut self.blocks, names: &self.names, producer: &self.producer };
        let ended = self.calls.finish(cut, &mut sink);
        ended.map_err(|bad| self.bad_call(bad))
    }

    fn next_block(&mut self) -> u32 {
        let block = self.blocks;
        self.blocks = block.saturating_add(1);
        block
    }

    fn report_usage(&mut self, out: &mut Events) {
        let snapshot = self.usage.snapshot(self.profile.usage);
        if let Some(snapshot) = snapshot
            && self.reported != Some(snapshot)
        {
            self.reported = Some(snapshot);
            out.push_back(StreamEvent::Usage(snapshot));
        }
    }

    fn finish(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        let raw = self.reason.take();
        let class = finish::class(&self.profile, raw.as_deref());
        self.end_calls(class == TurnFinishReason::Length, out)?;
        let state = self.details.finish().or_else(|| self.thinking_signature.take());
        if let (Some(block), Some(value)) = (self.first_thinking, state) {
            out.push_back(StreamEvent::Signature { block, producer: self.producer.clone(), value });
        }
        if let Some(value) = self.text_signature.take() {
            let block = self.last_text.unwrap_or_else(|| self.next_block());
            out.push_back(StreamEvent::Signature { block, producer: self.producer.clone(), value });
        }
        let reason = finish::corrected(class, self.calls.any_ended(), self.refused);
        out.push_back(StreamEvent::Finish { reason, raw });
        self.finished = true;
        Ok(())
    }

    fn bad_call(&self, bad: BadCall) -> ProviderError {
        let message = match bad {
            BadCall::Nameless => "a tool call never got a name",
            BadCall::Continued => "arguments came for a tool call that was complete",
            BadCall::TooMany => "more than 1024 tool calls in one answer",
        };
        self.failed(ProviderErrorKind::Protocol, message)
    }

    fn truncated(&self, message: &str) -> ProviderError {
        self.failed(ProviderErrorKind::TruncatedStream, message)
    }

    fn failed(&self, kind: ProviderErrorKind, message: &str) -> ProviderError {
        ProviderError::new(kind, &*self.profile.id, message)
    }
}

impl Decoder for ChatDecoder {
    fn plain(&mut self, data: &[u8], out: &mut Events) -> bool {
        self.shape.read(data).is_some_and(|(kind, delta)| self.fast(kind, delta, out))
    }

    fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        if name == "error" {
            let _ = self.end_calls(true, out);
            return Err(openai_error::from_stream(&*self.profile, data));
        }
        if data.trim() == "[DONE]" {
            // No finish reason at all: Snowflake never sends one.
            return if self.answered { self.finish(out) } else { Err(self.truncated("nothing came before [DONE]")) };
        }
        match serde_json::from_str::<Chunk<'_>>(data) {
            Ok(chunk) => self.chunk(&chunk, data, false, out),
            Err(problem) => match repair(data) {
                Some(repaired) => match serde_json::from_str::<Chunk<'_>>(&repaired) {
                    Ok(chunk) => self.chunk(&chunk, &repaired, false, out),
                    Err(problem) => Err(json_error(&self.profile.id, &problem, data.as_bytes())),
                },
                None => Err(json_error(&self.profile.id, &problem, data.as_bytes())),
            },
        }
    }

    fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let is_error = || serde_json::from_str::<Value>(&text).is_ok_and(|value| openai_error::is_error(&value));
        let chunk = match serde_json::from_str::<Chunk<'_>>(&text) {
            Ok(chunk) => chunk,
            Err(_) if is_error() => return Err(openai_error::from_body(&*self.profile, None, body)),
            Err(problem) => match repair(&text) {
                Some(repaired) => return self.body(repaired.as_bytes(), out),
                None => return Err(json_error(&self.profile.id, &problem, body)),
            },
        };
        if chunk.choices.is_empty() {
            if is_error() {
                return Err(openai_error::from_body(&*self.profile, None, body));
            }
            let mut error = self.failed(ProviderErrorKind::Protocol, "a response without choices");
            error.body_excerpt = Some(excerpt(body));
            return Err(error);
        }
        self.chunk(&chunk, &text, true, out)?;
        self.finish(out)
    }

    fn eof(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        if self.reason.is_some() {
            return self.finish(out);
        }
        // What is complete stays usable; the rest is marked as cut by having no end.
        let _ = self.end_calls(true, out);
        Err(self.truncated("the stream ended before the answer did"))
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn status_error(&self, status: u16, body: &[u8]) -> ProviderError {
        let mut error = openai_error::from_body(&*self.profile, Some(status), body);
        if self.may_retry && status == 402 {
            // OpenRouter: the budget is taken by requests in flight.
            error.kind = ProviderErrorKind::RateLimited;
        }
        error
    }
}

#[allow(clippy::ptr_arg, reason = "asks whether it is borrowed")]
const fn borrowed<'c>(text: &'c Cow<'_, str>) -> Option<&'c str> {
    match text {
        Cow::Borrowed(text) => Some(text),
        Cow::Owned(_) => None,
    }
}

#[cfg(test)]
mod tests;

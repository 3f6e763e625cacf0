use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::names::NameTable;
use super::super::response::excerpt;
use super::super::wire::{Decoder, Events, json_error, repair};
use super::super::{ProviderError, ProviderErrorKind, StreamEvent};
use super::arguments::PartialArguments;
use super::chunk::{Candidate, Chunk, FunctionCall, Part};
use super::fast::Shape;
use super::usage::{Usage, UsageTally};
use super::{TOKEN, Wire, error, finish};
use crate::types::TurnFinishReason;

/// Reads one answer, streamed or whole.
///
/// The wire has no terminal event: chunks with a finish reason may be followed by more, and the end of the body is the
/// end of an answer that gave one.
#[derive(Debug)]
pub(super) struct ContentDecoder {
    wire: Wire,
    names: NameTable,
    /// The block that an unsigned delta joins.
    open: Option<Open>,
    /// How many blocks were given a number.
    numbered: u32,
    /// A call whose arguments come in pieces.
    call: Option<(u32, PartialArguments)>,
    usage: UsageTally,
    /// The last finish reason, or why the prompt was blocked.
    end: Option<End>,
    /// What was said of it in words.
    said: Option<String>,
    token: Option<String>,
    has_calls: bool,
    started: bool,
    finished: bool,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Text(u32),
    Thinking(u32),
}

#[derive(Debug)]
enum End {
    Reason(String),
    Blocked(String),
}

impl ContentDecoder {
    pub(super) fn new(wire: Wire, names: NameTable) -> Self {
        Self {
            wire,
            names,
            open: None,
            numbered: 0,
            call: None,
            usage: UsageTally::default(),
            end: None,
            said: None,
            token: None,
            has_calls: false,
            started: false,
            finished: false,
            shape: Shape::default(),
        }
    }

    fn chunk(&mut self, json: &str, out: &mut Events) -> Result<(), ProviderError> {
        let chunk = match parse::<Chunk<'_>>(json) {
            Ok(chunk) => chunk,
            Err(failed) => {
                return match repair(json) {
                    Some(repaired) if parse::<Chunk<'_>>(&repaired).is_ok() => self.chunk(&repaired, out),
                    _ => Err(json_error(&self.wire.id, &failed, json.as_bytes())),
                };
            }
        };
        self.shape.forget();
        if chunk.error.is_some() {
            self.end_call(false, out);
            return Err(error::from_body(&self.wire, None, json.as_bytes()));
        }
        if !self.started && (!chunk.model_version.0.is_empty() || !chunk.candidates.is_empty()) {
            self.started = true;
            let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let (model, response_id) = (given(&chunk.model_version.0), given(&chunk.response_id.0));
            out.push_back(StreamEvent::Start { model, response_id });
        }
        let feedback = chunk.prompt_feedback.unwrap_or_default();
        if let (Some(reason), None) = (feedback.block_reason.and_then(|word| word.text()), &self.end) {
            self.end = Some(End::Blocked(reason));
            self.say(&feedback.block_reason_message.0);
        }
        let usage = chunk.usage_metadata;
        for candidate in chunk.candidates.into_iter().filter(|candidate| candidate.index.0.unwrap_or(0) == 0) {
            self.candidate(candidate, json, usage, out)?;
        }
        if let Some(usage) = usage.and_then(|usage| parse::<Usage>(usage.get()).ok()) {
            self.add_usage(usage, out);
        }
        Ok(())
    }

    fn add_usage(&mut self, usage: Usage, out: &mut Events) {
        out.extend(self.usage.update(usage).map(StreamEvent::Usage));
    }

    fn candidate(
        &mut self,
        candidate: Candidate<'_>,
        json: &str,
        usage: Option<&RawValue>,
        out: &mut Events,
    ) -> Result<(), ProviderError> {
        let reason = candidate.finish_reason.and_then(|word| word.text());
        // A call that the provider itself reports as broken is of no use.
        let broken = reason.as_ref().is_some_and(|raw| finish::class(raw, false) == TurnFinishReason::Error);
        let parts = candidate.content.map(|content| content.parts).unwrap_or_default();
        let alone = parts.iter().count() == 1;
        for raw in parts {
            let part = parse::<Part<'_>>(raw.get()).map_err(|failed| self.unreadable(&failed, raw.get()))?;
            let signature = &*part.thought_signature.0;
            match (part.function_call, part.text) {
                (Some(_), _) if broken => {}
                (Some(call), _) => self.function_call(call, signature, out),
                (None, Some(text)) => {
                    let thought = part.thought == Some(true);
                    self.text(&text.0, thought, signature, out);
                    if alone && reason.is_none() && signature.is_empty() && !text.0.is_empty() {
                        self.shape.learn(json, &text.0, usage.map(RawValue::get));
                    }
                }
                (None, None) => self.other(raw, part.thought == Some(true), signature, out)?,
            }
        }
        if let Some(reason) = reason {
            self.end = Some(End::Reason(reason));
        }
        if !candidate.continuation_token.0.is_empty() {
            self.token = Some(candidate.continuation_token.0.into_owned());
        }
        self.say(&candidate.finish_message.0);
        Ok(())
    }

    fn say(&mut self, message: &str) {
        if !message.trim().is_empty() {
            self.said = Some(excerpt(message.as_bytes()));
        }
    }

    fn unreadable(&self, failed: &serde_json::Error, json: &str) -> ProviderError {
        let mut error = json_error(&self.wire.id, failed, json.as_bytes());
        // The chunk itself arrived whole.
        error.kind = ProviderErrorKind::Protocol;
        error
    }

    fn number(&mut self) -> u32 {
        let number = self.numbered;
        self.numbered = self.numbered.saturating_add(1);
        number
    }

    fn signature(&self, block: u32, value: &str, out: &mut Events) {
        if !value.is_empty() {
            let (producer, value) = (self.wire.producer.clone(), value.to_owned());
            out.push_back(StreamEvent::Signature { block, producer, value });
        }
    }

    /// A signed part is a block of its own: its signature goes back on exactly this text. Unsigned deltas are joined.
    fn text(&mut self, text: &str, thought: bool, signature: &str, out: &mut Events) {
        if text.is_empty() && signature.is_empty() {
            return;
        }
        let block = match self.open {
            Some(Open::Text(block)) if !thought && signature.is_empty() => block,
            Some(Open::Thinking(block)) if thought && signature.is_empty() => block,
            _ => {
                self.end_call(true, out);
                self.number()
            }
        };
        let delta = text.to_owned();
        if thought {
            out.push_back(StreamEvent::Thinking { block, delta });
        } else if !delta.is_empty() {
            out.push_back(StreamEvent::Text { block, delta });
        }
        self.signature(block, signature, out);
        self.open = match (signature.is_empty(), thought) {
            (false, _) => None,
            (true, true) => Some(Open::Thinking(block)),
            (true, false) => Some(Open::Text(block)),
        };
    }

    fn function_call(&mut self, call: FunctionCall<'_>, signature: &str, out: &mut Events) {
        self.open = None;
        let goes_on = call.will_continue == Some(true);
        let named = !call.name.0.is_empty();
        if named {
            self.end_call(true, out);
            let block = self.number();
            let name = self.names.original(&call.name.0).to_owned();
            out.push_back(StreamEvent::ToolCallStart { block, id: call.id.0.into_owned(), name });
            self.signature(block, signature, out);
            self.call = Some((block, PartialArguments::default()));
        }
        // Without a name it is more of the call before, or its end; without a call before, nothing.
        let Some((block, arguments)) = &mut self.call else { return };
        if !named && !signature.is_empty() {
            let (producer, value) = (self.wire.producer.clone(), signature.to_owned());
            out.push_back(StreamEvent::Signature { block: *block, producer, value });
        }
        if let Some(args) = call.args.filter(|args| !matches!(args.get(), "{}" | "null")) {
            out.push_back(StreamEvent::ToolCallDelta { block: *block, delta: args.get().to_owned() });
        }
        call.partial_args.into_iter().for_each(|piece| arguments.add(piece));
        if !goes_on {
            self.end_call(true, out);
        }
    }

    /// Ends the call that is open, if one is. What had arrived of an incomplete one is given all the same.
    fn end_call(&mut self, complete: bool, out: &mut Events) {
        let Some((block, arguments)) = self.call.take() else { return };
        let delta = arguments.into_text();
        if !delta.is_empty() {
            out.push_back(StreamEvent::ToolCallDelta { block, delta });
        }
        if complete {
            self.has_calls = true;
            out.push_back(StreamEvent::ToolCallEnd { block });
        }
    }

    /// A part that is neither text nor a call: code, a server tool, an image. It goes back as it is.
    fn other(&mut self, raw: &RawValue, thought: bool, signature: &str, out: &mut Events) -> Result<(), ProviderError> {
        let value = parse::<Value>(raw.get()).map_err(|failed| self.unreadable(&failed, raw.get()))?;
        let flags = ["thought", "thoughtSignature", "text", "functionCall"];
        let fields = value.as_object().into_iter().flatten();
        let has_data = fields.filter(|(name, _)| !flags.contains(&name.as_str())).any(|(_, value)| !value.is_null());
        if !has_data {
            self.text("", thought, signature, out);
            return Ok(());
        }
        self.end_call(true, out);
        self.open = None;
        let block = self.number();
        out.push_back(StreamEvent::Opaque { block, producer: self.wire.producer.clone(), value });
        Ok(())
    }

    /// The end of an answer that gave a reason.
    fn finish(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        let (reason, raw) = match self.end.take() {
            None => return Ok(()),
            Some(End::Blocked(raw)) => (TurnFinishReason::ContentFilter, raw),
            Some(End::Reason(raw)) => {
                // The end mark of streamed arguments may be missing, but not where the limit cut them.
                self.end_call(finish::class(&raw, false) == TurnFinishReason::Stop, out);
                (finish::class(&raw, self.has_calls), raw)
            }
        };
        if raw.eq_ignore_ascii_case(finish::UNSIGNED) {
            let message = "the history lacks a thought signature that the model wants back";
            let mut error = self.wire.error(ProviderErrorKind::Invalid, message);
            error.code = Some(raw);
            return Err(error);
        }
        if let (TurnFinishReason::Pause, Some(token)) = (reason, self.token.take()) {
            let (block, producer) = (self.number(), self.wire.producer.clone());
            let value = Value::Object([(TOKEN.to_owned(), Value::String(token))].into_iter().collect());
            out.push_back(StreamEvent::Opaque { block, producer, value });
        }
        // Of an end that is as it should be it says no more than the reason does.
        let said = self.said.take().filter(|_| !matches!(reason, TurnFinishReason::Stop | TurnFinishReason::ToolCalls));
        out.extend(said.map(StreamEvent::FinishMessage));
        out.push_back(StreamEvent::Finish { reason, raw: Some(raw) });
        self.finished = true;
        Ok(())
    }

    /// The chunks of a body or event: one, or an array of them.
    fn chunks(&mut self, json: &str, out: &mut Events) -> Result<(), ProviderError> {
        if !json.trim_start().starts_with('[') {
            return self.chunk(json, out);
        }
        let chunks =
            parse::<Vec<&RawValue>>(json).map_err(|failed| json_error(&self.wire.id, &failed, json.as_bytes()));
        chunks?.into_iter().try_for_each(|chunk| self.chunk(chunk.get(), out))
    }
}

impl Decoder for ContentDecoder {
    fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        if let (Some(open), Some((delta, usage))) = (self.open, self.shape.read(data)) {
            out.push_back(match open {
                Open::Text(block) => StreamEvent::Text { block, delta },
                Open::Thinking(block) => StreamEvent::Thinking { block, delta },
            });
            if let Some(usage) = usage {
                self.add_usage(usage, out);
            }
            return Ok(());
        }
        if data.trim() == "[DONE]" {
            return self.finish(out);
        }
        if name == "error" {
            return Err(error::from_body(&self.wire, None, data.as_bytes()));
        }
        match self.chunks(data, out) {
            // A garbled tail cannot fail what was complete.
            Err(error) if error.kind == ProviderErrorKind::Protocol && self.end.is_some() => self.finish(out),
            Err(mut error) if error.kind == ProviderErrorKind::TruncatedStream => {
                // The event itself arrived whole.
                error.kind = ProviderErrorKind::Protocol;
                if self.end.is_some() { self.finish(out) } else { Err(error) }
            }
            result => result,
        }
    }

    fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError> {
        self.chunks(&String::from_utf8_lossy(body), out)?;
        if !self.started && self.end.is_none() {
            let mut error = self.wire.error(ProviderErrorKind::Protocol, "the response is not an answer");
            error.body_excerpt = Some(excerpt(body));
            return Err(error);
        }
        Ok(())
    }

    fn eof(&mut self, out: &mut Events) -> Result<(), ProviderError> {
        if self.end.is_some() {
            return self.finish(out);
        }
        self.end_call(false, out);
        let what = if self.started { "in the middle of the answer" } else { "before the answer began" };
        Err(self.wire.error(ProviderErrorKind::TruncatedStream, format!("the stream ended {what}")))
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    fn status_error(&self, status: u16, body: &[u8]) -> ProviderError {
        error::from_body(&self.wire, Some(status), body)
    }
}

fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the vendor spells it.
    fn chunk(text: &str, tokens: u32) -> String {
        format!(
            concat!(
                r#"{{"candidates": [{{"content": {{"parts": [{{"text": "{}"}}],"role": "model"}},"index": 0}}],"#,
                r#""usageMetadata": {{"promptTokenCount": 8,"candidatesTokenCount": {},"totalTokenCount": 9,"#,
                r#""promptTokensDetails": [{{"modality": "TEXT","tokenCount": 8}}]}},"#,
                r#""modelVersion": "gemini-2.5-flash","responseId": "r"}}"#
            ),
            text, tokens
        )
    }

    #[test]
    fn the_second_delta_of_a_kind_needs_no_parser() {
        let mut decoder = ContentDecoder::new(Wire::new("gemini"), NameTable::default());
        let mut out = Events::new();
        decoder.event("", &chunk("a", 1), &mut out).unwrap();
        assert!(decoder.shape.read(&chunk(r"b\n", 2)).is_some());
        let thought = chunk("c", 3).replace(r#"{"text": "c"}"#, r#"{"text": "c","thought": true}"#);
        assert!(decoder.shape.read(&thought).is_none());
        decoder.event("", &thought, &mut out).unwrap();
        assert!(decoder.shape.read(&thought).is_some() && decoder.shape.read(&chunk("d", 4)).is_none());
        let ended = chunk("e", 5).replace(r#""index": 0"#, r#""finishReason": "STOP","index": 0"#);
        decoder.event("", &ended, &mut out).unwrap();
        assert!(decoder.shape.read(&ended).is_none(), "an end is never read past the parser");
    }
}

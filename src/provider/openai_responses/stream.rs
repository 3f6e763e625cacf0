use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use super::events::{Details, Event, Response, json_text, parse};
use super::finish::{self, Failure, Status};
use super::output::{Bad, Output, Place};
use super::profile::ResponsesProfile;
use super::usage;
use crate::provider::delta_shape::Shape;
use crate::provider::names::NameTable;
use crate::provider::openai_error;
use crate::provider::response::excerpt;
use crate::provider::wire::{Decoder, Events, json_error, repair};
use crate::provider::{ProviderError, ProviderErrorKind, StreamEvent};
use crate::types::TurnFinishReason;

/// Turns the events of a response, or a whole one, into events of ours.
///
/// Only a terminal event ends an answer well. `[DONE]`, which some hosts add, means nothing.
pub(super) struct ResponsesDecoder {
    profile: Arc<ResponsesProfile>,
    output: Output,
    /// The output limit that was asked for.
    limit: Option<u32>,
    started: bool,
    /// The answering model was told.
    named: bool,
    finished: bool,
    shape: Shape<Place>,
}

impl ResponsesDecoder {
    pub(super) fn new(profile: Arc<ResponsesProfile>, names: NameTable) -> Self {
        Self {
            output: Output::new(Arc::clone(&profile), names),
            profile,
            limit: None,
            started: false,
            named: false,
            finished: false,
            shape: Shape::default(),
        }
    }

    /// The answer may have no more tokens than this.
    pub(super) const fn limited(mut self, limit: Option<u32>) -> Self {
        self.limit = limit;
        self
    }

    fn handle(&mut self, event: &Event<'_>, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        let before = out.len();
        let mut learned = None;
        let handled = match &*event.r#type.0 {
            "response.output_text.delta" => {
                let place = self.output.text(event, &event.delta.0, out);
                place.map(|place| learned = place)
            }
            "response.function_call_arguments.delta" => {
                let place = self.output.arguments(event, false, &event.delta.0, out);
                place.map(|place| learned = place)
            }
            "response.reasoning_summary_text.delta" => {
                let place = self.output.reasoning(event, true, &event.delta.0, out);
                place.map(|place| learned = place)
            }
            "response.reasoning_text.delta" => {
                let place = self.output.reasoning(event, false, &event.delta.0, out);
                place.map(|place| learned = place)
            }
            "response.custom_tool_call_input.delta" => {
                self.output.arguments(event, true, &event.delta.0, out).map(drop)
            }
            "response.refusal.delta" => {
                self.output.seen.refusal = true;
                self.output.text(event, &event.delta.0, out).map(drop)
            }
            "response.content_part.added" => self.output.part_added(event),
            "response.output_text.done" => self.output.whole_text(event, &event.text.0, out),
            "response.refusal.done" => {
                self.output.seen.refusal = true;
                self.output.whole_text(event, &event.refusal.0, out)
            }
            "response.reasoning_summary_text.done" => self.output.whole_reasoning(event, true, &event.text.0, out),
            "response.reasoning_text.done" => self.output.whole_reasoning(event, false, &event.text.0, out),
            "response.function_call_arguments.done" => {
                self.output.whole_arguments(event, &json_text(event.arguments), out)
            }
            "response.custom_tool_call_input.done" => self.output.whole_arguments(event, &event.input.0, out),
            "response.output_item.added" => self.output.added(event, out),
            "response.output_item.done" => self.output.done(event, out),
            "error" => return self.failed(data, out),
            "" if event.error.is_some_and(|error| error.get() != "null") => return self.failed(data, out),
            name => return self.lifecycle(name, event, out),
        };
        handled.map_err(|bad| self.bad(bad))?;
        if let (Some(place), Cow::Borrowed(text)) = (learned, &event.delta.0)
            && out.len() == before.saturating_add(1)
        {
            self.shape.learn(data.as_bytes(), text, place);
        }
        Ok(())
    }

    /// Events about the response as a whole. What is unknown is passed over.
    fn lifecycle(&mut self, name: &str, event: &Event<'_>, out: &mut Events) -> Result<(), ProviderError> {
        let Some(raw) = event.response else { return Ok(()) };
        let ended = match name {
            "response.created" | "response.queued" | "response.in_progress" => None,
            "response.completed" => Some(Status::Completed),
            "response.incomplete" => Some(Status::Incomplete),
            "response.failed" => Some(Status::Failed),
            "response.cancelled" | "response.canceled" => Some(Status::Cancelled),
            // Says by its status how it ended.
            "response.done" => Some(Status::Completed),
            _ => return Ok(()),
        };
        let response = serde_json::from_str::<Response<'_>>(raw.get());
        let response = response.map_err(|error| self.unreadable(&error, raw.get()))?;
        match ended {
            None => {
                self.start(&response, out);
                Ok(())
            }
            Some(status) => self.ended(&response, status, out),
        }
    }

    fn start(&mut self, response: &Response<'_>, out: &mut Events) {
        let given = |text: &Cow<'_, str>| (!text.is_empty()).then(|| text.clone().into_owned());
        let (model, response_id) = (given(&response.model.0), given(&response.id.0));
        if !self.started {
            self.output.response(&response.id.0);
        }
        if !self.started || (!self.named && model.is_some()) {
            self.started = true;
            self.named = model.is_some();
            out.push_back(StreamEvent::Start { model, response_id });
        }
    }

    /// A response that is not to change any more.
    fn ended(&mut self, response: &Response<'_>, told: Status, out: &mut Events) -> Result<(), ProviderError> {
        self.start(response, out);
        let usage = response.usage.and_then(usage::snapshot);
        out.extend(usage.map(StreamEvent::Usage));
        let status = Status::of(&response.status.0).unwrap_or(told);
        let error = response.error.map(RawValue::get).filter(|error| !matches!(*error, "null" | "{}" | "\"\""));
        match (status, error) {
            (Status::Failed, error) => return self.failed(error.unwrap_or("{}"), out),
            (Status::Cancelled, _) => {
                return Err(self.error(ProviderErrorKind::Aborted, "the response was cancelled"));
            }
            _ => {}
        }
        if let Some(output) = &response.output {
            self.output.finished(output, out).map_err(|bad| self.bad(bad))?;
        }
        if status == Status::Completed {
            self.output.end_calls(out);
        }
        let details: Details<'_> = response.incomplete_details.map_or_else(Details::default, |raw| parse(raw.get()));
        let at_limit = usage.zip(self.limit).is_some_and(|(usage, limit)| usage.tokens.output >= u64::from(limit));
        let reason = match finish::class(status, &details.reason.0, self.output.seen) {
            TurnFinishReason::Stop | TurnFinishReason::ToolCalls if at_limit && self.profile.cut_looks_complete => {
                TurnFinishReason::Length
            }
            reason => reason,
        };
        let word = match (status, &*details.reason.0, &*response.status.0) {
            (Status::Incomplete, reason, _) if !reason.is_empty() => reason,
            (_, _, "") => status.word(),
            (_, _, word) => word,
        };
        self.finish(reason, word.to_owned(), out);
        Ok(())
    }

    fn failed(&mut self, json: &str, out: &mut Events) -> Result<(), ProviderError> {
        match finish::failure(&self.profile, json) {
            Failure::Error(error) => Err(error),
            Failure::Policy(code) => {
                self.finish(TurnFinishReason::ContentFilter, code, out);
                Ok(())
            }
        }
    }

    fn finish(&mut self, reason: TurnFinishReason, raw: String, out: &mut Events) {
        out.push_back(StreamEvent::Finish { reason, raw: Some(raw) });
        self.finished = true;
    }

    fn bad(&self, bad: Bad) -> ProviderError {
        self.error(ProviderErrorKind::Protocol, bad.as_str())
    }

    fn error(&self, kind: ProviderErrorKind, message: &str) -> ProviderError {
        ProviderError::new(kind, &*self.profile.id, message)
    }

    fn unreadable(&self, error: &serde_json::Error, json: &str) -> ProviderError {
        let mut error = json_error(&self.profile.id, error, json.as_bytes());
        // The event itself arrived whole.
        error.kind = ProviderErrorKind::Protocol;
        error
    }
}

impl Decoder for ResponsesDecoder {
    fn plain(&mut self, data: &[u8], out: &mut Events) -> bool {
        let Some((place, delta)) = self.shape.read(data) else { return false };
        self.output.more(place, delta, out);
        true
    }

    fn event(&mut self, name: &str, data: &str, out: &mut Events) -> Result<(), ProviderError> {
        self.shape.forget();
        if data.trim() == "[DONE]" {
            return Ok(());
        }
        if name == "error" {
            return self.failed(data, out);
        }
        let repaired;
        let (event, data) = match serde_json::from_str::<Event<'_>>(data) {
            Ok(event) => (event, data),
            Err(problem) => match repair(data) {
                Some(text) => {
                    repaired = text;
                    let event = serde_json::from_str::<Event<'_>>(&repaired);
                    (event.map_err(|_| self.unreadable(&problem, data))?, &*repaired)
                }
                None => return Err(self.unreadable(&problem, data)),
            },
        };
        if event.r#type.0.is_empty() && !name.is_empty() && event.error.is_none() {
            let named = Event { r#type: crate::provider::lenient::Str(Cow::Borrowed(name)), ..event };
            return self.handle(&named, data, out);
        }
        self.handle(&event, data, out)
    }

    fn body(&mut self, body: &[u8], out: &mut Events) -> Result<(), ProviderError> {
        let text = String::from_utf8_lossy(body);
        let response = match serde_json::from_str::<Response<'_>>(&text) {
            Ok(response) => response,
            Err(problem) => match repair(&text) {
                Some(repaired) => return self.body(repaired.as_bytes(), out),
                None => return Err(json_error(&self.profile.id, &problem, body)),
            },
        };
        let told = Status::of(&response.status.0);
        if response.output.is_none() && told.is_none() {
            let mut error = match response.error.map(RawValue::get).filter(|error| *error != "null") {
                Some(_) => openai_error::from_body(&*self.profile, None, body),
                None => self.error(ProviderErrorKind::Protocol, "the body is not a response"),
            };
            error.body_excerpt = Some(excerpt(body));
            return Err(error);
        }
        self.ended(&response, told.unwrap_or(Status::Completed), out)
    }

    fn eof(&mut self, _: &mut Events) -> Result<(), ProviderError> {
        let place = if self.started { "in the middle of the answer" } else { "before the answer began" };
        Err(self.error(ProviderErrorKind::TruncatedStream, &format!("the stream ended {place}")))
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn status_error(&self, status: u16, body: &[u8]) -> ProviderError {
        openai_error::from_body(&*self.profile, Some(status), body)
    }
}

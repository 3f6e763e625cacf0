use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::gate_step::Gated;
use crate::session::ABANDONED;
use crate::tool::ToolOutput;
use crate::types::{DeferredCall, ToolResultBody, ToolStatus};

/// The host's answer to a call that a gate deferred; see [`Run::resume`](super::Run::resume).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeferredResult {
    call_id: String,
    answer: Answer,
}

/// What the host says of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Answer {
    /// It may run: as it is, or with this input.
    Approve { digest: String, input: Option<Value> },
    /// This is its result.
    Result { output: ToolResultBody, is_error: bool, structured: Option<Value> },
    /// It is refused.
    Deny { reason: String },
    /// Nobody will answer any more.
    Abandon,
}

impl DeferredResult {
    /// The call may run with the input that [`DeferredCall::digest`] stands for, and with no other.
    pub fn approve(call_id: impl Into<String>, digest: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), answer: Answer::Approve { digest: digest.into(), input: None } }
    }

    /// The call may run with this input in the place of the one that [`DeferredCall::digest`] stands for.
    pub fn approve_with(call_id: impl Into<String>, digest: impl Into<String>, input: impl Into<Value>) -> Self {
        let answer = Answer::Approve { digest: digest.into(), input: Some(input.into()) };
        Self { call_id: call_id.into(), answer }
    }

    /// The call is not run: this is its result, from elsewhere.
    pub fn result(call_id: impl Into<String>, output: impl Into<ToolOutput>) -> Self {
        let ToolOutput { body, is_error, structured } = output.into();
        Self { call_id: call_id.into(), answer: Answer::Result { output: body, is_error, structured } }
    }

    /// The call is not run: it is `blocked`, and the model reads the reason.
    pub fn deny(call_id: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), answer: Answer::Deny { reason: reason.into() } }
    }

    /// The call it answers.
    #[must_use]
    pub fn call_id(&self) -> &str {
        &self.call_id
    }
}

impl DeferredCall {
    /// [`DeferredResult::approve`] of this call.
    #[must_use]
    pub fn approve(&self) -> DeferredResult {
        DeferredResult::approve(&*self.call_id, &*self.digest)
    }

    /// [`DeferredResult::approve_with`] of this call.
    #[must_use]
    pub fn approve_with(&self, input: impl Into<Value>) -> DeferredResult {
        DeferredResult::approve_with(&*self.call_id, &*self.digest, input)
    }

    /// [`DeferredResult::result`] of this call.
    #[must_use]
    pub fn result(&self, output: impl Into<ToolOutput>) -> DeferredResult {
        DeferredResult::result(&*self.call_id, output)
    }

    /// [`DeferredResult::deny`] of this call.
    #[must_use]
    pub fn deny(&self, reason: impl Into<String>) -> DeferredResult {
        DeferredResult::deny(&*self.call_id, reason)
    }
}

/// Why an answer to a deferred call cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The session has no such call.
    #[error("there is no such call")]
    Unknown,
    /// It has a result, or an answer that was taken before.
    #[error("it is answered already")]
    Answered,
    /// Two answers are given to it at once.
    #[error("it is given two answers")]
    Twice,
    /// No gate has asked: it waits for a call that comes before it.
    #[error("it waits for another call, and not for an answer")]
    NotAsked,
    /// The approval is of another call than the one that is stored: name, arguments or input differ.
    #[error("the stored call is not the one that was approved")]
    Changed,
    /// The input given with the approval is not one that the tool takes.
    #[error("{0}")]
    Input(String),
}

/// Answers that fit the calls of a turn.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_call: HashMap<String, Answered>,
    /// In the order given.
    order: Vec<String>,
}

/// A call and the host's answer to it.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) call: DeferredCall,
    pub(super) answer: Answer,
}

impl Answers {
    /// Adds an answer. False when the call has one.
    pub(super) fn add(&mut self, call: DeferredCall, answer: Answer) -> bool {
        let id = call.call_id.clone();
        if self.by_call.contains_key(&id) {
            return false;
        }
        self.order.push(id.clone());
        self.by_call.insert(id, Answered { call, answer });
        true
    }

    pub(super) fn call_ids(&self) -> Vec<String> {
        self.order.clone()
    }

    pub(super) fn take(&mut self, call_id: &str) -> Option<Answered> {
        self.by_call.remove(call_id)
    }
}

impl DeferredResult {
    pub(super) fn into_answer(self) -> Answer {
        self.answer
    }
}

/// What an answer makes of a call, where nothing is run.
pub(super) fn decided(call: DeferredCall, answer: Answer) -> Option<Gated> {
    let refused = |status, text| Gated::Refused { status, text, input: Some(call.input.clone()) };
    match answer {
        Answer::Approve { .. } => None,
        Answer::Result { output, is_error, structured } => {
            Some(Gated::Substituted { input: call.input, output, is_error, structured })
        }
        Answer::Deny { reason } => Some(refused(ToolStatus::Blocked, reason)),
        Answer::Abandon => Some(refused(ToolStatus::NotStarted, ABANDONED.to_owned())),
    }
}

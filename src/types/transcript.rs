use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Role, SessionContentBlock, SessionTurn};

/// A rule of [`validate_transcript`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TranscriptRule {
    /// Every call is answered in the turn that follows it, or its turn lists it as deferred.
    Unanswered,
    /// While a deferred call is open, nothing follows but its results.
    DeferredNotLast,
    /// A call is answered once.
    AnsweredTwice,
    /// A result answers a call of the turn before.
    OrphanResult,
    /// Results stand in call order.
    ResultOrder,
    /// In a turn that holds results, they come first.
    ResultsFirst,
    /// Results stand in user turns only.
    ResultInAssistantTurn,
    /// Calls, complete or cut, stand in assistant turns only.
    CallInUserTurn,
    /// Call ids differ within a turn.
    DuplicateCallId,
    /// Text that is not signed is not blank.
    BlankText,
    /// A user turn holds something.
    EmptyTurn,
}

impl fmt::Display for TranscriptRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unanswered => "the call is neither answered in the next turn nor deferred",
            Self::DeferredNotLast => "a turn other than its results follows a deferred call",
            Self::AnsweredTwice => "the call is answered twice",
            Self::OrphanResult => "the result answers no call of the turn before",
            Self::ResultOrder => "the result is out of call order",
            Self::ResultsFirst => "a result follows something else in its turn",
            Self::ResultInAssistantTurn => "an assistant turn holds a result",
            Self::CallInUserTurn => "a user turn holds a call",
            Self::DuplicateCallId => "two calls of one turn share an id",
            Self::BlankText => "a text block is blank and not signed",
            Self::EmptyTurn => "a user turn is empty",
        })
    }
}

/// Where a transcript breaks the pairing invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("turn {turn}{}: {rule}", .call_id.as_ref().map(|id| format!(", call `{id}`")).unwrap_or_default())]
#[non_exhaustive]
pub struct TranscriptError {
    /// Index of the turn. For an unanswered call, of the turn that made it.
    pub turn: usize,
    /// The call, where the rule is about one.
    pub call_id: Option<String>,
    /// What is broken.
    pub rule: TranscriptRule,
}

/// Checks the pairing invariant: whatever ended a run, every tool call has exactly one result.
///
/// Every call is answered exactly once, in the next turn and in call order, or stands in its turn's `pending` as
/// deferred, with nothing after it; every result answers a call; and no turn holds what no API takes (see
/// [`TranscriptRule`]). Cut calls ([`SessionContentBlock::PartialToolCall`]) need no answer. Linear in the number of
/// blocks.
///
/// # Errors
/// The first broken rule, with its place.
pub fn validate_transcript<'a>(turns: impl IntoIterator<Item = &'a SessionTurn>) -> Result<(), TranscriptError> {
    let mut open = OpenCalls::default();
    for (index, turn) in turns.into_iter().enumerate() {
        if let Some(call) = open.deferred {
            return Err(broken(index, Some(call), TranscriptRule::DeferredNotLast));
        }
        let results_only = match turn.role {
            Role::User => check_user_turn(index, turn, &mut open)?,
            Role::Assistant => false,
        };
        open.close()?;
        if let (Some(call), false) = (open.deferred, results_only) {
            return Err(broken(index, Some(call), TranscriptRule::DeferredNotLast));
        }
        if turn.role == Role::Assistant {
            check_assistant_turn(index, turn, &mut open)?;
        }
    }
    open.close()
}

/// Whether it holds results and nothing else.
fn check_user_turn<'a>(index: usize, turn: &'a SessionTurn, open: &mut OpenCalls<'a>) -> Result<bool, TranscriptError> {
    if turn.content.is_empty() {
        return Err(broken(index, None, TranscriptRule::EmptyTurn));
    }
    let mut results = false;
    let mut others = false;
    for block in &turn.content {
        match block {
            SessionContentBlock::ToolResult(result) => {
                let id = &result.call_id;
                if others {
                    return Err(broken(index, Some(id), TranscriptRule::ResultsFirst));
                }
                open.answer(id).map_err(|rule| broken(index, Some(id), rule))?;
                results = true;
                continue;
            }
            SessionContentBlock::ToolCall(call) | SessionContentBlock::PartialToolCall(call) => {
                return Err(broken(index, Some(&call.id), TranscriptRule::CallInUserTurn));
            }
            other => check_text(index, other)?,
        }
        others = true;
    }
    Ok(results && !others)
}

fn check_assistant_turn<'a>(
    index: usize,
    turn: &'a SessionTurn,
    open: &mut OpenCalls<'a>,
) -> Result<(), TranscriptError> {
    open.turn = index;
    for block in &turn.content {
        match block {
            SessionContentBlock::ToolCall(call) => {
                open.ask(&call.id).map_err(|rule| broken(index, Some(&call.id), rule))?;
            }
            SessionContentBlock::ToolResult(result) => {
                return Err(broken(index, Some(&result.call_id), TranscriptRule::ResultInAssistantTurn));
            }
            other => check_text(index, other)?,
        }
    }
    for pending in turn.pending.iter().filter(|pending| pending.deferred) {
        open.defer(&pending.call_id);
    }
    Ok(())
}

fn check_text(index: usize, block: &SessionContentBlock) -> Result<(), TranscriptError> {
    match block {
        SessionContentBlock::Text(text) if text.signature.is_none() && text.text.trim().is_empty() => {
            Err(broken(index, None, TranscriptRule::BlankText))
        }
        _ => Ok(()),
    }
}

fn broken(turn: usize, call_id: Option<&str>, rule: TranscriptRule) -> TranscriptError {
    TranscriptError { turn, call_id: call_id.map(str::to_owned), rule }
}

/// The calls of the last assistant turn.
#[derive(Default)]
struct OpenCalls<'a> {
    turn: usize,
    calls: Vec<OpenCall<'a>>,
    places: HashMap<&'a str, usize>,
    /// The place in call order from which on the next answer must be.
    next: usize,
    /// A deferred call that its results turn left open.
    deferred: Option<&'a str>,
}

struct OpenCall<'a> {
    id: &'a str,
    deferred: bool,
    answered: bool,
}

impl<'a> OpenCalls<'a> {
    fn ask(&mut self, id: &'a str) -> Result<(), TranscriptRule> {
        if self.places.insert(id, self.calls.len()).is_some() {
            return Err(TranscriptRule::DuplicateCallId);
        }
        self.calls.push(OpenCall { id, deferred: false, answered: false });
        Ok(())
    }

    fn defer(&mut self, id: &str) {
        if let Some(call) = self.places.get(id).and_then(|place| self.calls.get_mut(*place)) {
            call.deferred = true;
        }
    }

    fn answer(&mut self, id: &str) -> Result<(), TranscriptRule> {
        let place = *self.places.get(id).ok_or(TranscriptRule::OrphanResult)?;
        let call = self.calls.get_mut(place).ok_or(TranscriptRule::OrphanResult)?;
        if call.answered {
            return Err(TranscriptRule::AnsweredTwice);
        }
        if place < self.next {
            return Err(TranscriptRule::ResultOrder);
        }
        call.answered = true;
        self.next = place.saturating_add(1);
        Ok(())
    }

    /// Nothing more can answer these calls: each must be answered or deferred.
    fn close(&mut self) -> Result<(), TranscriptError> {
        for call in self.calls.iter().filter(|call| !call.answered) {
            if !call.deferred {
                return Err(broken(self.turn, Some(call.id), TranscriptRule::Unanswered));
            }
            self.deferred.get_or_insert(call.id);
        }
        self.calls.clear();
        self.places.clear();
        self.next = 0;
        Ok(())
    }
}

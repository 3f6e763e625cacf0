use std::sync::Arc;

use super::deferral::{Answer, AnswerError, Answered, Answers, DeferredResult, decided};
use super::gate_step::Gated;
use super::outcome::{RunErrorKind, StopCause};
use super::plan::{Course, PlannedCall, Refusal, plan, unknown};
use super::turn_loop::TurnLoop;
use crate::provider::HistoryTurn;
use crate::session::{INTERRUPTED, Waiting};
use crate::types::{DeferredCall, Role, ToolStatus};

impl TurnLoop {
    /// Whether the run may begin beside calls that wait, and whether its answers fit them.
    pub(super) fn admit(&self, waiting: Option<Waiting>, prompt: bool) -> Result<(), RunErrorKind> {
        let resumes = !self.answers.is_empty();
        if let Some(Waiting { run_id, calls, unfinished }) = waiting {
            let goes_on = resumes && !prompt && !unfinished;
            if !goes_on && (!self.abandon || (resumes && prompt)) {
                return Err(RunErrorKind::Pending { run_id, calls });
            }
        }
        // Where steps are recorded the calls may be answered already, by this very run.
        if resumes && !self.seam.is_durable() {
            self.take_answers(self.answers.clone())?;
        }
        Ok(())
    }

    /// Holds answers against the calls that wait. Nothing is done yet.
    pub(super) fn take_answers(&self, given: Vec<DeferredResult>) -> Result<Answers, RunErrorKind> {
        let session = &self.cx.agent.session;
        let (history, deferred) = (session.history(), session.deferred());
        let last = history.last();
        let mut answers = Answers::default();
        for given in given {
            let call_id = given.call_id().to_owned();
            let refused = |error| RunErrorKind::Answer { call_id: call_id.clone(), error };
            let Some(call) = deferred.iter().find(|call| call.call_id == call_id) else {
                return Err(refused(self.not_waiting(&call_id)));
            };
            let mut answer = given.into_answer();
            if let Answer::Approve { digest, input } = &mut answer {
                let stored = last.and_then(|turn| turn.tool_calls().find(|stored| stored.id == call_id));
                let stored = stored.map(|stored| DeferredCall::digest_of(&stored.name, &stored.arguments, &call.input));
                if stored.as_ref() != Some(&call.digest) || *digest != call.digest {
                    return Err(refused(AnswerError::Changed));
                }
                if let (Some(input), Some(entry)) = (input, self.cx.agent.tools.get(&call.name)) {
                    let prepared = entry.prepare_value(input.take());
                    *input = prepared.map_err(|invalid| refused(AnswerError::Input(invalid.to_string())))?;
                }
            }
            if !answers.add(call.clone(), answer) {
                return Err(refused(AnswerError::Twice));
            }
        }
        if self.abandon {
            for call in deferred {
                answers.add(call, Answer::Abandon);
            }
        }
        Ok(answers)
    }

    fn not_waiting(&self, call_id: &str) -> AnswerError {
        let history = self.cx.agent.session.history();
        let open = history.last().filter(|turn| turn.role == Role::Assistant);
        if let Some(pending) = open.and_then(|turn| turn.pending.iter().find(|pending| pending.call_id == call_id)) {
            return if pending.deferred { AnswerError::NotAsked } else { AnswerError::Answered };
        }
        match history.iter().any(|turn| turn.tool_calls().any(|call| call.id == call_id)) {
            true => AnswerError::Answered,
            false => AnswerError::Unknown,
        }
    }

    /// Goes on with the calls of the last turn. `Some` when the run ends with that.
    pub(super) async fn resume(&mut self, mut answers: Answers) -> Result<Option<StopCause>, RunErrorKind> {
        let cx = Arc::clone(&self.cx);
        let session = &cx.agent.session;
        let Some(turn) = session.history().last().cloned() else { return Ok(None) };
        let kept = session.results();
        session.resume(&answers.call_ids());
        let waiting = session.deferred();
        // That the answers are taken is stored before any call of theirs starts: nobody can take them again.
        self.save().await?;
        let mut calls = plan(&turn, &cx.agent.tools, None);
        calls.retain(|call| !kept.iter().any(|result| result.call_id == **call.info.call_id()));
        for call in &mut calls {
            let call_id = &**call.info.call_id();
            call.key = Some(format!("{}:{call_id}", turn.run_id).into());
            match (answers.take(call_id), waiting.iter().find(|waiting| waiting.call_id == call_id)) {
                (Some(answered), _) => self.answer(call, answered),
                (None, Some(waiting)) => {
                    let (input, reason) = (waiting.input.clone(), waiting.reason.clone());
                    call.course = Course::Decided(Box::new(Gated::Deferred { input, reason }));
                }
                (None, None) if waited(&turn, call_id) => {}
                // Taken on by a run that came to no end.
                (None, None) => {
                    let (status, text) = (ToolStatus::Interrupted, INTERRUPTED.to_owned());
                    call.course = Course::Decided(Box::new(Gated::Refused { status, text, input: None }));
                }
            }
        }
        let batch = self.finish_calls(&turn, calls, kept).await?;
        Ok(if !batch.deferred.is_empty() {
            Some(StopCause::Deferred(batch.deferred))
        } else {
            batch.limit.filter(|_| !self.is_aborted()).map(StopCause::Limit)
        })
    }

    /// Sets a call on the course that the host's answer gives it.
    fn answer(&self, call: &mut PlannedCall, answered: Answered) {
        let Answered { call: deferred, answer } = answered;
        let input = match answer {
            Answer::Approve { input, .. } => input.unwrap_or(deferred.input),
            other => {
                call.course = decided(deferred, other).map_or(Course::Open, |gated| Course::Decided(Box::new(gated)));
                return;
            }
        };
        call.course = Course::Approved;
        let tools = &self.cx.agent.tools;
        // The tools may be others than when it was deferred.
        call.ready = match tools.get(call.info.name()) {
            None => Err(unknown(call.info.display_name(), tools, None)),
            Some(entry) => match entry.check(&input) {
                Ok(()) => Ok(Arc::clone(entry)),
                Err(invalid) => Err(Refusal { status: ToolStatus::Invalid, text: invalid.to_string() }),
            },
        };
        call.input = input;
    }
}

/// Whether a call has waited for one that comes before it.
fn waited(turn: &HistoryTurn, call_id: &str) -> bool {
    turn.pending.iter().any(|pending| pending.deferred && pending.call_id == call_id)
}

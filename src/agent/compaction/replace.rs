use std::sync::{Arc, PoisonError};

use uuid::Uuid;

use super::gauge::Gauge;
use super::step::{CompactionEnd, CompactionJob, summary_text};
use super::{Compaction, Trigger, weight};
use crate::agent::event::AgentEvent;
use crate::agent::model_step::{ModelEnd, ModelJob, ModelOut};
use crate::agent::outcome::RunErrorKind;
use crate::agent::turn_loop::TurnLoop;
use crate::hooks::{CompactionFailed, CompactionFailedCx, CompactionReason, HistoryReplaced, HistoryReplacedCx};
use crate::provider::ProviderErrorKind;
use crate::types::{Role, SessionContentBlock, Timestamp, TurnOrigin, TurnUsage};

/// A run's compactions: what has been made, and when the next one is due.
pub(in crate::agent) struct Compacting {
    policy: Compaction,
    trigger: Trigger,
    gauge: Gauge,
    made: u32,
    /// After one that came to nothing: the size to wait for.
    not_below: u64,
    now: bool,
}

impl Compacting {
    pub(in crate::agent) fn new(policy: Compaction, trigger: Trigger) -> Self {
        Self { policy, trigger, gauge: Gauge::default(), made: 0, not_below: 0, now: trigger.now }
    }

    /// Whether a conversation of this size is to be compacted before the next request.
    fn is_due(&mut self, size: u64) -> Option<CompactionReason> {
        if std::mem::take(&mut self.now) {
            return Some(CompactionReason::Manual);
        }
        let threshold = self.trigger.threshold?;
        let settled = match self.gauge.settled() {
            Some(_) if self.gauge.answers == 0 => return None,
            Some(settled) => settled.saturating_add(self.trigger.growth(settled)),
            None => 0,
        };
        let due = size >= threshold.max(self.not_below).max(settled) && self.made < self.trigger.max_per_run;
        due.then_some(CompactionReason::Threshold)
    }
}

impl TurnLoop {
    /// Compacts the conversation when that is due. Never while a paused answer is to go back as it is.
    pub(in crate::agent) async fn compact_when_due(&mut self) -> Result<(), RunErrorKind> {
        let Some(compacting) = &mut self.compacting else { return Ok(()) };
        let history = self.cx.agent.session.history();
        if history.last().is_none_or(|last| last.role == Role::Assistant) {
            return Ok(());
        }
        let size = compacting.gauge.read(&history, &self.head);
        drop(history);
        if let Some(reason) = compacting.is_due(size) {
            // Boxed: rare, and large.
            Box::pin(self.compact(reason, self.number.saturating_add(1))).await?;
        }
        Ok(())
    }

    /// Asks the model; when it refuses the conversation as too long, once more after that was compacted.
    pub(in crate::agent) async fn ask(&mut self, turn_id: Uuid) -> Result<(ModelOut, Timestamp), RunErrorKind> {
        let (out, at) = self.ask_once(turn_id, false).await?;
        if self.compacting.is_none() || !is_too_long(&out) {
            return Ok((out, at));
        }
        Box::pin(self.ask_again(turn_id, out, at)).await
    }

    /// What is to be made of a refusal.
    async fn ask_again(
        &mut self,
        turn_id: Uuid,
        mut out: ModelOut,
        mut at: Timestamp,
    ) -> Result<(ModelOut, Timestamp), RunErrorKind> {
        if self.may_react() && self.compact(CompactionReason::Overflow, self.number).await? {
            self.save().await?;
            let (again, later) = self.ask_once(turn_id, true).await?;
            (out, at) = (again.after(out), later);
        }
        if self.aborted {
            out.end = ModelEnd::Aborted;
        }
        if let ModelEnd::Provider(error) = &mut out.end
            && error.kind == ProviderErrorKind::ContextOverflow
        {
            let history = self.cx.agent.session.history();
            let turns = history.iter().map(weight::of_turn).fold(0, u64::saturating_add);
            let fixed = weight::of_head(&self.head);
            error
                .message
                .push_str(&format!(" (estimated: {fixed} tokens of system text and tools, {turns} of conversation)"));
        }
        Ok((out, at))
    }

    async fn ask_once(&self, turn_id: Uuid, again: bool) -> Result<(ModelOut, Timestamp), RunErrorKind> {
        let cx = &self.cx;
        let job = ModelJob {
            cx: Arc::clone(cx),
            number: self.number,
            turn_id,
            again,
            head: Arc::clone(&self.head),
            history: cx.agent.session.history(),
            body_cache: cx.agent.session.body_cache(),
        };
        let done = self.step(job).await?;
        Ok((done.out, cx.time(done.at).await))
    }

    fn may_react(&mut self) -> bool {
        let history = self.cx.agent.session.history();
        let Some(compacting) = &mut self.compacting else { return false };
        compacting.gauge.read(&history, &self.head);
        !self.unresolved
            && compacting.made < compacting.trigger.max_per_run
            && compacting.gauge.has_grown()
            && history.last().is_some_and(|last| last.role == Role::User)
    }

    /// Has a summary written and puts it in the place of the older turns. False when the conversation is as it was.
    async fn compact(&mut self, reason: CompactionReason, number: u32) -> Result<bool, RunErrorKind> {
        // Nothing is sent that is not stored.
        self.save().await?;
        let Some(compacting) = &mut self.compacting else { return Ok(false) };
        let cx = Arc::clone(&self.cx);
        let history = cx.agent.session.history();
        let size = compacting.gauge.read(&history, &self.head);
        let job = CompactionJob {
            cx: Arc::clone(&cx),
            number,
            reason,
            policy: compacting.policy.clone(),
            trigger: compacting.trigger,
            head: Arc::clone(&self.head),
            history,
            size,
        };
        let id = self.uuid();
        let done = self.step(job).await?;
        let at = cx.time(done.at).await;
        let usage = self.record_summary(id, &done.out);
        match done.out.end {
            CompactionEnd::Made { summary, through, after } => {
                let usage = usage.unwrap_or_default();
                let made = Made { reason, id, at, summary, through, before: size, after, usage };
                return self.replace(made).await;
            }
            CompactionEnd::Aborted => self.aborted = true,
            CompactionEnd::Failed(error) => self.not_compacted(reason, size, error, usage).await,
        }
        Ok(false)
    }

    async fn replace(&mut self, made: Made) -> Result<bool, RunErrorKind> {
        let cx = Arc::clone(&self.cx);
        let Made { reason, id, at, summary, through, before, after, usage } = made;
        let session = &cx.agent.session;
        let place = session.history().iter().position(|turn| turn.id == through);
        let Some(cut) = place.and_then(|place| place.checked_add(1)) else {
            return Err(RunErrorKind::Step(format!(
                "a summary stands in for turns up to `{through}`, which is not there"
            )));
        };
        let content = vec![SessionContentBlock::text(summary_text(&summary))];
        let mut turn = self.turn(id, Role::User, TurnOrigin::Summary, content, at);
        turn.usage = Some(Arc::new(usage.clone()));
        // No await from here until all of it is done: a dropped run leaves the one conversation or the other.
        let summary = Arc::new(turn.into());
        session.summarize(Arc::clone(&summary), cut);
        cx.agent.unreasoned.lock().unwrap_or_else(PoisonError::into_inner).replaced(cut);
        if let Some(compacting) = &mut self.compacting {
            compacting.made = compacting.made.saturating_add(1);
            compacting.not_below = 0;
            compacting.gauge.replaced(&session.history(), &self.head);
        }
        let firing = &cx.firing;
        if firing.has::<HistoryReplaced>() {
            let mut hook_cx = HistoryReplacedCx::new(&firing.base, reason, &summary, &through, before, after, &usage);
            firing.observe::<HistoryReplaced>(&mut hook_cx).await;
        }
        cx.emit(|| AgentEvent::Compacted { reason, summary, through, before, after }).await;
        Ok(true)
    }

    async fn not_compacted(&mut self, reason: CompactionReason, size: u64, error: String, usage: Option<TurnUsage>) {
        if let Some(compacting) = &mut self.compacting {
            compacting.not_below = size.saturating_add(compacting.trigger.growth(size));
        }
        let firing = &self.cx.firing;
        tracing::warn!(reason = reason.as_str(), error, "the conversation was not compacted");
        if firing.has::<CompactionFailed>() {
            let mut hook_cx = CompactionFailedCx::new(&firing.base, reason, &error, usage.as_ref());
            firing.observe::<CompactionFailed>(&mut hook_cx).await;
        }
        self.cx.emit(|| AgentEvent::CompactionFailed { reason, error }).await;
    }
}

/// A summary that is to stand in.
struct Made {
    reason: CompactionReason,
    id: Uuid,
    at: Timestamp,
    summary: String,
    through: String,
    before: u64,
    after: u64,
    usage: TurnUsage,
}

/// Refused for its length, with nothing of an answer.
fn is_too_long(out: &ModelOut) -> bool {
    out.blocks.is_empty()
        && matches!(&out.end, ModelEnd::Provider(error) if error.kind == ProviderErrorKind::ContextOverflow)
}

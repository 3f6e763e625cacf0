use std::sync::{Arc, PoisonError};

use super::outcome::{RunErrorKind, StopCause};
use super::turn_loop::TurnLoop;
use super::vision::Description;
use crate::durable::DurableError;
use crate::hooks::{SessionRepaired, SessionRepairedCx, SessionSaved, SessionSavedCx};
use crate::provider::HistoryTurn;
use crate::session::{Flushed, Opened, RepairEntry, ResultEntry, RunEnd, RunEntry, SessionEntry, VisionEntry, repair};
use crate::types::{AgentStats, Timestamp, ToolResultBlock, TurnUsage};

impl TurnLoop {
    /// Whether the conversation is kept in a store. Without one nothing of it costs anything.
    pub(super) fn is_kept(&self) -> bool {
        self.cx.agent.session.is_kept()
    }

    /// Opens the stored session. `None` when the run was aborted meanwhile.
    pub(super) async fn open_session(&self) -> Result<Option<Opened>, RunErrorKind> {
        let (cx, session) = (&self.cx, &self.cx.agent.session);
        let opened = match cx.abort.run_until_cancelled(session.open(&cx.info.run_id)).await {
            // Where steps are recorded an abort has to be one of them.
            None if self.seam.is_durable() => return Err(self.interrupted()),
            None => return Ok(None),
            Some(opened) => opened.map_err(RunErrorKind::Session)?,
        };
        if !opened.visions.is_empty() {
            let mut stand_ins = cx.agent.stand_ins.lock().unwrap_or_else(PoisonError::into_inner);
            opened.visions.iter().for_each(|vision| stand_ins.restore(vision));
        }
        session.mark();
        Ok(Some(opened))
    }

    /// Goes back to the version that a run which is taken up again began with.
    pub(super) async fn rewind_session(&self, version: u64) -> Result<(), RunErrorKind> {
        let (cx, session) = (&self.cx, &self.cx.agent.session);
        let rewound = cx.abort.run_until_cancelled(session.rewind(version, &cx.info.run_id)).await;
        rewound.ok_or_else(|| self.interrupted())?.map_err(RunErrorKind::Session)?;
        session.mark();
        Ok(())
    }

    /// This attempt ends; the run can be taken up.
    fn interrupted(&self) -> RunErrorKind {
        RunErrorKind::Durable(DurableError::Interrupted { run_id: (*self.cx.info.run_id).to_owned() })
    }

    /// The run is an entry as soon as anything of it is.
    pub(super) fn queue_start(&mut self, at: Timestamp, resumes: Vec<String>) {
        let mut entry = RunEntry::start(&*self.cx.info.run_id, at);
        entry.durable = self.seam.is_durable();
        entry.resumes = resumes;
        entry.parent_run_id = self.cx.info.parent_run_id.as_deref().map(ToOwned::to_owned);
        self.cx.agent.session.queue(SessionEntry::Run(Box::new(entry.clone())));
        self.started = Some(entry);
    }

    pub(super) fn queue_vision(&self, vision: &Description, usage: &TurnUsage, at: Timestamp) {
        let (digest, run_id) = (vision.image.to_string(), &*self.cx.info.run_id);
        let entry = VisionEntry::new(digest, vision.text.as_str(), run_id, at, Some(usage.clone()));
        self.cx.agent.session.queue(SessionEntry::Vision(Box::new(entry)));
    }

    pub(super) fn queue_result(&self, turn_id: &str, result: &Arc<ToolResultBlock>, at: Timestamp) {
        let entry = ResultEntry::new(turn_id, &*self.cx.info.run_id, at, Arc::clone(result));
        self.cx.agent.session.queue(SessionEntry::Result(entry));
    }

    /// Stores what is queued; only then may anybody act on it. After an abort nobody acts on anything any more, and what
    /// is left is stored at the end.
    pub(super) async fn save(&self) -> Result<(), RunErrorKind> {
        if self.cx.agent.session.is_saved() || self.cx.abort.is_cancelled() {
            return Ok(());
        }
        Box::pin(self.append()).await
    }

    /// An append is never cut short, but nobody waits for it longer than an abort may take.
    async fn append(&self) -> Result<(), RunErrorKind> {
        let cx = &self.cx;
        let patience = async {
            cx.abort.cancelled().await;
            tokio::time::sleep(cx.agent.options.cancel_grace).await;
        };
        let flushed = cx.agent.session.flush(patience).await.map_err(RunErrorKind::Session)?;
        if let Flushed::Saved { entries, version } = flushed
            && cx.firing.has::<SessionSaved>()
        {
            let mut hook_cx = SessionSavedCx::new(&cx.firing.base, entries, version);
            cx.firing.observe::<SessionSaved>(&mut hook_cx).await;
        }
        Ok(())
    }

    /// Settles what an earlier run left open. `orphans` are calls whose results were left out.
    pub(super) async fn repair(&self, at: Timestamp, head: u64, orphans: &[String]) -> Result<(), RunErrorKind> {
        let (cx, session) = (&self.cx, &self.cx.agent.session);
        let kept = session.take_results();
        let history = session.history();
        let Some(last) = history.last().cloned() else { return Ok(()) };
        let repaired = repair(&history, kept, &cx.info.run_id, at);
        drop(history);
        let Some(repaired) = repaired else { return Ok(()) };
        let mut ids = Vec::new();
        if self.is_kept() && !repaired.answered.is_empty() {
            let made = repaired.turn.tool_results().filter(|result| repaired.answered.contains(&result.call_id));
            let entries = made.map(|result| {
                SessionEntry::Result(ResultEntry::new(&*last.id, &*cx.info.run_id, at, ToolResultBlock::clone(result)))
            });
            let (answered, dropped) = (repaired.answered.clone(), orphans.to_vec());
            let note = RepairEntry::new(&*last.id, &*cx.info.run_id, at, answered, dropped);
            for entry in entries.chain([SessionEntry::Repair(note)]) {
                ids.push(entry.id().to_owned());
                session.queue(entry);
            }
            self.save().await?;
        }
        // What is stored says who settled which call, and when.
        let reread = match ids.is_empty() {
            true => None,
            false => cx.abort.run_until_cancelled(session.reread(head, &ids)).await,
        };
        match reread {
            Some(reread) => reread.map_err(RunErrorKind::Session)?,
            None => session.push_results(Arc::new(HistoryTurn::new(repaired.turn))),
        }
        if cx.firing.has::<SessionRepaired>() {
            let mut hook_cx = SessionRepairedCx::new(&cx.firing.base, &repaired.answered, orphans);
            cx.firing.observe::<SessionRepaired>(&mut hook_cx).await;
        }
        Ok(())
    }

    /// Stores how the run ended, and what an abort left to be stored. A run whose engine or store failed has not ended:
    /// it is taken up, or nobody knows.
    pub(super) async fn save_end(
        &mut self,
        result: Result<StopCause, RunErrorKind>,
        stats: &AgentStats,
    ) -> Result<StopCause, RunErrorKind> {
        if !self.is_kept() || matches!(result, Err(RunErrorKind::Durable(_) | RunErrorKind::Session(_))) {
            return result;
        }
        let Some(start) = self.started.take() else { return result };
        // A run that came to nothing leaves nothing.
        if result.is_err() && self.cx.agent.session.withdraw(&start.id) {
            return result;
        }
        let at = if self.seam.is_durable() { self.at } else { self.cx.clock.now().await };
        let mut end = RunEnd::new(at, result.as_ref().map_or("error", StopCause::as_str));
        end.error = result.as_ref().err().map(ToString::to_string);
        end.deferred = self.cx.agent.session.deferred();
        end.stats = Some(Box::new(stats.clone()));
        self.cx.agent.session.queue(SessionEntry::Run(Box::new(start.ended(end))));
        let saved = Box::pin(self.append()).await;
        result.and_then(|stop| saved.map(|()| stop))
    }
}

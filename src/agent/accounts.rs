use std::sync::{Arc, PoisonError};

use uuid::Uuid;

use super::compaction::CompactionOut;
use super::model_step::ModelOut;
use super::offspring::ChildRecord;
use super::turn_loop::{TurnLoop, id_text};
use super::vision::Description;
use crate::hooks::{TurnUsageHook, TurnUsageHookCx};
use crate::types::{Timestamp, TurnFinishReason, TurnUsage, UsageKind};

impl TurnLoop {
    /// Files what descriptions of images used, and keeps them: on a replay nobody asked for them here.
    pub(super) fn record_visions(&mut self, turn_id: Uuid, visions: Vec<Description>, at: Timestamp) {
        for vision in visions {
            self.cx.agent.stand_ins.lock().unwrap_or_else(PoisonError::into_inner).learn(&vision);
            let usage = TurnUsage {
                tokens: vision.usage.tokens,
                cost: vision.cost,
                model_id: vision.model_id.clone(),
                requested_model: vision.requested_model.clone(),
                provider: vision.provider.clone(),
                finish_reason: Some(TurnFinishReason::Stop),
                kind: UsageKind::Vision,
                complete: true,
                attempts: 1,
                ..self.usage_base(turn_id)
            };
            if self.is_kept() {
                self.queue_vision(&vision, &usage, at);
            }
            self.cx.meter.count_side(&usage);
            self.file(Arc::new(usage));
        }
    }

    /// Files what a summary of older turns used; `None` when nothing was sent.
    pub(super) fn record_summary(&mut self, turn_id: Uuid, out: &CompactionOut) -> Option<TurnUsage> {
        if out.attempts == 0 {
            return None;
        }
        let usage = TurnUsage {
            tokens: out.tokens,
            cost: out.cost,
            model_id: out.model_id.clone(),
            requested_model: out.requested_model.clone(),
            provider: out.provider.clone(),
            finish_reason: out.finish,
            raw_finish_reason: out.raw_finish.clone(),
            kind: UsageKind::Compaction,
            complete: out.complete,
            attempts: out.attempts,
            ..self.usage_base(turn_id)
        };
        self.cx.meter.count_side(&usage);
        self.file(Arc::new(usage.clone()));
        Some(usage)
    }

    /// Adds an entry to what the run has used, where the run that spawned it sees it too.
    fn file(&mut self, usage: Arc<TurnUsage>) {
        if let Some(ledger) = self.cx.ledger() {
            ledger.add_turn(Arc::clone(&usage));
        }
        self.stats.push_turn(usage);
    }

    /// Adds children that have ended to what the run has used, and to its denials.
    pub(super) fn file_children(&mut self, children: Vec<ChildRecord>) {
        for ChildRecord { child, denials } in children {
            if let Some(ledger) = self.cx.ledger() {
                ledger.add_child(child.clone(), denials.clone());
            }
            self.stats.push_child(child);
            self.denials.extend(denials);
        }
    }

    /// The part of a usage entry that says whose it is.
    fn usage_base(&self, turn_id: Uuid) -> TurnUsage {
        TurnUsage {
            run_id: (*self.cx.info.run_id).to_owned(),
            turn_id: id_text(turn_id),
            parent_run_id: self.cx.info.parent_run_id.as_deref().map(ToOwned::to_owned),
            depth: self.cx.info.depth,
            ..TurnUsage::default()
        }
    }

    /// Files what the turn used, and takes the names out of it; `None` when nothing was sent.
    pub(super) async fn record_usage(&mut self, turn_id: Uuid, out: &mut ModelOut) -> Option<Arc<TurnUsage>> {
        if out.attempts == 0 {
            return None;
        }
        let usage = Arc::new(TurnUsage {
            tokens: out.tokens,
            cost: out.cost,
            model_id: out.model_id.take(),
            requested_model: std::mem::take(&mut out.requested_model),
            provider: std::mem::take(&mut out.provider),
            finish_reason: out.finish,
            raw_finish_reason: out.raw_finish.clone(),
            kind: if self.repairs > 0 && self.value.is_none() { UsageKind::Repair } else { UsageKind::Turn },
            complete: out.complete,
            attempts: out.attempts,
            ..self.usage_base(turn_id)
        });
        self.cx.meter.count_turn(&usage, out.permit.take());
        self.file(Arc::clone(&usage));
        let firing = &self.cx.firing;
        if firing.has::<TurnUsageHook>() {
            let mut hook_cx = TurnUsageHookCx::new(&firing.base, &usage, &self.stats);
            firing.observe::<TurnUsageHook>(&mut hook_cx).await;
        }
        Some(usage)
    }
}

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cut::Cut;
use super::record::record;
use super::{Compaction, Trigger, weight};
use crate::agent::context::RunCx;
use crate::agent::options::Fallback;
use crate::agent::seam::Job;
use crate::agent::side_request::{SideAnswer, ask_aside};
use crate::durable::{StepCx, StepError, StepKind};
use crate::hooks::CompactionReason;
use crate::provider::{History, ModelRequest, ProviderErrorKind, RequestHead};
use crate::types::{NanoUsd, Role, SessionContentBlock, SessionTurn, TokenUsage, TurnFinishReason, TurnOrigin};

/// Requests for one summary that may be refused as too long, each of half the length of the one before.
const TRIES: u32 = 3;

/// Bytes of a record that certainly come to no more than one token.
const SAFE_BYTES: u64 = 3;

/// Tokens of a request beside the record and the instructions.
const FRAME: u64 = 256;

const PREFACE: &str =
    "This is a summary of the conversation so far; the turns it stands in for are not shown any more.";

/// What the turn says that stands in.
pub(super) fn summary_text(summary: &str) -> String {
    format!("{PREFACE}\n\n{summary}")
}

/// Decides what a summary stands in for, and has it written.
pub(super) struct CompactionJob {
    pub(super) cx: Arc<RunCx>,
    /// The number of the turn that it comes before.
    pub(super) number: u32,
    pub(super) reason: CompactionReason,
    pub(super) policy: Compaction,
    pub(super) trigger: Trigger,
    pub(super) head: Arc<RequestHead>,
    pub(super) history: History,
    /// The size of the conversation in tokens.
    pub(super) size: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::agent) struct CompactionOut {
    pub(super) end: CompactionEnd,
    pub(in crate::agent) tokens: TokenUsage,
    pub(in crate::agent) cost: Option<NanoUsd>,
    pub(in crate::agent) complete: bool,
    pub(in crate::agent) attempts: u32,
    pub(in crate::agent) model_id: Option<String>,
    pub(in crate::agent) requested_model: String,
    pub(in crate::agent) provider: String,
    pub(in crate::agent) finish: Option<TurnFinishReason>,
    pub(in crate::agent) raw_finish: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CompactionEnd {
    Made {
        summary: String,
        /// The last turn that it stands in for.
        through: String,
        /// The size of the conversation then, in tokens.
        after: u64,
    },
    Aborted,
    Failed(String),
}

impl Job for CompactionJob {
    type Out = CompactionOut;
    const KIND: StepKind = StepKind::Model;

    fn name(&self) -> String {
        let why = if self.reason == CompactionReason::Overflow { "/overflow" } else { "" };
        format!("t{}/compact{why}", self.number)
    }

    async fn run(self, _: StepCx) -> Result<CompactionOut, StepError> {
        let own = Fallback { provider: Arc::clone(&self.cx.agent.provider), model: self.head.model.clone() };
        let of = self.policy.model.clone().unwrap_or(own);
        let mut out = CompactionOut {
            end: CompactionEnd::Aborted,
            tokens: TokenUsage::default(),
            cost: None,
            complete: true,
            attempts: 0,
            model_id: None,
            requested_model: of.model.clone(),
            provider: of.provider.id().to_owned(),
            finish: None,
            raw_finish: None,
        };
        out.end = self.compact(&of, &mut out).await;
        Ok(out)
    }
}

impl CompactionJob {
    async fn compact(&self, of: &Fallback, out: &mut CompactionOut) -> CompactionEnd {
        if self.cx.abort.is_cancelled() {
            return CompactionEnd::Aborted;
        }
        if let Some(limit) = self.cx.meter.forbids_turn() {
            return CompactionEnd::Failed(format!("a limit of the run is reached: {}", limit.as_str()));
        }
        let cut = Cut::of(&self.history, &self.head, self.trigger, self.size, self.reason);
        let least = weight::of_bytes(summary_text("").len());
        let Some(cut) = cut.filter(|cut| cut.removed > least) else {
            return CompactionEnd::Failed("too little of the conversation can be cut off to help".to_owned());
        };
        let old = self.history.turns().get(..cut.place).unwrap_or_default();
        let Some(through) = old.last().map(|turn| turn.id.clone()) else { return CompactionEnd::Aborted };
        let summary = match self.summarise(of, cut, out).await {
            Ok(summary) => summary,
            Err(end) => return end,
        };
        let weight = weight::of_bytes(summary_text(&summary).len());
        if weight >= cut.removed {
            return CompactionEnd::Failed("the summary is no shorter than what it would stand in for".to_owned());
        }
        CompactionEnd::Made { summary, through, after: cut.after(self.size, weight) }
    }

    /// Asks for the summary; with less of the record when that is too long.
    async fn summarise(&self, of: &Fallback, cut: Cut, out: &mut CompactionOut) -> Result<String, CompactionEnd> {
        let window = match &self.policy.model {
            Some(other) => other.provider.context_window(&other.model),
            None => self.policy.own_window(&*of.provider, &self.head),
        };
        let quarter = window.map_or(u32::MAX, |window| u32::try_from(window / 4).unwrap_or(u32::MAX));
        let max_tokens = self.policy.max_tokens.min(quarter).max(1);
        let head = RequestHead {
            model: of.model.clone(),
            system: Some(Arc::clone(&self.policy.instructions)),
            max_tokens: Some(max_tokens),
            ..RequestHead::default()
        };
        let frame = u64::from(max_tokens).saturating_add(weight::of_head(&head)).saturating_add(FRAME);
        let mut limit = match window {
            Some(window) => bytes(window.saturating_sub(frame)),
            // What this model refused is its only measure.
            None if self.reason == CompactionReason::Overflow && self.policy.model.is_none() => bytes(cut.whole / 2),
            None => usize::MAX,
        };
        let old = || self.history.iter().take(cut.place);
        for last in (0..TRIES).map(|tries| tries + 1 == TRIES) {
            let text = record(old(), limit);
            limit = text.len() / 2;
            let answer = ask_aside(&self.cx, of, ModelRequest::new(head.clone(), asked(&text))).await;
            let too_long =
                matches!(&answer.result, Err(error) if error.kind == ProviderErrorKind::ContextOverflow) && !last;
            let result = out.take(answer);
            if !too_long {
                return result;
            }
        }
        Err(CompactionEnd::Aborted)
    }
}

impl CompactionOut {
    /// Counts an answer in; its text, when it is one to go on with.
    fn take(&mut self, answer: SideAnswer) -> Result<String, CompactionEnd> {
        let unpriced = |tokens: &TokenUsage, cost: Option<NanoUsd>| tokens.total() > 0 && cost.is_none();
        let either_unpriced = unpriced(&self.tokens, self.cost) || unpriced(&answer.tokens, answer.cost);
        self.cost = match (self.cost, answer.cost) {
            _ if either_unpriced => None,
            (None, None) => None,
            (before, now) => Some(before.unwrap_or_default() + now.unwrap_or_default()),
        };
        self.tokens += answer.tokens;
        self.attempts = self.attempts.saturating_add(answer.attempts);
        self.complete = answer.complete;
        self.model_id = answer.model_id;
        (self.finish, self.raw_finish) = answer.finish.map_or((None, None), |(class, raw)| (Some(class), raw));
        let text = match answer.result {
            Ok(text) => text,
            Err(error) if error.kind == ProviderErrorKind::Aborted => return Err(CompactionEnd::Aborted),
            Err(error) => return Err(CompactionEnd::Failed(error.to_string())),
        };
        match self.finish {
            // One that was cut is worth more than none.
            Some(TurnFinishReason::Stop | TurnFinishReason::Length) if !text.trim().is_empty() => {
                Ok(text.trim().to_owned())
            }
            Some(TurnFinishReason::Stop | TurnFinishReason::Length) | None => {
                Err(CompactionEnd::Failed("the model wrote no summary".to_owned()))
            }
            Some(other) => Err(CompactionEnd::Failed(format!("the summary ended with {}", other.as_str()))),
        }
    }
}

fn bytes(tokens: u64) -> usize {
    usize::try_from(tokens.saturating_mul(SAFE_BYTES)).unwrap_or(usize::MAX)
}

fn asked(record: &str) -> History {
    let text = format!("The conversation so far:\n\n<record>\n{record}\n</record>\n\nWrite the summary.");
    let content = vec![SessionContentBlock::text(text)];
    History::from_iter([SessionTurn::new("record", Role::User, TurnOrigin::Summary, content)])
}

use std::sync::Arc;

use crate::provider::{History, HistoryTurn};
use crate::types::SessionContentBlock;

/// A conversation made from another one turn by turn. It grows with its source: what was made for earlier requests
/// stays, so that it stays encoded too.
#[derive(Debug, Default)]
pub(super) struct Derived {
    history: History,
    /// How many turns of the source are in it.
    seen: usize,
    /// The source, without its turns.
    source: Option<History>,
}

impl Derived {
    /// Begins anew where the source is another conversation than before.
    pub(super) fn follow(&mut self, source: &History) {
        if !self.source.as_ref().is_some_and(|known| known.is_same_conversation(source)) {
            *self = Self { source: Some(source.emptied()), ..Self::default() };
        }
    }

    /// The turns of the source that are not in it yet.
    pub(super) fn rest<'s>(&self, source: &'s History) -> &'s [Arc<HistoryTurn>] {
        source.turns().get(self.seen..).unwrap_or_default()
    }

    /// The conversation up to date; `make` gives what stands for each new turn.
    pub(super) fn grown(
        &mut self,
        source: &History,
        mut make: impl FnMut(&Arc<HistoryTurn>, usize) -> Arc<HistoryTurn>,
    ) -> History {
        self.follow(source);
        for turn in self.rest(source) {
            self.history.push(make(turn, self.seen));
            self.seen += 1;
        }
        self.history.clone()
    }
}

/// A conversation without the reasoning that an API refused.
#[derive(Debug, Default)]
pub(super) struct Unreasoned {
    /// Turns from the start whose reasoning is dropped.
    through: usize,
    derived: Derived,
}

impl Unreasoned {
    /// Drops the reasoning of everything so far: never from the middle, which would break what is bound to it.
    pub(super) fn drop_all(&mut self, history: &History) {
        *self = Self { through: history.len(), derived: Derived::default() };
    }

    /// One turn stands in for the first `cut` from now on.
    pub(super) fn replaced(&mut self, cut: usize) {
        if self.through > 0 {
            *self = Self { through: self.through.saturating_sub(cut).saturating_add(1), derived: Derived::default() };
        }
    }

    /// The conversation as it may be sent; the very one when nothing was ever refused.
    pub(super) fn view(&mut self, history: History) -> History {
        if self.through == 0 {
            return history;
        }
        let through = self.through;
        self.derived.grown(&history, |turn, index| {
            if index < through && has_reasoning(turn) { Arc::new(without_reasoning(turn)) } else { Arc::clone(turn) }
        })
    }
}

fn has_reasoning(turn: &HistoryTurn) -> bool {
    turn.content.iter().any(|block| match block {
        SessionContentBlock::Thinking(_) => true,
        SessionContentBlock::Text(text) => text.signature.is_some(),
        SessionContentBlock::ToolCall(call) => call.signature.is_some(),
        _ => false,
    })
}

fn without_reasoning(turn: &HistoryTurn) -> HistoryTurn {
    let mut turn = turn.clone().into_inner();
    turn.content.retain(|block| !matches!(block, SessionContentBlock::Thinking(_)));
    for block in &mut turn.content {
        match block {
            SessionContentBlock::Text(text) => text.signature = None,
            SessionContentBlock::ToolCall(call) => call.signature = None,
            _ => {}
        }
    }
    turn.content.retain(|block| block.as_text().is_none_or(|text| !text.trim().is_empty()));
    HistoryTurn::new(turn)
}

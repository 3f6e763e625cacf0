use super::weight;
use crate::provider::{History, HistoryTurn, RequestHead};
use crate::types::{Role, TurnOrigin};

/// The size of a conversation: what the provider reported last, and an estimate of what came since. Looks at each turn
/// once.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// The conversation, without its turns.
    source: Option<History>,
    seen: usize,
    tokens: u64,
    /// Where reports are about the conversation as it is: turns that a compaction kept answered a longer one.
    from: usize,
    /// The size right after the last compaction, by the first report since or an estimate.
    settled: Option<Settled>,
    /// Answers since the last compaction.
    pub(super) answers: u64,
}

#[derive(Clone, Copy, Debug)]
struct Settled {
    tokens: u64,
    reported: bool,
}

impl Gauge {
    /// Brings it up to date; the size of the conversation in tokens.
    pub(super) fn read(&mut self, history: &History, head: &RequestHead) -> u64 {
        if !self.source.as_ref().is_some_and(|known| known.is_same_conversation(history)) {
            *self = Self::begin(history, head, first_after(history));
        }
        self.advance(history);
        self.tokens
    }

    /// The size right after the last compaction; `None` when there was none.
    pub(super) fn settled(&self) -> Option<u64> {
        self.settled.map(|settled| settled.tokens)
    }

    /// Whether anything was appended since the last compaction.
    pub(super) const fn has_grown(&self) -> bool {
        self.settled.is_none() || self.seen > self.from
    }

    /// The conversation was compacted to these turns.
    pub(super) fn replaced(&mut self, history: &History, head: &RequestHead) {
        *self = Self::begin(history, head, history.len());
        self.advance(history);
    }

    fn begin(history: &History, head: &RequestHead, from: usize) -> Self {
        Self { source: Some(history.emptied()), tokens: weight::of_head(head), from, ..Self::default() }
    }

    fn advance(&mut self, history: &History) {
        let is_compacted = history.turns().first().is_some_and(|first| first.origin == TurnOrigin::Summary);
        let rest = history.turns().get(self.seen..).unwrap_or_default();
        for turn in rest {
            if is_compacted && self.seen == self.from {
                self.settled = Some(Settled { tokens: self.tokens, reported: false });
            }
            let new = self.seen >= self.from;
            match reported(turn).filter(|_| new) {
                Some(tokens) => {
                    self.tokens = tokens;
                    if let Some(settled) = self.settled.as_mut().filter(|settled| !settled.reported) {
                        *settled = Settled { tokens, reported: true };
                    }
                }
                None => self.tokens = self.tokens.saturating_add(weight::of_turn(turn)),
            }
            self.answers = self.answers.saturating_add(u64::from(new && turn.role == Role::Assistant));
            self.seen = self.seen.saturating_add(1);
        }
        if is_compacted && self.seen == self.from {
            self.settled = Some(Settled { tokens: self.tokens, reported: false });
        }
    }
}

/// What the provider said that the conversation has come to with this answer. What was lost in failed attempts is in a
/// turn's usage too, and so nothing is known of an answer with several.
fn reported(turn: &HistoryTurn) -> Option<u64> {
    let usage = turn.usage.as_ref().filter(|usage| usage.complete && usage.attempts == 1)?;
    let tokens = usage.tokens.total();
    (turn.role == Role::Assistant && tokens > 0).then_some(tokens)
}

/// The first turn that was made after the summary at the head.
fn first_after(history: &History) -> usize {
    match history.turns().first() {
        Some(summary) if summary.origin == TurnOrigin::Summary => {
            let later = |turn: &std::sync::Arc<HistoryTurn>| turn.created_at > summary.created_at;
            history.turns().iter().position(later).unwrap_or(history.len())
        }
        _ => 0,
    }
}

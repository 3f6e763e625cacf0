use std::sync::Arc;

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
            let later = |turn: &Arc<HistoryTurn>| turn.created_at > summary.created_at;
            history.turns().iter().position(later).unwrap_or(history.len())
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{SessionContentBlock, SessionTurn, Timestamp, TokenUsage, TurnUsage};

    fn turn(origin: TurnOrigin, at: u64, reported: u64) -> SessionTurn {
        let role = if origin == TurnOrigin::Model { Role::Assistant } else { Role::User };
        let mut turn = SessionTurn::new(at.to_string(), role, origin, vec![SessionContentBlock::text("12345678")]);
        turn.created_at = Timestamp(at);
        let tokens = TokenUsage { input: reported, ..TokenUsage::default() };
        turn.usage = Some(Arc::new(TurnUsage { tokens, complete: true, attempts: 1, ..TurnUsage::default() }));
        turn
    }

    #[test]
    fn reports_count_where_they_are_about_the_conversation_as_it_is() {
        use TurnOrigin::{Model, Prompt, Summary};
        let head = RequestHead::default();
        let mut history: History =
            [turn(Prompt, 1, 0), turn(Model, 2, 5_000), turn(Prompt, 3, 0)].into_iter().collect();
        let mut gauge = Gauge::default();
        assert_eq!((gauge.read(&history, &head), gauge.settled()), (5_002, None));
        assert!(gauge.has_grown());

        // Compacted: what was kept was reported for more.
        history = [turn(Summary, 4, 9), turn(Model, 2, 5_000), turn(Prompt, 3, 0)].into_iter().collect();
        gauge.replaced(&history, &head);
        let mut fresh = Gauge::default();
        for gauge in [&mut gauge, &mut fresh] {
            assert_eq!((gauge.read(&history, &head), gauge.settled(), gauge.answers), (6, Some(6), 0));
            assert!(!gauge.has_grown());
        }
        history.push(std::sync::Arc::new(turn(Model, 5, 300).into()));
        history.push(std::sync::Arc::new(turn(Prompt, 6, 0).into()));
        history.push(std::sync::Arc::new(turn(Model, 7, 400).into()));
        for gauge in [&mut gauge, &mut fresh, &mut Gauge::default()] {
            assert_eq!((gauge.read(&history, &head), gauge.settled(), gauge.answers), (400, Some(300), 2));
            assert!(gauge.has_grown());
        }
    }

    #[test]
    fn a_report_that_is_no_measure_is_passed_over() {
        let head = RequestHead { system: Some("1234".into()), ..RequestHead::default() };
        let mut cut = turn(TurnOrigin::Model, 2, 70);
        Arc::make_mut(cut.usage.as_mut().unwrap()).complete = false;
        let mut tried = turn(TurnOrigin::Model, 3, 140);
        Arc::make_mut(tried.usage.as_mut().unwrap()).attempts = 2;
        let history = [turn(TurnOrigin::Prompt, 1, 0), cut, tried, turn(TurnOrigin::Model, 4, 0)].into_iter().collect();
        assert_eq!(Gauge::default().read(&history, &head), 1 + 4 * 2);
    }
}

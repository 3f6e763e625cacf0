use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::RequestHead;
use super::prefix_digest::Bound;
use crate::types::SessionTurn;

/// A turn as the loop holds it: shared, never changed. Serializes as the turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HistoryTurn {
    turn: SessionTurn,
}

impl HistoryTurn {
    /// Wraps a turn.
    #[must_use]
    pub const fn new(turn: SessionTurn) -> Self {
        Self { turn }
    }

    /// The turn itself.
    #[must_use]
    pub fn into_inner(self) -> SessionTurn {
        self.turn
    }
}

impl Deref for HistoryTurn {
    type Target = SessionTurn;
    fn deref(&self) -> &SessionTurn {
        &self.turn
    }
}

impl From<SessionTurn> for HistoryTurn {
    fn from(turn: SessionTurn) -> Self {
        Self::new(turn)
    }
}

/// The turns of a conversation. Cloning shares them; appending to the only handle moves nothing.
#[derive(Clone, Debug)]
pub struct History {
    turns: Arc<Vec<Arc<HistoryTurn>>>,
    lineage: u64,
}

fn next_lineage() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl History {
    /// An empty conversation.
    #[must_use]
    pub fn new() -> Self {
        Self { turns: Arc::default(), lineage: next_lineage() }
    }

    /// A conversation of the given turns.
    #[must_use]
    pub fn from_turns(turns: Vec<Arc<HistoryTurn>>) -> Self {
        Self { turns: Arc::new(turns), lineage: next_lineage() }
    }

    /// Appends a turn.
    pub fn push(&mut self, turn: Arc<HistoryTurn>) {
        Arc::make_mut(&mut self.turns).push(turn);
    }

    /// Puts another turn in the place of the last one: the same to every wire.
    pub(crate) fn replace_last(&mut self, turn: Arc<HistoryTurn>) {
        if let Some(last) = Arc::make_mut(&mut self.turns).last_mut() {
            *last = turn;
        }
    }

    /// A handle to the same conversation that holds none of its turns.
    pub(crate) fn emptied(&self) -> Self {
        Self { turns: Arc::default(), lineage: self.lineage }
    }

    /// Whether both are the same conversation, of which one may have more turns.
    pub(crate) const fn is_same_conversation(&self, other: &Self) -> bool {
        self.lineage == other.lineage
    }

    /// How many turns there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The turns.
    #[must_use]
    pub fn turns(&self) -> &[Arc<HistoryTurn>] {
        &self.turns
    }

    /// The last turn.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<HistoryTurn>> {
        self.turns.last()
    }

    /// The turns, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &SessionTurn> {
        self.turns.iter().map(|turn| &turn.turn)
    }
}

impl Default for History {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<SessionTurn> for History {
    fn from_iter<I: IntoIterator<Item = SessionTurn>>(turns: I) -> Self {
        Self::from_turns(turns.into_iter().map(|turn| Arc::new(turn.into())).collect())
    }
}

/// The request body of a conversation so far, kept between its requests so that a turn is encoded once.
///
/// A wire takes it with [`BodyCache::take`], appends what is new, and gives it back with [`BodyCache::put`].
/// Using it is optional.
#[derive(Debug, Default)]
pub struct BodyCache {
    slot: Mutex<Option<EncodedBody>>,
    #[cfg(feature = "http")]
    fit: Mutex<Option<Box<super::media_fit::MediaFit>>>,
}

/// An encoded beginning of a request body.
#[derive(Clone, Debug)]
pub struct EncodedBody {
    /// The wire and its options: whatever else but head and turns decides the bytes.
    pub wire: String,
    /// The head that was encoded.
    pub head: Arc<RequestHead>,
    /// The bytes up to and including the last encoded turn.
    pub bytes: Bytes,
    /// How many turns they hold.
    pub turns: usize,
    lineage: u64,
    last: Option<Arc<HistoryTurn>>,
    /// Where reasoning is bound to what came before it.
    #[cfg_attr(not(feature = "anthropic"), allow(dead_code, reason = "the one wire that binds uses it"))]
    pub(super) bound: Option<Bound>,
}

impl BodyCache {
    /// Takes the body out if it is a beginning of what this wire would send for `head` and `history`.
    #[must_use]
    pub fn take(&self, wire: &str, head: &Arc<RequestHead>, history: &History) -> Option<EncodedBody> {
        let body = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let same_head = Arc::ptr_eq(&body.head, head) || body.head == *head;
        let same_turns = body.lineage == history.lineage
            && body.turns <= history.len()
            && match (&body.last, body.turns.checked_sub(1)) {
                (Some(last), Some(index)) => Arc::ptr_eq(last, &history.turns[index]),
                (None, None) => true,
                _ => false,
            };
        (body.wire == wire && same_head && same_turns).then_some(body)
    }

    /// Stores the bytes that encode `head` and the first `turns` turns of `history`.
    pub fn put(&self, wire: String, head: Arc<RequestHead>, history: &History, turns: usize, bytes: Bytes) {
        self.put_bound(wire, head, history, turns, bytes, None);
    }

    /// As [`put`](Self::put), with what is known of the reasoning in those turns.
    pub(super) fn put_bound(
        &self,
        wire: String,
        head: Arc<RequestHead>,
        history: &History,
        turns: usize,
        bytes: Bytes,
        bound: Option<Bound>,
    ) {
        let last = turns.checked_sub(1).and_then(|index| history.turns.get(index)).cloned();
        let body = EncodedBody { wire, head, bytes, turns, lineage: history.lineage, last, bound };
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }

    /// Takes out what is known of the media of the conversation's earlier requests.
    #[cfg(feature = "http")]
    pub(super) fn take_fit(&self) -> Option<Box<super::media_fit::MediaFit>> {
        self.fit.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps it for the next one.
    #[cfg(feature = "http")]
    pub(super) fn put_fit(&self, fit: Box<super::media_fit::MediaFit>) {
        *self.fit.lock().unwrap_or_else(PoisonError::into_inner) = Some(fit);
    }
}

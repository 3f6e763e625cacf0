use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    FoldNote, RepairEntry, ResultEntry, SessionEntry, SessionRun, SummaryEntry, UnknownEntry, VisionEntry, child_id,
};
use crate::provider::{History, HistoryTurn};
use crate::types::{DeferredCall, Extra, SessionTurn, ToolResultBlock};

/// A conversation and what is known of it: the fold of its entries.
///
/// A value: changing it changes nothing that is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Session {
    /// Its id.
    pub id: String,
    /// How many entries it was made of. The next append is made on this.
    pub version: u64,
    /// The whole conversation, oldest turn first. What summaries stand in for is in it.
    pub turns: Vec<Arc<HistoryTurn>>,
    /// Final results of calls of the last turn while others of its calls are open, in call order.
    pub open: Vec<Arc<ToolResultBlock>>,
    /// Calls of the last turn that wait for the host's answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<DeferredCall>,
    /// Its runs, oldest first.
    pub runs: Vec<SessionRun>,
    /// What repairs did.
    pub repairs: Vec<RepairEntry>,
    /// Its summaries, oldest first. The last one counts.
    pub summaries: Vec<SummaryEntry>,
    /// Descriptions of images, by the digest of their bytes.
    pub visions: BTreeMap<String, VisionEntry>,
    /// The host's notes.
    pub metadata: BTreeMap<String, Value>,
    /// Entries of kinds that this version does not know.
    #[serde(skip)]
    pub unknown: Vec<UnknownEntry>,
    /// What was left out, and why.
    pub notes: Vec<FoldNote>,
}

/// Why a session cannot be forked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// It has no such turn.
    #[error("session `{session}` has no turn `{turn}`")]
    NoSuchTurn {
        /// The session.
        session: String,
        /// The turn.
        turn: String,
    },
}

impl Session {
    /// A session without anything in it.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            version: 0,
            turns: Vec::new(),
            open: Vec::new(),
            deferred: Vec::new(),
            runs: Vec::new(),
            repairs: Vec::new(),
            summaries: Vec::new(),
            visions: BTreeMap::new(),
            metadata: BTreeMap::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// What a model is sent: the last summary and the turns after what it stands in for, or all turns.
    #[must_use]
    pub fn history(&self) -> History {
        let Some((summary, place)) = self.summaries.iter().rev().find_map(|summary| {
            let place = self.turns.iter().position(|turn| turn.id == summary.through)?;
            Some((summary, place.saturating_add(1)))
        }) else {
            return History::from_turns(self.turns.clone());
        };
        let rest = self.turns.get(place..).unwrap_or_default();
        // A call that the summary stands in for takes its results with it.
        let rest = match rest.split_first() {
            Some((first, rest)) if holds_results(first) => rest,
            _ => rest,
        };
        let mut turns = Vec::with_capacity(rest.len().saturating_add(1));
        turns.push(Arc::clone(&summary.turn));
        turns.extend_from_slice(rest);
        History::from_turns(turns)
    }

    /// The entries of a session of its own that begins as this one up to and with the turn `at_turn`: append them under
    /// another id, on version 0.
    ///
    /// The results of the last turn's calls come along, so that no pair is split. Turn ids stay, summaries, images and
    /// notes come along; runs and repairs do not, they were this session's. The note `forkedFrom` says where it came
    /// from.
    ///
    /// # Errors
    /// [`ForkError::NoSuchTurn`].
    pub fn fork(&self, at_turn: &str) -> Result<Vec<SessionEntry>, ForkError> {
        let Some(place) = self.turns.iter().position(|turn| turn.id == at_turn) else {
            return Err(ForkError::NoSuchTurn { session: self.id.clone(), turn: at_turn.to_owned() });
        };
        let after = place.saturating_add(1);
        let end = match self.turns.get(after) {
            Some(next) if holds_results(next) => after.saturating_add(1),
            _ => after,
        };
        let turns = self.turns.get(..end).unwrap_or_default();
        let mut entries: Vec<SessionEntry> = turns.iter().cloned().map(SessionEntry::Turn).collect();
        if end == self.turns.len()
            && let Some(last) = turns.last()
        {
            let of_last = |result: &Arc<ToolResultBlock>| {
                let at = last.created_at;
                SessionEntry::Result(ResultEntry::new(&*last.id, &*last.run_id, at, Arc::clone(result)))
            };
            entries.extend(self.open.iter().map(of_last));
        }
        let kept = |summary: &&SummaryEntry| turns.iter().any(|turn| turn.id == summary.through);
        entries.extend(self.summaries.iter().filter(kept).cloned().map(SessionEntry::Summary));
        entries.extend(self.visions.values().cloned().map(|vision| SessionEntry::Vision(Box::new(vision))));
        entries.extend(self.unknown.iter().cloned().map(SessionEntry::Unknown));
        let mut values: Map<String, Value> =
            self.metadata.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        values.insert("forkedFrom".into(), serde_json::json!({ "session": self.id, "turn": at_turn }));
        let id = child_id(at_turn, &format!("fork/{}", self.id)).to_string();
        entries.push(SessionEntry::Metadata(super::MetadataEntry { id, values, extra: Extra::default() }));
        Ok(entries)
    }
}

/// Whether a turn holds results of calls of the turn before.
pub(super) fn holds_results(turn: &SessionTurn) -> bool {
    turn.tool_results().next().is_some()
}

use std::sync::Arc;

use super::blob::{output_refers, refers};
use super::fold::waiting;
use super::live::split;
use super::{
    BlobError, BlobStore, FoldNote, Keeper, LiveSession, ResultEntry, Session, SessionEntry, SessionError, SessionRun,
    StoredSession, VisionEntry, fold, restore_media,
};
use crate::provider::{History, HistoryTurn};
use crate::types::{SessionContentBlock, SessionTurn, ToolResultBlock};

/// The largest blob that is loaded, in bytes.
const LARGEST_BLOB: u64 = 256 * 1024 * 1024;

/// What a run finds when it opens its session.
#[derive(Default)]
pub(crate) struct Opened {
    /// The stored version.
    pub(crate) version: u64,
    /// What no new prompt may touch.
    pub(crate) waiting: Option<Waiting>,
    /// Calls whose results were left out because nothing had asked for them.
    pub(crate) orphans: Vec<String>,
    /// Descriptions of images.
    pub(crate) visions: Vec<VisionEntry>,
}

/// Calls that wait for the host, or for a run that a durable engine will go on with.
pub(crate) struct Waiting {
    pub(crate) run_id: String,
    pub(crate) calls: Vec<String>,
    /// The run has not ended, and its engine will go on with it.
    pub(crate) unfinished: bool,
}

impl LiveSession {
    /// Makes the conversation what the store has, at the beginning of a run. Waits for an append that was left to itself,
    /// and stores what still waits. Reads the session only when it has moved on, nothing is known of it, or calls are
    /// open. Dropping the future changes nothing that is stored.
    pub(crate) async fn open(&self, run_id: &str) -> Result<Opened, SessionError> {
        let Some(keeper) = &self.keeper else { return Ok(Opened::default()) };
        let mut head = keeper.head().await;
        if head.version.is_some() {
            head = match keeper.flush_under(head).await {
                Ok(head) => head,
                Err(error) => {
                    tracing::warn!(session = keeper.id(), %error, "what an earlier run had left was not stored");
                    keeper.head().await
                }
            };
        }
        if let Some(version) = head.version
            && !self.is_open()
            && keeper.store.version(keeper.id()).await? == version
        {
            return Ok(Opened { version, ..Opened::default() });
        }
        let stored = keeper.store.load(keeper.id()).await?;
        head.resolve(stored.as_ref().map_or(&[], |stored| &stored.entries));
        keeper.clear();
        let (seeds, open) = split(History::from_turns(keeper.seeds.clone()));
        let Some(stored) = stored else {
            let deferred = seeds.last().map(|last| waiting(last, &[])).unwrap_or_default();
            head.version = Some(0);
            seeds.turns().iter().cloned().for_each(|turn| keeper.queue(SessionEntry::Turn(turn)));
            if let Some(last) = seeds.last() {
                let (turn, run, at) = (&*last.id, &*last.run_id, last.created_at);
                let entry = |result| SessionEntry::Result(ResultEntry::new(turn, run, at, result));
                open.iter().cloned().map(entry).for_each(|entry| keeper.queue(entry));
            }
            self.restore(seeds, open, deferred);
            let version = keeper.flush_under(head).await?.version.unwrap_or_default();
            return Ok(Opened { version, waiting: self.waiting(), ..Opened::default() });
        };
        let session = fold(keeper.id(), stored);
        let begins = seeds.turns().iter().enumerate().all(|(place, seed)| {
            session.turns.get(place).is_some_and(|turn| turn.id == seed.id && turn.content.len() == seed.content.len())
        });
        if !begins {
            return Err(SessionError::Begun { session: session.id });
        }
        let opened = Opened::of(&session, run_id);
        let version = session.version;
        self.take_over(&session, keeper).await?;
        head.version = Some(version);
        Ok(opened)
    }

    /// Goes back to what a run began with, which is taken up again: what it appended since it will append again.
    pub(crate) async fn rewind(&self, version: u64, run_id: &str) -> Result<(), SessionError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let mut head = keeper.head().await;
        let mut stored = keeper.store.load(keeper.id()).await?.unwrap_or_default();
        let found = stored.version;
        let since = usize::try_from(version).ok().and_then(|version| stored.entries.get(version..));
        if since.is_none_or(|since| since.iter().any(|entry| run_of(entry).is_some_and(|of| of != run_id))) {
            head.version = None;
            return Err(SessionError::Conflict { session: keeper.id().to_owned(), expected: version, found });
        }
        stored.entries.truncate(usize::try_from(version).unwrap_or(usize::MAX));
        let session = fold(keeper.id(), StoredSession::new(stored.entries));
        self.take_over(&session, keeper).await?;
        head.version = Some(found);
        Ok(())
    }

    /// Makes the conversation what the store has up to a version and in a few entries after it.
    pub(crate) async fn reread(&self, version: u64, and: &[String]) -> Result<(), SessionError> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        let stored = keeper.store.load(keeper.id()).await?.unwrap_or_default();
        let entries = (0..).zip(stored.entries);
        let entries = entries.filter(|(place, entry)| *place < version || and.iter().any(|id| id == entry.id()));
        let entries = entries.map(|(_, entry)| entry).collect();
        self.take_over(&fold(keeper.id(), StoredSession::new(entries)), keeper).await
    }

    /// The session as it is stored, once no append is under way.
    pub(crate) async fn stored(&self) -> Result<Option<Session>, SessionError> {
        let Some(keeper) = &self.keeper else { return Ok(None) };
        drop(keeper.head().await);
        let stored = keeper.store.load(keeper.id()).await?;
        Ok(stored.map(|stored| fold(keeper.id(), stored)))
    }

    async fn take_over(&self, session: &Session, keeper: &Keeper) -> Result<(), SessionError> {
        let (mut history, mut open) = (session.history(), session.open.clone());
        if let Some(blobs) = &keeper.blobs {
            let missing = restored(&mut history, &mut open, &*blobs.store).await?;
            if !missing.is_empty() {
                tracing::warn!(session = keeper.id(), ?missing, "blobs are missing");
            }
        }
        self.restore(history, open, session.deferred.clone());
        Ok(())
    }
}

impl Opened {
    fn of(session: &Session, run_id: &str) -> Self {
        let orphan = |note: &FoldNote| match note {
            FoldNote::OrphanResult { call_id, .. } => Some(call_id.clone()),
            _ => None,
        };
        Self {
            version: session.version,
            waiting: Waiting::of(session, run_id),
            orphans: session.notes.iter().filter_map(orphan).collect(),
            visions: session.visions.values().cloned().collect(),
        }
    }
}

impl Waiting {
    /// `None` for a run that has begun already: it is taken up.
    fn of(session: &Session, run_id: &str) -> Option<Self> {
        if session.runs.iter().any(|run| run.id == run_id) {
            return None;
        }
        let last = session.turns.last().filter(|turn| !turn.pending.is_empty())?;
        let is_theirs = |run: &&SessionRun| run.id == last.run_id || !run.resumes.is_empty();
        let newest = session.runs.iter().rfind(is_theirs);
        if let Some(run) = newest.filter(|run| run.durable && run.end.is_none()) {
            let calls = last.pending.iter().map(|call| call.call_id.clone()).collect();
            return Some(Self { run_id: run.id.clone(), calls, unfinished: true });
        }
        let calls: Vec<_> = session.deferred.iter().map(|call| call.call_id.clone()).collect();
        (!calls.is_empty()).then(|| Self { run_id: last.run_id.clone(), calls, unfinished: false })
    }
}

/// The run that an entry is of; `None` for what anybody may add.
fn run_of(entry: &SessionEntry) -> Option<&str> {
    match entry {
        SessionEntry::Turn(turn) => Some(&turn.run_id),
        SessionEntry::Result(entry) => Some(&entry.run_id),
        SessionEntry::Run(entry) => Some(&entry.run_id),
        SessionEntry::Repair(entry) => Some(&entry.run_id),
        SessionEntry::Summary(entry) => Some(&entry.turn.run_id),
        SessionEntry::Vision(entry) => Some(&entry.run_id),
        SessionEntry::Metadata(_) | SessionEntry::Unknown(_) => None,
    }
}

/// Puts the bytes of blobs in the place of references. Returns the keys of blobs that are missing.
async fn restored(
    history: &mut History,
    open: &mut [Arc<ToolResultBlock>],
    blobs: &dyn BlobStore,
) -> Result<Vec<String>, BlobError> {
    let mut missing = Vec::new();
    if history.iter().any(|turn| refers(&turn.content)) {
        let mut turns = history.turns().to_vec();
        for turn in turns.iter_mut().filter(|turn| refers(&turn.content)) {
            let mut own: SessionTurn = HistoryTurn::clone(turn).into_inner();
            missing.extend(restore_media(&mut own.content, blobs, LARGEST_BLOB).await?);
            *turn = Arc::new(HistoryTurn::new(own));
        }
        *history = History::from_turns(turns);
    }
    for result in open.iter_mut().filter(|result| output_refers(&result.output)) {
        let mut own = [SessionContentBlock::ToolResult(ToolResultBlock::clone(result))];
        missing.extend(restore_media(&mut own, blobs, LARGEST_BLOB).await?);
        if let [SessionContentBlock::ToolResult(own)] = own {
            *result = Arc::new(own);
        }
    }
    Ok(missing)
}

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinHandle;

use super::blob::{is_large, is_large_output};
use super::{BlobStore, SessionEntry, SessionError, SessionStore, offload_media};
use crate::provider::HistoryTurn;
use crate::types::{SessionContentBlock, ToolResultBlock};

/// Where large media goes.
#[derive(Clone)]
pub(crate) struct Blobs {
    pub(super) store: Arc<dyn BlobStore>,
    /// Base64 characters over which media is moved.
    threshold: usize,
}

/// Writes one session to its store: what is queued, one append at a time, each in a task of its own, so that it comes
/// to its end whatever becomes of the run that waits for it.
pub(crate) struct Keeper {
    id: Arc<str>,
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) blobs: Option<Blobs>,
    /// The turns that a session which is not stored yet begins with.
    pub(super) seeds: Vec<Arc<HistoryTurn>>,
    /// Held by the task of an append, and while a run begins.
    head: Arc<tokio::sync::Mutex<Head>>,
    /// What is to be appended next: bounded by what a turn brings.
    queue: Mutex<Batch>,
}

/// What is known of the stored session.
#[derive(Default)]
pub(super) struct Head {
    /// Its version; `None` until it was read, and after an append of which nobody knows what became.
    pub(super) version: Option<u64>,
    /// The last entry of that append, and what was to be done once it is stored.
    doubt: Option<(String, Vec<Then>)>,
}

/// Done once a batch is stored.
type Then = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Batch {
    entries: Vec<SessionEntry>,
    then: Vec<Then>,
}

/// What became of what was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Nothing was.
    Nothing,
    /// It is stored.
    Saved { entries: usize, version: u64 },
    /// Patience ran out first. The append goes on by itself.
    Pending,
}

impl Blobs {
    /// `bytes` as they are before they become base64.
    pub(crate) fn new(store: Arc<dyn BlobStore>, bytes: usize) -> Self {
        Self { store, threshold: bytes.div_ceil(3).saturating_mul(4) }
    }
}

impl Head {
    /// Does what was to be done once an append was stored of which nobody knew, when it is.
    pub(super) fn resolve(&mut self, stored: &[SessionEntry]) {
        let Some((last, then)) = self.doubt.take() else { return };
        if stored.iter().rev().any(|entry| entry.id() == last) {
            then.into_iter().for_each(|then| then());
        }
    }
}

impl Keeper {
    pub(crate) fn new(
        id: &str,
        store: Arc<dyn SessionStore>,
        blobs: Option<Blobs>,
        seeds: Vec<Arc<HistoryTurn>>,
    ) -> Self {
        Self { id: id.into(), store, blobs, seeds, head: Arc::default(), queue: Mutex::default() }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn queue(&self, entry: SessionEntry) {
        self.batch().entries.push(entry);
    }

    /// Has something done once all that is queued is stored.
    pub(super) fn then(&self, then: impl FnOnce() + Send + 'static) {
        self.batch().then.push(Box::new(then));
    }

    pub(super) fn withdraw(&self, id: &str) -> bool {
        let mut batch = self.batch();
        let alone = matches!(batch.entries.as_slice(), [only] if only.id() == id);
        if alone {
            batch.entries.clear();
        }
        alone
    }

    /// Forgets what is queued.
    pub(super) fn clear(&self) {
        *self.batch() = Batch::default();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.batch().entries.is_empty()
    }

    /// Waits for the append under way, if there is one.
    pub(super) async fn head(&self) -> OwnedMutexGuard<Head> {
        Arc::clone(&self.head).lock_owned().await
    }

    /// Appends what is queued, after what is under way. Dropping the future, or `patience` ending first, leaves that to
    /// itself.
    pub(super) async fn flush(&self, patience: impl Future<Output = ()>) -> Result<Flushed, SessionError> {
        let Some(batch) = self.take() else { return Ok(Flushed::Nothing) };
        let mut turn = Box::pin(Arc::clone(&self.head).lock_owned());
        // Takes its place now: whoever waits for the head from here on waits for this too.
        let mut task = match futures::poll!(turn.as_mut()) {
            Poll::Ready(head) => self.append(batch, std::future::ready(head)),
            Poll::Pending => self.append(batch, turn),
        };
        tokio::select! {
            biased;
            done = &mut task => done.unwrap_or_else(|_| Err(lost(&self.id))),
            () = patience => Ok(Flushed::Pending),
        }
    }

    /// Appends what is queued to a session whose head is held already, and gives it back.
    pub(super) async fn flush_under(&self, head: OwnedMutexGuard<Head>) -> Result<OwnedMutexGuard<Head>, SessionError> {
        let Some(batch) = self.take() else { return Ok(head) };
        self.append(batch, std::future::ready(head)).await.unwrap_or_else(|_| Err(lost(&self.id)))?;
        Ok(self.head().await)
    }

    fn take(&self) -> Option<Batch> {
        let batch = std::mem::take(&mut *self.batch());
        (!batch.entries.is_empty()).then_some(batch)
    }

    fn append(
        &self,
        batch: Batch,
        head: impl Future<Output = OwnedMutexGuard<Head>> + Send + 'static,
    ) -> JoinHandle<Result<Flushed, SessionError>> {
        let (id, store, blobs) = (Arc::clone(&self.id), Arc::clone(&self.store), self.blobs.clone());
        tokio::spawn(async move {
            let (Batch { entries, then }, mut head) = (batch, head.await);
            // Until the store has answered, what it holds is not known; a task that is lost leaves it at that. Then what
            // was to come after it is lost too.
            let Some(expected) = head.version.take() else { return Err(lost(&id)) };
            let last = entries.last().map(|entry| entry.id().to_owned()).unwrap_or_default();
            head.doubt = Some((last, then));
            let count = entries.len();
            let entries = match &blobs {
                Some(blobs) => offloaded(entries, blobs).await?,
                None => entries,
            };
            let version = store.append(&id, expected, entries).await?;
            head.version = Some(version);
            if let Some((_, then)) = head.doubt.take() {
                then.into_iter().for_each(|then| then());
            }
            Ok(Flushed::Saved { entries: count, version })
        })
    }

    fn batch(&self) -> MutexGuard<'_, Batch> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("id", &self.id).finish_non_exhaustive()
    }
}

fn lost(id: &str) -> SessionError {
    let message = "an append was lost, and whether it was done is not known";
    SessionError::Other { session: id.to_owned(), message: message.to_owned() }
}

/// The entries as they are stored: large media is in the blob store before they refer to it.
async fn offloaded(mut entries: Vec<SessionEntry>, blobs: &Blobs) -> Result<Vec<SessionEntry>, SessionError> {
    let Blobs { store, threshold } = blobs;
    for entry in &mut entries {
        match entry {
            SessionEntry::Turn(turn) if is_large(&turn.content, *threshold) => {
                let mut own = HistoryTurn::clone(turn).into_inner();
                offload_media(&mut own.content, &**store, *threshold).await?;
                *turn = Arc::new(HistoryTurn::new(own));
            }
            SessionEntry::Result(entry) if is_large_output(&entry.result.output, *threshold) => {
                let mut own = [SessionContentBlock::ToolResult(ToolResultBlock::clone(&entry.result))];
                offload_media(&mut own, &**store, *threshold).await?;
                if let [SessionContentBlock::ToolResult(result)] = own {
                    entry.result = Arc::new(result);
                }
            }
            _ => {}
        }
    }
    Ok(entries)
}

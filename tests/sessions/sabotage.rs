//! The conformance checks against stores that break one promise each: somebody must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zidane::session::{MemorySessionStore, SessionEntry, SessionError, SessionStore, StoredSession};
use zidane::testing::{run_check, session_store, tool_state_store};
use zidane::tool_state::{
    MemoryToolStateStore, StoreError, ToolStateCommit, ToolStateOp, ToolStateSnapshot, ToolStateStore,
};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sabotage {
    None,
    IgnoresExpectedVersion,
    AlwaysConflicts,
    StoresHalf,
    DropsUnknownKinds,
    FoldsCase,
    ReversesBatches,
    SaysOneTooMany,
    ListsAll,
    ListsUnsorted,
    DeletesNothing,
    CreatesWhenRefused,
}

struct Saboteur {
    inner: MemorySessionStore,
    how: Sabotage,
}

impl Saboteur {
    fn id(&self, id: &str) -> String {
        if self.how == Sabotage::FoldsCase { id.to_lowercase() } else { id.to_owned() }
    }
}

#[zidane::async_trait]
impl SessionStore for Saboteur {
    async fn load(&self, id: &str) -> Result<Option<StoredSession>, SessionError> {
        self.inner.load(&self.id(id)).await
    }
    async fn append(&self, id: &str, expected: u64, mut entries: Vec<SessionEntry>) -> Result<u64, SessionError> {
        let id = &self.id(id);
        let version = self.inner.version(id).await?;
        let mut expected = expected;
        match self.how {
            Sabotage::IgnoresExpectedVersion => expected = version,
            Sabotage::AlwaysConflicts if expected != version => {
                return Err(SessionError::Conflict { session: id.clone(), expected, found: version });
            }
            Sabotage::StoresHalf => entries.truncate(entries.len().div_ceil(2)),
            Sabotage::DropsUnknownKinds => entries.retain(|entry| !matches!(entry, SessionEntry::Unknown(_))),
            Sabotage::ReversesBatches => entries.reverse(),
            Sabotage::CreatesWhenRefused if version == 0 => {
                self.inner.append(id, 0, entries.clone()).await?;
            }
            _ => {}
        }
        let version = self.inner.append(id, expected, entries).await?;
        Ok(if self.how == Sabotage::SaysOneTooMany { version + 1 } else { version })
    }
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, SessionError> {
        match self.how {
            Sabotage::ListsAll => self.inner.list(after, usize::MAX).await,
            Sabotage::ListsUnsorted => {
                let mut ids = self.inner.list(after, limit).await?;
                ids.reverse();
                Ok(ids)
            }
            _ => self.inner.list(after, limit).await,
        }
    }
    async fn delete(&self, id: &str) -> Result<bool, SessionError> {
        if self.how == Sabotage::DeletesNothing {
            return Ok(self.inner.version(id).await? > 0);
        }
        self.inner.delete(&self.id(id)).await
    }
}

/// How many of the checks notice.
fn noticed(how: Sabotage) -> usize {
    macro_rules! checks {
        ($($check:ident)+) => {
            [$(catch_unwind(AssertUnwindSafe(|| {
                run_check(async {
                    let store = Saboteur { inner: MemorySessionStore::new(), how };
                    session_store::$check(&store).await;
                });
            })).is_err()),+]
        };
    }
    let noticed = checks!(
        keeps_what_is_appended keeps_what_is_unknown refuses_a_second_writer is_idempotent_by_id serializes_writers
        takes_odd_ids deletes takes_large_sessions
    );
    noticed.into_iter().filter(|noticed| *noticed).count()
}

#[test]
fn a_session_store_that_breaks_a_promise_is_found_out() {
    assert_eq!(noticed(Sabotage::None), 0);
    for how in [
        Sabotage::IgnoresExpectedVersion,
        Sabotage::AlwaysConflicts,
        Sabotage::StoresHalf,
        Sabotage::DropsUnknownKinds,
        Sabotage::FoldsCase,
        Sabotage::ReversesBatches,
        Sabotage::SaysOneTooMany,
        Sabotage::ListsAll,
        Sabotage::ListsUnsorted,
        Sabotage::DeletesNothing,
        Sabotage::CreatesWhenRefused,
    ] {
        assert!(noticed(how) > 0, "{how:?} passes");
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Spoilt {
    Nothing,
    AppliesAgain,
    SharesCommitIds,
    SharesScopes,
    DropsDeletes,
    LosesTheLastOp,
}

struct Spoiler {
    inner: MemoryToolStateStore,
    how: Spoilt,
    count: std::sync::atomic::AtomicU64,
}

#[zidane::async_trait]
impl ToolStateStore for Spoiler {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        let scope = if self.how == Spoilt::SharesScopes { "all" } else { scope };
        self.inner.load(scope).await
    }
    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        let mut commit = commit.clone();
        match self.how {
            Spoilt::Nothing => {}
            Spoilt::AppliesAgain => {
                let number = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                commit.commit_id = format!("{} {number}", commit.commit_id).into();
            }
            Spoilt::SharesCommitIds => {
                let number = self.count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                if number > 0 && *commit.commit_id == *"1" {
                    return Ok(());
                }
            }
            Spoilt::SharesScopes => commit.scope = "all".into(),
            Spoilt::DropsDeletes => commit.ops.retain(|op| matches!(op, ToolStateOp::Set { .. })),
            Spoilt::LosesTheLastOp => {
                commit.ops.pop();
            }
        }
        self.inner.commit(&commit).await
    }
}

fn spoilt(how: Spoilt) -> usize {
    macro_rules! checks {
        ($($check:ident)+) => {
            [$(catch_unwind(AssertUnwindSafe(|| {
                run_check(async {
                    let store = Spoiler { inner: MemoryToolStateStore::new(), how, count: 0.into() };
                    tool_state_store::$check(&store).await;
                });
            })).is_err()),+]
        };
    }
    let noticed = checks!(
        keeps_what_is_committed applies_a_commit_once keeps_scopes_apart takes_odd_keys survives_deep_values
        takes_writers_at_once
    );
    noticed.into_iter().filter(|noticed| *noticed).count()
}

#[test]
fn a_tool_state_store_that_breaks_a_promise_is_found_out() {
    assert_eq!(spoilt(Spoilt::Nothing), 0);
    for how in [
        Spoilt::AppliesAgain,
        Spoilt::SharesCommitIds,
        Spoilt::SharesScopes,
        Spoilt::DropsDeletes,
        Spoilt::LosesTheLastOp,
    ] {
        assert!(spoilt(how) > 0, "{how:?} passes");
    }
}

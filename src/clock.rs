//! Where the time and the ids of everything that is kept come from.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use uuid::Uuid;

use crate::types::Timestamp;

/// Source of time and of ids for whatever may be stored.
///
/// Asked at each place whose answer lands in [`SessionTurn::id`](crate::types::SessionTurn::id),
/// [`created_at`](crate::types::SessionTurn::created_at), a run or turn id, or in the payload of a hook that a host
/// may persist. What is only measured while it happens (durations, time to the first token) stays on the monotonic
/// clock and never enters a session.
///
/// A clock given to a run wins over the agent's, and that over [`SystemClock`]. On a durable runtime all three give
/// way: time and ids come from the runtime, so that a replay makes the same session byte for byte.
#[async_trait]
pub trait Clock: Send + Sync {
    /// The time now. May wait, for instance for a journal; the loop awaits it at each place. Dropping the future
    /// must leave the clock usable.
    async fn now(&self) -> Timestamp;

    /// A fresh id. Synchronous, so that a clock can hand out ids that are the same on every replay.
    fn random_uuid(&self) -> Uuid;
}

#[async_trait]
impl<C: Clock + ?Sized> Clock for Arc<C> {
    async fn now(&self) -> Timestamp {
        (**self).now().await
    }

    fn random_uuid(&self) -> Uuid {
        (**self).random_uuid()
    }
}

/// The system's time, and random (version 4) ids. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// The system's wall clock, for what is live only and never kept, e.g. how long a server asks to wait.
pub(crate) fn wall_time() -> SystemTime {
    SystemTime::now()
}

#[async_trait]
impl Clock for SystemClock {
    async fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970.
        let since = wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn random_uuid(&self) -> Uuid {
        Uuid::new_v4()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn works_behind_a_pointer() {
        async fn ask(clock: impl Clock) -> (Timestamp, Uuid) {
            (clock.now().await, clock.random_uuid())
        }
        let shared: Arc<dyn Clock> = Arc::new(SystemClock);
        let (now, id) = ask(Arc::clone(&shared)).await;
        // 2025-01-01, in milliseconds: seconds or microseconds would be far off.
        assert!((1_735_689_600_000..10_000_000_000_000).contains(&now.0), "{now:?}");
        assert_eq!(id.get_version_num(), 4);
        assert_ne!(ask(shared).await.1, id);
    }
}

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::clock::Clock;
use crate::types::Timestamp;

/// A clock that stands still until it is told otherwise, and whose ids are the same in every run of a test.
///
/// Clones are handles of the same clock. The n-th id of a clock depends on its seed and n alone.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    namespace: Uuid,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    millis: AtomicU64,
    ids: AtomicU64,
}

impl VirtualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self::with_seed(start, "")
    }

    /// A clock that shows `start` and makes ids of its own; clocks of different seeds share none.
    #[must_use]
    pub fn with_seed(start: Timestamp, seed: &str) -> Self {
        let name = format!("zidane virtual clock {seed}");
        Self {
            namespace: Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()),
            shared: Arc::new(Shared { millis: AtomicU64::new(start.0), ids: AtomicU64::new(0) }),
        }
    }

    /// Sets the time, backward too.
    pub fn set(&self, time: Timestamp) {
        self.shared.millis.store(time.0, Ordering::SeqCst);
    }

    /// Moves the time forward, by whole milliseconds, and returns the new time. Stops at the end of time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let later = |millis: u64| Some(millis.saturating_add(by));
        let before = self.shared.millis.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        Timestamp(before.unwrap_or_else(|unchanged| unchanged).saturating_add(by))
    }

    /// The time it shows.
    #[must_use]
    pub fn time(&self) -> Timestamp {
        Timestamp(self.shared.millis.load(Ordering::SeqCst))
    }
}

impl Default for VirtualClock {
    /// Shows 0.
    fn default() -> Self {
        Self::new(Timestamp::default())
    }
}

#[async_trait]
impl Clock for VirtualClock {
    async fn now(&self) -> Timestamp {
        self.time()
    }

    fn random_uuid(&self) -> Uuid {
        let count = self.shared.ids.fetch_add(1, Ordering::SeqCst);
        Uuid::new_v5(&self.namespace, &count.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stands_still_until_told() {
        let clock = VirtualClock::new(Timestamp(5));
        let handle: Arc<dyn Clock> = Arc::new(clock.clone());
        assert_eq!(handle.now().await, Timestamp(5));
        assert_eq!(clock.advance(Duration::from_millis(1_500)), Timestamp(1_505));
        assert_eq!(handle.now().await, Timestamp(1_505));
        clock.set(Timestamp(1));
        assert_eq!(handle.now().await, Timestamp(1));
        assert_eq!(clock.advance(Duration::MAX), Timestamp(u64::MAX));
        assert_eq!(clock.advance(Duration::from_secs(1)), Timestamp(u64::MAX));
        assert_eq!(clock.time(), Timestamp(u64::MAX));
    }

    #[test]
    fn ids_repeat_from_run_to_run_and_not_within_one() {
        let ids = |seed| {
            let clock = VirtualClock::with_seed(Timestamp(0), seed);
            let other_handle = clock.clone();
            [clock.random_uuid(), other_handle.random_uuid(), clock.random_uuid()]
        };
        let first = ids("a");
        assert_eq!(first, ids("a"));
        assert!(first[0] != first[1] && first[1] != first[2]);
        assert!(first.iter().all(|id| !ids("b").contains(id)));
        assert_eq!(first[0].get_version_num(), 5);
    }

    /// Snapshots in the tests of users hold these ids.
    #[test]
    fn the_first_id_is_what_it_always_was() {
        assert_eq!(VirtualClock::default().random_uuid().to_string(), "3258a3f5-aca3-53bb-a9be-be304627d227");
    }
}

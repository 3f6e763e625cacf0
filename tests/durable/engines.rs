//! What the two engines do beyond the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;
use zidane::clock::Clock;
use zidane::durable::{DurableError, DurableRun, DurableRuntime, MemoryDurable, Planned, StepKey, StepKind};
use zidane::types::Timestamp;

fn step(name: &str, value: impl Into<serde_json::Value>) -> Planned {
    let value = value.into();
    let key = StepKey { kind: StepKind::Custom, name: name.to_owned() };
    Planned::new(key, Box::new(|_| Box::pin(async move { Ok(value) })))
}

/// Goes back with each look at it.
struct Backwards(AtomicU64);

#[zidane::async_trait]
impl Clock for Backwards {
    async fn now(&self) -> Timestamp {
        Timestamp(self.0.fetch_sub(10, Ordering::Relaxed))
    }

    fn random_uuid(&self) -> Uuid {
        Uuid::nil()
    }
}

#[tokio::test]
async fn times_never_go_back_within_a_run() {
    let durable = MemoryDurable::new().clock(Backwards(1_000.into()));
    let mut latest = Timestamp(0);
    for attempt in 0..3 {
        let run = durable.attach("r", None).await.unwrap();
        for n in 0..=attempt {
            for record in run.perform(vec![step(&n.to_string(), n)]).await.unwrap() {
                assert!(record.started_at <= record.ended_at && record.ended_at >= latest, "{record:?}");
                latest = latest.max(record.ended_at);
            }
        }
    }
    assert_eq!(latest, Timestamp(1_000));
}

#[tokio::test]
async fn a_batch_with_a_record_too_large_keeps_the_others() {
    let durable = MemoryDurable::new().max_record_bytes(1_000);
    let run = durable.attach("r", None).await.unwrap();
    let large = run.perform(vec![step("a", 1), step("large", "x".repeat(2_000)), step("b", 2)]).await.unwrap_err();
    assert!(matches!(&large, DurableError::TooLarge { key, limit: 1_000, .. } if key.name == "large"), "{large}");
    let run = durable.attach("r", None).await.unwrap();
    let records = run.perform(vec![step("a", 0), step("large", 0), step("b", 0)]).await.unwrap();
    assert_eq!(records.iter().map(|record| record.replayed).collect::<Vec<_>>(), [true, false, true]);
}

#[tokio::test]
async fn runs_are_listed_until_they_end_and_forgotten_when_told() {
    let durable = MemoryDurable::new();
    let run = durable.attach("b", None).await.unwrap();
    durable.attach("a", None).await.unwrap();
    run.perform(vec![step("1", 1)]).await.unwrap();
    assert_eq!(durable.unfinished(10), ["a", "b"]);
    assert_eq!(durable.unfinished(1), ["a"]);
    run.finish().await.unwrap();
    assert_eq!(durable.unfinished(10), ["a"]);
    assert!(durable.forget("b") && !durable.forget("b"));
    let again = durable.attach("b", None).await.unwrap();
    assert!(!again.perform(vec![step("1", 1)]).await.unwrap()[0].replayed);
    assert!(matches!(run.perform(vec![step("2", 2)]).await, Err(DurableError::Fenced { .. })));
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use crate::folder::Folder;
    use zidane::durable::SqliteDurable;
    use zidane::sqlite::Database;

    async fn open(folder: &Folder) -> SqliteDurable {
        SqliteDurable::new(Database::open(folder.join("test.sqlite")).await.unwrap())
    }

    async fn recorded(folder: &Folder) {
        let run = open(folder).await.attach("r", None).await.unwrap();
        for n in 0..20 {
            run.perform(vec![step(&n.to_string(), "x".repeat(300))]).await.unwrap();
        }
    }

    async fn replay(folder: &Folder) -> Result<(), DurableError> {
        let path = folder.join("test.sqlite");
        let storage = |error: zidane::storage::StorageError| DurableError::Storage {
            run_id: "r".into(),
            message: error.to_string(),
        };
        let run: Arc<dyn DurableRun> =
            SqliteDurable::new(Database::open(path).await.map_err(storage)?).attach("r", None).await?;
        for n in 0..20 {
            run.perform(vec![step(&n.to_string(), 0)]).await?;
        }
        run.finish().await
    }

    fn change(folder: &Folder, sql: &str) {
        assert!(rusqlite::Connection::open(folder.join("test.sqlite")).unwrap().execute(sql, []).unwrap() > 0);
    }

    #[tokio::test]
    async fn runs_are_listed_and_forgotten() {
        let folder = Folder::new("durable");
        let durable = open(&folder).await;
        let run = durable.attach("b", None).await.unwrap();
        durable.attach("a", Some("b")).await.unwrap();
        assert_eq!(open(&folder).await.unfinished(10).await.unwrap(), ["b", "a"]);
        run.perform(vec![step("1", 1)]).await.unwrap();
        run.finish().await.unwrap();
        assert_eq!(durable.unfinished(10).await.unwrap(), ["a"]);
        assert!(durable.forget("b").await.unwrap() && !durable.forget("b").await.unwrap());
        let again = durable.attach("b", None).await.unwrap();
        assert!(!again.perform(vec![step("1", 1)]).await.unwrap()[0].replayed);
        assert!(matches!(run.perform(vec![step("2", 2)]).await, Err(DurableError::Fenced { .. })));
    }

    #[tokio::test]
    async fn what_a_newer_version_wrote_is_refused_by_type() {
        let folder = Folder::new("durable");
        recorded(&folder).await;
        change(&folder, "UPDATE zidane_durable_steps SET format = 2 WHERE place = 7");
        let error = replay(&folder).await.unwrap_err();
        assert!(matches!(&error, DurableError::Version { message, .. } if message.contains("step 7")), "{error}");
        change(&folder, "UPDATE zidane_durable_steps SET format = 1");
        change(
            &folder,
            "UPDATE zidane_durable_steps SET record = replace(record, '\"v\":1', '\"v\":9') WHERE place = 3",
        );
        let error = replay(&folder).await.unwrap_err();
        assert!(matches!(&error, DurableError::Version { message, .. } if message.contains("step 3")), "{error}");
        change(&folder, "UPDATE zidane_parts SET format = 7 WHERE name = 'durable'");
        assert!(matches!(replay(&folder).await, Err(DurableError::Version { .. })));
    }

    #[tokio::test]
    async fn a_damaged_file_is_an_error_and_never_a_panic() {
        let folder = Folder::new("durable");
        recorded(&folder).await;
        change(&folder, "UPDATE zidane_durable_steps SET record = 'secret' WHERE place = 4");
        let error = replay(&folder).await.unwrap_err().to_string();
        assert!(error.contains("step 4") && !error.contains("secret"), "{error}");
        change(&folder, "DELETE FROM zidane_durable_steps WHERE place = 4");
        replay(&folder).await.unwrap();
        let path = folder.join("test.sqlite");
        rusqlite::Connection::open(&path)
            .unwrap()
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
        let good = std::fs::read(&path).unwrap();
        let (mut fine, mut refused) = (0, 0);
        for n in 0..60usize {
            let mut bad = good.clone();
            if n % 3 == 0 {
                bad.truncate(good.len() * n / 60);
            } else {
                bad[n * 7_919 % good.len()] ^= 1 << (n % 8);
            }
            let spoilt = Folder::new("spoilt");
            std::fs::write(spoilt.join("test.sqlite"), bad).unwrap();
            match replay(&spoilt).await {
                Ok(()) => fine += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(fine > 0 && refused > 0, "{fine} {refused}");
    }
}

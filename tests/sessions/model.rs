//! The stores against each other: the same appends, sensible or not, have the same answers.

use std::collections::BTreeMap;

use zidane::session::{JsonlSessionStore, MemorySessionStore, SessionEntry, SessionError, SessionStore};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use crate::folder::Folder;

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn entry(dice: &mut Dice) -> SessionEntry {
    // Few ids and fewer texts, so that entries meet again, the same or not.
    let (id, text) = (dice.roll(40), if dice.roll(10) == 0 { "other" } else { "text" });
    SessionTurn::new(id.to_string(), Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

fn answer<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> String {
    match answer {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    }
}

async fn tell(stores: &[Box<dyn SessionStore>], seed: u64) -> BTreeMap<&'static str, u32> {
    let mut dice = Dice(seed);
    let mut told = BTreeMap::new();
    for step in 0..300 {
        let id = ["a", "b", "A"][dice.roll(3) as usize];
        let version = stores[0].version(id).await.unwrap();
        let expected = match dice.roll(4) {
            0 => version.saturating_sub(dice.roll(4)),
            1 => version + dice.roll(2),
            _ => version,
        };
        let entries: Vec<_> = (0..dice.roll(4)).map(|_| entry(&mut dice)).collect();
        let what = dice.roll(40);
        let mut answers = Vec::new();
        for store in stores {
            answers.push(match what {
                0 => answer(store.delete(id).await),
                1 => answer(store.list(Some("A"), 2).await),
                2..12 => answer(store.load(id).await),
                _ => answer(store.append(id, expected, entries.clone()).await),
            });
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "seed {seed}, step {step}: {answers:#?}");
        let kind = if answers[0].contains("is at version") {
            "conflict"
        } else if answers[0].contains("another content") {
            "entry conflict"
        } else {
            "done"
        };
        *told.entry(kind).or_default() += 1;
    }
    told
}

#[tokio::test]
async fn all_stores_answer_alike() {
    for seed in 0..4 {
        let folder = Folder::new("model");
        #[allow(unused_mut)]
        let mut stores: Vec<Box<dyn SessionStore>> =
            vec![Box::new(MemorySessionStore::new()), Box::new(JsonlSessionStore::new(&*folder))];
        #[cfg(feature = "sqlite")]
        {
            let database = zidane::sqlite::Database::in_memory().await.unwrap();
            stores.push(Box::new(zidane::session::SqliteSessionStore::new(database)));
        }
        let told = tell(&stores, seed).await;
        assert!(["done", "conflict", "entry conflict"].iter().all(|kind| told[kind] > 10), "{told:?}");
    }
}

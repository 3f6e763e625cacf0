//! Session files that were cut, changed, or written by somebody else.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use zidane::session::{JsonlSessionStore, SessionEntry, SessionError, SessionStore, StoredSession, fold};
use zidane::storage::StorageError;
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use crate::folder::Folder;

fn turn(id: &str, text: &str) -> SessionEntry {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)]).into()
}

fn storage<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> StorageError {
    match answer {
        Err(SessionError::Storage(error)) => error,
        other => panic!("the store was expected to fail: {other:?}"),
    }
}

/// A session of one append of one entry, one of three, one of one.
async fn small(store: &JsonlSessionStore) -> Vec<SessionEntry> {
    let entries = vec![turn("1", "one"), turn("2", "two"), turn("3", "drei: ä"), turn("4", "four"), turn("5", "five")];
    store.append("s", 0, entries[..1].to_vec()).await.unwrap();
    store.append("s", 1, entries[1..4].to_vec()).await.unwrap();
    store.append("s", 4, entries[4..].to_vec()).await.unwrap();
    entries
}

#[tokio::test]
async fn the_file_is_as_documented() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    small(&store).await;
    assert_eq!(store.path("s"), folder.join("s.jsonl"));
    let text = fs::read_to_string(store.path("s")).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    assert_eq!((&lines[0]["v"], &lines[0]["session"]), (&json!(1), &json!("s")));
    assert_eq!((&lines[3]["v"], &lines[3]["n"], &lines[3]["of"]), (&json!(1), &json!(3), &json!(4)));
    assert_eq!((&lines[3]["entry"]["kind"], &lines[3]["entry"]["id"]), (&json!("turn"), &json!("3")));
}

#[tokio::test]
async fn a_file_cut_anywhere_loads_as_a_beginning_and_can_be_gone_on_with() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let entries = small(&store).await;
    let good = fs::read(store.path("s")).unwrap();
    let mut versions = Vec::new();
    for cut in 0..good.len() {
        fs::write(store.path("s"), &good[..cut]).unwrap();
        // A store that knows the longer file, and one that does not.
        let fresh = JsonlSessionStore::new(&*folder);
        for store in [&fresh, &store].into_iter().take(if cut % 5 == 0 { 2 } else { 1 }) {
            match store.load("s").await {
                Ok(Some(StoredSession { version, entries: found, .. })) => {
                    // Whole appends only.
                    assert!([1, 4].contains(&version), "{cut}: {version}");
                    assert_eq!(found, entries[..version as usize], "{cut}");
                    versions.push(version);
                    assert_eq!(store.version("s").await.unwrap(), version);
                    assert_eq!(store.append("s", version, vec![turn("new", "new")]).await.unwrap(), version + 1);
                    let reread = store.load("s").await.unwrap().unwrap();
                    assert_eq!(reread.entries.last().unwrap(), &turn("new", "new"));
                    assert_eq!(reread.entries[..version as usize], entries[..version as usize]);
                    fs::write(store.path("s"), &good[..cut]).unwrap();
                }
                Ok(None) => panic!("a session that was cut at {cut} is not a missing one"),
                Err(SessionError::Storage(StorageError::Corrupt { .. })) => {
                    assert!(versions.is_empty(), "{cut}: only before the first append has ended");
                    storage(store.append("s", 0, vec![turn("new", "new")]).await);
                    assert_eq!(fs::read(store.path("s")).unwrap(), &good[..cut], "a refused append changes nothing");
                }
                Err(error) => panic!("{cut}: {error}"),
            }
        }
    }
    assert!(versions.contains(&1) && versions.contains(&4));
}

#[tokio::test]
async fn a_flipped_bit_is_an_error_or_a_beginning_and_never_something_else() {
    let folder = Folder::new("jsonl");
    let writer = JsonlSessionStore::new(&*folder);
    let entries = small(&writer).await;
    let good = fs::read(writer.path("s")).unwrap();
    let (mut refused, mut shortened) = (0, 0);
    for place in 0..good.len() {
        {
            let bit = place % 8;
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            fs::write(writer.path("s"), &bad).unwrap();
            let store = JsonlSessionStore::new(&*folder);
            match store.load("s").await {
                Ok(found) => {
                    let found = found.expect("it is not missing");
                    assert_eq!(found.entries, entries[..found.version as usize], "byte {place}, bit {bit}");
                    shortened += 1;
                }
                Err(SessionError::Storage(StorageError::Corrupt { .. } | StorageError::Newer { .. })) => {
                    refused += 1;
                    storage(store.append("s", 5, vec![turn("6", "six")]).await);
                    assert_eq!(fs::read(writer.path("s")).unwrap(), bad);
                    store.list(None, 10).await.unwrap();
                }
                Err(error) => panic!("byte {place}, bit {bit}: {error}"),
            }
        }
    }
    assert_eq!((refused, shortened), (good.len(), 0), "each one is noticed");
}

#[tokio::test]
async fn torn_tails_are_cut_off_before_the_next_append() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let entries = small(&store).await;
    let good = fs::read(store.path("s")).unwrap();
    let zeros_within = {
        let mut tail = b"{\"v\":1,\"n\":6,".to_vec();
        tail.extend([0; 5000]);
        tail.extend(b"\"}\n");
        tail
    };
    for tail in
        [b"{".to_vec(), b"{\"v\":1,\"n\":6".to_vec(), vec![0; 10_000], zeros_within, "ä".as_bytes()[..1].to_vec()]
    {
        fs::write(store.path("s"), [good.as_slice(), &tail].concat()).unwrap();
        for store in [&store, &JsonlSessionStore::new(&*folder)] {
            let found = store.load("s").await.unwrap().unwrap();
            assert_eq!(found.entries, entries);
        }
        assert_eq!(store.append("s", 5, vec![turn("6", "six")]).await.unwrap(), 6);
        assert_eq!(JsonlSessionStore::new(&*folder).load("s").await.unwrap().unwrap().version, 6);
    }
    // Zeros in the middle are no torn tail.
    let mut bad = good.clone();
    let middle = good.len() / 2;
    bad[middle..middle + 20].fill(0);
    fs::write(store.path("s"), &bad).unwrap();
    assert!(matches!(storage(store.load("s").await), StorageError::Corrupt { .. }));
}

#[tokio::test]
async fn lines_that_are_moved_lost_or_from_elsewhere_are_noticed() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    small(&store).await;
    let good = fs::read_to_string(store.path("s")).unwrap();
    let lines: Vec<_> = good.split_inclusive('\n').collect();
    store.append("other", 0, vec![turn("1", "one"), turn("x", "two")]).await.unwrap();
    let other = fs::read_to_string(store.path("other")).unwrap();
    let strange = other.split_inclusive('\n').nth(2).unwrap();
    for bad in [
        [lines[0], lines[1], lines[3], lines[2], lines[4], lines[5]].concat(),
        [lines[0], lines[2], lines[3], lines[4], lines[5]].concat(),
        [lines[0], lines[1], lines[1], lines[2], lines[3], lines[4]].concat(),
        [lines[0], lines[1], strange].concat(),
        [lines[0], lines[1], "\n", lines[2], lines[3], lines[4]].concat(),
        other.clone(),
    ] {
        fs::write(store.path("s"), &bad).unwrap();
        let error = storage(store.load("s").await);
        assert!(matches!(&error, StorageError::Corrupt { place, .. } if place.contains("s.jsonl")), "{error}");
        storage(JsonlSessionStore::new(&*folder).append("s", 1, vec![turn("new", "new")]).await);
        assert_eq!(fs::read_to_string(store.path("s")).unwrap(), bad);
    }
}

#[tokio::test]
async fn a_newer_format_is_refused_by_type_wherever_it_stands() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    small(&store).await;
    let good = fs::read_to_string(store.path("s")).unwrap();
    for line in 0..6 {
        let newer: String = good
            .split_inclusive('\n')
            .enumerate()
            .map(|(place, text)| if place == line { text.replace("\"v\":1", "\"v\":999") } else { text.to_owned() })
            .collect();
        fs::write(store.path("s"), &newer).unwrap();
        let error = storage(store.load("s").await);
        assert!(matches!(error, StorageError::Newer { found: 999, reads: 1, .. }), "{error}");
        let error = storage(store.append("s", 5, vec![turn("6", "six")]).await);
        assert!(matches!(error, StorageError::Newer { .. }), "{error}");
        assert_eq!(store.list(None, 10).await.unwrap(), ["s"]);
        assert_eq!(fs::read_to_string(store.path("s")).unwrap(), newer);
    }
}

#[tokio::test]
async fn a_line_without_end_is_refused_before_it_is_in_memory() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder).max_entry_bytes(1_000_000);
    small(&store).await;
    let mut file = fs::OpenOptions::new().append(true).open(store.path("s")).unwrap();
    file.write_all(b"{\"v\":1,").unwrap();
    // Takes no room on the disk.
    file.set_len(1 << 30).unwrap();
    let error = storage(store.load("s").await);
    assert!(matches!(error, StorageError::TooLarge { bytes: 1_000_257, limit: 1_000_256, .. }), "{error}");
    storage(store.append("s", 5, vec![turn("6", "six")]).await);
    assert_eq!(fs::metadata(store.path("s")).unwrap().len(), 1 << 30);

    let mut header = fs::File::create(store.path("t")).unwrap();
    header.write_all(b"{").unwrap();
    header.set_len(1 << 30).unwrap();
    assert!(matches!(storage(store.load("t").await), StorageError::TooLarge { bytes, .. } if bytes < 100_000));
    assert_eq!(store.list(None, 10).await.unwrap(), ["s"]);
}

#[tokio::test]
async fn sizes_are_bounded_when_writing_too() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder).max_entry_bytes(1_000).max_session_bytes(3_000);
    let text = "x".repeat(800);
    let error = storage(store.append("s", 0, vec![turn("1", &"x".repeat(1_000))]).await);
    assert!(matches!(&error, StorageError::TooLarge { limit: 1_000, place, .. } if place.contains("`1`")), "{error}");
    for n in 0..2 {
        store.append("s", n, vec![turn(&n.to_string(), &text)]).await.unwrap();
    }
    let error = storage(store.append("s", 2, vec![turn("2", &text)]).await);
    assert!(matches!(error, StorageError::TooLarge { limit: 3_000, .. }), "{error}");
    assert_eq!(store.load("s").await.unwrap().unwrap().version, 2);
    let error = storage(store.append(&"i".repeat(9_000), 0, vec![turn("1", "x")]).await);
    assert!(matches!(error, StorageError::TooLarge { .. }), "{error}");
}

#[tokio::test]
async fn json_too_deep_to_be_read_again_is_refused() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let entry = |depth| {
        let value = (0..depth).fold(json!(1), |value, _| json!([value]));
        SessionEntry::metadata(format!("d{depth}"), [("deep".to_owned(), value)].into_iter().collect())
    };
    let mut version = 0;
    for depth in [50, 118, 119, 125, 126, 127, 500] {
        match store.append("s", version, vec![entry(depth)]).await {
            Ok(now) => version = now,
            Err(error) => assert!(matches!(error, SessionError::Storage(StorageError::TooDeep { .. })), "{error}"),
        }
        assert_eq!(store.load("s").await.unwrap().unwrap().version, version, "{depth}");
    }
    assert!(version >= 2);
}

#[tokio::test]
async fn two_stores_on_one_folder_see_each_others_appends() {
    let folder = Folder::new("jsonl");
    let (one, two) = (JsonlSessionStore::new(&*folder), JsonlSessionStore::new(&*folder));
    for n in 0..10 {
        let store = if n % 2 == 0 { &one } else { &two };
        assert_eq!(store.append("s", n, vec![turn(&n.to_string(), "x")]).await.unwrap(), n + 1);
    }
    assert_eq!(one.version("s").await.unwrap(), 10);
    let other = one.append("s", 10, vec![turn("9", "not what the other wrote")]).await;
    assert!(matches!(other, Err(SessionError::EntryConflict { .. })), "{other:?}");
    // Removed and made anew, with as many bytes.
    assert!(two.delete("s").await.unwrap());
    for n in 0..10 {
        two.append("s", n, vec![turn(&n.to_string(), "y")]).await.unwrap();
    }
    let other = one.append("s", 10, vec![turn("3", "x")]).await;
    assert!(matches!(other, Err(SessionError::EntryConflict { .. })), "{other:?}");
    assert_eq!(one.append("s", 10, vec![turn("3", "y"), turn("10", "z")]).await.unwrap(), 11);
}

#[tokio::test]
async fn more_sessions_than_are_remembered_work_all_the_same() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    for round in 0..2 {
        for n in 0..80 {
            let entry = turn(&round.to_string(), "x");
            assert_eq!(store.append(&n.to_string(), round, vec![entry]).await.unwrap(), round + 1);
        }
    }
    assert_eq!(store.list(None, 1000).await.unwrap().len(), 80);
}

#[tokio::test]
async fn a_writer_that_holds_on_is_not_waited_for_without_end() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder).lock_timeout(Duration::from_millis(30));
    store.append("s", 0, vec![turn("1", "one")]).await.unwrap();
    let lock = fs::read_dir(&*folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(".lock"))
        .unwrap();
    let held = fs::File::open(lock).unwrap();
    held.lock().unwrap();
    assert!(matches!(storage(store.append("s", 1, vec![turn("2", "two")]).await), StorageError::Busy { .. }));
    assert!(matches!(storage(store.delete("s").await), StorageError::Busy { .. }));
    assert_eq!(store.load("s").await.unwrap().unwrap().version, 1, "reading waits for nobody");
    drop(held);
    assert_eq!(store.append("s", 1, vec![turn("2", "two")]).await.unwrap(), 2);
}

#[tokio::test]
async fn what_is_left_of_a_damaged_session_can_be_shown_but_not_gone_on_with() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let entries = small(&store).await;
    let good = fs::read_to_string(store.path("s")).unwrap();
    let bad: String =
        good.split_inclusive('\n').enumerate().map(|(place, line)| if place == 2 { "{oops\n" } else { line }).collect();
    fs::write(store.path("s"), &bad).unwrap();
    let found = store.salvage("s").await.unwrap().unwrap();
    assert_eq!(found.entries, [&entries[..1], &entries[2..]].concat());
    assert!(matches!(found.damage.as_slice(), [StorageError::Corrupt { place, .. }] if place.ends_with("line 3")));
    let error = storage(store.load("s").await);
    assert!(error.to_string().contains("line 3"), "{error}");
    storage(store.append("s", 5, vec![turn("6", "six")]).await);
    assert_eq!(fs::read_to_string(store.path("s")).unwrap(), bad);
    assert!(store.salvage("nobody").await.unwrap().is_none());
}

#[tokio::test]
async fn an_append_whose_future_is_dropped_is_done_or_not_done() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let mut version = 0;
    for n in 0..50_u64 {
        let batch = vec![turn(&format!("{n}a"), "a"), turn(&format!("{n}b"), "b")];
        {
            let mut append = Box::pin(store.append("s", version, batch.clone()));
            // Begun, and on a busy machine done.
            let _ = futures::poll!(append.as_mut());
        }
        // The same again: stored once in any case.
        version = store.append("s", version, batch).await.unwrap();
        assert_eq!(version, (n + 1) * 2);
    }
    let found = store.load("s").await.unwrap().unwrap();
    assert_eq!(found.entries.len(), 100);
    assert!(fold("s", found).notes.is_empty());
}

#[test]
fn without_a_runtime_the_store_says_so() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    let error = storage(futures::executor::block_on(store.load("s")));
    assert!(matches!(error, StorageError::Closed { .. }), "{error}");
}

#[tokio::test]
async fn a_copy_of_a_file_is_not_another_session() {
    let folder = Folder::new("jsonl");
    let store = JsonlSessionStore::new(&*folder);
    small(&store).await;
    fs::copy(store.path("s"), store.path("copy")).unwrap();
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    fs::create_dir(folder.join("folder.jsonl")).unwrap();
    assert_eq!(store.list(None, 10).await.unwrap(), ["s"]);
    let error = storage(store.load("copy").await);
    assert!(error.to_string().contains("another session"), "{error}");
}

#[tokio::test]
async fn whatever_is_done_to_a_file_it_loads_as_a_beginning_or_not_at_all() {
    let folder = Folder::new("jsonl");
    let writer = JsonlSessionStore::new(&*folder);
    let entries = small(&writer).await;
    let good = fs::read(writer.path("s")).unwrap();
    let mut state = 7_u64;
    let mut roll = |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % sides
    };
    let (mut refused, mut loaded) = (0, 0);
    for _ in 0..600 {
        let mut bad = good.clone();
        for _ in 0..=roll(2) {
            let at = roll(bad.len());
            let until = (at + roll(200)).min(bad.len());
            match roll(4) {
                0 => drop(bad.drain(at..until)),
                1 => {
                    let copy = bad[at..until].to_vec();
                    let to = roll(bad.len());
                    bad.splice(to..to, copy);
                }
                2 => bad.splice(at..at, (0..until - at).map(|_| 0)).for_each(drop),
                _ => {
                    let noise: Vec<u8> = (0..until - at).map(|_| u8::try_from(roll(256)).unwrap()).collect();
                    bad.splice(at..until, noise);
                }
            }
            bad.push(b'\n');
        }
        fs::write(writer.path("s"), &bad).unwrap();
        let store = JsonlSessionStore::new(&*folder);
        match store.load("s").await {
            Ok(found) => {
                let found = found.unwrap();
                assert_eq!(found.entries, entries[..found.entries.len()], "{:?}", String::from_utf8_lossy(&bad));
                loaded += 1;
            }
            Err(SessionError::Storage(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        store.salvage("s").await.unwrap();
    }
    assert!(refused > 400, "{refused} refused, {loaded} loaded");
}

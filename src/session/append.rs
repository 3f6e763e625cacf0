use std::collections::HashMap;

use super::{SessionEntry, SessionError};
use crate::storage::{StorageError, check_depth};

/// Leaves out entries that a batch has twice.
///
/// # Errors
/// `EntryConflict` when two of them share an id and differ.
pub(super) fn distinct(session: &str, entries: Vec<SessionEntry>) -> Result<Vec<SessionEntry>, SessionError> {
    let mut places: HashMap<String, usize> = HashMap::with_capacity(entries.len());
    let mut kept: Vec<SessionEntry> = Vec::with_capacity(entries.len());
    for entry in entries {
        match places.get(entry.id()).and_then(|place| kept.get(*place)) {
            None => {
                places.insert(entry.id().to_owned(), kept.len());
                kept.push(entry);
            }
            Some(first) if first.same_content(&entry) => {}
            Some(_) => return Err(entry_conflict(session, &entry)),
        }
    }
    Ok(kept)
}

/// An entry as it is stored.
///
/// # Errors
/// `TooLarge` and `TooDeep` for one that could not be read again.
pub(super) fn encode(session: &str, entry: &SessionEntry, limit: u64) -> Result<String, StorageError> {
    let place = || format!("session `{session}`, entry `{}`", entry.id());
    let text = serde_json::to_string(entry).map_err(|error| StorageError::corrupt(place(), error))?;
    let bytes = text.len() as u64;
    if bytes > limit {
        return Err(StorageError::TooLarge { place: place(), bytes, limit });
    }
    check_depth(&text).map_err(|limit| StorageError::TooDeep { place: place(), limit })?;
    Ok(text)
}

pub(super) fn entry_conflict(session: &str, entry: &SessionEntry) -> SessionError {
    SessionError::EntryConflict { session: session.to_owned(), entry: entry.id().to_owned() }
}

/// Whether a batch made on `expected` may be appended to a session at `found`, and whether there is anything to store.
///
/// `stored` gives, for each entry of the batch that is stored already, the version that it made.
///
/// # Errors
/// `Conflict` when entries that are not of this batch were stored since.
pub(super) fn admit(session: &str, expected: u64, found: u64, stored: &[Option<u64>]) -> Result<bool, SessionError> {
    if stored.iter().all(Option::is_some) {
        return Ok(false);
    }
    let ours = stored.iter().flatten().filter(|version| **version > expected).count() as u64;
    if found.checked_sub(expected) == Some(ours) {
        Ok(true)
    } else {
        Err(SessionError::Conflict { session: session.to_owned(), expected, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_goes_on_where_only_itself_was_stored_since() {
        for (expected, found, stored, answer) in [
            (0, 0, vec![None], Some(true)),
            (5, 5, vec![None, None], Some(true)),
            (5, 6, vec![Some(6), None], Some(true)),
            (5, 7, vec![Some(6), None], None),
            (5, 6, vec![None], None),
            (6, 5, vec![None], None),
            (u64::MAX, 0, vec![None], None),
            // Old entries repeated do not excuse a stranger's.
            (5, 6, vec![Some(2), None], None),
            (5, 5, vec![Some(2), None], Some(true)),
            // Nothing to store is never a conflict.
            (0, 9, vec![Some(1), Some(2)], Some(false)),
            (3, 9, vec![], Some(false)),
        ] {
            assert_eq!(admit("s", expected, found, &stored).ok(), answer, "{expected} {found} {stored:?}");
        }
    }
}

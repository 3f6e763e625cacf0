use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::session::{ENTRY_FORMAT, SessionEntry};
use crate::storage::StorageError;

/// How much a line is longer than its entry, at most. A header also holds the session's id.
pub(super) const ENVELOPE: u64 = 256;
/// The longest id of a session, in bytes.
pub(super) const MAX_ID: usize = 8 * 1024;

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Header<'a> {
    v: u32,
    #[serde(borrow)]
    sum: Cow<'a, str>,
    #[serde(borrow)]
    session: Cow<'a, str>,
}

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
struct Line<'a> {
    v: u32,
    /// The version of the session with this entry.
    n: u64,
    /// The version at the end of the append it belongs to.
    of: u64,
    #[serde(borrow)]
    sum: Cow<'a, str>,
    #[serde(borrow)]
    entry: &'a RawValue,
}

#[derive(Deserialize)]
struct Format {
    v: u32,
}

/// A place in a file up to which all is well: what the next line goes on from.
///
/// Each line's sum is made of its own content and the sum before it, so that a line that was changed, lost, moved or
/// written by somebody else is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) version: u64,
    pub(super) sum: Uuid,
}

/// A line of the file, checked against the one before.
pub(super) struct Checked<'a> {
    /// The chain with this line.
    pub(super) chain: Chain,
    /// The version at the end of its append.
    pub(super) of: u64,
    /// The entry's JSON.
    pub(super) entry: &'a str,
}

fn header_sum(session: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("session/{ENTRY_FORMAT}/{session}").as_bytes())
}

/// Refuses what a newer version wrote, before anything else is made of it.
fn check_format(place: &str, text: &str) -> Result<(), StorageError> {
    let Format { v } = serde_json::from_str(text).map_err(|error| StorageError::corrupt(place, error))?;
    if v == 0 {
        return Err(StorageError::corrupt(place, "there is no format 0"));
    }
    if v > ENTRY_FORMAT {
        return Err(StorageError::Newer { place: place.to_owned(), found: v, reads: ENTRY_FORMAT });
    }
    Ok(())
}

fn text<'a>(place: &str, bytes: &'a [u8]) -> Result<&'a str, StorageError> {
    std::str::from_utf8(bytes).map_err(|error| StorageError::corrupt(place, error))
}

impl Chain {
    /// The beginning of a session's file.
    pub(super) fn start(session: &str) -> Self {
        Self { version: 0, sum: header_sum(session) }
    }

    /// The chain with one more entry.
    fn next(&self, of: u64, entry: &str) -> Self {
        let version = self.version.saturating_add(1);
        let mut content = format!("{version}/{of}/");
        content.push_str(entry);
        Self { version, sum: Uuid::new_v5(&self.sum, content.as_bytes()) }
    }

    /// Writes an entry's line, and goes on from it.
    pub(super) fn write(&mut self, of: u64, entry: &str, out: &mut Vec<u8>) {
        *self = self.next(of, entry);
        out.extend_from_slice(self.beginning(of).as_bytes());
        out.extend_from_slice(b",\"entry\":");
        out.extend_from_slice(entry.as_bytes());
        out.extend_from_slice(b"}\n");
    }

    /// What the line that led here begins with.
    pub(super) fn beginning(&self, of: u64) -> String {
        format!("{{\"v\":{ENTRY_FORMAT},\"n\":{},\"of\":{of},\"sum\":\"{}\"", self.version, self.sum.simple())
    }

    /// Reads the line after this place (without its line break).
    pub(super) fn read<'a>(&self, place: &str, line: &'a [u8]) -> Result<Checked<'a>, StorageError> {
        let line = text(place, line)?;
        check_format(place, line)?;
        let Line { n, of, sum, entry, .. } =
            serde_json::from_str(line).map_err(|error| StorageError::corrupt(place, error))?;
        let chain = self.next(of, entry.get());
        if n != chain.version || of < n || *sum != *chain.sum.simple().to_string() {
            return Err(StorageError::corrupt(place, "the line is damaged, or does not follow the one before"));
        }
        Ok(Checked { chain, of, entry: entry.get() })
    }
}

/// Writes the first line.
pub(super) fn write_header(session: &str, out: &mut Vec<u8>) -> Result<(), StorageError> {
    let header =
        Header { v: ENTRY_FORMAT, sum: header_sum(session).simple().to_string().into(), session: session.into() };
    serde_json::to_writer(&mut *out, &header).map_err(|error| StorageError::corrupt("session header", error))?;
    out.push(b'\n');
    Ok(())
}

/// Reads the first line (without its line break): the session's id.
pub(super) fn read_header(place: &str, line: &[u8]) -> Result<String, StorageError> {
    let line = text(place, line)?;
    check_format(place, line)?;
    let Header { sum, session, .. } =
        serde_json::from_str(line).map_err(|error| StorageError::corrupt(place, error))?;
    if *sum != *header_sum(&session).simple().to_string() {
        return Err(StorageError::corrupt(place, "the header is damaged"));
    }
    Ok(session.into_owned())
}

/// The id in a first line that may be of any format or damaged.
pub(super) fn guess_session(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Guess {
        session: String,
    }
    serde_json::from_slice::<Guess>(line).ok().map(|guess| guess.session)
}

/// Reads an entry's JSON.
pub(super) fn read_entry(place: &str, json: &str) -> Result<SessionEntry, StorageError> {
    serde_json::from_str(json).map_err(|error| StorageError::corrupt(place, error))
}

/// Reads an entry's id alone.
pub(super) fn read_id(place: &str, json: &str) -> Result<String, StorageError> {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    serde_json::from_str::<Id>(json).map(|id| id.id).map_err(|error| StorageError::corrupt(place, error))
}

/// The entry's JSON in a line whose place in the chain does not matter.
pub(super) fn entry_json<'a>(place: &str, line: &'a [u8]) -> Result<&'a str, StorageError> {
    let line: Line<'a> =
        serde_json::from_str(text(place, line)?).map_err(|error| StorageError::corrupt(place, error))?;
    Ok(line.entry.get())
}

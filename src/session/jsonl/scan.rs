use std::io::{BufRead, Read as _};

use super::line::{Chain, Checked, ENVELOPE, MAX_ID, read_header};
use crate::storage::StorageError;

/// What a file may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The largest entry, in bytes of JSON.
    pub(super) entry: u64,
    /// The largest file, in bytes.
    pub(super) file: u64,
}

/// A place in a file at which an append has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// Bytes up to here.
    pub(super) offset: u64,
    pub(super) chain: Chain,
    /// Where the last line begins, and what version its append made.
    pub(super) last: u64,
    pub(super) of: u64,
}

/// One line and its place.
pub(super) struct Found<'a> {
    pub(super) line: Checked<'a>,
    /// Where it begins, and how long it is with its line break.
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Reads a file, or the rest of it after a mark, and gives what is good to `each`: the header's session first, then line
/// by line. Lines of an append that did not come to its end are given too; the mark that is returned is before them.
///
/// Memory is bounded by the longest line allowed. Bytes after the last whole append are not looked at as damage when a
/// torn write explains them: they were never acknowledged.
pub(super) fn scan(
    place: &str,
    session: &str,
    reader: &mut impl BufRead,
    from: Option<Mark>,
    sizes: Sizes,
    mut each: impl FnMut(Found<'_>) -> Result<(), StorageError>,
) -> Result<Mark, StorageError> {
    let mut buffer = Vec::new();
    let mut number: u64 = 1;
    let mut mark = match from {
        Some(mark) => {
            number = mark.chain.version.saturating_add(1);
            mark
        }
        None => {
            let limit = ENVELOPE.saturating_add(MAX_ID as u64 * 6);
            let Some(line) = next_line(place, 1, reader, &mut buffer, limit)? else {
                return Err(StorageError::corrupt(place, "the file is empty"));
            };
            let Some(line) = line.strip_suffix(b"\n") else {
                return Err(StorageError::corrupt(place, "the file ends within its header"));
            };
            let found = read_header(&at(place, 1), line)?;
            if found != session {
                return Err(StorageError::corrupt(place, "the file is of another session"));
            }
            let offset = (line.len() as u64).saturating_add(1);
            Mark { offset, chain: Chain::start(session), last: 0, of: 0 }
        }
    };
    let (mut chain, mut offset) = (mark.chain, mark.offset);
    // The version at which the append under way ends.
    let mut open = None;
    loop {
        number = number.saturating_add(1);
        let limit = sizes.entry.saturating_add(ENVELOPE);
        let Some(bytes) = next_line(place, number, reader, &mut buffer, limit)? else { break };
        let length = bytes.len() as u64;
        let here = at(place, number);
        let Some(text) = bytes.strip_suffix(b"\n") else {
            // A line that lost nothing but its line break was acknowledged once.
            if bytes.split_last().is_some_and(|(_, rest)| chain.read(&here, rest).is_ok()) {
                return Err(StorageError::corrupt(here, "the line break is damaged"));
            }
            break;
        };
        let line = match chain.read(&here, text) {
            // Space that was allotted and never written reads as zeros, which JSON does not hold.
            Err(StorageError::Corrupt { .. }) if text.contains(&0) && at_end(place, reader)? => break,
            checked => checked?,
        };
        if *open.get_or_insert(line.of) != line.of {
            return Err(StorageError::corrupt(here, "an append begins before the one before it ends"));
        }
        let last = offset;
        let of = line.of;
        chain = line.chain;
        offset = offset.saturating_add(length);
        if offset > sizes.file {
            return Err(StorageError::TooLarge { place: place.to_owned(), bytes: offset, limit: sizes.file });
        }
        each(Found { line, offset: last, length })?;
        if of == chain.version {
            mark = Mark { offset, chain, last, of };
            open = None;
        }
    }
    Ok(mark)
}

/// A line of a file, as errors name it.
pub(super) fn at(place: &str, number: u64) -> String {
    format!("{place}, line {number}")
}

/// The next line with its line break, which the last one may lack; `None` at the end.
pub(super) fn next_line<'a>(
    place: &str,
    number: u64,
    reader: &mut impl BufRead,
    buffer: &'a mut Vec<u8>,
    limit: u64,
) -> Result<Option<&'a [u8]>, StorageError> {
    buffer.clear();
    let mut bounded = reader.take(limit.saturating_add(1));
    bounded.read_until(b'\n', buffer).map_err(|error| StorageError::io(place, error))?;
    let bytes = buffer.len() as u64;
    if bytes > limit && buffer.first() != Some(&0) {
        return Err(StorageError::TooLarge { place: at(place, number), bytes, limit });
    }
    // Zeros without end are space that was never written.
    Ok(if bytes == 0 || bytes > limit { None } else { Some(buffer) })
}

fn at_end(place: &str, reader: &mut impl BufRead) -> Result<bool, StorageError> {
    Ok(reader.fill_buf().map_err(|error| StorageError::io(place, error))?.is_empty())
}

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::Salvage;
use super::line::{Chain, ENVELOPE, entry_json, read_entry, read_header, read_id, write_header};
use super::scan::{Found, Mark, Sizes, at, next_line, scan};
use crate::session::append::{admit, entry_conflict};
use crate::session::{SessionEntry, SessionError, StoredSession};
use crate::storage::{StorageError, replace};

/// What is known of a file: where it ends, and where its entries are.
#[derive(Debug)]
pub(super) struct Head {
    mark: Mark,
    entries: HashMap<String, Place>,
}

/// Where an entry stands in its file.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The version it made.
    version: u64,
    /// Its line.
    offset: u64,
    length: u64,
}

impl Head {
    pub(super) fn version(&self) -> u64 {
        self.mark.chain.version
    }
}

/// Reads all of a session.
pub(super) fn load(path: &Path, id: &str, sizes: Sizes) -> Result<Option<StoredSession>, StorageError> {
    let Some(file) = open(path)? else { return Ok(None) };
    let place = path.display().to_string();
    let mut entries = Vec::new();
    let mark = scan(&place, id, &mut BufReader::new(file), None, sizes, |found| {
        let here = at(&place, found.line.chain.version.saturating_add(1));
        entries.push(read_entry(&here, found.line.entry)?);
        Ok(())
    })?;
    entries.truncate(usize::try_from(mark.chain.version).unwrap_or(usize::MAX));
    check_whole(&place, mark)?;
    Ok(Some(StoredSession { version: mark.chain.version, entries }))
}

/// Reads what can be read of a session, line by line, whatever is between.
pub(super) fn salvage(path: &Path, sizes: Sizes) -> Result<Option<Salvage>, StorageError> {
    let Some(file) = open(path)? else { return Ok(None) };
    let place = path.display().to_string();
    let (mut reader, mut buffer) = (BufReader::new(file), Vec::new());
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    let limit = sizes.entry.saturating_add(ENVELOPE);
    for number in 1_u64.. {
        let here = at(&place, number);
        let line = match next_line(&place, number, &mut reader, &mut buffer, limit) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                damage.push(error);
                break;
            }
        };
        if number == 1 {
            damage.extend(read_header(&here, line).err());
        } else {
            match entry_json(&here, line).and_then(|json| read_entry(&here, json)) {
                Ok(entry) => entries.push(entry),
                Err(error) => damage.push(error),
            }
        }
    }
    Ok(Some(Salvage { entries, damage }))
}

/// A file comes into being with its first append, so one without any was cut off.
fn check_whole(place: &str, mark: Mark) -> Result<(), StorageError> {
    if mark.chain.version == 0 {
        return Err(StorageError::corrupt(place, "the file ends before its first entry"));
    }
    Ok(())
}

fn open(path: &Path) -> Result<Option<File>, StorageError> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StorageError::io(path.display(), error)),
    }
}

/// What is known of a file now: what was known, when the file still goes on from there, and what came since.
pub(super) fn head(path: &Path, id: &str, sizes: Sizes, known: Option<Head>) -> Result<Option<Head>, StorageError> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let place = path.display().to_string();
    let failed = |error| StorageError::io(&place, error);
    let known = match known {
        Some(head) if goes_on(&mut file, &head.mark).map_err(failed)? => Some(head),
        _ => None,
    };
    let from = known.as_ref().map(|head| head.mark);
    let mut entries = known.map(|head| head.entries).unwrap_or_default();
    file.seek(SeekFrom::Start(from.map_or(0, |mark| mark.offset))).map_err(failed)?;
    // Of an append that does not come to its end, nothing is kept.
    let mut fresh = Vec::new();
    let mark = scan(&place, id, &mut BufReader::new(file), from, sizes, |Found { line, offset, length }| {
        let here = at(&place, line.chain.version.saturating_add(1));
        fresh.push((read_id(&here, line.entry)?, Place { version: line.chain.version, offset, length }));
        Ok(())
    })?;
    check_whole(&place, mark)?;
    for (id, found) in fresh {
        if found.version <= mark.chain.version {
            entries.entry(id).or_insert(found);
        }
    }
    Ok(Some(Head { mark, entries }))
}

/// Whether the last line known is where it was: its sum stands for all before it.
fn goes_on(file: &mut File, mark: &Mark) -> std::io::Result<bool> {
    if file.metadata()?.len() < mark.offset {
        return Ok(false);
    }
    let expected = mark.chain.beginning(mark.of);
    let mut found = vec![0; expected.len()];
    file.seek(SeekFrom::Start(mark.last))?;
    Ok(file.read_exact(&mut found).is_ok() && found == expected.as_bytes())
}

/// Appends to a file that no other writer touches meanwhile. Returns the version, and what is known of the file then.
pub(super) fn append(
    path: &Path,
    id: &str,
    expected: u64,
    entries: &[SessionEntry],
    texts: &[String],
    sizes: Sizes,
    known: Option<Head>,
) -> Result<(u64, Option<Head>), SessionError> {
    let head = head(path, id, sizes, known)?;
    let found = head.as_ref().map_or(0, Head::version);
    let stored = entries
        .iter()
        .map(|entry| match &head {
            Some(head) => head.find(path, id, entry),
            None => Ok(None),
        })
        .collect::<Result<Vec<_>, _>>()?;
    if !admit(id, expected, found, &stored)? {
        return Ok((found, head));
    }
    let mut head = match head {
        Some(head) => head,
        None => Head { mark: Mark { offset: 0, chain: Chain::start(id), last: 0, of: 0 }, entries: HashMap::new() },
    };
    let fresh: Vec<_> = entries
        .iter()
        .zip(texts)
        .zip(&stored)
        .filter(|(_, stored)| stored.is_none())
        .map(|((entry, text), _)| (entry.id(), text.as_str()))
        .collect();
    head.write(path, id, &fresh, sizes)?;
    Ok((head.version(), Some(head)))
}

impl Head {
    /// The version that an entry made, when it is stored with the same content.
    fn find(&self, path: &Path, session: &str, entry: &SessionEntry) -> Result<Option<u64>, SessionError> {
        let Some(place) = self.entries.get(entry.id()) else { return Ok(None) };
        let mut line = Vec::new();
        let read = File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(place.offset))?;
            file.take(place.length).read_to_end(&mut line)
        });
        read.map_err(|error| StorageError::io(path.display(), error))?;
        let here = at(&path.display().to_string(), place.version.saturating_add(1));
        let stored = read_entry(&here, entry_json(&here, &line)?)?;
        if stored.same_content(entry) { Ok(Some(place.version)) } else { Err(entry_conflict(session, entry)) }
    }

    /// Writes an append, and syncs it. When that fails the file is as it was, as far as that can still be had.
    fn write(&mut self, path: &Path, id: &str, fresh: &[(&str, &str)], sizes: Sizes) -> Result<(), StorageError> {
        let before = self.mark;
        let of = before.chain.version.saturating_add(fresh.len() as u64);
        let mut bytes = Vec::with_capacity(fresh.iter().map(|(_, text)| text.len().saturating_add(128)).sum());
        if before.offset == 0 {
            write_header(id, &mut bytes)?;
        }
        let mut mark = before;
        for (id, text) in fresh {
            let begin = bytes.len() as u64;
            mark.last = before.offset.saturating_add(begin);
            mark.chain.write(of, text, &mut bytes);
            let length = (bytes.len() as u64).saturating_sub(begin);
            let place = Place { version: mark.chain.version, offset: mark.last, length };
            self.entries.insert((*id).to_owned(), place);
        }
        mark.of = of;
        mark.offset = before.offset.saturating_add(bytes.len() as u64);
        if mark.offset > sizes.file {
            let place = path.display().to_string();
            return Err(StorageError::TooLarge { place, bytes: mark.offset, limit: sizes.file });
        }
        if before.offset == 0 {
            replace(path, &[&bytes])?;
        } else {
            append_at(path, before.offset, &bytes).map_err(|error| StorageError::io(path.display(), error))?;
        }
        self.mark = mark;
        Ok(())
    }
}

fn append_at(path: &Path, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    if file.metadata()?.len() != offset {
        // What a crash left unfinished.
        file.set_len(offset)?;
    }
    file.seek(SeekFrom::Start(offset))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        // A line whose sync failed may be on the disk or not; it must not turn up later as if it had been stored.
        let _ = file.set_len(offset).and_then(|()| file.sync_data());
    }
    written
}

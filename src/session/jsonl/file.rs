use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::Salvage;
use super::line::{Chain, ENVELOPE, entry_json, read_entry, read_header, read_id, write_header};
use super::scan::{Found, Mark, Sizes, at, next_line, scan};
use crate::session::append::{admit, entry_conflict};
use crate::session::{SessionEntry, SessionError, StoredSession};
use crate::storage::{FolderLock, StorageError};

/// The file of a session, which need not be there.
#[derive(Debug)]
pub(super) struct SessionFile<'a> {
    pub(super) path: PathBuf,
    pub(super) id: &'a str,
    pub(super) sizes: Sizes,
}

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

impl SessionFile<'_> {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn failed(&self, error: std::io::Error) -> StorageError {
        StorageError::io(self.path.display(), error)
    }

    /// The line of the entry that made a version, as errors name it.
    fn line(&self, version: u64) -> String {
        at(&self.place(), version.saturating_add(1))
    }

    fn open(&self) -> Result<Option<File>, StorageError> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reads all of the session.
    pub(super) fn load(&self) -> Result<Option<StoredSession>, StorageError> {
        let Some(file) = self.open()? else { return Ok(None) };
        let mut entries = Vec::new();
        let mark = scan(&self.place(), self.id, &mut BufReader::new(file), None, self.sizes, |found| {
            entries.push(read_entry(&self.line(found.line.chain.version), found.line.entry)?);
            Ok(())
        })?;
        self.check_begun(mark)?;
        entries.truncate(usize::try_from(mark.chain.version).unwrap_or(usize::MAX));
        Ok(Some(StoredSession { version: mark.chain.version, entries }))
    }

    /// A file comes into being with its first append, so one without any was cut off.
    fn check_begun(&self, mark: Mark) -> Result<(), StorageError> {
        if mark.chain.version == 0 {
            return Err(StorageError::corrupt(self.place(), "the file ends before its first entry"));
        }
        Ok(())
    }

    /// Reads what can be read, line by line, whatever is between.
    pub(super) fn salvage(&self) -> Result<Option<Salvage>, StorageError> {
        let Some(file) = self.open()? else { return Ok(None) };
        let place = self.place();
        let (mut reader, mut buffer) = (BufReader::new(file), Vec::new());
        let (mut entries, mut damage) = (Vec::new(), Vec::new());
        let limit = self.sizes.entry.saturating_add(ENVELOPE);
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

    /// What is known of the file now: what was known, when the file still goes on from there, and what came since.
    pub(super) fn head(&self, known: Option<Head>) -> Result<Option<Head>, StorageError> {
        let Some(mut file) = self.open()? else { return Ok(None) };
        let known = match known {
            Some(head) if goes_on(&mut file, &head.mark).map_err(|error| self.failed(error))? => Some(head),
            _ => None,
        };
        let from = known.as_ref().map(|head| head.mark);
        let mut entries = known.map(|head| head.entries).unwrap_or_default();
        let start = SeekFrom::Start(from.map_or(0, |mark| mark.offset));
        file.seek(start).map_err(|error| self.failed(error))?;
        // Of an append that does not come to its end, nothing is kept.
        let mut fresh = Vec::new();
        let mut reader = BufReader::new(file);
        let mark = scan(&self.place(), self.id, &mut reader, from, self.sizes, |Found { line, offset, length }| {
            let version = line.chain.version;
            fresh.push((read_id(&self.line(version), line.entry)?, Place { version, offset, length }));
            Ok(())
        })?;
        self.check_begun(mark)?;
        for (id, found) in fresh {
            if found.version <= mark.chain.version {
                entries.entry(id).or_insert(found);
            }
        }
        Ok(Some(Head { mark, entries }))
    }

    /// Appends entries, with their JSON, while no other writer can. Returns the version, and what is known of the file
    /// then.
    pub(super) fn append(
        &self,
        lock: &FolderLock,
        known: Option<Head>,
        expected: u64,
        entries: &[(SessionEntry, String)],
    ) -> Result<(u64, Option<Head>), SessionError> {
        let head = self.head(known)?;
        let found = head.as_ref().map_or(0, Head::version);
        let stored = entries
            .iter()
            .map(|(entry, _)| head.as_ref().map_or(Ok(None), |head| self.find(head, entry)))
            .collect::<Result<Vec<_>, _>>()?;
        if !admit(self.id, expected, found, &stored)? {
            return Ok((found, head));
        }
        let none = || Mark { offset: 0, chain: Chain::start(self.id), last: 0, of: 0 };
        let mut head = head.unwrap_or_else(|| Head { mark: none(), entries: HashMap::new() });
        let fresh: Vec<_> = entries
            .iter()
            .zip(&stored)
            .filter(|(_, stored)| stored.is_none())
            .map(|((entry, text), _)| (entry.id(), text.as_str()))
            .collect();
        self.write(lock, &mut head, &fresh)?;
        Ok((head.version(), Some(head)))
    }

    /// The version that an entry made, when it is stored with the same content.
    fn find(&self, head: &Head, entry: &SessionEntry) -> Result<Option<u64>, SessionError> {
        let Some(place) = head.entries.get(entry.id()) else { return Ok(None) };
        let mut line = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(place.offset))?;
            file.take(place.length).read_to_end(&mut line)
        });
        read.map_err(|error| self.failed(error))?;
        let here = self.line(place.version);
        let stored = read_entry(&here, entry_json(&here, &line)?)?;
        if stored.same_content(entry) { Ok(Some(place.version)) } else { Err(entry_conflict(self.id, entry)) }
    }

    /// Writes an append, and syncs it. When that fails the file is as it was, as far as that can still be had.
    fn write(&self, lock: &FolderLock, head: &mut Head, fresh: &[(&str, &str)]) -> Result<(), StorageError> {
        let before = head.mark;
        let of = before.chain.version.saturating_add(fresh.len() as u64);
        let mut bytes = Vec::with_capacity(fresh.iter().map(|(_, text)| text.len().saturating_add(128)).sum());
        if before.offset == 0 {
            write_header(self.id, &mut bytes)?;
        }
        let mut mark = before;
        for (id, text) in fresh {
            let begin = bytes.len() as u64;
            mark.last = before.offset.saturating_add(begin);
            mark.chain.write(of, text, &mut bytes);
            let length = (bytes.len() as u64).saturating_sub(begin);
            let place = Place { version: mark.chain.version, offset: mark.last, length };
            head.entries.insert((*id).to_owned(), place);
        }
        mark.of = of;
        mark.offset = before.offset.saturating_add(bytes.len() as u64);
        if mark.offset > self.sizes.file {
            return Err(StorageError::TooLarge { place: self.place(), bytes: mark.offset, limit: self.sizes.file });
        }
        if before.offset == 0 {
            lock.replace(&self.path, &bytes)?;
        } else {
            append_at(&self.path, before.offset, &bytes).map_err(|error| self.failed(error))?;
        }
        head.mark = mark;
        Ok(())
    }
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

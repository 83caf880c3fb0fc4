//! A file that only grows: records with checksums, each on the disk before the next one is written.
//!
//! A record is a mark, its length, a checksum of the length, a checksum of the content, the content, and another mark.
//! Because every record is synchronised before the next begins, only the last one can be torn, by a power loss in the
//! middle of writing it: it is cut off. Anything else that does not fit its checksum was damaged later, and the file is
//! refused: what it held may have been promised to others.
//!
//! What was never written is zero, a sector at a time, and the first and the last sector of a record may hold no more of
//! it than a byte. The marks are not zero, so that a sound record never looks as if a part of it had not been written:
//! otherwise a damaged one could be taken for torn, and what was promised be cut off.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

const BEGIN: u8 = 0xb5;
const END: u8 = 0xe5;
/// The mark, the length, and both checksums.
const HEAD: usize = 13;
/// How much is synchronised at once.
const PIECE: usize = 8 << 20;
/// What a disk writes at once.
const SECTOR: usize = 512;
pub(super) const MAGIC: &[u8; 8] = b"TENURE2\n";

/// The content of each record.
type Contents = Vec<Vec<u8>>;

/// A file that only grows.
#[derive(Debug)]
pub(super) struct Records {
    file: File,
    path: PathBuf,
    /// Where the last whole record ends.
    end: u64,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}: {1}")]
    Io(PathBuf, #[source] io::Error),
    #[error(
        "{0} is damaged at byte {1}: do not repair it; remove this member with `tenure peers remove`, empty its \
         directory and add it again"
    )]
    Damaged(PathBuf, u64),
    #[error("{0} was not written by this version: upgrade this member, or name another dir")]
    Foreign(PathBuf),
}

impl Records {
    /// A new file in the place of an old one, with these records in it; until it is complete, the old one stays.
    pub(super) fn replace(path: &Path, records: &[Vec<u8>]) -> Result<Self, Fault> {
        let mut new = Self::create(&path.with_extension("new"), records)?;
        new.take_place_of(path)?;
        Ok(new)
    }

    /// A new file with these records in it. Large ones are synchronised piece by piece, so that others who write to the
    /// same disk meanwhile need not wait for all of it.
    pub(super) fn create(path: &Path, records: &[Vec<u8>]) -> Result<Self, Fault> {
        let write = || {
            let mut file = private().truncate(true).open(path)?;
            file.write_all(MAGIC)?;
            for record in records {
                file.write_all(&head(record))?;
                for piece in record.chunks(PIECE) {
                    file.write_all(piece)?;
                    file.sync_data()?;
                }
                file.write_all(&[END])?;
            }
            file.sync_all()?;
            let end = file.stream_position()?;
            Ok(Self { file, path: path.to_owned(), end })
        };
        write().map_err(|error| Fault::Io(path.to_owned(), error))
    }

    /// Lets this file be the one at that path from now on, whether there is power or not.
    pub(super) fn take_place_of(&mut self, path: &Path) -> Result<(), Fault> {
        let moved = std::fs::rename(&self.path, path).and_then(|()| sync_folder(path));
        self.path = path.to_owned();
        moved.map_err(|error| Fault::Io(path.to_owned(), error))
    }

    /// The records of a file; a torn one at its end is cut off. None if there is no file.
    pub(super) fn open(path: &Path) -> Result<Option<(Self, Contents)>, Fault> {
        let fault = |error| Fault::Io(path.to_owned(), error);
        let mut file = match private().create(false).read(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(fault)?,
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fault)?;
        let (records, end) = split(&bytes).map_err(|at| Fault::Damaged(path.to_owned(), at as u64))?;
        if end < bytes.len() {
            tracing::warn!(file = %path.display(), cut = bytes.len() - end, "cut off what a power loss left half written");
            file.set_len(end as u64).and_then(|()| file.sync_all()).map_err(fault)?;
        }
        file.seek(SeekFrom::Start(end as u64)).map_err(fault)?;
        let records = records.into_iter().map(<[u8]>::to_vec).collect();
        Ok(Some((Self { file, path: path.to_owned(), end: end as u64 }, records)))
    }

    /// Adds a record. When this returns, it is on the disk; when it fails, nothing of it counts.
    pub(super) fn append(&mut self, record: &[u8]) -> Result<(), Fault> {
        let record = sealed(record);
        let written = self.file.write_all(&record).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            let _ = self.file.set_len(self.end);
            let _ = self.file.seek(SeekFrom::Start(self.end));
            return Err(Fault::Io(self.path.clone(), error));
        }
        self.end += record.len() as u64;
        Ok(())
    }

    /// How long it is.
    pub(super) fn len(&self) -> u64 {
        self.end
    }
}

/// The mode of every file of a member.
pub(super) const PRIVATE: u32 = 0o600;

/// How a file is made, or written to if it is there: for this user alone, and never another one behind a link.
pub(super) fn private() -> OpenOptions {
    #[allow(clippy::cast_possible_wrap)]
    let flags = (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(PRIVATE).custom_flags(flags);
    options
}

/// A file whose content is replaced as a whole.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private().truncate(true).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    sync_folder(path)
}

fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// What a record is in the file.
pub(super) fn sealed(record: &[u8]) -> Vec<u8> {
    [&head(record)[..], record, &[END]].concat()
}

/// What precedes the content of a record.
fn head(record: &[u8]) -> Vec<u8> {
    let length = u32::try_from(record.len()).expect("records are short").to_le_bytes();
    let (head, body) = (crc32fast::hash(&length), crc32fast::hash(record));
    [&[BEGIN][..], &length, &head.to_le_bytes(), &body.to_le_bytes()].concat()
}

/// How long a record is in the file, with that much content.
fn span(length: usize) -> usize {
    HEAD + length + 1
}

/// The whole records, and where they end. An error is where something was damaged.
pub(super) fn split(bytes: &[u8]) -> Result<(Vec<&[u8]>, usize), usize> {
    if !bytes.starts_with(MAGIC) {
        return Err(0);
    }
    let (mut records, mut at) = (Vec::new(), MAGIC.len());
    while at < bytes.len() {
        match record(&bytes[at..]) {
            Some(found) => {
                records.push(found);
                at += span(found.len());
            }
            None if is_torn(bytes, at) => break,
            None => return Err(at),
        }
    }
    Ok((records, at))
}

/// The record that these bytes begin with, if it is whole and sound.
fn record(bytes: &[u8]) -> Option<&[u8]> {
    let (body, rest) = bytes.get(HEAD..)?.split_at_checked(length(bytes)?)?;
    (rest.first() == Some(&END) && crc32fast::hash(body) == number(bytes, 9)?).then_some(body)
}

/// The length that a sound head tells.
fn length(bytes: &[u8]) -> Option<usize> {
    let sound = bytes.first() == Some(&BEGIN) && crc32fast::hash(bytes.get(1..5)?) == number(bytes, 5)?;
    number(bytes, 1).filter(|_| sound).map(|length| length as usize)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

/// Whether a power loss in the middle of writing explains what is there: the file ends too early, or a sector of the
/// last record was never written. If that sector had its length, nothing sound may follow.
fn is_torn(bytes: &[u8], at: usize) -> bool {
    let rest = &bytes[at..];
    match length(rest) {
        Some(length) if rest.len() < span(length) => true,
        Some(length) => rest.len() == span(length) && has_hole(bytes, at, bytes.len()),
        None if rest.len() < HEAD => true,
        None => {
            has_hole(bytes, at, at + HEAD) && !(1..rest.len()).any(|next| record(&rest[next..]).is_some())
        }
    }
}

/// Whether one of the sectors between `at` and `end` is zero from `at` on, or as far as the file goes.
fn has_hole(bytes: &[u8], at: usize, end: usize) -> bool {
    let edges = (at..end).filter(|edge| *edge == at || edge % SECTOR == 0);
    let mut sectors = edges.map(|edge| &bytes[edge..bytes.len().min((edge / SECTOR + 1) * SECTOR)]);
    sectors.any(|sector| sector.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> (tempfile::TempDir, PathBuf, Vec<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let written: Vec<Vec<u8>> = (0..5_u8).map(|nth| vec![nth + 1; 700 * usize::from(nth) + 1]).collect();
        let mut records = Records::replace(&path, &written[..1]).unwrap();
        for record in &written[1..] {
            records.append(record).unwrap();
        }
        (dir, path, written)
    }

    #[test]
    fn what_was_appended_is_found_again_and_can_be_continued() {
        let (_dir, path, mut written) = filled();
        let (mut records, found) = Records::open(&path).unwrap().unwrap();
        assert_eq!(found, written);
        records.append(b"more").unwrap();
        written.push(b"more".to_vec());
        assert_eq!(Records::open(&path).unwrap().unwrap().1, written);
        assert!(Records::open(&path.with_extension("none")).unwrap().is_none());
    }

    #[test]
    fn a_torn_tail_is_cut_off_wherever_it_was_torn() {
        let (_dir, path, written) = filled();
        let bytes = std::fs::read(&path).unwrap();
        let last = bytes.len() - span(written[4].len());
        for end in [last + 1, last + HEAD - 1, last + HEAD, last + HEAD + 9, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            assert_eq!(Records::open(&path).unwrap().unwrap().1, written[..4], "cut at {end}");
        }
        // A sector of the last record that never reached the disk.
        let mut holed = bytes.clone();
        let sector = (last / SECTOR + 2) * SECTOR;
        holed[sector..sector + SECTOR].fill(0);
        std::fs::write(&path, &holed).unwrap();
        assert_eq!(Records::open(&path).unwrap().unwrap().1, written[..4]);
        // A file that was made longer, and nothing written.
        std::fs::write(&path, [&bytes[..], &[0; 2000]].concat()).unwrap();
        assert_eq!(Records::open(&path).unwrap().unwrap().1, written);
    }

    #[test]
    fn a_damaged_record_is_refused_wherever_it_is() {
        let (_dir, path, _) = filled();
        let bytes = std::fs::read(&path).unwrap();
        for at in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            match Records::open(&path) {
                Err(Fault::Damaged(..)) => {}
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }

    /// Whatever a record holds and wherever it ends, none of its bytes can change unnoticed: not at the edge of a sector
    /// that holds nothing else of it, nor when the file ends in zeros.
    #[test]
    fn a_record_of_zeros_is_damaged_and_not_torn() {
        for padding in 0..SECTOR {
            let first = sealed(&vec![7; padding]);
            let bytes = [&MAGIC[..], &first, &sealed(&[1, 0, 0]), &sealed(&[1, 0, 0, 0])].concat();
            assert_eq!(split(&bytes).unwrap().0.len(), 3);
            for at in MAGIC.len() + first.len()..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                assert!(split(&damaged).is_err(), "byte {at} with {padding} before");
            }
        }
    }

    /// A sector that a disk lost later, in the middle of what was synchronised long ago.
    #[test]
    fn a_hole_that_is_followed_by_something_sound_is_damage() {
        let (_dir, path, _) = filled();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..SECTOR].fill(0);
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        assert_eq!(split(&bytes), Err(MAGIC.len()));
    }
}

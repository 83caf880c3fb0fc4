//! What a member must not forget: its vote, its part of the log, and the snapshot that the log continues.
//!
//! All of it is in one file of records ([`Records`]) and, because it is short, in memory too. When the file has grown
//! enough, it is replaced by one that begins with a snapshot of the registers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use protobuf::Message as _;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

use super::codec::{Blob, Garbled, Wire};
use super::file::{Fault, Records};

/// The file is replaced when it has grown by as much as the snapshot is long, but by this much at least and at most.
const ENOUGH: u64 = 4 << 20;
const PLENTY: u64 = 32 << 20;
/// When a snapshot is larger, nothing new is taken in: it has to fit in one frame, with what may come in until the next.
const FULL: usize = 192 << 20;
/// So many entries stay when the rest is in a snapshot, so that a member that is a little behind needs no snapshot; but
/// no more bytes than that.
const TAIL: u64 = 512;
const LARGEST_TAIL: u64 = ENOUGH;

/// What a member must not forget.
#[derive(Debug)]
pub(super) struct Log {
    records: Records,
    path: PathBuf,
    state: Kept,
    /// How long the file was when it was last replaced.
    fresh: u64,
    /// For tests: how long a disk takes.
    pub(super) slowness: std::time::Duration,
}

/// The content of the file.
#[derive(Debug, Default)]
struct Kept {
    snapshot: Snapshot,
    /// Index and term of what precedes the first entry.
    base: (u64, u64),
    entries: VecDeque<Entry>,
    hard: HardState,
    conf: ConfState,
}

impl Log {
    /// The log in that file; none if there is none.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Fault> {
        let Some((records, found)) = Records::open(path)? else { return Ok(None) };
        let mut state = Kept::default();
        let mut at = 0;
        for record in &found {
            state.replay(record).map_err(|_| Fault::Damaged(path.to_owned(), at))?;
            at += record.len() as u64;
        }
        state.settle();
        let fresh = found.iter().take(2).map(|record| record.len() as u64).sum();
        let (path, slowness) = (path.to_owned(), std::time::Duration::ZERO);
        Ok(Some(Self { records, path, state, fresh, slowness }))
    }

    /// A new log that begins with this snapshot; an empty one is that of a member that has yet to be sent one.
    pub(super) fn create(path: &Path, snapshot: Snapshot) -> Result<Self, Fault> {
        let meta = snapshot.get_metadata();
        let base = (meta.index, meta.term);
        let hard = HardState { term: meta.term, commit: meta.index, ..HardState::default() };
        let conf = meta.get_conf_state().clone();
        let state = Kept { snapshot, base, entries: VecDeque::new(), hard, conf };
        let records = Records::replace(path, &state.to_records())?;
        let fresh = records.len();
        Ok(Self { records, path: path.to_owned(), state, fresh, slowness: std::time::Duration::ZERO })
    }

    /// Writes the whole file anew. After a failed write nobody knows which parts of the old one are on the disk.
    pub(super) fn rewrite(&mut self) -> Result<(), Fault> {
        self.records = Records::replace(&self.path, &self.state.to_records())?;
        self.fresh = self.records.len();
        Ok(())
    }

    /// Keeps entries and the vote. When this returns, they are on the disk.
    pub(super) fn append(&mut self, entries: Vec<Entry>, hard: Option<&HardState>) -> Result<(), Fault> {
        if !self.slowness.is_zero() {
            std::thread::sleep(self.slowness);
        }
        self.records.append(&batch(entries.iter(), hard))?;
        entries.into_iter().for_each(|entry| self.state.push(entry));
        if let Some(hard) = hard {
            self.state.hard = hard.clone();
        }
        Ok(())
    }

    /// Takes over a snapshot that the Raft leader sent.
    pub(super) fn install(&mut self, snapshot: Snapshot) -> Result<(), Fault> {
        let meta = snapshot.get_metadata();
        self.state.base = (meta.index, meta.term);
        self.state.conf = meta.get_conf_state().clone();
        self.state.entries.clear();
        self.state.snapshot = snapshot;
        self.state.settle();
        self.rewrite()
    }

    /// Whether it is time for [`Log::compact`].
    pub(super) fn is_long(&self) -> bool {
        self.records.len() > self.fresh + self.fresh.clamp(ENOUGH, PLENTY)
    }

    /// Whether there is no room for further registers.
    pub(super) fn is_full(&self) -> bool {
        self.state.snapshot.data.len() > FULL
    }

    /// Replaces what led up to `applied` by a snapshot of what came of it.
    pub(super) fn compact(&mut self, applied: u64, conf: ConfState, data: Vec<u8>) -> Result<(), Fault> {
        let Ok(term) = self.term(applied) else { return Ok(()) };
        let mut snapshot = Snapshot::default();
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (applied, term);
        meta.set_conf_state(conf.clone());
        snapshot.data = data.into();
        self.state.snapshot = snapshot;
        self.state.conf = conf;
        self.state.settle();
        self.state.shorten(applied);
        self.rewrite()
    }

    /// That so much is committed is not worth a write: it is found out again.
    pub(super) fn commit_to(&mut self, index: u64) {
        self.state.hard.commit = self.state.hard.commit.max(index);
    }

    /// The snapshot that the log continues.
    pub(super) fn latest(&self) -> &Snapshot {
        &self.state.snapshot
    }
}

impl Kept {
    fn to_records(&self) -> Vec<Vec<u8>> {
        let mut first = vec![0];
        self.base.put(&mut first);
        Blob(bytes(&self.snapshot)).put(&mut first);
        vec![first, batch(self.entries.iter(), Some(&self.hard))]
    }

    fn replay(&mut self, record: &[u8]) -> Result<(), Garbled> {
        let (kind, mut rest) = record.split_first().ok_or(Garbled("record"))?;
        match kind {
            0 => {
                self.base = Wire::get(&mut rest)?;
                self.snapshot = message(&Wire::get(&mut rest)?)?;
                self.conf = self.snapshot.get_metadata().get_conf_state().clone();
                self.entries.clear();
            }
            1 => {
                let (hard, entries): (Option<Blob>, Vec<Blob>) = Wire::get(&mut rest)?;
                for entry in &entries {
                    self.push(message(entry)?);
                }
                if let Some(hard) = hard {
                    self.hard = message(&hard)?;
                }
            }
            _ => return Err(Garbled("record")),
        }
        Ok(())
    }

    /// Adds an entry; it replaces whatever another Raft leader had put there or after it.
    fn push(&mut self, entry: Entry) {
        let known = entry.index.saturating_sub(self.base.0 + 1);
        self.entries.truncate(usize::try_from(known).unwrap_or(usize::MAX));
        self.entries.push_back(entry);
    }

    /// Drops what led up to `applied`, except for a tail.
    fn shorten(&mut self, applied: u64) {
        let mut size: u64 = self.entries.iter().map(|entry| entry.data.len() as u64).sum();
        while (self.base.0 + TAIL < applied || size > LARGEST_TAIL)
            && let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= applied)
        {
            size -= entry.data.len() as u64;
            self.base = (entry.index, entry.term);
        }
    }

    /// What is in the snapshot is committed.
    fn settle(&mut self) {
        self.hard.commit = self.hard.commit.max(self.snapshot.get_metadata().index).min(self.last());
        self.hard.term = self.hard.term.max(self.snapshot.get_metadata().term);
    }

    fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }
}

fn batch<'a>(entries: impl Iterator<Item = &'a Entry>, hard: Option<&HardState>) -> Vec<u8> {
    let mut record = vec![1];
    hard.map(|hard| Blob(bytes(hard))).put(&mut record);
    entries.map(|entry| Blob(bytes(entry))).collect::<Vec<_>>().put(&mut record);
    record
}

fn bytes(message: &impl protobuf::Message) -> Vec<u8> {
    message.write_to_bytes().expect("memory takes it")
}

fn message<M: protobuf::Message>(blob: &Blob) -> Result<M, Garbled> {
    M::parse_from_bytes(&blob.0).map_err(|_| Garbled("message"))
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.state.hard.clone(), self.state.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let base = self.state.base.0;
        if low <= base {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.state.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let (most, mut size) = (max_size.into().unwrap_or(u64::MAX), 0);
        let wanted = self.state.entries.range((low - base - 1) as usize..(high - base - 1) as usize);
        let fits = |entry: &&Entry| {
            let first = size == 0;
            size += u64::from(entry.compute_size());
            first || size <= most
        };
        Ok(wanted.take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let (base, term) = self.state.base;
        if index == base {
            return Ok(term);
        }
        if index < base {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = self.state.entries.get((index - base - 1) as usize);
        entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.state.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.state.last())
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        if self.state.snapshot.get_metadata().index < request_index {
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.state.snapshot.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, data: format!("{index}@{term}").into_bytes().into(), ..Entry::default() }
    }

    fn begun() -> (tempfile::TempDir, PathBuf, Log) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut snapshot = Snapshot::default();
        (snapshot.mut_metadata().index, snapshot.mut_metadata().term) = (1, 1);
        let log = Log::create(&path, snapshot).unwrap();
        (dir, path, log)
    }

    fn terms(log: &Log) -> Vec<u64> {
        let range = log.first_index().unwrap()..=log.last_index().unwrap();
        range.map(|index| log.term(index).unwrap()).collect()
    }

    #[test]
    fn votes_and_entries_are_there_again_and_later_terms_replace() {
        let (_dir, path, mut log) = begun();
        log.append((2..6).map(|index| entry(index, 1)).collect(), None).unwrap();
        let hard = HardState { term: 2, vote: 7, commit: 3, ..HardState::default() };
        log.append(vec![entry(4, 2)], Some(&hard)).unwrap();
        for log in [log, Log::open(&path).unwrap().unwrap()] {
            assert_eq!(terms(&log), [1, 1, 2]);
            assert_eq!(log.initial_state().unwrap().hard_state, hard);
            let found = log.entries(2, 5, Some(1), GetEntriesContext::empty(false)).unwrap();
            assert_eq!(found.len(), 1, "one at least, and no more than fit");
        }
    }

    #[test]
    fn a_compacted_log_is_short_and_continues() {
        let (_dir, path, mut log) = begun();
        log.append((2..2000).map(|index| entry(index, 1)).collect(), None).unwrap();
        let before = log.records.len();
        log.compact(1900, ConfState::default(), b"all of it".to_vec()).unwrap();
        assert!(log.records.len() < before);
        log.append(vec![entry(2000, 3)], None).unwrap();
        let again = Log::open(&path).unwrap().unwrap();
        for log in [log, again] {
            assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (1900 - TAIL + 1, 2000));
            assert_eq!(log.snapshot(0, 0).unwrap().get_metadata().index, 1900);
            assert_eq!(log.term(2000).unwrap(), 3);
            assert!(log.initial_state().unwrap().hard_state.commit >= 1900);
        }
    }

    /// Five hundred entries can be anything from nothing to gigabytes.
    #[test]
    fn the_tail_of_large_entries_is_short_and_what_was_not_applied_stays() {
        let (_dir, _path, mut log) = begun();
        let large = |index| Entry { data: vec![1; 1 << 20].into(), ..entry(index, 1) };
        log.append((2..22).map(large).collect(), None).unwrap();
        log.compact(12, ConfState::default(), b"all of it".to_vec()).unwrap();
        assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (13, 21));
        log.compact(21, ConfState::default(), b"all of it".to_vec()).unwrap();
        assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (18, 21));
        assert!(log.records.len() < 5 << 20);
    }
}

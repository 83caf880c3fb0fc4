//! What a member must not forget: its vote, its part of the log, and the snapshot that the log continues.
//!
//! All of it is in one file of records ([`Records`]) and, because it is short, in memory too. When the file has grown
//! enough, it is replaced by one that begins with a snapshot of the registers. That one is a [draft](Draft) at first, which
//! a thread of its own writes: a large one takes longer than the others wait to hear from a Raft leader.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

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
/// What the file is called that is to replace the log.
const DRAFT: &str = "draft";
/// No log gets that far.
const LARGEST_INDEX: u64 = u64::MAX / 2;

/// What a member must not forget.
#[derive(Debug)]
pub(super) struct Log {
    records: Records,
    path: PathBuf,
    state: Kept,
    draft: Option<Draft>,
    /// How long the file was when it was last replaced.
    fresh: u64,
    /// For tests: how long a disk takes.
    pub(super) slowness: std::time::Duration,
}

/// The file that is to replace the log, while its snapshot is being written. Until then the log goes on as it is.
#[derive(Debug)]
struct Draft(Option<JoinHandle<Result<Records, Fault>>>);

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
        // One that a crash left half written is of no use, and takes room.
        let _ = std::fs::remove_file(path.with_extension(DRAFT));
        let state = Kept::from_records(&found).map_err(|_| Fault::Foreign(path.to_owned()))?;
        let fresh = found.iter().take(2).map(|record| record.len() as u64).sum();
        let (path, slowness) = (path.to_owned(), std::time::Duration::ZERO);
        Ok(Some(Self { records, path, state, draft: None, fresh, slowness }))
    }

    /// A new log that begins with this snapshot; an empty one is that of a member that has yet to be sent one.
    pub(super) fn create(path: &Path, snapshot: Snapshot) -> Result<Self, Fault> {
        let meta = snapshot.get_metadata();
        let base = (meta.index, meta.term);
        let hard = HardState { term: meta.term, commit: meta.index, ..HardState::default() };
        let conf = meta.get_conf_state().clone();
        let state = Kept { snapshot, base, entries: VecDeque::new(), hard, conf };
        let records = Records::replace(path, &state.to_records())?;
        let (fresh, slowness) = (records.len(), std::time::Duration::ZERO);
        Ok(Self { records, path: path.to_owned(), state, draft: None, fresh, slowness })
    }

    /// Writes the whole file anew. After a failed write it is unknown which parts of the old one are on the disk.
    pub(super) fn rewrite(&mut self) -> Result<(), Fault> {
        self.draft = None;
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
        self.records.len() > self.fresh + self.enough()
    }

    /// By how much the file may grow.
    fn enough(&self) -> u64 {
        (self.state.snapshot.data.len() as u64).clamp(ENOUGH, PLENTY)
    }

    /// Whether there is no room for further registers.
    pub(super) fn is_full(&self) -> bool {
        self.state.snapshot.data.len() > FULL
    }

    /// Begins to replace what led up to `applied` by a snapshot of what came of it. It is in force at once, and on the disk
    /// after [`Log::finish`].
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
        self.draft = None;
        self.draft = Some(Draft::begin(&self.path, self.state.base, self.state.snapshot.clone())?);
        Ok(())
    }

    /// Whether a snapshot has yet to replace the log.
    pub(super) fn is_drafting(&self) -> bool {
        self.draft.is_some()
    }

    /// Whether it is time for [`Log::finish`]: it need not wait, or the log has grown so much meanwhile that it has to.
    pub(super) fn is_drafted(&self) -> bool {
        let too_long = self.records.len() > self.fresh + self.enough() * 3 / 2;
        self.draft.as_ref().is_some_and(|draft| draft.is_written() || too_long)
    }

    /// Replaces the log by its draft, once that is written, and by what came meanwhile.
    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        let Some(draft) = self.draft.take() else { return Ok(()) };
        let mut records = draft.written()?;
        records.append(&self.state.tail())?;
        records.take_place_of(&self.path)?;
        self.records = records;
        self.fresh = self.records.len();
        Ok(())
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
    /// What records add up to: a snapshot, and what came after it.
    fn from_records(records: &[Vec<u8>]) -> Result<Self, Garbled> {
        let (first, rest) = records.split_first().ok_or(Garbled("snapshot"))?;
        let mut kept = Self::begun(first)?;
        rest.iter().try_for_each(|record| kept.replay(record))?;
        let index = kept.snapshot.get_metadata().index;
        if !(kept.base.0..=kept.last()).contains(&index) {
            return Err(Garbled("place of the snapshot"));
        }
        kept.settle();
        Ok(kept)
    }

    fn to_records(&self) -> Vec<Vec<u8>> {
        vec![head(self.base, &self.snapshot), self.tail()]
    }

    /// Everything that the snapshot does not tell.
    fn tail(&self) -> Vec<u8> {
        batch(self.entries.iter(), Some(&self.hard))
    }

    /// What the first record holds.
    fn begun(record: &[u8]) -> Result<Self, Garbled> {
        let (0, base, snapshot): (u8, (u64, u64), Blob) = Wire::from_bytes(record)? else {
            return Err(Garbled("snapshot"));
        };
        if base.0 > LARGEST_INDEX {
            return Err(Garbled("index"));
        }
        let snapshot: Snapshot = message(&snapshot)?;
        let conf = snapshot.get_metadata().get_conf_state().clone();
        Ok(Self { snapshot, base, conf, ..Self::default() })
    }

    /// Adds what any other record holds.
    fn replay(&mut self, record: &[u8]) -> Result<(), Garbled> {
        let (1, hard, entries): (u8, Option<Blob>, Vec<Blob>) = Wire::from_bytes(record)? else {
            return Err(Garbled("record"));
        };
        for entry in &entries {
            let entry: Entry = message(entry)?;
            if !(self.base.0 + 1..=self.last() + 1).contains(&entry.index) {
                return Err(Garbled("entry in its place"));
            }
            self.push(entry);
        }
        if let Some(hard) = hard {
            self.hard = message(&hard)?;
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

impl Draft {
    /// Starts to write one, beside the log at `path`.
    fn begin(path: &Path, base: (u64, u64), snapshot: Snapshot) -> Result<Self, Fault> {
        let place = path.with_extension(DRAFT);
        let write = move || Records::create(&place, &[head(base, &snapshot)]);
        let thread = std::thread::Builder::new().name("tenure-snapshot".to_owned()).spawn(write);
        thread.map(|thread| Self(Some(thread))).map_err(|error| Fault::Io(path.to_owned(), error))
    }

    fn is_written(&self) -> bool {
        self.0.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// The file, once its snapshot is on the disk.
    fn written(mut self) -> Result<Records, Fault> {
        let thread = self.0.take().expect("it is taken once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// No other one may begin while this one is being written.
impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// The first record of a file.
fn head(base: (u64, u64), snapshot: &Snapshot) -> Vec<u8> {
    let mut record = vec![0];
    base.put(&mut record);
    Blob(bytes(snapshot)).put(&mut record);
    record
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
    fn what_is_too_large_for_a_snapshot_is_full() {
        let (_dir, _path, mut log) = begun();
        for (bytes, full) in [(192 << 20, false), ((192 << 20) + 1, true)] {
            log.state.snapshot.data = vec![0; bytes].into();
            assert_eq!(log.is_full(), full, "{bytes}");
        }
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
        log.finish().unwrap();
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

    /// Whatever happens while a snapshot is being written: before it takes the place of the log, everything is in the log;
    /// after that, what came meanwhile is behind the snapshot.
    #[test]
    fn what_comes_while_a_snapshot_is_written_is_kept() {
        let (dir, path, mut log) = begun();
        log.append((2..1000).map(|index| entry(index, 1)).collect(), None).unwrap();
        log.compact(990, ConfState::default(), b"all of it".to_vec()).unwrap();
        assert!(log.is_drafting() && log.latest().get_metadata().index == 990);
        let vote = HardState { term: 5, vote: 7, ..HardState::default() };
        log.append(vec![entry(995, 4)], Some(&vote)).unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        std::fs::write(dir.path().join("copy.draft"), b"half of it").unwrap();
        let crashed = Log::open(&copy).unwrap().unwrap();
        assert!(!dir.path().join("copy.draft").exists());
        assert_eq!((crashed.first_index().unwrap(), crashed.last_index().unwrap()), (2, 995));
        log.finish().unwrap();
        assert!(!log.is_drafting());
        log.append(vec![entry(996, 5)], None).unwrap();
        let after = Log::open(&path).unwrap().unwrap();
        assert_eq!((after.first_index().unwrap(), after.last_index().unwrap()), (990 - TAIL + 1, 996));
        for (log, last) in [(crashed, 995), (after, 996)] {
            assert_eq!(log.initial_state().unwrap().hard_state.vote, 7);
            assert_eq!(log.term(995).unwrap(), 4);
            assert!(log.term(last + 1).is_err());
        }
    }

    /// What was sent by the Raft leader replaces also what this member was about to write down itself.
    #[test]
    fn a_snapshot_that_is_sent_outdoes_one_that_is_being_written() {
        let (_dir, path, mut log) = begun();
        log.append((2..1000).map(|index| entry(index, 1)).collect(), None).unwrap();
        log.compact(990, ConfState::default(), b"own".to_vec()).unwrap();
        let mut sent = Snapshot { data: b"sent".to_vec().into(), ..Snapshot::default() };
        (sent.mut_metadata().index, sent.mut_metadata().term) = (2000, 3);
        log.install(sent).unwrap();
        log.finish().unwrap();
        for log in [log, Log::open(&path).unwrap().unwrap()] {
            assert_eq!(log.latest().data.as_ref(), b"sent");
            assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (2001, 2000));
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
        log.finish().unwrap();
        assert_eq!((log.first_index().unwrap(), log.last_index().unwrap()), (18, 21));
        assert!(log.records.len() < 5 << 20);
    }
}

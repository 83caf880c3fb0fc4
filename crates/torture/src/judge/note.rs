//! Notes: what a process writes down, one JSON line each, and how they are read.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tenure::clock::lease_nanos;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// When, in nanoseconds of the lease clock, which processes of one host can compare.
    pub t: u64,
    /// By whom.
    pub node: String,
    /// In which of its lives: each process is another.
    pub pid: u32,
    /// What.
    #[serde(flatten)]
    pub what: NoteKind,
}

/// What a note says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum NoteKind {
    /// The process takes part.
    Joined {
        /// With which ttl, in milliseconds.
        ttl: u64,
    },
    /// The process runs.
    Alive,
    /// A thread that only wanted to sleep for a moment was kept waiting until now.
    Stalled {
        /// Since when.
        from: u64,
    },
    /// The work of a tenure acted; the instant was read before leadership was asked.
    Act {
        /// For which role.
        role: String,
        /// Under which token.
        token: u64,
        /// What `check()` said.
        leads: bool,
        /// Until when the lease lasted as far as was known right after; 0 once it is over.
        until: u64,
    },
    /// Work began, or has ended.
    Work {
        /// For which role.
        role: String,
        /// Under which token.
        token: u64,
        /// Whether it runs now.
        on: bool,
    },
    /// The fence decided about a write of this node.
    Fenced {
        /// For which role.
        role: String,
        /// Under which token.
        token: u64,
        /// Whether it was taken.
        taken: bool,
    },
    /// A run of a task began.
    Ticked {
        /// Which task.
        task: String,
        /// For which tick, in microseconds since 1970.
        tick: u64,
        /// Under which token.
        token: u64,
    },
    /// What the ledger of a task said.
    Ledger {
        /// Which task.
        task: String,
        /// Every tick up to this one is accounted for.
        tick: u64,
        /// How far apart ticks are.
        every: u64,
        /// How many ticks were run, missed, skipped or are owed.
        accounted: u64,
    },
    /// The node told an event.
    Told {
        /// Its number.
        sequence: u64,
        /// Which.
        event: String,
        /// About which role.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<String>,
        /// With which token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<u64>,
        /// More about it.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        more: String,
    },
    /// A compare-and-set on a register was answered.
    Wrote {
        /// Which register.
        register: String,
        /// Which version it was to replace.
        expect: Option<String>,
        /// The version of what it was to hold.
        put: Option<String>,
        /// When it was sent.
        called: u64,
        /// Whether it was applied; unknown if no answer tells.
        applied: Option<bool>,
    },
    /// What a neighbour without rights did since it last noted something.
    Neighbour(NeighbourActivity),
    /// A neighbour could do what must be refused, or heard what is not for it.
    Trespass {
        /// What, and what came of it.
        how: String,
    },
    /// A register was read.
    Read {
        /// Which register.
        register: String,
        /// Which version it had.
        version: Option<String>,
        /// When it was asked.
        called: u64,
    },
}

/// How much a neighbour did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NeighbourActivity {
    /// Notifications that it forged.
    pub forged: u64,
    /// What it tried and was refused.
    pub refused: u64,
    /// Connections that it opened only to take them from others.
    pub connections: u64,
    /// Locks of the server that it got hold of and that nodes use.
    pub locks: u64,
}

impl std::ops::AddAssign for NeighbourActivity {
    fn add_assign(&mut self, other: Self) {
        self.forged += other.forged;
        self.refused += other.refused;
        self.connections += other.connections;
        self.locks += other.locks;
    }
}

/// Writes notes: into a file, or into memory.
#[derive(Debug, Clone)]
pub struct NoteWriter {
    node: String,
    pid: u32,
    paper: Arc<Mutex<NoteSink>>,
}

#[derive(Debug)]
enum NoteSink {
    File(File),
    Memory(Vec<Note>),
}

impl NoteWriter {
    /// A new file for this process, in a directory that [`read_dir`] or [`NoteReader`] reads. `life` stands for the process:
    /// its id would not do, because within an hour the kernel gives the same one to another.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_dir(dir: &Path, node: &str, life: u32) -> io::Result<Self> {
        let path = dir.join(format!("{node}-{life}.{NOTES}"));
        let file = File::options().append(true).create_new(true).open(path)?;
        Ok(Self { node: node.to_owned(), pid: life, paper: Arc::new(Mutex::new(NoteSink::File(file))) })
    }

    /// Notes of several nodes in this process, to be [taken](Self::take) at the end. `life` stands for the process.
    #[must_use]
    pub fn in_memory(node: &str, life: u32) -> Self {
        let paper = Arc::new(Mutex::new(NoteSink::Memory(Vec::new())));
        Self { node: node.to_owned(), pid: life, paper }
    }

    /// The same paper in the hand of another node.
    #[must_use]
    pub fn of(&self, node: &str, life: u32) -> Self {
        Self { node: node.to_owned(), pid: life, paper: self.paper.clone() }
    }

    /// Writes down what is so now.
    pub fn note(&self, what: NoteKind) {
        self.note_at(lease_nanos(), what);
    }

    /// Writes down what was so then. One write for one note: a process that is killed leaves all but its last one
    /// whole, and one that cannot be written is one note less, never a wrong one.
    pub fn note_at(&self, t: u64, what: NoteKind) {
        let note = Note { t, node: self.node.clone(), pid: self.pid, what };
        match &mut *self.paper.lock().unwrap_or_else(PoisonError::into_inner) {
            NoteSink::Memory(notes) => notes.push(note),
            NoteSink::File(file) => {
                let mut line = serde_json::to_vec(&note).unwrap_or_default();
                line.push(b'\n');
                let _ = file.write_all(&line);
            }
        }
    }

    /// What was written into memory.
    #[must_use]
    pub fn take(&self) -> Vec<Note> {
        match &mut *self.paper.lock().unwrap_or_else(PoisonError::into_inner) {
            NoteSink::Memory(notes) => std::mem::take(notes),
            NoteSink::File(_) => Vec::new(),
        }
    }
}

const NOTES: &str = "notes";

/// Notes as they are kept for judging: of the many acts of a tenure that say the same, the first and the last are left.
#[derive(Debug, Default)]
pub struct NoteBuffer {
    notes: Vec<Note>,
    last: std::collections::HashMap<(String, u64, String, u32), usize>,
    acts: u64,
}

impl NoteBuffer {
    /// Takes in notes in order of time.
    pub fn take(&mut self, notes: Vec<Note>) {
        for note in notes {
            self.take_one(note);
        }
    }

    fn take_one(&mut self, note: Note) {
        let NoteKind::Act { role, token, leads: true, until } = &note.what else {
            return self.notes.push(note);
        };
        self.acts += 1;
        if *until != 0 && *until < note.t {
            return self.notes.push(note);
        }
        let key = (role.clone(), *token, note.node.clone(), note.pid);
        let (index, fresh) = (self.notes.len(), !self.last.contains_key(&key));
        let slot = *self.last.entry(key).or_insert(index + 1);
        if fresh {
            // The first act stays; the second place is for the last.
            self.notes.push(note.clone());
            self.notes.push(note);
        } else {
            self.notes[slot] = note;
        }
    }

    /// What is kept so far, in no particular order.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// All of them, in order of time.
    #[must_use]
    pub fn into_notes(mut self) -> Vec<Note> {
        self.notes.sort_by_key(|note| note.t);
        self.notes
    }

    /// How many instants at which a node led were written down.
    #[must_use]
    pub fn acts(&self) -> u64 {
        self.acts
    }
}

/// Reads files of notes as they grow.
#[derive(Debug)]
pub struct NoteReader {
    dir: PathBuf,
    reclaims: bool,
    offsets: std::collections::BTreeMap<PathBuf, u64>,
}

impl NoteReader {
    /// Begins at the beginning.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), reclaims: false, offsets: Default::default() }
    }

    /// As [`of`](Self::of), and gives the disk back what was read, so that a long run does not fill it.
    #[must_use]
    pub fn reclaiming(dir: &Path) -> Self {
        Self { reclaims: true, ..Self::of(dir) }
    }

    /// What is new in any file. A torn line waits for its end.
    ///
    /// # Errors
    /// If a file cannot be read, or a whole line is no note.
    pub fn read_on(&mut self) -> io::Result<Vec<Note>> {
        let mut notes = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == NOTES) {
                let offset = self.offsets.entry(path.clone()).or_default();
                read_file(&path, offset, &mut notes)?;
                if self.reclaims {
                    reclaim(&path, *offset);
                }
            }
        }
        notes.sort_by_key(|note| note.t);
        Ok(notes)
    }
}

fn read_file(path: &Path, offset: &mut u64, notes: &mut Vec<Note>) -> io::Result<()> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(*offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let wrong = |error| io::Error::other(format!("{}: {error}", path.display()));
        notes.push(serde_json::from_slice(line).map_err(wrong)?);
    }
    *offset += whole as u64;
    Ok(())
}

/// Not every file system can; then the file stays as it is.
fn reclaim(path: &Path, read: u64) {
    if let (1.., Ok(file)) = (read, File::options().write(true).open(path)) {
        let _ = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, read);
    }
}

/// Every note of every process, in order of time.
///
/// # Errors
/// As [`NoteReader::read_on`].
pub fn read_dir(dir: &Path) -> io::Result<Vec<Note>> {
    NoteReader::of(dir).read_on()
}

/// How long a thread of the meter sleeps, after what it notes a stall, and how often that it is alive.
const NAP: Duration = Duration::from_millis(5);
const STALL: u64 = 30_000_000;
const SIGN_OF_LIFE: u64 = 250_000_000;

/// A thread that notes when it was kept waiting, until it is dropped. Where a disk matters, a second one writes and
/// flushes a byte over and over: what a store on that disk has to wait for.
#[derive(Debug)]
pub struct StallMeter {
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl StallMeter {
    /// Begins to measure; with a file, its disk too.
    #[must_use]
    pub fn start(pen: &NoteWriter, disk: Option<File>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let (own, stop) = (pen.clone(), ended.clone());
        let mut threads = vec![std::thread::spawn(move || measure(&own, &stop, || std::thread::sleep(NAP)))];
        if let Some(mut file) = disk {
            let (own, stop) = (pen.clone(), ended.clone());
            let flush = move || {
                std::thread::sleep(4 * NAP);
                let _ = file.write_all(b".").and_then(|()| file.sync_data());
            };
            threads.push(std::thread::spawn(move || measure(&own, &stop, flush)));
        }
        Self { ended, threads }
    }
}

fn measure(pen: &NoteWriter, ended: &AtomicBool, mut moment: impl FnMut()) {
    let (mut last, mut sign) = (lease_nanos(), 0);
    while !ended.load(Ordering::Acquire) {
        moment();
        let now = lease_nanos();
        if now - last > STALL {
            pen.note_at(now, NoteKind::Stalled { from: last });
        }
        if now - sign > SIGN_OF_LIFE {
            pen.note_at(now, NoteKind::Alive);
            sign = now;
        }
        last = now;
    }
}

impl Drop for StallMeter {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

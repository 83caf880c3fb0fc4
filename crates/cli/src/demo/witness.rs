//! The overlap witness: what the leaders themselves wrote down while they led, and what follows from it.
//!
//! A trace says: at this instant I relied on leading this role under this token. A tenure is uninterrupted, so that it
//! lasted at least from its first trace to its last. If the spans of two tenures of one role meet, two led at once.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use tenure::{Name, Token};

/// One line of a witness file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trace {
    t: u64,
    node: Name,
    role: Name,
    token: Token,
}

/// The witness file of one process, from the inside.
#[derive(Debug)]
pub(super) struct Traces {
    file: File,
    node: Name,
}

impl Traces {
    /// Begins the file of a process.
    pub(super) fn create(dir: &Path, node: &Name, pid: u32) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path(dir, node, pid))?;
        Ok(Self { file, node: node.clone() })
    }

    /// One write for one trace: a process that is killed leaves all but its last one whole.
    pub(super) fn leave(&mut self, at: u64, role: &Name, token: Token) {
        let trace = Trace { t: at, node: self.node.clone(), role: role.clone(), token };
        let mut line = serde_json::to_vec(&trace).expect("a trace serialises");
        line.push(b'\n');
        // A trace that cannot be left is one trace less, never a wrong one.
        let _ = self.file.write_all(&line);
    }
}

fn path(dir: &Path, node: &Name, pid: u32) -> PathBuf {
    dir.join(format!("witness-{node}-{pid}.jsonl"))
}

/// The witness file of one process, from the outside.
#[derive(Debug)]
pub(super) struct Reading {
    path: PathBuf,
    /// Whose it is.
    pub(super) pid: u32,
    offset: u64,
}

impl Reading {
    /// Begins to read the file of a process, which may not be there yet.
    pub(super) fn new(dir: &Path, node: &Name, pid: u32) -> Self {
        Self { path: path(dir, node, pid), pid, offset: 0 }
    }

    /// Takes in what is new. What was taken in is given back to the disk, so that a long demo does not fill it.
    pub(super) fn read_on(&mut self, witness: &mut Witness) -> io::Result<()> {
        let mut file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        for line in bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let trace = serde_json::from_slice(line).map_err(io::Error::other)?;
            witness.take(&trace, self.pid);
        }
        self.offset += whole as u64;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if self.offset > 0 {
            // Not every file system can; then the file grows until the end of the demo.
            let _ = fallocate(&file, punch, 0, self.offset);
        }
        Ok(())
    }
}

/// A tenure as its traces show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) node: Name,
    pub(super) pid: u32,
    pub(super) token: Token,
    pub(super) first: u64,
    pub(super) last: u64,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, pid, token, first, last } = self;
        write!(f, "{node} (process {pid}) under token {token} from {first} to {last} ns")
    }
}

/// What must never be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Breach {
    /// Two tenures of a role met.
    Overlap { role: Name, one: Span, other: Span },
    /// A later tenure did not have a higher token.
    Token { role: Name, earlier: Span, later: Span },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { role, one, other } => {
                let nanos = one.last.min(other.last).saturating_sub(one.first.max(other.first));
                let both = Duration::from_nanos(nanos);
                write!(f, "two led {role} at once, for {both:?}: {one}, and {other}")
            }
            Self::Token { role, earlier, later } => {
                write!(f, "the token of {role} did not rise: {earlier}, then {later}")
            }
        }
    }
}

/// All traces of all processes, as spans.
#[derive(Debug, Default)]
pub(super) struct Witness {
    spans: BTreeMap<Name, BTreeMap<(Token, u32), Span>>,
    traces: u64,
}

impl Witness {
    fn take(&mut self, trace: &Trace, pid: u32) {
        self.traces += 1;
        let Trace { t, node, role, token } = trace;
        let fresh = || Span { node: node.clone(), pid, token: *token, first: *t, last: *t };
        let spans = self.spans.entry(role.clone()).or_default();
        let span = spans.entry((*token, pid)).or_insert_with(fresh);
        span.first = span.first.min(*t);
        span.last = span.last.max(*t);
    }

    /// How many traces there are.
    pub(super) fn traces(&self) -> u64 {
        self.traces
    }

    /// How many tenures left traces.
    pub(super) fn tenures(&self) -> usize {
        self.spans.values().map(BTreeMap::len).sum()
    }

    /// The most that ever led one role at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.spans.values().map(most_at_once).max().unwrap_or(0)
    }

    /// Everything that must never be, and was.
    pub(super) fn breaches(&self) -> Vec<Breach> {
        self.spans.iter().flat_map(|(role, spans)| breaches(role, spans)).collect()
    }
}

fn most_at_once(spans: &BTreeMap<(Token, u32), Span>) -> usize {
    // At the same instant beginnings come before ends: spans that touch have met.
    let begins = spans.values().map(|span| (span.first, false));
    let mut turns: Vec<(u64, bool)> = begins.chain(spans.values().map(|span| (span.last, true))).collect();
    turns.sort_unstable();
    let (mut now, mut most) = (0_usize, 0);
    for (_, ends) in turns {
        now = if ends { now - 1 } else { now + 1 };
        most = most.max(now);
    }
    most
}

fn breaches(role: &Name, spans: &BTreeMap<(Token, u32), Span>) -> Vec<Breach> {
    let mut by_time: Vec<&Span> = spans.values().collect();
    by_time.sort_by_key(|span| (span.first, span.token));
    let mut found = Vec::new();
    let mut longest: Option<&Span> = None;
    let mut highest: Option<&Span> = None;
    for span in by_time {
        if let Some(one) = longest.filter(|one| span.first <= one.last) {
            found.push(Breach::Overlap { role: role.clone(), one: one.clone(), other: span.clone() });
        }
        if let Some(earlier) = highest.filter(|earlier| span.token <= earlier.token) {
            found.push(Breach::Token { role: role.clone(), earlier: earlier.clone(), later: span.clone() });
        }
        longest = longest.filter(|one| one.last >= span.last).or(Some(span));
        highest = highest.filter(|earlier| earlier.token >= span.token).or(Some(span));
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// A witness of tenures given as (role, process, token, first, last).
    pub(in crate::demo) fn fabricated(tenures: &[(&str, u32, u64, u64, u64)]) -> Witness {
        let mut witness = Witness::default();
        for (role, pid, token, first, last) in tenures {
            for t in [*first, *last] {
                let node = name(&format!("node-{pid}"));
                witness.take(&Trace { t, node, role: name(role), token: Token(*token) }, *pid);
            }
        }
        witness
    }

    #[test]
    fn tenures_that_follow_each_other_are_no_breach() {
        let witness = fabricated(&[("a", 1, 1, 0, 10), ("a", 2, 2, 11, 20), ("b", 2, 1, 5, 15)]);
        assert_eq!(witness.breaches(), []);
        assert_eq!((witness.most_at_once(), witness.tenures(), witness.traces()), (1, 3, 6));
    }

    #[test]
    fn an_overlap_is_reported_with_its_evidence() {
        let witness = fabricated(&[("a", 1, 1, 0, 2_000_010), ("a", 2, 2, 10, 3_000_000)]);
        assert_eq!(witness.most_at_once(), 2);
        let told: Vec<String> = witness.breaches().iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "two led a at once, for 2ms: node-1 (process 1) under token 1 from 0 to 2000010 ns, and node-2 \
              (process 2) under token 2 from 10 to 3000000 ns"
            ]
        );
    }

    #[test]
    fn an_overlap_inside_a_long_tenure_is_found_behind_a_short_one() {
        let witness = fabricated(&[("a", 1, 1, 0, 100), ("a", 2, 2, 10, 20), ("a", 3, 3, 30, 40)]);
        let overlaps = witness.breaches();
        assert_eq!(overlaps.len(), 2, "{overlaps:?}");
        assert_eq!(witness.most_at_once(), 2);
    }

    #[test]
    fn spans_that_touch_have_met() {
        assert_eq!(fabricated(&[("a", 1, 1, 0, 10), ("a", 2, 2, 10, 20)]).most_at_once(), 2);
    }

    #[test]
    fn tokens_that_do_not_rise_are_reported() {
        let same = fabricated(&[("a", 1, 7, 0, 10), ("a", 2, 7, 20, 30)]);
        let lower = fabricated(&[("a", 1, 7, 0, 10), ("a", 2, 6, 20, 30)]);
        for witness in [same, lower] {
            assert!(matches!(witness.breaches()[..], [Breach::Token { .. }]));
            assert_eq!(witness.most_at_once(), 1);
        }
    }

    #[test]
    fn a_file_is_read_bit_by_bit_and_a_torn_line_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (node, role) = (name("node-1"), name("a"));
        let mut traces = Traces::create(dir.path(), &node, 9).unwrap();
        let mut reading = Reading::new(dir.path(), &node, 9);
        let mut witness = Witness::default();
        traces.leave(5, &role, Token(1));
        reading.read_on(&mut witness).unwrap();
        traces.leave(6, &role, Token(1));
        traces.file.write_all(br#"{"t":7,"node":"node-1","ro"#).unwrap();
        reading.read_on(&mut witness).unwrap();
        reading.read_on(&mut witness).unwrap();
        assert_eq!((witness.traces(), witness.tenures()), (2, 1));
    }

    #[test]
    fn a_file_that_is_not_there_yet_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut witness = Witness::default();
        Reading::new(dir.path(), &name("node-1"), 9).read_on(&mut witness).unwrap();
        assert_eq!(witness.traces(), 0);
    }
}

//! The witness: what a worker writes while it runs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One sign of life of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// When, in nanoseconds of the host's boot clock: read before this line was written.
    pub t: u64,
    /// What it works for.
    pub role: String,
    pub node: String,
    pub token: u64,
    pub pid: u32,
}

/// Nanoseconds of the host's boot clock, the same in every process.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Plays a worker for ever: beats every `pause` into a new file in `dir`. Role, node and token come from the
/// environment that `tenure run` gives its command.
///
/// # Panics
/// If the environment lacks them, which is what a test wants to know.
///
/// # Errors
/// If the file cannot be written.
pub fn work(dir: &Path, pause: Duration) -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is set"));
    let token = variable("TENURE_TOKEN").parse().expect("a token is a number");
    let mut beat = Beat {
        t: 0,
        role: variable("TENURE_ROLE"),
        node: variable("TENURE_NODE"),
        token,
        pid: std::process::id(),
    };
    let mut file = File::create(dir.join(format!("{}-{}-{}.beats", beat.role, beat.token, beat.pid)))?;
    loop {
        beat.t = now();
        let mut line = serde_json::to_vec(&beat)?;
        line.push(b'\n');
        // One write: a worker that is killed leaves whole lines, or one torn line at the end.
        file.write_all(&line)?;
        std::thread::sleep(pause);
    }
}

/// Every beat of every worker, in order of time. A torn last line is no beat.
///
/// # Errors
/// If a file cannot be read, or a line other than the last is not a beat.
pub fn read(dir: &Path) -> io::Result<Vec<Beat>> {
    let mut beats = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "beats") {
            continue;
        }
        let lines: Vec<String> = BufReader::new(File::open(&path)?).lines().collect::<io::Result<_>>()?;
        for (index, line) in lines.iter().enumerate() {
            match serde_json::from_str(line) {
                Ok(beat) => beats.push(beat),
                Err(_) if index + 1 == lines.len() => {}
                Err(error) => {
                    return Err(io::Error::other(format!("{}: line {}: {error}", path.display(), index + 1)));
                }
            }
        }
    }
    beats.sort_by_key(|beat: &Beat| beat.t);
    Ok(beats)
}

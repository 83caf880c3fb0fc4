//! Freezing a process on the embedded store between two of its writes.
//!
//! A process that is stopped in the middle of a write holds up all other writers of the file, and they let it go on after
//! two seconds. A freeze that is to last, and to be measured, must not hit it there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{major, minor};
use rustix::process::Signal;

/// How often a process is stopped and let go on before it is left where it was stopped last.
const ATTEMPTS: u32 = 500;

/// Stops a process (SIGSTOP) while it neither writes to the SQLite file nor waits for its turn to.
pub fn freeze_between_writes(pid: u32, database: &Path, signal: impl Fn(Signal)) {
    for _ in 0..ATTEMPTS {
        signal(Signal::STOP);
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        if !is_writing(pid, database) {
            return;
        }
        signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(Signal::STOP);
}

/// Whether every thread is stopped. A process that is gone counts as stopped.
fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let state = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    stats.filter_map(|stat| state(&stat)).all(|state| matches!(state, 'T' | 't' | 'Z' | 'X'))
}

/// Writers take turns by a `flock` on the file beside the database: `/proc/locks` lists those that have it and wait for it.
fn is_writing(pid: u32, database: &Path) -> bool {
    let notifier = format!("{}-notify", database.display());
    let (Ok(locks), Ok(file)) = (std::fs::read_to_string("/proc/locks"), std::fs::metadata(notifier)) else {
        return false;
    };
    let file = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    takes_turn(&locks, &pid.to_string(), &file)
}

/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF`, and `1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF` of one that waits.
fn takes_turn(locks: &str, pid: &str, file: &str) -> bool {
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().skip(1).filter(|field| *field != "->").collect();
        matches!(fields[..], ["FLOCK", _, _, by, on, ..] if by == pid && on == file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_write_and_those_that_wait_are_told_from_others() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4713 fe:00:123 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4714 fe:00:124 0 EOF\n";
        let found = |pid| takes_turn(locks, pid, "fe:00:123");
        assert_eq!(["4711", "4712", "4713", "4714"].map(found), [true, true, false, false]);
    }
}

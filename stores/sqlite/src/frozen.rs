//! A process that was stopped (SIGSTOP) in the middle of a write blocks all nodes: none can write to the file until
//! it goes on or dies, however long its lease is over. So a node that has waited long enough finds out which process has the turn, and
//! if that process is stopped, lets it go on. It finishes its write, finds its lease over, and stands again.
//!
//! Only what is stopped is touched, and only by SIGCONT: a process that a debugger holds, or a frozen control group, is
//! left alone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};
use rustix::process::{Pid, Signal, getpid, kill_process};

use tenure_store::kit::watches::lock;

/// So long is a write waited for before a process is woken: longer than any write takes.
const LIMIT: Duration = Duration::from_secs(2);

/// How long nothing has moved.
#[derive(Debug, Default)]
pub(super) struct Standstill {
    since: Mutex<Option<Instant>>,
}

impl Standstill {
    /// A write is still waited for. After a while the process that has the turn is looked at.
    pub(super) fn goes_on(&self, notifier: &Path) {
        let mut since = lock(&self.since);
        if since.get_or_insert_with(Instant::now).elapsed() >= LIMIT {
            *since = Some(Instant::now());
            wake_holder(notifier);
        }
    }

    /// A write was answered.
    pub(super) fn is_over(&self) {
        *lock(&self.since) = None;
    }
}

fn wake_holder(notifier: &Path) {
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return };
    let Ok(file) = fs::metadata(notifier) else { return };
    let file = format!("{:02x}:{:02x}:{}", major(file.dev()), minor(file.dev()), file.ino());
    if holders(&locks, &file).next().is_none() {
        tracing::warn!(
            "a process that cannot be seen from here holds up all others: one in another PID namespace (a container), which may \
             be stopped; send it SIGCONT there, or kill it"
        );
    }
    for pid in holders(&locks, &file).filter(|pid| *pid != getpid() && is_stopped(*pid)) {
        tracing::warn!(%pid, "a process stopped in the middle of a write holds up all others: letting it go on");
        if let Err(error) = kill_process(pid, Signal::CONT) {
            tracing::warn!(%pid, %error, "could not let it go on: send it SIGCONT, or kill it");
        }
    }
}

/// Who holds a `flock` on that file, as `/proc/locks` lists them: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF`.
fn holders<'a>(locks: &'a str, file: &'a str) -> impl Iterator<Item = Pid> + 'a {
    locks.lines().filter_map(move |line| {
        let mut fields = line.split_whitespace().skip(1);
        let (kind, _, _, pid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let holds = kind == "FLOCK" && fields.next()? == file;
        holds.then(|| pid.parse().ok().and_then(Pid::from_raw)).flatten()
    })
}

/// Whether a process is stopped by a signal: the letter after its name in parentheses.
fn is_stopped(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_told_from_those_who_wait_and_from_other_files() {
        let locks = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:123 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 4713 fe:00:123 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 4714 fe:00:124 0 EOF\n";
        let found: Vec<i32> = holders(locks, "fe:00:123").map(Pid::as_raw_pid).collect();
        assert_eq!(found, [4711]);
    }
}

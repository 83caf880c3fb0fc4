//! One child and everything it starts, as the watchdog sees it: from its start until nothing of it is left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, kill_process_group, pidfd_open,
    wait, waitid,
};

use crate::clock::{after, before};
use crate::spawn::spawn;
use crate::terminal;
use crate::tree::{self, SignalExceptions};
use crate::wire::{Exit, FromWatchdog, Start};

/// What is left behind by a child that ended on its own has this long to end too, or `stop_grace` if that is
/// less.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

/// The two margins of the lease; see [`GuardOptions`](super::GuardOptions).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margins {
    pub(crate) stop_grace: Duration,
    pub(crate) kill_slack: Duration,
}

/// How far the end of the child has come. It only ever advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Left alone while the lease lasts.
    Running,
    /// Told to end; killed at `kill_at`.
    Stopping { kill_at: u64 },
    /// Being killed, again and again until nothing is left.
    Killing,
}

/// A running child.
#[derive(Debug)]
pub(crate) struct Job {
    id: u64,
    /// The child; its pid is also the id of its group, and safe to signal until it is reaped.
    leader: Pid,
    /// Readable when the child has ended. Without one, for lack of descriptors, the watchdog looks now and
    /// then.
    handle: Option<OwnedFd>,
    deadline: u64,
    /// The time to stop has come, and no renewal counts any more.
    expired: bool,
    phase: Phase,
    exit: Option<Exit>,
    leftovers: bool,
    terminal_owner: Option<Pid>,
}

impl Job {
    /// Starts the command.
    pub(crate) fn start(start: &Start, stdin: &OwnedFd, nice: i32) -> io::Result<Self> {
        let leader = spawn(start, stdin, nice)?;
        let terminal_owner = start.terminal_owner.and_then(Pid::from_raw);
        if let Some(owner) = terminal_owner {
            terminal::give(stdin, owner, leader);
        }
        Ok(Self {
            id: start.job,
            leader,
            handle: pidfd_open(leader, PidfdFlags::empty()).ok(),
            deadline: start.deadline,
            expired: false,
            phase: Phase::Running,
            exit: None,
            leftovers: false,
            terminal_owner,
        })
    }

    /// A later deadline counts only while the old one was not yet near.
    pub(crate) fn renew(&mut self, deadline: u64) {
        if !self.expired {
            self.deadline = deadline;
        }
    }

    /// Passes a signal on to the child's group.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.exit.is_none() {
            // The leader is not reaped, so that the group is still ours; it may be empty of living processes.
            let _ = kill_process_group(self.leader, signal);
        }
    }

    /// Lets a stopped child go on, in front of the terminal if `owner` has it. In this order, so that a Ctrl-Z that comes at
    /// once is not undone.
    pub(crate) fn resume(&mut self, terminal: &OwnedFd, owner: Option<Pid>) {
        self.signal(Signal::CONT);
        if let Some(owner) = owner.filter(|_| self.exit.is_none()) {
            self.terminal_owner = Some(owner);
            terminal::give(terminal, owner, self.leader);
        }
    }

    /// The signal that stopped the child since the last look, if one did. The terminal goes back to its owner: a stopped
    /// group in front would leave it without a foreground group.
    pub(crate) fn stopped(&mut self, terminal: &OwnedFd) -> Option<i32> {
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let signal = waitid(WaitId::Pid(self.leader), look).ok()??.stopping_signal()?;
        if terminal::was_early(terminal, self.leader, signal) {
            self.signal(Signal::CONT);
            return None;
        }
        if let Some(owner) = self.terminal_owner {
            terminal::take_back(terminal, self.leader, owner);
        }
        Some(signal)
    }

    /// Asks the child to end, and sets the latest time for it. A stopped process hears it only when it goes
    /// on.
    pub(crate) fn stop(&mut self, kill_at: u64) {
        match self.phase {
            Phase::Running => {
                self.signal(Signal::TERM);
                self.signal(Signal::CONT);
                self.phase = Phase::Stopping { kill_at };
            }
            Phase::Stopping { kill_at: before } => {
                self.phase = Phase::Stopping { kill_at: kill_at.min(before) }
            }
            Phase::Killing => {}
        }
    }

    /// Kills at once; [`Job::advance`] goes on with it.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.phase = Phase::Killing;
    }

    /// Does what is due at `now`; the report when nothing is left of the child.
    pub(crate) fn advance(&mut self, now: u64, margins: Margins, terminal: &OwnedFd) -> Option<FromWatchdog> {
        if self.reap(terminal) {
            return Some(self.report());
        }
        if self.exit.is_some() && !self.leftovers {
            self.leftovers = true;
            self.end_leftovers();
            if self.phase == Phase::Running {
                self.stop(after(now, LEFTOVER_GRACE.min(margins.stop_grace)));
            }
        }
        if now >= before(self.deadline, margins.stop_grace) {
            self.expired = true;
            self.stop(u64::MAX);
        }
        if self.phase == Phase::Killing || now >= self.due(margins) {
            self.kill();
            tree::signal_all(Signal::KILL, &SignalExceptions::default());
        }
        None
    }

    /// Tells what the child left behind to end too; the members of its group may have been told already, and
    /// to many programs a second SIGTERM means "at once".
    fn end_leftovers(&self) {
        let notified_group = (self.phase != Phase::Running).then_some(self.leader);
        let except = SignalExceptions { group: notified_group, ..SignalExceptions::default() };
        tree::signal_all(Signal::TERM, &except);
        tree::signal_all(Signal::CONT, &except);
    }

    /// Reaps whatever has ended, the child and orphans of its descendants alike; true if nothing is left.
    fn reap(&mut self, terminal: &OwnedFd) -> bool {
        self.take_terminal_back(terminal);
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.leader => self.exit = Some(exit_of(status)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                // ECHILD: this process is a subreaper, so no child means no descendant.
                Err(_) => return true,
            }
        }
    }

    fn take_terminal_back(&mut self, terminal: &OwnedFd) {
        let Some(owner) = self.terminal_owner else { return };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(self.leader), look), Ok(Some(_))) {
            self.terminal_owner = None;
            terminal::take_back(terminal, self.leader, owner);
        }
    }

    fn report(&self) -> FromWatchdog {
        FromWatchdog::Reaped {
            job: self.id,
            exit: self.exit.unwrap_or(Exit::Signal(Signal::KILL.as_raw())),
            leftovers: self.leftovers,
            killed: self.phase == Phase::Killing,
            expired: self.expired,
        }
    }

    /// When time alone asks for the next step.
    pub(crate) fn due(&self, margins: Margins) -> u64 {
        match self.phase {
            Phase::Running => before(self.deadline, margins.stop_grace),
            Phase::Stopping { kill_at } => kill_at.min(before(self.deadline, margins.kill_slack)),
            Phase::Killing => u64::MAX,
        }
    }

    /// How long to wait at most when orphans may end, of which no descriptor tells.
    pub(crate) fn tick(&self) -> Option<Duration> {
        match self.phase {
            Phase::Killing => Some(Duration::from_millis(1)),
            _ if self.handle().is_none() => Some(Duration::from_millis(5)),
            _ => None,
        }
    }

    /// Readable when the child has ended; nothing to wait for once that is known.
    pub(crate) fn handle(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().filter(|_| self.exit.is_none()).map(AsFd::as_fd)
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn pid(&self) -> i32 {
        self.leader.as_raw_pid()
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Signal(Signal::KILL.as_raw()),
    }
}

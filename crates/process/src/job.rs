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
use crate::gate::{Gate, Passage, Refusal};
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
    /// The gate that the child passed, until it is known whether it could execute the command.
    gate: Option<(Gate, Box<Start>)>,
    /// Why no command was executed.
    not_executed: Option<NotExecuted>,
}

/// What passed the gate and did not become the command.
#[derive(Debug)]
enum NotExecuted {
    Refused(Refusal),
    /// It was killed: the command is still to be started.
    Vanished(Box<Start>),
}

/// The end of a job.
pub(crate) enum JobEnd {
    /// The elector is told so.
    Report(FromWatchdog),
    /// Nothing was executed, nor ended for a reason of its own: the command is still to be started.
    StartAgain(Box<Start>),
}

impl Job {
    /// Starts the command.
    pub(crate) fn start(start: &Start, stdin: &OwnedFd, nice: i32) -> io::Result<Self> {
        let leader = spawn(start, stdin, nice)?;
        let job = Self::new(start, leader, pidfd_open(leader, PidfdFlags::empty()).ok());
        job.give_terminal(stdin);
        Ok(job)
    }

    /// The command is to be what waits at the gate; nothing runs before [`Job::open_gate`].
    pub(crate) fn behind(mut gate: Gate, start: Box<Start>) -> Self {
        let (leader, handle) = (gate.process, gate.handle.take());
        let mut job = Self::new(&start, leader, handle);
        job.gate = Some((gate, start));
        job
    }

    fn new(start: &Start, leader: Pid, handle: Option<OwnedFd>) -> Self {
        Self {
            id: start.job,
            leader,
            handle,
            deadline: start.deadline,
            expired: false,
            phase: Phase::Running,
            exit: None,
            leftovers: false,
            terminal_owner: start.terminal_owner.and_then(Pid::from_raw),
            gate: None,
            not_executed: None,
        }
    }

    /// Opens the gate, and makes the command the owner of the terminal. The deadline of this job is armed.
    ///
    /// # Errors
    /// If what waits there is gone or stuck: [`Job::discard`] is next.
    pub(crate) fn open_gate(&self, margins: Margins, stdin: &OwnedFd) -> io::Result<()> {
        if let Some((gate, start)) = &self.gate {
            gate.open(start, before(start.deadline, margins.stop_grace), stdin)?;
            self.give_terminal(stdin);
        }
        Ok(())
    }

    /// What was to pass the gate has executed nothing: what is to be started instead, once it is reaped.
    pub(crate) fn discard(self) -> Option<Box<Start>> {
        let (gate, start) = self.gate?;
        gate.discard();
        Some(start)
    }

    fn give_terminal(&self, stdin: &OwnedFd) {
        if let Some(owner) = self.terminal_owner {
            terminal::give(stdin, owner, self.leader);
        }
    }

    /// True once, when it is known that the child passed the gate and executes the command.
    pub(crate) fn passed_gate(&mut self) -> bool {
        let Some(passage) = self.gate.as_mut().and_then(|(gate, _)| gate.passage()) else { return false };
        let start = self.gate.take().map(|(_, start)| start);
        self.not_executed = match passage {
            Passage::Executed => return true,
            Passage::Refused(refusal) => Some(NotExecuted::Refused(refusal)),
            Passage::Vanished => start.map(NotExecuted::Vanished),
        };
        false
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

    /// Does what is due at `now`; true when nothing is left of the child.
    pub(crate) fn advance(&mut self, now: u64, margins: Margins, terminal: &OwnedFd) -> bool {
        if self.reap(terminal) {
            return true;
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
        false
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

    /// What follows when nothing is left of the child.
    pub(crate) fn end(self) -> JobEnd {
        match self.not_executed {
            Some(NotExecuted::Refused(refusal)) => JobEnd::Report(refusal.report(self.id)),
            Some(NotExecuted::Vanished(start)) if self.phase == Phase::Running => JobEnd::StartAgain(start),
            _ => JobEnd::Report(FromWatchdog::Reaped {
                job: self.id,
                exit: self.exit.unwrap_or(Exit::Signal(Signal::KILL.as_raw())),
                leftovers: self.leftovers,
                killed: self.phase == Phase::Killing,
                expired: self.expired,
            }),
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

    /// Readable when it is known what came of the gate.
    pub(crate) fn gate(&self) -> Option<BorrowedFd<'_>> {
        self.gate.as_ref().map(|(gate, _)| gate.as_fd())
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

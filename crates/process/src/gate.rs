//! The gate: a process that is started before the election and becomes the command after it.
//!
//! To start a command takes a fork and an exec, which a hand-over waits for. So a standby keeps one process ahead: a copy of
//! the watchdog that waits on a socket, knows no command, holds no lock and has none of the watchdog's descriptors. It is a
//! copy because a copy has little memory of its own, which the exec would have to free. The watchdog opens the gate for a
//! tenure whose deadline it has armed: it sends the command, with its environment, and the process executes it. There is no
//! other way past the gate: if the watchdog or the elector dies, the socket closes or the kernel kills the process, and it
//! ends without having executed anything.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid};
use rustix::stdio::stdin;
use serde::{Deserialize, Serialize};

use crate::clock::lease_now;
use crate::spawn::{command_of, fork_bound};
use crate::wire::{FrameSocket, FromWatchdog, Start};

/// What the process is called until it becomes the command. As for the watchdog, "tenure" is not in it.
pub(crate) const NAME: &str = "lease-gate";

/// Exit code of a process that never got to be the command.
pub(crate) const NOT_OPENED: i32 = 70;

/// What the watchdog sends to open the gate; the standard input of the command comes with it.
#[derive(Debug, Serialize, Deserialize)]
struct Opening<S> {
    start: S,
    /// No command is executed from then on.
    start_by: u64,
}

/// What the process says once the gate is open.
#[derive(Debug, Serialize, Deserialize)]
enum GateReport {
    /// It executes the command now. If that succeeds its end of the socket closes, and it says no more.
    Executing,
    Refused(Refusal),
}

/// What came of an opened gate.
#[derive(Debug)]
pub(crate) enum Passage {
    /// The command was executed.
    Executed,
    /// It was not, and why.
    Refused(Refusal),
    /// The process ended before it executed anything.
    Vanished,
}

/// Why the process did not become the command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// The lease is too short by now: the process was frozen, or starved.
    TooLate,
    /// The command cannot be executed.
    Failed { errno: Option<i32>, message: String },
}

impl Refusal {
    /// What the elector is told.
    pub(crate) fn report(self, job: u64) -> FromWatchdog {
        match self {
            Self::TooLate => FromWatchdog::TooLate { job },
            Self::Failed { errno, message } => FromWatchdog::StartFailed { job, errno, message },
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Failed { errno: error.raw_os_error(), message: error.to_string() }
    }
}

/// A process that waits at the gate, as the watchdog sees it.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) process: Pid,
    /// Readable when the process has ended; none for lack of descriptors.
    pub(crate) handle: Option<OwnedFd>,
    link: FrameSocket,
    executing: bool,
}

impl Gate {
    /// Starts a process that waits, in a group of its own, with priority `nice`.
    pub(crate) fn prepare(nice: i32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let process = fork_bound(nice, theirs, wait_at_gate)?;
        let handle = pidfd_open(process, PidfdFlags::empty()).ok();
        Ok(Self { process, handle, link: FrameSocket::new(ours, Duration::ZERO), executing: false })
    }

    /// Opens the gate: the caller has armed the deadline of this start. A process that was stopped goes on; it executes
    /// nothing from `start_by` on.
    ///
    /// # Errors
    /// If the process is gone, or does not take in what it is sent: then it has executed nothing.
    pub(crate) fn open(&self, start: &Start, start_by: u64, stdin: &OwnedFd) -> io::Result<()> {
        self.link.send(&Opening { start, start_by }, Some(stdin.as_fd()))?;
        // It is not reaped, so that the pid is still its own.
        let _ = kill_process(self.process, Signal::CONT);
        Ok(())
    }

    /// What came of an opened gate, once that is known.
    pub(crate) fn passage(&mut self) -> Option<Passage> {
        let open = self.link.fill().unwrap_or(false);
        while let Ok(Some(report)) = self.link.next() {
            match report {
                GateReport::Executing => self.executing = true,
                GateReport::Refused(refusal) => return Some(Passage::Refused(refusal)),
            }
        }
        let closed = if self.executing { Passage::Executed } else { Passage::Vanished };
        (!open).then_some(closed)
    }

    /// Whether the process has ended; then it is reaped.
    pub(crate) fn is_gone(&self) -> bool {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        !matches!(waitid(WaitId::Pid(self.process), look), Ok(None))
    }

    /// Ends the process, and returns when it is reaped.
    pub(crate) fn discard(self) {
        let _ = kill_process(self.process, Signal::KILL);
        let look = WaitIdOptions::EXITED;
        while matches!(waitid(WaitId::Pid(self.process), look), Err(Errno::INTR)) {}
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// True if this process was started to wait at a gate.
pub(crate) fn is_gated() -> bool {
    let mut args = std::env::args_os();
    args.next().as_deref() == Some(OsStr::new(NAME)) && args.next().is_none()
}

/// The same process started by itself, with the socket to the watchdog on standard input: tests stand in for the watchdog.
pub(crate) fn main() -> ! {
    if let Ok(socket) = fcntl_dupfd_cloexec(stdin(), 3) {
        wait_at_gate(socket);
    }
    std::process::exit(NOT_OPENED)
}

/// The whole life of the process until it is the command; returns if there is none to be.
fn wait_at_gate(socket: OwnedFd) {
    // Only a name, by which people know it.
    let _ = std::fs::write("/proc/self/comm", NAME);
    rehearse();
    let mut link = FrameSocket::new(socket, Duration::ZERO);
    // Without a word from the watchdog there is nothing to execute, and no party to tell.
    if let Ok(opening) = wait_for_opening(&mut link) {
        let refusal = execute(&opening, &mut link);
        let _ = link.send(&GateReport::Refused(refusal), None);
    }
}

/// Does once in vain what it will do: a page that a copy writes to for the first time costs time, which an election waits for.
fn rehearse() {
    let start = Start::default();
    let opening = serde_json::to_vec(&Opening { start: &start, start_by: 0 }).unwrap_or_default();
    if let Ok(opening) = serde_json::from_slice::<Opening<Start>>(&opening)
        && let Ok(stdin) = stdin().try_clone_to_owned()
    {
        let _ = command_of(&opening.start, stdin);
        let _ = std::env::vars_os().count();
    }
}

fn wait_for_opening(link: &mut FrameSocket) -> io::Result<Opening<Start>> {
    loop {
        let mut fds = [PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, None);
        let open = link.fill()?;
        match link.next()? {
            Some(opening) => return Ok(opening),
            None if open => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Becomes the command; returns only why it did not.
fn execute(opening: &Opening<Start>, link: &mut FrameSocket) -> Refusal {
    let stdin = match link.take_fd() {
        Ok(stdin) => stdin,
        Err(error) => return error.into(),
    };
    if lease_now() >= opening.start_by {
        return Refusal::TooLate;
    }
    let mut command = command_of(&opening.start, stdin);
    if let Err(error) = link.send(&GateReport::Executing, None) {
        return error.into();
    }
    command.exec().into()
}

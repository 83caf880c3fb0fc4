//! The protocol between the guard thread and the watchdog: small frames of JSON on a Unix stream socket, a few of
//! which carry a file descriptor.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::time::Timespec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// From the guard thread to the watchdog. `job` numbers the children, so that nothing meant for one reaches the
/// next.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWatchdog {
    /// The first word; carries the standard input of children.
    Hello { stop_grace: Duration, kill_slack: Duration },
    /// Carries a lock file's descriptor, to be held in place of the one before.
    Lock,
    /// Lets go of the lock file.
    Unlock,
    /// Start a process that waits for the next command, unless there is one or a command runs.
    Prepare,
    /// Answer this. It goes ahead of a start, which may be long and take a while.
    Ping { ping: u64 },
    /// Start a command.
    Start(Box<Start>),
    /// The lease now lasts until `deadline`; answer `ping`.
    Renew { job: u64, deadline: u64, ping: u64 },
    /// Send a signal to the child's group.
    Signal { job: u64, signal: i32 },
    /// Let a stopped child go on, in front of the terminal if its owner has that to give.
    Continue { job: u64, terminal_owner: Option<i32> },
    /// SIGTERM now, SIGKILL after `grace`.
    Stop { job: u64, grace: Duration },
    /// SIGKILL now.
    Kill { job: u64 },
}

/// A command to start.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) job: u64,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) deadline: u64,
    /// The group that gets the terminal back when the child is gone, if the child is to be given it.
    pub(crate) terminal_owner: Option<i32>,
}

/// From the watchdog to the guard thread.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWatchdog {
    /// The watchdog is up and its guarantees hold from here on.
    Ready,
    /// The lock file is held (or let go of).
    LockSet,
    /// The child runs; its pid is also its group.
    Started { job: u64, pid: i32 },
    /// The child was stopped by this signal, as by Ctrl-Z; the terminal is back with its owner.
    Stopped { job: u64, signal: i32 },
    /// The lease is too short to start the child.
    TooLate { job: u64 },
    /// The child could not be started; nothing of it is left.
    StartFailed { job: u64, errno: Option<i32>, message: String },
    /// The child and everything it started are gone.
    Reaped { job: u64, exit: Exit, leftovers: bool, killed: bool, expired: bool },
    /// The answer to a renewal or a ping.
    Pong { ping: u64 },
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The watchdog died or froze, so that everything was killed.
    WatchdogLost,
}

impl Exit {
    /// The exit code by which a shell would report it; none if there is no such convention.
    #[must_use]
    pub fn shell_code(self) -> Option<i32> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(signal) => Some(128 + signal),
            Self::WatchdogLost => None,
        }
    }
}

/// Descriptors per message; more than one is never sent.
const FDS: usize = 4;
/// A frame larger than this is a fault; the kernel's own limit on arguments is 2 MiB, fourfold as JSON.
const MAX_FRAME: usize = 32 << 20;

/// One end of the socket, never blocking for longer than its patience.
#[derive(Debug)]
pub(crate) struct FrameSocket {
    socket: OwnedFd,
    patience: Duration,
    inbox: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

impl FrameSocket {
    /// Takes a non-blocking stream socket; a send gives up after `patience` if the other side does not read.
    pub(crate) fn new(socket: OwnedFd, patience: Duration) -> Self {
        Self { socket, patience, inbox: Vec::new(), fds: VecDeque::new() }
    }

    /// Sends one message, with `fd` if there is one.
    pub(crate) fn send(&self, message: &impl Serialize, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.send_bytes(&frame(message)?, fd)
    }

    /// Sends two messages at once: the other side wakes up once.
    pub(crate) fn send_both(&self, first: &impl Serialize, second: &impl Serialize) -> io::Result<()> {
        let mut frames = frame(first)?;
        frames.append(&mut frame(second)?);
        self.send_bytes(&frames, None)
    }

    fn send_bytes(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.send_some(&bytes[sent..], fd.filter(|_| sent == 0)) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN) => self.wait_writable()?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> rustix::io::Result<usize> {
        let fds = fd.as_slice();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "there is room for one descriptor");
        }
        sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn wait_writable(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        match poll(&mut fds, Some(&timespec(self.patience))) {
            Ok(0) => Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads whatever has arrived; false once the other side is gone.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 8192];
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut chunk)], &mut control, flags) {
                Ok(message) => {
                    for item in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(fds) = item {
                            self.fds.extend(fds);
                        }
                    }
                    if message.bytes == 0 {
                        return Ok(false);
                    }
                    self.inbox.extend_from_slice(&chunk[..message.bytes]);
                }
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next whole message that has arrived.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(head) = self.inbox.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::other(format!("a frame of {length} bytes is no message of ours")));
        }
        let Some(body) = self.inbox.get(4..4 + length) else { return Ok(None) };
        let message = serde_json::from_slice(body)?;
        self.inbox.drain(..4 + length);
        Ok(Some(message))
    }

    /// The descriptor that came with the message just read.
    pub(crate) fn take_fd(&mut self) -> io::Result<OwnedFd> {
        self.fds.pop_front().ok_or_else(|| io::Error::other("the message came without its descriptor"))
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message as it is sent: its length, and then itself.
fn frame(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| io::Error::other("the message is too long"))?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// A span for `poll` and timers.
pub(crate) fn timespec(span: Duration) -> Timespec {
    Timespec::try_from(span).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (FrameSocket, FrameSocket) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (FrameSocket::new(a, Duration::ZERO), FrameSocket::new(b, Duration::ZERO))
    }

    #[test]
    fn a_descriptor_arrives_with_its_message_and_closes_on_exec() {
        let (here, mut there) = pair();
        let file = tempfile::tempfile().unwrap();
        here.send_both(&ToWatchdog::Prepare, &ToWatchdog::Unlock).unwrap();
        here.send(&ToWatchdog::Lock, Some(file.as_fd())).unwrap();
        assert!(there.fill().unwrap());
        assert!(matches!(there.next::<ToWatchdog>().unwrap(), Some(ToWatchdog::Prepare)));
        assert!(matches!(there.next::<ToWatchdog>().unwrap(), Some(ToWatchdog::Unlock)));
        assert!(matches!(there.next::<ToWatchdog>().unwrap(), Some(ToWatchdog::Lock)));
        let fd = there.take_fd().unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(there.next::<ToWatchdog>().unwrap().is_none());
    }

    #[test]
    fn half_a_frame_waits_for_the_rest_and_the_end_is_seen() {
        let (here, mut there) = pair();
        rustix::io::write(&here, &[0, 0, 0, 8, b'"', b'U']).unwrap();
        assert!(there.fill().unwrap());
        assert!(there.next::<ToWatchdog>().unwrap().is_none());
        rustix::io::write(&here, b"nlock\"").unwrap();
        assert!(there.fill().unwrap());
        assert!(matches!(there.next::<ToWatchdog>().unwrap(), Some(ToWatchdog::Unlock)));
        drop(here);
        // A process that another test forks has a copy of it until it executes its program.
        while there.fill().unwrap() {
            let mut readable = [PollFd::new(&there.socket, PollFlags::IN)];
            poll(&mut readable, None).unwrap();
        }
    }

    #[test]
    fn a_peer_that_does_not_read_is_not_waited_for_for_ever() {
        let (here, _there) = pair();
        let big = FromWatchdog::StartFailed { job: 1, errno: None, message: "x".repeat(8 << 20) };
        assert_eq!(here.send(&big, None).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}

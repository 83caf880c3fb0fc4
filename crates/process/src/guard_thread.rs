//! The elector's end of the watchdog, and the thread that does the watchdog's work if it is lost.
//!
//! A caller sends what it asks for itself, and a caller that waits for its child hears what the watchdog reports: an election
//! does not wait until another thread wakes up. Otherwise the thread hears it, and it sees whether the watchdog lives: a thread
//! and not a task, so that a busy runtime does not delay it. A
//! watchdog that dies, does not answer a renewal, or has not reported the child's end when the deadline is all but there, is
//! lost: it is killed, and the whole tree, which this process inherits as a subreaper, with it.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as StdCommand, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{after, before, lease_now};
use crate::guard::{Ended, GuardError, GuardOptions};
use crate::job::Margins;
use crate::spawn::Command;
use crate::wire::{FrameSocket, FromWatchdog, Start, ToWatchdog, timespec};
use crate::{environment, terminal, tree, watchdog};

/// Where an answer goes.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, GuardError>>;

/// What the async side asks for.
#[derive(Debug)]
pub(crate) enum Request {
    SetLock(Option<OwnedFd>, ReplySender<()>),
    Prepare,
    Start {
        command: Box<Command>,
        deadline: u64,
        reply: ReplySender<(u64, i32)>,
        ended: oneshot::Sender<Ended>,
        stops: mpsc::UnboundedSender<i32>,
    },
    Renew {
        job: u64,
        deadline: u64,
    },
    Signal {
        job: u64,
        signal: i32,
    },
    Continue {
        job: u64,
    },
    Stop {
        job: u64,
        grace: Duration,
    },
    Kill {
        job: u64,
    },
    Close(ReplySender<()>),
}

/// Asks the watchdog, and wakes the guard thread, which then knows by when an answer has to come.
#[derive(Debug, Clone)]
pub(crate) struct GuardHandle {
    shared: Arc<Mutex<Option<GuardLink>>>,
    wakeup: Arc<OwnedFd>,
    /// Closed when the watchdog and everything below it is gone.
    alive: watch::Receiver<()>,
}

impl GuardHandle {
    /// Asks without waiting; nothing happens if the watchdog is gone, since then the child is too.
    pub(crate) fn send(&self, request: Request) {
        let mut shared = lock(&self.shared);
        let Some(link) = shared.as_mut() else { return };
        // After half a message nothing that follows can be understood. The answer comes with the end.
        link.broken = link.broken || link.handle_request(request).is_err();
        drop(shared);
        self.wake();
    }

    /// For a caller that hears what the watchdog says itself; none if the watchdog is gone, or descriptors are.
    pub(crate) fn listen(&self) -> Option<ReportListener> {
        let mut shared = lock(&self.shared);
        let link = shared.as_mut()?;
        let socket = UnixStream::from_std(link.socket.as_fd().try_clone_to_owned().ok()?.into()).ok()?;
        link.listeners += 1;
        Some(ReportListener { socket, shared: Arc::clone(&self.shared) })
    }

    /// Takes in what the watchdog says, as the guard thread does. Cancel-safe.
    pub(crate) async fn take_reports(&self, listener: Option<&ReportListener>) -> Infallible {
        while let Some(ReportListener { socket, .. }) = listener
            && socket.readable().await.is_ok()
        {
            // There is more to read only when the socket says so again.
            let _ =
                socket.try_io(Interest::READABLE, || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into()));
            let mut shared = lock(&self.shared);
            let Some(link) = shared.as_mut() else { break };
            if link.take_reports().is_err() {
                // The watchdog is lost: what to do about that is the thread's.
                link.broken = true;
            }
            // The thread may have slept through what was read here.
            if link.broken || link.closing.is_some() {
                self.wake();
            }
            if link.broken {
                break;
            }
        }
        pending().await
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wakeup, &1_u64.to_ne_bytes());
    }

    /// Asks and waits for the answer. That the watchdog is lost it says when nothing is left below it.
    pub(crate) async fn request<T>(
        &self,
        request: impl FnOnce(ReplySender<T>) -> Request,
    ) -> Result<T, GuardError> {
        let (reply, answer) = oneshot::channel();
        self.send(request(reply));
        if let Ok(answer) = answer.await {
            return answer;
        }
        self.gone().await;
        Err(GuardError::Lost)
    }

    /// Returns when the watchdog, and everything it had started, is gone. Cancel-safe.
    pub(crate) async fn gone(&self) {
        let mut alive = self.alive.clone();
        while alive.changed().await.is_ok() {}
    }
}

/// The watchdog's socket as a caller hears it.
#[derive(Debug)]
pub(crate) struct ReportListener {
    socket: UnixStream,
    shared: Arc<Mutex<Option<GuardLink>>>,
}

impl Drop for ReportListener {
    /// The guard thread is not woken: a caller that expects an answer after this asks for it, which wakes the thread.
    fn drop(&mut self) {
        if let Some(link) = lock(&self.shared).as_mut() {
            link.listeners -= 1;
        }
    }
}

/// A watchdog has this long to come up.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);
/// And at least this long to answer a renewal or to leave when told.
const MIN_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct GuardThread {
    options: GuardOptions,
    watchdog: Child,
    handle: OwnedFd,
    /// Another descriptor of the link's socket, to wait on.
    socket: OwnedFd,
    wakeup: Arc<OwnedFd>,
    /// Children that this process had before: none of the watchdog's business.
    other_children: BTreeSet<i32>,
    /// None once it is over.
    shared: Arc<Mutex<Option<GuardLink>>>,
    _alive: watch::Sender<()>,
}

/// The socket to the watchdog, what was asked there, and what came of it.
#[derive(Debug)]
pub(crate) struct GuardLink {
    margins: Margins,
    socket: FrameSocket,
    watchdog: u32,
    ready: Option<ReplySender<u32>>,
    locks: VecDeque<ReplySender<()>>,
    job: Option<GuardedJob>,
    /// A start that waits for a dropped child to be gone.
    queued: Option<Request>,
    jobs: u64,
    pings: u64,
    /// The last of them that was answered.
    answered: u64,
    /// The watchdog has to have said something by then.
    answer_by: Option<u64>,
    /// Asked to end, and by whom.
    closing: Option<ReplySender<()>>,
    /// Something could not be sent.
    broken: bool,
    /// So many callers hear what the watchdog says themselves.
    listeners: usize,
}

#[derive(Debug)]
struct GuardedJob {
    id: u64,
    program: String,
    deadline: u64,
    started: Option<ReplySender<(u64, i32)>>,
    ended: oneshot::Sender<Ended>,
    stops: mpsc::UnboundedSender<i32>,
}

impl GuardedJob {
    /// It did not start.
    fn refuse(self, error: GuardError) {
        if let Some(reply) = self.started {
            let _ = reply.send(Err(error));
        }
    }
}

impl GuardThread {
    /// Starts the thread, which starts the watchdog: the process whose thread starts it gets to be its
    /// parent, and this thread lives as long as the guard.
    pub(crate) fn launch(
        options: GuardOptions,
    ) -> io::Result<(GuardHandle, oneshot::Receiver<Result<u32, GuardError>>)> {
        let shared = Arc::default();
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (here, alive) = watch::channel(());
        let handle = GuardHandle { shared: Arc::clone(&shared), wakeup: Arc::clone(&wakeup), alive };
        let (ready, answer) = oneshot::channel();
        std::thread::Builder::new().name("guard".into()).spawn(move || {
            match Self::start_watchdog(options, wakeup, shared, here) {
                Ok((thread, socket)) => {
                    *lock(&thread.shared) =
                        Some(GuardLink::new(&thread.options, socket, thread.watchdog.id(), ready));
                    thread.run();
                }
                Err(error) => drop(ready.send(Err(GuardError::Launch(error)))),
            }
        })?;
        Ok((handle, answer))
    }

    fn start_watchdog(
        mut options: GuardOptions,
        wakeup: Arc<OwnedFd>,
        shared: Arc<Mutex<Option<GuardLink>>>,
        here: watch::Sender<()>,
    ) -> io::Result<(Self, FrameSocket)> {
        set_child_subreaper(Some(getpid()))?;
        let other_children = tree::own_children();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let mut command = StdCommand::new(&options.binary);
        // What the watchdog does not have, nothing that it starts inherits.
        environment::scrub(&mut command);
        command.arg0(watchdog::NAME).stdin(Stdio::from(theirs)).process_group(0);
        // Kept open here it would never end for its reader.
        if let Some(stderr) = options.stderr.take() {
            command.stderr(Stdio::from(stderr.try_clone()?));
        }
        let watchdog = command.spawn()?;
        drop(command);
        let handle = pidfd_open(Pid::from_child(&watchdog), PidfdFlags::empty())?;
        let socket = FrameSocket::new(ours, answer_timeout(options.stop_grace));
        let hello = ToWatchdog::Hello { stop_grace: options.stop_grace, kill_slack: options.kill_slack };
        socket.send(&hello, Some(rustix::stdio::stdin()))?;
        let ours = socket.as_fd().try_clone_to_owned()?;
        let thread =
            Self { options, watchdog, handle, socket: ours, wakeup, other_children, shared, _alive: here };
        Ok((thread, socket))
    }

    fn run(self) {
        let asked = loop {
            match self.poll_once() {
                Ok(false) => {}
                Ok(true) => break true,
                Err(_) => break false,
            }
        };
        self.shutdown(asked);
    }

    /// One round: whether the guard was asked to end, and nothing runs any more. An error means that the watchdog is lost.
    fn poll_once(&self) -> io::Result<bool> {
        self.sleep()?;
        let _ = rustix::io::read(&*self.wakeup, &mut [0; 8]);
        let mut shared = lock(&self.shared);
        let Some(link) = shared.as_mut() else { return Ok(true) };
        link.take_reports()?;
        Ok(link.closing.is_some() && link.job.is_none())
    }

    fn sleep(&self) -> io::Result<()> {
        let (act_by, heard) = match lock(&self.shared).as_ref() {
            Some(link) => (link.act_by(), link.is_heard()),
            None => (None, false),
        };
        let left = act_by.map(|at| Duration::from_nanos(at.saturating_sub(lease_now())));
        let fds = [self.wakeup.as_fd(), self.handle.as_fd(), self.socket.as_fd()];
        let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        let awaited = if heard { &mut fds[..2] } else { &mut fds[..] };
        match poll(awaited, left.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sees the watchdog and everything below it dead, and then tells the caller that waits. A watchdog that is asked
    /// to leave does it by itself.
    fn shutdown(self, asked: bool) {
        let Self { options, mut watchdog, handle, socket, other_children, shared, _alive, .. } = self;
        drop(socket);
        // A caller that waits for an answer hears that the watchdog is lost when nothing is left below it.
        let Some(link) = lock(&shared).take() else { return };
        let GuardLink { socket, job, closing, ready: _ready, locks: _locks, queued: _queued, .. } = link;
        drop(socket);
        if asked {
            let mut fds = [PollFd::new(&handle, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&timespec(answer_timeout(options.stop_grace))));
        }
        let left = asked && matches!(watchdog.try_wait(), Ok(Some(status)) if status.success());
        if !left {
            // Not reaped yet, so the pid is still its own.
            let _ = watchdog.kill();
            let _ = watchdog.wait();
            // One that left as it should has seen everything below it dead; other guards have theirs here too.
            tree::kill_all(other_children);
        }
        if let Some(job) = job {
            let _ = job.ended.send(Ended::LOST);
        }
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }
}

impl GuardLink {
    fn new(options: &GuardOptions, socket: FrameSocket, watchdog: u32, ready: ReplySender<u32>) -> Self {
        Self {
            margins: Margins { stop_grace: options.stop_grace, kill_slack: options.kill_slack },
            socket,
            watchdog,
            ready: Some(ready),
            locks: VecDeque::new(),
            job: None,
            queued: None,
            jobs: 0,
            pings: 0,
            answered: 0,
            answer_by: Some(after(lease_now(), LAUNCH_TIMEOUT)),
            closing: None,
            broken: false,
            listeners: 0,
        }
    }

    /// Takes in what the watchdog has said. An error means that it is lost.
    fn take_reports(&mut self) -> io::Result<()> {
        let open = self.socket.fill()?;
        while let Some(report) = self.socket.next()? {
            self.handle_report(report)?;
        }
        let overdue = self.act_by().is_some_and(|at| lease_now() >= at);
        if !open || overdue || self.broken { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    /// When silence becomes a loss: an answer is late, or half the slack has passed and the child is not
    /// reaped.
    fn act_by(&self) -> Option<u64> {
        let end = self.job.as_ref().map(|job| before(job.deadline, self.margins.kill_slack / 2));
        [self.answer_by, end].into_iter().flatten().min()
    }

    /// Whether all that may come is for a caller who hears it: then the guard thread leaves it to them. It would wake up for it too,
    /// and take the caller's processor.
    fn is_heard(&self) -> bool {
        let starts = self.queued.is_some() || self.job.as_ref().is_some_and(|job| job.started.is_some());
        self.listeners > 0 && self.answer_by.is_none() && self.closing.is_none() && !starts && !self.broken
    }

    fn handle_report(&mut self, report: FromWatchdog) -> io::Result<()> {
        match report {
            FromWatchdog::Ready => {
                self.answer_by = None;
                if let Some(ready) = self.ready.take() {
                    let _ = ready.send(Ok(self.watchdog));
                }
            }
            FromWatchdog::LockSet => {
                if let Some(reply) = self.locks.pop_front() {
                    let _ = reply.send(Ok(()));
                }
                self.expect_more();
            }
            FromWatchdog::Pong { ping } => {
                self.answered = self.answered.max(ping);
                self.expect_more();
            }
            FromWatchdog::Stopped { signal, .. } => {
                if let Some(job) = &self.job {
                    let _ = job.stops.send(signal);
                }
            }
            FromWatchdog::TooLate { .. } => {
                if let Some(job) = self.job.take() {
                    job.refuse(GuardError::TooLate);
                }
            }
            FromWatchdog::Started { job, pid } => {
                let reply = self.job.as_mut().and_then(|job| job.started.take());
                // The caller may have stopped waiting; then no caller owns the child.
                if reply.is_some_and(|reply| reply.send(Ok((job, pid))).is_err()) {
                    return self.socket.send(&ToWatchdog::Kill { job }, None);
                }
            }
            FromWatchdog::StartFailed { errno, message, .. } => self.start_failed(errno, message),
            FromWatchdog::Reaped { exit, leftovers, killed, expired, .. } => {
                if let Some(job) = self.job.take() {
                    let _ = job.ended.send(Ended { exit, leftovers, killed, expired });
                }
                if let Some(start) = self.queued.take().filter(|_| self.closing.is_none()) {
                    return self.handle_request(start);
                }
            }
        }
        Ok(())
    }

    /// A watchdog that is asked something has to say something before long.
    fn expect_answer(&mut self) {
        self.answer_by = self.answer_by.or(Some(after(lease_now(), answer_timeout(self.margins.stop_grace))));
    }

    /// It answered: it is alive, and what else it was asked it will answer too.
    fn expect_more(&mut self) {
        self.answer_by = None;
        if self.answered < self.pings || !self.locks.is_empty() {
            self.expect_answer();
        }
    }

    fn start_failed(&mut self, errno: Option<i32>, message: String) {
        let Some(job) = self.job.take() else { return };
        let code = if errno == Some(Errno::NOENT.raw_os_error()) { 127 } else { 126 };
        let program = job.program.clone();
        job.refuse(GuardError::Start { program, code, message });
    }

    fn handle_request(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::SetLock(lock, reply) => {
                self.locks.push_back(reply);
                self.expect_answer();
                match lock {
                    Some(lock) => self.socket.send(&ToWatchdog::Lock, Some(lock.as_fd())),
                    None => self.socket.send(&ToWatchdog::Unlock, None),
                }
            }
            Request::Prepare => self.socket.send(&ToWatchdog::Prepare, None),
            start @ Request::Start { .. } if self.job.as_ref().is_some_and(|job| job.ended.is_closed()) => {
                self.queued = Some(start);
                self.kill_abandoned()
            }
            Request::Start { command, deadline, reply, ended, stops } => {
                let (id, program) = (self.jobs + 1, command.program.to_string_lossy().into_owned());
                self.start(*command, GuardedJob { id, program, deadline, started: Some(reply), ended, stops })
            }
            Request::Renew { job, deadline } => self.renew(job, deadline),
            Request::Signal { job, signal } => self.socket.send(&ToWatchdog::Signal { job, signal }, None),
            Request::Continue { job } => {
                let terminal_owner = terminal::owned().map(Pid::as_raw_pid);
                self.socket.send(&ToWatchdog::Continue { job, terminal_owner }, None)
            }
            Request::Stop { job, grace } => self.socket.send(&ToWatchdog::Stop { job, grace }, None),
            Request::Kill { job } => self.socket.send(&ToWatchdog::Kill { job }, None),
            Request::Close(reply) => self.close(reply),
        }
    }

    fn start(&mut self, command: Command, job: GuardedJob) -> io::Result<()> {
        if self.job.is_some() {
            let message = "another command still runs under this guard; wait for it first".to_owned();
            let program = job.program.clone();
            job.refuse(GuardError::Start { program, code: 126, message });
            return Ok(());
        }
        let (id, deadline) = (job.id, job.deadline);
        self.jobs = id;
        self.job = Some(job);
        let Command { program, args, env, cwd } = command;
        let terminal_owner = terminal::owned().map(Pid::as_raw_pid);
        let start = Start { job: id, program, args, env, cwd, deadline, terminal_owner };
        self.pings += 1;
        self.expect_answer();
        let (ping, start) = (ToWatchdog::Ping { ping: self.pings }, ToWatchdog::Start(Box::new(start)));
        self.socket.send_both(&ping, &start)
    }

    /// No caller owns the running child any more: it is killed, if that was not asked for already.
    fn kill_abandoned(&self) -> io::Result<()> {
        let Some(job) = &self.job else { return Ok(()) };
        self.socket.send(&ToWatchdog::Kill { job: job.id }, None)
    }

    /// Every renewal is also a question whether the watchdog is there. One that comes too late changes
    /// nothing.
    fn renew(&mut self, id: u64, deadline: u64) -> io::Result<()> {
        let now = lease_now();
        let Some(job) = self.job.as_mut().filter(|job| job.id == id) else { return Ok(()) };
        if now >= before(job.deadline, self.margins.stop_grace) {
            return Ok(());
        }
        job.deadline = deadline;
        self.pings += 1;
        self.expect_answer();
        self.socket.send(&ToWatchdog::Renew { job: id, deadline, ping: self.pings }, None)
    }

    /// The first caller is told when all is over; dropping the guard asks once more, without waiting.
    fn close(&mut self, reply: ReplySender<()>) -> io::Result<()> {
        self.closing.get_or_insert(reply);
        if self.job.is_some() {
            self.expect_answer();
        }
        self.kill_abandoned()
    }
}

/// How long a silent watchdog is believed to be merely slow: well before the time it would have to act.
fn answer_timeout(stop_grace: Duration) -> Duration {
    (stop_grace / 2).max(MIN_ANSWER_TIMEOUT)
}

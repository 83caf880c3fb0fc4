//! The elector's thread that speaks with the watchdog, and does its work if it is lost.
//!
//! A thread and not a task, so that a busy runtime does not delay it. It watches three things: what it is
//! asked, what the watchdog reports, and whether the watchdog still lives. A watchdog that dies, does not
//! answer a renewal, or has not reported the child's end when the deadline is all but there, is lost: it is
//! killed, and the whole tree, which this process inherits as a subreaper, with it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as StdCommand, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open, set_child_subreaper};
use tokio::sync::oneshot;

use super::clock::{after, before, lease_now};
use super::guard::{Ended, GuardError, GuardOptions};
use super::spawn::Command;
use super::wire::{Link, Order, Report, Start, timespec};
use super::{terminal, tree, watchdog};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, GuardError>>;

/// What the async side asks for.
#[derive(Debug)]
pub(super) enum Request {
    SetLock(Option<OwnedFd>, Reply<()>),
    Start { command: Box<Command>, deadline: u64, reply: Reply<(u64, i32)>, ended: oneshot::Sender<Ended> },
    Renew { job: u64, deadline: u64 },
    Signal { job: u64, signal: i32 },
    Stop { job: u64, grace: Duration },
    Kill { job: u64 },
    Close(Reply<()>),
}

/// The way to the keeper: a queue, and a bell that wakes it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    requests: Sender<Request>,
    bell: Arc<OwnedFd>,
}

impl Line {
    /// Asks without waiting; nothing happens if the keeper is gone, since then the child is too.
    pub(super) fn tell(&self, request: Request) {
        if self.requests.send(request).is_ok() {
            let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Asks and waits for the answer.
    pub(super) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, GuardError> {
        let (reply, answer) = oneshot::channel();
        self.tell(request(reply));
        answer.await.unwrap_or(Err(GuardError::Lost))
    }
}

/// A watchdog has this long to come up.
const LAUNCH_PATIENCE: Duration = Duration::from_secs(10);
/// And at least this long to answer a renewal or to leave when told.
const LEAST_PATIENCE: Duration = Duration::from_millis(100);

pub(super) struct Keeper {
    options: GuardOptions,
    link: Link,
    watchdog: Child,
    handle: OwnedFd,
    requests: Receiver<Request>,
    bell: Arc<OwnedFd>,
    /// Children that this process had before: none of the watchdog's business.
    spare: BTreeSet<i32>,
    ready: Option<Reply<u32>>,
    locks: VecDeque<Reply<()>>,
    job: Option<Job>,
    /// A start that waits for a dropped child to be gone.
    queued: Option<Request>,
    jobs: u64,
    pings: u64,
    /// The watchdog has to have said something by then.
    answer_by: Option<u64>,
    /// Asked to end, and by whom.
    closing: Option<Reply<()>>,
}

struct Job {
    id: u64,
    program: String,
    deadline: u64,
    started: Option<Reply<(u64, i32)>>,
    ended: oneshot::Sender<Ended>,
}

impl Keeper {
    /// Starts the thread, which starts the watchdog: the process whose thread starts it gets to be its
    /// parent, and this thread lives as long as the guard.
    pub(super) fn launch(
        options: GuardOptions,
    ) -> io::Result<(Line, oneshot::Receiver<Result<u32, GuardError>>)> {
        let (sender, requests) = channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let line = Line { requests: sender, bell: Arc::clone(&bell) };
        let (ready, answer) = oneshot::channel();
        std::thread::Builder::new().name("keeper".into()).spawn(move || {
            match Self::set_up(options, requests, bell) {
                Ok(keeper) => Self { ready: Some(ready), ..keeper }.run(),
                Err(error) => drop(ready.send(Err(GuardError::Launch(error)))),
            }
        })?;
        Ok((line, answer))
    }

    fn set_up(options: GuardOptions, requests: Receiver<Request>, bell: Arc<OwnedFd>) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let spare = tree::own_children();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let watchdog = StdCommand::new(&options.binary)
            .arg0(watchdog::NAME)
            .stdin(Stdio::from(theirs))
            .process_group(0)
            .spawn()?;
        let handle = pidfd_open(Pid::from_child(&watchdog), PidfdFlags::empty())?;
        let link = Link::new(ours, patience(&options));
        let hello = Order::Hello { stop_grace: options.stop_grace, kill_slack: options.kill_slack };
        link.send(&hello, Some(rustix::stdio::stdin()))?;
        Ok(Self {
            link,
            watchdog,
            handle,
            requests,
            bell,
            spare,
            ready: None,
            locks: VecDeque::new(),
            job: None,
            queued: None,
            jobs: 0,
            pings: 0,
            answer_by: Some(after(lease_now(), LAUNCH_PATIENCE)),
            closing: None,
            options,
        })
    }

    fn run(mut self) {
        let asked = loop {
            match self.turn() {
                Ok(()) if self.closing.is_some() && self.job.is_none() => break true,
                Ok(()) => {}
                Err(_) => break false,
            }
        };
        self.bury(asked);
    }

    /// One round; an error means that the watchdog is lost.
    fn turn(&mut self) -> io::Result<()> {
        self.sleep()?;
        let open = self.link.fill()?;
        while let Some(report) = self.link.next()? {
            self.heard(report)?;
        }
        if !open || self.overdue() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        while let Ok(request) = self.requests.try_recv() {
            self.obey(request)?;
        }
        Ok(())
    }

    fn overdue(&self) -> bool {
        self.act_by().is_some_and(|at| lease_now() >= at)
    }

    /// When silence becomes a loss: an answer is late, or half the slack has passed and the child is not
    /// reaped.
    fn act_by(&self) -> Option<u64> {
        let end = self.job.as_ref().map(|job| before(job.deadline, self.options.kill_slack / 2));
        [self.answer_by, end].into_iter().flatten().min()
    }

    fn sleep(&self) -> io::Result<()> {
        let left = self.act_by().map(|at| Duration::from_nanos(at.saturating_sub(lease_now())));
        let mut fds = [self.link.as_fd(), self.bell.as_fd(), self.handle.as_fd()];
        let mut fds = fds.each_mut().map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut fds, left.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn heard(&mut self, report: Report) -> io::Result<()> {
        match report {
            Report::Ready => {
                self.answer_by = None;
                if let Some(ready) = self.ready.take() {
                    let _ = ready.send(Ok(self.watchdog.id()));
                }
            }
            Report::LockSet => {
                if let Some(reply) = self.locks.pop_front() {
                    let _ = reply.send(Ok(()));
                }
            }
            // An answer to an earlier question shows that it is alive, and that another answer is to come.
            Report::Pong { ping } => {
                let more = (ping < self.pings).then(|| after(lease_now(), patience(&self.options)));
                self.answer_by = more;
            }
            Report::Started { job, pid } => {
                let reply = self.job.as_mut().and_then(|job| job.started.take());
                // Whoever asked may have stopped waiting; then the child is nobody's.
                if reply.is_some_and(|reply| reply.send(Ok((job, pid))).is_err()) {
                    return self.link.send(&Order::Kill { job }, None);
                }
            }
            Report::StartFailed { errno, message, .. } => self.start_failed(errno, message),
            Report::Reaped { exit, leftovers, killed, expired, .. } => {
                if let Some(job) = self.job.take() {
                    let _ = job.ended.send(Ended { exit, leftovers, killed, expired });
                }
                if let Some(start) = self.queued.take().filter(|_| self.closing.is_none()) {
                    return self.obey(start);
                }
            }
        }
        Ok(())
    }

    fn start_failed(&mut self, errno: Option<i32>, message: String) {
        let Some(job) = self.job.take() else { return };
        let Some(reply) = job.started else { return };
        let code = if errno == Some(Errno::NOENT.raw_os_error()) { 127 } else { 126 };
        let _ = reply.send(Err(GuardError::Start { program: job.program, code, message }));
    }

    fn obey(&mut self, request: Request) -> io::Result<()> {
        match request {
            Request::SetLock(lock, reply) => {
                self.locks.push_back(reply);
                match lock {
                    Some(lock) => self.link.send(&Order::Lock, Some(lock.as_fd())),
                    None => self.link.send(&Order::Unlock, None),
                }
            }
            start @ Request::Start { .. } if self.job.as_ref().is_some_and(|job| job.ended.is_closed()) => {
                self.queued = Some(start);
                self.kill_abandoned()
            }
            Request::Start { command, deadline, reply, ended } => {
                self.start(*command, deadline, reply, ended)
            }
            Request::Renew { job, deadline } => self.renew(job, deadline),
            Request::Signal { job, signal } => self.link.send(&Order::Signal { job, signal }, None),
            Request::Stop { job, grace } => self.link.send(&Order::Stop { job, grace }, None),
            Request::Kill { job } => self.link.send(&Order::Kill { job }, None),
            Request::Close(reply) => self.close(reply),
        }
    }

    fn start(
        &mut self,
        command: Command,
        deadline: u64,
        reply: Reply<(u64, i32)>,
        ended: oneshot::Sender<Ended>,
    ) -> io::Result<()> {
        let program = command.program.to_string_lossy().into_owned();
        if self.job.is_some() {
            let message = "another command still runs under this guard; wait for it first".to_owned();
            let _ = reply.send(Err(GuardError::Start { program, code: 126, message }));
            return Ok(());
        }
        self.jobs += 1;
        self.job = Some(Job { id: self.jobs, program, deadline, started: Some(reply), ended });
        let Command { program, args, env, cwd } = command;
        let terminal_owner = terminal::owned().map(Pid::as_raw_pid);
        let start = Start { job: self.jobs, program, args, env, cwd, deadline, terminal_owner };
        self.link.send(&Order::Start(Box::new(start)), None)
    }

    /// Nobody waits for the running child any more: it is killed, if that was not asked for already.
    fn kill_abandoned(&self) -> io::Result<()> {
        let Some(job) = &self.job else { return Ok(()) };
        self.link.send(&Order::Kill { job: job.id }, None)
    }

    /// Every renewal is also a question whether the watchdog is there. One that comes too late changes
    /// nothing.
    fn renew(&mut self, id: u64, deadline: u64) -> io::Result<()> {
        let now = lease_now();
        let Some(job) = self.job.as_mut().filter(|job| job.id == id) else { return Ok(()) };
        if now >= before(job.deadline, self.options.stop_grace) {
            return Ok(());
        }
        job.deadline = deadline;
        self.pings += 1;
        self.answer_by = self.answer_by.or(Some(after(now, patience(&self.options))));
        self.link.send(&Order::Renew { job: id, deadline, ping: self.pings }, None)
    }

    /// The first asker is told when all is over; the guard's own end asks again, for nobody.
    fn close(&mut self, reply: Reply<()>) -> io::Result<()> {
        self.closing.get_or_insert(reply);
        if self.job.is_some() {
            self.answer_by = self.answer_by.or(Some(after(lease_now(), patience(&self.options))));
        }
        self.kill_abandoned()
    }

    /// Sees the watchdog and everything below it dead, and then tells whoever waits. A watchdog that is asked
    /// to leave does it by itself.
    fn bury(self, asked: bool) {
        let Self { options, link, mut watchdog, handle, spare, job, closing, .. } = self;
        drop(link);
        if asked {
            let mut fds = [PollFd::new(&handle, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&timespec(patience(&options))));
        }
        let left = asked && matches!(watchdog.try_wait(), Ok(Some(status)) if status.success());
        if !left {
            // Not reaped yet, so the pid is still its own.
            let _ = watchdog.kill();
            let _ = watchdog.wait();
            // One that left as it should has seen everything below it dead; other guards have theirs here too.
            tree::exterminate(spare);
        }
        if let Some(job) = job {
            let _ = job.ended.send(Ended::LOST);
        }
        if let Some(reply) = closing {
            let _ = reply.send(Ok(()));
        }
    }
}

/// How long a silent watchdog is believed to be merely slow: well before the time it would have to act.
fn patience(options: &GuardOptions) -> Duration {
    (options.stop_grace / 2).max(LEAST_PATIENCE)
}

//! The watchdog: a process of its own, with one thread, that outlives the elector just long enough to see the
//! child and all its descendants dead.
//!
//! It is this same binary under another name. The name does not contain "tenure" on purpose: what kills or
//! freezes every process called so must not reach the one that cleans up after it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{
    Pid, Signal, getpid, getpriority_process, set_child_subreaper, set_parent_process_death_signal,
    setpriority_process,
};
use rustix::stdio::{dup2_stdin, stdin};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::clock::{after, before, lease_now};
use crate::gate::{self, Gate, Refusal};
use crate::job::{Job, JobEnd, Margins};
use crate::signals;
use crate::wire::{FrameSocket, FromWatchdog, Start, ToWatchdog, timespec};

/// What the process is called, in `argv[0]` and in the process list.
pub(crate) const NAME: &str = "lease-watchdog";

/// Exit code of a watchdog that could not do its work.
const FAULT: i32 = 70;

/// True if this process was started to be a watchdog, or to wait at its gate; then nothing but [`main`] may run in it.
#[must_use]
pub fn is_watchdog() -> bool {
    let mut args = std::env::args_os();
    let name = args.next();
    [NAME, gate::NAME].iter().any(|ours| name.as_deref() == Some(OsStr::new(ours))) && args.next().is_none()
}

/// The whole life of the watchdog. The socket to the elector is on standard input.
pub fn main() -> ! {
    if gate::is_gated() {
        gate::main()
    }
    let code = match set_up().and_then(Watchdog::run) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{NAME}: {error}; everything it started is killed");
            FAULT
        }
    };
    std::process::exit(code)
}

struct Watchdog {
    link: FrameSocket,
    timer: OwnedFd,
    /// Priority of children; the watchdog's own is higher where the system allows it.
    nice: i32,
    margins: Margins,
    /// Standard input of children.
    stdin: OwnedFd,
    /// The lock file of the current session.
    lock: Option<OwnedFd>,
    /// Those of earlier sessions, until the child that ran under them is gone.
    retired: Vec<OwnedFd>,
    job: Option<Job>,
    /// A ping that is still to be answered.
    unanswered: Option<u64>,
    /// What the next command will be. There is none while a command runs: no child must mean that nothing is left of it.
    gate: Option<Gate>,
    /// Readable when a child ended, was stopped or went on: no other descriptor tells of a stop.
    children: UnixStream,
    _signals: tokio::runtime::Runtime,
}

fn set_up() -> io::Result<Watchdog> {
    let socket = fcntl_dupfd_cloexec(stdin(), 3)?;
    let nothing: OwnedFd = File::open("/dev/null")?.into();
    dup2_stdin(&nothing)?;
    set_child_subreaper(Some(getpid()))?;
    // If the elector dies while the watchdog is frozen, this wakes it to find the socket closed.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    // Only a name: without it the process is listed as "exe".
    let _ = fs::write("/proc/self/comm", NAME);
    let nice = getpriority_process(None).unwrap_or(0);
    // Starvation is what the watchdog is for; unprivileged it has to do with what it gets.
    let _ = setpriority_process(None, nice - 5);
    Ok(Watchdog {
        link: FrameSocket::new(socket, Duration::ZERO),
        timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
        nice,
        margins: Margins { stop_grace: Duration::ZERO, kill_slack: Duration::ZERO },
        stdin: nothing,
        lock: None,
        retired: Vec::new(),
        job: None,
        unanswered: None,
        gate: None,
        children: hear_of_children()?,
        _signals: survive_signals()?,
    })
}

/// Catches, and forgets, every signal by which a service manager or an operator ends a whole set of
/// processes: the elector decides what they mean for the child, and the watchdog is the last to go.
///
/// Caught rather than ignored, because what is ignored stays so in the child; and what already is ignored
/// stays so. The runtime is there for its handlers only, and never runs.
fn survive_signals() -> io::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let ignored = signals::ignored();
    let _inside = runtime.enter();
    for number in
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::TERM]
            .into_iter()
            .chain([Signal::TSTP, Signal::TTIN])
            .map(Signal::as_raw)
            .filter(|number| !signals::is_in(ignored, *number))
    {
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(runtime)
}

fn hear_of_children() -> io::Result<UnixStream> {
    let (children, handler) = UnixStream::pair()?;
    children.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), handler)?;
    Ok(children)
}

impl Watchdog {
    fn run(mut self) -> io::Result<()> {
        loop {
            self.advance();
            self.sleep()?;
            let _ = rustix::io::read(&self.children, &mut [0; 64]);
            let heard = self.listen();
            if !matches!(heard, Ok(true)) {
                self.finish();
                return heard.map(drop);
            }
        }
    }

    /// Hears everything that was said; false if the elector is gone.
    fn listen(&mut self) -> io::Result<bool> {
        let open = self.link.fill()?;
        while open && let Some(order) = self.link.next()? {
            self.handle_order(order)?;
        }
        self.answer();
        Ok(open)
    }

    fn answer(&mut self) {
        if let Some(ping) = self.unanswered.take() {
            self.report(&FromWatchdog::Pong { ping });
        }
    }

    fn handle_order(&mut self, order: ToWatchdog) -> io::Result<()> {
        match order {
            ToWatchdog::Hello { stop_grace, kill_slack } => {
                self.margins = Margins { stop_grace, kill_slack };
                self.stdin = self.link.take_fd()?;
                self.report(&FromWatchdog::Ready);
            }
            ToWatchdog::Lock => {
                let lock = self.link.take_fd()?;
                self.set_lock(Some(lock));
            }
            ToWatchdog::Unlock => self.set_lock(None),
            ToWatchdog::Prepare => self.prepare(),
            // Not before the gate is open, if the start has come too.
            ToWatchdog::Ping { ping } => self.unanswered = Some(ping),
            ToWatchdog::Start(start) => {
                if let Some(start) = self.open_gate(start) {
                    self.start(&start);
                }
            }
            ToWatchdog::Renew { job, deadline, ping } => {
                self.with_job(job, |job| job.renew(deadline));
                self.report(&FromWatchdog::Pong { ping });
            }
            ToWatchdog::Signal { job, signal } => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.with_job(job, |job| job.signal(signal));
                }
            }
            ToWatchdog::Continue { job, terminal_owner } => {
                let owner = terminal_owner.and_then(Pid::from_raw);
                if let Some(job) = self.job.as_mut().filter(|running| running.id() == job) {
                    job.resume(&self.stdin, owner);
                }
            }
            ToWatchdog::Stop { job, grace } => self.with_job(job, |job| job.stop(after(lease_now(), grace))),
            ToWatchdog::Kill { job } => self.with_job(job, Job::kill),
        }
        Ok(())
    }

    fn with_job(&mut self, id: u64, act: impl FnOnce(&mut Job)) {
        if let Some(job) = self.job.as_mut().filter(|job| job.id() == id) {
            act(job);
        }
    }

    /// The lock of a session must not fall while its child runs, so that it is dropped when the child is
    /// gone.
    fn set_lock(&mut self, lock: Option<OwnedFd>) {
        let earlier = std::mem::replace(&mut self.lock, lock);
        if self.job.is_some() {
            self.retired.extend(earlier);
        }
        self.report(&FromWatchdog::LockSet);
    }

    /// One that cannot be started is not missed: the next command is started as if there had been none.
    fn prepare(&mut self) {
        if self.job.is_none() && self.gate.is_none() {
            self.gate = Gate::prepare(self.nice).ok();
        }
    }

    /// Starts a process that becomes the command.
    fn start(&mut self, start: &Start) {
        let job = start.job;
        // It may take a while.
        self.answer();
        if self.is_too_late(start) {
            return self.report(&FromWatchdog::TooLate { job });
        }
        let started = if self.job.is_some() {
            Err(io::Error::other("a command is running already; wait until it is gone"))
        } else {
            Job::start(start, &self.stdin, self.nice)
        };
        match started {
            Ok(running) => {
                self.report(&FromWatchdog::Started { job, pid: running.pid() });
                self.job = Some(running);
            }
            Err(error) => self.report(&Refusal::from(error).report(job)),
        }
    }

    fn is_too_late(&self, start: &Start) -> bool {
        lease_now() >= before(start.deadline, self.margins.stop_grace)
    }

    /// Lets what waits at the gate be the command, under a deadline that is armed first. What is to be started is given
    /// back if nothing waits there that could execute it.
    fn open_gate(&mut self, start: Box<Start>) -> Option<Box<Start>> {
        if self.job.is_some() || self.is_too_late(&start) {
            return Some(start);
        }
        let Some(gate) = self.gate.take() else { return Some(start) };
        let job = self.job.insert(Job::behind(gate, start));
        let armed = set_timer(&self.timer, job.due(self.margins));
        match armed.and_then(|()| job.open_gate(self.margins, &self.stdin)) {
            Ok(()) => None,
            Err(_) => self.job.take().and_then(Job::discard),
        }
    }

    /// Lets the child's life go on or end, as the time says.
    fn advance(&mut self) {
        self.gate.take_if(|gate| gate.is_gone());
        let Some(job) = &mut self.job else { return };
        if let Some(signal) = job.stopped(&self.stdin) {
            let stopped = FromWatchdog::Stopped { job: job.id(), signal };
            let _ = self.link.send(&stopped, None);
        }
        let gone = job.advance(lease_now(), self.margins, &self.stdin);
        // After the look whether it is gone: what is gone has said all that it had to say.
        if job.passed_gate() {
            let _ = self.link.send(&FromWatchdog::Started { job: job.id(), pid: job.pid() }, None);
        }
        let Some(job) = self.job.take_if(|_| gone) else { return };
        self.retired.clear();
        match job.end() {
            JobEnd::Report(report) => self.report(&report),
            JobEnd::StartAgain(start) => self.start(&start),
        }
    }

    /// The elector is gone, or cannot be understood: everything dies now, and the lock falls when it has.
    fn finish(&mut self) {
        self.gate.take().into_iter().for_each(Gate::discard);
        if let Some(job) = &mut self.job {
            job.kill();
        }
        while self.job.is_some() {
            self.advance();
            if let Some(job) = &self.job {
                let mut fds: Vec<_> = job.handle().into_iter().map(watch).collect();
                let _ = poll(&mut fds, job.tick().map(timespec).as_ref());
            }
        }
    }

    /// Waits until the elector speaks, the child ends, or time asks for something.
    fn sleep(&self) -> io::Result<()> {
        set_timer(&self.timer, self.job.as_ref().map_or(u64::MAX, |job| job.due(self.margins)))?;
        let of_job = self.job.as_ref().map(|job| [job.handle(), job.gate()]);
        let always = [self.link.as_fd(), self.timer.as_fd(), self.children.as_fd()];
        let mut fds: Vec<_> =
            always.into_iter().chain(of_job.into_iter().flatten().flatten()).map(watch).collect();
        let tick = self.job.as_ref().and_then(Job::tick).map(timespec);
        match poll(&mut fds, tick.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the elector. One that does not listen is frozen or gone, and neither may hold the watchdog up.
    fn report(&self, report: &FromWatchdog) {
        let _ = self.link.send(report, None);
    }
}

fn watch(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

/// Arms the timer, on a clock that counts suspends. Its rate may differ from the lease clock's while the
/// system slews it, so that it wakes after nine tenths of the time, and the rest is looked at again.
fn set_timer(timer: &OwnedFd, due: u64) -> io::Result<()> {
    let left = Duration::from_nanos(due.saturating_sub(lease_now()).max(1));
    let wake = if left < Duration::from_millis(1) { left } else { left * 9 / 10 };
    let never = timespec(Duration::ZERO);
    let it_value = if due == u64::MAX { never } else { timespec(wake) };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: never, it_value })?;
    Ok(())
}

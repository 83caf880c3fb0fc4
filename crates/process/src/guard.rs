//! The elector's side for async code: launch a watchdog, start children under it one after another.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::guard_thread::{GuardHandle, GuardThread, ReportListener, Request};
use crate::spawn::Command;
use crate::wire::Exit;

/// How a guard behaves.
#[derive(Debug, Clone)]
pub struct GuardOptions {
    /// A child is told to end (SIGTERM) this long before the deadline.
    pub stop_grace: Duration,
    /// It is killed, with everything it started, this long before the deadline.
    pub kill_slack: Duration,
    /// The binary that becomes the watchdog; its `main` must begin with
    /// [`is_watchdog`](crate::watchdog::is_watchdog).
    pub binary: PathBuf,
    /// Where the watchdog and its children write their errors, if not where this process does.
    pub stderr: Option<Arc<OwnedFd>>,
}

impl GuardOptions {
    /// Options with these margins, and this same binary as the watchdog.
    #[must_use]
    pub fn new(stop_grace: Duration, kill_slack: Duration) -> Self {
        Self { stop_grace, kill_slack, binary: "/proc/self/exe".into(), stderr: None }
    }
}

/// What can go wrong between the elector and its watchdog.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// The watchdog did not come up.
    #[error("the watchdog could not be launched: {0}; check that processes can be started here")]
    Launch(#[source] std::io::Error),
    /// The watchdog is gone, and so is everything it started.
    #[error("the watchdog was lost, and everything it had started was killed; launch another one")]
    Lost,
    /// The lease is too short to start anything under it.
    #[error("the lease ends too soon to start a command; wait for the next election")]
    TooLate,
    /// The command did not start.
    #[error("{program}: {message}")]
    Start {
        /// The program as it was given.
        program: String,
        /// 127 if there is no such program, 126 if it cannot be executed.
        code: i32,
        /// What the system said.
        message: String,
    },
}

/// A watchdog process at our side. One child at a time runs under it; dropping it kills everything.
///
/// While a guard lives, this process adopts the orphans of its descendants, and if the watchdog is lost it
/// kills every child that this process did not have before the launch: it must have no other children of its
/// own. Other guards are the exception: they live beside each other, and die with one that was lost before them.
#[derive(Debug)]
pub struct Guard {
    handle: GuardHandle,
    watchdog: u32,
}

impl Guard {
    /// Launches a watchdog; done before the election, so that being elected costs one fork. One that was killed or frozen
    /// before it was ready says nothing about the next one: another is launched, up to twice.
    ///
    /// # Errors
    /// If the process cannot be started or does not answer.
    pub async fn launch(options: GuardOptions) -> Result<Self, GuardError> {
        for _ in 0..2 {
            if let Ok(launched) = Self::try_launch(options.clone()).await {
                return Ok(launched);
            }
        }
        Self::try_launch(options).await
    }

    async fn try_launch(options: GuardOptions) -> Result<Self, GuardError> {
        let (handle, ready) = GuardThread::launch(options).map_err(GuardError::Launch)?;
        let watchdog = ready.await.map_err(|_| GuardError::Lost)??;
        Ok(Self { handle, watchdog })
    }

    /// The process id of the watchdog.
    #[must_use]
    pub fn watchdog_pid(&self) -> u32 {
        self.watchdog
    }

    /// Hands over a copy of the session's lock file, to be held until the last child is gone. It takes the
    /// place of the one before; that one is let go of as soon as no child runs that was started under it.
    ///
    /// # Errors
    /// If the watchdog is lost.
    pub async fn adopt_lock(&self, lock: OwnedFd) -> Result<(), GuardError> {
        self.handle.request(|reply| Request::SetLock(Some(lock), reply)).await
    }

    /// Lets go of the lock file, once no child runs.
    ///
    /// # Errors
    /// If the watchdog is lost.
    pub async fn release_lock(&self) -> Result<(), GuardError> {
        self.handle.request(|reply| Request::SetLock(None, reply)).await
    }

    /// Prepares the next start: a process is there before it is needed, and waits at a gate that only [`Guard::start`]
    /// opens. Done on standby, where no child runs, so that being elected costs neither a fork nor the start of a process.
    /// What comes of it changes how long a start takes, and nothing else.
    pub fn prepare(&self) {
        self.handle.send(Request::Prepare);
    }

    /// Starts a command under a lease that ends at `deadline`, in nanoseconds of the lease clock.
    ///
    /// # Errors
    /// If it cannot be started, another child still runs, the lease is too short, or the watchdog is lost.
    pub async fn start(&mut self, command: Command, deadline: u64) -> Result<Child, GuardError> {
        let (ended_sender, ended) = oneshot::channel();
        let (stops_sender, stops) = mpsc::unbounded_channel();
        let command = Box::new(command);
        let (job, pid) = self
            .handle
            .request(|reply| Request::Start {
                command,
                deadline,
                reply,
                ended: ended_sender,
                stops: stops_sender,
            })
            .await?;
        let ended = Waiting::Until(ended, self.handle.listen());
        Ok(Child { handle: self.handle.clone(), job, pid, ended, stops })
    }

    /// As [`Guard::adopt_lock`] and then [`Guard::start`], without a wait between: the watchdog takes in one after the other,
    /// so that it holds the lock before it starts the command.
    ///
    /// # Errors
    /// As those of [`Guard::start`].
    pub async fn start_under(
        &mut self,
        lock: Option<OwnedFd>,
        command: Command,
        deadline: u64,
    ) -> Result<Child, GuardError> {
        if let Some(lock) = lock {
            let (reply, _) = oneshot::channel();
            self.handle.send(Request::SetLock(Some(lock), reply));
        }
        self.start(command, deadline).await
    }

    /// Returns when the watchdog, and everything it had started, is gone. Cancel-safe.
    pub async fn lost(&self) {
        self.handle.gone().await;
    }

    /// Kills what still runs and waits until the watchdog and everything below it is gone.
    pub async fn close(self) {
        let _ = self.handle.request(Request::Close).await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (reply, _) = oneshot::channel();
        self.handle.send(Request::Close(reply));
    }
}

/// How a child ended, and what it left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How the command itself ended.
    pub exit: Exit,
    /// It left processes behind, which had to be ended.
    pub leftovers: bool,
    /// Something had to be killed with SIGKILL.
    pub killed: bool,
    /// It was told to end because its lease ran out.
    pub expired: bool,
}

impl Ended {
    pub(crate) const LOST: Self =
        Self { exit: Exit::WatchdogLost, leftovers: false, killed: true, expired: false };
}

#[derive(Debug)]
enum Waiting {
    /// With what is heard of the watchdog meanwhile.
    Until(oneshot::Receiver<Ended>, Option<ReportListener>),
    Over(Ended),
}

impl Waiting {
    async fn over(&mut self, handle: &GuardHandle) -> Ended {
        let ended = match self {
            Self::Over(ended) => *ended,
            Self::Until(receiver, listener) => tokio::select! {
                biased;
                ended = receiver => ended.unwrap_or(Ended::LOST),
                never = handle.take_reports(listener.as_ref()) => match never {},
            },
        };
        *self = Self::Over(ended);
        ended
    }
}

/// A running child. Dropping it kills it.
#[derive(Debug)]
pub struct Child {
    handle: GuardHandle,
    job: u64,
    pid: i32,
    ended: Waiting,
    stops: mpsc::UnboundedReceiver<i32>,
}

/// What happened to a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// This signal stopped it, as Ctrl-Z does; it is there still.
    Stopped(i32),
    /// It is gone, and everything it started too.
    Ended(Ended),
}

impl Child {
    /// Its process id, which is also its group's.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// The lease now lasts until `deadline`. Without effect once the child was told to end for lack of time.
    pub fn renew(&self, deadline: u64) {
        self.handle.send(Request::Renew { job: self.job, deadline });
    }

    /// Sends a signal to its group.
    pub fn signal(&self, signal: i32) {
        self.handle.send(Request::Signal { job: self.job, signal });
    }

    /// Lets it go on after a stop; in front of the terminal, if this process is.
    pub fn resume(&self) {
        self.handle.send(Request::Continue { job: self.job });
    }

    /// Tells it to end (SIGTERM) and kills it after `grace`; returns when nothing is left of it. Keep
    /// renewing meanwhile if `grace` may outlast the lease: use [`Child::begin_stop`] and [`Child::wait`] for
    /// that.
    pub async fn stop(&mut self, grace: Duration) -> Ended {
        self.begin_stop(grace);
        self.wait().await
    }

    /// Tells it to end and returns at once; it is killed after `grace`.
    pub fn begin_stop(&self, grace: Duration) {
        self.handle.send(Request::Stop { job: self.job, grace });
    }

    /// Kills it and everything it started; returns when nothing is left.
    pub async fn kill(&mut self) -> Ended {
        self.handle.send(Request::Kill { job: self.job });
        self.wait().await
    }

    /// Waits until the child and everything it started are gone and reaped. Cancel-safe, and may be asked
    /// again.
    pub async fn wait(&mut self) -> Ended {
        self.ended.over(&self.handle).await
    }

    /// As [`Child::wait`], but also returns whenever the child is stopped.
    pub async fn changed(&mut self) -> Change {
        tokio::select! {
            biased;
            ended = self.ended.over(&self.handle) => Change::Ended(ended),
            Some(signal) = self.stops.recv() => Change::Stopped(signal),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.ended, Waiting::Until(..)) {
            self.handle.send(Request::Kill { job: self.job });
        }
    }
}

//! What a torture follows from, and how it is ended early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::Error;
use crate::fault::{FaultGroup, FaultKind};
use crate::member;

/// How many roles there are.
pub const ROLES: usize = 3;

/// Everything that a torture follows from.
#[derive(Debug, Clone)]
pub struct TortureSettings {
    /// How many nodes take part.
    pub nodes: usize,
    /// How long faults are injected.
    pub lasts: Duration,
    /// The ttl of the nodes; some differ if [`FaultKind::Mixed`] is among the kinds.
    pub ttl: Duration,
    /// The plan follows from it.
    pub seed: u64,
    /// The faults to inject.
    pub kinds: Vec<FaultKind>,
    /// How much longer than the bound a leaderless time may last.
    pub allowance: Duration,
}

impl TortureSettings {
    /// The longest ttl that any node has.
    #[must_use]
    pub fn longest_ttl(&self) -> Duration {
        if self.kinds.contains(&FaultKind::Mixed) { member::LONGER.apply(self.ttl) } else { self.ttl }
    }

    /// How wrong wall clocks may be, in microseconds: by an hour; with an even seed they agree.
    pub(crate) fn wall_error(&self) -> i64 {
        let wrong = self.kinds.contains(&FaultKind::Clocks);
        if wrong && !self.seed.is_multiple_of(2) { 3_600_000_000 } else { i64::from(wrong) * 5_000 }
    }

    /// Whether tokens rise whatever a store of class C lost: if wall clocks agree, and no person destroys data by hand.
    pub(crate) fn tokens_rise(&self) -> bool {
        let destroys = |kind: &FaultKind| kind.group() == FaultGroup::Destroy;
        self.wall_error() < 10_000 && !self.kinds.iter().any(destroys)
    }

    /// A leader that died is replaced within this.
    #[must_use]
    pub fn bound(&self) -> Duration {
        self.promised(|bounds| bounds.crash)
    }

    /// The same if a standby was disturbed too: it may have been the one that watched the leader.
    #[must_use]
    pub fn bound_of_two(&self) -> Duration {
        self.promised(|bounds| bounds.crash_of_two)
    }

    fn promised(&self, bound: impl Fn(&tenure::Bounds) -> Duration) -> Duration {
        let settings =
            tenure::TimingSettings { ttl: Some(self.longest_ttl()), ..tenure::TimingSettings::default() };
        tenure::Timing::new(&settings).map_or(Duration::ZERO, |timing| bound(&timing.bounds()))
    }

    /// How long after a fault everything can be expected again: a lease that was known, and a quarantine.
    #[must_use]
    pub fn recovery(&self) -> Duration {
        2 * self.longest_ttl() + Duration::from_secs(1)
    }
}

/// Whether SIGINT or SIGTERM came. Installed before the first private server is started: a process that just died would
/// leave it behind.
#[derive(Debug, Clone)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Installs the handlers.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn listen() -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Failed(format!("cannot handle signals: {error}"));
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let received = Arc::new(AtomicBool::new(false));
        let stop = Self(received.clone());
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            received.store(true, Ordering::Release);
        });
        Ok(stop)
    }

    pub(crate) fn is_received(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

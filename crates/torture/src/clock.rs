//! A clock that is wrong in every way that a clock may be wrong: its rate, its origin, its time of day, its timers.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tenure::clock::{Clock, LeaseClock, SuspendTimer, lease_nanos};
use tenure::{Time, Timestamp};

const MILLION: i128 = 1_000_000;

/// How wrong a clock is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockError {
    /// By how many millionths its rate is too high.
    pub rate_ppm: i32,
    /// What the lease clock shows when it is made, in nanoseconds.
    pub origin: u64,
    /// How wrong the time of day is, in microseconds.
    pub wall: i64,
}

/// See the [module](self). It is linear in the lease clock of the host, so that deadlines on it can be told on the host's.
#[derive(Debug)]
pub struct WrongClock {
    lease: LeaseClock,
    began: u64,
    error: ClockError,
    /// Has for how long this process has been suspended, in nanoseconds; none: never.
    suspended: Option<PathBuf>,
}

impl WrongClock {
    /// A clock that is wrong by this, from now on. The timers of the runtime stand still for as long as that file says that the
    /// process was suspended.
    #[must_use]
    pub fn new(error: ClockError, suspended: Option<PathBuf>) -> Self {
        let lease = LeaseClock::new();
        Self { began: lease.now().as_nanos(), lease, error, suspended }
    }

    /// What the host's lease clock shows when this one shows that: a moment late rather than early.
    #[must_use]
    pub fn to_host(&self, nanos: u64) -> u64 {
        const ROUNDING: u64 = 1_000;
        match nanos.checked_sub(self.error.origin) {
            Some(passed) if nanos != Time::NEVER.as_nanos() => {
                self.began.saturating_add(self.host_span(passed)).saturating_add(ROUNDING)
            }
            Some(_) => u64::MAX,
            None => 0,
        }
    }

    fn rate(&self) -> i128 {
        MILLION + i128::from(self.error.rate_ppm)
    }

    fn host_span(&self, nanos: u64) -> u64 {
        u64::try_from(i128::from(nanos) * MILLION / self.rate()).unwrap_or(u64::MAX)
    }

    fn suspended(&self) -> u64 {
        let file = self.suspended.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        file.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Time {
        let passed = i128::from(self.lease.now().as_nanos().saturating_sub(self.began));
        let shown = u64::try_from(passed * self.rate() / MILLION).unwrap_or(u64::MAX);
        Time::from_nanos(self.error.origin.saturating_add(shown))
    }

    fn wall(&self) -> Timestamp {
        let wall = self.lease.wall().as_micros();
        Timestamp::from_micros(wall.saturating_add_signed(self.error.wall))
    }

    fn fault(&self) -> bool {
        self.lease.fault()
    }

    /// A timer of the runtime, which does not run while the machine is suspended.
    fn sleep_until(&self, at: Time) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if at == Time::NEVER {
                return std::future::pending().await;
            }
            let span = at.since(self.now());
            let mut left = self.host_span(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
            while left > 0 {
                let before = self.suspended();
                tokio::time::sleep(Duration::from_nanos(left)).await;
                left = self.suspended().saturating_sub(before);
            }
        })
    }

    fn alarm(&self) -> Option<Box<dyn SuspendTimer>> {
        let rate = self.rate();
        self.lease.alarm().map(|timer| Box::new(ScaledTimer { timer, rate }) as Box<dyn SuspendTimer>)
    }
}

/// A timer at the rate of the clock that it belongs to.
#[derive(Debug)]
struct ScaledTimer {
    timer: Box<dyn SuspendTimer>,
    rate: i128,
}

impl SuspendTimer for ScaledTimer {
    fn fire_after(&mut self, span: Duration) -> BoxFuture<'_, ()> {
        let nanos = i128::try_from(span.as_nanos()).unwrap_or(i128::MAX / MILLION).saturating_mul(MILLION);
        self.timer.fire_after(Duration::from_nanos(u64::try_from(nanos / self.rate).unwrap_or(u64::MAX)))
    }
}

/// The lease clock of the host as it is.
#[must_use]
pub fn right() -> WrongClock {
    WrongClock::new(ClockError { origin: lease_nanos(), ..ClockError::default() }, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_on_a_wrong_clock_is_told_on_the_hosts() {
        for rate_ppm in [-300_000, -9_900, 0, 9_900, 300_000] {
            let error = ClockError { rate_ppm, origin: 77, wall: -3_600_000_000 };
            let clock = WrongClock::new(error, None);
            let (before, shown, after) = (lease_nanos(), clock.now().as_nanos(), lease_nanos());
            let told = clock.to_host(shown);
            assert!(before <= told && told <= after + 3_000, "{rate_ppm}: {before} {told} {after}");
            assert!(shown >= 77);
        }
        assert_eq!(right().to_host(Time::NEVER.as_nanos()), u64::MAX);
    }

    #[test]
    fn its_rate_is_what_it_says() {
        let fast = WrongClock::new(ClockError { rate_ppm: 1_000_000, ..ClockError::default() }, None);
        let (before, host) = (fast.now().as_nanos(), lease_nanos());
        std::thread::sleep(Duration::from_millis(20));
        let (host, after) = (lease_nanos() - host, fast.now().as_nanos());
        assert!(after - before > host, "twice as fast, less what reading them took");
    }
}

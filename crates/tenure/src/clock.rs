//! The clocks of a node: the lease clock, on which everything that matters is counted, and the wall clock, which is
//! for people only. And the kernel's randomness, from which every nonce comes.
//!
//! `std::time::Instant` stops while a Linux machine is suspended, and a time daemon may slew it by 8 %. A lease
//! counted on it would outlive the real one. [`LeaseClock`] goes on during suspend and is never slewed.

#[cfg(target_os = "linux")]
mod suspend;

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use tenure_core::{Time, Timestamp};
use tokio::sync::watch;

/// Tells the time. Two instants of one clock may be compared; those of two clocks never.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The lease clock now: never earlier than any instant it showed before.
    fn now(&self) -> Time;

    /// The wall clock now.
    fn wall(&self) -> Timestamp;

    /// True once after the clock could not be trusted: every session must end.
    fn fault(&self) -> bool {
        false
    }

    /// Waits until it shows `at`, or a little later. For ever, if that is never.
    fn sleep_until(&self, at: Time) -> BoxFuture<'_, ()> {
        let now = self.now();
        Box::pin(async move {
            match at {
                Time::NEVER => std::future::pending().await,
                at if at <= now => {}
                at => tokio::time::sleep(at.since(now)).await,
            }
        })
    }

    /// A timer that also counts the time that the machine is suspended, for the election loop to own. Timers of the
    /// runtime stand still meanwhile, so that a deadline that passed in suspend would be noticed late.
    fn alarm(&self) -> Option<Box<dyn SuspendTimer>> {
        None
    }
}

/// A timer that counts suspends. See [`Clock::alarm`].
pub trait SuspendTimer: Send + fmt::Debug {
    /// Waits that long; what it was set to before no longer counts.
    fn fire_after(&mut self, span: Duration) -> BoxFuture<'_, ()>;
}

/// The clock of a real node.
///
/// On Linux it is `MONOTONIC_RAW + (BOOTTIME − MONOTONIC)`: the raw counter, which is never slewed, and the time spent
/// in suspend. A pause of the whole virtual machine is invisible to it, as to every clock in that machine.
#[derive(Debug, Default)]
pub struct LeaseClock {
    watermark: Watermark,
}

impl LeaseClock {
    /// A clock of its own; its origin means nothing elsewhere.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The largest error of its rate to reckon with, in millionths.
    #[must_use]
    pub fn rate_error_ppm(&self) -> u32 {
        tenure_core::Timing::DEFAULT_RATE_ERROR_PPM
    }
}

impl Clock for LeaseClock {
    fn now(&self) -> Time {
        self.watermark.raise(lease_nanos)
    }

    fn wall(&self) -> Timestamp {
        wall_now()
    }

    fn fault(&self) -> bool {
        self.watermark.faulty.swap(false, Ordering::Relaxed)
    }

    #[cfg(target_os = "linux")]
    fn alarm(&self) -> Option<Box<dyn SuspendTimer>> {
        let timer = suspend::BootTimer::new().inspect_err(
            |error| tracing::warn!(%error, "cannot make a timer that counts suspends: a leader notices late that it slept"),
        );
        timer.ok().map(|timer| Box::new(timer) as Box<dyn SuspendTimer>)
    }
}

/// The lease clock as a number that processes of one host can compare.
///
/// Reads the three clocks in the one order (or its reverse) whose result lies inside the call: a preemption between
/// RAW and MONOTONIC is not counted, one between MONOTONIC and BOOTTIME is counted once. In any other order the
/// result is off by a preemption, before or after the call.
#[cfg(target_os = "linux")]
#[must_use]
pub fn lease_nanos() -> u64 {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let nanos = |time: Timespec| time.tv_sec * 1_000_000_000 + time.tv_nsec;
    let raw = nanos(clock_gettime(ClockId::MonotonicRaw));
    let monotonic = nanos(clock_gettime(ClockId::Monotonic));
    let boottime = nanos(clock_gettime(ClockId::Boottime));
    u64::try_from(raw + (boottime - monotonic)).unwrap_or(0)
}

/// Nanoseconds since the first call.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn lease_nanos() -> u64 {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let origin = *ORIGIN.get_or_init(std::time::Instant::now);
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The wall clock of this host now.
pub(crate) fn wall_now() -> Timestamp {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)).min(Timestamp::MAX)
}

/// Backward steps up to this are noise of reading three clocks.
const NOISE: u64 = 1_000_000;

/// Keeps a clock from going backwards, and notices when it wanted to.
#[derive(Debug, Default)]
struct Watermark {
    highest: AtomicU64,
    /// What was added after faults, so that the clock goes on from where it was.
    ahead: AtomicU64,
    faulty: AtomicBool,
    repair: Mutex<()>,
}

impl Watermark {
    /// The mark is read before the clock: a reading that began later must not be lower, whereas one that was
    /// preempted may well be lower than the mark after it, and proves nothing.
    fn raise(&self, read: impl Fn() -> u64) -> Time {
        let before = self.highest.load(Ordering::Acquire);
        let mut now = read().saturating_add(self.ahead.load(Ordering::Acquire));
        if now.saturating_add(NOISE) < before {
            now = self.repair(&read);
        }
        self.highest.fetch_max(now, Ordering::AcqRel);
        Time::from_nanos(now.max(before))
    }

    /// After a fault the clock goes on from the mark, so that it never stands still.
    #[cold]
    fn repair(&self, read: impl Fn() -> u64) -> u64 {
        let _one_at_a_time = self.repair.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = self.highest.load(Ordering::Acquire);
        let now = read().saturating_add(self.ahead.load(Ordering::Acquire));
        if now.saturating_add(NOISE) < before {
            self.faulty.store(true, Ordering::Relaxed);
            self.ahead.fetch_add(before - now, Ordering::AcqRel);
        }
        now.max(before)
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug)]
pub struct ManualClock {
    nanos: watch::Sender<u64>,
    micros: AtomicU64,
    faulty: AtomicBool,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ManualClock {
    /// A clock that shows one second, and the year 2026 on the wall.
    #[must_use]
    pub fn new() -> Self {
        let wall = AtomicU64::new(1_767_225_600_000_000);
        Self { nanos: watch::Sender::new(1_000_000_000), micros: wall, faulty: AtomicBool::new(false) }
    }

    /// Lets time pass, on both clocks.
    pub fn advance(&self, span: Duration) {
        self.nanos.send_modify(|nanos| *nanos += u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        self.micros.fetch_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock, as people do.
    pub fn set_wall(&self, wall: Timestamp) {
        self.micros.store(wall.as_micros(), Ordering::SeqCst);
    }

    /// Makes the next [`Clock::fault`] say yes.
    pub fn inject_fault(&self) {
        self.faulty.store(true, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(*self.nanos.borrow())
    }

    fn sleep_until(&self, at: Time) -> BoxFuture<'_, ()> {
        let mut nanos = self.nanos.subscribe();
        Box::pin(async move {
            // The sender lives as long as this clock.
            let _ = nanos.wait_for(|nanos| *nanos >= at.as_nanos()).await;
        })
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn fault(&self) -> bool {
        self.faulty.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_lease_clock_never_goes_back() {
        let clock = LeaseClock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(!clock.fault());
    }

    #[test]
    fn small_steps_back_are_clamped_and_large_ones_are_a_fault_told_once() {
        let mark = Watermark::default();
        let shown = Cell::new(50_000_000);
        let read = || shown.get();
        assert_eq!(mark.raise(read), Time::from_nanos(50_000_000));
        shown.set(49_500_000);
        assert_eq!(mark.raise(read), Time::from_nanos(50_000_000));
        assert!(!mark.faulty.load(Ordering::Relaxed));
        shown.set(10_000_000);
        assert_eq!(mark.raise(read), Time::from_nanos(50_000_000));
        assert!(mark.faulty.swap(false, Ordering::Relaxed));
        shown.set(10_000_007);
        assert_eq!(mark.raise(read), Time::from_nanos(50_000_007), "it goes on from where it was");
        assert!(!mark.faulty.load(Ordering::Relaxed));
    }

    #[test]
    fn a_reader_that_was_preempted_is_no_fault() {
        let mark = Watermark::default();
        let slow = || {
            mark.highest.fetch_max(90_000_000, Ordering::AcqRel);
            10_000_000
        };
        mark.raise(slow);
        assert!(!mark.faulty.load(Ordering::Relaxed));
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new();
        let (time, wall) = (clock.now(), clock.wall());
        assert_eq!((clock.now(), clock.wall()), (time, wall));
        clock.advance(Duration::from_secs(2));
        assert_eq!(clock.now(), time.after(Duration::from_secs(2)));
        assert_eq!(clock.wall(), Timestamp::from_micros(wall.as_micros() + 2_000_000));
        clock.inject_fault();
        assert!(clock.fault() && !clock.fault());
    }
}

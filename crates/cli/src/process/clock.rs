//! The lease clock, as a number that two processes of one host can compare.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, in nanoseconds of the lease clock: `MONOTONIC_RAW + (BOOTTIME − MONOTONIC)`.
///
/// The order of the three reads matters: RAW, MONOTONIC, BOOTTIME gives an instant that lies inside the call
/// even if the process is frozen between two of them; any other order is off by the length of the freeze.
#[must_use]
pub fn lease_now() -> u64 {
    let raw = nanos(clock_gettime(ClockId::MonotonicRaw));
    let monotonic = nanos(clock_gettime(ClockId::Monotonic));
    let boot = nanos(clock_gettime(ClockId::Boottime));
    raw.saturating_add(boot.saturating_sub(monotonic))
}

/// `at` plus `span`; saturates.
pub(super) fn after(at: u64, span: Duration) -> u64 {
    at.saturating_add(span_nanos(span))
}

/// `at` less `span`; saturates.
pub(super) fn before(at: u64, span: Duration) -> u64 {
    at.saturating_sub(span_nanos(span))
}

fn span_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn nanos(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

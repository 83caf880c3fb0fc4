//! Whether the lease clock goes as fast as the clock that everything else uses.

use std::time::{Duration, Instant};

use serde::Serialize;
use tenure::Time;
use tenure::clock::{Clock, LeaseClock};

use crate::output::time::span;

/// Both clocks, started together.
pub(super) struct Stopwatch {
    clock: LeaseClock,
    lease: Time,
    instant: Instant,
}

/// How far both went.
pub(super) struct Reading {
    lease: Duration,
    instant: Duration,
    fault: bool,
    error_ppm: u32,
}

/// For programs.
#[derive(Serialize)]
pub(super) struct View {
    lease_ms: f64,
    monotonic_ms: f64,
    fault: bool,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        let clock = LeaseClock::new();
        Self { lease: clock.now(), instant: Instant::now(), clock }
    }

    pub(super) fn stop(self) -> Reading {
        let (lease, instant) = (self.clock.now().since(self.lease), self.instant.elapsed());
        Reading { lease, instant, fault: self.clock.fault(), error_ppm: self.clock.rate_error_ppm() }
    }
}

/// Between reading the one clock and the other a process may be held up.
const HELD_UP: Duration = Duration::from_millis(50);

impl Reading {
    /// A time daemon may slew the monotonic clock by 8 %, and a machine may have been suspended meanwhile: only what
    /// neither explains is wrong.
    pub(super) fn problem(&self) -> Option<String> {
        if self.fault {
            return Some(
                "the lease clock went backwards: leases cannot be measured on this machine".to_owned(),
            );
        }
        let behind = self.instant.mul_f64(0.9).saturating_sub(HELD_UP) > self.lease;
        behind.then(|| {
            format!(
                "the lease clock went {} while the monotonic clock went {}: leases would last too long here; check \
                 that the clock source of this machine is stable",
                span(self.lease),
                span(self.instant)
            )
        })
    }

    pub(super) fn pretty(&self) -> String {
        let apart = self.lease.abs_diff(self.instant);
        let allowed = f64::from(self.error_ppm) / 10_000.0;
        let (apart, after) = (span(apart), span(self.instant));
        format!("in step with the monotonic clock ({apart} apart after {after}; {allowed}% is allowed for)")
    }

    pub(super) fn view(&self) -> View {
        let millis = |span: Duration| span.as_micros() as f64 / 1000.0;
        View { lease_ms: millis(self.lease), monotonic_ms: millis(self.instant), fault: self.fault }
    }
}

//! A node's clocks, as functions of the true time that only the simulator knows.

use tenure_core::{Now, Time, Timestamp};

/// True time, in nanoseconds since the world began.
pub type Instant = u64;

pub const MICRO: u64 = 1_000;
pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// The wall clock when a world begins, in microseconds since 1970.
const WALL_ORIGIN: i64 = 1_760_000_000_000_000;

/// A lease clock that runs a little fast or slow, and a wall clock that may jump.
#[derive(Debug, Clone)]
pub struct Clock {
    since: Instant,
    shown: u64,
    error_ppm: i64,
    wall_offset_us: i64,
}

impl Clock {
    /// A clock that shows `shown` at the beginning of the world, off by `error_ppm` in rate.
    #[must_use]
    pub fn new(shown: u64, error_ppm: i64, wall_offset_us: i64) -> Self {
        Self { since: 0, shown, error_ppm, wall_offset_us }
    }

    #[must_use]
    pub fn time(&self, at: Instant) -> Time {
        let span = (at - self.since) as i64;
        Time::from_nanos(self.shown + (span + (span * self.error_ppm).div_euclid(1_000_000)) as u64)
    }

    #[must_use]
    pub fn now(&self, at: Instant) -> Now {
        let wall = WALL_ORIGIN + (at / MICRO) as i64 + self.wall_offset_us;
        Now { time: self.time(at), wall: Timestamp::from_micros(wall.max(1) as u64) }
    }

    /// The first instant, not before `now`, at which the lease clock shows `time` or more.
    #[must_use]
    pub fn when(&self, time: Time, now: Instant) -> Instant {
        let Some(shown) = time.as_nanos().checked_sub(self.shown) else { return now };
        if time == Time::NEVER {
            return Instant::MAX;
        }
        let rate = (1_000_000 + self.error_ppm) as u128;
        let mut at = self.since + (u128::from(shown) * 1_000_000 / rate) as u64;
        while self.time(at) < time {
            at += 1;
        }
        at.max(now)
    }

    /// Goes on at another rate.
    pub fn drift(&mut self, now: Instant, error_ppm: i64) {
        self.shown = self.time(now).as_nanos();
        self.since = now;
        self.error_ppm = error_ppm;
    }

    pub fn jump(&mut self, by_us: i64) {
        self.wall_offset_us += by_us;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_never_early() {
        for error in [-100_000, -9_999, 0, 1, 10_000] {
            let clock = Clock::new(77, error, 0);
            for span in [0, 1, 999, 12_345_678_901] {
                let due = Time::from_nanos(77 + span);
                let at = clock.when(due, 0);
                assert!(clock.time(at) >= due && (at == 0 || clock.time(at - 1) < due), "{error} {span}");
            }
        }
    }

    #[test]
    fn a_clock_that_changes_its_rate_goes_on_from_where_it_was() {
        let mut clock = Clock::new(5, 10_000, 0);
        let before = clock.time(1_000_000);
        clock.drift(1_000_000, -10_000);
        assert_eq!(clock.time(1_000_000), before);
    }
}

//! How long things take, checked as a whole.
//!
//! What people write is a [`TimingSettings`]; what the engine runs on is a [`Timing`], in which every relation holds that
//! the safety argument and a calm operation need. A message about a broken relation shows both numbers.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a dropped connection means for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takeover {
    /// Nothing: a dropped connection is no proof of death. Only the lease counts.
    #[default]
    Strict,
    /// The session ends `grace` after its connection was seen to drop.
    OnDisconnect,
}

/// What people write; everything but the ttl follows from it unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct TimingSettings {
    /// How long a leader that falls silent keeps its roles. 5 s by default.
    pub ttl: Option<Duration>,
    /// How often a leader renews its session and polls the store. A quarter of the ttl (of the grace: a tenth, on disconnect).
    pub beat: Option<Duration>,
    /// How long the store may take to answer. A fifth of the ttl (of the grace: a sixth, on disconnect).
    pub op_timeout: Option<Duration>,
    /// How long before the deadline the work is told to stop. A fifth of the ttl (of twice the grace, on disconnect).
    pub stop_grace: Option<Duration>,
    /// How long before the deadline what has not stopped is killed. A fiftieth of the ttl (of twice the grace).
    pub kill_slack: Option<Duration>,
    /// What a dropped connection means.
    pub takeover: Takeover,
    /// How long a dropped connection is forgiven. Half of the ttl.
    pub grace: Option<Duration>,
    /// The largest error of this node's clock rate, in millionths. 10 000 (1 %) by default.
    pub rate_error_ppm: Option<u32>,
}

/// A set of times in which every relation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timing {
    /// How long a version of the session counts, as written in the record.
    pub ttl: Duration,
    /// How often a leader renews its session and polls the store.
    pub beat: Duration,
    /// How long the store may take to answer.
    pub op_timeout: Duration,
    /// How long before the deadline the work is told to stop.
    pub stop_grace: Duration,
    /// How long before the deadline what has not stopped is killed.
    pub kill_slack: Duration,
    /// What a dropped connection means.
    pub takeover: Takeover,
    /// How long a dropped connection is forgiven, as written in the record.
    pub grace: Duration,
    /// The largest error of this node's clock rate, in millionths.
    pub rate_error_ppm: u32,
}

/// Why a set of times cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named after what they hold")]
pub enum BadTiming {
    /// A single value is out of range.
    #[error("{key} = {got:?} is not possible: it must be between {least:?} and {most:?}", got = .got, least = .least, most = .most)]
    Range { key: &'static str, got: Duration, least: Duration, most: Duration },
    /// Records hold whole milliseconds.
    #[error("{key} = {got:?} is not a whole number of milliseconds")]
    Fraction { key: &'static str, got: Duration },
    /// Two failed beats must fit before the work is told to stop.
    #[error(
        "beat {beat:?} + 2 × op-timeout {op_timeout:?} = {needed:?}, but work is told to stop {available:?} after \
         a beat ({limit} {lease:?} less the clock error, less stop-grace {stop_grace:?}): raise the {limit}, or \
         lower beat, op-timeout or stop-grace"
    )]
    NoRoomForTwoFailures {
        beat: Duration,
        op_timeout: Duration,
        needed: Duration,
        available: Duration,
        /// Which lease limits it: `ttl` or `grace`.
        limit: &'static str,
        lease: Duration,
        stop_grace: Duration,
    },
    /// Killing comes after asking.
    #[error(
        "kill-slack {kill_slack:?} must be shorter than stop-grace {stop_grace:?}: killing comes after asking"
    )]
    KillBeforeAsking { kill_slack: Duration, stop_grace: Duration },
    /// A grace longer than the ttl is never used.
    #[error("grace {grace:?} is longer than ttl {ttl:?} and would never count")]
    GraceBeyondTtl { grace: Duration, ttl: Duration },
    /// A clock that bad cannot be used.
    #[error("clock-error {0} ppm is not possible: it must be below 200000 (20 %)")]
    RateError(u32),
}

impl Timing {
    /// The ttl when none is given.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(5);
    /// The ttl of the profile `fast`.
    pub const FAST_TTL: Duration = Duration::from_secs(2);
    /// The ttl of the profile `relaxed`.
    pub const RELAXED_TTL: Duration = Duration::from_secs(15);
    /// The error of a clock rate when none is given: 1 % on Linux; 10 % elsewhere, where the clock of leases is one that a time
    /// daemon may slew.
    pub const DEFAULT_RATE_ERROR_PPM: u32 = if cfg!(target_os = "linux") { 10_000 } else { 100_000 };
    /// The shortest ttl.
    pub const MIN_TTL: Duration = Duration::from_millis(100);
    /// The longest ttl.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// Fills in what was not said and checks every relation.
    pub fn new(settings: &TimingSettings) -> Result<Self, BadTiming> {
        let ttl = whole("ttl", settings.ttl.unwrap_or(Self::DEFAULT_TTL))?;
        in_range("ttl", ttl, Self::MIN_TTL, Self::MAX_TTL)?;
        let grace = whole("grace", settings.grace.unwrap_or(floor_millis(ttl / 2)))?;
        // On disconnect all of it has to fit into the grace.
        let (beat, op_timeout, stopping) = match settings.takeover {
            Takeover::Strict => (ttl / 4, ttl / 5, ttl),
            Takeover::OnDisconnect => (grace / 10, grace / 6, ttl.min(2 * grace)),
        };
        let timing = Self {
            ttl,
            beat: settings.beat.unwrap_or(beat),
            op_timeout: settings.op_timeout.unwrap_or(op_timeout),
            stop_grace: settings.stop_grace.unwrap_or(stopping / 5),
            kill_slack: settings.kill_slack.unwrap_or(stopping / 50),
            takeover: settings.takeover,
            grace,
            rate_error_ppm: settings.rate_error_ppm.unwrap_or(Self::DEFAULT_RATE_ERROR_PPM),
        };
        timing.check()?;
        Ok(timing)
    }

    fn check(&self) -> Result<(), BadTiming> {
        let Self { ttl, beat, op_timeout, stop_grace, kill_slack, grace, .. } = *self;
        if self.rate_error_ppm >= 200_000 {
            return Err(BadTiming::RateError(self.rate_error_ppm));
        }
        let tick = Duration::from_millis(1);
        for (key, got) in
            [("beat", beat), ("op-timeout", op_timeout), ("kill-slack", kill_slack), ("grace", grace)]
        {
            in_range(key, got, tick, Self::MAX_TTL)?;
        }
        if kill_slack >= stop_grace {
            return Err(BadTiming::KillBeforeAsking { kill_slack, stop_grace });
        }
        if self.takeover == Takeover::OnDisconnect && grace > ttl {
            return Err(BadTiming::GraceBeyondTtl { grace, ttl });
        }
        let needed = beat + 2 * op_timeout;
        let available = self.validity().saturating_sub(stop_grace);
        if needed > available {
            let (limit, lease) = match self.takeover {
                Takeover::Strict => ("ttl", ttl),
                Takeover::OnDisconnect => ("grace", grace),
            };
            return Err(BadTiming::NoRoomForTwoFailures {
                beat,
                op_timeout,
                needed,
                available,
                limit,
                lease,
                stop_grace,
            });
        }
        Ok(())
    }

    /// How long the owner may count on a beat, from before it was sent: its lease less its own clock's error.
    #[must_use]
    pub fn validity(&self) -> Duration {
        self.validity_under(self.takeover)
    }

    /// The same for a session that is opened under that rule, whatever was asked for.
    #[must_use]
    pub fn validity_under(&self, takeover: Takeover) -> Duration {
        let lease = match takeover {
            Takeover::Strict => self.ttl,
            Takeover::OnDisconnect => self.ttl.min(self.grace),
        };
        lease - self.rate_error(lease)
    }

    /// How often a standby reads that watches a leader, unless it knows when the leader beats: a little more often than a leader
    /// beats.
    #[must_use]
    pub fn watch(&self) -> Duration {
        self.beat * 4 / 5
    }

    /// How often a standby renews its session and reads when another standby watches the leader: at half of its lease, or as
    /// often as leaves room for a failure before its session would end.
    #[must_use]
    pub fn rest(&self) -> Duration {
        let room = self.validity().saturating_sub(self.stop_grace).saturating_sub(self.op_timeout);
        (self.ttl / 2).min(room).max(self.beat)
    }

    /// How long this node must have had one version of a session of that ttl before it may expel it.
    #[must_use]
    pub fn expulsion_wait(&self, ttl: Duration) -> Duration {
        // Rounded up: a nanosecond too early is too early.
        ttl.saturating_add(self.rate_error(ttl)).saturating_add(Duration::from_nanos(1))
    }

    /// How much true time has passed at least when this node's clock has shown that span.
    #[must_use]
    pub fn min_elapsed(&self, span: Duration) -> Duration {
        let nanos = span.as_nanos() * 1_000_000 / (1_000_000 + u128::from(self.rate_error_ppm));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn rate_error(&self, span: Duration) -> Duration {
        span.saturating_mul(self.rate_error_ppm) / 1_000_000
    }

    /// What follows from these times.
    #[must_use]
    pub fn bounds(&self) -> Bounds {
        let a_minute = |every: Duration| (60.0 / every.as_secs_f64()).ceil() as u64;
        let silent = self.expulsion_wait(self.ttl) + Duration::from_millis(100);
        Bounds {
            crash: silent + self.watch(),
            crash_of_two: silent + self.rest(),
            disconnect: match self.takeover {
                Takeover::Strict => None,
                Takeover::OnDisconnect => Some(self.expulsion_wait(self.grace) + Duration::from_millis(100)),
            },
            in_doubt: self.beat + self.op_timeout,
            cancel: self.validity() - self.stop_grace,
            deadline: self.validity(),
            operations_per_minute: a_minute(self.beat),
            standby_operations_per_minute: a_minute(self.rest()),
        }
    }
}

fn whole(key: &'static str, got: Duration) -> Result<Duration, BadTiming> {
    if floor_millis(got) == got { Ok(got) } else { Err(BadTiming::Fraction { key, got }) }
}

fn floor_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn in_range(key: &'static str, got: Duration, least: Duration, most: Duration) -> Result<(), BadTiming> {
    if (least..=most).contains(&got) { Ok(()) } else { Err(BadTiming::Range { key, got, least, most }) }
}

impl Default for Timing {
    fn default() -> Self {
        Self::new(&TimingSettings::default()).expect("the defaults hold")
    }
}

/// What people can count on, as it follows from a [`Timing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// A crashed leader is replaced within this.
    pub crash: Duration,
    /// The same if the standby that watches it dies with it, or just before.
    pub crash_of_two: Duration,
    /// The same when its connection was seen to drop, if that counts.
    pub disconnect: Option<Duration>,
    /// A leader cut off from the store knows that it is in doubt after this.
    pub in_doubt: Duration,
    /// Its work is told to stop after this, counted from its last good beat.
    pub cancel: Duration,
    /// Its tenure is over after this.
    pub deadline: Duration,
    /// Store operations a minute of a leader, and of the standby that watches it, whatever the number of roles.
    pub operations_per_minute: u64,
    /// Store operations a minute of every other standby.
    pub standby_operations_per_minute: u64,
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a crashed leader is replaced within   {:?}", self.crash)?;
        writeln!(f, "  if the standby that watches it dies {:?}", self.crash_of_two)?;
        if let Some(disconnect) = self.disconnect {
            writeln!(f, "a disconnected leader within          {disconnect:?}")?;
        }
        writeln!(f, "cut off from the store, a leader")?;
        writeln!(f, "  knows it after at most              {:?}", self.in_doubt)?;
        writeln!(f, "  tells its work to stop after        {:?}", self.cancel)?;
        writeln!(f, "  leads no more after                 {:?}", self.deadline)?;
        writeln!(f, "store operations a minute")?;
        writeln!(f, "  of a leader, of its first standby   {}", self.operations_per_minute)?;
        write!(f, "  of every other standby              {}", self.standby_operations_per_minute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let timing = Timing::default();
        assert_eq!((timing.ttl, timing.beat, timing.op_timeout), (ms(5000), ms(1250), ms(1000)));
        assert_eq!((timing.stop_grace, timing.kill_slack), (ms(1000), ms(100)));
        assert_eq!(timing.bounds().cancel, ms(3950));
        assert_eq!(timing.bounds().deadline, ms(4950));
        assert_eq!((timing.watch(), timing.rest()), (ms(1000), ms(2500)));
        assert_eq!(timing.bounds().operations_per_minute, 48);
        assert_eq!(timing.bounds().standby_operations_per_minute, 24);
        assert_eq!(
            (timing.bounds().crash.as_millis(), timing.bounds().crash_of_two.as_millis()),
            (6150, 7650)
        );
    }

    #[test]
    fn the_defaults_hold_with_the_clocks_of_every_system() {
        for ttl in [Timing::MIN_TTL, Timing::FAST_TTL, Timing::RELAXED_TTL, ms(30_000), Timing::MAX_TTL] {
            for takeover in [Takeover::Strict, Takeover::OnDisconnect] {
                for rate_error_ppm in [None, Some(10_000), Some(100_000)] {
                    let settings = TimingSettings {
                        ttl: Some(ttl),
                        takeover,
                        rate_error_ppm,
                        ..TimingSettings::default()
                    };
                    let timing = Timing::new(&settings);
                    assert!(timing.is_ok(), "{ttl:?} {takeover:?} {rate_error_ppm:?}: {timing:?}");
                }
            }
        }
    }

    #[test]
    fn a_short_grace_fits_into_a_long_lease() {
        let settings = TimingSettings {
            ttl: Some(ms(600_000)),
            takeover: Takeover::OnDisconnect,
            grace: Some(ms(2000)),
            ..TimingSettings::default()
        };
        let timing = Timing::new(&settings).unwrap();
        assert_eq!((timing.beat, timing.stop_grace, timing.kill_slack), (ms(200), ms(800), ms(80)));
        assert_eq!(timing.bounds().deadline, ms(1980));
        assert_eq!(timing.validity_under(Takeover::Strict), ms(594_000), "refused, the lease counts");
    }

    #[test]
    fn broken_relations_are_refused_with_both_numbers() {
        let five = TimingSettings { ttl: Some(ms(5000)), ..TimingSettings::default() };
        let cases = [
            (TimingSettings { ttl: Some(ms(10)), ..five.clone() }, "ttl = 10ms"),
            (TimingSettings { ttl: Some(Duration::ZERO), ..five.clone() }, "ttl = 0ns"),
            (
                TimingSettings { ttl: Some(Duration::from_micros(5_000_500)), ..five.clone() },
                "whole number of milliseconds",
            ),
            (TimingSettings { beat: Some(ms(3000)), ..five.clone() }, "beat 3s + 2 × op-timeout 1s = 5s"),
            (TimingSettings { beat: Some(Duration::ZERO), ..five.clone() }, "beat = 0ns"),
            (
                TimingSettings { kill_slack: Some(ms(1000)), ..five.clone() },
                "kill-slack 1s must be shorter than stop-grace 1s",
            ),
            (TimingSettings { rate_error_ppm: Some(300_000), ..five.clone() }, "300000 ppm"),
            (
                TimingSettings { takeover: Takeover::OnDisconnect, grace: Some(ms(6000)), ..five },
                "grace 6s is longer than ttl 5s",
            ),
        ];
        for (settings, words) in cases {
            let message = Timing::new(&settings).unwrap_err().to_string();
            assert!(message.contains(words), "{message:?} lacks {words:?}");
        }
    }
}

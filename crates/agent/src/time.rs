//! Times and durations: RFC 3339 for programs, "3m ago" for people.

use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use serde::{Serialize, Serializer};
use tenure::Timestamp;

/// A wall-clock time as programs read it: RFC 3339 in UTC, with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub Timestamp);

impl Stamp {
    #[must_use]
    pub fn now() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self(Timestamp::from_micros(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3}", timestamp(self.0))
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The nearest time that can be shown at all.
fn timestamp(wall: Timestamp) -> jiff::Timestamp {
    i64::try_from(wall.as_micros())
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

/// The time of day here: `14:02:11`, with the date if it was not today.
#[must_use]
pub fn clock(wall: Timestamp) -> String {
    let zone = TimeZone::system();
    let (then, now) = (timestamp(wall).to_zoned(zone.clone()), jiff::Timestamp::now().to_zoned(zone));
    let form = if then.date() == now.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    then.strftime(form).to_string()
}

/// The same of a time as programs read it; one that is none is shown as it is.
#[must_use]
pub fn clock_of(text: &str) -> String {
    wall_of(text).map_or_else(|| text.to_owned(), clock)
}

/// The time that a text says, if it says one.
#[must_use]
pub fn wall_of(text: &str) -> Option<Timestamp> {
    let time = text.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(time.as_microsecond()).ok().map(Timestamp::from_micros)
}

/// The time of day here, to the millisecond.
#[must_use]
pub fn clock_millis(wall: Timestamp) -> String {
    timestamp(wall).to_zoned(TimeZone::system()).strftime("%H:%M:%S%.3f").to_string()
}

/// `3m ago, 14:02:11`; on a narrow terminal only `3m ago`.
#[must_use]
pub fn since_within(wall: Timestamp, width: Option<usize>) -> String {
    let gone = ago(Duration::from_micros(Stamp::now().0.as_micros().saturating_sub(wall.as_micros())));
    if width.is_some_and(|width| width < 120) { gone } else { format!("{gone}, {}", clock(wall)) }
}

/// `0.4s ago`, `3m ago`: the one unit that matters.
#[must_use]
pub fn ago(gone: Duration) -> String {
    let seconds = gone.as_secs();
    match seconds {
        0..10 => format!("{:.1}s ago", gone.as_secs_f64()),
        10..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// `350µs`, `12ms`, `5.15s`, `3m 20s`, `2h 5m`, `3d 4h`.
#[must_use]
pub fn span(span: Duration) -> String {
    let two = |big: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit} {small}{part}"),
    };
    let (micros, seconds) = (span.as_micros(), span.as_secs());
    match seconds {
        _ if micros == 0 => "0s".to_owned(),
        0 if micros < 1000 => format!("{micros}µs"),
        0 if micros < 10_000 => trimmed(micros as f64 / 1000.0, "ms"),
        0 => format!("{}ms", span.as_millis()),
        1..60 => trimmed(span.as_secs_f64(), "s"),
        60..3600 => two(seconds / 60, "m", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

/// At most two decimals, and none that say nothing.
fn trimmed(number: f64, unit: &str) -> String {
    let text = format!("{number:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_rfc_3339_with_milliseconds() {
        let stamp = Stamp(Timestamp::from_micros(1_763_244_626_123_456));
        assert_eq!(serde_json::to_string(&stamp).unwrap(), "\"2025-11-15T22:10:26.123Z\"");
        let _ = Stamp(Timestamp::from_micros(u64::MAX)).to_string();
    }

    #[test]
    fn people_read_two_units_at_most() {
        let cases = [
            (0, "0s"),
            (350, "350µs"),
            (1500, "1.5ms"),
            (12_900, "12ms"),
            (1_000_000, "1s"),
            (5_150_000, "5.15s"),
            (59_999_000, "60s"),
            (200_000_000, "3m 20s"),
            (7_500_000_000, "2h 5m"),
            (273_600_000_000, "3d 4h"),
        ];
        for (micros, text) in cases {
            assert_eq!(span(Duration::from_micros(micros)), text);
        }
        assert_eq!(ago(Duration::from_millis(400)), "0.4s ago");
        assert_eq!(ago(Duration::from_secs(190)), "3m ago");
    }
}

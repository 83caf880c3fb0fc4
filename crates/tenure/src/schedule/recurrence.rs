//! When a task runs: a cron expression in a time zone, or an interval.

use std::fmt;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use super::TaskError;
use crate::Timestamp;

/// When a task runs. Every node computes the same ticks from it.
///
/// **Cron**: five fields (minute, hour, day of month, month, day of week) or six, with seconds first; names (`mon`,
/// `jan`), lists, ranges, steps, `L`, `W` and `#`; or `@yearly`, `@monthly`, `@weekly`, `@daily`, `@hourly`. If both days
/// are restricted, either is enough.
///
/// **Daylight saving.** An expression that names one time of day (`30 2 * * *`) runs once a day, always: where the clock
/// is put forward over it, at the first moment after the gap; where the clock is put back and shows it twice, the first
/// time. Any other expression (`*/15 * * * *`, `0 2,3 * * *`) follows the clock on the wall: times in the gap do not
/// exist and are not run, and those in the repeated hour are run both times.
///
/// **Interval**: counted from 1970 in UTC, so that all nodes agree; no time zone moves it.
#[derive(Clone)]
pub struct Recurrence {
    rule: RecurrenceRule,
    zone: TimeZone,
    /// As it was written.
    text: String,
    zone_name: String,
}

#[derive(Clone)]
enum RecurrenceRule {
    Cron(Box<Cron>),
    /// In microseconds.
    Every(u64),
}

impl fmt::Debug for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.text, self.zone_name)
    }
}

impl Recurrence {
    /// A cron expression in an IANA time zone, such as `Europe/Vienna` or `UTC`.
    ///
    /// # Errors
    /// If it cannot be read, there is no such zone, or it never comes.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, TaskError> {
        let bad = |why: String| TaskError::Cron { text: expression.to_owned(), why };
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let text = expression.trim();
        if text.starts_with('@') && !NICKNAMES.contains(&text.to_ascii_lowercase().as_str()) {
            return Err(bad(format!("the names are {}", NICKNAMES.join(", "))));
        }
        let cron = parser.parse(text).map_err(|error| bad(error.to_string()))?;
        let when = Self {
            rule: RecurrenceRule::Cron(Box::new(cron)),
            zone: time_zone(zone)?,
            text: text.to_owned(),
            zone_name: zone.to_owned(),
        };
        match when.next(Timestamp::from_micros(1_767_225_600_000_000)) {
            Some(_) => Ok(when),
            None => Err(bad("it never comes".to_owned())),
        }
    }

    /// Every so often.
    ///
    /// # Errors
    /// If it is less than 100 ms or more than a year.
    pub fn every(span: Duration) -> Result<Self, TaskError> {
        let micros = super::task::micros(span);
        if !(100_000..=366 * 86_400_000_000).contains(&micros) {
            return Err(TaskError::Every(span));
        }
        Ok(Self {
            rule: RecurrenceRule::Every(micros),
            zone: TimeZone::UTC,
            text: format!("every {}", humantime::format_duration(span)),
            zone_name: "UTC".to_owned(),
        })
    }

    /// The first tick after `after`; none if there is none within what the calendar can say.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.rule {
            RecurrenceRule::Every(micros) => {
                Some(Timestamp::from_micros((after.as_micros() / micros + 1).checked_mul(*micros)?))
            }
            RecurrenceRule::Cron(cron) => {
                let start = jiff::Timestamp::from_microsecond(i64::try_from(after.as_micros()).ok()?).ok()?;
                let mut from = start.to_zoned(self.zone.clone());
                // Where the clock on the wall goes back, an answer may be no later than the question.
                for _ in 0..4 {
                    let next = cron.find_next_occurrence(&from, false).ok()?;
                    if next.timestamp() > start && is_due(cron, &next) {
                        return Some(Timestamp::from_micros(
                            u64::try_from(next.timestamp().as_microsecond()).ok()?,
                        ));
                    }
                    from = next;
                }
                None
            }
        }
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The time zone's name.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone_name
    }
}

/// Whether the expression asks for that time, or for one that the clock on the wall leaves out just before it. The library
/// names the end of such a gap also when it is asked two seconds before it, for an expression that asks for neither.
fn is_due(cron: &Cron, at: &jiff::Zoned) -> bool {
    if cron.is_time_matching(at).unwrap_or(true) {
        return true;
    }
    let Ok(before) = at.timestamp().checked_sub(jiff::SignedDuration::from_secs(1)) else { return true };
    let offset = before.to_zoned(at.time_zone().clone()).offset();
    let unchanged = before.to_zoned(TimeZone::fixed(offset));
    cron.find_next_occurrence(&unchanged, false).is_ok_and(|next| next.datetime() < at.datetime())
}

const NICKNAMES: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

fn time_zone(name: &str) -> Result<TimeZone, TaskError> {
    if name.eq_ignore_ascii_case("utc") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| TaskError::Zone(name.to_owned()))
}

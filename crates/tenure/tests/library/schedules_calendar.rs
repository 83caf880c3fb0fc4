//! When tasks run: tables across both changes of the clock in three zones, and properties of the next tick.

use proptest::prelude::*;
use tenure::Timestamp;
use tenure::schedule::Recurrence;

fn wall(text: &str) -> Timestamp {
    let time: jiff::Timestamp = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    Timestamp::from_micros(u64::try_from(time.as_microsecond()).unwrap())
}

fn text(wall: Timestamp) -> String {
    jiff::Timestamp::from_microsecond(i64::try_from(wall.as_micros()).unwrap()).unwrap().to_string()
}

/// The next ticks of an expression after a moment, in UTC.
fn ticks(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let when = Recurrence::cron(cron, zone).unwrap();
    let mut at = wall(after);
    let mut next = || {
        at = when.next(at).unwrap();
        text(at)
    };
    (0..count).map(|_| next()).collect()
}

/// One time of day: once a day, always. In the gap at the first moment after it, in the repeated hour the first time.
#[test]
fn a_time_of_day_runs_once_a_day_across_both_changes() {
    let cases = [
        // Vienna: on 29 March 2026 02:00 becomes 03:00 (01:00Z); on 25 October 03:00 becomes 02:00 (01:00Z).
        (
            "30 2 * * *",
            "Europe/Vienna",
            "2026-03-27T12:00:00Z",
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        (
            "30 2 * * *",
            "Europe/Vienna",
            "2026-10-23T12:00:00Z",
            ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
        ),
        // New York: on 8 March 2026 02:00 becomes 03:00 (07:00Z); on 1 November 02:00 becomes 01:00 (06:00Z).
        (
            "30 2 * * *",
            "America/New_York",
            "2026-03-06T12:00:00Z",
            ["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
        ),
        (
            "30 1 * * *",
            "America/New_York",
            "2026-10-30T12:00:00Z",
            ["2026-10-31T05:30:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"],
        ),
        // Lord Howe: half an hour. On 4 October 2026 02:00 becomes 02:30 (15:30Z the day before); on 5 April 02:00
        // becomes 01:30 (15:00Z the day before).
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-01T16:00:00Z",
            ["2026-10-02T15:45:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-02T16:00:00Z",
            ["2026-04-03T14:45:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
        ),
    ];
    for (cron, zone, after, expected) in cases {
        assert_eq!(ticks(cron, zone, after, 3), expected, "{cron} in {zone} after {after}");
    }
}

/// Everything else follows the clock on the wall: what it never shows is not run, what it shows twice is run twice.
#[test]
fn other_expressions_follow_the_clock_on_the_wall() {
    let cases: [(&str, &str, &str, &[&str]); 7] = [
        (
            "*/30 * * * *",
            "Europe/Vienna",
            "2026-03-29T00:00:00Z",
            &["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
        ),
        // 02:00 and 02:30, twice each.
        (
            "*/30 2 * * *",
            "Europe/Vienna",
            "2026-10-24T22:00:00Z",
            &[
                "2026-10-25T00:00:00Z",
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:00:00Z",
                "2026-10-25T01:30:00Z",
                "2026-10-26T01:00:00Z",
            ],
        ),
        // Neither 02:00 nor 02:30 is shown on the day of the gap.
        ("*/30 2 * * *", "Europe/Vienna", "2026-03-28T12:00:00Z", &["2026-03-30T00:00:00Z"]),
        (
            "0 2,4 * * *",
            "Europe/Vienna",
            "2026-03-28T12:00:00Z",
            &["2026-03-29T02:00:00Z", "2026-03-30T00:00:00Z"],
        ),
        (
            "0 * * * *",
            "America/New_York",
            "2026-11-01T04:30:00Z",
            &["2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"],
        ),
        (
            "0 * * * *",
            "America/New_York",
            "2026-03-08T05:30:00Z",
            &["2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"],
        ),
        (
            "*/15 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            &[
                "2026-04-04T14:15:00Z",
                "2026-04-04T14:30:00Z",
                "2026-04-04T14:45:00Z",
                "2026-04-04T15:00:00Z",
                "2026-04-04T15:15:00Z",
                "2026-04-05T14:30:00Z",
            ],
        ),
    ];
    for (cron, zone, after, expected) in cases {
        assert_eq!(ticks(cron, zone, after, expected.len()), expected, "{cron} in {zone} after {after}");
    }
}

#[test]
fn names_fields_and_nicknames() {
    let cases: [(&str, &str); 9] = [
        ("30 2 * * mon-fri", "2026-01-02T02:30:00Z"),
        ("0 0 1 jan *", "2027-01-01T00:00:00Z"),
        ("*/10 * * * * *", "2026-01-01T12:00:10Z"),
        ("0 0 L * *", "2026-01-31T00:00:00Z"),
        ("0 0 * * FRI#2", "2026-01-09T00:00:00Z"),
        ("@hourly", "2026-01-01T13:00:00Z"),
        ("@daily", "2026-01-02T00:00:00Z"),
        ("@weekly", "2026-01-04T00:00:00Z"),
        ("@monthly", "2026-02-01T00:00:00Z"),
    ];
    for (cron, expected) in cases {
        assert_eq!(ticks(cron, "UTC", "2026-01-01T12:00:00Z", 1), [expected], "{cron}");
    }
    for wrong in ["", "* * * *", "* * * * * * *", "60 * * * *", "* * * * frog", "@never", "0 0 31 2 *"] {
        assert!(Recurrence::cron(wrong, "UTC").is_err(), "{wrong}");
    }
}

const EXPRESSIONS: [&str; 12] = [
    "* * * * *",
    "*/7 * * * *",
    "30 2 * * *",
    "30 1 * * *",
    "0 2,3 * * *",
    "*/15 1-3 * * sun",
    "0 0 1 * *",
    "15 14 1,15 * mon",
    "0 30 2 * * *",
    "*/20 * * * * *",
    "@hourly",
    "@daily",
];
const ZONES: [&str; 5] =
    ["UTC", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"];

/// Asked within the last seconds before the clock goes forward, a task of half past one was due at three, too.
#[test]
fn no_tick_comes_of_the_seconds_before_the_clock_goes_forward() {
    let when = Recurrence::cron("30 1 * * *", "America/New_York").unwrap();
    let change = wall("2026-03-08T07:00:00Z").as_micros();
    for tenths in 1..100 {
        let after = change - tenths * 100_000 - 1;
        let next = when.next(Timestamp::from_micros(after)).unwrap();
        assert_eq!(next, wall("2026-03-09T05:30:00Z"), "asked {tenths} tenths of a second before");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The next tick is later, and there is none between: any time in between gives the same answer.
    #[test]
    fn the_next_tick_is_the_same_from_everywhere_before_it(
        expression in 0..EXPRESSIONS.len(),
        zone in 0..ZONES.len(),
        // From 2025 to 2028, to the microsecond.
        after in 1_735_689_600_000_000_u64..1_830_297_600_000_000,
        within in 0.0..1.0_f64,
    ) {
        let when = Recurrence::cron(EXPRESSIONS[expression], ZONES[zone]).unwrap();
        let next = when.next(Timestamp::from_micros(after)).unwrap();
        prop_assert!(next.as_micros() > after);
        prop_assert_eq!(next.as_micros() % 1_000_000, 0, "ticks are whole seconds");
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let between = after + ((next.as_micros() - after - 1) as f64 * within) as u64;
        prop_assert_eq!(when.next(Timestamp::from_micros(between)).unwrap(), next);
        prop_assert_eq!(when.next(Timestamp::from_micros(next.as_micros() - 1)).unwrap(), next);
        prop_assert!(when.next(next).unwrap() > next);
    }

    /// Around every change of the clock, where it is hardest.
    #[test]
    fn the_next_tick_is_the_same_from_everywhere_near_a_change_of_the_clock(
        expression in 0..EXPRESSIONS.len(),
        change in 0..6_usize,
        before in 0..20_000_000_000_u64,
        within in 0.0..1.0_f64,
    ) {
        let changes = [
            ("Europe/Vienna", "2026-03-29T01:00:00Z"),
            ("Europe/Vienna", "2026-10-25T01:00:00Z"),
            ("America/New_York", "2026-03-08T07:00:00Z"),
            ("America/New_York", "2026-11-01T06:00:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
        ];
        let (zone, at) = changes[change];
        let when = Recurrence::cron(EXPRESSIONS[expression], zone).unwrap();
        let after = wall(at).as_micros() + 10_000_000_000 - before;
        let next = when.next(Timestamp::from_micros(after)).unwrap();
        prop_assert!(next.as_micros() > after);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let between = after + ((next.as_micros() - after - 1) as f64 * within) as u64;
        prop_assert_eq!(when.next(Timestamp::from_micros(between)).unwrap(), next, "{} in {}", EXPRESSIONS[expression], zone);
    }

    #[test]
    fn intervals_divide_time_evenly(
        millis in 100..10_000_000_u64,
        after in 0..2_000_000_000_000_000_u64,
    ) {
        let when = Recurrence::every(std::time::Duration::from_millis(millis)).unwrap();
        let next = when.next(Timestamp::from_micros(after)).unwrap();
        prop_assert!(next.as_micros() > after && next.as_micros() - after <= millis * 1000);
        prop_assert_eq!(next.as_micros() % (millis * 1000), 0);
    }
}

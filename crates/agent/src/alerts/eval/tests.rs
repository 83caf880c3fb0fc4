//! Results computed by hand, and properties that hold for whatever was kept.

use std::time::Duration;

use proptest::prelude::*;

use super::super::condition::{Aggregate, Comparison, Condition, OPERATORS, Operator, Rise, Selector};
use super::super::samples::{Labels, SampleStore, SeriesValue, read_exposition};
use super::{Series, evaluate};

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn found(metric: &str, pairs: &[(&str, &str)], value: f64) -> SeriesValue {
    SeriesValue { metric: metric.to_owned(), labels: labels(pairs), value }
}

fn read(text: &str) -> Condition {
    Condition::read(text, "tenure").unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Evaluates after these rounds, ten seconds apart.
fn after(text: &str, rounds: &[Vec<SeriesValue>]) -> Series {
    let condition = read(text);
    let mut samples = SampleStore::default();
    samples.want(condition.wanted().into_iter());
    for (index, round) in rounds.iter().enumerate() {
        samples.begin(10.0 * index as f64);
        samples.take("a", round.clone());
    }
    evaluate(&condition, &samples)
}

/// Values of one counter, in rounds ten seconds apart.
fn counter(values: &[f64]) -> Vec<Vec<SeriesValue>> {
    values.iter().map(|value| vec![found("failovers_total", &[("role", "r")], *value)]).collect()
}

/// The one value of an expression: compared with what no value is.
fn one(text: &str, rounds: &[Vec<SeriesValue>]) -> f64 {
    let series = after(&format!("{text} != 123456"), rounds);
    assert_eq!(series.len(), 1, "{text}: {series:?}");
    *series.values().next().unwrap()
}

fn cluster() -> Vec<Vec<SeriesValue>> {
    let leads =
        |role: &str, node: &str, value: f64| found("is_leader", &[("role", role), ("node", node)], value);
    vec![vec![
        leads("x", "a", 1.0),
        leads("x", "b", 0.0),
        leads("y", "a", 1.0),
        leads("y", "b", 1.0),
        leads("z", "a", 0.0),
        leads("z", "b", 0.0),
        found("in_doubt", &[("node", "a")], 1.0),
        found("in_doubt", &[("node", "b")], 0.0),
        found("leading", &[("node", "a")], 2.0),
        found("leading", &[("node", "b")], 8.0),
    ]]
}

#[test]
fn what_is_there_now_is_selected_aggregated_compared_and_joined() {
    for (text, expected) in [
        ("tenure_is_leader{role='x'} == 1", vec![("node=a,role=x", 1.0)]),
        ("tenure_is_leader{role=\"x\",node!='b',} >= 0", vec![("node=a,role=x", 1.0)]),
        ("tenure_is_leader{role!='x',nothing=''}==0", vec![("node=a,role=z", 0.0), ("node=b,role=z", 0.0)]),
        ("tenure_leading{} < 5", vec![("node=a", 2.0)]),
        ("tenure_leading <= 8e0", vec![("node=a", 2.0), ("node=b", 8.0)]),
        ("tenure_leading > -1", vec![("node=a", 2.0), ("node=b", 8.0)]),
        ("sum by (role) (tenure_is_leader) > 1", vec![("role=y", 2.0)]),
        ("sum(tenure_is_leader) by (role) > 1", vec![("role=y", 2.0)]),
        (
            "count by(role,node)(tenure_is_leader{role='x'}) == 1",
            vec![("node=a,role=x", 1.0), ("node=b,role=x", 1.0)],
        ),
        ("max by (role) (tenure_is_leader) == 0", vec![("role=z", 0.0)]),
        ("count(tenure_is_leader) != 0", vec![("", 6.0)]),
        ("avg by (role) (tenure_is_leader) == 0.5", vec![("role=x", 0.5)]),
        ("min(tenure_leading) < 3", vec![("", 2.0)]),
        ("tenure_in_doubt == 1 or tenure_leading > 5", vec![("node=a", 1.0), ("node=b", 8.0)]),
        ("tenure_in_doubt == 1 or tenure_leading > 0", vec![("node=a", 1.0), ("node=b", 8.0)]),
    ] {
        let plain = |labels: &Labels| {
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        let series = after(text, &cluster());
        let series: Vec<(String, f64)> =
            series.iter().map(|(labels, value)| (plain(labels), *value)).collect();
        let expected: Vec<(String, f64)> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(series, expected, "{text}");
    }
}

/// As FORGE wrote it: it must fire when there is no series at all, which in Prometheus it does not.
#[test]
fn the_sum_of_nothing_is_nought() {
    let condition = "sum(forge_leader_is_leader{role='scheduler'}) == 0";
    let nought = || Series::from([(Labels::new(), 0.0)]);
    assert_eq!(after(condition, &[vec![]]), nought());
    assert_eq!(after(condition, &cluster()), nought());
    assert_eq!(after("count(tenure_leading) < 1", &[vec![]]), nought());
    assert!(after("sum by (role) (tenure_leading) == 0", &[vec![]]).is_empty());
    assert!(after("max(tenure_leading) == 0", &[vec![]]).is_empty());
    let led = vec![found("is_leader", &[("role", "scheduler"), ("node", "a")], 1.0)];
    assert!(after(condition, &[led]).is_empty());
}

#[test]
fn a_rate_is_per_second_and_that_is_explained() {
    let condition = Condition::read("rate(forge_leader_failovers_total[5m]) > 5", "tenure").unwrap();
    let notices = condition.notices.join("\n");
    assert!(notices.contains("1500 in 5m") && notices.contains("increase"), "{notices}");
    assert!(notices.contains("forge_leader_failovers_total (FORGE) is tenure_failovers_total"), "{notices}");
    assert!(read("increase(tenure_failovers_total[5m]) > 5").notices.is_empty());
    assert!(read("rate(tenure_failovers_total[5m]) > 0.01").notices.is_empty());
    let forge = Condition::read("sum(rate(forge_leader_failovers_total[5m])) > 5", "forge_leader").unwrap();
    assert_eq!(forge.notices.len(), 1, "its own prefix needs no notice: {:?}", forge.notices);
}

/// Computed by hand from Prometheus' definition: samples at 0, 10, 20, 30; the range is 40 s long, so that the change is
/// stretched by the 10 s before the first sample, which is less than 1.1 steps.
#[test]
fn functions_of_time_are_as_in_prometheus() {
    let steady = counter(&[10.0, 20.0, 30.0, 40.0]);
    assert_eq!(one("increase(tenure_failovers_total[40s])", &steady), 40.0);
    assert_eq!(one("rate(tenure_failovers_total[40s])", &steady), 1.0);
    // A counter is not stretched below zero: 30 in 30 s began with 5, which is 5 s before.
    assert_eq!(one("increase(tenure_failovers_total[40s])", &counter(&[5.0, 15.0, 25.0, 35.0])), 35.0);
    // The samples end at most half a step before the series began: the range is far longer.
    assert_eq!(one("increase(tenure_failovers_total[10m])", &counter(&[100.0, 110.0, 120.0, 130.0])), 35.0);
    // A counter that began anew: 10 → 30, then 5 → 10.
    let anew = counter(&[10.0, 30.0, 5.0, 10.0]);
    assert_eq!(one("increase(tenure_failovers_total[31s])", &anew), 30.0 * 31.0 / 30.0);
    assert_eq!(one("rate(tenure_failovers_total[31s])", &anew), 1.0);
    assert!(after("rate(tenure_failovers_total[5s]) != -1", &anew).is_empty(), "one sample has no rate");
    assert_eq!(one("sum(increase(tenure_failovers_total[1m]))", &[vec![]]), 0.0);
}

/// The first fail-over of a role makes its series: it counts.
#[test]
fn a_counter_that_appears_began_at_nought() {
    let mut rounds = vec![vec![]];
    rounds.extend(counter(&[3.0]));
    assert_eq!(one("increase(tenure_failovers_total[11s])", &rounds), 3.0);
    assert!(after("increase(tenure_failovers_total[11s]) != -1", &counter(&[3.0])).is_empty());
}

#[test]
fn a_series_that_is_gone_is_not_there_now_but_was() {
    let mut rounds = counter(&[1.0, 2.0]);
    rounds.push(Vec::new());
    assert!(after("tenure_failovers_total > 0", &rounds).is_empty());
    assert!(one("increase(tenure_failovers_total[1m])", &rounds) > 0.0);
}

/// What Prometheus understands and this does not is named, together with what this does understand.
#[test]
fn everything_else_is_refused_with_what_is_supported() {
    for (text, part) in [
        ("", "expected a metric at its end"),
        ("sum(", "expected a metric at its end"),
        ("1 + 1", "expected a metric before `1 + 1`"),
        ("5 < tenure_leading", "expected a metric before `5"),
        ("tenure_leading", "expected a comparison"),
        ("tenure_leading[5m] > 0", "expected a comparison"),
        ("tenure_leading > ", "expected a number"),
        ("tenure_leading > bool 1", "expected a number"),
        ("tenure_leading > NaN", "expected a number"),
        ("tenure_leading > 5 - 3", "expected `or` or the end before `- 3`"),
        ("tenure_leading > 5 and tenure_in_doubt == 1", "expected `or` or the end before `and"),
        ("tenure_leading > 5 orr tenure_in_doubt == 1", "expected `or` or the end before `orr"),
        ("(tenure_leading > 5)", "expected a metric before `("),
        ("tenure_leading * 2 > 5", "expected a comparison"),
        ("tenure_leading > tenure_in_doubt", "expected a number before `tenure_in_doubt"),
        ("{role='x'} == 0", "expected a metric before `{"),
        ("tenure_is_leader{role=~'x|y'} == 0", "=~ is not supported"),
        ("tenure_is_leader{role='x} == 0", "a closing quote"),
        ("tenure_is_leader{role='\\d'} == 0", "no escapes"),
        ("tenure_is_leader{role='x' node='y'} == 0", "`,` or `}`"),
        ("rate(tenure_failovers_total) > 0", "expected `[`"),
        ("rate(tenure_failovers_total[5]) > 0", "a duration"),
        ("rate(tenure_failovers_total[0s]) > 0", "a duration"),
        ("rate(tenure_failovers_total[99999999999999w]) > 0", "a duration"),
        ("rate(tenure_failovers_total[5m:1m]) > 0", "a duration"),
        ("topk(3, tenure_leading) > 0", "topk is not supported"),
        ("absent(tenure_leading) > 0", "absent is not supported"),
        ("stddev by (role) (tenure_leading) > 0", "stddev is not supported"),
        ("sum without (role) (tenure_leading) > 0", "expected `(` before `without"),
        ("sum(max(tenure_leading)) > 0", "max is not supported"),
        ("tenure_leading offset 5m > 0", "expected a comparison"),
    ] {
        let why = Condition::read(text, "tenure").expect_err(text);
        assert!(
            why.contains(part) && why.contains("docs/guides/alerts.md") && why.contains("Prometheus"),
            "{text}: {why}"
        );
    }
    let why = Condition::read("tenure_is_laeder == 0", "tenure").unwrap_err();
    assert_eq!(why, "unknown metric tenure_is_laeder; did you mean tenure_is_leader?");
}

#[test]
fn durations_are_as_in_prometheus() {
    for (text, seconds) in
        [("5m", 300.0), ("1h30m", 5400.0), ("90s", 90.0), ("1m500ms", 60.5), ("1w2d", 777_600.0)]
    {
        let condition = read(&format!("increase(tenure_failovers_total[ {text} ]) > 5"));
        assert_eq!(condition.wanted()[0].1.as_secs_f64(), seconds, "{text}");
    }
}

#[test]
fn an_exposition_is_read_as_it_is_written() {
    let text = "# HELP x y\n# TYPE tenure_is_leader gauge\ntenure_is_leader{role=\"a\\\"b,}\"} 1\n\
                tenure_leading 2\nother_thing 3\ntenure_beat_seconds_bucket{le=\"+Inf\"} 7\n\
                tenure_leading{node=\"z\",} +Inf 123\nbroken{ 1\ntenure_x{a=\"b} 1\n# EOF\n";
    let read = read_exposition(text, &["tenure"], "me");
    assert_eq!(
        read,
        [
            found("is_leader", &[("role", "a\"b,}"), ("node", "me")], 1.0),
            found("leading", &[("node", "me")], 2.0),
            found("beat_seconds_bucket", &[("le", "+Inf"), ("node", "me")], 7.0),
            found("leading", &[("node", "z")], f64::INFINITY),
        ]
    );
}

#[test]
fn only_what_is_wanted_is_kept_and_only_as_long() {
    let mut samples = SampleStore::default();
    samples.want([("failovers_total".to_owned(), Duration::from_secs(30))].into_iter());
    for round in 0..100 {
        samples.begin(10.0 * f64::from(round));
        samples.take("a", cluster().remove(0).into_iter().chain(counter(&[1.0]).remove(0)));
    }
    let text = format!("{samples:?}");
    assert!(!text.contains("is_leader"), "{text}");
    assert_eq!(text.matches("Sample {").count(), 3, "{text}");
}

/// A comparison, as words between which blanks may be, and what it means.
fn comparisons() -> impl Strategy<Value = (Vec<String>, Comparison)> {
    let labels = prop::collection::vec("[a-z]{1,5}", 0..3);
    let matchers = prop::collection::vec(("[a-z]{1,5}", any::<bool>(), "[ -&(-\\[\\]-~ä]{0,5}"), 0..3);
    let aggregates = [
        ("sum", Aggregate::Sum),
        ("min", Aggregate::Min),
        ("max", Aggregate::Max),
        ("avg", Aggregate::Avg),
        ("count", Aggregate::Count),
    ];
    let aggregate = prop::option::of((prop::sample::select(aggregates.to_vec()), labels));
    let rises = [("rate", Rise::Rate), ("increase", Rise::Increase)];
    let rise = prop::option::of((prop::sample::select(rises.to_vec()), 1..100_000_u64));
    let limit = -1_000_000..1_000_000_i32;
    (aggregate, matchers, rise, prop::sample::select(OPERATORS.to_vec()), limit).prop_map(written)
}

type Parts = (
    Option<((&'static str, Aggregate), Vec<String>)>,
    Vec<(String, bool, String)>,
    Option<((&'static str, Rise), u64)>,
    (&'static str, Operator),
    i32,
);

fn written((aggregate, matchers, rise, operator, limit): Parts) -> (Vec<String>, Comparison) {
    let mut words = vec!["tenure_leading".to_owned(), "{".to_owned()];
    for (label, equal, value) in &matchers {
        let sign = if *equal { "=" } else { "!=" };
        words.extend([label.clone(), sign.to_owned(), format!("'{value}'"), ",".to_owned()]);
    }
    words.push("}".to_owned());
    let around = |words: Vec<String>, before: &[&str], after: &[&str]| -> Vec<String> {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        [owned(before), words, owned(after)].concat()
    };
    if let Some(((name, _), seconds)) = &rise {
        words = around(words, &[name, "("], &["[", &format!("{seconds}s"), "]", ")"]);
    }
    if let Some(((name, _), labels)) = &aggregate {
        let by = if labels.is_empty() { String::new() } else { format!(" by ({})", labels.join(",")) };
        words = around(words, &[&format!("{name}{by}"), "("], &[")"]);
    }
    words.extend([operator.0.to_owned(), limit.to_string()]);
    let selector = Selector { metric: "leading".to_owned(), matchers };
    let rise = rise.map(|((_, rise), seconds)| (rise, Duration::from_secs(seconds)));
    let aggregate = aggregate.map(|((_, how), by)| (how, by));
    (words, Comparison { aggregate, selector, rise, operator: operator.1, limit: f64::from(limit) })
}

proptest! {
    /// Whatever is typed is read or refused.
    #[test]
    fn nothing_that_is_typed_harms_the_parser(text in "((sum|rate|increase|tenure_leading|tenure_led|[a-z_ä]{1,6}|[0-9.]{1,4}|[-+*/%^<>=!(){}\\[\\]'\",:\\\\ ]|==|by|or|5m) ?){0,12}") {
        if let Ok(condition) = Condition::read(&text, "tenure") {
            let mut samples = SampleStore::default();
            samples.want(condition.wanted().into_iter());
            samples.begin(1.0);
            samples.take("a", cluster().remove(0));
            let _ = evaluate(&condition, &samples);
        }
    }

    /// What the grammar allows is read as it was meant, however it is spaced.
    #[test]
    fn whatever_the_grammar_allows_is_read_as_it_was_meant(parts in prop::collection::vec(comparisons(), 1..4), blank in "[ \n\t]{0,2}") {
        let text = parts.iter().map(|(words, _)| words.join(&blank)).collect::<Vec<_>>().join(" or ");
        let read = Condition::read(&text, "tenure").unwrap_or_else(|why| panic!("{why}"));
        let meant: Vec<Comparison> = parts.into_iter().map(|(_, comparison)| comparison).collect();
        prop_assert_eq!(read.any, meant, "{}", text);
    }

    /// An exposition of any kind is read without harm.
    #[test]
    fn nothing_that_is_exposed_harms_the_reader(text in "(tenure_[a-z]{1,5}(\\{[a-z=\",\\\\}]{0,12})? ?[0-9.eE+-]{0,5}\n|.{0,20}\n){0,5}") {
        let _ = read_exposition(&text, &["tenure"], "me");
    }

    /// What rises by known steps, resets included, rises by their sum where the samples fill the range, and the parts of
    /// a comparison with a number are the whole.
    #[test]
    fn laws_that_hold_for_every_counter(steps in prop::collection::vec((0_u32..50, prop::bool::weighted(0.1)), 2..40), limit in 0_u32..60) {
        let (mut value, mut values, mut rose) = (0.0, vec![0.0], 0.0);
        for (step, anew) in &steps {
            let step = f64::from(*step);
            value = if *anew && step < value { step } else { value + step };
            rose += step;
            values.push(value);
        }
        let rounds = counter(&values);
        // From just before the first sample to the last: nothing to stretch, because it began at nought.
        let span = 10 * steps.len() + 1;
        let found = one(&format!("increase(tenure_failovers_total[{span}s])"), &rounds);
        prop_assert!((found - rose).abs() < 1e-6 * rose.max(1.0), "{found} {rose} {values:?}");
        let count = |text: String| after(&text, &rounds).len();
        let (more, less) = (count(format!("tenure_failovers_total > {limit}")), count(format!("tenure_failovers_total <= {limit}")));
        prop_assert_eq!(more + less, 1);
        let rate = one(&format!("rate(tenure_failovers_total[{span}s])"), &rounds);
        prop_assert!((rate * span as f64 - found).abs() < 1e-6 * found.max(1.0));
    }
}

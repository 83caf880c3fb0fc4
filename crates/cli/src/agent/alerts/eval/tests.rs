//! Results computed by hand, and properties that hold for whatever was kept.

use std::time::Duration;

use proptest::prelude::*;

use super::super::keep::{Found, Keep, Labels, read_exposition};
use super::super::promql::Condition;
use super::evaluate;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn found(metric: &str, pairs: &[(&str, &str)], value: f64) -> Found {
    Found { metric: metric.to_owned(), labels: labels(pairs), value }
}

fn read(text: &str) -> Condition {
    Condition::read(text, "tenure").unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Evaluates after these rounds, ten seconds apart.
fn after(text: &str, rounds: &[Vec<Found>]) -> Result<Vec<(Labels, f64)>, String> {
    let condition = read(text);
    let mut keep = Keep::default();
    keep.want(condition.wanted().into_iter());
    for (index, round) in rounds.iter().enumerate() {
        keep.begin(10.0 * index as f64, 1_000_000.0 + 10.0 * index as f64);
        keep.take("a", round.clone());
    }
    evaluate(&condition.plan, &keep)
}

/// Values of one counter, in rounds ten seconds apart.
fn counter(values: &[f64]) -> Vec<Vec<Found>> {
    values.iter().map(|value| vec![found("failovers_total", &[("role", "r")], *value)]).collect()
}

fn one(text: &str, rounds: &[Vec<Found>]) -> f64 {
    let series = after(text, rounds).unwrap();
    assert_eq!(series.len(), 1, "{text}: {series:?}");
    series[0].1
}

fn cluster() -> Vec<Vec<Found>> {
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
fn what_is_there_now_is_selected_gathered_compared_and_joined() {
    for (text, expected) in [
        ("tenure_is_leader{role='x'} == 1", vec![("node=a,role=x", 1.0)]),
        ("tenure_is_leader{role=~'x|z',node!='b'}", vec![("node=a,role=x", 1.0), ("node=a,role=z", 0.0)]),
        ("tenure_is_leader{role!~'x|z'} == 0", vec![]),
        ("sum by (role) (tenure_is_leader) > 1", vec![("role=y", 2.0)]),
        ("sum without (node) (tenure_is_leader) == 0", vec![("role=z", 0.0)]),
        (
            "max by (role) (tenure_is_leader) == bool 0",
            vec![("role=x", 0.0), ("role=y", 0.0), ("role=z", 1.0)],
        ),
        ("count(tenure_is_leader)", vec![("", 6.0)]),
        ("count(tenure_is_leader == 1)", vec![("", 3.0)]),
        ("avg by (role) (tenure_is_leader) < 1 > 0", vec![("role=x", 0.5)]),
        ("min(tenure_leading)", vec![("", 2.0)]),
        ("group by (node) (tenure_leading)", vec![("node=a", 1.0), ("node=b", 1.0)]),
        ("tenure_leading * 2 + 1", vec![("node=a", 5.0), ("node=b", 17.0)]),
        ("2 ^ tenure_leading % 100", vec![("node=a", 4.0), ("node=b", 56.0)]),
        ("10 - tenure_leading > 3", vec![("node=a", 8.0)]),
        ("-tenure_leading < -5", vec![("node=b", -8.0)]),
        ("tenure_leading / tenure_leading", vec![("node=a", 1.0), ("node=b", 1.0)]),
        ("tenure_leading > tenure_in_doubt", vec![("node=a", 2.0), ("node=b", 8.0)]),
        ("tenure_leading and tenure_in_doubt == 1", vec![("node=a", 2.0)]),
        ("tenure_leading unless tenure_in_doubt == 1", vec![("node=b", 8.0)]),
        ("tenure_in_doubt == 1 or tenure_leading > 5", vec![("node=a", 1.0), ("node=b", 8.0)]),
        (
            "tenure_is_leader == 1 and on (node) tenure_in_doubt == 1",
            vec![("node=a,role=x", 1.0), ("node=a,role=y", 1.0)],
        ),
        ("tenure_in_doubt == 0 unless ignoring (node) tenure_leading > 100", vec![("node=b", 0.0)]),
        ("clamp_max(tenure_leading, 5)", vec![("node=a", 2.0), ("node=b", 5.0)]),
        ("clamp(tenure_leading, 3, 5)", vec![("node=a", 3.0), ("node=b", 5.0)]),
        ("round(tenure_leading / 3)", vec![("node=a", 1.0), ("node=b", 3.0)]),
        ("ceil(tenure_leading / 3)", vec![("node=a", 1.0), ("node=b", 3.0)]),
        ("floor(abs(-tenure_leading / 3))", vec![("node=a", 0.0), ("node=b", 2.0)]),
        ("vector(time()) - 1000000", vec![("", 0.0)]),
        ("tenure_leading > scalar(tenure_leading{node='a'})", vec![("node=b", 8.0)]),
        ("absent(tenure_is_leader{role='x'})", vec![]),
        ("absent(tenure_is_leader{role='gone',node=~'a|b'})", vec![("role=gone", 1.0)]),
        ("absent(sum(tenure_is_leader{role='gone'}))", vec![("", 1.0)]),
    ] {
        let series = after(text, &cluster()).unwrap_or_else(|why| panic!("{text}: {why}"));
        let plain = |labels: &Labels| {
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
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
    assert_eq!(after(condition, &[vec![]]).unwrap(), [(Labels::new(), 0.0)]);
    assert_eq!(after(condition, &cluster()).unwrap(), [(Labels::new(), 0.0)]);
    assert_eq!(after("count(tenure_leading) < 1", &[vec![]]).unwrap().len(), 1);
    assert_eq!(after("sum by (role) (tenure_leading) == 0", &[vec![]]).unwrap(), []);
    assert_eq!(after("max(tenure_leading) == 0", &[vec![]]).unwrap(), []);
    let led = vec![found("is_leader", &[("role", "scheduler"), ("node", "a")], 1.0)];
    assert_eq!(after(condition, &[led]).unwrap(), []);
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
    assert_eq!(one("resets(tenure_failovers_total[1m])", &anew), 1.0);
    assert_eq!(one("irate(tenure_failovers_total[1m])", &anew), 0.5);
    assert_eq!(one("delta(tenure_failovers_total[31s])", &anew), 0.0);
    let some = counter(&[1.0, 1.0, 4.0, 2.0]);
    for (function, expected) in [
        ("changes", 2.0),
        ("min_over_time", 1.0),
        ("max_over_time", 4.0),
        ("avg_over_time", 2.0),
        ("sum_over_time", 8.0),
        ("count_over_time", 4.0),
        ("last_over_time", 2.0),
        ("present_over_time", 1.0),
    ] {
        assert_eq!(one(&format!("{function}(tenure_failovers_total[1m])"), &some), expected, "{function}");
    }
    // The range is open at its beginning.
    assert_eq!(one("count_over_time(tenure_failovers_total[30s])", &some), 3.0);
    assert_eq!(after("rate(tenure_failovers_total[5s])", &some).unwrap(), [], "one sample has no rate");
    assert_eq!(after("absent_over_time(tenure_failovers_total[1m])", &some).unwrap(), []);
    assert_eq!(one("absent_over_time(tenure_failovers_total{role='q'}[1m])", &some), 1.0);
}

/// The first fail-over of a role makes its series: it counts.
#[test]
fn a_counter_that_appears_began_at_nought() {
    let mut rounds = vec![vec![]];
    rounds.extend(counter(&[3.0]));
    assert_eq!(one("increase(tenure_failovers_total[11s])", &rounds), 3.0);
    assert_eq!(after("increase(tenure_failovers_total[11s])", &counter(&[3.0])).unwrap(), []);
}

#[test]
fn a_series_that_is_gone_is_not_there_now_but_was() {
    let mut rounds = counter(&[1.0, 2.0]);
    rounds.push(Vec::new());
    assert_eq!(after("tenure_failovers_total", &rounds).unwrap(), []);
    assert_eq!(one("max_over_time(tenure_failovers_total[1m])", &rounds), 2.0);
}

#[test]
fn series_that_cannot_be_told_apart_are_an_error() {
    let why = after("tenure_in_doubt > on () tenure_leading", &cluster()).unwrap_err();
    assert!(why.contains("on(…)"), "{why}");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (text, part) in [
        ("", "not PromQL"),
        ("sum(", "not PromQL"),
        ("1 + 1", "selects series"),
        ("tenure_leading[5m]", "matrix"),
        ("tenure_is_laeder == 0", "did you mean tenure_is_leader?"),
        ("{role='x'} == 0", "names no metric"),
        ("topk(3, tenure_leading) > 0", "topk is not supported"),
        ("quantile(0.9, tenure_leading) > 0", "quantile is not supported"),
        ("tenure_leading offset 5m > 0", "offset is not supported"),
        ("tenure_leading @ 1 > 0", "@ is not supported"),
        ("max_over_time(rate(tenure_failovers_total[1m])[5m:1m]) > 0", "a subquery is not supported"),
        ("tenure_is_leader * on (node) group_left tenure_leading > 0", "group_left is not supported"),
        ("predict_linear(tenure_leading[5m], 60) > 0", "predict_linear() is not supported"),
        ("histogram_quantile(0.9, tenure_beat_seconds_bucket) > 1", "histogram_quantile() is not supported"),
        ("label_replace(tenure_leading, 'a', 'b', 'c', 'd') > 0", "label_replace() is not supported"),
        ("tenure_leading atan2 tenure_leading > 0", "atan2 is not supported"),
    ] {
        let why = Condition::read(text, "tenure").expect_err(text);
        assert!(why.contains(part), "{text}: {why}");
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
    let mut keep = Keep::default();
    keep.want([("failovers_total".to_owned(), Duration::from_secs(30))].into_iter());
    for round in 0..100 {
        keep.begin(10.0 * f64::from(round), 0.0);
        keep.take("a", cluster().remove(0).into_iter().chain(counter(&[1.0]).remove(0)));
    }
    let text = format!("{keep:?}");
    assert!(!text.contains("is_leader"), "{text}");
    assert_eq!(text.matches("Sample").count(), 3, "{text}");
}

proptest! {
    /// Whatever is typed is read or refused.
    #[test]
    fn nothing_that_is_typed_harms_the_reader(text in "((sum|rate|absent|tenure_leading|[a-z_]{1,6}|[0-9.]{1,4}|[-+*/%^<>=!(){}\\[\\]'\",: ]|by|on|and|or|5m) ?){0,12}") {
        if let Ok(condition) = Condition::read(&text, "tenure") {
            let mut keep = Keep::default();
            keep.want(condition.wanted().into_iter());
            keep.begin(1.0, 1.0);
            keep.take("a", cluster().remove(0));
            let _ = evaluate(&condition.plan, &keep);
        }
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
        let found = after(&format!("increase(tenure_failovers_total[{span}s])"), &rounds).unwrap()[0].1;
        prop_assert!((found - rose).abs() < 1e-6 * rose.max(1.0), "{found} {rose} {values:?}");
        let count = |text: String| after(&text, &rounds).unwrap().len();
        let (more, less) = (count(format!("tenure_failovers_total > {limit}")), count(format!("tenure_failovers_total <= {limit}")));
        prop_assert_eq!(more + less, 1);
        let most = one("max_over_time(tenure_failovers_total[1h])", &rounds);
        prop_assert!(most >= one("avg_over_time(tenure_failovers_total[1h])", &rounds) && most >= one("min_over_time(tenure_failovers_total[1h])", &rounds));
        let rate = one(&format!("rate(tenure_failovers_total[{span}s])"), &rounds);
        prop_assert!((rate * span as f64 - found).abs() < 1e-6 * found.max(1.0));
    }
}

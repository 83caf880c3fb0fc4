//! The summary: how often, how long, and whether two ever led at once. Every figure is measured.

use std::fmt::{self, Write as _};
use std::time::Duration;

use tenure::Bounds;

use super::SCHEDULER;
use super::cluster::{Cause, FailOver};
use crate::exit::Exit;
use tenure_torture::judge::{ViolationKind, WitnessVerdict};

/// How long the fail-overs of one kind took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) worst: Duration,
}

/// What it came to.
#[derive(Debug)]
pub(super) struct DemoSummary {
    crashes: Option<Figures>,
    freezes: Option<Figures>,
    hand_overs: Option<Figures>,
    others: Option<Figures>,
    bound: Duration,
    most_at_once: usize,
    tenures: usize,
    acts: u64,
    violations: Vec<String>,
    tokens_rose: bool,
}

impl DemoSummary {
    /// Judges.
    pub(super) fn new(fail_overs: &[FailOver], verdict: &WitnessVerdict, acts: u64, bounds: &Bounds) -> Self {
        Self {
            crashes: figures(fail_overs, |cause| cause == Cause::Crash),
            freezes: figures(fail_overs, |cause| cause == Cause::Freeze),
            hand_overs: figures(fail_overs, |cause| cause == Cause::HandOver),
            others: figures(fail_overs, |cause| matches!(cause, Cause::Other(_))),
            bound: bounds.crash,
            most_at_once: verdict.most_at_once(),
            tenures: verdict.tenures.len(),
            acts,
            violations: verdict.violations.iter().map(ToString::to_string).collect(),
            tokens_rose: !verdict.violations.iter().any(|violation| violation.wrong == ViolationKind::Token),
        }
    }

    /// What happened, line by line, and what never did.
    pub(super) fn text(&self) -> String {
        let all = [self.crashes, self.freezes, self.hand_overs, self.others];
        let count: usize = all.into_iter().flatten().map(|figures| figures.count).sum();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let mut text = format!(
            "{} election{} of all roles, {count} fail-over{} of {SCHEDULER}\n",
            self.tenures,
            plural(self.tenures),
            plural(count)
        );
        let kinds = self.kinds().into_iter().chain([("by themselves", self.others, None)]);
        for (kind, figures, bound) in kinds {
            if let Some(figures) = figures {
                let bound = bound.map_or(String::new(), |bound| format!(", bound {}", span(bound)));
                let _ = writeln!(text, "  {kind:<14} {figures}{bound}");
            }
        }
        let _ = writeln!(text, "{}; {}", self.at_once(), self.tokens());
        let _ = write!(text, "(witnessed at {} instants)", self.acts);
        text
    }

    /// What a newcomer wants to know first.
    pub(super) fn at_once(&self) -> String {
        match self.most_at_once {
            0 | 1 => "leaders at once: never more than 1".to_owned(),
            most => format!("leaders at once: {most}, A VIOLATION"),
        }
    }

    /// Whether all is as it must be.
    pub(super) fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    /// How the demo ends: with the evidence if anything was as it must never be. `whole`: it was not cut short.
    pub(super) fn exit(&self, whole: bool) -> Exit {
        if !self.is_good() {
            return Exit::No(format!(
                "the demo found a violation: {}; please report this as a bug",
                self.violations.join("; ")
            ));
        }
        if whole && self.tenures == 0 {
            return Exit::Failed("no leader was elected; give it more time with --seconds".to_owned());
        }
        Exit::Done
    }

    /// The figures of crashes, freezes and hand-overs, for the board.
    pub(super) fn kinds(&self) -> [(&'static str, Option<Figures>, Option<Duration>); 3] {
        [
            ("crashes", self.crashes, None),
            ("freezes", self.freezes, Some(self.bound)),
            ("hand-overs", self.hand_overs, None),
        ]
    }

    /// How many notes of leaders it rests on.
    pub(super) fn acts(&self) -> u64 {
        self.acts
    }

    fn tokens(&self) -> &'static str {
        if self.tokens_rose { "tokens: strictly rising" } else { "tokens: NOT RISING, A VIOLATION" }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (median, worst) = (span(self.median), span(self.worst));
        match self.count {
            1 => write!(f, "1, {median}"),
            count => write!(f, "{count}, median {median}, worst {worst}"),
        }
    }
}

fn figures(fail_overs: &[FailOver], of: impl Fn(Cause) -> bool) -> Option<Figures> {
    let mut gaps: Vec<Duration> =
        fail_overs.iter().filter(|over| of(over.cause)).map(|over| over.gap).collect();
    gaps.sort_unstable();
    let worst = *gaps.last()?;
    Some(Figures { count: gaps.len(), median: gaps[(gaps.len() - 1) / 2], worst })
}

/// A span of time as people read it, in three digits or so.
pub(super) fn span(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1_000.0;
    match millis {
        ..9.95 => format!("{millis:.1} ms"),
        ..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1_000.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::cluster::tests::name;
    use super::super::timing;
    use super::*;
    use tenure_torture::witness::Beat;

    /// What a witness saw of tenures given as (role, process, token, first, last).
    pub(in crate::demo) fn witnessed(tenures: &[(&str, u32, u64, u64, u64)]) -> WitnessVerdict {
        let beats = tenures.iter().flat_map(|(role, pid, token, first, last)| {
            let node = format!("node-{pid}");
            [*first, *last].map(|t| Beat {
                t,
                role: (*role).into(),
                node: node.clone(),
                token: *token,
                pid: *pid,
            })
        });
        WitnessVerdict::of_beats(&beats.collect::<Vec<_>>())
    }

    fn over(cause: Cause, millis: u64) -> FailOver {
        let (from, to, token) = (name("node-1"), name("node-2"), tenure::Token::new(2));
        FailOver { at: 0, from, to, token, cause, gap: Duration::from_millis(millis) }
    }

    #[test]
    fn the_verdict_tells_every_kind_with_its_figures() {
        let overs = [
            over(Cause::Crash, 31),
            over(Cause::Crash, 9),
            over(Cause::Crash, 8),
            over(Cause::Freeze, 2_130),
            over(Cause::HandOver, 2),
            over(Cause::HandOver, 4),
        ];
        let witness = witnessed(&[("scheduler", 1, 1, 0, 10), ("scheduler", 2, 2, 20, 30)]);
        let summary = DemoSummary::new(&overs, &witness, 4, &timing().bounds());
        assert_eq!(
            summary.text(),
            "2 elections of all roles, 6 fail-overs of scheduler\n  \
               crashes        3, median 9.0 ms, worst 31 ms\n  \
               freezes        1, 2.13 s, bound 2.52 s\n  \
               hand-overs     2, median 2.0 ms, worst 4.0 ms\n\
             leaders at once: never more than 1; tokens: strictly rising\n\
             (witnessed at 4 instants)"
        );
        assert_eq!(summary.exit(true), Exit::Done);
    }

    #[test]
    fn an_overlap_ends_with_code_1_and_the_evidence() {
        let witness = witnessed(&[("shard-1", 1, 1, 0, 20), ("shard-1", 2, 2, 10, 30)]);
        let summary = DemoSummary::new(&[], &witness, 4, &timing().bounds());
        assert!(summary.text().contains("leaders at once: 2, A VIOLATION"));
        let exit = summary.exit(true);
        assert_eq!(exit.code(), 1);
        assert!(
            matches!(exit, Exit::No(why) if why.contains("two led at once (shard-1, ") && why.contains("node-2"))
        );
    }

    #[test]
    fn tokens_that_do_not_rise_end_with_code_1() {
        let witness = witnessed(&[("shard-1", 1, 2, 0, 5), ("shard-1", 2, 1, 10, 30)]);
        let summary = DemoSummary::new(&[], &witness, 4, &timing().bounds());
        assert!(summary.text().contains("tokens: NOT RISING"));
        assert_eq!(summary.exit(true).code(), 1);
    }

    #[test]
    fn a_demo_in_which_no_node_was_elected_has_failed() {
        let summary = DemoSummary::new(&[], &WitnessVerdict::default(), 0, &timing().bounds());
        assert_eq!(summary.exit(true).code(), Exit::FAILED);
        assert_eq!(summary.exit(false), Exit::Done, "unless it was cut short");
        assert!(summary.text().starts_with("0 elections of all roles, 0 fail-overs of scheduler\n"));
    }

    #[test]
    fn spans_read_well() {
        let told = |micros| span(Duration::from_micros(micros));
        let (small, mid, large) = (told(840), told(31_400), told(2_134_000));
        assert_eq!(
            [small, told(9_960), mid, told(999_700), large],
            ["0.8 ms", "10 ms", "31 ms", "1.00 s", "2.13 s"]
        );
    }
}

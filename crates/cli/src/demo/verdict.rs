//! What it came to: how often, how long, and whether two ever led at once. Every figure is measured.

use std::fmt::{self, Write as _};
use std::time::Duration;

use tenure::Bounds;

use super::witness::Witness;
use super::world::{Cause, FailOver};
use crate::exit::Exit;

/// How long the fail-overs of one kind took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) worst: Duration,
}

/// What it came to.
#[derive(Debug)]
pub(super) struct Verdict {
    crashes: Option<Figures>,
    freezes: Option<Figures>,
    hand_overs: Option<Figures>,
    others: Option<Figures>,
    bound: Duration,
    most_at_once: usize,
    tenures: usize,
    traces: u64,
    breaches: Vec<String>,
}

impl Verdict {
    /// Judges.
    pub(super) fn new(fail_overs: &[FailOver], witness: &Witness, bounds: &Bounds) -> Self {
        Self {
            crashes: figures(fail_overs, |cause| cause == Cause::Crash),
            freezes: figures(fail_overs, |cause| cause == Cause::Freeze),
            hand_overs: figures(fail_overs, |cause| cause == Cause::HandOver),
            others: figures(fail_overs, |cause| matches!(cause, Cause::Other(_))),
            bound: bounds.crash,
            most_at_once: witness.most_at_once(),
            tenures: witness.tenures(),
            traces: witness.traces(),
            breaches: witness.breaches().iter().map(ToString::to_string).collect(),
        }
    }

    /// What happened, line by line, and what never did.
    pub(super) fn text(&self) -> String {
        let all = [self.crashes, self.freezes, self.hand_overs, self.others];
        let count: usize = all.into_iter().flatten().map(|figures| figures.count).sum();
        let mut text = format!("{count} fail-over{}\n", if count == 1 { "" } else { "s" });
        let kinds = self.kinds().into_iter().chain([("by themselves", self.others, None)]);
        for (kind, figures, bound) in kinds {
            if let Some(figures) = figures {
                let bound = bound.map_or(String::new(), |bound| format!(", bound {}", span(bound)));
                let _ = writeln!(text, "  {kind:<14} {figures}{bound}");
            }
        }
        let _ = writeln!(text, "{}; {}", self.at_once(), self.tokens());
        let _ = write!(text, "(witness: {} traces of {} tenures of all roles)", self.traces, self.tenures);
        text
    }

    /// What a newcomer wants to know first.
    pub(super) fn at_once(&self) -> String {
        match self.most_at_once {
            0 | 1 => "leaders at once: never more than 1".to_owned(),
            most => format!("leaders at once: {most}, WHICH MUST NEVER BE"),
        }
    }

    /// Whether all is as it must be.
    pub(super) fn is_good(&self) -> bool {
        self.breaches.is_empty()
    }

    /// How the demo ends: with the evidence if anything was as it must never be. `whole`: it was not cut short.
    pub(super) fn exit(&self, whole: bool) -> Exit {
        if !self.is_good() {
            return Exit::No(format!(
                "what must never be has been: {}; please report this as a bug",
                self.breaches.join("; ")
            ));
        }
        if whole && self.tenures == 0 {
            return Exit::Failed("nobody was elected; give it more time with --seconds".to_owned());
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

    /// How many traces it rests on.
    pub(super) fn traces(&self) -> u64 {
        self.traces
    }

    fn tokens(&self) -> &'static str {
        let fell = self.breaches.iter().any(|breach| breach.starts_with("the token"));
        if fell { "tokens: NOT RISING, WHICH MUST NEVER BE" } else { "tokens: strictly rising" }
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
mod tests {
    use super::super::timing;
    use super::super::witness::tests::fabricated;
    use super::super::world::tests::name;
    use super::*;

    fn over(cause: Cause, millis: u64) -> FailOver {
        let (from, to, token) = (name("node-1"), name("node-2"), tenure::Token(2));
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
        let witness = fabricated(&[("scheduler", 1, 1, 0, 10), ("scheduler", 2, 2, 20, 30)]);
        let verdict = Verdict::new(&overs, &witness, &timing().bounds());
        assert_eq!(
            verdict.text(),
            "6 fail-overs\n  \
               crashes        3, median 9.0 ms, worst 31 ms\n  \
               freezes        1, 2.13 s, bound 2.52 s\n  \
               hand-overs     2, median 2.0 ms, worst 4.0 ms\n\
             leaders at once: never more than 1; tokens: strictly rising\n\
             (witness: 4 traces of 2 tenures of all roles)"
        );
        assert_eq!(verdict.exit(true), Exit::Done);
    }

    #[test]
    fn an_overlap_ends_with_code_1_and_the_evidence() {
        let witness = fabricated(&[("shard-1", 1, 1, 0, 20), ("shard-1", 2, 2, 10, 30)]);
        let verdict = Verdict::new(&[], &witness, &timing().bounds());
        assert!(verdict.text().contains("leaders at once: 2, WHICH MUST NEVER BE"));
        let exit = verdict.exit(true);
        assert_eq!(exit.code(), 1);
        assert!(
            matches!(exit, Exit::No(why) if why.contains("two led shard-1 at once") && why.contains("node-2"))
        );
    }

    #[test]
    fn tokens_that_do_not_rise_end_with_code_1() {
        let witness = fabricated(&[("shard-1", 1, 2, 0, 5), ("shard-1", 2, 1, 10, 30)]);
        let verdict = Verdict::new(&[], &witness, &timing().bounds());
        assert!(verdict.text().contains("tokens: NOT RISING"));
        assert_eq!(verdict.exit(true).code(), 1);
    }

    #[test]
    fn a_demo_in_which_nobody_was_elected_has_failed() {
        let verdict = Verdict::new(&[], &Witness::default(), &timing().bounds());
        assert_eq!(verdict.exit(true).code(), Exit::FAILED);
        assert_eq!(verdict.exit(false), Exit::Done, "unless it was cut short");
        assert!(verdict.text().starts_with("0 fail-overs\n"));
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

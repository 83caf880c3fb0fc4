//! A violation, and its shortest explanation: which two intervals, which token, what was injected when.

use std::fmt;

use super::{InjectedFault, ObservedTenure, Span};

/// What must never be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ViolationKind {
    /// Two led a role at once.
    TwoLeaders,
    /// Two worked for a role at once.
    TwoWorkers,
    /// A later tenure did not have a higher token.
    Token,
    /// A tenure that was over was led again.
    Relapse,
    /// Leadership was relied on after its deadline.
    BeyondDeadline,
    /// Work went on after its tenure.
    WorkGoesOn,
    /// A fenced register went back.
    Fence,
    /// Two tenures wrote to a fenced register under one token.
    SharedToken,
    /// Events came in an order that cannot be.
    Events,
    /// No node led for longer than promised.
    Gap,
    /// A tick was run twice.
    TickTwice,
    /// A tick was neither run nor passed over.
    TickLost,
    /// The history of a register is not linearizable.
    Register,
    /// A neighbour without rights did what must be refused.
    Trespass,
}

/// One violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What kind.
    pub wrong: ViolationKind,
    /// Of which role, node or register.
    pub of: String,
    /// When.
    pub span: Span,
    /// The evidence.
    pub text: String,
    /// What was injected then.
    pub injected: Vec<String>,
    /// Since when a loss of data could have caused it: since the earlier of the two things that contradict each other.
    pub since: u64,
}

impl Violation {
    /// A violation that nothing was blamed for yet.
    #[must_use]
    pub fn of(wrong: ViolationKind, of: &str, span: Span, text: String) -> Self {
        Self { wrong, of: of.to_owned(), span, text, injected: Vec::new(), since: span.0 }
    }

    /// Two spans of two tenures that should not have met, or come in another order.
    pub(super) fn of_two(
        wrong: ViolationKind,
        one: (&ObservedTenure, Span),
        other: (&ObservedTenure, Span),
    ) -> Self {
        let told = |(tenure, span): (&ObservedTenure, Span)| format!("{tenure} {}", show(span));
        let both = (one.1.0.max(other.1.0), one.1.1.min(other.1.1).max(other.1.0));
        let text = format!("{}, and {}", told(one), told(other));
        Self { since: one.1.0, ..Self::of(wrong, &one.0.role, both, text) }
    }

    /// Names what was injected at that time, or shortly before.
    pub(super) fn blame(mut self, injected: &[InjectedFault]) -> Self {
        const BEFORE: u64 = 5_000_000_000;
        const NAMED: usize = 6;
        // What began while it was already going on explains nothing.
        let near = |fault: &&InjectedFault| {
            fault.from <= self.span.0 && fault.to.saturating_add(BEFORE) >= self.span.0
        };
        let told = injected.iter().rev().filter(near).take(NAMED).map(|fault| {
            let before = self.span.0.saturating_sub(fault.from);
            format!("{} ({} earlier, for {})", fault.what, millis(before), millis(fault.to - fault.from))
        });
        self.injected = told.collect();
        self
    }

    /// The register that keeps what it is about.
    pub(super) fn register(&self) -> String {
        let kind = match self.wrong {
            ViolationKind::TickTwice | ViolationKind::TickLost => "task",
            _ => "role",
        };
        format!("{kind}/{}", self.of)
    }
}

/// A span, in seconds of the host's clock.
pub(super) fn show((from, to): Span) -> String {
    format!("from {:.6} to {:.6} s", from as f64 / 1e9, to as f64 / 1e9)
}

pub(super) fn millis(nanos: u64) -> String {
    format!("{} ms", nanos / 1_000_000)
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoLeaders => "two led at once",
            Self::TwoWorkers => "two worked at once",
            Self::Token => "the token did not rise",
            Self::Relapse => "a tenure that was over was led again",
            Self::BeyondDeadline => "leadership was relied on after its deadline",
            Self::WorkGoesOn => "work went on after its tenure",
            Self::Fence => "the fenced register went back",
            Self::SharedToken => "two wrote under one token",
            Self::Events => "events that cannot be",
            Self::Gap => "no node led for too long",
            Self::TickTwice => "a tick was run twice",
            Self::TickLost => "a tick was lost",
            Self::Register => "a register that is not linearizable",
            Self::Trespass => "a neighbour without rights was not refused",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrong, of, span, text, injected, .. } = self;
        write!(f, "{wrong} ({of}, {}): {text}", millis(span.1.saturating_sub(span.0)))?;
        match injected.as_slice() {
            [] => write!(f, "; nothing was injected"),
            some => write!(f, "; injected: {}", some.join(", ")),
        }
    }
}

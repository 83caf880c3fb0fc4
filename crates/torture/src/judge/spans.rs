//! Sets of spans of time: joined, cut out of each other, measured.

/// From when until when, in nanoseconds.
pub type Span = (u64, u64);

/// Spans in order that do not meet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Joins spans in any order; those that meet become one, and empty ones are left out.
    #[must_use]
    pub fn of(spans: impl IntoIterator<Item = Span>) -> Self {
        let mut all: Vec<Span> = spans.into_iter().filter(|(from, to)| from < to).collect();
        all.sort_unstable();
        let mut joined: Vec<Span> = Vec::new();
        for (from, to) in all {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        Self(joined)
    }

    /// What of these lies within none of those.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = Vec::new();
        for &(mut from, to) in &self.0 {
            for &(start, end) in others.0.iter().filter(|other| other.0 < to) {
                left.push((from, start));
                from = end.max(from);
            }
            left.push((from, to));
        }
        Self::of(left)
    }

    /// How much of these lies within `span`.
    #[must_use]
    pub fn within(&self, span: Span) -> u64 {
        let cut = |&(from, to): &Span| to.min(span.1).saturating_sub(from.max(span.0));
        self.0.iter().map(cut).sum()
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_joined_cut_and_measured() {
        let spans = Spans::of([(5, 9), (1, 3), (2, 4), (7, 7)]);
        assert_eq!(spans, Spans(vec![(1, 4), (5, 9)]));
        assert_eq!(spans.without(&Spans::of([(2, 3), (8, 20)])), Spans(vec![(1, 2), (3, 4), (5, 8)]));
        assert_eq!((spans.within((0, 6)), spans.within((4, 5))), (4, 0));
    }
}

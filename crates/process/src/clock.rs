//! The lease clock, as a number that two processes of one host can compare.

use std::time::Duration;

pub use tenure::clock::lease_nanos as lease_now;

/// `at` plus `span`; saturates.
pub(crate) fn after(at: u64, span: Duration) -> u64 {
    at.saturating_add(span_nanos(span))
}

/// `at` less `span`; saturates.
pub(crate) fn before(at: u64, span: Duration) -> u64 {
    at.saturating_sub(span_nanos(span))
}

fn span_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

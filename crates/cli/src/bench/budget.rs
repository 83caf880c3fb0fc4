//! Where the time of a hand-over goes: what the standby asks the store, one request after the other.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use tenure::store::{
    Entry, Exchanged, Kind, Layer, Name, Outcome, Query, SharedStore, Store, StoreError, Write,
};

use super::figures::{Spread, show};
use super::micros;

/// A store that notes when each request began and was answered.
#[derive(Debug, Clone)]
pub(crate) struct Traced {
    inner: SharedStore,
    requests: Arc<Mutex<Vec<Request>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Read,
    /// A write about a role: a claim, if a standby makes it.
    Claim,
    Other,
}

impl RequestKind {
    fn of(writes: &[Write]) -> Self {
        if writes.iter().any(|write| write.key.kind() == Kind::Role) { Self::Claim } else { Self::Other }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    kind: RequestKind,
    from: Instant,
    to: Instant,
}

impl Traced {
    pub(crate) fn new(inner: SharedStore) -> Self {
        Self { inner, requests: Arc::default() }
    }

    /// What was asked since this was last called.
    pub(crate) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, kind: RequestKind, from: Instant) {
        let request = Request { kind, from, to: Instant::now() };
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl Layer for Traced {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        let from = Instant::now();
        let found = self.inner.read(namespace, query).await;
        self.note(RequestKind::Read, from);
        found
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        let from = Instant::now();
        let outcomes = self.inner.write(namespace, writes).await;
        self.note(RequestKind::of(writes), from);
        outcomes
    }

    /// A claim, and what is read after it.
    async fn write_then_read(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let from = Instant::now();
        let exchanged = self.inner.write_then_read(namespace, writes, query).await;
        self.note(RequestKind::of(writes), from);
        exchanged
    }

    /// A read as well as a beat.
    async fn exchange(&self, namespace: &Name, writes: &[Write], query: &Query) -> Exchanged {
        let from = Instant::now();
        let exchanged = self.inner.exchange(namespace, writes, query).await;
        self.note(RequestKind::Read, from);
        exchanged
    }
}

/// The parts of many hand-overs: together, from giving the role up to the election.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Until the standby, notified, claims: a standby that is not the first in line reads first.
    notified: Spread,
    /// Until the claim, and what is read after it, is answered.
    claim: Spread,
    /// Until it is elected.
    election: Spread,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { notified: Spread::new(), claim: Spread::new(), election: Spread::new() }
    }

    /// Adds a hand-over with what the standby asked meanwhile. One that took another way counts for nothing.
    pub(crate) fn add(&mut self, began: Instant, elected: Instant, asked: &[Request]) {
        let claimed = |request: &&Request| {
            request.kind == RequestKind::Claim && request.from >= began && request.to <= elected
        };
        let Some(claim) = asked.iter().rfind(claimed) else { return };
        self.notified.add(micros(claim.from - began));
        self.claim.add(micros(claim.to - claim.from));
        self.election.add(micros(elected - claim.to));
    }
}

/// Each part with its share of the whole.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.notified, &self.claim, &self.election].map(Spread::median);
        let whole = parts.iter().sum::<u64>().max(1);
        let [notified, claim, election] =
            parts.map(|part| format!("{} ({} %)", show(part), (part * 100 + whole / 2) / whole));
        write!(f, "{notified} + {claim} + {election}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_hand_over_is_divided_into_what_the_standby_waits_for() {
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        let request = |kind, from, to| Request { kind, from: at(from), to: at(to) };
        let asked = [
            request(RequestKind::Read, 0, 1),
            request(RequestKind::Claim, 1, 3),
            request(RequestKind::Read, 3, 4),
            request(RequestKind::Claim, 5, 13),
            request(RequestKind::Read, 13, 19),
        ];
        let mut budget = Budget::new();
        budget.add(began, at(20), &asked);
        budget.add(began, at(30), &asked[4..]);
        assert_eq!(
            budget.to_string(),
            "5.0 ms (25 %) + 8.0 ms (40 %) + 7.0 ms (35 %)",
            "the last claim counts"
        );
    }
}

//! Hints on which nothing hangs: they are followed a little later, together with those that come until then.
//!
//! When a role changes hands every node is told, twice: of the resignation, and of the claim. One of them has to be quick. If the
//! others read at once they ask the store, and want a processor, in that very moment; a little later one read tells them both.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::{Key, Time};

/// So long they wait: longer than most hand-overs take, and no longer than the second candidate in line leaves the role to the first.
const WAIT: Duration = Duration::from_millis(10);

/// The registers that they name.
#[derive(Debug, Default)]
pub(super) struct WaitingHints {
    keys: BTreeSet<Key>,
    due: Option<Time>,
}

impl WaitingHints {
    pub(super) fn add(&mut self, key: Key, now: Time) {
        self.keys.insert(key);
        self.due.get_or_insert(now.after(WAIT));
    }

    /// When they are to be followed.
    pub(super) fn due(&self) -> Time {
        self.due.unwrap_or(Time::NEVER)
    }

    /// Those that are to be followed now: all, or none.
    pub(super) fn take_due(&mut self, now: Time) -> BTreeSet<Key> {
        if now < self.due() {
            return BTreeSet::new();
        }
        self.due = None;
        std::mem::take(&mut self.keys)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::{Epoch, Kind};

    use super::*;

    #[test]
    fn hints_wait_for_each_other_and_are_followed_together() {
        let key = |role: &str| Key::Named(Epoch::default(), Kind::Role, role.parse().unwrap());
        let (mut hints, start) = (WaitingHints::default(), Time::from_nanos(7));
        assert_eq!((hints.due(), hints.take_due(start)), (Time::NEVER, BTreeSet::new()));
        hints.add(key("a"), start);
        hints.add(key("b"), start.after(WAIT / 2));
        hints.add(key("a"), start.after(WAIT / 2));
        assert_eq!(hints.due(), start.after(WAIT), "the first one does not wait for the last");
        assert!(hints.take_due(start.after(WAIT / 2)).is_empty());
        assert_eq!(hints.take_due(start.after(WAIT)), BTreeSet::from([key("a"), key("b")]));
        assert_eq!(hints.due(), Time::NEVER);
    }
}

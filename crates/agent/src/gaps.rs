//! How long roles had no leader, by ends and beginnings that a node measured.
//!
//! As long as this agent looks, it measures itself when a leader gave up: it was gone when no leader was seen. When a
//! leader that failed was gone, and what happened while this agent could not look, it takes from the history that the
//! leaders write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tenure::history::{EndSource, RoleHistory};
use tenure::operator::{ClusterSnapshot, RoleReport, RoleState};
use tenure::{EndReason, Name, Token};

/// How many histories are read at once.
const HISTORIES_PER_READ: usize = 128;
/// A leader that lives writes down its end as soon as the store is back; one that does not within this time is gone.
const REPORT_LIMIT: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gaps {
    roles: BTreeMap<Name, Gap>,
    looked: Option<Instant>,
    unreconciled: BTreeMap<Name, Unreconciled>,
}

/// A change of leaders of which only the history knows when, and often why, the former one ended.
#[derive(Debug)]
struct Unreconciled {
    /// The token of the former leader.
    token: Token,
    since: Instant,
    succession: Succession,
}

/// A leader that followed another one.
#[derive(Debug, Clone)]
pub(super) struct Succession {
    pub(super) leader: Name,
    /// It followed a leader that failed, as far as that is known.
    pub(super) failed: bool,
    /// It followed a leader that closed its session: in good order, or because its lease had run out. The history tells.
    pub(super) closed: bool,
    /// It is another node than the former leader.
    pub(super) another: bool,
}

/// What the history tells of a change of leaders.
#[derive(Debug)]
pub(super) struct Reconciled {
    pub(super) role: Name,
    pub(super) gap: Duration,
    pub(super) succession: Succession,
    /// The former leader failed, which was not known before.
    pub(super) turned_out_failed: bool,
}

#[derive(Debug, Default)]
struct Gap {
    /// Of the last leader that was seen: its token, its lease and its last beat.
    token: Token,
    lease: Duration,
    beat: Option<Instant>,
    /// Since when no leader was seen.
    vacant: Option<Instant>,
    /// What of this gap is in the total already.
    counted: Duration,
    /// The store was gone for longer than a lease meanwhile: only the history knows.
    unseen: bool,
    total: Duration,
}

impl Gaps {
    /// A node leads again: how long none had. None if this agent did not look all the time; then the history tells.
    pub(super) fn end(&mut self, role: &Name, succession: &Succession) -> Option<Duration> {
        let failed = succession.failed;
        let now = Instant::now();
        let absent = self.looked.map(|looked| now - looked).unwrap_or_default();
        let gap = self.roles.entry(role.clone()).or_default();
        // A leader that failed may live, and know better than its last beat when it stopped.
        if gap.beat.is_some() && (failed || succession.closed || gap.unseen || absent > gap.lease) {
            let (token, since, succession) = (gap.token, now, succession.clone());
            self.unreconciled.insert(role.clone(), Unreconciled { token, since, succession });
            return None;
        }
        let began = if failed { gap.beat.or(gap.vacant) } else { gap.vacant };
        let length = began.map(|began| now - began).unwrap_or_default();
        gap.total += length.saturating_sub(gap.counted);
        gap.counted = gap.counted.max(length);
        Some(length)
    }

    /// Takes a look in, after what changed since the last one.
    pub(super) fn observe(&mut self, snapshot: &ClusterSnapshot) {
        let now = Instant::now();
        let absent = self.looked.replace(now).map(|looked| now - looked).unwrap_or_default();
        for report in &snapshot.roles {
            let gap = self.roles.entry(report.role.clone()).or_default();
            match report.state {
                RoleState::Led => gap.led(report, now, self.unreconciled.contains_key(&report.role)),
                _ => gap.not_led(absent, now),
            }
        }
    }

    /// For how long this role had no leader, all in all.
    pub(super) fn total(&self, role: &Name) -> Duration {
        self.roles.get(role).map(|gap| gap.total).unwrap_or_default()
    }

    /// Roles whose leader changed while this agent could not look; some of them.
    pub(super) fn unreconciled(&self) -> Vec<Name> {
        self.unreconciled.keys().take(HISTORIES_PER_READ).cloned().collect()
    }

    /// Takes the gaps from the histories.
    pub(super) fn reconcile(&mut self, histories: &BTreeMap<Name, RoleHistory>) -> Vec<Reconciled> {
        let mut reconciled = Vec::new();
        for (role, history) in histories {
            let Some(Unreconciled { token, since, .. }) = self.unreconciled.get(role) else { continue };
            let last = history.tenures.iter().find(|past| past.token == *token);
            let told = last.is_some_and(|past| past.measured == Some(EndSource::Leader));
            if !told && since.elapsed() < REPORT_LIMIT {
                continue;
            }
            let length = history.leaderless_since(*token);
            let gap = self.roles.entry(role.clone()).or_default();
            gap.total += length.saturating_sub(std::mem::take(&mut gap.counted));
            let Some(Unreconciled { succession, .. }) = self.unreconciled.remove(role) else { continue };
            let turned_out_failed =
                !succession.failed && last.and_then(|past| past.reason).is_some_and(is_failure);
            reconciled.push(Reconciled { role: role.clone(), gap: length, succession, turned_out_failed });
        }
        reconciled
    }
}

/// Whether a tenure ended for this reason without the doing of its leader, its work or an operator.
fn is_failure(reason: EndReason) -> bool {
    use EndReason::{
        ClockFault, Cloned, Disconnected, Expelled, Fault, Forgotten, GuardLost, LeaseExpired, NewerProtocol,
    };
    matches!(
        reason,
        LeaseExpired
            | Expelled
            | Disconnected
            | Forgotten
            | Cloned
            | GuardLost
            | ClockFault
            | NewerProtocol
            | Fault
    )
}

impl Gap {
    fn led(&mut self, report: &RoleReport, now: Instant, unreconciled: bool) {
        let millis = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or_default());
        (self.token, self.lease) = (report.token, millis(report.ttl_ms));
        self.beat = now.checked_sub(millis(report.last_beat_ms_ago));
        (self.vacant, self.unseen) = (None, false);
        if !unreconciled {
            self.counted = Duration::ZERO;
        }
    }

    fn not_led(&mut self, absent: Duration, now: Instant) {
        if self.beat.is_some() && absent > self.lease {
            self.unseen = true;
        } else {
            self.total += absent;
            self.counted += absent;
        }
        self.vacant.get_or_insert(now);
    }
}

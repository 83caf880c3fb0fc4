//! How often a node renews its session and reads when nothing happens, and when it looks for the beats of a leader.
//!
//! A leader beats once in a beat. A standby that another standby watches for beats and reads at half of its lease: it rests.
//! The standby that comes first when a leader is to be expelled watches it: its own beats, and the polls that go with them,
//! follow the leader's, because a standby counts from when it first received the last one.
//!
//! Only the moment of a beat and of a read follows from any of this, never what they mean: no rule on which safety rests
//! looks at it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{Name, SessionId, Takeover, Time};

use super::order::spread_hash;
use super::{Engine, Lifecycle};

/// So many roles of one session are tried in order to find one that a node stands for.
pub(super) const ROLES_TRIED: usize = 256;
/// A node that knows so many leaders does not rest: what it would have to know of each one's standbys grows with both.
const MANY_LEADERS: usize = 16;
/// Among many nodes a standby reads the sessions of so many that come before it, to know that one of them watches.
const WATCHERS_READ: usize = 2;
/// What one more look costs of the allowance; a look that shows a new beat earns one.
const EXTRA_LOOK: u32 = 10;
/// The most that is saved: twelve looks.
const MOST_SAVED: u32 = 12 * EXTRA_LOOK;

/// What is known of the moments at which one session beats.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Rhythm {
    /// The session that we follow.
    session: Option<SessionId>,
    /// The beat that the last look showed.
    beat: u64,
    /// When the last look was sent, and how long after it was due.
    looked_at: Time,
    late: Duration,
    /// The beat that a look shows fell no earlier than this before it, as far as it is known.
    window: Duration,
    /// How far apart its beats are, from what the looks showed: a little more than it says, because timers are late.
    period: Duration,
    /// So many looks in a row showed no new beat.
    misses: u32,
    /// What is left of the allowance for looks that come earlier than once in a beat.
    saved: u32,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            session: None,
            beat: 0,
            looked_at: Time::from_nanos(0),
            late: Duration::ZERO,
            window: Duration::ZERO,
            period: Duration::ZERO,
            misses: 0,
            saved: MOST_SAVED,
        }
    }
}

impl Rhythm {
    /// A look goes out that was due then.
    pub(super) fn look_sent(&mut self, due: Time, now: Time) {
        (self.looked_at, self.late) = (now, now.since(due));
    }

    /// What the last look showed of a session that beats so often. Gives how long after it the next look is due.
    fn looked(&mut self, session: SessionId, beat: u64, every: Duration) -> Duration {
        if self.session != Some(session) {
            (self.session, self.beat, self.window, self.period) = (Some(session), 0, every, every);
        }
        self.period = self.period.clamp(every - every / 64, every + every / 10);
        if beat > self.beat { self.found(beat, every) } else { self.missed(every) }
    }

    /// A new beat. While its moment is not known well, the next look goes out in the middle of where it may be; and then a
    /// little earlier each time, so that a beat that comes earlier than it used to is noticed.
    fn found(&mut self, beat: u64, every: Duration) -> Duration {
        (self.beat, self.misses) = (beat, 0);
        self.saved = (self.saved + 1).min(MOST_SAVED);
        let half = self.window / 2;
        if self.window <= precision(every) {
            self.period = self.period.saturating_sub(self.correction(every) / 18);
            return self.period.saturating_sub(self.late).max(every / 2);
        }
        let cost = (u128::from(EXTRA_LOOK) * half.as_nanos()).div_ceil(every.as_nanos().max(1)) as u32;
        if cost > self.saved {
            return searching(every);
        }
        self.saved -= cost;
        self.window = half;
        every - half - self.late.min(every / 4)
    }

    /// No new beat: it is looked for again soon, and then ever more seldom, while the allowance lasts. One miss in a while
    /// means that the period is a little longer than was thought.
    fn missed(&mut self, every: Duration) -> Duration {
        let known = self.window <= precision(every);
        if known && self.misses == 0 {
            self.period += self.correction(every);
        }
        let gap = self.window.max(precision(every)).saturating_mul(1 << self.misses.min(8));
        self.misses += 1;
        if self.saved < EXTRA_LOOK || gap >= searching(every) {
            self.window = searching(every);
            return searching(every);
        }
        self.saved -= EXTRA_LOOK;
        // If the next look shows it, it fell between the two.
        self.window = gap;
        gap
    }

    /// What one miss tells of the period: more where misses are frequent. What many looks without a miss tell is as much.
    fn correction(&self, every: Duration) -> Duration {
        precision(every) / if self.saved >= MOST_SAVED * 2 / 5 { 24 } else { 8 }
    }

    /// The last beat of that session that a look showed fell no earlier than this, if we follow it.
    pub(super) fn sent_after(&self, session: SessionId) -> Option<Time> {
        (self.session == Some(session)).then(|| self.looked_at.before(self.window))
    }

    /// Nothing but the moment of a look follows from it.
    #[cfg(feature = "canonical")]
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// How well the moment of a beat is known, at best.
fn precision(every: Duration) -> Duration {
    every / 20
}

/// How often a session is looked at of which it is not known when it beats.
fn searching(every: Duration) -> Duration {
    every * 4 / 5
}

impl Engine {
    /// How long after a beat of ours the next one is due, unless a look shows more.
    pub(super) fn pace(&self) -> Duration {
        let timing = self.rules.timing();
        if self.is_resting() {
            timing.rest()
        } else if self.holds_nothing() || self.watched().is_some() {
            timing.watch()
        } else {
            timing.beat
        }
    }

    /// A look that went out with a beat of ours was answered: when the next one is due.
    pub(super) fn next_look(&mut self, sent_at: Time) -> Option<Time> {
        if self.rhythm.looked_at != sent_at || !self.holds_nothing() {
            return None;
        }
        let session = self.watched()?;
        let (beat, record) = self.peers.beat_of(session)?;
        let every = Some(self.rules.pace_of(record)).filter(|every| *every <= self.rules.timing().beat)?;
        Some(sent_at.after(self.rhythm.looked(session, beat, every)))
    }

    /// Whether nothing rests on our session: no role is led, being claimed, or found in its name.
    fn holds_nothing(&self) -> bool {
        !self.roles.any_working()
            && self.ops.awaited_about_roles() == 0
            && !self.session.open_id().is_some_and(|own| self.roles.are_held_by(own))
    }

    /// Whether our session is renewed at half of its lease: nothing rests on it, every role that we know has a leader that
    /// another standby watches, and others have read all that our session tells.
    pub(super) fn is_resting(&self) -> bool {
        self.lifecycle == Lifecycle::Running
            && self.session.is_told()
            && !self.rules.store_can_forget()
            && self.session.takeover() == Some(Takeover::Strict)
            && self.holds_nothing()
            && !self.roles.any_ready()
            && self.roles.next_due() == Time::NEVER
            && self.owns_name()
            && self.roles.holders().take(MANY_LEADERS).count() < MANY_LEADERS
            && self.roles.all_held()
            && self.roles.holders().all(|holder| self.peers.is_live(holder))
            && self.watched().is_none()
    }

    /// The session that it is ours to watch: one that holds a role that we stand for, and that no standby ahead of us watches.
    fn watched(&self) -> Option<SessionId> {
        let own = self.session.open_id()?;
        let mut holders = self.roles.holders().filter(|holder| *holder != own);
        holders.find(|holder| {
            self.peers.is_live(*holder)
                && self.stands_for_role_of(*holder)
                && !self.is_watched_by_another(*holder)
        })
    }

    fn stands_for_role_of(&self, session: SessionId) -> bool {
        let stands = |role: &Name| self.roles.get(role).is_some_and(|role| role.candidacy().is_some());
        self.roles.names_held_by(session).take(ROLES_TRIED).any(stands)
    }

    /// Whether a standby that comes before us when that session is to be expelled is there, awake, and waits for a role of it.
    fn is_watched_by_another(&self, session: SessionId) -> bool {
        self.standbys_ahead(session)
            .any(|(_, standby)| self.peers.is_awake(standby, &self.rules, self.now.time))
    }

    /// The standbys that wait for a role of that session and come before us when it is to be expelled, with their ranks.
    fn standbys_ahead(&self, session: SessionId) -> impl Iterator<Item = (u64, SessionId)> {
        let rank = move |node: &Name| spread_hash(session.get() as u64, node);
        let mine = rank(&self.node);
        let ahead = self.peers.nodes().map(move |(node, view)| (rank(node), node, view));
        let ahead = ahead.filter(move |(rank, node, view)| {
            let standby = view.session();
            **node != self.node
                && standby != session
                && *rank < mine
                && !self.peers.is_over(standby)
                && !self.roles.are_held_by(standby)
                && view.stands_for_any(self.roles.names_held_by(session), |role| {
                    self.roles.is_held_by(role, session)
                })
        });
        ahead.map(|(rank, _, view)| (rank, view.session()))
    }

    /// The sessions by which a standby knows, among many nodes, that another one watches: of each leader's standbys the first
    /// ones. Among few nodes every session is read anyway.
    pub(super) fn watchers_to_read(&self) -> BTreeSet<SessionId> {
        let leaders: Vec<SessionId> = self.roles.holders().take(MANY_LEADERS).collect();
        if leaders.len() == MANY_LEADERS || !self.holds_nothing() {
            return BTreeSet::new();
        }
        let first = |leader: &SessionId| {
            let mut ahead: Vec<_> = self.standbys_ahead(*leader).collect();
            ahead.sort_unstable();
            ahead.into_iter().take(WATCHERS_READ).map(|(_, standby)| standby)
        };
        leaders.iter().flat_map(first).collect()
    }
}

#[cfg(test)]
#[path = "tests/rhythm.rs"]
mod tests;

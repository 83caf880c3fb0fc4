//! How often a node writes and looks when nothing happens.
//!
//! A node that leads beats at its own pace, and each beat takes the poll along. A node that leads nothing renews its session at
//! half of its lease. One standby watches each leader more closely than the others: it looks just after the leader's next beat
//! is expected, because it counts from when it first received the last one; its own beats ride along.
//!
//! Nothing on which safety rests follows from any of this: it only chooses when to write and when to read.

use std::time::Duration;

use crate::{Name, SessionId, Time};

use super::order::spread_hash;
use super::{Engine, Lifecycle};

/// So many roles of one session are looked at in order to find one that we stand for.
const ROLES_TRIED: usize = 16;

/// When the next beat of another session is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Rhythm {
    /// Not before this.
    early: Time,
    /// Before this.
    late: Time,
    /// It was looked for in between, and was not there yet.
    tried: bool,
}

impl Rhythm {
    /// After a beat that was received just then, and nothing else known.
    pub(super) fn new(received_at: Time, every: Duration) -> Self {
        Self { early: received_at, late: received_at.after(every), tried: false }
    }

    /// A later beat was received, `beats` after the one before. What is known of its phase is forgotten little by little,
    /// so that a beat which comes earlier than it used to is noticed.
    pub(super) fn beaten(&mut self, beats: u64, received_at: Time, every: Duration) {
        let skipped = every.saturating_mul(u32::try_from(beats.saturating_sub(1)).unwrap_or(u32::MAX));
        let fell_after = self.early.after(skipped).min(received_at);
        let early = fell_after.after(every).before(every / 1024);
        *self = Self { early, late: received_at.after(every), tried: false };
    }

    /// A read that was sent then showed no later beat than the one received at `received_at`. One that is overdue is looked for
    /// again soon, and then ever more seldom.
    pub(super) fn not_yet(&mut self, sent_at: Time, received_at: Time, every: Duration) {
        self.early = self.early.max(sent_at);
        self.tried = true;
        if sent_at >= self.late {
            let overdue = sent_at.since(received_at.after(every));
            self.late = sent_at.after(overdue.clamp(precision(every) / 2, every));
        }
    }

    /// The earliest moment of the next beat, as far as it is known.
    pub(super) fn expected(&self) -> Time {
        self.early
    }

    /// When to look for it: in the middle, while it is not known well; once, and then when it must be there.
    pub(super) fn look_at(&self, every: Duration) -> Time {
        let unsure = self.late.since(self.early);
        if self.tried || unsure <= precision(every) { self.late } else { self.late.before(unsure / 2) }
    }

    #[cfg(feature = "canonical")]
    pub(super) fn visit<V: super::canonical::Visitor>(&mut self, v: &mut V) {
        v.due(&mut self.early);
        v.due(&mut self.late);
    }
}

/// How well the moment of a beat is known, at best.
fn precision(every: Duration) -> Duration {
    every / 20
}

impl Engine {
    /// Whether nothing rests on our session: no role is led, claimed or found in its name.
    pub(super) fn holds_nothing(&self) -> bool {
        let own = self.session.open_id();
        !self.roles.any_working()
            && self.ops.awaited_about_roles() == 0
            && !own.is_some_and(|own| self.roles.are_held_by(own))
    }

    /// Whether our session may be renewed at the pace of a standby: nothing rests on it, nothing is about to be claimed, and
    /// others have read all that it tells. On a store that can forget each node looks as often as a leader: what is lost must be
    /// noticed soon.
    pub(super) fn is_resting(&self) -> bool {
        self.holds_nothing()
            && self.lifecycle == Lifecycle::Running
            && !self.rules.store_can_forget()
            && !self.roles.any_ready()
            && self.roles.next_due() == Time::NEVER
            && self.owns_name()
            && self.session.is_told()
    }

    /// When a beat of a session that we watch closely is to be looked for.
    pub(super) fn look_at(&self) -> Time {
        if self.session.open_id().is_none() {
            return Time::NEVER;
        }
        self.peers.next_look(&self.rules)
    }

    /// Whether such a look goes out now.
    pub(super) fn is_look_due(&self) -> bool {
        self.now.time >= self.look_at() && self.poll_may_go()
    }

    /// Decides anew which sessions we watch closely: those of which no other standby that we know to be alive is the first.
    pub(super) fn choose_watched(&mut self) {
        let watched: Vec<SessionId> =
            self.roles.holders().filter(|session| self.is_first_standby(*session)).collect();
        self.peers.watch_closely(&watched, &self.rules);
    }

    fn is_first_standby(&self, session: SessionId) -> bool {
        let Some(role) = self.role_wanted_from(session) else { return false };
        self.peers.is_live(session) && !self.standbys_ahead(session, Some(role)).any(|ahead| ahead)
    }

    /// How many come before us, and how many there are, when that session is to be expelled.
    pub(super) fn expulsion_turn(&self, session: SessionId) -> (usize, usize) {
        let (mut ahead, mut all) = (0, 1);
        for before in self.standbys_ahead(session, self.role_wanted_from(session)) {
            all += 1;
            ahead += usize::from(before);
        }
        (ahead, all)
    }

    /// For each other node that waits for that session too, as far as we know: whether it comes before us.
    fn standbys_ahead<'a>(
        &'a self,
        session: SessionId,
        role: Option<&'a Name>,
    ) -> impl Iterator<Item = bool> + 'a {
        let rank = move |node: &Name| spread_hash(session.get() as u64, node);
        let mine = rank(&self.node);
        let waits = move |own: SessionId, priority: Option<i32>| {
            own != session
                && (role.is_none() || priority.is_some())
                && self.peers.seen_alive(own)
                && !self.peers.is_silent(own, &self.rules, self.now.time)
        };
        let others = self.peers.nodes().filter(|(node, _)| **node != self.node);
        others
            .filter(move |(_, view)| waits(view.session(), role.and_then(|role| view.priority(role))))
            .map(move |(node, _)| rank(node) < mine)
    }

    /// A role of that session that we stand for.
    fn role_wanted_from(&self, session: SessionId) -> Option<&Name> {
        let stands = |role: &&Name| self.roles.get(role).is_some_and(|role| role.candidacy().is_some());
        self.roles.names_held_by(session).take(ROLES_TRIED).find(stands)
    }
}

#[cfg(test)]
#[path = "tests/rhythm.rs"]
mod tests;

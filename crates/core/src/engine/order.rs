//! Claim order: candidates claim a vacant role one after the other instead of all at once.
//!
//! Only ever a delay: the compare-and-set decides, whatever the order says.

use std::cmp::Reverse;
use std::time::Duration;

use crate::hash::{START, fnv1a};
use crate::io::Candidacy;
use crate::record::Role as RoleRecord;
use crate::{Name, SessionId, Timing};

use super::Engine;
use super::peers::{NodeView, Peers};
use super::roles::TrackedRole;

/// All ranks together wait no longer than this.
pub(super) const RANK_SPREAD: Duration = Duration::from_millis(50);
/// One of the first ranks waits this much longer than the one before.
const RANK_STEP: Duration = Duration::from_millis(10);
/// So many behind the first wait a whole step each. Those behind them, however many, share what is left of the spread, evenly: all at its end
/// would ask at one moment.
const FULL_STEP_RANKS: u32 = 2;

/// The rank of a candidate: the lower, the earlier.
type ClaimRank = (bool, bool, Reverse<i32>, u64);

impl Engine {
    /// How long to leave the role to those who come before us.
    ///
    /// A node that just resigned comes last, and every node waits behind a named successor; both wait long enough for
    /// the others to find out without a hint. They are never excluded.
    pub(super) fn claim_delay(&self, name: &Name, role: &TrackedRole) -> Duration {
        role.candidacy().map_or(Duration::ZERO, |candidacy| self.delay_after(name, candidacy, role.record()))
    }

    /// The same if the register holds `record`.
    pub(super) fn delay_after(
        &self,
        name: &Name,
        candidacy: &Candidacy,
        record: Option<&RoleRecord>,
    ) -> Duration {
        let mine = claim_rank(name, &self.node, candidacy.priority, record);
        let rivals = self.peers.nodes().filter(|(node, view)| {
            **node != self.node && view.priority(name).is_some() && self.peers.seen_alive(view.session())
        });
        let (mut slowest, mut ahead, mut all) = (Duration::ZERO, 0, 1);
        for (node, view) in rivals {
            all += 1;
            slowest = slowest.max(self.discovery_time(view.session()));
            ahead += usize::from(claim_rank(name, node, view.priority(name).unwrap_or(0), record) < mine);
        }
        let successor = record.and_then(|record| record.successor.as_ref());
        if successor == Some(&self.node) {
            // An operator or the former leader named us: no delay of our own counts.
            return Duration::ZERO;
        }
        let successor = successor.filter(|successor| self.may_still_claim(successor, name));
        let resigned = mine.1;
        let turn = match successor.map(|successor| self.peers.node(successor)) {
            Some(known) => {
                let session = known.map_or(SessionId::new(0), NodeView::session);
                RANK_SPREAD + self.discovery_time(session)
            }
            None if resigned && !slowest.is_zero() => RANK_SPREAD + slowest,
            None if resigned => RANK_SPREAD,
            None => rank_delay(ahead, all, mine.3),
        };
        candidacy.takeover_delay.saturating_add(turn)
    }

    /// After this the node of that session has found out about a free role, hint or no hint: our next beat carries the news,
    /// and its next poll finds it.
    fn discovery_time(&self, session: SessionId) -> Duration {
        let Timing { beat, op_timeout, .. } = *self.rules.timing();
        let known = self.peers.ttl_of(session).saturating_mul(3) / 5;
        (beat + op_timeout + self.peers.pause_of(session).max(beat)).max(known)
    }

    /// No expulsion waits longer for its turn, once it is due.
    #[cfg(feature = "canonical")]
    pub(super) fn longest_expulsion_delay(&self) -> Duration {
        self.rules.idle_expulsion_delay(self.peers.are_few()) + RANK_SPREAD
    }

    /// Whether a node campaigns for a role, its session was seen to beat, and it may claim.
    pub(super) fn ready_to_lead(&self, node: &Name, role: &Name) -> bool {
        let able = |session| {
            self.peers.seen_alive(session) && self.rules.may_receive(self.peers.holds_back(session))
        };
        let stands = |view: &NodeView| view.priority(role).is_some() && able(view.session());
        self.peers.node(node).is_some_and(stands)
    }

    /// Whether that node, as far as we know, campaigns for a role.
    pub(super) fn is_known_to_stand(&self, node: &Name, role: &Name) -> bool {
        self.peers.node(node).is_some_and(|view| view.priority(role).is_some())
    }

    /// Whether a named successor may yet come. Of one that is not known, or was not yet seen to beat, too little is known to
    /// outrun it: the leader that named it knows more.
    fn may_still_claim(&self, successor: &Name, role: &Name) -> bool {
        let stands =
            |view: &NodeView| view.priority(role).is_some() && self.peers.may_be_alive(view.session());
        self.peers.node(successor).is_none_or(stands)
    }
}

/// How long to leave the expulsion of a session to those who come before us: one of the watchers goes first.
pub(super) fn expel_delay(peers: &Peers, own_name: &Name, session: SessionId) -> Duration {
    let rank = |node: &Name| spread_hash(session.get() as u64, node);
    let mine = rank(own_name);
    let others = peers.nodes().filter(|(node, view)| *node != own_name && peers.seen_alive(view.session()));
    let (mut ahead, mut all) = (0, 1);
    for (node, _) in others {
        all += 1;
        ahead += usize::from(rank(node) < mine);
    }
    rank_delay(ahead, all, 0)
}

/// The order in which candidates, given with their priorities, claim a role whose register holds `record`.
#[must_use]
pub fn claim_order(
    role: &Name,
    record: Option<&RoleRecord>,
    candidates: impl IntoIterator<Item = (Name, i32)>,
) -> Vec<Name> {
    let mut queue: Vec<(ClaimRank, Name)> = candidates
        .into_iter()
        .map(|(node, priority)| (claim_rank(role, &node, priority, record), node))
        .collect();
    queue.sort();
    queue.into_iter().map(|(_, node)| node).collect()
}

/// How long the candidate that has so many ahead of it, of so many in all, waits. Those of one rank in different views of
/// the world come a little apart.
fn rank_delay(ahead: usize, all: usize, jitter: u64) -> Duration {
    let (rank, all) = (u32::try_from(ahead).unwrap_or(u32::MAX), u32::try_from(all).unwrap_or(u32::MAX));
    if rank == 0 {
        return Duration::ZERO;
    }
    if rank <= FULL_STEP_RANKS {
        return RANK_STEP * rank + RANK_STEP / 4 * (jitter % 4) as u32;
    }
    let begin = RANK_STEP * (FULL_STEP_RANKS + 1);
    let share = (RANK_SPREAD - begin) / all.saturating_sub(FULL_STEP_RANKS + 1).max(1);
    (begin + share.saturating_mul(rank - FULL_STEP_RANKS - 1) + share / 4 * (jitter % 4) as u32)
        .min(RANK_SPREAD)
}

fn claim_rank(role: &Name, node: &Name, priority: i32, record: Option<&RoleRecord>) -> ClaimRank {
    let named = record.is_some_and(|record| record.successor.as_ref() == Some(node));
    let resigned =
        record.is_some_and(|record| record.holder.is_none() && record.previous.as_ref() == Some(node));
    (!named, resigned && !named, Reverse(priority), spread_hash(fnv1a(START, role.as_str().bytes()), node))
}

/// A stable hash of (role, node), the same in every version: it spreads roles over nodes without a coordinator.
pub(super) fn spread_hash(role: u64, node: &Name) -> u64 {
    let mut h = fnv1a(role ^ START, node.as_str().bytes());
    // FNV leaves similar names close together; this spreads them over all bits.
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_spreads_roles_evenly() {
        let nodes: Vec<Name> = (1..=3).map(|n| Name::new(format!("node-{n}")).unwrap()).collect();
        let mut first = [0u32; 3];
        for n in 0..3000 {
            let role = Name::new(format!("shard-{n}")).unwrap();
            let order = |i: &usize| claim_rank(&role, &nodes[*i], 0, None);
            first[(0..3).min_by_key(order).unwrap()] += 1;
        }
        assert!(first.iter().all(|count| (900..=1100).contains(count)), "{first:?}");
    }

    #[test]
    fn the_hash_never_changes() {
        let (role, node) = (Name::new("scheduler").unwrap(), Name::new("web-1").unwrap());
        assert_eq!(claim_rank(&role, &node, 0, None).3, 3_078_868_998_672_053_532);
    }

    #[test]
    fn ranks_wait_no_longer_than_the_spread() {
        assert_eq!(rank_delay(0, 5, 3), Duration::ZERO);
        assert!(
            rank_delay(1, 2, 0) >= RANK_STEP
                && rank_delay(1000, 1001, 3) <= RANK_SPREAD
                && rank_delay(usize::MAX, usize::MAX, 3) <= RANK_SPREAD
        );
        assert!((1..9).all(|rank| rank_delay(rank, 10, 0) > rank_delay(rank - 1, 10, 3)), "in their order");
    }

    #[test]
    fn a_hundred_do_not_ask_at_one_moment() {
        let turns: Vec<u128> = (0..100).map(|rank| rank_delay(rank, 100, 0).as_millis()).collect();
        let busiest = turns.iter().map(|turn| turns.iter().filter(|other| *other == turn).count()).max();
        assert!(busiest <= Some(5), "{turns:?}");
    }
}

//! Order instead of a stampede: who claims first when a role falls free.
//!
//! Only ever a delay: the compare-and-set decides, whatever the order says.

use std::cmp::Reverse;
use std::time::Duration;

use crate::record::Role as RoleRecord;
use crate::{Name, SessionId, Timing};

use super::Engine;
use super::peers::NodeView;
use super::roles::Role;

/// All ranks together wait no longer than this.
pub(super) const SPREAD: Duration = Duration::from_millis(50);
/// One of the first ranks waits this much longer than the one before.
const STEP: Duration = Duration::from_millis(10);
/// So many behind the first wait a whole step each. Those behind them, however many, share what is left of the spread, evenly: all at its end
/// would ask at one moment.
const FIRST: u32 = 2;

/// Where a candidate stands: the lower, the earlier.
type Place = (bool, bool, Reverse<i32>, u64);

impl Engine {
    /// How long to leave the role to those who come before us.
    ///
    /// Whoever just resigned comes last, and behind a named successor everybody does; both wait long enough for the
    /// others to find out without a hint. They are never excluded.
    pub(super) fn turn(&self, name: &Name, role: &Role) -> Duration {
        let Some(standing) = &role.standing else { return Duration::ZERO };
        let record = role.view.record();
        let mine = place(name, &self.config.node, standing.priority, record);
        let rivals = self.nodes.iter().filter(|(node, view)| {
            **node != self.config.node && view.priority(name).is_some() && self.seen_alive(view.session())
        });
        let (mut slowest, mut ahead, mut all) = (Duration::ZERO, 0, 1);
        for (node, view) in rivals {
            all += 1;
            slowest = slowest.max(self.ttl_of(view.session()));
            ahead += usize::from(place(name, node, view.priority(name).unwrap_or(0), record) < mine);
        }
        let heir = record.and_then(|record| record.successor.as_ref());
        if heir == Some(&self.config.node) {
            // Somebody asked for us: no delay of our own counts.
            return Duration::ZERO;
        }
        let heir = heir.filter(|heir| self.may_come(heir, name));
        let resigned = mine.1;
        let turn = match heir.map(|heir| self.nodes.get(heir)) {
            Some(known) => {
                let ttl = known.map_or(Duration::ZERO, |heir| self.ttl_of(heir.session()));
                SPREAD + self.found_out(ttl)
            }
            None if resigned && !slowest.is_zero() => SPREAD + self.found_out(slowest),
            None if resigned => SPREAD,
            None => step(ahead, all, mine.3),
        };
        standing.takeover_delay + turn
    }

    /// After this a node of that ttl has found out about a free role, hint or no hint: our next beat carries the news,
    /// and one of its looks finds it.
    fn found_out(&self, ttl: Duration) -> Duration {
        let Timing { beat, op_timeout, .. } = self.config.timing;
        (2 * beat + op_timeout).max(ttl * 3 / 5)
    }

    /// The same order for expelling a session: one of the watchers goes first.
    pub(super) fn expel_turn(&self, session: SessionId) -> Duration {
        let place = |node: &Name| mix(session.0 as u64, node);
        let mine = place(&self.config.node);
        let others = self
            .nodes
            .iter()
            .filter(|(node, view)| **node != self.config.node && self.seen_alive(view.session()));
        let (mut ahead, mut all) = (0, 1);
        for (node, _) in others {
            all += 1;
            ahead += usize::from(place(node) < mine);
        }
        step(ahead, all, 0)
    }

    /// Whether a node stands for a role and its session was seen to beat.
    pub(super) fn ready_to_lead(&self, node: &Name, role: &Name) -> bool {
        let stands = |view: &NodeView| view.priority(role).is_some() && self.seen_alive(view.session());
        self.nodes.get(node).is_some_and(stands)
    }

    /// Whether a named successor may yet come. Of one that is not known, or was not yet seen to beat, too little is known to
    /// outrun it: whoever named it knows more.
    fn may_come(&self, heir: &Name, role: &Name) -> bool {
        let stands = |view: &NodeView| view.priority(role).is_some() && self.may_live(view.session());
        self.nodes.get(heir).is_none_or(stands)
    }
}

/// The order in which candidates, given with their priorities, claim a role whose register holds `record`.
#[must_use]
pub fn in_order(
    role: &Name,
    record: Option<&RoleRecord>,
    candidates: impl IntoIterator<Item = (Name, i32)>,
) -> Vec<Name> {
    let mut line: Vec<(Place, Name)> =
        candidates.into_iter().map(|(node, priority)| (place(role, &node, priority, record), node)).collect();
    line.sort();
    line.into_iter().map(|(_, node)| node).collect()
}

/// How long the candidate that has so many ahead of it, of so many in all, waits. Those of one rank in different views of
/// the world come a little apart.
fn step(ahead: usize, all: usize, jitter: u64) -> Duration {
    let (rank, all) = (u32::try_from(ahead).unwrap_or(u32::MAX), u32::try_from(all).unwrap_or(u32::MAX));
    if rank == 0 {
        return Duration::ZERO;
    }
    if rank <= FIRST {
        return STEP * rank + STEP / 4 * (jitter % 4) as u32;
    }
    let begin = STEP * (FIRST + 1);
    let share = (SPREAD - begin) / all.saturating_sub(FIRST + 1).max(1);
    (begin + share.saturating_mul(rank - FIRST - 1) + share / 4 * (jitter % 4) as u32).min(SPREAD)
}

fn place(role: &Name, node: &Name, priority: i32, record: Option<&RoleRecord>) -> Place {
    let named = record.is_some_and(|record| record.successor.as_ref() == Some(node));
    let resigned =
        record.is_some_and(|record| record.holder.is_none() && record.previous.as_ref() == Some(node));
    (!named, resigned && !named, Reverse(priority), mix(hash(role.as_str().as_bytes(), OFFSET), node))
}

/// A stable hash of (role, node), the same in every version: it spreads roles over nodes with nobody in charge.
pub(super) fn mix(role: u64, node: &Name) -> u64 {
    let mut h = hash(node.as_str().as_bytes(), role ^ OFFSET);
    // FNV leaves similar names close together; this spreads them over all bits.
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn hash(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start, |h, byte| (h ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
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
            let order = |i: &usize| place(&role, &nodes[*i], 0, None);
            first[(0..3).min_by_key(order).unwrap()] += 1;
        }
        assert!(first.iter().all(|count| (900..=1100).contains(count)), "{first:?}");
    }

    #[test]
    fn the_hash_never_changes() {
        let (role, node) = (Name::new("scheduler").unwrap(), Name::new("web-1").unwrap());
        assert_eq!(place(&role, &node, 0, None).3, 3_078_868_998_672_053_532);
    }

    #[test]
    fn ranks_wait_no_longer_than_the_spread() {
        assert_eq!(step(0, 5, 3), Duration::ZERO);
        assert!(
            step(1, 2, 0) >= STEP
                && step(1000, 1001, 3) <= SPREAD
                && step(usize::MAX, usize::MAX, 3) <= SPREAD
        );
        assert!((1..9).all(|rank| step(rank, 10, 0) > step(rank - 1, 10, 3)), "in their order");
    }

    #[test]
    fn a_hundred_do_not_ask_at_one_moment() {
        let turns: Vec<u128> = (0..100).map(|rank| step(rank, 100, 0).as_millis()).collect();
        let busiest = turns.iter().map(|turn| turns.iter().filter(|other| *other == turn).count()).max();
        assert!(busiest <= Some(5), "{turns:?}");
    }
}

//! A group as people see it, and what is to be said about it.

use super::frame::{Chair, Roster};

/// A group, as whoever was asked sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// What names it for ever; none as long as nobody was ever elected.
    pub id: Option<String>,
    /// Its members, in the order of their addresses.
    pub seats: Vec<Seat>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seat {
    /// Where it is.
    pub address: String,
    /// Whether it counts for a majority; a new member does when it has caught up.
    pub votes: bool,
    /// Whether it stores and votes, but leaves the Raft leadership to others.
    pub witness: bool,
    /// Whether it leads the Raft group now. Who leads a role is another question.
    pub leads: bool,
    /// Whether whoever was asked has a connection to it.
    pub reached: bool,
}

impl From<Roster> for Group {
    fn from(roster: Roster) -> Self {
        let leader = roster.leader;
        let seat = |seat: Chair| Seat {
            leads: seat.id == leader,
            address: seat.address,
            votes: seat.votes,
            witness: seat.witness,
            reached: seat.reached,
        };
        let mut seats: Vec<Seat> = roster.seats.into_iter().map(seat).collect();
        seats.sort_by(|a, b| a.address.cmp(&b.address));
        Self { id: (roster.group != 0).then(|| format!("{:032x}", roster.group)), seats }
    }
}

/// What is wrong with a group, or weaker than it could be.
pub(super) fn remarks(group: &Group) -> Vec<String> {
    let voters = group.seats.iter().filter(|seat| seat.votes).count();
    let mut remarks = Vec::new();
    match voters {
        1 => remarks.push(
            "one member alone: when it is down, nobody leads; make it three with `tenure peers add`".to_owned(),
        ),
        2 => remarks.push(
            "two members: when either is down, nobody leads, which is less than one alone can do; add a third, which \
             may be a small one that only stores (`tenure peers serve` with witness=true)"
                .to_owned(),
        ),
        even if even % 2 == 0 => remarks.push(format!(
            "{even} members bear the loss of {}, as {} do: one more, or one fewer, is better",
            even / 2 - 1,
            even - 1
        )),
        _ => {}
    }
    if voters > 0 && group.seats.iter().filter(|seat| seat.votes).all(|seat| seat.witness) {
        remarks.push(
            "every member is a witness, so one has to lead the group all the same: leave witness=true out for the \
             others"
                .to_owned(),
        );
    }
    let quiet: Vec<&str> =
        group.seats.iter().filter(|seat| !seat.reached).map(|seat| seat.address.as_str()).collect();
    if !quiet.is_empty() {
        remarks.push(format!("not reached now: {}; start them, or look at the network", quiet.join(", ")));
    }
    let learning: Vec<&str> =
        group.seats.iter().filter(|seat| !seat.votes).map(|seat| seat.address.as_str()).collect();
    if !learning.is_empty() {
        remarks.push(format!("not voting yet: {}; each does when it has caught up", learning.join(", ")));
    }
    if !group.seats.iter().any(|seat| seat.leads) {
        remarks
            .push("no majority is in touch, so nothing can be written: start more of the members".to_owned());
    }
    remarks
}

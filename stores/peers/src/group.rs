//! A group as people see it, and what is to be said about it.

use super::frame::{GroupView, MemberView};

/// A group, as the member that was asked sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// What names it for ever; none as long as no member was ever elected.
    pub id: Option<String>,
    /// Its members, in the order of their addresses.
    pub members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupMember {
    /// Where it is.
    pub address: String,
    /// Whether it counts for a majority; a new member does when it has caught up.
    pub votes: bool,
    /// Whether it stores and votes, but leaves the Raft leadership to others.
    pub voting_only: bool,
    /// Whether it leads the Raft group now. Who leads a role is another question.
    pub leads: bool,
    /// Whether the member that was asked has a connection to it.
    pub reached: bool,
}

impl From<GroupView> for Group {
    fn from(group_view: GroupView) -> Self {
        let leader = group_view.leader;
        let member = |member: MemberView| GroupMember {
            leads: member.id == leader,
            address: member.address,
            votes: member.votes,
            voting_only: member.voting_only,
            reached: member.reached,
        };
        let mut members: Vec<GroupMember> = group_view.members.into_iter().map(member).collect();
        members.sort_by(|a, b| a.address.cmp(&b.address));
        Self { id: (group_view.group != 0).then(|| format!("{:032x}", group_view.group)), members }
    }
}

/// What is wrong with a group, or weaker than it could be.
pub(super) fn remarks(group: &Group) -> Vec<String> {
    let voters = group.members.iter().filter(|member| member.votes).count();
    let mut remarks = Vec::new();
    match voters {
        1 => remarks.push(
            "one member alone: when it is down, no node leads; make it three with `tenure peers add`".to_owned(),
        ),
        2 => remarks.push(
            "two members: when either is down, no node leads, which is less than one alone can do; add a third, which \
             may be a small one that only stores (`tenure peers serve` with voting-only=true)"
                .to_owned(),
        ),
        even if even % 2 == 0 => remarks.push(format!(
            "{even} members bear the loss of {}, as {} do: one more, or one fewer, is better",
            even / 2 - 1,
            even - 1
        )),
        _ => {}
    }
    if voters > 0 && group.members.iter().filter(|member| member.votes).all(|member| member.voting_only) {
        remarks.push(
            "every member is voting-only, so one has to lead the group all the same: leave voting-only=true out for the \
             others"
                .to_owned(),
        );
    }
    let quiet: Vec<&str> =
        group.members.iter().filter(|member| !member.reached).map(|member| member.address.as_str()).collect();
    if !quiet.is_empty() {
        remarks.push(format!("not reached now: {}; start them, or look at the network", quiet.join(", ")));
    }
    let learning: Vec<&str> =
        group.members.iter().filter(|member| !member.votes).map(|member| member.address.as_str()).collect();
    if !learning.is_empty() {
        remarks.push(format!("not voting yet: {}; each does when it has caught up", learning.join(", ")));
    }
    if !group.members.iter().any(|member| member.leads) {
        remarks
            .push("no majority is in touch, so nothing can be written: start more of the members".to_owned());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(voters: usize) -> String {
        let member = |nth| GroupMember {
            address: format!("10.0.0.{nth}:7600"),
            votes: true,
            voting_only: false,
            leads: nth == 0,
            reached: true,
        };
        remarks(&Group { id: None, members: (0..voters).map(member).collect() }).join("\n")
    }

    #[test]
    fn a_group_of_two_or_of_an_even_number_is_remarked() {
        assert!(of(1).contains("one member alone"), "{}", of(1));
        assert!(of(2).contains("less than one alone can do"), "{}", of(2));
        assert!(of(4).contains("4 members bear the loss of 1, as 3 do"), "{}", of(4));
        assert_eq!((of(3), of(5)), (String::new(), String::new()));
    }
}

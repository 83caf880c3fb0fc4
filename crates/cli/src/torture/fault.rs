//! Everything that can be done to nodes, links and stores.

use crate::exit::Exit;

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Kill,
    FreezeShort,
    FreezeLong,
    Starve,
    Refuse,
    Reset,
    BlackHole,
    LoseRequests,
    LoseReplies,
    Delay,
    Jitter,
    Throttle,
    CutReply,
    DropHints,
    StoreKill,
    StoreFreeze,
    Crowd,
    ReadOnly,
    Slow,
    DiskFull,
    MemberKill,
    MemberFreeze,
    MemberCut,
    Failover,
    Flush,
    DeleteRows,
    Restore,
    Transfer,
    StepDown,
    Pause,
    Drain,
    Twin,
    Clocks,
    Mixed,
}

/// The kind under which it is recorded that one of them was tried in vain.
pub(super) const NOT_DONE: &str = "not-done";

/// What a kind belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Process,
    Link,
    Store,
    Destroy,
    Operator,
    Clock,
    Config,
}

/// Every kind: its group, its name, and what it does.
const TABLE: [(Kind, Group, &str, &str); 34] = [
    (Kind::Kill, Group::Process, "kill", "kill -9, started again later"),
    (Kind::FreezeShort, Group::Process, "freeze-short", "SIGSTOP for less than the ttl"),
    (Kind::FreezeLong, Group::Process, "freeze-long", "SIGSTOP for more than the ttl"),
    (Kind::Starve, Group::Process, "starve", "a tenth of the processor"),
    (Kind::Refuse, Group::Link, "refuse", "new connections refused, open ones reset"),
    (Kind::Reset, Group::Link, "reset", "open connections reset"),
    (Kind::BlackHole, Group::Link, "black-hole", "bytes vanish, both ways"),
    (Kind::LoseRequests, Group::Link, "lose-requests", "bytes to the store vanish"),
    (Kind::LoseReplies, Group::Link, "lose-replies", "bytes from the store vanish"),
    (Kind::Delay, Group::Link, "delay", "bytes are late"),
    (Kind::Jitter, Group::Link, "jitter", "bytes are late by chance"),
    (Kind::Throttle, Group::Link, "throttle", "few bytes a second"),
    (Kind::CutReply, Group::Link, "cut-reply", "cut in the middle of a reply"),
    (Kind::DropHints, Group::Link, "drop-hints", "notifications vanish, and only they"),
    (Kind::StoreKill, Group::Store, "store-kill", "kill -9 of the server, started again"),
    (Kind::StoreFreeze, Group::Store, "store-freeze", "SIGSTOP of the server"),
    (Kind::Crowd, Group::Store, "crowd", "out of connections"),
    (Kind::ReadOnly, Group::Store, "read-only", "the store takes no writes"),
    (Kind::Slow, Group::Store, "slow", "slow statements, held locks"),
    (Kind::DiskFull, Group::Store, "disk-full", "no room on the disk of the store"),
    (Kind::MemberKill, Group::Store, "member-kill", "kill -9 of one member of the group, started again"),
    (Kind::MemberFreeze, Group::Store, "member-freeze", "SIGSTOP of one member of the group"),
    (Kind::MemberCut, Group::Store, "member-cut", "nobody reaches one member of the group"),
    (
        Kind::Failover,
        Group::Store,
        "failover",
        "the primary dies with its last writes, the replica is promoted",
    ),
    (Kind::Flush, Group::Destroy, "flush", "all data deleted"),
    (Kind::DeleteRows, Group::Destroy, "delete-rows", "the sessions deleted"),
    (Kind::Restore, Group::Destroy, "restore", "an older state of the data put back"),
    (Kind::Transfer, Group::Operator, "transfer", "an operator hands a role over"),
    (Kind::StepDown, Group::Operator, "step-down", "an operator makes a leader give up"),
    (Kind::Pause, Group::Operator, "pause", "an operator pauses a role"),
    (Kind::Drain, Group::Operator, "drain", "an operator drains a node"),
    (Kind::Twin, Group::Operator, "twin", "a second process with the name of a node"),
    (Kind::Clocks, Group::Clock, "clocks", "wall clocks wrong by up to an hour"),
    (Kind::Mixed, Group::Config, "mixed", "nodes with different settings"),
];

impl Kind {
    fn row(self) -> &'static (Self, Group, &'static str, &'static str) {
        TABLE.iter().find(|(kind, ..)| *kind == self).expect("every kind is in the table")
    }

    pub(super) fn group(self) -> Group {
        self.row().1
    }

    pub(super) fn name(self) -> &'static str {
        self.row().2
    }

    pub(super) fn about(self) -> &'static str {
        self.row().3
    }

    /// Whether a strike is over when it has been done.
    pub(super) fn lasts_by_itself(self) -> bool {
        matches!(self, Self::Slow | Self::Flush | Self::DeleteRows | Self::Failover)
    }

    /// Whether it holds from the beginning to the end, and is not done at some instant.
    pub(super) fn is_condition(self) -> bool {
        matches!(self, Self::Clocks | Self::Mixed)
    }
}

/// Whether a kind of that name is one of these.
pub(super) fn is_kind(name: &str) -> bool {
    TABLE.iter().any(|(_, _, known, _)| *known == name)
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Link => "link",
            Self::Store => "store",
            Self::Destroy => "destroy",
            Self::Operator => "operator",
            Self::Clock => "clock",
            Self::Config => "config",
        }
    }
}

/// The kinds that were asked for; everything that destroys nothing if nothing was said.
pub(super) fn chosen(words: &[String]) -> Result<Vec<Kind>, Exit> {
    let mut kinds = Vec::new();
    for (kind, group, name, _) in &TABLE {
        let said = |word: &String| word == name || word == group.name() || word == "all";
        if words.iter().any(said) || (words.is_empty() && *group != Group::Destroy) {
            kinds.push(*kind);
        }
    }
    let known = |word: &&String| {
        *word == "all" || TABLE.iter().any(|(_, group, name, _)| word == name || *word == group.name())
    };
    match words.iter().find(|word| !known(word)) {
        None => Ok(kinds),
        Some(word) => {
            let names: Vec<&str> = TABLE.iter().map(|(_, _, name, _)| *name).collect();
            Err(Exit::Usage(format!(
                "{word:?} is no fault: say all, process, link, store, operator, clock, config, destroy, or {}",
                names.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_single_faults_are_chosen_and_nothing_destroys_by_default() {
        assert!(chosen(&[]).unwrap().iter().all(|kind| kind.group() != Group::Destroy));
        assert_eq!(chosen(&["all".into()]).unwrap().len(), TABLE.len());
        assert_eq!(chosen(&["clock".into(), "kill".into()]).unwrap(), [Kind::Kill, Kind::Clocks]);
        let Err(Exit::Usage(why)) = chosen(&["kil".into()]) else { panic!("it must be refused") };
        assert!(why.contains("\"kil\" is no fault") && why.contains("freeze-short"), "{why}");
    }
}

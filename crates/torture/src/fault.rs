//! Everything that can be done to nodes, links and stores.

use crate::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "TABLE says what each does")]
pub enum FaultKind {
    Kill,
    FreezeShort,
    FreezeLong,
    Suspend,
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
    Rates,
    Mixed,
    Programs,
    Neighbour,
}

/// The kind under which it is recorded that one of them was tried in vain.
pub(crate) const NOT_DONE: &str = "not-done";

/// What a kind belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultGroup {
    Process,
    Link,
    Store,
    Destroy,
    Operator,
    Clock,
    Config,
    Neighbour,
}

/// Every kind: its group, its name, and what it does.
const TABLE: [(FaultKind, FaultGroup, &str, &str); 38] = [
    (FaultKind::Kill, FaultGroup::Process, "kill", "kill -9, started again later"),
    (FaultKind::FreezeShort, FaultGroup::Process, "freeze-short", "SIGSTOP for less than the ttl"),
    (FaultKind::FreezeLong, FaultGroup::Process, "freeze-long", "SIGSTOP for more than the ttl"),
    (
        FaultKind::Suspend,
        FaultGroup::Process,
        "suspend",
        "SIGSTOP for about the ttl, which the lease clock counts and the timers do not",
    ),
    (FaultKind::Starve, FaultGroup::Process, "starve", "a tenth of the processor"),
    (FaultKind::Refuse, FaultGroup::Link, "refuse", "new connections refused, open ones reset"),
    (FaultKind::Reset, FaultGroup::Link, "reset", "open connections reset"),
    (FaultKind::BlackHole, FaultGroup::Link, "black-hole", "bytes vanish, both ways"),
    (FaultKind::LoseRequests, FaultGroup::Link, "lose-requests", "bytes to the store vanish"),
    (FaultKind::LoseReplies, FaultGroup::Link, "lose-replies", "bytes from the store vanish"),
    (FaultKind::Delay, FaultGroup::Link, "delay", "bytes are late"),
    (FaultKind::Jitter, FaultGroup::Link, "jitter", "bytes are late by chance"),
    (FaultKind::Throttle, FaultGroup::Link, "throttle", "few bytes a second"),
    (FaultKind::CutReply, FaultGroup::Link, "cut-reply", "cut in the middle of a reply"),
    (FaultKind::DropHints, FaultGroup::Link, "drop-hints", "notifications vanish, and only they"),
    (FaultKind::StoreKill, FaultGroup::Store, "store-kill", "kill -9 of the server, started again"),
    (FaultKind::StoreFreeze, FaultGroup::Store, "store-freeze", "SIGSTOP of the server"),
    (FaultKind::Crowd, FaultGroup::Store, "crowd", "out of connections"),
    (FaultKind::ReadOnly, FaultGroup::Store, "read-only", "the store takes no writes"),
    (FaultKind::Slow, FaultGroup::Store, "slow", "slow statements, held locks"),
    (FaultKind::DiskFull, FaultGroup::Store, "disk-full", "no room on the disk of the store"),
    (
        FaultKind::MemberKill,
        FaultGroup::Store,
        "member-kill",
        "kill -9 of one member of the group, started again",
    ),
    (FaultKind::MemberFreeze, FaultGroup::Store, "member-freeze", "SIGSTOP of one member of the group"),
    (
        FaultKind::MemberCut,
        FaultGroup::Store,
        "member-cut",
        "no other member reaches one member of the group",
    ),
    (
        FaultKind::Failover,
        FaultGroup::Store,
        "failover",
        "the primary dies with its last writes, the replica is promoted",
    ),
    (FaultKind::Flush, FaultGroup::Destroy, "flush", "all data deleted"),
    (FaultKind::DeleteRows, FaultGroup::Destroy, "delete-rows", "the sessions deleted"),
    (FaultKind::Restore, FaultGroup::Destroy, "restore", "an older state of the data put back"),
    (FaultKind::Transfer, FaultGroup::Operator, "transfer", "an operator hands a role over"),
    (FaultKind::StepDown, FaultGroup::Operator, "step-down", "an operator makes a leader give up"),
    (FaultKind::Pause, FaultGroup::Operator, "pause", "an operator pauses a role"),
    (FaultKind::Drain, FaultGroup::Operator, "drain", "an operator drains a node"),
    (FaultKind::Twin, FaultGroup::Operator, "twin", "a second process with the name of a node"),
    (FaultKind::Clocks, FaultGroup::Clock, "clocks", "wall clocks wrong by up to an hour"),
    (FaultKind::Rates, FaultGroup::Clock, "rates", "lease clocks fast or slow by up to 1 %, from any origin"),
    (FaultKind::Mixed, FaultGroup::Config, "mixed", "nodes with different settings"),
    (
        FaultKind::Programs,
        FaultGroup::Config,
        "programs",
        "two nodes also run a command under `tenure run`, and an agent with a client",
    ),
    (
        FaultKind::Neighbour,
        FaultGroup::Neighbour,
        "neighbour",
        "a login without rights that forges notifications, floods connections and tries what it may not",
    ),
];

impl FaultKind {
    fn row(self) -> &'static (Self, FaultGroup, &'static str, &'static str) {
        TABLE.iter().find(|(kind, ..)| *kind == self).expect("every kind is in the table")
    }

    pub(crate) fn group(self) -> FaultGroup {
        self.row().1
    }

    /// As `--faults` spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// What it does.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.row().3
    }

    /// Whether a strike is over when it has been done.
    pub(crate) fn lasts_by_itself(self) -> bool {
        matches!(self, Self::Slow | Self::Flush | Self::DeleteRows | Self::Failover)
    }

    /// Whether it holds from the beginning to the end, and is not done at some instant.
    #[must_use]
    pub fn is_condition(self) -> bool {
        matches!(self, Self::Clocks | Self::Rates | Self::Mixed | Self::Programs | Self::Neighbour)
    }
}

/// Whether a kind of that name is one of these.
#[must_use]
pub fn is_kind(name: &str) -> bool {
    TABLE.iter().any(|(_, _, known, _)| *known == name)
}

impl FaultGroup {
    fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Link => "link",
            Self::Store => "store",
            Self::Destroy => "destroy",
            Self::Operator => "operator",
            Self::Clock => "clock",
            Self::Config => "config",
            Self::Neighbour => "neighbour",
        }
    }
}

/// The kinds that were named; without names, all that destroy no data.
///
/// # Errors
/// If a word names neither a kind nor a group.
pub fn chosen(words: &[String]) -> Result<Vec<FaultKind>, Error> {
    let mut kinds = Vec::new();
    for (kind, group, name, _) in &TABLE {
        let said = |word: &String| word == name || word == group.name() || word == "all";
        if words.iter().any(said) || (words.is_empty() && *group != FaultGroup::Destroy) {
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
            Err(Error::Usage(format!(
                "cannot inject {word:?}: no such fault; use all, process, link, store, operator, clock, config, neighbour, destroy, or {}",
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
        assert!(chosen(&[]).unwrap().iter().all(|kind| kind.group() != FaultGroup::Destroy));
        assert_eq!(chosen(&["all".into()]).unwrap().len(), TABLE.len());
        assert_eq!(
            chosen(&["clock".into(), "kill".into()]).unwrap(),
            [FaultKind::Kill, FaultKind::Clocks, FaultKind::Rates]
        );
        let Err(Error::Usage(why)) = chosen(&["kil".into()]) else { panic!("it must be refused") };
        assert!(
            why.contains("cannot inject \"kil\": no such fault") && why.contains("freeze-short"),
            "{why}"
        );
    }
}

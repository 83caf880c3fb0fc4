//! What members and clients say to each other.

use super::codec::{Blob, Garbled, Wire, fields};
use tenure_store::{Entry, Key, Name, Outcome, Query, StoreError, Write};

/// The protocol that this version speaks, and the oldest one that it understands. Members of a group that is being
/// upgraded talk by the highest that both know.
pub(super) const PROTOCOL: (u8, u8) = (1, 1);

/// One message.
#[derive(Debug)]
pub(super) enum Frame {
    /// The first frame of the connecting side.
    Hello(Hello),
    /// The answer to it: who is here.
    Welcome(Welcome),
    /// The answer to it, and the last word.
    Refused(StoreError),
    /// Between members: a message of the Raft library.
    Raft(Blob),
    /// Asks something of a member, which is to answer within so many milliseconds.
    Ask(u64, u64, Ask),
    /// The answer, and how far this member had applied the log when it answered.
    Answer(u64, u64, Answer),
    /// A register of that namespace may have changed.
    Changed(Name, Key),
    /// Signals were lost.
    Resync,
    /// Are you there?
    Ping,
    /// I am, and have applied so much of the log.
    Pong(u64),
}

/// Who connects.
#[derive(Debug, Clone)]
pub(super) struct Hello {
    pub(super) cluster: String,
    /// Absent for a client.
    pub(super) member: Option<MemberInfo>,
    /// Which member it wants to talk to; any, for a client.
    pub(super) wanted: Option<u64>,
}

/// How a member is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberInfo {
    pub(super) id: u64,
    pub(super) disk: u128,
    pub(super) address: String,
    /// It stores, and leaves the Raft leadership to others.
    pub(super) voting_only: bool,
}

/// Who is here. A member that has not started yet has no info.
#[derive(Debug, Clone)]
pub(super) struct Welcome {
    pub(super) member: Option<MemberInfo>,
    /// How far it has applied the log.
    pub(super) applied: u64,
}

/// What can be asked of a member.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Read(Name, Query),
    /// The first number names the request: sent twice, by way of whichever members, it is carried out once. The second one
    /// says where the log was before it was first sent.
    Write(u128, u64, Name, Vec<Write>),
    Group,
    /// Whether a member with an empty disk, at that address and with that list, may start; see `start.rs`.
    Roll(String, Vec<String>),
    Add(String),
    Remove(String),
}

#[derive(Debug)]
pub(super) enum Answer {
    Entries(Vec<Entry>),
    Outcomes(Vec<Outcome>),
    Group(GroupView),
    /// This member has not started either, and was given this list.
    Fresh(Vec<String>),
    /// There is a group. The id that it has for that address, and whether a disk was already seen under it.
    Known(GroupView, Option<u64>, bool),
    Done,
    Failed(StoreError),
}

/// A group as one member sees it.
#[derive(Debug, Clone, Default)]
pub(super) struct GroupView {
    /// What names this group for ever; zero as long as no member was elected.
    pub(super) group: u128,
    pub(super) leader: u64,
    pub(super) members: Vec<MemberView>,
    /// Who answers.
    pub(super) me: u64,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MemberView {
    pub(super) id: u64,
    pub(super) address: String,
    pub(super) votes: bool,
    pub(super) voting_only: bool,
    /// Whether the answering member has a connection to it.
    pub(super) reached: bool,
}

fields!(Hello { cluster, member, wanted });
fields!(MemberInfo { id, disk, address, voting_only });
fields!(Welcome { member, applied });
fields!(GroupView { group, leader, members, me });
fields!(MemberView { id, address, votes, voting_only, reached });

/// An enumeration is the number of its variant and what the variant holds.
macro_rules! variants {
    ($name:ident { $($number:literal $variant:ident ($($index:tt $field:ident),*)),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self { $(
                    Self::$variant { $($index: $field),* } => {
                        let number: u8 = $number;
                        number.put(out);
                        $($field.put(out);)*
                    }
                )* }
            }
            fn get(from: &mut &[u8]) -> Result<Self, Garbled> {
                match u8::get(from)? {
                    $($number => Ok(Self::$variant { $($index: Wire::get(from)?),* }),)*
                    _ => Err(Garbled(stringify!($name))),
                }
            }
        }
    };
}

variants!(Frame {
    0 Hello(0 hello),
    1 Welcome(0 welcome),
    2 Refused(0 why),
    3 Raft(0 message),
    4 Ask(0 number, 1 within, 2 ask),
    5 Answer(0 number, 1 applied, 2 answer),
    6 Changed(0 namespace, 1 key),
    7 Resync(),
    8 Ping(),
    9 Pong(0 applied),
});

variants!(Ask {
    0 Read(0 namespace, 1 query),
    1 Write(0 request, 1 since, 2 namespace, 3 writes),
    2 Group(),
    3 Roll(0 address, 1 list),
    4 Add(0 address),
    5 Remove(0 address),
});

variants!(Answer {
    0 Entries(0 entries),
    1 Outcomes(0 outcomes),
    2 Group(0 group_view),
    3 Fresh(0 list),
    4 Known(0 group_view, 1 id, 2 seen),
    5 Done(),
    6 Failed(0 error),
});

//! The node register: our name, claimed like a role, so that one live process has it. Nothing is claimed before it.

use crate::record::{Node as NodeRecord, Record};
use crate::{Entry, Event, Kind, OpId, Outcome, SessionId, Time, Version, Wall, Write};

use super::ops::Purpose;
use super::{Cx, Engine};

/// What is known of the register, and what is being done about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Card {
    seen: Seen,
    /// Reads from this one on began after our last write was answered.
    seen_op: OpId,
    writing: Option<(OpId, Version, NodeRecord)>,
    retry_at: Time,
    /// The live session that has our name, if it was told about already.
    told: Option<SessionId>,
    /// What it says of us is no longer true.
    outdated: bool,
    joined: Wall,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum Seen {
    #[default]
    Unknown,
    Absent,
    Found(Version, NodeRecord),
}

impl Card {
    /// The session that has our name, as far as we know.
    pub(super) fn holder(&self) -> Option<SessionId> {
        match &self.seen {
            Seen::Found(_, record) => Some(record.session),
            _ => None,
        }
    }

    /// The labels, the address or the candidacies have changed.
    pub(super) fn outdate(&mut self) {
        self.outdated = true;
    }

    pub(super) fn forget(&mut self) {
        *self = Self { joined: self.joined, ..Self::default() };
    }
}

impl Engine {
    /// Whether the name is ours: claims may be made.
    pub(super) fn has_name(&self) -> bool {
        self.session.open_id().is_some() && self.card.holder() == self.session.open_id()
    }

    pub(super) fn card_wake(&self) -> Time {
        let idle = self.card.writing.is_none() && self.session_usable().is_some();
        let wants = match &self.card.seen {
            Seen::Unknown => false,
            Seen::Absent => true,
            Seen::Found(_, found) if Some(found.session) == self.session.open_id() => self.card.outdated,
            Seen::Found(_, found) => self.is_over(found.session),
        };
        if idle && wants { self.card.retry_at.max(self.now.time) } else { Time::NEVER }
    }

    pub(super) fn drive_card(&mut self, cx: &mut Cx<'_>) {
        if let Some(by) = self.name_taken_by()
            && self.card.told != Some(by)
        {
            self.card.told = Some(by);
            cx.event(Event::NameTaken { by });
        }
        if self.card.writing.is_some() || self.now.time < self.card.retry_at {
            return;
        }
        let Some((expect, record)) = self.card_wish() else { return };
        let version = cx.version();
        let put = Some((version, Record::Node(record.clone())));
        let write = Write {
            key: self.named(Kind::Node, &self.config.node),
            expect,
            put,
            ring: true,
            witnessed: false,
        };
        let op = self.send_writes(vec![write], Purpose::Card, cx);
        self.card.writing = Some((op, version, record));
        self.card.outdated = false;
    }

    /// The live session of another process under our name.
    fn name_taken_by(&self) -> Option<SessionId> {
        let own = self.session.open_id()?;
        self.card.holder().filter(|holder| *holder != own && !self.is_over(*holder))
    }

    /// What the register should become, if anything. (Building it is costly with many roles: only on demand.)
    fn card_wish(&self) -> Option<(Option<Version>, NodeRecord)> {
        let session = self.session_usable()?;
        let wish = || NodeRecord {
            session,
            labels: self.labels.clone(),
            address: self.address.clone(),
            candidacies: self.candidacies(),
            since: self.card.joined,
        };
        match &self.card.seen {
            Seen::Unknown => None,
            Seen::Absent => Some((None, wish())),
            Seen::Found(version, found) if found.session == session => {
                self.card.outdated.then(|| (Some(*version), wish()))
            }
            Seen::Found(version, found) => self.is_over(found.session).then(|| (Some(*version), wish())),
        }
    }

    pub(super) fn card_written(&mut self, op: OpId, outcome: Outcome) {
        let Some((_, version, record)) = self.card.writing.take_if(|(awaited, ..)| *awaited == op) else {
            return;
        };
        self.card.seen_op = self.ops.upcoming();
        match outcome {
            Outcome::Applied => {
                self.count_card();
                self.name_is(Seen::Found(version, record));
            }
            Outcome::Conflict(found) => {
                self.card.outdated = true;
                self.saw_card(found.as_ref());
            }
            Outcome::Failed(_) => {
                self.card.retry_at = self.now.time.after(self.retry_delay());
                self.card.seen = Seen::Unknown;
                self.card.outdated = true;
                self.look.again(self.named(Kind::Node, &self.config.node));
            }
        }
    }

    /// Takes in what a read showed of our own name. An older one must not undo what we know better, or are about to.
    pub(super) fn read_card(&mut self, op: OpId, found: Option<&Entry>) {
        if self.card.writing.is_none() && op >= self.card.seen_op {
            self.saw_card(found);
        }
    }

    fn saw_card(&mut self, found: Option<&Entry>) {
        let seen = match found {
            None => Seen::Absent,
            Some(Entry { version, value: Record::Node(record), .. }) => Seen::Found(*version, record.clone()),
            // Not ours to overwrite.
            Some(_) => Seen::Unknown,
        };
        self.name_is(seen);
    }

    fn name_is(&mut self, seen: Seen) {
        let had = self.has_name();
        self.card.seen = seen;
        if let Some(holder) = self.card.holder()
            && Some(holder) != self.session.own_id()
            && !self.peers.contains_key(&holder)
        {
            self.watch_session(holder);
        }
        if !had && self.has_name() {
            self.card.told = None;
            self.consider_all();
        }
    }

    /// Remembered for people: when this process joined.
    pub(super) fn note_joined(&mut self) {
        self.card.joined = self.now.wall;
    }
}

#[cfg(feature = "canon")]
#[path = "canon/card.rs"]
mod canon;

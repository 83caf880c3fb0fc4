//! The node register: our name, claimed like a role, so that one live process has it. Nothing is claimed before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::{Node as NodeRecord, Record};
use crate::{Entry, Event, Kind, OpId, Outcome, SessionId, Time, Timestamp, Version, Write};

use super::ops::Purpose;
use super::{Engine, StepContext};

/// The last known version of the register, and our pending write to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct OwnNode {
    view: OwnNodeView,
    /// Reads from this one on began after our last write was answered.
    view_from: OpId,
    writing: Option<(OpId, Version, NodeRecord)>,
    retry_at: Time,
    /// The live session that has our name, if it was reported already.
    reported_holder: Option<SessionId>,
    /// The register describes us as we no longer are.
    outdated: bool,
    joined: Timestamp,
    /// The description of this node, for people.
    labels: BTreeMap<String, String>,
    address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
enum OwnNodeView {
    #[default]
    Unknown,
    Absent,
    Found(Version, NodeRecord),
}

/// A write to the register on top of that version; none: where nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NextWrite {
    expect: Option<Version>,
}

impl OwnNode {
    /// The session that has our name, as far as we know.
    pub(super) fn holder(&self) -> Option<SessionId> {
        match &self.view {
            OwnNodeView::Found(_, record) => Some(record.session),
            _ => None,
        }
    }

    pub(super) fn describe(&mut self, labels: BTreeMap<String, String>, address: Option<String>) {
        (self.labels, self.address, self.outdated) = (labels, address, true);
    }

    pub(super) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The description or the candidacies have changed.
    pub(super) fn outdate(&mut self) {
        self.outdated = true;
    }

    /// The next write of that session to the register, if one is wanted: to claim the name, or to describe us anew.
    fn next_write(&self, session: SessionId, is_over: impl Fn(SessionId) -> bool) -> Option<NextWrite> {
        match &self.view {
            OwnNodeView::Unknown => None,
            OwnNodeView::Absent => Some(NextWrite { expect: None }),
            OwnNodeView::Found(version, found) => {
                let wanted = if found.session == session { self.outdated } else { is_over(found.session) };
                wanted.then_some(NextWrite { expect: Some(*version) })
            }
        }
    }

    pub(super) fn forget(&mut self) {
        let labels = std::mem::take(&mut self.labels);
        let address = self.address.take();
        *self = Self { joined: self.joined, labels, address, ..Self::default() };
    }
}

impl Engine {
    /// Whether the name is ours: claims may be made.
    pub(super) fn owns_name(&self) -> bool {
        self.session.open_id().is_some() && self.own_node.holder() == self.session.open_id()
    }

    pub(super) fn own_node_wake(&self) -> Time {
        let is_over = |session| self.peers.is_over(session);
        let wants = self.session_usable().and_then(|session| self.own_node.next_write(session, is_over));
        match wants {
            Some(_) if self.own_node.writing.is_none() => self.own_node.retry_at.max(self.now.time),
            _ => Time::NEVER,
        }
    }

    pub(super) fn drive_own_node(&mut self, ctx: &mut StepContext<'_>) {
        if let Some(by) = self.name_taken_by()
            && self.own_node.reported_holder != Some(by)
        {
            self.own_node.reported_holder = Some(by);
            ctx.event(Event::NameTaken { by });
        }
        if self.own_node.writing.is_some() || self.now.time < self.own_node.retry_at {
            return;
        }
        let Some((expect, record)) = self.wanted_own_node() else { return };
        let version = ctx.version();
        let put = Some((version, Record::Node(record.clone())));
        let write = Write {
            key: self.named(Kind::Node, &self.node),
            expect,
            put,
            notify: true,
            requires_lock: false,
        };
        let op = self.send_writes(vec![write], Purpose::OwnNode, ctx);
        self.own_node.writing = Some((op, version, record));
        self.own_node.outdated = false;
    }

    /// The live session of another process under our name.
    fn name_taken_by(&self) -> Option<SessionId> {
        let own = self.session.open_id()?;
        self.own_node.holder().filter(|holder| *holder != own && !self.peers.is_over(*holder))
    }

    /// What the register should become, if anything. (Building it is costly with many roles: only on demand.)
    fn wanted_own_node(&self) -> Option<(Option<Version>, NodeRecord)> {
        let session = self.session_usable()?;
        let NextWrite { expect } = self.own_node.next_write(session, |other| self.peers.is_over(other))?;
        let wanted = NodeRecord {
            session,
            labels: self.own_node.labels.clone(),
            address: self.own_node.address.clone(),
            candidacies: Arc::new(self.candidacies()),
            since: self.own_node.joined,
        };
        Some((expect, wanted))
    }

    pub(super) fn own_node_write_answered(&mut self, op: OpId, outcome: Outcome) {
        let Some((_, version, record)) = self.own_node.writing.take_if(|(awaited, ..)| *awaited == op) else {
            return;
        };
        self.own_node.view_from = self.ops.next_id();
        match outcome {
            Outcome::Applied => {
                self.count_node_write();
                self.set_own_node_view(OwnNodeView::Found(version, record));
            }
            Outcome::Conflict(found) => {
                self.own_node.outdated = true;
                self.adopt_own_node(found.as_ref());
            }
            Outcome::Failed(_) => {
                self.own_node.retry_at = self.now.time.after(self.rules.retry_delay());
                self.own_node.view = OwnNodeView::Unknown;
                self.own_node.outdated = true;
                self.poll.reread(self.named(Kind::Node, &self.node));
            }
        }
    }

    /// Takes in what a read showed of our own name. An older one must not undo what we know better, or are about to.
    pub(super) fn observe_own_node(&mut self, op: OpId, found: Option<&Entry>) {
        if self.own_node.writing.is_none() && op >= self.own_node.view_from {
            self.adopt_own_node(found);
        }
    }

    fn adopt_own_node(&mut self, found: Option<&Entry>) {
        let view = match found {
            None => OwnNodeView::Absent,
            Some(Entry { version, value: Record::Node(record), .. }) => {
                OwnNodeView::Found(*version, record.clone())
            }
            // Not ours to overwrite.
            Some(_) => OwnNodeView::Unknown,
        };
        self.set_own_node_view(view);
    }

    fn set_own_node_view(&mut self, view: OwnNodeView) {
        let had = self.owns_name();
        self.own_node.view = view;
        if let Some(holder) = self.own_node.holder()
            && Some(holder) != self.session.own_id()
            && !self.peers.knows(holder)
        {
            self.track_session(holder);
        }
        if !had && self.owns_name() {
            self.own_node.reported_holder = None;
            self.consider_all();
        }
    }

    /// Remembered for people: when this process joined.
    pub(super) fn note_joined(&mut self) {
        self.own_node.joined = self.now.wall;
    }
}

#[cfg(feature = "canonical")]
#[path = "canonical/own_node.rs"]
mod canonical;

#[cfg(test)]
#[path = "tests/own_node.rs"]
mod tests;

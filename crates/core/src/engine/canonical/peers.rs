//! The numbers of other sessions.

use std::time::Duration;

use super::{LivePeer, NodeView, Peer, PeerState, Peers};
use crate::engine::canonical::{Visitor, keep, rekeyed, visit_node, visit_session};
use crate::engine::order::RANK_SPREAD;
use crate::{SessionId, Takeover, Timing};

impl Peers {
    /// `settling`: how long after the moment of an expulsion it may still be left to others.
    pub(in crate::engine) fn visit<V: Visitor>(&mut self, timing: &Timing, settling: Duration, v: &mut V) {
        self.sessions = rekeyed(std::mem::take(&mut self.sessions), |id, peer| {
            peer.visit(*id, timing, settling, v);
            if peer.is_forgettable() { v.over(id) } else { keep(v, id) }
        });
        for NodeView { version, record } in self.nodes.values_mut() {
            v.version(version);
            visit_node(record, v);
        }
    }
}

impl Peer {
    fn visit<V: Visitor>(&mut self, id: SessionId, timing: &Timing, settling: Duration, v: &mut V) {
        match &mut self.state {
            PeerState::Unknown => {}
            PeerState::Absent { lapsed_at } => v.past(lapsed_at, RANK_SPREAD),
            PeerState::Live(live) => live.visit(id, timing, settling, v),
            // How long it has been over matters only to garbage collection.
            PeerState::Over { since } => v.past(since, Duration::ZERO),
        }
        self.expelling.iter_mut().for_each(|op| v.op(op));
        v.past(&mut self.retry_at, settling);
        if matches!(self.state, PeerState::Over { .. }) {
            // No node counts what a session resigns once it is over.
            (self.freed, self.node_writes) = (None, None);
        }
        if let Some(freed) = &mut self.freed {
            v.freed(id, freed);
        }
    }

    fn is_forgettable(&self) -> bool {
        matches!(self.state, PeerState::Over { .. }) && self.expelling.is_none()
    }
}

impl LivePeer {
    fn visit<V: Visitor>(&mut self, id: SessionId, timing: &Timing, settling: Duration, v: &mut V) {
        v.version(&mut self.version);
        visit_session(id, &mut self.record, v);
        let silence = timing.expulsion_wait(self.record.ttl.max(timing.ttl));
        v.past(&mut self.received_at, silence + settling);
        self.dead_since.iter_mut().for_each(|at| v.past(at, RANK_SPREAD));
        let grace = match self.record.takeover {
            Takeover::Strict => Duration::ZERO,
            Takeover::OnDisconnect => timing.expulsion_wait(self.record.grace) + settling,
        };
        self.dropped_at.iter_mut().for_each(|at| v.past(at, grace));
    }
}

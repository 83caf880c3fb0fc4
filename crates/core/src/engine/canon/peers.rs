//! The numbers of other sessions.

use std::time::Duration;

use super::{Live, Peer, Sight};
use crate::engine::canon::{Visitor, visit_session};
use crate::engine::order::SPREAD;
use crate::{SessionId, Takeover, Timing};

impl Peer {
    /// `settling`: how long after the moment of an expulsion it may still be left to others.
    pub(in crate::engine) fn visit<V: Visitor>(
        &mut self,
        id: SessionId,
        timing: &Timing,
        settling: Duration,
        v: &mut V,
    ) {
        match &mut self.sight {
            Sight::Unknown => {}
            Sight::Absent { lapsed_at } => v.past(lapsed_at, SPREAD),
            Sight::Live(live) => live.visit(id, timing, settling, v),
            // How long it has been over matters to whoever clears it away, and to nobody else.
            Sight::Over { since } => v.past(since, Duration::ZERO),
        }
        self.expelling.iter_mut().for_each(|op| v.op(op));
        v.past(&mut self.retry_at, settling);
        if matches!(self.sight, Sight::Over { .. }) {
            // Nobody counts what a session gives up once it is over.
            (self.freed, self.card) = (None, None);
        }
        if let Some(freed) = &mut self.freed {
            v.freed(id, freed);
        }
    }

    pub(in crate::engine) fn is_forgettable(&self) -> bool {
        matches!(self.sight, Sight::Over { .. }) && self.expelling.is_none()
    }
}

impl Live {
    fn visit<V: Visitor>(&mut self, id: SessionId, timing: &Timing, settling: Duration, v: &mut V) {
        v.version(&mut self.version);
        visit_session(id, &mut self.record, v);
        let silence = timing.watch(self.record.ttl.max(timing.ttl));
        v.past(&mut self.received_at, silence + settling);
        self.dead_since.iter_mut().for_each(|at| v.past(at, SPREAD));
        let grace = match self.record.takeover {
            Takeover::Strict => Duration::ZERO,
            Takeover::OnDisconnect => timing.watch(self.record.grace) + settling,
        };
        self.dropped_at.iter_mut().for_each(|at| v.past(at, grace));
    }
}

//! Whether a session beats, as an observer without a session can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tenure_core::record::{Session, SessionState};
use tenure_core::{Epoch, Key, Query, Timestamp};

use super::NodeState;
use crate::clock::wall_now;
use crate::store::SharedStore;
use crate::{Error, Name, SessionId};

/// What is known of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionLiveness {
    pub(super) state: NodeState,
    /// How long ago it beat.
    pub(super) ago: Duration,
    /// How long it may fall silent.
    pub(super) ttl: Duration,
    /// Its last beat, by its owner's wall clock.
    pub(super) at: Timestamp,
}

/// The liveness of all sessions.
pub(super) type LivenessBySession = BTreeMap<SessionId, SessionLiveness>;

/// Tells which sessions beat. Wall clocks of different hosts may differ, so that a beat which seems old, or from the future, is
/// not believed: a session that seems silent is read once more, a beat later, and is live if its beat has moved. Sessions
/// that no role or node names are not worth the wait.
pub(super) async fn check_sessions(
    store: &SharedStore,
    namespace: &Name,
    epoch: Epoch,
    sessions: &BTreeMap<SessionId, Session>,
    named: &BTreeSet<SessionId>,
) -> Result<LivenessBySession, Error> {
    let now = wall_now();
    let mut liveness: LivenessBySession =
        sessions.iter().map(|(id, session)| (*id, first(session, now))).collect();
    let doubtful = |id: &SessionId| liveness[id].state == NodeState::Silent && named.contains(id);
    let doubtful: Vec<SessionId> = sessions.keys().filter(|id| doubtful(id)).copied().collect();
    // Its record says how often it beats; one of an older version does not, and beats five times in a ttl.
    let pace = |id: &SessionId| (sessions[id].every + sessions[id].ttl / 20).max(sessions[id].ttl / 4);
    let Some(wait) = doubtful.iter().map(pace).max() else { return Ok(liveness) };
    tokio::time::sleep(wait.min(Duration::from_secs(10))).await;
    let keys = doubtful.iter().map(|id| Key::Session(epoch, *id)).collect();
    for entry in store.read(namespace, &Query { keys, kinds: Vec::new() }).await? {
        let (Key::Session(_, id), Ok(session)) = (&entry.key, entry.value.parse::<Session>()) else {
            continue;
        };
        let status = first(&session, wall_now());
        if status.state.is_over() {
            liveness.insert(*id, status);
        } else if session.beat > sessions[id].beat {
            liveness.insert(*id, SessionLiveness { state: NodeState::Live, ago: Duration::ZERO, ..status });
        }
    }
    Ok(liveness)
}

/// What one look tells.
fn first(session: &Session, now: Timestamp) -> SessionLiveness {
    let ago = Duration::from_micros(now.as_micros().saturating_sub(session.beat_at.as_micros()));
    let ahead = Duration::from_micros(session.beat_at.as_micros().saturating_sub(now.as_micros()));
    let doubtful = ago > session.ttl || ahead > Duration::from_secs(1);
    let state = match session.state {
        SessionState::Closed => NodeState::Closed,
        SessionState::Expelled => NodeState::Expelled,
        SessionState::Live if doubtful => NodeState::Silent,
        SessionState::Live => NodeState::Live,
    };
    SessionLiveness { state, ago, ttl: session.ttl, at: session.beat_at }
}

/// Looks at sessions again and again, and needs no wall clock after the first look: a session is silent if its beat has
/// not moved for a ttl.
#[derive(Debug, Default)]
pub(super) struct LivenessMonitor {
    seen: BTreeMap<SessionId, SeenBeat>,
}

/// When a beat was first seen.
#[derive(Debug, Clone, Copy)]
struct SeenBeat {
    beat: u64,
    /// When its owner sent it, by the owner's wall clock, which is compared with nothing but itself.
    at: Timestamp,
    since: Instant,
    /// Whether it was seen to move, or looked alive at the first look.
    believed: bool,
    /// Whether it was seen to move: then our own clock tells how long ago.
    moved: bool,
}

impl LivenessMonitor {
    /// What this look tells, after all the former ones.
    pub(super) fn observe_all(&mut self, sessions: &BTreeMap<SessionId, Session>) -> LivenessBySession {
        self.seen.retain(|id, _| sessions.contains_key(id));
        let (now, instant) = (wall_now(), Instant::now());
        sessions.iter().map(|(id, session)| (*id, self.observe(*id, session, now, instant))).collect()
    }

    fn observe(
        &mut self,
        id: SessionId,
        session: &Session,
        now: Timestamp,
        instant: Instant,
    ) -> SessionLiveness {
        let status = first(session, now);
        let fresh = |believed, moved| SeenBeat {
            beat: session.beat,
            at: session.beat_at,
            since: instant,
            believed,
            moved,
        };
        let seen = self.seen.entry(id).or_insert_with(|| fresh(status.state == NodeState::Live, false));
        if seen.beat != session.beat {
            let late = lateness(seen, session, instant);
            *seen = SeenBeat { since: instant.checked_sub(late).unwrap_or(instant), ..fresh(true, true) };
        }
        let still = instant.duration_since(seen.since);
        let state = match status.state {
            over if over.is_over() => over,
            _ if seen.believed && still <= session.ttl => NodeState::Live,
            _ => NodeState::Silent,
        };
        SessionLiveness { state, ago: if seen.moved { still } else { status.ago }, ..status }
    }
}

/// How much longer this beat was on its way than the one before it. A server that was frozen carries out what was sent to
/// it long ago when it goes on: such a beat is no sign of life.
fn lateness(before: &SeenBeat, session: &Session, now: Instant) -> Duration {
    let theirs = Duration::from_micros(session.beat_at.as_micros().saturating_sub(before.at.as_micros()));
    now.duration_since(before.since).saturating_sub(theirs)
}

#[cfg(test)]
mod tests {
    use tenure_core::Takeover;

    use super::*;

    fn session(beat: u64, sent: Timestamp) -> Session {
        Session {
            node: Name::new("a").unwrap(),
            beat,
            freed: 0,
            freed_lately: Vec::new(),
            node_writes: 1,
            holds_back: false,
            ttl: Duration::from_secs(2),
            every: Duration::ZERO,
            takeover: Takeover::Strict,
            grace: Duration::from_secs(1),
            liveness_lock: None,
            state: SessionState::Live,
            beat_at: sent,
        }
    }

    /// The owner's clock is an hour behind: only what passes on it counts.
    #[test]
    fn a_beat_that_was_on_its_way_for_longer_than_a_lease_is_no_sign_of_life() {
        let (mut monitor, id, began) = (LivenessMonitor::default(), SessionId::new(1), Instant::now());
        let mut feel = |beat: u64, sent: u64, seen: u64| {
            let seen = began + Duration::from_millis(seen);
            let now = Timestamp::from_micros(3_600_000_000 + sent * 1000);
            monitor.observe(id, &session(beat, Timestamp::from_micros(sent * 1000)), now, seen).state
        };
        feel(1, 10_000, 0);
        assert_eq!(feel(2, 10_400, 400), NodeState::Live);
        assert_eq!(feel(2, 10_400, 2_401), NodeState::Silent, "nothing for a ttl");
        assert_eq!(feel(3, 10_800, 12_000), NodeState::Silent, "sent at 800, carried out at 12000");
        assert_eq!(feel(4, 22_400, 12_400), NodeState::Live, "sent a moment ago");
    }
}

//! Whether a session beats, as one who has no session of its own can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tenure_core::record::{Session, SessionState};
use tenure_core::{Epoch, Key, Query, Wall};

use super::{NodeState, wall};
use crate::store::SharedStore;
use crate::{Error, Name, SessionId};

/// What is known of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pulse {
    pub(super) state: NodeState,
    /// How long ago it beat.
    pub(super) ago: Duration,
    /// How long it may fall silent.
    pub(super) ttl: Duration,
    /// Its last beat, by its owner's wall clock.
    pub(super) at: Wall,
}

/// The pulses of all sessions.
pub(super) type Pulses = BTreeMap<SessionId, Pulse>;

/// Feels every pulse. Wall clocks of different hosts may differ, so that a beat which seems old, or from the future, is
/// not believed: whoever seems silent is looked at once more, a beat later, and lives if its beat has moved. Sessions
/// that nothing names are not worth the wait.
pub(super) async fn feel(
    store: &SharedStore,
    namespace: &Name,
    epoch: Epoch,
    sessions: &BTreeMap<SessionId, Session>,
    named: &BTreeSet<SessionId>,
) -> Result<Pulses, Error> {
    let now = wall();
    let mut pulses: Pulses = sessions.iter().map(|(id, session)| (*id, first(session, now))).collect();
    let doubtful = |id: &SessionId| pulses[id].state == NodeState::Silent && named.contains(id);
    let doubtful: Vec<SessionId> = sessions.keys().filter(|id| doubtful(id)).copied().collect();
    // A leader beats five times in a ttl, unless it was told otherwise.
    let Some(wait) = doubtful.iter().map(|id| sessions[id].ttl / 4).max() else { return Ok(pulses) };
    tokio::time::sleep(wait.min(Duration::from_secs(5))).await;
    let keys = doubtful.iter().map(|id| Key::Session(epoch, *id)).collect();
    for entry in store.read(namespace, &Query { keys, kinds: Vec::new() }).await? {
        let (Key::Session(_, id), Ok(session)) = (&entry.key, entry.value.parse::<Session>()) else {
            continue;
        };
        let pulse = first(&session, wall());
        if pulse.state.is_over() {
            pulses.insert(*id, pulse);
        } else if session.beat > sessions[id].beat {
            pulses.insert(*id, Pulse { state: NodeState::Live, ago: Duration::ZERO, ..pulse });
        }
    }
    Ok(pulses)
}

/// What one look tells.
fn first(session: &Session, now: Wall) -> Pulse {
    let ago = Duration::from_micros(now.0.saturating_sub(session.beat_at.0));
    let ahead = Duration::from_micros(session.beat_at.0.saturating_sub(now.0));
    let doubtful = ago > session.ttl || ahead > Duration::from_secs(1);
    let state = match session.state {
        SessionState::Closed => NodeState::Closed,
        SessionState::Expelled => NodeState::Expelled,
        SessionState::Live if doubtful => NodeState::Silent,
        SessionState::Live => NodeState::Live,
    };
    Pulse { state, ago, ttl: session.ttl, at: session.beat_at }
}

/// Feels pulses again and again, and needs no wall clock after the first look: a session is silent if its beat has
/// not moved for a ttl.
#[derive(Debug, Default)]
pub(super) struct Monitor {
    seen: BTreeMap<SessionId, Sight>,
}

/// When a beat was first seen.
#[derive(Debug, Clone, Copy)]
struct Sight {
    beat: u64,
    since: Instant,
    /// Whether it was seen to move, or looked alive at the first look.
    believed: bool,
}

impl Monitor {
    /// What this look tells, after all the former ones.
    pub(super) fn look(&mut self, sessions: &BTreeMap<SessionId, Session>) -> Pulses {
        self.seen.retain(|id, _| sessions.contains_key(id));
        let (now, instant) = (wall(), Instant::now());
        sessions.iter().map(|(id, session)| (*id, self.feel(*id, session, now, instant))).collect()
    }

    fn feel(&mut self, id: SessionId, session: &Session, now: Wall, instant: Instant) -> Pulse {
        let pulse = first(session, now);
        let fresh = |believed| Sight { beat: session.beat, since: instant, believed };
        let sight = self.seen.entry(id).or_insert_with(|| fresh(pulse.state == NodeState::Live));
        if sight.beat != session.beat {
            *sight = fresh(true);
        }
        let still = instant.duration_since(sight.since);
        let state = match pulse.state {
            over if over.is_over() => over,
            _ if sight.believed && still <= session.ttl => NodeState::Live,
            _ => NodeState::Silent,
        };
        Pulse { state, ..pulse }
    }
}

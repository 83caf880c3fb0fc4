//! What follows from observations of other sessions.

use super::*;
use crate::engine::{Class, Config};
use crate::record::{LivenessLock, SessionState};
use crate::{Timestamp, Timing};

const ID: SessionId = SessionId::new(7);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn rules() -> Rules {
    Rules::new(&Config::new(name("me"), Timing::default(), Class::B))
}

fn record(beat: u64, takeover: Takeover) -> SessionRecord {
    SessionRecord {
        node: name("other"),
        beat,
        freed: 0,
        freed_lately: Vec::new(),
        node_writes: 0,
        holds_back: false,
        ttl: Timing::DEFAULT_TTL,
        every: Duration::ZERO,
        takeover,
        grace: Duration::from_secs(2),
        liveness_lock: Some(LivenessLock { id: "lock".into(), covers_work: true, connection: false }),
        state: SessionState::Live,
        beat_at: Timestamp::from_micros(0),
    }
}

fn at(seconds: u64) -> Time {
    Time::from_nanos(0).after(Duration::from_secs(seconds))
}

/// A session that was read with its first beat at 10 s and with its second at 11 s.
fn seen(takeover: Takeover) -> Peers {
    let mut peers = Peers::default();
    assert_eq!(peers.observe_live(ID, Version::new(1), &record(1, takeover), at(10)), LiveNews::Version);
    assert_eq!(peers.observe_live(ID, Version::new(2), &record(2, takeover), at(11)), LiveNews::Version);
    assert_eq!(peers.observe_live(ID, Version::new(2), &record(2, takeover), at(12)), LiveNews::Same);
    peers
}

fn expelled_at(peers: &Peers, now: Time, depends_on: bool) -> Time {
    let (rules, own_name, depends_on) = (rules(), name("me"), |_: SessionId| depends_on);
    let terms = ExpulsionTerms {
        rules: &rules,
        now,
        own_name: &own_name,
        quarantined_until: at(0),
        depends_on: &depends_on,
    };
    peers.next_expulsion(&terms)
}

#[test]
fn a_session_is_expelled_its_ttl_after_the_version_was_received() {
    let silent = at(11).after(rules().expulsion_wait(Timing::DEFAULT_TTL));
    let dropped = Evidence::Disconnected { session: ID, lock: "lock".into() };
    let dead = Evidence::Dead { session: ID, lock: "lock".into() };
    let forged = Evidence::Dead { session: ID, lock: "another".into() };
    let graced = at(11).after(Timing::default().expulsion_wait(Duration::from_secs(2)));
    for (what, takeover, evidence, expected) in [
        ("silence", Takeover::Strict, None, silent),
        ("a drop that does not count", Takeover::Strict, Some(&dropped), silent),
        ("a drop that counts", Takeover::OnDisconnect, Some(&dropped), graced),
        ("a death", Takeover::Strict, Some(&dead), at(12)),
        ("a lock that the record does not name", Takeover::Strict, Some(&forged), silent),
    ] {
        let mut peers = seen(takeover);
        if let Some(evidence) = evidence {
            peers.observe_evidence(evidence, &rules(), at(12));
        }
        assert_eq!(expelled_at(&peers, at(11), true), expected, "{what}");
    }
}

#[test]
fn a_session_that_holds_nothing_is_left_to_others_for_a_while() {
    let (peers, late) = (seen(Takeover::Strict), at(60));
    let due = at(11).after(rules().expulsion_wait(Timing::DEFAULT_TTL));
    assert_eq!(expelled_at(&peers, late, true), due);
    assert_eq!(expelled_at(&peers, late, false), due.after(rules().idle_expulsion_delay(true)));
}

#[test]
fn absent_is_not_over_and_over_is_final() {
    let mut peers = seen(Takeover::Strict);
    let lease = Duration::from_secs(5);
    assert!(peers.observe_absent(ID, at(20), |known| known.map_or(Duration::ZERO, |_| lease)));
    assert!(!peers.is_over(ID) && !peers.seen_alive(ID) && !peers.may_be_alive(ID));
    assert_eq!(expelled_at(&peers, at(20), true), at(25), "its owner may count on its lease");
    assert_eq!(expelled_at(&peers, at(20), false), Time::NEVER);
    assert_eq!(peers.mark_over(ID, at(30)), Some(false));
    assert_eq!(peers.mark_over(ID, at(31)), None);
    assert_eq!(
        peers.observe_live(ID, Version::new(3), &record(3, Takeover::Strict), at(32)),
        LiveNews::Stale
    );
    assert!(peers.is_over(ID));
    assert_eq!((peers.over_for(lease, at(34)), peers.over_for(lease, at(35))), (vec![], vec![ID]));
}

#[test]
fn a_lost_hint_is_made_good_by_the_counters() {
    let mut peers = seen(Takeover::Strict);
    let freed = |freed, lately: &[&str]| SessionRecord {
        freed,
        freed_lately: lately.iter().map(|role| name(role)).collect(),
        ..record(3, Takeover::Strict)
    };
    let roles = |names: &[&str]| Freed::Roles(names.iter().map(|role| name(role)).collect());
    for (what, record, expected) in [
        ("nothing was known", freed(1, &["a"]), Freed::Unknown),
        ("no news", freed(1, &["a"]), roles(&[])),
        ("the last two", freed(3, &["a", "b", "c"]), roles(&["b", "c"])),
        ("a stale read", freed(2, &["a", "b"]), roles(&[])),
        ("more than it names", freed(9, &["x"]), Freed::Unknown),
    ] {
        assert_eq!(peers.follow_freed(ID, &record), expected, "{what}");
    }
}

#[test]
fn only_what_nothing_names_is_forgotten() {
    let mut peers = seen(Takeover::Strict);
    peers.track(SessionId::new(8));
    peers.forget_sessions(|id| id == ID);
    assert!(peers.knows(ID) && peers.knows(SessionId::new(8)), "needed, or not yet read");
    peers.forget_sessions(|_| false);
    assert!(!peers.knows(ID) && peers.knows(SessionId::new(8)));
}

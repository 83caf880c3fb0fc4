//! What the register of our own session is recognised as.

use std::time::Duration;

use super::*;
use crate::Timestamp;

fn record(state: SessionState) -> SessionRecord {
    SessionRecord {
        node: Name::new("me").unwrap(),
        beat: 1,
        freed: 0,
        freed_lately: Vec::new(),
        node_writes: 0,
        holds_back: false,
        ttl: Duration::from_secs(5),
        every: Duration::ZERO,
        takeover: Takeover::Strict,
        grace: Duration::from_secs(2),
        liveness_lock: None,
        state,
        beat_at: Timestamp::from_micros(0),
    }
}

#[test]
fn a_value_that_we_never_sent_means_that_we_were_cloned() {
    let own = OwnRegister {
        id: SessionId::new(7),
        version: Some(Version::new(1)),
        record: record(SessionState::Live),
        unacknowledged: vec![Version::new(2)],
    };
    let entry = |version, value| Entry { key: Key::Cluster, version: Version::new(version), value };
    let session = |version, state| Some(entry(version, Record::Session(record(state))));
    for (what, found, expected) in [
        ("the last beat", session(1, SessionState::Live), Recognised::Mine(Version::new(1))),
        ("a beat without an answer", session(2, SessionState::Live), Recognised::Mine(Version::new(2))),
        ("a beat of a twin", session(3, SessionState::Live), Recognised::Cloned),
        ("an expulsion", session(3, SessionState::Expelled), Recognised::Over),
        ("our own end", session(1, SessionState::Closed), Recognised::Over),
        ("nothing", None, Recognised::Gone),
        ("what cannot be read", Some(entry(3, Record::Foreign)), Recognised::Cloned),
    ] {
        assert_eq!(own.recognise(found.as_ref()), expected, "{what}");
    }
}

#[test]
fn claims_need_an_open_session_and_tenures_a_valid_one() {
    let own = || OwnRegister {
        id: SessionId::new(7),
        version: None,
        record: record(SessionState::Live),
        unacknowledged: Vec::new(),
    };
    let (until, none, some) = (Time::from_nanos(9), None, Some(SessionId::new(7)));
    let open = OpenSession {
        own: own(),
        valid_until: until,
        next_beat: Time::from_nanos(1),
        pending_beat: None,
        in_doubt: false,
        has_news: false,
        first_beats: 0,
    };
    let (op, sent_at, reason) = (OpId::new(1), Time::from_nanos(0), EndReason::Shutdown);
    for (stage, own_id, open_id, validity) in [
        (SessionStage::None { retry_at: Time::from_nanos(0) }, none, none, none),
        (SessionStage::Opening { op, sent_at, own: own() }, some, none, none),
        (SessionStage::Open(open), some, some, some),
        (SessionStage::Ending { own: own(), valid_until: until, gone: false, reason }, some, none, some),
        (
            SessionStage::Closing {
                own: own(),
                writing: None,
                retry_at: Time::from_nanos(0),
                reason: Some(reason),
            },
            some,
            none,
            none,
        ),
    ] {
        let session = OwnSession { stage };
        assert_eq!((session.own_id(), session.open_id()), (own_id, open_id), "{session:?}");
        assert_eq!(session.validity(), validity.map(|id| (id, until)), "{session:?}");
    }
}

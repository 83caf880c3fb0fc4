//! Nodes of two versions on one store: a node that finds a newer protocol than its own stays out, and says so.

use tenure_core::record::{EndReason, PROTOCOL, SessionState};
use tenure_core::*;

use super::script::{A, B, MessageFate, MessageKind, Script};

/// A node of the next version says, in the `cluster` register, that all nodes speak its protocol.
fn upgraded(s: &mut Script, record: Record) {
    let version = Version::new(1 << 100 | u128::from(s.now));
    s.registers.insert(Key::Cluster, (version, record));
}

fn reads_since(s: &Script, node: usize, since: u64) -> usize {
    s.times(node, MessageKind::Read, since)
}

#[test]
fn a_leader_that_meets_a_newer_protocol_gives_up_and_stays_out() {
    let mut s = Script::led_by_a(None);
    let (before, token) = (s.registers[&Key::Cluster].clone(), s.token(A));
    upgraded(&mut s, Record::Newer(PROTOCOL + 1));
    let session = s.session(A);
    s.wait(2.0);
    assert_eq!(s.leaders(), [] as [usize; 0]);
    let lost = |(_, node, event): &(u64, usize, Event)| {
        *node == A && matches!(event, Event::Lost { reason: EndReason::NewerProtocol, .. })
    };
    assert_eq!(s.events.iter().filter(|event| lost(event)).count(), 1);
    for node in [A, B] {
        let told = s.events.iter().filter(|(_, n, event)| {
            *n == node && matches!(event, Event::NewerProtocol { protocol } if *protocol == PROTOCOL + 1)
        });
        assert_eq!(told.count(), 1, "each says so once");
    }
    let closed = s.registers.iter().find(|(key, _)| matches!(key, Key::Session(_, id) if *id == session));
    assert!(
        matches!(closed, Some((_, (_, Record::Session(record)))) if record.state == SessionState::Closed),
        "it says that its session is over: {closed:?}"
    );

    // From now on they write nothing, and read one register a beat.
    let (since, registers) = (s.now, s.registers.clone());
    s.wait(20.0);
    assert_eq!(s.registers, registers);
    let written = s.sent.iter().filter(|(at, _, kind)| *at >= since && *kind != MessageKind::Read).count();
    assert_eq!(written, 0);
    for node in [A, B] {
        assert!((18..=21).contains(&reads_since(&s, node, since)), "{}", reads_since(&s, node, since));
    }

    // The others went back: everything goes on, under a higher token.
    upgraded(&mut s, before.1);
    s.wait(8.0);
    let leaders = s.leaders();
    assert_eq!(leaders.len(), 1);
    assert!(s.token(leaders[0]) > token && !s.overlap);
}

#[test]
fn a_node_that_starts_among_newer_ones_opens_no_session() {
    let mut s = Script::led_by_a(None);
    s.cut.extend([A, B]);
    upgraded(&mut s, Record::Newer(PROTOCOL + 7));
    let (since, registers) = (s.now, s.registers.clone());
    let late = s.join("late");
    s.wait(20.0);
    assert_eq!(s.registers, registers);
    assert_eq!(s.sent.iter().filter(|(_, n, kind)| *n == late && *kind != MessageKind::Read).count(), 0);
    assert!((19..=22).contains(&reads_since(&s, late, since)), "{}", reads_since(&s, late, since));
}

/// The session is being opened, and a claim is on its way, when the register changes.
#[test]
fn what_was_on_its_way_comes_to_nothing() {
    for kind in [MessageKind::Open, MessageKind::Claim] {
        let mut s = Script::led_by_a(None);
        let late = s.join("late");
        s.cut.extend([A, B]);
        if kind == MessageKind::Open {
            // Its former session is lost to it: it opens another one.
            s.plan(late, kind, MessageFate::HoldAnswer);
            s.feed(late, Input::ClockFault);
        } else {
            s.next(late, kind, MessageFate::HoldAnswer);
        }
        upgraded(&mut s, Record::Newer(PROTOCOL + 1));
        s.wait(0.5);
        s.release();
        s.wait(10.0);
        assert_eq!(s.leaders(), [] as [usize; 0], "{kind:?}");
        let of_late = |session: &record::Session| session.node.as_str() == "late";
        let live = |(_, record): &&(Version, Record)| match record {
            Record::Session(session) => of_late(session) && session.state == SessionState::Live,
            _ => false,
        };
        assert_eq!(s.registers.values().filter(live).count(), 0, "{kind:?}: its session is closed");
        assert!(!s.overlap, "{kind:?}");
    }
}

#[test]
fn a_node_stops_while_it_stays_out() {
    let mut s = Script::led_by_a(None);
    upgraded(&mut s, Record::Newer(PROTOCOL + 1));
    s.wait(2.0);
    s.feed(A, Input::Stop);
    s.wait(1.0);
    assert!(s.engines[A].is_stopped());
}

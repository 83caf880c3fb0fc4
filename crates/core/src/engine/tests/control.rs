//! What follows from control registers.

use super::*;
use crate::Timestamp;
use crate::record::Pin;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn order() -> Order {
    Order { by: "ada".into(), why: String::new(), at: Timestamp::from_micros(0) }
}

fn request(id: u128, to: Option<&str>, answer: Answer) -> RoleControl {
    let request = Request {
        id: SessionId::new(id),
        token: Token::new(1),
        to: to.map(name),
        preemption: false,
        patience: Duration::ZERO,
        order: order(),
        answer,
    };
    RoleControl { request: Some(request), ..RoleControl::default() }
}

fn registers(controls: &[(&str, u128, RoleControl)]) -> BTreeMap<Name, (Version, RoleControl)> {
    controls
        .iter()
        .map(|(role, version, control)| (name(role), (Version::new(*version), control.clone())))
        .collect()
}

#[test]
fn who_may_lead() {
    let pause = RoleControl { pause: Some(order()), ..RoleControl::default() };
    let pin = RoleControl { pin: Some(Pin { node: name("a"), order: order() }), ..RoleControl::default() };
    let mut controls = Controls::default();
    controls.replace(registers(&[("paused", 1, pause), ("pinned", 2, pin)]));
    for (role, node, forbidden) in
        [("free", "a", false), ("paused", "a", true), ("pinned", "a", false), ("pinned", "b", true)]
    {
        assert_eq!(controls.forbid(&name(role), &name(node)), forbidden, "{role} {node}");
    }
    assert!(controls.is_paused(&name("paused")) && !controls.is_paused(&name("pinned")));
}

#[test]
fn only_changed_registers_are_news() {
    let pause = RoleControl { pause: Some(order()), ..RoleControl::default() };
    let mut controls = Controls::default();
    let both = registers(&[("a", 1, pause.clone()), ("b", 2, pause.clone())]);
    assert_eq!(controls.replace(both.clone()), [(name("a"), false), (name("b"), false)]);
    assert_eq!(controls.replace(both), []);
    assert_eq!(controls.replace(registers(&[("b", 3, pause)])), [(name("a"), true), (name("b"), true)]);
}

#[test]
fn a_transfer_waits_for_its_target_while_it_is_open() {
    for (what, control, target) in [
        ("a step-down", request(1, None, Answer::Open), None),
        ("an open transfer", request(1, Some("b"), Answer::Open), Some(name("b"))),
        ("an answered one", request(1, Some("b"), Answer::Accepted), None),
    ] {
        let mut controls = Controls::default();
        controls.replace(registers(&[("role", 1, control)]));
        assert_eq!(controls.awaited_target(), target.as_ref(), "{what}");
    }
}

#[test]
fn patience_counts_from_when_a_request_was_first_seen() {
    let (mut controls, role) = (Controls::default(), name("role"));
    for (id, now, since) in [(1, 10, 10), (1, 20, 10), (2, 30, 30)] {
        controls.replace(registers(&[("role", id, request(id, None, Answer::Open))]));
        controls.note_request(&role, Time::from_nanos(now));
        assert_eq!(controls.first_seen.get(&role), Some(&(SessionId::new(id), Time::from_nanos(since))));
    }
}

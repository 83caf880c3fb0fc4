//! The indexes of roles follow the roles.

use super::*;
use crate::record::{Holder, Role as RoleRecord, StartReason};
use crate::{Timestamp, Version};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn held(session: u128) -> RoleView {
    let record = RoleRecord {
        token: Token::new(1),
        holder: Some(Holder { session: SessionId::new(session), node: name("node") }),
        since: Timestamp::from_micros(0),
        reason: StartReason::First.into(),
        previous: None,
        successor: None,
    };
    RoleView::Seen { version: Version::new(session), record }
}

fn table(names: &[&str]) -> Roles {
    let mut roles = Roles::default();
    for role in names {
        roles.track(&name(role), Time::from_nanos(1));
    }
    roles
}

#[test]
fn a_role_is_found_by_the_session_that_its_register_names() {
    let mut roles = table(&["a", "b"]);
    roles.set_view(&name("a"), held(7), OpId::new(1));
    roles.set_view(&name("b"), held(7), OpId::new(1));
    assert_eq!(roles.held_by(SessionId::new(7)), [name("a"), name("b")]);
    roles.set_view(&name("a"), held(8), OpId::new(2));
    roles.remove(&name("b"));
    assert!(!roles.are_held_by(SessionId::new(7)) && roles.are_held_by(SessionId::new(8)));
    roles.forget_views(OpId::new(3), Time::from_nanos(2));
    assert!(!roles.are_held_by(SessionId::new(8)));
}

#[test]
fn roles_are_due_in_the_order_of_time() {
    let mut roles = table(&["a", "b", "c"]);
    for (role, at) in [("a", 30), ("b", 20), ("c", 10), ("c", 40)] {
        roles.set_due(&name(role), Some(Time::from_nanos(at)));
    }
    assert_eq!(roles.next_due(), Time::from_nanos(20));
    assert_eq!(
        [roles.take_due(Time::from_nanos(30)), roles.take_due(Time::from_nanos(30))],
        [Some(name("b")), Some(name("a"))]
    );
    assert_eq!((roles.take_due(Time::from_nanos(30)), roles.next_due()), (None, Time::from_nanos(40)));
    roles.remove(&name("c"));
    assert_eq!(roles.next_due(), Time::NEVER);
}

#[test]
fn work_stops_once_and_only_for_its_tenure() {
    let mut roles = table(&["a"]);
    roles.start_work(&name("a"), Token::new(3));
    assert!(!roles.stop_work(&name("a"), Token::new(2)) && roles.any_working());
    assert!(roles.stop_work(&name("a"), Token::new(3)) && !roles.stop_work(&name("a"), Token::new(3)));
    assert!(!roles.any_working());
}

#[test]
fn the_rotation_reaches_every_role() {
    let roles = table(&["a", "b", "c"]);
    for (last, count, expected) in
        [(None, 1, vec!["a"]), (Some("b"), 2, vec!["c", "a"]), (Some("c"), 9, vec!["a", "b", "c"])]
    {
        let last = last.map(name);
        let names: Vec<Name> = expected.into_iter().map(name).collect();
        assert_eq!(roles.next_in_turn(last.as_ref(), count), names);
    }
    assert_eq!(Roles::default().next_in_turn(None, 1), []);
}

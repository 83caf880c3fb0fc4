//! The indexes of roles follow the roles.

use super::*;
use crate::record::{Holder, Role as RoleRecord, StartReason};
use crate::{Timestamp, Version};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn held(session: u128) -> RoleView {
    let record = RoleRecord {
        token: Token(1),
        holder: Some(Holder { session: SessionId(session), node: name("node") }),
        since: Timestamp(0),
        reason: StartReason::First.into(),
        previous: None,
        successor: None,
    };
    RoleView::Seen { version: Version(session), record }
}

fn table(names: &[&str]) -> Roles {
    let mut roles = Roles::default();
    for role in names {
        roles.track(&name(role), Time(1));
    }
    roles
}

#[test]
fn a_role_is_found_by_the_session_that_its_register_names() {
    let mut roles = table(&["a", "b"]);
    roles.set_view(&name("a"), held(7), OpId(1));
    roles.set_view(&name("b"), held(7), OpId(1));
    assert_eq!(roles.held_by(SessionId(7)), [name("a"), name("b")]);
    roles.set_view(&name("a"), held(8), OpId(2));
    roles.remove(&name("b"));
    assert!(!roles.are_held_by(SessionId(7)) && roles.are_held_by(SessionId(8)));
    roles.forget_views(OpId(3), Time(2));
    assert!(!roles.are_held_by(SessionId(8)));
}

#[test]
fn roles_are_due_in_the_order_of_time() {
    let mut roles = table(&["a", "b", "c"]);
    for (role, at) in [("a", 30), ("b", 20), ("c", 10), ("c", 40)] {
        roles.set_due(&name(role), Some(Time(at)));
    }
    assert_eq!(roles.next_due(), Time(20));
    assert_eq!([roles.take_due(Time(30)), roles.take_due(Time(30))], [Some(name("b")), Some(name("a"))]);
    assert_eq!((roles.take_due(Time(30)), roles.next_due()), (None, Time(40)));
    roles.remove(&name("c"));
    assert_eq!(roles.next_due(), Time::NEVER);
}

#[test]
fn work_stops_once_and_only_for_its_tenure() {
    let mut roles = table(&["a"]);
    roles.start_work(&name("a"), Token(3));
    assert!(!roles.stop_work(&name("a"), Token(2)) && roles.any_working());
    assert!(roles.stop_work(&name("a"), Token(3)) && !roles.stop_work(&name("a"), Token(3)));
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

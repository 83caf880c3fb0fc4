//! When the own node register is written.

use super::*;

#[test]
fn the_name_is_claimed_when_it_is_free_and_described_when_it_is_outdated() {
    let found = |session: u128| {
        let (labels, candidacies) = (BTreeMap::new(), Arc::default());
        let session = SessionId::new(session);
        let record =
            NodeRecord { session, labels, address: None, candidacies, since: Timestamp::from_micros(0) };
        OwnNodeView::Found(Version::new(session.get()), record)
    };
    let on = |version: u128| Some(NextWrite { expect: Some(Version::new(version)) });
    // We are session 1; session 2 lives, session 3 is over.
    for (what, view, outdated, expected) in [
        ("nothing is known", OwnNodeView::Unknown, true, None),
        ("it is free", OwnNodeView::Absent, false, Some(NextWrite { expect: None })),
        ("it is ours", found(1), false, None),
        ("it is ours and outdated", found(1), true, on(1)),
        ("a live process has it", found(2), true, None),
        ("the process that had it is over", found(3), false, on(3)),
    ] {
        let own_node = OwnNode { view, outdated, ..OwnNode::default() };
        assert_eq!(own_node.next_write(SessionId::new(1), |id| id == SessionId::new(3)), expected, "{what}");
    }
}

#[test]
fn the_description_outlives_the_epoch() {
    let mut own_node = OwnNode::default();
    own_node.describe(BTreeMap::new(), Some("here".into()));
    own_node.forget();
    assert_eq!((own_node.address(), own_node.holder()), (Some("here"), None));
}

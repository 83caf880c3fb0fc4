//! Two clusters in one place, and what is left behind.

use std::sync::Arc;

use tenure::store::Kind;
use tenure_core::record::SessionState;

use crate::rig::Rig;
use crate::world::{World, soon};

/// FORGE's lock ids were constants: two clusters in one database blocked each other. Here both have nodes and roles of the
/// same names, and what happens to one does not happen to the other.
pub(crate) async fn two_clusters_in_one_place_never_touch<R: Rig>() {
    let rig = Arc::new(R::start().await);
    let (one, two) = (World::on(rig.clone(), "one", 2).await, World::on(rig, "two", 2).await);
    let (first, other) = (one.leader().await, two.leader().await);
    one.known_to_all(first.token).await;
    let (session, _) = one.session_register(first.session).await.expect("a live session");
    one.rig.delete(one.namespace(), &session.key).await;
    one.leader_after(first.token).await;
    assert!(two.leader().await.token >= other.token);
    for world in [&one, &two] {
        let sessions = world.registers(Kind::Session).await;
        let (_, role) = world.role().await;
        let holder = role.holder.expect("a node leads").session.to_string();
        assert!(sessions.iter().any(|entry| entry.key.name() == holder.as_str()));
        let elsewhere = if std::ptr::eq(world, &one) { &two } else { &one };
        let theirs = elsewhere.registers(Kind::Session).await;
        assert!(sessions.iter().all(|entry| !theirs.iter().any(|their| their.key == entry.key)));
        world.judge();
    }
}

/// FORGE's advisory locks could be taken twice and given back once, or given back on another connection, after which no node
/// could lead. Here a node that led often gives up once, another leads, and nothing is left when all have stopped.
pub(crate) async fn what_is_taken_often_is_given_up_once<R: Rig>() {
    let mut world = World::<R>::of(2).await;
    let (often, next) = (0, 1);
    world.members[next].candidate.set_eligible(false);
    let mut last = world.leader().await;
    for _ in 0..5 {
        world.members[last.nth].candidate.resign();
        last = world.leader_after(last.token).await;
    }
    world.members[next].candidate.set_eligible(true);
    world.members[often].node.stop().await;
    let after = world.leader_after(last.token).await;
    assert_eq!(after.nth, next);
    world.stop().await;
    if let Some(holder) = world.role().await.1.holder {
        let (_, state) = world.session_register(holder.session).await.expect("it is kept");
        assert_ne!(state, SessionState::Live, "it is no live session");
    }
    world.judge();
    world.members.clear();
    let gone = async {
        while world.rig.leftovers().await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    soon("nothing is left", gone).await;
}

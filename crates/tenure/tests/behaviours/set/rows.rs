//! Rows that people delete by hand. The owner of what is gone cannot know, and counts on its lease.

use tenure::event::EventKind;
use tenure::store::Kind;

use crate::rig::Rig;
use crate::world::{World, soon};

/// Once the leader can find out, and once it cannot.
pub(crate) async fn a_session_deleted_by_hand<R: Rig>() {
    let world = World::<R>::of(3).await;
    for cut_off in [false, true] {
        let first = world.leader().await;
        world.known_to_all(first.token).await;
        let (session, _) = world.session_register(first.session).await.expect("a live session");
        if cut_off {
            world.abandon(first.nth);
        }
        world.rig.delete(world.namespace(), &session.key).await;
        world.leader_after(first.token).await;
        world.heal(first.nth);
    }
    world.judge();
}

/// Once the leader can find out, and once it cannot.
pub(crate) async fn a_role_deleted_by_force<R: Rig>() {
    let world = World::<R>::of(3).await;
    for cut_off in [false, true] {
        let first = world.leader().await;
        world.known_to_all(first.token).await;
        let (role, _) = world.role().await;
        if cut_off {
            world.abandon(first.nth);
        }
        world.rig.delete(world.namespace(), &role).await;
        let next = world.leader_after(first.token).await;
        world.heal(first.nth);
        world.known_to_all(next.token).await;
    }
    world.judge();
    let alarmed = |what: &EventKind| matches!(what, EventKind::Quarantined { .. });
    assert!(world.members.iter().any(|member| member.told(alarmed)), "people are told");
}

/// It is only what a node says of itself: who leads does not change by it, and it is said again within some beats, though
/// the node has nothing new to say.
pub(crate) async fn a_node_deleted_by_hand<R: Rig>() {
    let world = World::<R>::of(2).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    for member in &world.members {
        let name = member.node.name().as_str();
        let found = world.registers(Kind::Node).await;
        let said = found.into_iter().find(|entry| entry.key.name() == name).expect("it has said so");
        world.rig.delete(world.namespace(), &said.key).await;
        let back = async {
            while !world.registers(Kind::Node).await.iter().any(|entry| entry.key.name() == name) {}
        };
        soon("it says it again", back).await;
    }
    assert!(world.leader().await.token >= first.token);
    world.judge();
}

/// `FLUSHALL`, `TRUNCATE`: all who saw it wait until every old lease has run out, say so, and go on with higher tokens.
pub(crate) async fn everything_deleted_at_once<R: Rig>() {
    let world = World::<R>::of(3).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    world.rig.forget().await;
    world.leader_after(first.token).await;
    let alarmed = |what: &EventKind| matches!(what, EventKind::Quarantined { .. });
    assert!(world.members.iter().any(|member| member.told(alarmed)), "people are told");
    world.judge();
}

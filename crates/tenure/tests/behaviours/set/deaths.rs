//! Leaders that die, nodes that come back, and stores that fall silent.

use tenure::event::EventKind;
use tenure::store::Kind;
use tenure_core::record::{Session, SessionState};
use tenure_torture::judge::ObservedTenure;

use crate::rig::Rig;
use crate::world::{World, until};

/// The zombie of Quartz: its leader died, and the followers kept the lease of the dead alive, for ever.
pub(crate) async fn a_dead_leader_is_replaced_once_although_five_followers_live<R: Rig>() {
    let world = World::<R>::of(6).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    let dead = world.members[first.nth].node.name().clone();
    let (session, _) = world.session_register(first.session).await.expect("a live session");
    world.abandon(first.nth);
    let next = world.another_leader(first).await;
    for _ in 0..10 {
        tokio::time::sleep(R::TTL).await;
        let (_, role) = world.role().await;
        assert!(role.holder.is_none_or(|holder| holder.node != dead), "the dead hold nothing");
    }
    let last = world.leader().await;
    assert!(last.token >= next.token);
    for (nth, follower) in world.members.iter().enumerate().filter(|(nth, _)| *nth != first.nth) {
        // On a slow machine the test lasts until what is over is swept away.
        for value in follower.tap.written_on(&session.key).into_iter().flatten() {
            let state = value.parse::<Session>().expect("a session").state;
            assert_eq!(state, SessionState::Expelled, "node-{nth} keeps no session alive");
        }
    }
    let verdict = world.judge();
    let from_the_grave =
        |tenure: &ObservedTenure| tenure.node == dead.as_str() && tenure.token > first.token.get();
    assert!(!verdict.tenures.iter().any(from_the_grave), "{:?}", verdict.tenures);
}

/// A process that comes back under the name of one that died waits for its session to be over, and then leads; one that
/// takes the name of the living says so, and leads nothing.
pub(crate) async fn a_node_comes_back_under_its_name<R: Rig>() {
    let mut world = World::<R>::of(2).await;
    let first = world.leader().await;
    let name = world.members[first.nth].node.name().to_string();
    let other = 1 - first.nth;
    world.abandon(first.nth);
    world.members[other].candidate.set_eligible(false);
    let back = world.join(&name, true).await;
    let again = world.leader_after(first.token).await;
    assert_eq!(again.nth, back);
    let twin = world.join(&name, true).await;
    let taken = |what: &EventKind| matches!(what, EventKind::NameTaken { .. });
    until("the twin says that its name is taken", || world.members[twin].told(taken)).await;
    world.judge();
    let nodes = world.registers(Kind::Node).await;
    assert_eq!(nodes.iter().filter(|entry| entry.key.name() == name.as_str()).count(), 1);
}

/// Shorter than the lease: whether the leader gets through or not, there is one.
pub(crate) async fn a_short_freeze_makes_no_second_leader<R: Rig>() {
    let world = World::<R>::of(3).await;
    let first = world.leader().await;
    for part in [8, 4, 2] {
        world.rig.freeze();
        tokio::time::sleep(R::TTL / part).await;
        world.rig.thaw();
        let next = world.leader().await;
        assert!(next.token >= first.token);
        world.known_to_all(next.token).await;
    }
    world.judge();
}

/// Longer than the lease: no node leads without the store, and one does when it is back.
pub(crate) async fn no_node_leads_on_a_store_that_stays_frozen<R: Rig>() {
    let world = World::<R>::of(3).await;
    let first = world.leader().await;
    world.rig.freeze();
    until("the leader gives up", || world.leading().is_empty()).await;
    let before = world.judge().tenures;
    tokio::time::sleep(2 * R::TTL).await;
    assert_eq!(world.judge().tenures, before, "no node led meanwhile");
    world.rig.thaw();
    world.leader_after(first.token).await;
    world.judge();
}

//! Links that deliver late, one way only, or without notifications.

use tenure_core::record::SessionState;
use tenure_torture::proxy::{Direction, Flow};

use crate::rig::Rig;
use crate::world::{World, soon, until};

/// The late `EXPIRE` of Sovereign prolonged its successor's lease. Here a renewal waits in the network until another
/// leads, and then arrives.
pub(crate) async fn a_late_renewal_touches_no_successor<R: Rig>() {
    let world = World::<R>::of(3).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    world.set_link(first.nth, Direction::Up, Flow::Hold);
    until("a renewal waits", || world.is_waiting(first.nth, Direction::Up)).await;
    let next = world.leader_after(first.token).await;
    let (before, state) = world.session_register(first.session).await.expect("it is kept");
    assert_ne!(state, SessionState::Live);
    world.set_link(first.nth, Direction::Up, Flow::Pass);
    world.known_to(&[first.nth], next.token).await;
    let (after, _) = world.session_register(first.session).await.expect("it is kept");
    assert_eq!(after.version, before.version, "over is final");
    let (_, role) = world.role().await;
    assert!(role.token >= next.token && role.holder.is_none_or(|holder| holder.session != first.session));
    world.judge();
}

/// The claim is carried out, and its answer waits for longer than the lease, in the network or, where there is none, before
/// the node: it never grants anything. What is in the name of a session that is over is claimed anew.
pub(crate) async fn a_late_claim_is_no_grant<R: Rig>() {
    let world = World::<R>::of(2).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    let (successor, member) = (1 - first.nth, &world.members[1 - first.nth]);
    match (&member.proxy, member.tap.clone()) {
        (Some(proxy), _) => proxy.hold_answer_to(world.rig.claim()),
        (None, tap) => member.tap.ambush(move || tap.set(Direction::Down, Flow::Hold)),
    }
    world.members[first.nth].candidate.set_eligible(false);
    let claimed = async {
        loop {
            let (_, role) = world.role().await;
            if role.token > first.token {
                break role.token;
            }
        }
    };
    let late = soon("the claim is carried out", claimed).await;
    until("its answer waits", || world.is_waiting(successor, Direction::Down)).await;
    tokio::time::sleep(2 * R::TTL).await;
    let led = |late: u64| world.judge().tenures.iter().any(|tenure| tenure.token == late);
    assert!(!led(late.get()), "no node leads on what it does not know");
    world.heal(successor);
    member.tap.set(Direction::Up, Flow::Pass);
    world.leader_after(late).await;
    assert!(!led(late.get()), "not even afterwards");
}

/// A leader that is heard but hears nothing is as good as silent, and so is one that hears and is not heard.
pub(crate) async fn silence_one_way_is_silence<R: Rig>() {
    let world = World::<R>::of(3).await;
    for way in [Direction::Down, Direction::Up] {
        let first = world.leader().await;
        world.known_to_all(first.token).await;
        world.set_link(first.nth, way, Flow::Lose);
        let next = world.another_leader(first).await;
        world.heal(first.nth);
        world.known_to(&[first.nth], next.token).await;
    }
    world.judge();
}

/// Every notification is lost: what was given up is found at the next beats, long before any lease is over.
pub(crate) async fn without_notifications_a_role_is_handed_over_all_the_same<R: Rig>() {
    let world = World::<R>::of(2).await;
    world.members.iter().for_each(|member| member.tap.set_deaf(true));
    for _ in 0..3 {
        let first = world.leader().await;
        world.known_to_all(first.token).await;
        let before = world.members[1 - first.nth].tap.asked().beats;
        world.members[first.nth].candidate.resign();
        world.leader_after(first.token).await;
        let beats = world.members[1 - first.nth].tap.asked().beats - before;
        // Two or three; the rest is for a machine that is slow today.
        assert!(beats <= 20, "{beats} beats without a leader");
    }
    world.judge();
}

//! Servers that die, throw nodes out, or are reached over bad links.

use std::sync::Arc;
use std::time::Duration;

use tenure::Token;
use tenure::event::EventKind;
use tenure_torture::proxy::{Direction, Flow, Proxy};

use crate::rig::Rig;
use crate::world::{World, soon, until};

fn proxies<R: Rig>(world: &World<R>) -> impl Iterator<Item = &Proxy> {
    world.members.iter().filter_map(|member| member.proxy.as_ref())
}

/// What was acknowledged is still there: tokens go on.
pub(crate) async fn a_server_that_is_killed_and_comes_back<R: Rig>() {
    let world = World::<R>::of(3).await;
    for _ in 0..2 {
        let first = world.leader().await;
        world.rig.restart();
        let next = world.leader().await;
        assert!(next.token >= first.token);
        world.known_to_all(next.token).await;
    }
    world.judge();
}

/// Backends killed with instant reconnection: the leader goes on or gives up, and there are never two.
pub(crate) async fn connections_killed_again_and_again<R: Rig>() {
    let world = World::<R>::of(3).await;
    let mut last = Token::new(0);
    for _ in 0..8 {
        let led = world.leader().await;
        assert!(led.token >= last);
        last = led.token;
        world.rig.kill_clients().await;
        tokio::time::sleep(R::TTL / 5).await;
    }
    world.leader().await;
    world.judge();
}

/// Half an answer is no answer. (A client may go on with another connection that it had: a cut need not open one.)
pub(crate) async fn replies_cut_in_the_middle<R: Rig>() {
    let world = World::<R>::of(2).await;
    let passed = || proxies(&world).map(|proxy| proxy.passed(Direction::Down)).collect::<Vec<u64>>();
    for bytes in [0, 1, 9, 70, 300, 1000] {
        proxies(&world).for_each(|proxy| proxy.cut_after(Direction::Down, bytes));
        let all_cut = || !proxies(&world).any(|proxy| proxy.is_to_be_cut(Direction::Down));
        until("an answer is cut on each link", all_cut).await;
        let at_the_cut = passed();
        let answered = || passed().iter().zip(&at_the_cut).all(|(now, then)| now > then);
        until("answers come again on each link", answered).await;
        world.leader().await;
    }
    world.judge();
}

/// Bytes come late, unevenly and one after the other.
pub(crate) async fn a_slow_and_narrow_link<R: Rig>() {
    let world = World::<R>::of(2).await;
    let first = world.leader().await;
    for proxy in proxies(&world) {
        for way in [Direction::Up, Direction::Down] {
            proxy.delay(way, Duration::from_millis(3), Duration::from_millis(6));
            proxy.throttle(way, 500_000);
        }
    }
    tokio::time::sleep(2 * R::TTL).await;
    let led = world.leader().await;
    world.members[led.nth].candidate.resign();
    let next = world.leader_after(led.token).await;
    assert!(next.token > first.token);
    world.judge();
}

/// The password is changed while a leader leads: it stops in time, no message shows the password, and all is well when it is
/// taken again.
pub(crate) async fn credentials_that_are_refused_later<R: Rig>() {
    let world = World::<R>::of(2).await;
    let first = world.leader().await;
    world.rig.lock_out(true).await;
    until("the leader gives up", || world.leading().is_empty()).await;
    let before = world.judge().tenures;
    tokio::time::sleep(R::TTL).await;
    assert_eq!(world.judge().tenures, before, "no node led meanwhile");
    world.rig.lock_out(false).await;
    world.leader_after(first.token).await;
    let secret = |what: &tenure::event::EventKind| format!("{what:?}").contains("hunter2");
    assert!(!world.members.iter().any(|member| member.told(secret)));
    world.judge();
}

/// The server listens no more, and what was open is reset: for the leader alone.
pub(crate) async fn a_link_that_is_refused_and_reset<R: Rig>() {
    let world = World::<R>::of(3).await;
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    let link = world.members[first.nth].proxy.as_ref().expect("a link");
    link.refuse(true);
    link.reset();
    let next = world.another_leader(first).await;
    link.heal();
    world.known_to(&[first.nth], next.token).await;
    world.judge();
}

/// A link that swallows everything without a word, one way or both: the leader stops in time, another follows, and nothing
/// hangs: whatever the leader asked comes to an end, and so does a leader that is told to stop there.
pub(crate) async fn nothing_hangs_on_a_link_that_swallows_everything<R: Rig>() {
    let rig = Arc::new(R::start().await);
    for (nth, ways) in
        [&[Direction::Up][..], &[Direction::Down], &[Direction::Up, Direction::Down]].into_iter().enumerate()
    {
        let world = World::on(rig.clone(), &format!("hole-{nth}"), 2).await;
        let first = world.leader().await;
        world.known_to_all(first.token).await;
        ways.iter().for_each(|way| world.set_link(first.nth, *way, Flow::Lose));
        let cut = &world.members[first.nth];
        world.another_leader(first).await;
        let lost = |what: &EventKind| matches!(what, EventKind::Lost { token, .. } if *token == first.token);
        until("it knows that it does not lead", || cut.told(lost)).await;
        let (begun, _) = cut.tap.under_way();
        until("all that it asked has ended", || cut.tap.under_way().1 >= begun).await;
        soon("it stops", cut.node.stop()).await;
        world.judge();
        world.heal(first.nth);
        world.stop().await;
    }
}

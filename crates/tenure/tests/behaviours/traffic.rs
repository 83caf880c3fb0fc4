//! What an idle node costs its store, by the server's own count: the same for one role and for ten thousand; one operation a
//! beat of a leader, hardly more of the standby that watches it, next to nothing of the others, and never a write on what
//! another leads.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tenure::event::EventKind;
use tenure::{Candidate, TimingSettings};
use tenure_torture::proxy::{Direction, Proxy};

use crate::counts::{BEATS, is_long, roles};
use crate::rig::Rig;
use crate::tap::Asked;
use crate::world::{Member, World, until};

/// Short beats, so that many fit in; a lease that lasts while ten thousand roles are claimed, on a busy machine too: who loses
/// it shares its roles with the other node, and what both cost then is no comparison.
fn hurried() -> TimingSettings {
    let millis = Duration::from_millis;
    TimingSettings { ttl: Some(millis(30_000)), beat: Some(millis(400)), ..TimingSettings::default() }
}

/// What one node, or the server, was asked meanwhile.
#[derive(Debug, Clone, Copy)]
struct Cost {
    asked: Asked,
    bytes: u64,
}

impl Cost {
    fn of(member: &Member) -> Self {
        let bytes = |proxy: &Proxy| proxy.passed(Direction::Up) + proxy.passed(Direction::Down);
        Self { asked: member.tap.asked(), bytes: member.proxy.as_ref().map_or(0, bytes) }
    }

    fn since(self, before: Self) -> Self {
        let asked = Asked {
            operations: self.asked.operations - before.asked.operations,
            rows: self.asked.rows - before.asked.rows,
            beats: self.asked.beats - before.asked.beats,
            claims: self.asked.claims - before.asked.claims,
        };
        Self { asked, bytes: self.bytes - before.bytes }
    }
}

/// What a leader, its standbys and the server did in some beats of peace.
#[derive(Debug)]
struct Peace {
    nodes: Vec<Cost>,
    by_the_server: Option<u64>,
}

/// Waits for peace, and looks at so many beats of it. A beat that failed, on a slow machine, is no peace.
async fn in_peace<R: Rig>(world: &World<R>, beats: u64) -> Peace {
    let trouble = |member: &Member| {
        let troubled = |what: &EventKind| {
            matches!(
                what,
                EventKind::InDoubt { .. }
                    | EventKind::StoreFailed { .. }
                    | EventKind::Lost { .. }
                    | EventKind::Missed { .. }
            )
        };
        member.count(troubled)
    };
    let troubles = || world.members.iter().map(trouble).sum::<usize>();
    for _ in 0..40 {
        let (before, troubled) = (costs(world), troubles());
        let asked = world.rig.operations().await;
        // The first node leads; of the others one rests.
        let enough = || costs(world)[0].since(before[0]).asked.beats >= beats;
        until("some beats", enough).await;
        let by_the_server = world.rig.operations().await.zip(asked).map(|(now, then)| now - then);
        let nodes: Vec<Cost> = costs(world).iter().zip(&before).map(|(now, then)| now.since(*then)).collect();
        // Each read goes with a beat.
        let calm = |cost: &Cost| cost.asked.operations <= cost.asked.beats + 2;
        if troubles() == troubled && nodes.iter().all(calm) {
            return Peace { nodes, by_the_server };
        }
        println!("no peace yet: {nodes:?}, {} troubles", troubles() - troubled);
    }
    panic!("there is never peace");
}

fn costs<R: Rig>(world: &World<R>) -> Vec<Cost> {
    world.members.iter().map(Cost::of).collect()
}

/// Stands for many roles more.
async fn stand_for_many(member: &Member) -> Vec<Candidate> {
    let roles = (1..roles()).map(|nth| format!("r-{nth:07}"));
    let started = join_all(roles.map(|role| member.node.candidate(&role).into_future())).await;
    started.into_iter().map(|candidate| candidate.expect("it stands")).collect()
}

async fn an_idle_node_costs_the_same_whatever_it_leads<R: Rig>() {
    let mut world = World::<R>::empty(Arc::new(R::start().await), "default", hurried());
    let leader = world.join("leader", true).await;
    world.leader().await;
    world.join("first", true).await;
    world.join("second", true).await;
    in_peace(&world, 5).await;
    let one = in_peace(&world, BEATS).await;
    no_follower_writes(&world).await;
    let many = stand_for_many(&world.members[leader]).await;
    // Not asked too often: there are many, and they have work to do.
    while !many.iter().all(|candidate| candidate.lead().is_some()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // One of the standbys stands for all of them, the other for the first role only.
    let _standing_by = stand_for_many(&world.members[leader + 1]).await;
    in_peace(&world, 5).await;
    let all = in_peace(&world, BEATS).await;
    println!("one role: {one:?}\n{} roles: {all:?}", roles());
    at_most(&all.nodes[leader], &one.nodes[leader]);
    for peace in [&one, &all] {
        exactly_one_follows(peace);
    }
    let beats = |peace: &Peace| peace.nodes.iter().map(|cost| cost.asked.beats).sum::<u64>();
    for peace in [&one, &all] {
        // What the server counted is what the nodes asked; a beat that was just under way may count on one side only.
        let counted = peace.by_the_server.unwrap_or(0);
        assert!(counted <= R::REQUESTS * beats(peace) + 8, "{peace:?}");
    }
    world.judge();
}

/// Of the standbys one makes as many operations as the leader, or a few more: it learns when the leader beats, a tenth more than
/// that where timers are in time, and never more than two fifths, which is what the tests of the rhythm show. Each other one rests.
fn exactly_one_follows(peace: &Peace) {
    let led = peace.nodes[0].asked.beats;
    let mut standbys: Vec<(u64, u64)> =
        peace.nodes[1..].iter().map(|cost| (cost.asked.operations, cost.asked.beats)).collect();
    standbys.sort_unstable();
    let ((first, _), resting) = standbys.split_last().expect("a standby");
    assert!((led / 2..=led + led * 2 / 5 + 2).contains(first), "{peace:?}");
    // A lease has 75 beats here: in the time of 25 a standby at rest beats once at most; peace allows for two reads beside.
    assert!(resting.iter().all(|(operations, beats)| *beats <= 1 && *operations <= beats + 2), "{peace:?}");
}

/// No more than 1.05 times as much a beat, in operations, rows and bytes; and one operation a beat: six a minute with a
/// beat of 10 s. What was just under way when counting began or ended is allowed for.
fn at_most(all: &Cost, one: &Cost) {
    let (beats, before) = (all.asked.beats as f64, one.asked.beats as f64);
    let ratio = |all: u64, one: u64, edge: f64| {
        ((all as f64 - edge).max(0.0) / beats) / (one as f64 / before).max(0.01)
    };
    let operations = ratio(all.asked.operations, one.asked.operations, 2.0);
    let rows = ratio(all.asked.rows, one.asked.rows, 8.0);
    let bytes = ratio(all.bytes, one.bytes, 4096.0);
    println!("ratios of operations {operations:.3}, rows {rows:.3}, bytes {bytes:.3}");
    assert!(operations <= 1.05 && rows <= 1.05 && bytes <= 1.05, "{all:?} against {one:?}");
    let a_minute = (all.asked.operations.saturating_sub(2)) as f64 / beats * 6.0;
    assert!(a_minute <= 6.0, "{a_minute} operations a minute");
}

/// The server itself tells that no node but the leader writes on what the leader has.
async fn no_follower_writes<R: Rig>(world: &World<R>) {
    let led = world.leader().await;
    let (session, _) = world.session_register(led.session).await.expect("a live session");
    let (role, _) = world.role().await;
    world.rig.listen_in().await;
    let own = || world.members[led.nth].tap.written_on(&session.key).len() as u64;
    let before = own();
    until("some beats", || own() >= before + 10).await;
    let told = world.rig.writes_on(&session.key).await;
    assert!(
        told.is_none_or(|told| told >= 8 && told <= own() - before + 1),
        "{told:?} of {}",
        own() - before
    );
    assert_eq!(world.rig.writes_on(&role).await.unwrap_or(0), 0, "no node touches a role that is led");
    let others = world.members.iter().enumerate().filter(|(nth, _)| *nth != led.nth);
    for (_, other) in others {
        assert_eq!(other.tap.written_on(&session.key), []);
    }
}

/// As it is said: a lease of 30 s, a beat every 10 s, for a minute.
async fn six_operations_a_minute<R: Rig>() {
    let (ttl, beat) = (Duration::from_secs(30), Duration::from_secs(10));
    let settings = TimingSettings { ttl: Some(ttl), beat: Some(beat), ..TimingSettings::default() };
    let mut world = World::<R>::empty(Arc::new(R::start().await), "default", settings);
    world.join("leader", true).await;
    world.leader().await;
    world.join("follower", true).await;
    tokio::time::sleep(3 * beat).await;
    let before = costs(&world);
    tokio::time::sleep(Duration::from_secs(60)).await;
    for (now, then) in costs(&world).iter().zip(&before) {
        let operations = now.since(*then).asked.operations;
        println!("{operations} operations in a minute");
        assert!(operations <= 6 + 1, "{operations}");
    }
}

macro_rules! traffic {
    ($($rig:ident on $kind:ty),+ $(,)?) => {
        $(mod $rig {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn an_idle_node_costs_the_same_whatever_it_leads() {
                super::an_idle_node_costs_the_same_whatever_it_leads::<$kind>().await;
                if super::is_long() {
                    super::six_operations_a_minute::<$kind>().await;
                }
            }
        })+
    };
}

each_rig!(traffic);

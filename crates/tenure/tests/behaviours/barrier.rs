//! Many at once: candidates that start at one barrier, and standbys that wait for one leader to go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tenure::{Candidate, Lead, Node, TimingSettings, Token};
use tokio::sync::Barrier;

use crate::counts::{CANDIDATES, barriers, is_long, standbys};
use crate::rig::Rig;
use crate::world::{Led, ROLE, World, started, until};

/// The default: so many processes in one are slow, and this is not about the lease.
const TTL: Duration = Duration::from_secs(5);

type Standing = (Node, Candidate);

fn leading(nodes: &[Standing]) -> Vec<Token> {
    let lead = |(_, candidate): &Standing| candidate.lead().filter(Lead::check).map(|lead| lead.token());
    nodes.iter().filter_map(lead).collect()
}

/// Of all that start at the same moment one leads, every time, and all come to know who.
async fn all_at_one_barrier<R: Rig>() {
    let rig = R::start().await;
    for round in 0..barriers() {
        let (barrier, url) = (Arc::new(Barrier::new(CANDIDATES)), rig.url(None));
        let began = Instant::now();
        let start = |nth: usize| {
            let (barrier, url) = (barrier.clone(), url.clone());
            tokio::spawn(async move {
                barrier.wait().await;
                let node =
                    || Node::builder(&url).name(format!("node-{nth}")).namespace(format!("round-{round}"));
                let node = started(|| node().ttl(TTL)).await;
                let candidate = node.candidate(ROLE).await.expect("it stands");
                (node, candidate)
            })
        };
        let nodes = join_all((0..CANDIDATES).map(start)).await;
        let nodes: Vec<Standing> = nodes.into_iter().map(|started| started.expect("no panic")).collect();
        until("all know who leads", || {
            let tokens = leading(&nodes);
            assert!(tokens.len() <= 1, "round {round}: {} lead", tokens.len());
            let knows = |(_, candidate): &Standing| candidate.leader().map(|leader| leader.token);
            tokens.len() == 1 && nodes.iter().all(|standing| knows(standing) == Some(tokens[0]))
        })
        .await;
        println!("round {round} took {:?}", began.elapsed());
        join_all(nodes.iter().map(|(node, _)| node.stop())).await;
    }
}

/// The standbys of `locks` all asked at the same moment. Here they stand in line: most see that the role is taken before
/// their turn comes.
async fn standbys_do_not_stampede<R: Rig>() {
    let settings = TimingSettings { ttl: Some(TTL), ..TimingSettings::default() };
    let mut world = World::<R>::empty(Arc::new(R::start().await), "default", settings);
    for nth in 0..=standbys() {
        world.join_directly(&format!("node-{nth}")).await;
    }
    let first = world.leader().await;
    world.known_to_all(first.token).await;
    acquainted(&world).await;
    let claims = || world.members.iter().map(|member| member.tap.asked().claims).sum::<u64>();
    let before = claims();
    world.members[first.nth].candidate.resign();
    let next = world.leader_after(first.token).await;
    world.known_to_all(next.token).await;
    let claims = claims() - before;
    // However late the news that it is taken, each asks once.
    println!("{claims} of {} standbys claimed", standbys());
    assert!(claims <= standbys() as u64, "{claims} claims of {} standbys", standbys());
    dies(&world, next).await;
    world.judge();
    world.stop().await;
}

/// Waits until every node has seen every other node beat: the order is made of those. Among many, all are looked at on every
/// fifth beat only.
async fn acquainted<R: Rig>(world: &World<R>) {
    let beats = || world.members.iter().map(|member| member.tap.asked().beats).collect::<Vec<_>>();
    let before = beats();
    let enough = || beats().iter().zip(&before).all(|(now, then)| *now >= then + 2 * 5 + 2);
    until("they have seen each other beat", enough).await;
}

/// The leader of many dies: by the server's own word most of them never write on what it had.
async fn dies<R: Rig>(world: &World<R>, leader: Led) {
    let (session, _) = world.session_register(leader.session).await.expect("a live session");
    let (role, _) = world.role().await;
    world.rig.listen_in().await;
    world.abandon(leader.nth);
    let next = world.leader_after(leader.token).await;
    let others: Vec<usize> = (0..world.members.len()).filter(|nth| *nth != leader.nth).collect();
    world.known_to(&others, next.token).await;
    let expulsions = world.rig.writes_on(&session.key).await;
    let claims = world.rig.writes_on(&role).await;
    println!("of {} standbys the server heard {expulsions:?} expulsions and {claims:?} claims", standbys());
    // What a machine that has nothing else to do bears out; elsewhere news come late, and more ask, each once or twice.
    let most = if is_long() { standbys() / 3 } else { 2 * standbys() } as u64;
    for told in [expulsions, claims].into_iter().flatten() {
        assert!(told <= most, "{told} writes of {} standbys", standbys());
    }
    world.heal(leader.nth);
}

macro_rules! many {
    ($test:ident: $($rig:ident on $kind:ty),+ $(,)?) => {
        mod $test {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rig() {
                super::$test::<$kind>().await;
            })+
        }
    };
}

each_rig!(many all_at_one_barrier:);
each_rig!(many standbys_do_not_stampede:);

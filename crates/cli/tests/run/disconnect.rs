//! `tenure run` on PostgreSQL, on disconnect: the server tells of a death long before the lease does.

use rustix::process::Signal;
use tenure_torture::judge::WitnessVerdict;
use tenure_torture::servers::postgres::Postgres;
use tenure_torture::witness;

use crate::faults::{World, is_gone};
use crate::fleet::TestDir;

/// The lease lasts longer than anything here is waited for: only the dropped connection can have told.
const TIMES: &[&str] = &["--ttl", "10m", "--takeover", "on-disconnect", "--grace", "3s"];

#[test]
fn the_next_command_runs_when_the_connection_of_a_killed_leader_has_dropped() {
    let server = Postgres::start(&["shared_buffers=16MB"]);
    let mut world = World::on(TestDir::on(server.admin_url()), TIMES);
    let mut leader = world.next_leader(0);
    for _ in 0..2 {
        world.nodes.remove(leader.node).expect("the leader is one of ours").signal(Signal::KILL);
        let next = world.next_leader(leader.token);
        assert!(is_gone(leader.command), "the command of token {} outlived it", leader.token);
        let dead = std::mem::replace(&mut leader, next);
        world.start(dead.node);
    }
    drop(world.nodes);
    WitnessVerdict::of_beats(&witness::read(world.dir.path()).expect("the witness is whole")).assert_sound();
}

//! Seeded worlds: faults, then healing, then every role must be led; at no instant may an invariant be broken.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_sim::runner::{self, Failure, RunSummary};
use tenure_sim::swarm::Family;

/// Worlds whose seeds never change, so that what was green stays comparable.
const FIXED: u64 = 300;
/// Worlds of fresh seeds.
const FRESH: u64 = 300;

#[test]
fn worlds_that_are_always_the_same() {
    judge(&runner::simulate(Family::Any, 0..FIXED * runner::scale(), None));
}

#[test]
fn worlds_that_are_new() {
    judge(&runner::simulate(Family::Any, fresh(FRESH), None));
}

/// Worlds of a store that loses what it acknowledged.
#[test]
fn worlds_of_losses() {
    for family in [Family::Lossy, Family::Crowded] {
        judge(&runner::simulate(family, 0..FIXED / 2 * runner::scale(), None));
        judge(&runner::simulate(family, fresh(FRESH / 2), None));
    }
}

fn fresh(count: u64) -> std::ops::Range<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let from = now.as_nanos() as u64 >> 8;
    println!("fresh seeds from {from}");
    from..from + count * runner::scale()
}

fn judge(summary: &RunSummary) {
    println!("{}", summary.stats);
    let failures: Vec<_> = summary.failures.iter().take(10).map(Failure::to_string).collect();
    assert!(failures.is_empty(), "{} worlds failed:\n{}", summary.failures.len(), failures.join("\n"));
    let stats = &summary.stats;
    assert!(
        stats.tenures > stats.worlds && stats.expulsions > 0,
        "worlds in which nothing happens prove nothing"
    );
}

//! Seeded worlds: faults, then healing, then every role must be led; at no instant may an invariant be broken.

use std::time::{SystemTime, UNIX_EPOCH};

use tenure_sim::campaign::{self, Failure, Tally};

/// Worlds whose seeds never change, so that what was green stays comparable.
const FIXED: u64 = 300;
/// Worlds that nobody has tried before.
const FRESH: u64 = 300;

#[test]
fn worlds_that_are_always_the_same() {
    judge(&campaign::simulate(0..FIXED * campaign::scale(), None));
}

#[test]
fn worlds_that_nobody_has_seen() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let from = now.as_nanos() as u64 >> 8;
    println!("fresh seeds from {from}");
    judge(&campaign::simulate(from..from + FRESH * campaign::scale(), None));
}

fn judge(tally: &Tally) {
    println!("{}", tally.stats);
    let failures: Vec<_> = tally.failures.iter().take(10).map(Failure::to_string).collect();
    assert!(failures.is_empty(), "{} worlds failed:\n{}", tally.failures.len(), failures.join("\n"));
    let stats = &tally.stats;
    assert!(
        stats.tenures > stats.worlds && stats.expulsions > 0,
        "worlds in which nothing happens prove nothing"
    );
}

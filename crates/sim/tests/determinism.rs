//! Same seed, same world: byte for byte.

use tenure_sim::trace::Trace;
use tenure_sim::world::{self, WorldSpec};

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in [1, 7, 42, 2026] {
        let [one, other] = [(); 2].map(|()| world::run(kept(seed)));
        assert!(one.trace.text().len() > 10_000, "seed {seed} leaves next to no trace");
        // Not assert_eq: a difference of megabytes is not worth printing.
        assert!(one.trace.text() == other.trace.text(), "seed {seed} is two different worlds");
        assert_eq!(one.stats, other.stats, "seed {seed}");
    }
}

#[test]
fn looking_changes_nothing() {
    for seed in [3, 11] {
        let watched = world::run(kept(seed));
        let unwatched = world::run(WorldSpec::new(seed));
        assert_eq!(watched.stats, unwatched.stats, "seed {seed}");
    }
}

#[test]
fn other_seeds_are_other_worlds() {
    let [one, other] = [1, 2].map(|seed| world::run(WorldSpec::new(seed)).stats);
    assert_ne!(one, other);
}

fn kept(seed: u64) -> WorldSpec {
    WorldSpec { trace: Trace::Kept(String::new()), ..WorldSpec::new(seed) }
}

//! Same seed, same world: byte for byte.

use tenure_sim::trace::Trace;
use tenure_sim::world;

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in [1, 7, 42, 2026] {
        let [one, other] = [(); 2].map(|()| world::run(seed, None, Trace::Kept(String::new())));
        assert!(one.trace.text().len() > 10_000, "seed {seed} leaves next to no trace");
        // Not assert_eq: a difference of megabytes is not worth printing.
        assert!(one.trace.text() == other.trace.text(), "seed {seed} is two different worlds");
        assert_eq!(one.stats, other.stats, "seed {seed}");
    }
}

#[test]
fn looking_changes_nothing() {
    for seed in [3, 11] {
        let watched = world::run(seed, None, Trace::Kept(String::new()));
        let unwatched = world::run(seed, None, Trace::Off);
        assert_eq!(watched.stats, unwatched.stats, "seed {seed}");
    }
}

#[test]
fn other_seeds_are_other_worlds() {
    let [one, other] = [1, 2].map(|seed| world::run(seed, None, Trace::Off).stats);
    assert_ne!(one, other);
}

//! Each known mistake, made on purpose, must be caught.

use tenure_core::Mutant;
use tenure_sim::campaign;
use tenure_sim::invariants::Focus;
use tenure_sim::world::{self, Ticket};

/// A mutant that survives so many worlds fails the run; none needs a tenth of them.
const WORLDS: u64 = 300;

#[test]
fn every_mutant_is_caught() {
    let catches: Vec<_> =
        Mutant::ALL.into_iter().map(|mutant| campaign::hunt(mutant, 0, WORLDS, Focus::Rules)).collect();
    let mut survivors = Vec::new();
    for catch in &catches {
        println!("{catch}");
        if catch.caught.is_none() {
            survivors.push(catch.mutant);
        }
    }
    println!("mutants caught: {}/{}", catches.len() - survivors.len(), catches.len());
    assert!(survivors.is_empty(), "these mistakes were not noticed in {WORLDS} worlds: {survivors:?}");
}

/// The hunt proves nothing if the worlds it aims at are broken without any mistake.
#[test]
fn where_mutants_are_hunted_the_engine_itself_holds() {
    for mutant in Mutant::ALL {
        for seed in 0..10 * campaign::scale() {
            let verdict = world::run(Ticket { aim: Some(mutant), ..Ticket::new(seed) });
            assert_eq!(
                verdict.violation, None,
                "seed {seed}, aimed at {mutant:?} without making the mistake"
            );
        }
    }
}

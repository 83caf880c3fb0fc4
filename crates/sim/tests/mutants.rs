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

/// Broken rules are found early; most of them lead to harm, which is shown here: two leaders, two workers, tokens that
/// do not rise, roles that nobody leads any more. Five are left out: what breaks in them is only the rule itself (a
/// leader felled by a request that was not for it, one elected in spite of a pause), or it takes a second mistake to do
/// harm (an id opened twice, an expired session left open, a beat after the work was told to stop).
#[test]
fn most_mutants_do_harm() {
    let harmless = [
        Mutant::OpeningSentTwice,
        Mutant::PauseNotReread,
        Mutant::RequestFellsAnyone,
        Mutant::ExpiredLeftOpen,
        Mutant::BeatAfterCancel,
    ];
    let harmful = Mutant::ALL.into_iter().filter(|mutant| !harmless.contains(mutant));
    let catches: Vec<_> = harmful.map(|mutant| campaign::hunt(mutant, 0, WORLDS, Focus::Harm)).collect();
    catches.iter().for_each(|catch| println!("{catch}"));
    let survivors: Vec<_> = catches.iter().filter(|catch| catch.caught.is_none()).collect();
    assert!(survivors.is_empty(), "no harm was seen of {survivors:?}");
}

/// The hunt proves nothing if the worlds it aims at are broken without any mistake.
#[test]
fn where_mutants_are_hunted_the_engine_itself_holds() {
    for mutant in Mutant::ALL {
        for seed in 0..8 * campaign::scale() {
            let verdict = world::run(Ticket { aim: Some(mutant), ..Ticket::new(seed) });
            assert_eq!(
                verdict.violation, None,
                "seed {seed}, aimed at {mutant:?} without making the mistake"
            );
        }
    }
}

//! Every mutant must be caught.

use tenure_core::Mutant;
use tenure_sim::invariants::Focus;
use tenure_sim::runner;
use tenure_sim::world::{self, WorldSpec};

/// A mutant that survives so many worlds fails the run; none needs a tenth of them.
const WORLDS: u64 = 1000;

#[test]
fn every_mutant_is_caught() {
    let catches: Vec<_> =
        Mutant::ALL.into_iter().map(|mutant| runner::hunt(mutant, 0, WORLDS, Focus::Rules)).collect();
    let mut survivors = Vec::new();
    for catch in &catches {
        println!("{catch}");
        if catch.caught.is_none() {
            survivors.push(catch.mutant);
        }
    }
    println!("mutants caught: {}/{}", catches.len() - survivors.len(), catches.len());
    assert!(survivors.is_empty(), "these mutants were not caught in {WORLDS} worlds: {survivors:?}");
}

/// Broken rules are found early; most of them lead to harm, which is shown here: two leaders, two workers, tokens that
/// do not rise, roles that no node leads any more. The others are left out: what breaks in them is only the rule itself (a
/// leader felled by a request that was not for it, or back at once after an operator moved it, or for a node that cannot lead yet, one elected in spite of a pause, reads
/// without end, work that acts on for a moment after its lease), or it takes a second fault, or a second loss, to do harm (an id opened twice, an expired session left open,
/// a beat after the work was told to stop, a longest lease that is said to be shorter than it is), or two claims within
/// milliseconds, or clocks that are wrong or fast for long (`schedules.rs` shows the harm of these).
#[test]
fn most_mutants_do_harm() {
    let harmless = [
        Mutant::OpeningSentTwice,
        Mutant::PauseNotReread,
        Mutant::ControlsBesideClaim,
        Mutant::RequestFellsAnyone,
        Mutant::ExpiredLeftOpen,
        Mutant::BeatAfterCancel,
        Mutant::HintsUnlimited,
        Mutant::LeaseFallsEarly,
        Mutant::ForgotIgnored,
        Mutant::ElectedUnsettled,
        Mutant::SlowClaimLed,
        Mutant::TokensOutrunClocks,
        Mutant::HighestStandsStill,
        Mutant::AsksTooEarly,
        Mutant::HandsOverTooEarly,
        Mutant::TransferUndone,
        Mutant::StepDownForgotten,
        Mutant::TimersSleep,
    ];
    let harmful = Mutant::ALL.into_iter().filter(|mutant| !harmless.contains(mutant));
    let catches: Vec<_> = harmful.map(|mutant| runner::hunt(mutant, 0, WORLDS, Focus::Harm)).collect();
    catches.iter().for_each(|catch| println!("{catch}"));
    let survivors: Vec<_> = catches.iter().filter(|catch| catch.caught.is_none()).collect();
    assert!(survivors.is_empty(), "no harm was seen of {survivors:?}");
}

/// The hunt proves nothing if the worlds it aims at are broken without a mutant.
#[test]
fn where_mutants_are_hunted_the_engine_itself_holds() {
    for mutant in Mutant::ALL {
        for seed in 0..8 * runner::scale() {
            let verdict = world::run(WorldSpec { aim: Some(mutant), ..WorldSpec::new(seed) });
            assert_eq!(verdict.violation, None, "seed {seed}, aimed at {mutant:?} without being it");
        }
    }
}

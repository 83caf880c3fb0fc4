//! The negative control: known mistakes of engine, driver, store and fence, each caught by the judge of the torture.
//!
//! A judge that accepts everything proves nothing. Here nodes with one mistake each, on a store whose links can be
//! troubled, go through what a torture does to them, until the judge has found them out. A survivor fails. Nodes without
//! a mistake go through the same, and nothing is found.

mod rig;

use rig::{Flaw, Mistake, Round};
use tenure::fault_injection::DriverFault;
use tenure_core::Mutant;
use tenure_torture::judge::ViolationKind;

/// How often a mistake gets another chance to show.
const CHANCES: usize = 8;

/// Runs rounds until the judge finds something, and gives what it was.
fn caught(mistake: Mistake) -> Vec<ViolationKind> {
    let mut round = Round::begin(mistake);
    for _ in 0..CHANCES {
        round.torture();
        let found: Vec<ViolationKind> =
            round.judge().violations.iter().map(|violation| violation.wrong).collect();
        if !found.is_empty() {
            return found;
        }
    }
    panic!("{mistake:?} survives {CHANCES} rounds");
}

/// Several at a time: they mostly wait.
fn all_caught(mistakes: &[Mistake]) {
    let survivors: Vec<Mistake> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            mistakes.iter().map(|mistake| (mistake, scope.spawn(|| caught(*mistake)))).collect();
        threads
            .into_iter()
            .filter_map(|(mistake, thread)| thread.join().is_err().then_some(*mistake))
            .collect()
    });
    assert!(survivors.is_empty(), "{} of {} survive: {survivors:?}", survivors.len(), mistakes.len());
}

#[test]
fn without_a_mistake_nothing_is_found() {
    let mut round = Round::begin(Mistake::None);
    round.torture();
    round.torture();
    let verdict = round.judge();
    verdict.assert_sound();
    assert!(verdict.tenures.len() > 4, "leaders changed: {}", verdict.tenures.len());
    assert!(verdict.operations > 4);
}

#[test]
fn every_mistake_of_the_driver_is_caught() {
    all_caught(&DriverFault::ALL.map(Mistake::Driver));
}

/// Those of the many that show from outside within seconds; all of them are the simulator's and the model's to catch.
#[test]
fn mistakes_of_the_engine_are_caught() {
    let mutants = [
        Mutant::FollowersRenew,
        Mutant::UnknownIsSuccess,
        Mutant::TokenNotRaised,
        Mutant::ClaimWithoutExpulsion,
    ];
    all_caught(&mutants.map(Mistake::Engine));
}

/// Clocks that are as wrong as each node reckons with make no two leaders; clocks that are worse do.
#[test]
fn clocks_that_are_wrong_by_more_than_nodes_reckon_with_are_caught() {
    let mut round = Round::begin(Mistake::Clocks(9_900));
    round.torture();
    round.judge().assert_sound();
    let found = caught(Mistake::Clocks(300_000));
    assert!(found.contains(&ViolationKind::TwoLeaders), "{found:?}");
}

#[test]
fn mistakes_of_stores_and_fences_are_caught() {
    all_caught(&[Flaw::IgnoresVersions, Flaw::ForgetsWrites, Flaw::ShowsTheOld].map(Mistake::Store));
    assert!(caught(Mistake::OpenFence).contains(&ViolationKind::Fence));
}

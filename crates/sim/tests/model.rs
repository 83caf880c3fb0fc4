//! The exhaustive model: every world closes without a violation, every listed mutant is caught, and the canonical
//! form behaves like what it stands for.

use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_sim::model::action::{begin, enabled};
use tenure_sim::model::canonical::canonicalize;
use tenure_sim::model::search::initial_world;
use tenure_sim::model::setup::MessageKind;
use tenure_sim::model::world::World;
use tenure_sim::model::{SearchReport, Setup, configs, search};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Searches several worlds on two threads; each report in the order in which it was asked for.
fn search_all(setups: &[Setup]) -> Vec<SearchReport> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some(setup) = setups.get(next.fetch_add(1, Ordering::Relaxed)) {
            reports.push(search(setup, usize::MAX));
        }
        reports
    };
    let mut reports: Vec<SearchReport> = std::thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().expect("the search ends")).collect()
    });
    reports.sort_by_key(|report| setups.iter().position(|setup| setup.name == report.name));
    reports
}

#[test]
fn every_small_world_closes_without_a_violation() {
    let reports = search_all(&configs::all());
    for report in &reports {
        println!("{report}");
    }
    let states: usize = reports.iter().map(|report| report.states).sum();
    println!("{} worlds, {states} states", reports.len());
    for report in &reports {
        assert!(report.violation.is_none(), "{report}");
        assert!(report.closed, "{report}");
    }
}

/// So many states of each are enough for a long run: some of these worlds are too large to be exhausted.
const LONG: usize = 1_000_000;
/// Those that a long run does exhaust.
const CLOSE: [&str; 2] = ["deletion", "three-nodes-cut"];

/// Much longer with TENURE_LONG=1; only a beginning otherwise.
#[test]
fn large_worlds_hold_no_violation() {
    let long = std::env::var_os("TENURE_LONG").is_some();
    for setup in configs::large() {
        let report = search(&setup, if long { LONG } else { 3_000 });
        println!("{report}");
        assert!(report.violation.is_none(), "{report}");
        assert!(report.closed || !long || !CLOSE.contains(&report.name), "{report}");
    }
}

#[test]
fn every_listed_mistake_is_caught() {
    let worlds = configs::every();
    for (mutant, name) in configs::mutants() {
        let setup = worlds.iter().find(|setup| setup.name == name).expect("a known world").clone();
        let report = search(&Setup { mutant: Some(mutant), ..setup }, usize::MAX);
        let violation = report.violation.unwrap_or_else(|| panic!("{mutant:?} lives in {name}"));
        println!("{mutant:?} caught in {name} after {} states: {:.90}", report.states, violation.what);
    }
}

/// Walks at random, and at each step compares what the world as it is and its canonical form can become.
#[test]
fn a_canonical_world_behaves_like_the_world_it_stands_for() {
    for (seed, setup) in configs::all().into_iter().enumerate() {
        if setup.late.contains(&MessageKind::Reads) {
            // A held answer may list a session that the canonical form has forgotten because no engine asks for it.
            continue;
        }
        // What the searches leave out on purpose is in here: the listing of all sessions, and messages without
        // effect; what is deleted is what the canonical form forgets by itself.
        let setup = Setup { sweep: true, prune: false, deletion: false, ..setup };
        for walk in 0..8 {
            compare_along(&setup, fastrand::Rng::with_seed(seed as u64 * 100 + walk));
        }
    }
}

fn compare_along(setup: &Setup, mut random: fastrand::Rng) {
    let mut world = initial_world(setup);
    for step in 0..30 {
        let mut canonical = world.clone();
        canonicalize(setup, &mut canonical);
        let (real, canonical_next) = (successors(setup, &world), successors(setup, &canonical));
        assert_eq!(real.len(), canonical_next.len(), "{} step {step}: as many outcomes", setup.name);
        for ((what, real), (same, canonical_next)) in real.iter().zip(&canonical_next) {
            let (mut left, mut right) = (real.clone(), canonical_next.clone());
            canonicalize(setup, &mut left);
            canonicalize(setup, &mut right);
            assert!(
                left == right,
                "{} step {step}: {what} / {same}\n{}",
                setup.name,
                difference(&left, &right)
            );
        }
        world = real[random.usize(..real.len())].1.clone();
    }
}

fn successors(setup: &Setup, world: &World) -> Vec<(String, World)> {
    let actions = enabled(setup, world);
    let runs = actions.iter().flat_map(|action| {
        let runs = begin(setup, world, action, false, true).outcomes();
        runs.into_iter().map(move |run| (run.notes.unwrap_or_default().join("\n"), run.world))
    });
    runs.collect()
}

fn difference(left: &World, right: &World) -> String {
    let (left, right) = (format!("{left:#?}"), format!("{right:#?}"));
    let lines = left.lines().zip(right.lines()).enumerate().filter(|(_, (l, r))| l != r).take(12);
    lines.map(|(n, (l, r))| format!("line {n}: {} | {}", l.trim(), r.trim())).collect::<Vec<_>>().join("\n")
}

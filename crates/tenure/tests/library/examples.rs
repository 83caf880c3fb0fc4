//! Every example of this crate runs to its end. `readme` is compiled, and compared with README.md.

#[path = "../../examples/campaign.rs"]
mod campaign;
#[path = "../../examples/fence.rs"]
mod fence;
#[path = "../../examples/operator.rs"]
mod operator;
#[path = "../../examples/own_store.rs"]
mod own_store;
#[path = "../../examples/schedule.rs"]
mod schedule;
#[path = "../../examples/step_by_step.rs"]
mod step_by_step;
#[path = "../../examples/workers.rs"]
mod workers;

const LISTED: [&str; 7] =
    ["campaign", "fence", "operator", "own_store", "schedule", "step_by_step", "workers"];

#[test]
fn the_campaign_runs() {
    campaign::main().unwrap();
}

#[test]
fn the_fence_refuses_the_former_leader() {
    fence::main().unwrap();
}

#[test]
fn the_operator_hands_over_and_pauses() {
    operator::main().unwrap();
}

#[test]
fn a_store_of_your_own_elects() {
    own_store::main().unwrap();
}

#[test]
fn the_schedule_ticks() {
    schedule::main().unwrap();
}

#[test]
fn tenures_one_by_one() {
    step_by_step::main().unwrap();
}

#[test]
fn the_workers_are_joined() {
    workers::main().unwrap();
}

/// An example that no test runs would rot.
#[test]
fn every_example_is_listed_and_says_how_to_run_it() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).unwrap().flatten() {
        let path = file.path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        // These run against servers, or for ever: they are compiled, and compared with the pages.
        if ["readme", "guides"].contains(&name) {
            continue;
        }
        assert!(LISTED.contains(&name), "{name} is not run by this test");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("//! Run with `cargo run -p tenure"), "{name} does not say how to run it");
    }
}

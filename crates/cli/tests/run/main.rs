//! `tenure run` as people use it: real processes, real signals, one file.

mod behaviour;
mod disconnect;
mod faults;
mod fleet;
mod gate;
mod terminal;
mod upgrade;
mod waiting;

/// The commands that run under `tenure run` here are this same binary, running only this: nothing unless the
/// environment says which part to play.
#[test]
fn node_process() {
    if let Some(dir) = std::env::var_os("WITNESS_DIRECTORY") {
        let pause = std::time::Duration::from_millis(2);
        tenure_torture::witness::work(dir.as_ref(), pause).expect("the witness can write");
    }
}

//! `tenure run` as people use it: real processes, real signals, one file.

mod disconnect;
mod fleet;
mod harm;
mod manners;

/// The commands that run under `tenure run` here are this same binary, running only this: nothing unless the
/// environment says which part to play.
#[test]
fn actor() {
    if let Some(dir) = std::env::var_os("TENURE_TEST_WITNESS") {
        let pause = std::time::Duration::from_millis(2);
        tenure_testkit::witness::work(dir.as_ref(), pause).expect("the witness can write");
    }
}

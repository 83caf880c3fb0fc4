//! The promises of the process machinery, on real processes that are really killed and frozen.
//!
//! Each test starts an elector as a process of its own ([`elector`]), talks to it over a socket, does harm to
//! it or to its watchdog, and looks at facts: which pids exist, what the children wrote and when on the lease
//! clock, and when the lock could be taken.

mod child;
mod elector;
mod elector_dies;
mod gate;
mod support;
mod terminal;
mod watchdog_dies;

/// The other processes of these tests are this same binary, running only this: nothing unless told by the
/// environment which part to play.
#[test]
fn actor() {
    match std::env::var("TENURE_TEST_ACTOR").as_deref() {
        Ok("elector") => elector::play(),
        Ok("reaper") => support::reaper(),
        Ok("heart") => support::beat_for_ever(),
        _ => {}
    }
}

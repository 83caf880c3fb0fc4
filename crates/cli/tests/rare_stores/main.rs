//! What agents say is what happened, on the stores whose servers few machines have: `./test --stores` runs it.

#[path = "../agent/browser.rs"]
#[allow(dead_code, reason = "the tests of the dashboard use the rest")]
mod browser;
#[path = "../agent/kit.rs"]
#[allow(dead_code, reason = "the tests of the agent use the rest")]
mod kit;
#[path = "../agent/outage_kit.rs"]
mod outage_kit;

use outage_kit::{ALL, TestStore, run_steps};
use rustix::process::Signal;
use tenure_torture::servers::etcd::Etcd;

/// The work of the agents: this same binary.
#[test]
fn worker() {
    if let Some(dir) = std::env::var_os("WITNESS_DIRECTORY") {
        outage_kit::note_start(dir.as_ref());
        let pause = std::time::Duration::from_millis(5);
        tenure_torture::witness::work(dir.as_ref(), pause).expect("the witness can write");
    }
}

#[test]
fn what_agents_on_etcd_say_is_what_happened() {
    let etcd = Etcd::start(3, &[]);
    let url = format!("etcd://{}/tenure", etcd.hosts());
    let freeze = move |frozen| {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        (0..etcd.count()).for_each(|nth| etcd.signal(nth, signal));
    };
    run_steps(TestStore::beyond(url, freeze), ALL);
}

//! `tenure agent` as people run it: real processes, real stores, real clients.

mod alerts;
mod alerts_page;
mod api;
mod browser;
mod campaign;
mod catalogue;
mod client;
mod dashboard;
mod deploy;
mod duty;
mod hook;
mod keys;
mod keys_alert;
mod keys_http;
mod keys_role;
mod keys_task;
mod keys_work;
mod kit;
mod link;
mod many;
mod moved;
mod openapi;
mod outage;
mod outage_kit;
mod outbound;
mod pages;
mod process;
mod prometheus;
mod registry;
mod rest;
mod shown;
mod story;
mod strangers;
mod tasks;
mod tokens;
mod trust;

/// The work of agents in these tests is this same binary, running only this: nothing unless it is told where to write.
#[test]
fn worker() {
    if let Some(dir) = std::env::var_os("WITNESS_DIRECTORY") {
        outage_kit::note_start(dir.as_ref());
        let pause = std::time::Duration::from_millis(5);
        tenure_torture::witness::work(dir.as_ref(), pause).expect("the witness can write");
    }
}

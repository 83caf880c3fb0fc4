//! The NATS store on real servers, which are really killed.

#[path = "../../../tenure/tests/stores/server_kit/mod.rs"]
mod server_kit;

#[path = "../groups/mod.rs"]
mod groups;

mod conformance;
mod faults;

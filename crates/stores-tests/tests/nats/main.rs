//! The NATS store on real servers, which are really killed.

#[path = "../../../tenure/tests/stores/server_kit/mod.rs"]
mod server_kit;

mod conformance;
mod faults;

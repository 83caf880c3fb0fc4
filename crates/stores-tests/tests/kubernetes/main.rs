//! The Kubernetes store on real API servers, which are really killed, and on one that says what real ones seldom say.

#[path = "../../../tenure/tests/stores/server_kit/mod.rs"]
mod server_kit;

#[path = "../groups/mod.rs"]
mod groups;

mod conformance;
mod faults;
mod scripted;
mod traffic;

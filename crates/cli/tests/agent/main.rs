//! `tenure agent` as people run it: real processes, real stores, real clients.

mod api;
mod browser;
mod campaign;
mod dashboard;
mod kit;
mod link;
mod manners;
mod registry;
mod story;
mod tasks;

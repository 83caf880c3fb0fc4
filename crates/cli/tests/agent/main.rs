//! `tenure agent` as people run it: real processes, real stores, real clients.

mod alerts;
mod alerts_page;
mod api;
mod browser;
mod campaign;
mod dashboard;
mod hook;
mod kit;
mod link;
mod manners;
mod many;
mod registry;
mod story;
mod tasks;

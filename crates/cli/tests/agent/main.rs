//! `tenure agent` as people run it: real processes, real stores, real clients.

mod alerts;
mod alerts_page;
mod api;
mod asking;
mod browser;
mod campaign;
mod dashboard;
mod deploy;
mod described;
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
mod manners;
mod many;
mod registry;
mod story;
mod tasks;

//! The library as its users meet it: elections, work, schedules, examples, the public API.

mod elections;
mod examples;
mod fuzz;
mod guard;
mod public_api;
mod schedules;
mod schedules_calendar;
mod schedules_failover;
mod schedules_refused;
mod work;

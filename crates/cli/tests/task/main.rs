//! Scheduled tasks as people meet them: commands and HTTP calls on real nodes, and `tenure task` on their ledger.

mod kit;
mod runners;
mod verbs;

//! The stores: conformance of each, on real servers, and what is special about each. One program, because linking a
//! dozen takes longer than most of what they test.

mod fence;
mod fence_docs;
mod fence_frozen;
mod fence_kit;
mod memory;
mod memory_broken;
mod memory_liveness;
mod mysql;
mod mysql_galera;
mod mysql_kit;
mod mysql_traps;
mod neighbour;
mod one_trip;
mod peers;
mod peers_faults;
mod peers_fuzz;
mod peers_kit;
mod peers_members;
mod peers_partitions;
mod peers_processes;
mod peers_soak;
mod peers_trust;
mod poison;
mod postgres;
mod postgres_disconnect;
mod postgres_kit;
mod redis;
mod redis_elections;
mod redis_fleet;
mod redis_traps;
mod schema;
mod server_kit;
mod sqlite;
mod sqlite_kit;
mod weakened;

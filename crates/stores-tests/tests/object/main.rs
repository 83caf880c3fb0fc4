//! The store on object storage: on a real MinIO server that is really killed, and on servers that are wrong on purpose.

#[path = "../../../tenure/tests/stores/server_kit/mod.rs"]
mod server_kit;

mod endpoints;
mod fake;
mod faults;
mod minio;

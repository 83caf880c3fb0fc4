//! One rig for each store.

pub(crate) mod etcd;
pub(crate) mod nats;

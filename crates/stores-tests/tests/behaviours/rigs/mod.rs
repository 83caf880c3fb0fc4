//! One rig for each store.

pub(crate) mod etcd;
pub(crate) mod kubernetes;
pub(crate) mod nats;

//! The behaviours of every store, as `crates/tenure/tests/behaviours` has them, on the stores whose servers few machines have:
//! on groups of three servers where the engine has groups.

#[macro_use]
#[path = "../../../tenure/tests/behaviours/lists.rs"]
mod lists;

/// What is about many nodes, or counts what one costs, runs on one server of each.
macro_rules! each_rig {
    // Fifty nodes that start at one moment are more than an API server bears that shares two cores with them: not all knew their
    // leader in time.
    (many all_at_one_barrier:) => {
        many! { all_at_one_barrier:
            etcd on crate::rigs::etcd::Etcd<1>,
            nats on crate::rigs::nats::Nats<1>,
            zookeeper on crate::rigs::zookeeper::ZooKeeper<1>,
        }
    };
    ($list:ident $($words:tt)*) => {
        $list! { $($words)*
            etcd on crate::rigs::etcd::Etcd<1>,
            kubernetes on crate::rigs::kubernetes::Kubernetes,
            nats on crate::rigs::nats::Nats<1>,
            zookeeper on crate::rigs::zookeeper::ZooKeeper<1>,
        }
    };
}

#[path = "../../../tenure/tests/behaviours/barrier.rs"]
mod barrier;
#[path = "../../../tenure/tests/behaviours/counts.rs"]
mod counts;
#[path = "../../../tenure/tests/behaviours/rig.rs"]
mod rig;
#[path = "../../../tenure/tests/behaviours/set/mod.rs"]
mod set;
#[path = "../../../tenure/tests/behaviours/tap.rs"]
mod tap;
#[path = "../../../tenure/tests/behaviours/traffic.rs"]
mod traffic;
#[path = "../../../tenure/tests/behaviours/world.rs"]
mod world;

mod rigs;

on_every_server! { etcd on crate::rigs::etcd::Etcd<3> }
on_every_server! { kubernetes on crate::rigs::kubernetes::Kubernetes }
on_every_server! { minio on crate::rigs::object::Object }
on_every_server! { nats on crate::rigs::nats::Nats<3> }
on_every_server! { zookeeper on crate::rigs::zookeeper::ZooKeeper<3> }

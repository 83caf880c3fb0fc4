//! The behaviours of every store, as `crates/tenure/tests/behaviours` has them, on the stores whose servers few machines have.

#[macro_use]
#[path = "../../../tenure/tests/behaviours/lists.rs"]
mod lists;

/// The stores of this binary.
macro_rules! each_rig {
    // Fifty nodes that start at one moment are not shown on Kubernetes yet: not all of them knew their leader in time.
    (many all_at_one_barrier:) => {
        many! { all_at_one_barrier: etcd on crate::rigs::etcd::Etcd }
    };
    ($list:ident $($words:tt)*) => {
        $list! { $($words)*
            etcd on crate::rigs::etcd::Etcd,
            kubernetes on crate::rigs::kubernetes::Kubernetes,
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

on_every_server! { etcd on crate::rigs::etcd::Etcd }
on_every_server! { kubernetes on crate::rigs::kubernetes::Kubernetes }

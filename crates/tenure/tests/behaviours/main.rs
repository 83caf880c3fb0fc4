//! What must hold on every store, shown on real servers: the traps of the five original designs, and everything that
//! a store, a link or a person with a shell can do to an election.
//!
//! Each behaviour is written once (`set/`), for any [`rig::Rig`]; the lists below run it on each store. A sampler looks at
//! all nodes all the time, and the checker of `tenure-torture` judges: never two leaders, and tokens rise.

#[macro_use]
mod lists;

/// The stores of this binary.
macro_rules! each_rig {
    ($list:ident $($words:tt)*) => {
        $list! { $($words)*
            sqlite on crate::rigs::sqlite::Sqlite,
            redis on crate::rigs::redis::Redis,
            postgres on crate::rigs::postgres::Postgres,
            mysql on crate::rigs::mysql::Mysql,
        }
    };
}

mod barrier;
mod counts;
mod rig;
mod rigs;
mod set;
mod tap;
mod traffic;
mod world;

on_every_store! { sqlite on crate::rigs::sqlite::Sqlite }
on_every_server! { redis on crate::rigs::redis::Redis }
on_every_server! { mysql on crate::rigs::mysql::Mysql }
on_every_server! { postgres on crate::rigs::postgres::Postgres }

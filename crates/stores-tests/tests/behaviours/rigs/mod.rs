//! One rig for each store.

pub(crate) mod etcd;
pub(crate) mod kubernetes;
pub(crate) mod nats;
pub(crate) mod object;
pub(crate) mod zookeeper;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_torture::proxy::Proxy;

/// The lease of nodes on these servers. They are slower than a database, and several of them share the cores of the machine.
const TTL: Duration = Duration::from_secs(3);

/// One door to each server of a group. Each node has the next one to itself, so that nodes depend on different servers.
struct Doors {
    doors: Vec<Proxy>,
    given: AtomicUsize,
}

impl Doors {
    fn to(servers: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { doors: servers.into_iter().map(Proxy::to).collect(), given: AtomicUsize::new(0) }
    }

    fn next(&self) -> SocketAddr {
        let nth = self.given.fetch_add(1, Ordering::SeqCst);
        self.doors[nth % self.doors.len()].address()
    }

    /// That address, or all doors if it is none.
    fn hosts(&self, server: Option<SocketAddr>) -> String {
        let all = || self.doors.iter().map(|door| door.address().to_string()).collect::<Vec<_>>().join(",");
        server.map_or_else(all, |server| server.to_string())
    }

    /// Ends every connection that goes through.
    fn reset(&self) {
        self.doors.iter().for_each(Proxy::reset);
    }

    /// How many connections go through.
    fn open(&self) -> u64 {
        self.doors.iter().map(Proxy::open).sum()
    }
}

//! What a behaviour needs of a store: a private one, and ways to hurt it.

use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use tenure::store::{Key, Name};

/// A private store, and what a person with a shell, or fate, can do to it.
#[async_trait]
pub(crate) trait Rig: Send + Sync + Sized + 'static {
    /// The lease of the nodes: short, and long enough that a healthy server on a busy machine is not taken for a silent one.
    const TTL: Duration = Duration::from_secs(1);

    /// How many requests the server counts for a beat and the poll that goes with it.
    const REQUESTS: u64 = 1;

    async fn start() -> Self;

    /// Where its server listens, if it has one.
    fn server(&self) -> Option<SocketAddr>;

    /// The URL of nodes that reach its server there.
    fn url(&self, server: Option<SocketAddr>) -> String;

    /// What a claim has in it on the wire, and nothing else that a node sends.
    fn claim(&self) -> &'static [u8] {
        b"holder"
    }

    /// Nothing is answered any more, or at least nothing is written.
    fn freeze(&self);

    /// It goes on.
    fn thaw(&self);

    /// Kills it as a power loss would, and starts it again on what it had kept.
    fn restart(&self) {
        unimplemented_here();
    }

    /// Deletes everything by hand.
    async fn forget(&self);

    /// Deletes one register by hand, with force if need be.
    async fn delete(&self, namespace: &Name, key: &Key);

    /// Kills every connection of the nodes; they may come back at once.
    async fn kill_clients(&self) {
        unimplemented_here();
    }

    /// Refuses the credentials of the nodes from now on, and throws them out; or takes them again.
    async fn lock_out(&self, _locked: bool) {
        unimplemented_here();
    }

    /// What nodes still have at the server: connections, and locks that would outlive them.
    async fn leftovers(&self) -> u64 {
        0
    }

    /// How many operations the server has carried out for nodes, by its own count; none if it has no server.
    async fn operations(&self) -> Option<u64> {
        None
    }

    /// Begins to write down everything that the server is asked.
    async fn listen_in(&self) {}

    /// How many writes on a register the server was asked for since then, by its own word; none if it has no server.
    async fn writes_on(&self, _key: &Key) -> Option<u64> {
        None
    }
}

/// A store without a server is asked nothing that needs one.
#[track_caller]
fn unimplemented_here() {
    panic!("this store has no server: leave the behaviour out of its list");
}

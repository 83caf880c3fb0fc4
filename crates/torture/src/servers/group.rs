//! Servers that form a group. Each keeps its ports and its data while it is down.

use std::net::{Ipv4Addr, SocketAddr};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Server, free_port};

/// The servers of a group; `P` is what one has beside its port for clients.
#[derive(Debug)]
pub struct Members<P>(Vec<Member<P>>);

/// Lets servers of a product be used as the members of any group.
macro_rules! is_group {
    ($servers:ty, $ports:ty) => {
        impl std::ops::Deref for $servers {
            type Target = super::group::Members<$ports>;

            fn deref(&self) -> &Self::Target {
                &self.members
            }
        }

        impl std::ops::DerefMut for $servers {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.members
            }
        }
    };
}
pub(super) use is_group;

/// One server.
#[derive(Debug)]
pub(super) struct Member<P> {
    pub(super) client: u16,
    pub(super) ports: P,
    server: Option<Server>,
    stopped: Option<TempDir>,
}

impl<P> Members<P> {
    /// Servers that are down, each with a folder of its own.
    pub(super) fn new(ports: impl IntoIterator<Item = P>, mut folder: impl FnMut() -> TempDir) -> Self {
        let down = |ports| Member { client: free_port(), ports, server: None, stopped: Some(folder()) };
        Self(ports.into_iter().map(down).collect())
    }

    /// The addresses of all servers, as a URL of the store has them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = (0..self.count()).map(|nth| self.address(nth).to_string()).collect();
        hosts.join(",")
    }

    /// Where a server answers clients.
    #[must_use]
    pub fn address(&self, nth: usize) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.0[nth].client).into()
    }

    /// How many servers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Ends a server as a power loss would.
    pub fn stop(&mut self, nth: usize) {
        let member = &mut self.0[nth];
        member.stopped = member.server.take().map(Server::crash).or_else(|| member.stopped.take());
    }

    /// Ends all of them.
    pub fn stop_all(&mut self) {
        (0..self.count()).for_each(|nth| self.stop(nth));
    }

    /// What a server that is down has on its disk, to be replaced.
    pub fn data(&mut self, nth: usize) -> Option<&mut TempDir> {
        self.0[nth].stopped.as_mut()
    }

    /// Freezes or thaws a server: SIGSTOP, SIGCONT. One that is down stays so.
    pub fn signal(&self, nth: usize, signal: Signal) {
        if let Some(server) = self.server(nth) {
            server.signal(signal);
        }
    }

    /// Freezes or thaws all of them.
    pub fn signal_all(&self, signal: Signal) {
        (0..self.count()).for_each(|nth| self.signal(nth, signal));
    }

    /// The server, if it is up.
    pub(super) fn server(&self, nth: usize) -> Option<&Server> {
        self.0[nth].server.as_ref()
    }

    pub(super) fn get(&self, nth: usize) -> &Member<P> {
        &self.0[nth]
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Member<P>> {
        self.0.iter()
    }

    /// The folder of a server that is to be started: one that is down, or has ended by itself.
    pub(super) fn take_down(&mut self, nth: usize) -> Option<TempDir> {
        if self.0[nth].server.as_mut().is_some_and(Server::has_ended) {
            self.stop(nth);
        }
        self.0[nth].stopped.take()
    }

    /// A server is up.
    pub(super) fn put_up(&mut self, nth: usize, server: Server) {
        self.0[nth].server = Some(server);
    }
}

//! What the private servers of databases have in common: a copied data directory, a port that they keep, ends of all kinds.

use std::fmt;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Server, copy, free_port, scratch};

/// How servers of one kind are prepared, started and signalled.
pub trait DatabaseKind: fmt::Debug {
    /// A data directory that was made once, for this version of the server.
    fn template() -> &'static Path;

    /// Starts it in that folder, whose data directory is `data`, and waits until it answers.
    fn launch(dir: TempDir, port: u16, settings: &[String]) -> Server;

    /// Signals every process of it.
    fn signal(server: &Server, signal: Signal) {
        server.signal(signal);
    }

    /// Kills the processes that do not die with their server.
    fn kill_children(_: &Server) {}
}

/// A running server. Frozen, killed and started again with everything that belongs to it.
#[derive(Debug)]
pub struct DatabaseServer<K: DatabaseKind> {
    server: Option<Server>,
    settings: Vec<String>,
    port: u16,
    kind: PhantomData<fn() -> K>,
}

impl<K: DatabaseKind> DatabaseServer<K> {
    /// Starts one with these settings, such as `--max-connections=500` (MariaDB) or `max_connections=500` (PostgreSQL).
    ///
    /// # Panics
    /// If it is not installed or does not come up.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        Self::start_in(scratch(), settings)
    }

    /// As [`start`](Self::start), in an empty folder that the caller has made.
    ///
    /// # Panics
    /// If it is not installed or does not come up.
    #[must_use]
    pub fn start_in(dir: TempDir, settings: &[&str]) -> Self {
        copy(K::template(), &dir.path().join("data"));
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut server = Self { server: None, settings, port: free_port(), kind: PhantomData };
        server.launch(dir);
        server
    }

    /// Is started without this setting from now on.
    pub(super) fn drop_setting(&mut self, setting: &str) {
        self.settings.retain(|other| other != setting);
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its port, which it keeps over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What a file in its folder has; nothing if there is none.
    pub(super) fn file(&self, name: &str) -> String {
        let file = self.server.as_ref().map(|server| std::fs::read(server.dir().join(name)));
        file.and_then(Result::ok).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    }

    /// How long its processes have run on a core since it was last started.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        self.server.as_ref().map(Server::cpu).unwrap_or_default()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.server.as_mut().is_none_or(Server::has_ended)
    }

    /// Freezes every process of it.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(server) = &self.server {
            K::signal(server, signal);
        }
    }

    /// Kills every process of it at once, as a power loss would, and starts it again on the same port.
    ///
    /// # Panics
    /// If it does not come up again.
    pub fn crash_and_restart(&mut self) {
        let dir = self.crash();
        self.launch(dir);
    }

    /// Kills every process of it at once; its folder is kept for [`launch`](Self::launch).
    #[must_use]
    pub fn crash(&mut self) -> TempDir {
        self.server.as_ref().inspect(|server| K::kill_children(server));
        self.server.take().map_or_else(scratch, Server::crash)
    }

    /// Starts it in that folder.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn launch(&mut self, dir: TempDir) {
        self.server = Some(K::launch(dir, self.port, &self.settings));
    }
}

impl<K: DatabaseKind> Drop for DatabaseServer<K> {
    fn drop(&mut self) {
        self.server.as_ref().inspect(|server| K::kill_children(server));
    }
}

//! Private servers, and what can be done to each.
//!
//! What cannot be done on a machine that has no time is *not done*, and says why: a fault that failed proves nothing
//! about leaders. A server that does not come back is another matter, and a panic.

mod data_dir;
mod etcd;
mod galera;
mod kubernetes;
mod nats;
mod object;
mod peers;
mod redis;
mod semi_sync;
mod sql;
mod zookeeper;

use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::fault::FaultKind;
use crate::target::AttackedServer;
use data_dir::DataDir;

/// How long a server may take for something that it does in a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Done; or why it could not be done.
pub(crate) type FaultResult = Result<(), String>;

/// A kind of server that this crate can start and attack.
#[derive(Debug)]
pub struct PrivateServer {
    /// As `--private` spells it.
    pub name: &'static str,
    /// The store that its URLs are of, as the registry calls it.
    pub store: &'static str,
    /// As `docs/evidence.md` calls it.
    pub label: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    start: fn(DataDir, u32) -> Box<dyn AttackedServer>,
}

/// Every kind, one line each: torture, bench and `--help` find it here.
#[rustfmt::skip]
pub static PRIVATE_SERVERS: &[PrivateServer] = &[
    PrivateServer { name: "sqlite", store: "sqlite", label: "SQLite", about: "The embedded store", start: |data, _| Box::new(Sqlite::start(data)) },
    PrivateServer { name: "redis", store: "redis", label: "Redis", about: "Redis, durable", start: |data, _| Box::new(redis::Redis::start(data)) },
    PrivateServer { name: "redis-failover", store: "redis", label: "Redis, Sentinel", about: "Redis with a replica and Sentinels: class C", start: |_, _| Box::new(redis::Failover::start()) },
    PrivateServer { name: "postgres", store: "postgres", label: "PostgreSQL", about: "PostgreSQL", start: |data, connections| Box::new(sql::Sql::postgres(data, connections)) },
    PrivateServer { name: "mysql", store: "mysql", label: "MariaDB", about: "MariaDB", start: |data, connections| Box::new(sql::Sql::mysql(data, connections)) },
    PrivateServer { name: "mysql-pair", store: "mysql", label: "MariaDB, semi-synchronous", about: "MariaDB with a replica that confirms each write", start: |_, _| Box::new(semi_sync::SemiSync::start()) },
    PrivateServer { name: "galera", store: "mysql", label: "MariaDB Galera", about: "Three members of a Galera cluster: class C", start: |_, _| Box::new(galera::Galera::start()) },
    PrivateServer { name: "etcd", store: "etcd", label: "etcd", about: "Three members of etcd", start: |data, _| Box::new(etcd::Etcd::start(data)) },
    PrivateServer { name: "kubernetes", store: "kubernetes", label: "Kubernetes", about: "Two API servers of Kubernetes on three members of etcd", start: |data, _| Box::new(kubernetes::Kubernetes::start(data)) },
    PrivateServer { name: "zookeeper", store: "zookeeper", label: "ZooKeeper", about: "Three servers of ZooKeeper", start: |data, _| Box::new(zookeeper::ZooKeeper::start(data)) },
    PrivateServer { name: "nats", store: "nats", label: "NATS", about: "Three servers of NATS JetStream", start: |data, _| Box::new(nats::Nats::start(data)) },
    PrivateServer { name: "object", store: "object", label: "Object storage", about: "MinIO: object storage on one disk", start: |data, _| Box::new(object::Object::start(data)) },
    PrivateServer { name: "peers", store: "peers", label: "Peers", about: "Three members of a group of peers", start: |data, _| Box::new(peers::Peers::start(data)) },
];

impl PrivateServer {
    /// Starts a server of this kind, on a disk that can be full if that is wanted and possible, for so many connections if it
    /// has to be told.
    pub(crate) fn start(&self, small_disk: bool, connections: u32) -> Box<dyn AttackedServer> {
        (self.start)(DataDir::new(small_disk), connections)
    }

    /// Whether this build has the store for it.
    #[must_use]
    pub fn is_in_this_build(&self) -> bool {
        tenure::store::BACKENDS.iter().any(|backend| backend.name == self.store)
    }

    /// The kind of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        PRIVATE_SERVERS.iter().find(|server| server.name == name)
    }
}

/// A file, its companions and nothing else.
struct Sqlite {
    dir: TempDir,
    data_dir: DataDir,
}

impl Sqlite {
    fn start(data_dir: DataDir) -> Self {
        Self { dir: data_dir.durable_folder(), data_dir }
    }
}

impl AttackedServer for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.dir.path().join("tenure.db").display())
    }

    fn able(&self) -> &'static [FaultKind] {
        &[FaultKind::Flush, FaultKind::DiskFull]
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, _: Duration) -> FaultResult {
        if kind == FaultKind::DiskFull {
            return self.data_dir.fill();
        }
        let entries = std::fs::read_dir(self.dir.path()).map_err(|error| error.to_string())?;
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            let _ = std::fs::remove_file(entry.path());
        }
        Ok(())
    }

    fn heal(&mut self, _: FaultKind) -> FaultResult {
        self.data_dir.clear()
    }
}

/// Waits for what comes in a moment.
fn until(what: &str, mut done: impl FnMut() -> bool) -> FaultResult {
    let began = Instant::now();
    while !done() {
        if began.elapsed() > PATIENCE {
            return Err(format!("within {PATIENCE:?} it never was that {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A client's command. A server that never answers must not keep us from healing it.
fn run(command: Command) -> FaultResult {
    run_with(command, Stdio::null())
}

/// As [`run`], with something to read.
fn run_with(mut command: Command, input: Stdio) -> FaultResult {
    let log = tempfile::tempfile().and_then(|log| Ok((log.try_clone()?, log)));
    let (said, mut log) = log.map_err(|error| format!("no temporary file: {error}"))?;
    command.stdin(input).stdout(Stdio::null()).stderr(said);
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Err(format!("{command:?}: {error}; is the client installed?")),
    };
    let mut ended = None;
    let in_time = until("the server answers its client", || {
        ended = child.try_wait().ok().flatten();
        ended.is_some()
    });
    if in_time.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let mut words = String::new();
    let _ = log.rewind().and_then(|()| log.read_to_string(&mut words));
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(format!("{command:?}: {}", words.trim_end())),
        None => in_time,
    }
}

//! Private servers, and what can be done to each.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tenure_testkit::servers::{Server, mysql, postgres, redis};

use super::fault::Kind;
use super::ground::Attacked;
use crate::args::Private;

/// How long a server may take for something that it does in a moment.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts one.
pub(super) fn start(private: Private) -> Box<dyn Attacked> {
    match private {
        Private::Sqlite => Box::new(Sqlite { dir: TempDir::new().expect("a temporary directory") }),
        Private::Redis => Box::new(Redis::start()),
        Private::RedisFailover => Box::new(Failover::start()),
        Private::Postgres => {
            let settings = ["max_connections=200", "fsync=on", "shared_buffers=16MB"];
            Box::new(Sql { engine: postgres::Postgres::start(&settings), stopped: None, older: None })
        }
        Private::Mysql => Box::new(Sql {
            engine: mysql::Mysql::start(&["--max-connections=200"]),
            stopped: None,
            older: None,
        }),
    }
}

/// A file, its companions and nothing else.
struct Sqlite {
    dir: TempDir,
}

impl Attacked for Sqlite {
    fn url(&self) -> String {
        format!("sqlite:{}", self.dir.path().join("tenure.db").display())
    }

    fn able(&self) -> &'static [Kind] {
        &[Kind::Flush]
    }

    fn strike(&mut self, _: Kind, _: Duration) {
        for entry in std::fs::read_dir(self.dir.path()).expect("its directory").flatten() {
            if entry.path().is_file() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn heal(&mut self, _: Kind) {}
}

/// One durable server.
struct Redis {
    server: Option<Server>,
    port: u16,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    /// A connection from before there were too many.
    kept: Option<TcpStream>,
}

impl Redis {
    fn start() -> Self {
        let server = redis::durable();
        Self { port: server.port(), server: Some(server), stopped: None, older: None, kept: None }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn crash(&mut self) -> TempDir {
        self.server.take().expect("it runs").crash()
    }

    fn launch(&mut self, dir: TempDir) {
        self.server = Some(redis::start_in(dir, self.port, redis::DURABLE));
    }

    fn signal(&self, signal: Signal) {
        self.server.as_ref().expect("it runs").signal(signal);
    }

    fn crowd(&mut self) {
        let mut kept = TcpStream::connect(self.address()).expect("it answers");
        say(&mut kept, "CONFIG SET maxclients 1");
        say(&mut kept, "CLIENT KILL TYPE normal SKIPME yes");
        self.kept = Some(kept);
    }
}

/// One command on a connection that is kept.
fn say(stream: &mut TcpStream, command: &str) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it listens");
    let mut answer = [0; 256];
    let length = stream.read(&mut answer).expect("it answers");
    assert!(!answer.starts_with(b"-"), "{command}: {}", String::from_utf8_lossy(&answer[..length]));
}

const DELETE_SESSIONS: &str =
    "for _, key in ipairs(redis.call('KEYS', 'tenure:*:session')) do redis.call('DEL', key) end return 1";

impl Attacked for Redis {
    fn url(&self) -> String {
        format!("redis://{}/0", self.address())
    }

    fn able(&self) -> &'static [Kind] {
        use Kind::{Crowd, DeleteRows, Flush, ReadOnly, Restore, Slow, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, Crowd, ReadOnly, Slow, Flush, DeleteRows, Restore]
    }

    fn strike(&mut self, kind: Kind, lasts: Duration) {
        match kind {
            Kind::StoreKill => self.stopped = Some(self.crash()),
            Kind::StoreFreeze => self.signal(Signal::STOP),
            Kind::Crowd => self.crowd(),
            Kind::ReadOnly => redis::tell(self.address(), &["CONFIG", "SET", "min-replicas-to-write", "1"]),
            Kind::Slow => {
                redis::tell(self.address(), &["CLIENT", "PAUSE", &lasts.as_millis().to_string(), "ALL"]);
                std::thread::sleep(lasts);
            }
            Kind::Flush => redis::tell(self.address(), &["FLUSHALL"]),
            Kind::DeleteRows => redis::tell(self.address(), &["EVAL", DELETE_SESSIONS, "0"]),
            Kind::Restore => {
                let dir = self.crash();
                self.older = Some(copy_of(dir.path()));
                self.launch(dir);
            }
            _ => {}
        }
    }

    fn heal(&mut self, kind: Kind) {
        match kind {
            Kind::StoreKill => {
                let dir = self.stopped.take().expect("it was stopped");
                self.launch(dir);
            }
            Kind::StoreFreeze => self.signal(Signal::CONT),
            Kind::Crowd => say(self.kept.as_mut().expect("it was kept"), "CONFIG SET maxclients 10000"),
            Kind::ReadOnly => redis::tell(self.address(), &["CONFIG", "SET", "min-replicas-to-write", "0"]),
            Kind::Restore => {
                drop(self.crash());
                let older = self.older.take().expect("it was copied");
                self.launch(older);
            }
            _ => {}
        }
    }
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = TempDir::new().expect("a temporary directory");
    let done = Command::new("cp").arg("-a").arg(format!("{}/.", dir.display())).arg(copy.path()).status();
    assert!(done.is_ok_and(|status| status.success()), "{} can be copied", dir.display());
    copy
}

/// A primary, a replica, three Sentinels: acknowledged writes can vanish.
struct Failover {
    servers: [Option<Server>; 2],
    ports: [u16; 2],
    sentinels: Vec<Server>,
}

impl Failover {
    fn start() -> Self {
        let primary = redis::start(redis::FORGETFUL);
        let replica = redis::start(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
        until(|| redis::ask(replica.address(), &["INFO", "replication"]).contains("link_status:up"));
        let sentinels: Vec<Server> = (0..3).map(|_| redis::sentinel(primary.port(), 2)).collect();
        for sentinel in &sentinels {
            let known = || redis::ask(sentinel.address(), &["SENTINEL", "replicas", "main"]);
            until(|| known().contains(&replica.port().to_string()));
            let others = || redis::ask(sentinel.address(), &["SENTINEL", "sentinels", "main"]);
            until(|| others().matches("sentinel,").count() + others().matches("\r\nip\r\n").count() >= 2);
        }
        let ports = [primary.port(), replica.port()];
        Self { servers: [Some(primary), Some(replica)], ports, sentinels }
    }

    /// Which of the two the Sentinels say is the primary.
    fn primary(&self) -> usize {
        let answer =
            redis::ask(self.sentinels[0].address(), &["SENTINEL", "get-master-addr-by-name", "main"]);
        usize::from(answer.contains(&self.ports[1].to_string()))
    }
}

/// Waits for what comes in a moment.
fn until(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < PATIENCE, "a server did not do what it was asked for in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Attacked for Failover {
    fn url(&self) -> String {
        let sentinels: Vec<String> =
            self.sentinels.iter().map(|server| server.address().to_string()).collect();
        format!("redis+sentinel://{}/main/0?timeout=500ms", sentinels.join(","))
    }

    fn able(&self) -> &'static [Kind] {
        &[Kind::Failover]
    }

    /// What the primary acknowledges while the replica stands still is lost with it.
    fn strike(&mut self, _: Kind, lasts: Duration) {
        let primary = self.primary();
        let replica = 1 - primary;
        let (Some(old), Some(new)) = (self.servers[primary].take(), self.servers[replica].as_ref()) else {
            return;
        };
        new.signal(Signal::STOP);
        std::thread::sleep(lasts);
        drop(old);
        new.signal(Signal::CONT);
        until(|| self.primary() == replica);
        let address = new.address();
        until(|| redis::ask(address, &["INFO", "replication"]).contains("role:master"));
        let dir = TempDir::new().expect("a temporary directory");
        let port = self.ports[replica].to_string();
        let settings = [redis::FORGETFUL, &["--replicaof", "127.0.0.1", &port]].concat();
        let back = redis::start_in(dir, self.ports[primary], &settings);
        until(|| redis::ask(back.address(), &["INFO", "replication"]).contains("link_status:up"));
        self.servers[primary] = Some(back);
    }

    fn heal(&mut self, _: Kind) {}
}

/// A server that speaks SQL.
struct Sql<E> {
    engine: E,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
}

/// How a server that speaks SQL is ruled.
trait Engine: Send {
    fn url(&self) -> String;
    /// Carries out statements as its ruler.
    fn rule(&self, statements: &str);
    /// Freezes it, or lets it go on.
    fn set_frozen(&self, frozen: bool);
    fn crash(&mut self) -> TempDir;
    fn launch(&mut self, dir: TempDir);
    /// The statements for a fault, and those that undo it.
    fn words(&self, kind: Kind, lasts: Duration) -> (String, &'static str);
}

impl<E: Engine> Attacked for Sql<E> {
    fn url(&self) -> String {
        self.engine.url()
    }

    fn able(&self) -> &'static [Kind] {
        use Kind::{Crowd, DeleteRows, Flush, ReadOnly, Restore, Slow, StoreFreeze, StoreKill};
        &[StoreKill, StoreFreeze, Crowd, ReadOnly, Slow, Flush, DeleteRows, Restore]
    }

    fn strike(&mut self, kind: Kind, lasts: Duration) {
        match kind {
            Kind::StoreKill => self.stopped = Some(self.engine.crash()),
            Kind::StoreFreeze => self.engine.set_frozen(true),
            Kind::Restore => {
                let dir = self.engine.crash();
                self.older = Some(copy_of(dir.path()));
                self.engine.launch(dir);
            }
            _ => self.engine.rule(&self.engine.words(kind, lasts).0),
        }
    }

    fn heal(&mut self, kind: Kind) {
        match kind {
            Kind::StoreKill => {
                let dir = self.stopped.take().expect("it was stopped");
                self.engine.launch(dir);
            }
            Kind::StoreFreeze => self.engine.set_frozen(false),
            Kind::Restore => {
                drop(self.engine.crash());
                let older = self.older.take().expect("it was copied");
                self.engine.launch(older);
            }
            _ => match self.engine.words(kind, Duration::ZERO).1 {
                "" => {}
                words => self.engine.rule(words),
            },
        }
    }
}

impl Engine for postgres::Postgres {
    fn url(&self) -> String {
        self.admin_url()
    }

    /// From another database, so that the one of the nodes can be closed; past its own limits and triggers.
    fn rule(&self, statements: &str) {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        let database = if statements.contains("tenure_") { "postgres" } else { "template1" };
        command.arg(self.url("postgres", database)).env("PGOPTIONS", "-c default_transaction_read_only=off");
        for statement in statements.split('\n') {
            command.args(["-c", statement]);
        }
        done(command);
    }

    fn set_frozen(&self, frozen: bool) {
        if frozen { self.freeze() } else { self.thaw() }
    }

    fn crash(&mut self) -> TempDir {
        Self::crash(self)
    }

    fn launch(&mut self, dir: TempDir) {
        Self::launch(self, dir);
    }

    fn words(&self, kind: Kind, lasts: Duration) -> (String, &'static str) {
        let seconds = lasts.as_secs_f64();
        match kind {
            Kind::Crowd => (
                "ALTER DATABASE postgres ALLOW_CONNECTIONS false\n\
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'"
                    .to_owned(),
                "ALTER DATABASE postgres ALLOW_CONNECTIONS true",
            ),
            Kind::ReadOnly => (
                "ALTER SYSTEM SET default_transaction_read_only = on\nSELECT pg_reload_conf()".to_owned(),
                "ALTER SYSTEM RESET default_transaction_read_only\nSELECT pg_reload_conf()",
            ),
            Kind::Slow => {
                let lock = "LOCK TABLE tenure_registers IN ACCESS EXCLUSIVE MODE";
                (format!("BEGIN; {lock}; SELECT pg_sleep({seconds:.3}); COMMIT"), "")
            }
            Kind::Flush => {
                ("SET session_replication_role = replica; TRUNCATE tenure_registers".to_owned(), "")
            }
            _ => {
                let delete = "DELETE FROM tenure_registers WHERE kind = 'session'";
                (format!("SET session_replication_role = replica; {delete}"), "")
            }
        }
    }
}

impl Engine for mysql::Mysql {
    fn url(&self) -> String {
        Self::url(self, mysql::USERS[0])
    }

    fn rule(&self, statements: &str) {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root"]);
        command.args(["-P", &self.port().to_string(), mysql::DATABASE, "-e", statements]);
        done(command);
    }

    fn set_frozen(&self, frozen: bool) {
        if frozen { self.freeze() } else { self.thaw() }
    }

    fn crash(&mut self) -> TempDir {
        Self::crash(self)
    }

    fn launch(&mut self, dir: TempDir) {
        Self::launch(self, dir);
    }

    fn words(&self, kind: Kind, lasts: Duration) -> (String, &'static str) {
        let seconds = lasts.as_secs_f64();
        match kind {
            Kind::Crowd => {
                let user = mysql::USERS[0];
                (
                    format!("SET GLOBAL max_connections = 10; KILL USER {user}"),
                    "SET GLOBAL max_connections = 200",
                )
            }
            Kind::ReadOnly => ("SET GLOBAL read_only = 1".to_owned(), "SET GLOBAL read_only = 0"),
            Kind::Slow => {
                (format!("LOCK TABLES tenure_registers WRITE; SELECT SLEEP({seconds:.3}); UNLOCK TABLES"), "")
            }
            Kind::Flush => ("SET foreign_key_checks = 0; TRUNCATE TABLE tenure_registers".to_owned(), ""),
            _ => ("DELETE FROM tenure_registers WHERE kind = 'session'".to_owned(), ""),
        }
    }
}

/// A client's command that must succeed.
fn done(mut command: Command) {
    let output =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; is the client installed?"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

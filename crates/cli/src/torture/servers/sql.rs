//! Servers that speak SQL.

use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tenure_testkit::servers::{mysql, postgres};

use super::home::Home;
use super::{Done, run, until};
use crate::torture::fault::Kind;
use crate::torture::ground::Attacked;

/// A server that speaks SQL.
pub(super) struct Sql<E> {
    engine: E,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    home: Home,
}

impl Sql<postgres::Postgres> {
    pub(super) fn postgres(home: Home) -> Self {
        let settings = ["max_connections=200", "fsync=on", "shared_buffers=16MB"];
        let engine = postgres::Postgres::start_in(home.folder(), &settings);
        Self { engine, stopped: None, older: None, home }
    }
}

impl Sql<mysql::Mysql> {
    pub(super) fn mysql(home: Home) -> Self {
        let engine = mysql::Mysql::start_in(home.folder(), &["--max-connections=200"]);
        Self { engine, stopped: None, older: None, home }
    }
}

impl<E: Engine> Sql<E> {
    /// A server that writes only to what it has reserved long before has to be made to want more; it may die of that, or
    /// never answer.
    fn fill_the_disk(&self) -> Done {
        self.home.fill()?;
        let _ = self.engine.rule(&self.engine.words(Kind::DiskFull, Duration::ZERO).0);
        Ok(())
    }

    /// A server that could not write may have given up, and is started again when there is room.
    fn make_room(&mut self) -> Done {
        self.home.clear()?;
        until("the server answers again", || {
            if self.engine.has_ended() {
                let dir = self.engine.crash();
                self.engine.launch(dir);
            }
            self.engine.rule("SELECT 1").is_ok()
        })
    }
}

/// How a server that speaks SQL is ruled.
pub(super) trait Engine: Send {
    /// What can be done to it.
    const ABLE: &'static [Kind];
    fn url(&self) -> String;
    /// Carries out statements as its ruler.
    fn rule(&self, statements: &str) -> Done;
    /// Freezes it, or lets it go on.
    fn set_frozen(&self, frozen: bool);
    /// Whether it gave up.
    fn has_ended(&mut self) -> bool;
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
        E::ABLE
    }

    fn has_disk(&self) -> bool {
        self.home.has_disk()
    }

    fn strike(&mut self, kind: Kind, lasts: Duration) -> Done {
        match kind {
            Kind::StoreKill => self.stopped = Some(self.engine.crash()),
            Kind::StoreFreeze => self.engine.set_frozen(true),
            Kind::DiskFull => return self.fill_the_disk(),
            Kind::Restore => {
                let dir = self.engine.crash();
                self.older = Some(self.home.copy_of(dir.path()));
                self.engine.launch(dir);
            }
            _ => return self.engine.rule(&self.engine.words(kind, lasts).0),
        }
        Ok(())
    }

    fn heal(&mut self, kind: Kind) -> Done {
        match kind {
            Kind::StoreKill => {
                if let Some(dir) = self.stopped.take() {
                    self.engine.launch(dir);
                }
            }
            Kind::StoreFreeze => self.engine.set_frozen(false),
            Kind::DiskFull => return self.make_room(),
            Kind::Restore => {
                if let Some(older) = self.older.take() {
                    drop(self.engine.crash());
                    self.engine.launch(older);
                }
            }
            _ => match self.engine.words(kind, Duration::ZERO).1 {
                "" => {}
                words => return self.engine.rule(words),
            },
        }
        Ok(())
    }
}

impl Engine for postgres::Postgres {
    const ABLE: &'static [Kind] = &[
        Kind::StoreKill,
        Kind::StoreFreeze,
        Kind::Crowd,
        Kind::ReadOnly,
        Kind::Slow,
        Kind::DiskFull,
        Kind::Flush,
        Kind::DeleteRows,
        Kind::Restore,
    ];

    fn url(&self) -> String {
        self.admin_url()
    }

    /// From another database, so that the one of the nodes can be closed; past its own limits and triggers.
    fn rule(&self, statements: &str) -> Done {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        let database = if statements.contains("tenure_") { "postgres" } else { "template1" };
        command.arg(self.url("postgres", database)).env("PGOPTIONS", "-c default_transaction_read_only=off");
        for statement in statements.split('\n') {
            command.args(["-c", statement]);
        }
        run(command)
    }

    fn set_frozen(&self, frozen: bool) {
        if frozen { self.freeze() } else { self.thaw() }
    }

    fn has_ended(&mut self) -> bool {
        Self::has_ended(self)
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
            Kind::DiskFull => ("SELECT pg_switch_wal()\nSELECT pg_switch_wal()".to_owned(), ""),
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
    /// Not a full disk: whoever met it waits for a minute before it looks whether there is room again.
    const ABLE: &'static [Kind] = &[
        Kind::StoreKill,
        Kind::StoreFreeze,
        Kind::Crowd,
        Kind::ReadOnly,
        Kind::Slow,
        Kind::Flush,
        Kind::DeleteRows,
        Kind::Restore,
    ];

    fn url(&self) -> String {
        Self::url(self, mysql::USERS[0])
    }

    fn rule(&self, statements: &str) -> Done {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root"]);
        command.args(["-P", &self.port().to_string(), mysql::DATABASE, "-e", statements]);
        run(command)
    }

    fn set_frozen(&self, frozen: bool) {
        if frozen { self.freeze() } else { self.thaw() }
    }

    fn has_ended(&mut self) -> bool {
        Self::has_ended(self)
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

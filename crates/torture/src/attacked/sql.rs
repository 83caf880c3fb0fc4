//! Servers that speak SQL.

use std::process::Command;
use std::time::Duration;

use crate::servers::{mysql, postgres};
use tempfile::TempDir;

use super::data_dir::DataDir;
use super::{FaultResult, run, until};
use crate::fault::FaultKind;
use crate::target::AttackedServer;

/// A server that speaks SQL.
pub(super) struct Sql<E> {
    engine: E,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    data_dir: DataDir,
}

impl Sql<postgres::Postgres> {
    pub(super) fn postgres(data_dir: DataDir) -> Self {
        let settings = ["max_connections=200", "fsync=on", "shared_buffers=16MB"];
        let engine = postgres::Postgres::start_in(data_dir.folder(), &settings);
        Self { engine, stopped: None, older: None, data_dir }
    }
}

impl Sql<mysql::Mysql> {
    pub(super) fn mysql(data_dir: DataDir) -> Self {
        let engine = mysql::Mysql::start_in(data_dir.folder(), &["--max-connections=200"]);
        Self { engine, stopped: None, older: None, data_dir }
    }
}

impl<E: Engine> Sql<E> {
    /// A server that writes only to what it has reserved long before has to be made to want more; it may die of that, or
    /// never answer.
    fn fill_the_disk(&self) -> FaultResult {
        self.data_dir.fill()?;
        let _ = self.engine.rule(&self.engine.words(FaultKind::DiskFull, Duration::ZERO).0);
        Ok(())
    }

    /// A server that could not write may have given up, and is started again when there is room.
    fn make_room(&mut self) -> FaultResult {
        self.data_dir.clear()?;
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
    const ABLE: &'static [FaultKind];
    fn url(&self) -> String;
    /// Carries out statements as its ruler.
    fn rule(&self, statements: &str) -> FaultResult;
    /// Freezes it, or lets it go on.
    fn set_frozen(&self, frozen: bool);
    /// Whether it gave up.
    fn has_ended(&mut self) -> bool;
    fn crash(&mut self) -> TempDir;
    fn launch(&mut self, dir: TempDir);
    /// The statements for a fault, and those that undo it.
    fn words(&self, kind: FaultKind, lasts: Duration) -> (String, &'static str);
}

impl<E: Engine> AttackedServer for Sql<E> {
    fn url(&self) -> String {
        self.engine.url()
    }

    fn able(&self) -> &'static [FaultKind] {
        E::ABLE
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn inject(&mut self, kind: FaultKind, lasts: Duration) -> FaultResult {
        match kind {
            FaultKind::StoreKill => self.stopped = Some(self.engine.crash()),
            FaultKind::StoreFreeze => self.engine.set_frozen(true),
            FaultKind::DiskFull => return self.fill_the_disk(),
            FaultKind::Restore => {
                let dir = self.engine.crash();
                self.older = Some(self.data_dir.copy_of(dir.path()));
                self.engine.launch(dir);
            }
            _ => return self.engine.rule(&self.engine.words(kind, lasts).0),
        }
        Ok(())
    }

    fn heal(&mut self, kind: FaultKind) -> FaultResult {
        match kind {
            FaultKind::StoreKill => {
                if let Some(dir) = self.stopped.take() {
                    self.engine.launch(dir);
                }
            }
            FaultKind::StoreFreeze => self.engine.set_frozen(false),
            FaultKind::DiskFull => return self.make_room(),
            FaultKind::Restore => {
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
    const ABLE: &'static [FaultKind] = &[
        FaultKind::StoreKill,
        FaultKind::StoreFreeze,
        FaultKind::Crowd,
        FaultKind::ReadOnly,
        FaultKind::Slow,
        FaultKind::DiskFull,
        FaultKind::Flush,
        FaultKind::DeleteRows,
        FaultKind::Restore,
        FaultKind::Neighbour,
    ];

    fn url(&self) -> String {
        self.admin_url()
    }

    /// From another database, so that the one of the nodes can be closed; past its own limits and triggers.
    fn rule(&self, statements: &str) -> FaultResult {
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

    fn words(&self, kind: FaultKind, lasts: Duration) -> (String, &'static str) {
        let seconds = lasts.as_secs_f64();
        match kind {
            FaultKind::Crowd => (
                "ALTER DATABASE postgres ALLOW_CONNECTIONS false\n\
                 SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres'"
                    .to_owned(),
                "ALTER DATABASE postgres ALLOW_CONNECTIONS true",
            ),
            FaultKind::ReadOnly => (
                "ALTER SYSTEM SET default_transaction_read_only = on\nSELECT pg_reload_conf()".to_owned(),
                "ALTER SYSTEM RESET default_transaction_read_only\nSELECT pg_reload_conf()",
            ),
            FaultKind::Slow => {
                let lock = "LOCK TABLE tenure_registers IN ACCESS EXCLUSIVE MODE";
                (format!("BEGIN; {lock}; SELECT pg_sleep({seconds:.3}); COMMIT"), "")
            }
            FaultKind::DiskFull => ("SELECT pg_switch_wal()\nSELECT pg_switch_wal()".to_owned(), ""),
            FaultKind::Flush => {
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
    const ABLE: &'static [FaultKind] = &[
        FaultKind::StoreKill,
        FaultKind::StoreFreeze,
        FaultKind::Crowd,
        FaultKind::ReadOnly,
        FaultKind::Slow,
        FaultKind::Flush,
        FaultKind::DeleteRows,
        FaultKind::Restore,
    ];

    fn url(&self) -> String {
        Self::url(self, mysql::USERS[0])
    }

    fn rule(&self, statements: &str) -> FaultResult {
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

    fn words(&self, kind: FaultKind, lasts: Duration) -> (String, &'static str) {
        let seconds = lasts.as_secs_f64();
        match kind {
            FaultKind::Crowd => {
                let user = mysql::USERS[0];
                (
                    format!("SET GLOBAL max_connections = 10; KILL USER {user}"),
                    "SET GLOBAL max_connections = 200",
                )
            }
            FaultKind::ReadOnly => ("SET GLOBAL read_only = 1".to_owned(), "SET GLOBAL read_only = 0"),
            FaultKind::Slow => {
                (format!("LOCK TABLES tenure_registers WRITE; SELECT SLEEP({seconds:.3}); UNLOCK TABLES"), "")
            }
            FaultKind::Flush => {
                ("SET foreign_key_checks = 0; TRUNCATE TABLE tenure_registers".to_owned(), "")
            }
            _ => ("DELETE FROM tenure_registers WHERE kind = 'session'".to_owned(), ""),
        }
    }
}

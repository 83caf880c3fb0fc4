//! Servers that speak SQL.

use std::process::Command;
use std::time::Duration;

use crate::servers::database::{DatabaseKind, DatabaseServer};
use crate::servers::mysql::{self, MariaDb, Mysql};
use crate::servers::postgres::PostgreSql;
use tempfile::TempDir;

use super::data_dir::DataDir;
use super::{FaultResult, run, until};
use crate::fault::FaultKind;
use crate::target::{AttackedServer, ServerUse};

/// A server that speaks SQL.
pub(super) struct Sql<K: DatabaseKind> {
    engine: DatabaseServer<K>,
    stopped: Option<TempDir>,
    older: Option<TempDir>,
    data_dir: DataDir,
}

impl Sql<PostgreSql> {
    pub(super) fn postgres(data_dir: DataDir, connections: u32) -> Self {
        let most = format!("max_connections={connections}");
        let settings = [most.as_str(), "fsync=on", "shared_buffers=16MB"];
        let engine = DatabaseServer::start_in(data_dir.folder(), &settings);
        Self { engine, stopped: None, older: None, data_dir }
    }
}

impl Sql<MariaDb> {
    pub(super) fn mysql(data_dir: DataDir, connections: u32) -> Self {
        let most = format!("--max-connections={connections}");
        let engine = DatabaseServer::start_in(data_dir.folder(), &[&most]);
        Self { engine, stopped: None, older: None, data_dir }
    }
}

impl<K: SqlFaults> Sql<K> {
    /// A server that writes only to what it has reserved long before has to be made to want more; it may die of that, or
    /// never answer.
    fn fill_the_disk(&self) -> FaultResult {
        self.data_dir.fill()?;
        let _ = K::rule(&self.engine, &K::words(FaultKind::DiskFull, Duration::ZERO).0);
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
            K::rule(&self.engine, "SELECT 1").is_ok()
        })
    }
}

/// The faults of a server that speaks SQL.
pub(super) trait SqlFaults: DatabaseKind + Sized {
    /// What can be done to it.
    const ABLE: &'static [FaultKind];
    fn url(server: &DatabaseServer<Self>) -> String;
    /// Carries out statements as its administrator.
    fn rule(server: &DatabaseServer<Self>, statements: &str) -> FaultResult;
    /// The statements for a fault, and those that undo it.
    fn words(kind: FaultKind, lasts: Duration) -> (String, &'static str);
    /// A program that prints, one on each line, what the server counts: connections, requests, and bytes received and sent if
    /// it counts them.
    fn count(server: &DatabaseServer<Self>) -> Command;
}

impl<K: SqlFaults> AttackedServer for Sql<K> {
    fn url(&self) -> String {
        K::url(&self.engine)
    }

    fn able(&self) -> &'static [FaultKind] {
        K::ABLE
    }

    fn has_disk(&self) -> bool {
        self.data_dir.has_disk()
    }

    fn usage(&self) -> Option<ServerUse> {
        let printed = K::count(&self.engine).output().ok()?.stdout;
        let counted: Vec<u64> =
            String::from_utf8(printed).ok()?.lines().map(str::parse).collect::<Result<_, _>>().ok()?;
        let (connections, requests) = (*counted.first()?, *counted.get(1)?);
        let bytes = counted.get(2).copied().zip(counted.get(3).copied());
        // The program that asks is one of them.
        Some(ServerUse {
            cpu: self.engine.cpu(),
            connections: connections.saturating_sub(1),
            requests,
            bytes,
        })
    }

    fn inject(&mut self, kind: FaultKind, lasts: Duration) -> FaultResult {
        match kind {
            FaultKind::StoreKill => self.stopped = Some(self.engine.crash()),
            FaultKind::StoreFreeze => self.engine.freeze(),
            FaultKind::DiskFull => return self.fill_the_disk(),
            FaultKind::Restore => {
                let dir = self.engine.crash();
                self.older = Some(self.data_dir.copy_of(dir.path()));
                self.engine.launch(dir);
            }
            _ => return K::rule(&self.engine, &K::words(kind, lasts).0),
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
            FaultKind::StoreFreeze => self.engine.thaw(),
            FaultKind::DiskFull => return self.make_room(),
            FaultKind::Restore => {
                if let Some(older) = self.older.take() {
                    drop(self.engine.crash());
                    self.engine.launch(older);
                }
            }
            _ => match K::words(kind, Duration::ZERO).1 {
                "" => {}
                words => return K::rule(&self.engine, words),
            },
        }
        Ok(())
    }
}

impl SqlFaults for PostgreSql {
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

    fn url(server: &DatabaseServer<Self>) -> String {
        server.admin_url()
    }

    /// From another database, so that the one of the nodes can be closed; past its own limits and triggers.
    fn rule(server: &DatabaseServer<Self>, statements: &str) -> FaultResult {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1"]);
        let database = if statements.contains("tenure_") { "postgres" } else { "template1" };
        command
            .arg(server.url("postgres", database))
            .env("PGOPTIONS", "-c default_transaction_read_only=off");
        for statement in statements.split('\n') {
            command.args(["-c", statement]);
        }
        run(command)
    }

    fn words(kind: FaultKind, lasts: Duration) -> (String, &'static str) {
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

    fn count(server: &DatabaseServer<Self>) -> Command {
        let mut command = Command::new("psql");
        command.args(["-X", "-q", "-A", "-t", "-c", COUNT_POSTGRES]).arg(server.admin_url());
        command
    }
}

/// PostgreSQL counts no bytes.
const COUNT_POSTGRES: &str = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'
    UNION ALL SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database";

const COUNT_MARIADB: &str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS
    WHERE VARIABLE_NAME IN ('THREADS_CONNECTED', 'QUESTIONS', 'BYTES_RECEIVED', 'BYTES_SENT')
    ORDER BY FIELD(VARIABLE_NAME, 'THREADS_CONNECTED', 'QUESTIONS', 'BYTES_RECEIVED', 'BYTES_SENT')";

/// A program of MariaDB that speaks to a server as its administrator.
pub(super) fn mariadb(program: &str, server: &Mysql) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--protocol=tcp", "-h", "127.0.0.1", "-u", "root"]);
    command.args(["-P", &server.port().to_string()]);
    command
}

/// Whether a condition holds there.
pub(super) fn holds(server: &Mysql, condition: &str) -> bool {
    let mut command = mariadb("mariadb", server);
    let statement =
        format!("BEGIN NOT ATOMIC IF NOT ({condition}) THEN SIGNAL SQLSTATE '45000'; END IF; END//");
    command.args(["--delimiter=//", "-e", &statement]);
    run(command).is_ok()
}

/// What a server says of itself.
pub(super) fn status(name: &str) -> String {
    format!("(SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '{name}')")
}

impl SqlFaults for MariaDb {
    /// Not a full disk: the server waits for a minute before it looks whether there is room again.
    const ABLE: &'static [FaultKind] = &[
        FaultKind::StoreKill,
        FaultKind::StoreFreeze,
        FaultKind::Crowd,
        FaultKind::ReadOnly,
        FaultKind::Slow,
        FaultKind::Flush,
        FaultKind::DeleteRows,
        FaultKind::Restore,
        FaultKind::Neighbour,
    ];

    fn url(server: &DatabaseServer<Self>) -> String {
        server.url(mysql::USERS[0])
    }

    fn rule(server: &DatabaseServer<Self>, statements: &str) -> FaultResult {
        let mut command = mariadb("mariadb", server);
        command.args([mysql::DATABASE, "-e", statements]);
        run(command)
    }

    fn words(kind: FaultKind, lasts: Duration) -> (String, &'static str) {
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

    fn count(server: &DatabaseServer<Self>) -> Command {
        let mut command = mariadb("mariadb", server);
        command.args(["-N", "-B", "-e", COUNT_MARIADB]);
        command
    }
}

//! The neighbour on MariaDB: a login of the same server with a database of its own, and no grant on ours.
//!
//! There is no channel that every login could write to: nodes tell each other of changes in a table, and interrupt those who
//! sleep. So it keeps tables of the same names in its own database, and tries to interrupt connections that are not its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::judge::NeighbourActivity;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as SqlError, Opts};

use super::forgeries::{ForgedHint, HintForger};
use super::{Attempt, NAME, Neighbour, NeighbourLog, pause};
use crate::Error;

/// So many forged rows in one statement.
const ROWS: usize = 500;

/// Made by the server's administrator.
const MOVE_IN: &[&str] = &[
    "CREATE DATABASE IF NOT EXISTS neighbour",
    "CREATE USER IF NOT EXISTS 'neighbour'@'%' IDENTIFIED BY 'any' WITH MAX_USER_CONNECTIONS 20",
    "GRANT ALL ON neighbour.* TO 'neighbour'@'%'",
];

/// What it makes in its own database, in the hope that a node falls for it.
const DECOYS: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS neighbour.tenure_schema AS SELECT 1 AS one, 1 AS version, 'forged' AS id",
    "CREATE TABLE IF NOT EXISTS neighbour.tenure_notifier AS SELECT 1 AS one, 0 AS seq",
    "CREATE TABLE IF NOT EXISTS neighbour.tenure_registers (namespace text, epoch text, kind text, name text) \
        CHARACTER SET utf8mb4",
    "CREATE FUNCTION IF NOT EXISTS neighbour.tenure_forged() RETURNS int RETURN 1",
];

/// What it must be refused; `OURS` is our database. A question that is answered with nothing was refused too.
const FORBIDDEN: &[&str] = &[
    "SELECT value FROM OURS.tenure_registers",
    "SELECT id FROM OURS.tenure_schema",
    "SELECT * FROM OURS.tenure_leaders",
    "SELECT seq FROM OURS.tenure_notifier FOR UPDATE",
    "INSERT INTO OURS.tenure_registers SELECT * FROM OURS.tenure_registers",
    "UPDATE OURS.tenure_notifier SET seq = seq + 1",
    "UPDATE OURS.tenure_registers SET token = 9007199254740991",
    "DELETE FROM OURS.tenure_registers WHERE kind = 'session'",
    "TRUNCATE TABLE OURS.tenure_registers",
    "LOCK TABLES OURS.tenure_registers READ",
    "ALTER TABLE OURS.tenure_registers ADD COLUMN forged int",
    "DROP TABLE OURS.tenure_registers",
    "CREATE INDEX forged ON OURS.tenure_registers (name)",
    "RENAME TABLE OURS.tenure_registers TO neighbour.taken",
    "CREATE TRIGGER OURS.forged BEFORE UPDATE ON OURS.tenure_registers FOR EACH ROW SET @forged = 1",
    "CREATE TABLE OURS.tenure_forged (x int)",
    "CREATE VIEW OURS.forged AS SELECT 1",
    "CREATE FUNCTION OURS.get_lock() RETURNS int RETURN 1",
    "ANALYZE TABLE OURS.tenure_registers",
    "FLUSH TABLES WITH READ LOCK",
    "FLUSH TABLES OURS.tenure_registers",
    "DROP DATABASE OURS",
    "USE OURS",
    "GRANT ALL ON OURS.* TO 'neighbour'@'%'",
    "SET PASSWORD FOR 'app'@'%' = PASSWORD('forged')",
    "ALTER USER 'neighbour'@'%' WITH MAX_USER_CONNECTIONS 0",
    "SET GLOBAL max_connections = 10",
    "SET GLOBAL read_only = 1",
    "SET GLOBAL general_log = 1",
    "SELECT INFO FROM information_schema.PROCESSLIST WHERE USER = 'app'",
    "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'OURS'",
    "SELECT User FROM mysql.global_priv",
    "SHOW ENGINE INNODB STATUS",
    "SHUTDOWN",
];

struct NeighbourConnection {
    opts: Opts,
    /// The server's administrator, who tells it which connections are those of nodes: it could not know.
    admin: Opts,
    address: SocketAddr,
    database: String,
    forger: HintForger,
    log: NeighbourLog,
}

pub(super) async fn start(
    neighbour: &mut Neighbour,
    url: &str,
    forger: HintForger,
    log: NeighbourLog,
) -> Result<(), Error> {
    let failed = |error: SqlError| Error::Failed(format!("cannot let the neighbour in: {error}"));
    let unread =
        || Error::Failed("cannot let the neighbour in: no host, port and database in the URL".into());
    let (place, database) =
        url.rsplit_once('@').and_then(|(_, rest)| rest.split_once('/')).ok_or_else(unread)?;
    let address = place.parse().map_err(|_| unread())?;
    let read = |text: String| Opts::from_url(&text).map_err(|error| failed(error.into()));
    let admin = read(format!("mysql://root@{place}"))?;
    let opts = read(format!("mysql://{NAME}:any@{place}/{NAME}"))?;
    let mut conn = Conn::new(admin.clone()).await.map_err(failed)?;
    for statement in MOVE_IN {
        conn.query_drop(*statement).await.map_err(failed)?;
    }
    let place = NeighbourConnection { opts, admin, address, database: database.to_owned(), forger, log };
    let place = Arc::new(place);
    let of = || place.clone();
    let (one, two, three, four, five) = (of(), of(), of(), of(), of());
    neighbour.keep(move || one.clone().forge());
    neighbour.keep(move || two.clone().interrupt());
    neighbour.keep(move || three.clone().trespass());
    neighbour.keep(move || four.clone().flood());
    neighbour.keep(move || five.clone().squat());
    Ok(())
}

impl NeighbourConnection {
    async fn connect(&self) -> Result<Conn, SqlError> {
        Conn::new(self.opts.clone()).await
    }

    /// Rows that say which register has changed, where a node that asked the wrong database would find them.
    async fn forge(self: Arc<Self>) -> Result<(), SqlError> {
        let (mut conn, mut random) = (self.connect().await?, self.log.random());
        for statement in DECOYS {
            conn.query_drop(*statement).await?;
        }
        loop {
            let forgeries = self.forger.forgeries(&mut random).await;
            conn.query_drop("DELETE FROM tenure_registers").await?;
            for some in forgeries.chunks(ROWS) {
                let rows = vec!["(?, ?, ?, ?)"; some.len()].join(", ");
                let values = some.iter().flat_map(|ForgedHint { namespace, epoch, kind, name }| {
                    [namespace, epoch, kind, name].map(|text| text.clone().into())
                });
                let values: Vec<mysql_async::Value> = values.collect();
                conn.exec_drop(format!("INSERT INTO tenure_registers VALUES {rows}"), values).await?;
                conn.query_drop("UPDATE tenure_notifier SET seq = seq + 1").await?;
            }
            let forged = forgeries.len() as u64;
            self.log.note(NeighbourActivity { forged, ..NeighbourActivity::default() });
            pause(&mut random, 100..500).await;
        }
    }

    /// An interruption is what wakes those who sleep, and breaks off what a node asked.
    async fn interrupt(self: Arc<Self>) -> Result<(), SqlError> {
        let (mut conn, mut admin) = (self.connect().await?, Conn::new(self.admin.clone()).await?);
        let mut random = self.log.random();
        loop {
            let theirs: Vec<u64> = admin
                .query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'app' ORDER BY RAND() LIMIT 20")
                .await?;
            for id in theirs {
                for statement in [format!("KILL QUERY {id}"), format!("KILL {id}")] {
                    let outcome = match conn.query_drop(&statement).await {
                        Ok(()) => Attempt::Done,
                        Err(error) => judge(error)?,
                    };
                    self.log.record("KILL of a node's connection", outcome);
                }
            }
            pause(&mut random, 200..1_000).await;
        }
    }

    async fn trespass(self: Arc<Self>) -> Result<(), SqlError> {
        let (mut conn, mut random) = (self.connect().await?, self.log.random());
        loop {
            for statement in FORBIDDEN {
                let text = statement.replace("OURS", &self.database);
                let outcome = match conn.query::<mysql_async::Row, _>(&text).await {
                    Ok(rows) if rows.is_empty() && text.starts_with("SELECT") => Attempt::Refused,
                    Ok(_) => Attempt::Done,
                    Err(error) => judge(error)?,
                };
                self.log.record(&text, outcome);
                pause(&mut random, 5..30).await;
            }
            pause(&mut random, 1_000..3_000).await;
        }
    }

    async fn flood(self: Arc<Self>) -> Result<(), SqlError> {
        let is_refusal = |error: &SqlError| matches!(error, SqlError::Server(said) if said.code == TOO_MANY);
        self.log.flood(self.address, || self.connect(), is_refusal).await;
        Ok(())
    }

    /// The lock under which nodes make their tables: every login can know its name, and take it.
    async fn squat(self: Arc<Self>) -> Result<(), SqlError> {
        let (mut conn, mut random) = (self.connect().await?, self.log.random());
        let lock = format!("tenure schema {}", &self.database[..self.database.len().min(40)]);
        loop {
            let got: Option<Option<u8>> = conn.query_first(format!("SELECT GET_LOCK('{lock}', 5)")).await?;
            let locks = u64::from(got == Some(Some(1)));
            self.log.note(NeighbourActivity { locks, ..NeighbourActivity::default() });
            pause(&mut random, 100..3_000).await;
            conn.query_drop("DO RELEASE_ALL_LOCKS()").await?;
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }
}

/// `ER_TOO_MANY_USER_CONNECTIONS`, for `MAX_USER_CONNECTIONS`.
const TOO_MANY: u16 = 1226;

/// What an error means; one of the connection is handed on.
fn judge(error: SqlError) -> Result<Attempt, SqlError> {
    /// Access denied: to a database, table, column, routine, thread, password or privilege; grants that it may not give.
    const REFUSED: [u16; 9] = [1044, 1045, 1095, 1131, 1142, 1143, 1227, 1370, 1410];
    /// No such thread any more; read-only, shutting down, out of connections, interrupted, timed out, deadlocked.
    const BUSY: [u16; 9] = [1094, 1040, 1053, 1205, 1213, 1290, 1317, 1836, 1927];
    match error {
        SqlError::Server(said) if REFUSED.contains(&said.code) => Ok(Attempt::Refused),
        SqlError::Server(said) if BUSY.contains(&said.code) => Ok(Attempt::Unknown),
        SqlError::Server(said) => Ok(Attempt::Failed(format!("{} {}", said.code, said.message))),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::judge::{NoteKind, NoteReader, NoteWriter};
    use crate::servers::mysql::Mysql;
    use tenure::Name;

    const PATIENCE: Duration = Duration::from_secs(120);

    /// Reads notes until it has found what it looks for; gives what the neighbour did, and its trespasses.
    async fn read_until(
        notes: &mut NoteReader,
        done: impl Fn(&NeighbourActivity, &[String]) -> bool,
    ) -> (NeighbourActivity, Vec<String>) {
        let (began, mut all, mut trespasses) = (Instant::now(), NeighbourActivity::default(), Vec::new());
        while !done(&all, &trespasses) {
            assert!(began.elapsed() < PATIENCE, "{all:?} {trespasses:?}");
            for note in notes.read_on().unwrap() {
                match note.what {
                    NoteKind::Neighbour(some) => all += some,
                    NoteKind::Trespass { how } => trespasses.push(how),
                    _ => {}
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (all, trespasses)
    }

    /// The planted violation: a grant too many is noticed, and it is the only thing that is.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn it_is_refused_everything_until_it_is_granted_something() {
        let server = Mysql::start(&[]);
        let mut admin = Conn::from_url(server.admin_url()).await.unwrap();
        admin.query_drop("CREATE TABLE tenure_registers AS SELECT 1 AS value").await.unwrap();
        let node = Conn::from_url(server.url("app")).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (notes_to, mut notes) =
            (NoteWriter::in_dir(dir.path(), NAME, 0).unwrap(), NoteReader::of(dir.path()));
        let store = tenure::store::open("memory:neighbour").unwrap();
        let started =
            Neighbour::start(&server.url("app"), store, &Name::new("a").unwrap(), 1, notes_to).await;
        let neighbour = started.unwrap().expect("it is let in");
        let tried = |done: &NeighbourActivity, _: &[String]| {
            done.refused > FORBIDDEN.len() as u64 + 2
                && done.forged > 0
                && done.connections > 0
                && done.locks > 0
        };
        let (_, trespasses) = read_until(&mut notes, tried).await;
        assert_eq!(trespasses, Vec::<String>::new());
        admin.query_drop("GRANT SELECT ON tenure_test.tenure_registers TO 'neighbour'@'%'").await.unwrap();
        let (_, trespasses) = read_until(&mut notes, |_, trespasses| !trespasses.is_empty()).await;
        assert_eq!(trespasses, ["SELECT value FROM tenure_test.tenure_registers was done"]);
        neighbour.end().await.unwrap();
        node.disconnect().await.unwrap();
    }
}

//! One connection: how it is opened, what is found out about the server first, and how statements are sent on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::super::StoreError;
use super::super::link::{self, Memory};
use super::settings::Settings;
use super::witness::Lock;
use super::{STORE, fault, schema};

/// An open connection for operations, one after the other.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) wire: Arc<Mutex<Wire>>,
    /// Whether nothing stands between us and the server.
    pub(super) direct: bool,
    pub(super) is_mariadb: bool,
    pub(super) memory: Memory,
    pub(super) broken: CancellationToken,
}

/// The connection itself, and the locks that it holds for as long as it lives.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) conn: Conn,
    pub(super) locks: BTreeSet<Lock>,
}

impl link::Session for Session {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }
}

impl Session {
    /// Opens a connection for operations, and makes the tables if they are missing.
    pub(super) async fn open(settings: &Settings) -> Result<Self, StoreError> {
        let (mut conn, server) = connect(settings, Some(settings.patience())).await?;
        let (id, rung) = schema::ensure(&mut conn, settings).await?;
        let (server_id, uuid) = (server.get("server_id"), server.get("server_uuid"));
        let database = settings.place.rsplit('/').next().unwrap_or_default();
        let identity = format!("mysql:{server_id}:{uuid}:{database}:{id}");
        let memory = Memory { identity, marks: [Some(rung), server.flushed()] };
        let wire = Arc::new(Mutex::new(Wire { conn, locks: BTreeSet::new() }));
        let is_mariadb = server.is_mariadb();
        Ok(Self { wire, direct: server.direct, is_mariadb, memory, broken: CancellationToken::new() })
    }
}

/// What a server says of itself; a name that it does not know is empty.
#[derive(Debug)]
pub(super) struct Server {
    facts: BTreeMap<String, String>,
    /// Whether the connection has the number that the server knows it by.
    pub(super) direct: bool,
}

impl Server {
    pub(super) async fn ask(conn: &mut Conn) -> mysql_async::Result<Self> {
        let listed = |names: &[&str]| format!("'{}'", names.join("','"));
        let text = format!(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ({}); SHOW GLOBAL STATUS WHERE Variable_name IN ({}); \
             SELECT 'connection', CONNECTION_ID() FROM DUAL",
            listed(&VARIABLES),
            listed(&STATUS)
        );
        let rows = sets(conn, &text).await.map_err(|failed| failed.error)?.into_iter().flatten();
        let pair = |row: Row| Some((row.get::<String, _>(0)?.to_lowercase(), text_of(&row, 1)?));
        let facts: BTreeMap<_, _> = rows.filter_map(pair).collect();
        let direct = facts.get("connection").is_some_and(|id| *id == conn.id().to_string());
        Ok(Self { facts, direct })
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name).to_ascii_uppercase().as_str(), "ON" | "1" | "YES")
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.get("version").to_lowercase().contains("mariadb")
    }

    fn flushed(&self) -> Option<u64> {
        let names = ["innodb_lsn_flushed", "innodb_redo_log_flushed_to_disk_lsn"];
        names.iter().find_map(|name| self.get(name).parse().ok())
    }
}

/// Asked for by name, because MySQL and MariaDB do not know all of each other's.
const VARIABLES: [&str; 15] = [
    "version",
    "server_id",
    "server_uuid",
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "wsrep_on",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "log_bin",
    "sync_binlog",
    "skip_log_bin",
    "max_allowed_packet",
    "rpl_semi_sync_master_enabled",
    "rpl_semi_sync_source_enabled",
];
const STATUS: [&str; 3] = ["Innodb_lsn_flushed", "Innodb_redo_log_flushed_to_disk_lsn", REPLICAS];
/// How many replicas follow, in the server's own word.
pub(super) const REPLICAS: &str = "sla\u{76}es_connected";

/// Opens a connection whose statements may take so long, or as long as they like.
pub(super) async fn connect(
    settings: &Settings,
    patience: Option<Duration>,
) -> Result<(Conn, Server), StoreError> {
    let failed = |error| fault::connecting(&settings.place, &error);
    let mut conn = Conn::new(settings.opts()).await.map_err(failed)?;
    let server = Server::ask(&mut conn).await.map_err(failed)?;
    check(&server, &settings.place)?;
    refuse_replica(&mut conn, &settings.place).await?;
    conn.query_drop(manners(&server, patience)).await.map_err(failed)?;
    Ok((conn, server))
}

/// Every statement is a transaction of its own unless it says otherwise, reads what is committed now, and gives up before
/// we do. A lock can be waited for in whole seconds only.
fn manners(server: &Server, patience: Option<Duration>) -> String {
    let seconds = patience.map_or(1, |patience| patience.as_secs().max(1));
    let limit = match (server.is_mariadb(), patience) {
        (true, patience) => format!("max_statement_time = {}", patience.unwrap_or_default().as_secs_f64()),
        (false, patience) => format!("max_execution_time = {}", patience.unwrap_or_default().as_millis()),
    };
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES', wait_timeout = 2000000, \
         innodb_lock_wait_timeout = {seconds}, {limit}"
    )
}

fn check(server: &Server, place: &str) -> Result<(), StoreError> {
    let refuse = |why: &str| Err(StoreError::not_applied(STORE, format!("{place}: {why}")).permanent());
    for name in ["read_only", "super_read_only", "innodb_read_only"] {
        if server.is_on(name) {
            return refuse(&format!("{name} is on: the server is a replica, or read-only; name the primary"));
        }
    }
    Ok(())
}

/// A replica that takes writes is another memory than its primary, and both would elect. Whoever may not ask is trusted
/// to name the primary.
async fn refuse_replica(conn: &mut Conn, place: &str) -> Result<(), StoreError> {
    match conn.query::<Row, _>("SHOW REPLICA STATUS").await {
        Ok(rows) if !rows.is_empty() => {
            let message = format!("{place}: the server replicates another one: name the primary");
            Err(StoreError::not_applied(STORE, message).permanent())
        }
        _ => Ok(()),
    }
}

/// A text of several statements that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: mysql_async::Error,
    /// No statement after this one was begun; the first is 0.
    pub(super) at_most: usize,
}

/// Sends several statements at once, and gives the rows of those that have any. The first that fails ends it.
pub(super) async fn sets(conn: &mut Conn, text: &str) -> Result<Vec<Vec<Row>>, Failed> {
    let mut result = conn.query_iter(text).await.map_err(|error| Failed { error, at_most: 0 })?;
    let (mut sets, mut at_most) = (Vec::new(), 0);
    loop {
        at_most += 1;
        let has_rows = !result.columns_ref().is_empty();
        let mut rows = Vec::new();
        while let Some(row) = result.next().await.map_err(|error| Failed { error, at_most })? {
            rows.push(row);
        }
        if has_rows {
            sets.push(rows);
        }
        if result.is_empty() {
            // The error of a later statement is kept for whoever asks once more.
            return result.drop_result().await.map(|()| sets).map_err(|error| Failed { error, at_most });
        }
    }
}

/// A column as text, whatever the server calls its type.
pub(super) fn text_of(row: &Row, column: usize) -> Option<String> {
    use mysql_async::Value;
    match row.as_ref(column)? {
        Value::Bytes(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        _ => None,
    }
}

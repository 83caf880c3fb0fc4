//! One connection: how it is opened, what is found out about the server first, and how statements are sent on it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::settings::MysqlSettings;
use super::{STORE, error, schema};
use tenure_store::StoreError;
use tenure_store::kit::connection::{self, DataIdentity};
use tenure_store::kit::liveness::LockNumber;

/// An open connection for operations, one after the other.
#[derive(Debug)]
pub(super) struct MysqlConnection {
    pub(super) wire: Arc<Mutex<Wire>>,
    /// Whether nothing stands between us and the server.
    pub(super) direct: bool,
    /// Whether its locks can be liveness locks.
    pub(super) has_locks: bool,
    pub(super) is_mariadb: bool,
    pub(super) data: DataIdentity,
    pub(super) broken: CancellationToken,
}

/// The connection itself, and the locks that it holds for as long as it lives.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) conn: Conn,
    pub(super) locks: BTreeSet<LockNumber>,
    pub(super) is_galera: bool,
}

impl connection::Connection for MysqlConnection {
    fn broken(&self) -> &CancellationToken {
        &self.broken
    }

    fn data_identity(&self) -> &DataIdentity {
        &self.data
    }
}

impl MysqlConnection {
    /// Opens a connection for operations, and makes the tables if they are missing.
    pub(super) async fn open(settings: &MysqlSettings) -> Result<Self, StoreError> {
        let (mut conn, server) = connect(settings, Some(settings.patience())).await?;
        let (id, notified) = schema::ensure(&mut conn, settings, server.is_galera()).await?;
        let (server_id, uuid) = (server.get("server_id"), server.uuid());
        let database = settings.place.rsplit('/').next().unwrap_or_default();
        let identity = format!("mysql:{server_id}:{uuid}:{database}:{id}");
        let data = DataIdentity { identity, marks: [Some(notified), server.flushed()] };
        let wire = Arc::new(Mutex::new(Wire { conn, locks: BTreeSet::new(), is_galera: server.is_galera() }));
        let (direct, has_locks, is_mariadb) = (server.direct, server.has_locks(), server.is_mariadb());
        Ok(Self { wire, direct, has_locks, is_mariadb, data, broken: CancellationToken::new() })
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

    /// Whether it is a member of a Galera cluster: each takes writes, and each has locks of its own.
    pub(super) fn is_galera(&self) -> bool {
        self.is_on("wsrep_on")
    }

    /// Which server it is, if it tells. Members of a Galera cluster often share their `server_id`, and MariaDB has no
    /// `server_uuid`; the cluster itself gives each member a name of its own when that starts.
    pub(super) fn uuid(&self) -> &str {
        self.get(if self.is_galera() { MEMBER } else { "server_uuid" })
    }

    /// Whether the locks of this connection can be liveness locks: nothing stands between, and of many servers it is known which.
    pub(super) fn has_locks(&self) -> bool {
        self.direct && !(self.is_galera() && self.uuid().is_empty())
    }

    /// What it says of semi-synchronous replication: MySQL and MariaDB have a word of their own for the server that sends.
    pub(super) fn semi_sync(&self, what: &str) -> &str {
        let names = ["master", "source"].map(|sender| format!("rpl_semi_sync_{sender}_{what}"));
        names.iter().map(|name| self.get(name)).find(|value| !value.is_empty()).unwrap_or_default()
    }

    fn flushed(&self) -> Option<u64> {
        let names = ["innodb_lsn_flushed", "innodb_redo_log_flushed_to_disk_lsn"];
        names.iter().find_map(|name| self.get(name).parse().ok())
    }
}

/// Asked for by name, because MySQL and MariaDB do not know all of each other's.
const VARIABLES: [&str; 17] = [
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
    "rpl_semi_sync_master_timeout",
    "rpl_semi_sync_source_timeout",
    "rpl_semi_sync_master_wait_point",
    "rpl_semi_sync_source_wait_point",
];
const STATUS: [&str; 8] = [
    "Innodb_lsn_flushed",
    "Innodb_redo_log_flushed_to_disk_lsn",
    "Rpl_semi_sync_master_status",
    "Rpl_semi_sync_source_status",
    "Rpl_semi_sync_master_clients",
    "Rpl_semi_sync_source_clients",
    REPLICAS,
    MEMBER,
];
/// The name of a member of a Galera cluster.
const MEMBER: &str = "wsrep_gcomm_uuid";
/// How many replicas follow, in the server's own word.
pub(super) const REPLICAS: &str = "slaves_connected";

/// Opens a connection whose statements may take so long, or as long as they like.
pub(super) async fn connect(
    settings: &MysqlSettings,
    patience: Option<Duration>,
) -> Result<(Conn, Server), StoreError> {
    let failed = |error| error::connecting(&settings.place, &error);
    let mut conn = Conn::new(settings.opts()).await.map_err(failed)?;
    let server = Server::ask(&mut conn).await.map_err(failed)?;
    check(&server, &settings.place)?;
    refuse_replica(&mut conn, &settings.place).await?;
    conn.query_drop(manners(&server, patience)).await.map_err(failed)?;
    Ok((conn, server))
}

/// Every statement is a transaction of its own unless it says otherwise, reads what is committed now, and gives up before
/// we do. A lock, of rows or of a table, can be waited for in whole seconds only; on MySQL no other limit ends a write.
fn manners(server: &Server, patience: Option<Duration>) -> String {
    let seconds = patience.map_or(1, |patience| patience.as_secs().max(1));
    let limit = match (server.is_mariadb(), patience) {
        (true, patience) => format!("max_statement_time = {}", patience.unwrap_or_default().as_secs_f64()),
        (false, patience) => format!("max_execution_time = {}", patience.unwrap_or_default().as_millis()),
    };
    format!(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
         SET SESSION autocommit = 1, sql_mode = 'STRICT_TRANS_TABLES', wait_timeout = 2000000, \
         innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}, {limit}"
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

/// A replica that takes writes has other data than its primary, and both would elect. A login that may not ask is trusted
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
            // The error of a later statement is kept for the next call.
            return result.drop_result().await.map(|()| sets).map_err(|error| Failed { error, at_most });
        }
    }
}

/// Sends a statement that changes rows and one that has rows, at once: how many were changed, and the rows.
pub(super) async fn change_and_read(conn: &mut Conn, text: &str) -> Result<(u64, Vec<Row>), Failed> {
    let mut result = conn.query_iter(text).await.map_err(|error| Failed { error, at_most: 0 })?;
    let changed = result.affected_rows();
    let late = |error| Failed { error, at_most: 1 };
    result.collect::<Row>().await.map_err(late)?;
    let rows = result.collect::<Row>().await.map_err(late)?;
    result.drop_result().await.map_err(late)?;
    Ok((changed, rows))
}

/// The same, one after the other.
pub(super) async fn change_then_read(
    conn: &mut Conn,
    change: &str,
    question: &str,
) -> Result<(u64, Vec<Row>), Failed> {
    conn.query_drop(change).await.map_err(|error| Failed { error, at_most: 0 })?;
    let changed = conn.affected_rows();
    Ok((changed, conn.query(question).await.map_err(|error| Failed { error, at_most: 1 })?))
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

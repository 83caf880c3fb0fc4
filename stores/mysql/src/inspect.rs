//! What the live server is, and what it can promise.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};

use super::connection::{REPLICAS, Server, text_of};
use super::error::{self, OperationError};
use super::operations::Operations;
use super::settings::MysqlSettings;
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, StoreError};

const TABLES: &str = "SELECT
    (SELECT GROUP_CONCAT(DISTINCT ENGINE) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME IN ('tenure_registers', 'tenure_notifier', 'tenure_deletions')),
    (SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()
        AND EVENT_OBJECT_TABLE = 'tenure_registers' AND TRIGGER_NAME LIKE 'tenure%')";

/// Rights that elections do not need.
const EXCESS: &str = "rights wider than needed: this login may do everything on this server; docs/stores/mysql.md has \
    what a login of its own needs";

/// How many threads there are, and how many of them send to a replica. MySQL has no status that would say so.
const SENDERS: &str = "SELECT COUNT(*), COALESCE(SUM(PROCESSLIST_COMMAND LIKE 'Binlog Dump%'), 0) \
    FROM performance_schema.threads";

/// MySQL has a binary log by default, and shows replicas to few.
const UNSEEN: &str = "this login cannot see whether replicas follow this server, which would make it class C: GRANT SELECT \
    (PROCESSLIST_COMMAND) ON performance_schema.threads TO this login";

/// What was found out.
struct Found {
    server: Server,
    /// How many replicas follow; none if this user may not see that.
    replicas: Option<u64>,
    engines: String,
    /// None if this user may not see triggers.
    triggers: Option<u64>,
    has_locks: bool,
}

/// Asks the server.
pub(super) async fn describe(
    settings: &MysqlSettings,
    operations: &Operations,
    state: &ListenerState,
) -> Result<Description, StoreError> {
    let connection = operations.connection().await?;
    let ask = operations.ask(|mut wire| async move {
        let conn = &mut wire.conn;
        let server = Server::ask(conn).await?;
        let replicas = replicas(conn, &server).await?;
        let tables: Option<(Option<String>, u64)> = conn.query_first(TABLES).await?;
        let grants: Vec<String> = conn.query("SHOW GRANTS").await?;
        Ok((server, replicas, tables.unwrap_or_default(), grants))
    });
    let (server, replicas, (engines, triggers), grants) = ask.await?;
    let may_see = grants.iter().any(|grant| grant.contains("TRIGGER") || grant.contains("ALL PRIVILEGES"));
    let triggers = (may_see || triggers > 0).then_some(triggers);
    let engines = engines.unwrap_or_default();
    let found = Found { server, replicas, engines, triggers, has_locks: connection.has_locks };
    let mut remarks = weaknesses(&found);
    let class = if remarks.is_empty() { Class::B } else { Class::C };
    remarks.extend(doubts(&found, settings, state));
    if grants.iter().any(|grant| grant.contains("ALL PRIVILEGES ON *.*") || grant.contains(" SUPER")) {
        remarks.push(EXCESS.to_owned());
    }
    let product = if found.server.is_mariadb() { "MariaDB" } else { "MySQL" };
    let mut described = Description::new(
        class,
        connection.data.identity.clone(),
        format!("{product} {}, {}", found.server.get("version"), settings.place),
    );
    described.notifies = *state == ListenerState::Works;
    described.connection_liveness_locks = found.has_locks;
    described.remarks = remarks;
    Ok(described)
}

/// How many replicas follow, if this user may see that.
async fn replicas(conn: &mut Conn, server: &Server) -> Result<Option<u64>, OperationError> {
    if server.is_mariadb() {
        return Ok(server.get(REPLICAS).parse().ok());
    }
    let count = |row: &Row, column| text_of(row, column).and_then(|count| count.parse::<u64>().ok());
    match conn.query_first::<Row, _>(SENDERS).await {
        // A server that does not look at itself has no threads to show.
        Ok(row) => Ok(row.filter(|row| count(row, 0) > Some(0)).and_then(|row| count(&row, 1))),
        Err(error) if error::code(&error).is_some() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Why acknowledged writes can vanish.
fn weaknesses(found: &Found) -> Vec<String> {
    let (server, mut weak) = (&found.server, Vec::new());
    let mut say = |wrong: bool, what: &str| {
        if wrong {
            weak.push(what.to_owned());
        }
    };
    say(
        server.is_galera(),
        "this is a Galera cluster: a node that is cut off or crashes can take acknowledged writes with it, and two nodes \
         can accept conflicting ones for a moment; only the token protects. Changes made on another member are found \
         at the next beat",
    );
    say(
        !matches!(server.get("innodb_flush_log_at_trx_commit"), "1" | "3"),
        "innodb_flush_log_at_trx_commit is not 1: a crash of the machine can lose acknowledged writes; set it to 1",
    );
    say(
        server.is_on("log_bin") && server.get("sync_binlog") != "1",
        "the binary log is on and sync_binlog is not 1: after a crash of the machine, what is missing there is rolled \
         back; set it to 1",
    );
    say(
        server.get("innodb_doublewrite").eq_ignore_ascii_case("off"),
        "innodb_doublewrite is off: a torn page can lose acknowledged writes; switch it on",
    );
    say(
        found.engines != "InnoDB",
        "the tables are not all of InnoDB, which alone keeps what it acknowledged: ALTER TABLE … ENGINE = InnoDB",
    );
    weak.extend(unconfirmed(server, found.replicas.unwrap_or_default()));
    weak
}

/// Why a replica may lack what was acknowledged. What counts is what the server does: one that is set to wait for its replicas
/// stops waiting when none answers in time, or waits only after it has shown the write to others.
fn unconfirmed(server: &Server, replicas: u64) -> Option<String> {
    let confirming = server.semi_sync("clients").parse::<u64>().unwrap_or_default();
    let is_on = server.semi_sync("status").eq_ignore_ascii_case("on");
    let why = match () {
        () if replicas == 0 => return None,
        () if !is_on => {
            "asynchronous replicas follow this server (semi-synchronous replication is off, or has fallen back)"
        }
        () if confirming < replicas => {
            "not every replica of this server confirms writes (semi-synchronous replication)"
        }
        () if !server.semi_sync("wait_point").eq_ignore_ascii_case("AFTER_SYNC") => {
            "semi-synchronous replication waits only after others can read a write: set its wait point to AFTER_SYNC"
        }
        () => return None,
    };
    Some(format!(
        "{why}: promoting a replica can lose acknowledged writes, and then only the token protects; use semi-synchronous \
         replication with every replica"
    ))
}

/// A server that waits this long for its replicas never falls back in practice.
const PATIENT_MS: u64 = 3_600_000;

/// What is weaker than it could be.
fn doubts(found: &Found, settings: &MysqlSettings, state: &ListenerState) -> Vec<String> {
    let mut doubts = Vec::new();
    if found.server.direct && !found.has_locks {
        doubts.push(
            "this Galera member does not tell its name (wsrep_gcomm_uuid), and its locks are its own: on-disconnect is \
             refused, sessions are strict"
                .to_owned(),
        );
    }
    if !found.server.direct || *state == ListenerState::Pooled {
        doubts.push(
            "a proxy stands between (the server knows this connection by another number): changes are found at the next \
             beat only, and a session cannot be known by its connection; name the server itself"
                .to_owned(),
        );
    } else if let ListenerState::Failed(why) = state {
        doubts.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    if found.triggers.is_some_and(|triggers| triggers < 2) {
        doubts.push(
            "triggers that guard tokens against hands are missing: let an administrator with SUPER run what `tenure schema --for mysql` prints, \
             or set log_bin_trust_function_creators = 1 and run it again"
                .to_owned(),
        );
    }
    if found.replicas.is_none() && found.server.is_on("log_bin") {
        doubts.push(UNSEEN.to_owned());
    }
    let falls_back = found.server.semi_sync("timeout").parse().is_ok_and(|limit: u64| limit < PATIENT_MS);
    if falls_back && found.server.semi_sync("clients").parse().is_ok_and(|replicas: u64| replicas > 0) {
        doubts.push(format!(
            "semi-synchronous replication falls back to asynchronous after {} ms without an answer, and then this is class C: \
             set its timeout to more than an hour",
            found.server.semi_sync("timeout")
        ));
    }
    doubts.extend(settings.warning().map(str::to_owned));
    doubts
}

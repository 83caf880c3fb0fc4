//! What the live server is, and what it can promise.

use mysql_async::prelude::Queryable;

use super::super::hearing::Hearing;
use super::super::{Class, Description, StoreError};
use super::link::Link;
use super::session::{REPLICAS, Server};
use super::settings::Settings;

const TABLES: &str = "SELECT
    (SELECT GROUP_CONCAT(DISTINCT ENGINE) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()
        AND TABLE_NAME IN ('tenure_registers', 'tenure_bell', 'tenure_deletions')),
    (SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE()
        AND EVENT_OBJECT_TABLE = 'tenure_registers' AND TRIGGER_NAME LIKE 'tenure%')";

/// What was found out.
struct Found {
    server: Server,
    engines: String,
    /// None if this user may not see triggers.
    triggers: Option<u64>,
    direct: bool,
}

/// Asks the server.
pub(super) async fn describe(
    settings: &Settings,
    link: &Link,
    hearing: &Hearing,
) -> Result<Description, StoreError> {
    let session = link.session().await?;
    let ask = link.ask(|mut wire| async move {
        let conn = &mut wire.conn;
        let server = Server::ask(conn).await?;
        let tables: Option<(Option<String>, u64)> = conn.query_first(TABLES).await?;
        let may_see: Vec<String> = conn.query("SHOW GRANTS").await?;
        let may_see =
            may_see.iter().any(|grant| grant.contains("TRIGGER") || grant.contains("ALL PRIVILEGES"));
        Ok((server, tables.unwrap_or_default(), may_see))
    });
    let (server, (engines, triggers), may_see) = ask.await?;
    let triggers = (may_see || triggers > 0).then_some(triggers);
    let found = Found { server, engines: engines.unwrap_or_default(), triggers, direct: session.direct };
    let mut remarks = weaknesses(&found);
    let class = if remarks.is_empty() { Class::B } else { Class::C };
    remarks.extend(doubts(&found, settings, hearing));
    let product = if found.server.is_mariadb() { "MariaDB" } else { "MySQL" };
    Ok(Description {
        class,
        identity: session.memory.identity.clone(),
        about: format!("{product} {}, {}", found.server.get("version"), settings.place),
        rings: *hearing == Hearing::Works,
        witnesses_death: false,
        witnesses_disconnect: found.direct,
        remarks,
    })
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
        server.is_on("wsrep_on"),
        "this is a Galera cluster: a node that is cut off or crashes can take acknowledged writes with it, and two nodes \
         can accept conflicting ones for a moment; only the token protects",
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
    let semi = ["rpl_semi_sync_master_enabled", "rpl_semi_sync_source_enabled"];
    let replicas: u64 = server.get(REPLICAS).parse().unwrap_or_default();
    say(
        replicas > 0 && !semi.iter().any(|name| server.is_on(name)),
        "asynchronous replicas follow this server: promoting one can lose acknowledged writes, and then only the token \
         protects; use semi-synchronous replication",
    );
    weak
}

/// What is weaker than it could be.
fn doubts(found: &Found, settings: &Settings, hearing: &Hearing) -> Vec<String> {
    let mut doubts = Vec::new();
    if !found.direct || *hearing == Hearing::Pooled {
        doubts.push(
            "a proxy stands between (the server knows this connection by another number): changes are found at the next \
             beat only, and a session cannot be known by its connection; name the server itself"
                .to_owned(),
        );
    } else if let Hearing::Failed(why) = hearing {
        doubts.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    if found.triggers.is_some_and(|triggers| triggers < 2) {
        doubts.push(
            "triggers that guard tokens against hands are missing: let somebody with SUPER run the DDL of docs/stores.md, \
             or set log_bin_trust_function_creators = 1 and run it again"
                .to_owned(),
        );
    }
    if !settings.encrypted && !settings.local {
        doubts.push(
            "the connection is not encrypted: add sslmode=verify-full, and ca=/path/to/ca.pem if the authority is yours"
                .to_owned(),
        );
    }
    doubts
}

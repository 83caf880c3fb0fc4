//! What the live server is, and what it can promise.

use tokio_postgres::Row;

use super::super::hearing::Hearing;
use super::super::{Class, Description, StoreError};
use super::link::Link;
use super::settings::Settings;

/// Physical replicas are senders of log that no logical slot owns: a consumer of changes is never promoted.
const INSPECT: &str = "
SELECT current_setting('server_version') AS version, current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_standby_names') AS standbys,
    (SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass('tenure_registers')) AS persistence,
    (SELECT count(*) FROM pg_stat_replication r WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots s
        WHERE s.active_pid = r.pid AND s.slot_type = 'logical')) AS replicas,
    (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = to_regclass('tenure_registers')
        AND t.tgname LIKE 'tenure\\_%' AND t.tgenabled IN ('O', 'A')) AS triggers";

/// Asks the server.
pub(super) async fn describe(
    settings: &Settings,
    link: &Link,
    hearing: &Hearing,
) -> Result<Description, StoreError> {
    let ask = |session: std::sync::Arc<super::session::Session>| async move {
        let found = session.client.query_typed_one(INSPECT, &[]).await?;
        Ok((found, session.memory.identity.clone(), session.direct))
    };
    let (found, identity, direct) = link.ask(ask).await?;
    let weak = weaknesses(&found);
    let class = if weak.is_empty() { Class::B } else { Class::C };
    let mut remarks = weak;
    remarks.extend(doubts(&found, settings, direct, hearing));
    Ok(Description {
        class,
        identity,
        about: format!("PostgreSQL {}, {}", found.get::<_, &str>("version"), settings.place),
        rings: *hearing == Hearing::Works,
        witnesses_death: false,
        witnesses_disconnect: direct && *hearing == Hearing::Works,
        remarks,
    })
}

/// Why acknowledged writes can vanish.
fn weaknesses(found: &Row) -> Vec<String> {
    let mut weak = Vec::new();
    for (setting, what) in [("fsync", "a crash of the machine"), ("full_page_writes", "a torn page")] {
        if !found.get::<_, bool>(setting) {
            weak.push(format!("{setting} is off: {what} can lose acknowledged writes; switch it on"));
        }
    }
    if found.get::<_, &str>("persistence") != "p" {
        weak.push(
            "tenure_registers is not logged, and empty after a crash: ALTER TABLE tenure_registers SET LOGGED".to_owned(),
        );
    }
    let replicas: i64 = found.get("replicas");
    if replicas > 0 && found.get::<_, &str>("standbys").is_empty() {
        weak.push(format!(
            "{replicas} asynchronous replicas: promoting one can lose acknowledged writes, and then only the token \
             protects; set synchronous_standby_names"
        ));
    }
    weak
}

/// What is weaker than it could be.
fn doubts(found: &Row, settings: &Settings, direct: bool, hearing: &Hearing) -> Vec<String> {
    let mut doubts = Vec::new();
    if !direct || *hearing == Hearing::Pooled {
        doubts.push(
            "a connection pooler stands between (it refuses or drops the settings of a session, or changes the server \
             process): changes are found at the next beat only, and dropped connections cannot be told, so that \
             on-disconnect is refused and sessions are strict; name the server itself, not the pooler"
                .to_owned(),
        );
    } else if let Hearing::Failed(why) = hearing {
        doubts.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    if found.get::<_, i64>("triggers") < 4 {
        doubts.push(
            "triggers that guard tokens are missing or disabled: run the DDL of docs/stores.md again"
                .to_owned(),
        );
    }
    if settings.tls.is_none() && !settings.local {
        doubts.push(
            "the connection is not encrypted: add sslmode=verify-full, and ca=/path/to/ca.pem if the authority is yours"
                .to_owned(),
        );
    }
    doubts
}

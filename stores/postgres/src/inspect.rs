//! What the live server is, and what it can promise.

use tokio_postgres::Row;

use super::operations::Operations;
use super::settings::PostgresSettings;
use tenure_store::kit::listener::ListenerState;
use tenure_store::{Class, Description, StoreError};

/// Physical replicas are senders of log that no logical slot owns: a consumer of changes is never promoted.
pub(super) const INSPECT: &str = "
SELECT current_setting('server_version') AS version, current_setting('fsync') = 'on' AS fsync,
    current_setting('full_page_writes') = 'on' AS full_page_writes,
    current_setting('synchronous_standby_names') AS standbys,
    (SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass('tenure_registers')) AS persistence,
    (SELECT count(*) FROM pg_stat_replication r WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots s
        WHERE s.active_pid = r.pid AND s.slot_type = 'logical')) AS replicas,
    (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = to_regclass('tenure_registers')
        AND t.tgname LIKE 'tenure\\_%' AND t.tgenabled IN ('O', 'A')) AS triggers,
    (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
    has_table_privilege('public', to_regclass('tenure_registers'), 'INSERT, UPDATE, DELETE') AS every_login";

/// Asks the server.
pub(super) async fn describe(
    settings: &PostgresSettings,
    operations: &Operations,
    state: &ListenerState,
) -> Result<Description, StoreError> {
    let ask = |connection: std::sync::Arc<super::connection::PostgresConnection>| async move {
        let found = connection.inspect().await?;
        Ok((found, connection.data.identity.clone(), connection.direct))
    };
    let (found, identity, direct) = operations.ask(ask).await?;
    let weak = weaknesses(&found);
    let class = if weak.is_empty() { Class::B } else { Class::C };
    let mut remarks = weak;
    remarks.extend(doubts(&found, settings, direct, state));
    let mut described = Description::new(
        class,
        identity,
        format!("PostgreSQL {}, {}", found.get::<_, &str>("version"), settings.place),
    );
    described.notifies = *state == ListenerState::Works;
    described.connection_liveness_locks = direct && *state == ListenerState::Works;
    described.remarks = remarks;
    Ok(described)
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
fn doubts(found: &Row, settings: &PostgresSettings, direct: bool, state: &ListenerState) -> Vec<String> {
    let mut doubts = Vec::new();
    if !direct || *state == ListenerState::Pooled {
        doubts.push(
            "a connection pooler stands between (it refuses or drops the settings of a session, or changes the server \
             process): changes are found at the next beat only, and dropped connections cannot be told, so that \
             on-disconnect is refused and sessions are strict; name the server itself, not the pooler"
                .to_owned(),
        );
    } else if let ListenerState::Failed(why) = state {
        doubts.push(format!("changes are found at the next beat only, because listening failed: {why}"));
    }
    if found.get::<_, i64>("triggers") < 4 {
        doubts.push(
            "triggers that guard tokens are missing or disabled: run what `tenure schema --for postgres` prints again"
                .to_owned(),
        );
    }
    doubts.extend(settings.warning().map(str::to_owned));
    doubts.extend(excess(found));
    doubts
}

/// Rights that elections do not need.
fn excess(found: &Row) -> Vec<String> {
    let mut excess = Vec::new();
    if found.get("superuser") {
        excess.push(
            "rights wider than needed: this login is a superuser, and its password opens every database of the server; \
             docs/stores/postgres.md has what a login of its own needs"
                .to_owned(),
        );
    }
    if found.get("every_login") {
        excess.push(
            "rights wider than needed: every login can write registers; REVOKE ALL ON tenure_registers FROM PUBLIC"
                .to_owned(),
        );
    }
    excess
}

//! The tables, made on first use where this user may.

use tokio_postgres::Client;

use super::super::StoreError;
use super::super::hash::hash;
use super::settings::Settings;
use super::{STORE, fault};

/// The tables, triggers, functions and the view.
pub(super) const DDL: &str = include_str!("schema.sql");

/// What a user needs who makes no tables.
pub(super) const GRANTS: &str = "\
GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO USER;
GRANT SELECT ON tenure_schema, tenure_leaders TO USER;
";

/// The schema version that this build speaks.
const CURRENT: i32 = 1;

/// Makes the tables if they are missing, and refuses those of a newer version. Gives the id of this memory.
pub(super) async fn ensure(client: &Client, settings: &Settings) -> Result<String, StoreError> {
    let failed = |error| fault::connecting(&settings.place, &error);
    let exists =
        "SELECT to_regclass('tenure_schema') IS NOT NULL AND to_regproc('tenure_write_v2') IS NOT NULL";
    if !client.query_typed_one(exists, &[]).await.map_err(failed)?.get::<_, bool>(0) {
        // Nodes that start at the same time make them one after the other.
        let turn = hash(&["tenure schema"]);
        let make = format!(
            "BEGIN; SELECT pg_advisory_xact_lock({turn}); SET LOCAL client_min_messages = warning; {DDL} COMMIT;"
        );
        if let Err(error) = client.batch_execute(&make).await {
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(failed(error));
        }
    }
    let found = client.query_typed_one("SELECT version, id FROM tenure_schema", &[]).await.map_err(failed)?;
    let version: i32 = found.get(0);
    if version != CURRENT {
        let message = format!(
            "{}: the tables were made by another version of tenure (schema {version}; this one knows {CURRENT}): use that \
             version, or another schema or database",
            settings.place
        );
        return Err(StoreError::not_applied(STORE, message).permanent());
    }
    Ok(found.get(1))
}

//! The tables, made on first use where this user may.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::settings::PostgresSettings;
use super::{STORE, error};
use tenure_store::kit::hash::hash;
use tenure_store::{Retry, SetupRequest, StoreError};

/// The tables, triggers, functions and the view.
const DDL: &str = include_str!("schema.sql");

/// What a user needs who makes no tables.
const GRANTS: &str = "\
GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO USER;
GRANT SELECT ON tenure_schema, tenure_leaders TO USER;
";

/// What `tenure schema` prints.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let grants = GRANTS.replace("USER", &format!("\"{}\"", request.user));
    format!(
        "-- The schema of the tables: one for all nodes. If it is not on their search path, their URLs name it \
         (schema=NAME).\nSET search_path = public, pg_temp;\n\n{DDL}\n{grants}"
    )
}

/// How often a node tries to make the tables while others do.
const TRIES: u32 = 10;

/// The schema version that this build speaks.
const CURRENT: i32 = 1;

/// The schemas in which this user can find registers; the one that its search path leads to, first. Beside that one, only
/// those count that its owner, this login, the database's owner or a superuser has made: any login that has a schema could
/// otherwise put a table of that name into it, and no node would start any more. All of it is read from one snapshot:
/// `to_regclass` has one of its own, and may not know a table yet that the rest of the query sees.
const FIND: &str = "
WITH o AS (
    SELECT c.oid, c.relowner
    FROM unnest(current_schemas(false)) WITH ORDINALITY AS path (name, nth)
        JOIN pg_namespace n ON n.nspname = path.name JOIN pg_class c ON c.relnamespace = n.oid
    WHERE c.relname = 'tenure_schema' ORDER BY path.nth LIMIT 1)
SELECT n.nspname::text, c.oid IS NOT DISTINCT FROM o.oid AS leads_there
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.oid = c.relowner
    LEFT JOIN o ON true
WHERE c.relname = 'tenure_schema' AND c.relkind = 'r' AND n.nspname !~ '^pg_'
    AND has_schema_privilege(n.oid, 'USAGE')
    AND (o.oid IS NULL OR c.oid = o.oid OR c.relowner = o.relowner OR r.rolsuper OR r.rolname = current_user
        OR c.relowner = (SELECT datdba FROM pg_database WHERE datname = current_database()))
ORDER BY 2 DESC, 1";

/// Whether the tables in that schema are as this build makes them.
const COMPLETE: &str = "
SELECT count(*) = 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = $1 AND p.proname = 'tenure_write_v2' AND p.proconfig IS NOT NULL
    AND p.prosrc LIKE '%pg_stat_get_activity%'";

/// Whose turn it is to make the tables. Every login can know the number, and one that holds the lock for long is not waited
/// for: two that make tables at once wait for each other in the catalog, and one of them has to try again.
fn turn() -> String {
    let turn = hash(&["tenure schema"]);
    format!(
        "DO $$ BEGIN SET LOCAL lock_timeout = '250ms'; PERFORM pg_advisory_xact_lock({turn}); \
         EXCEPTION WHEN lock_not_available THEN NULL; END $$; SET LOCAL lock_timeout TO DEFAULT"
    )
}

/// The tables of one database.
#[derive(Debug)]
pub(super) struct Tables {
    /// The schema that they are in, quoted.
    pub(super) schema: String,
    /// The id of these tables.
    pub(super) id: String,
}

/// Finds the tables, makes them if they are missing, and refuses those of a newer version.
pub(super) async fn ensure(client: &Client, settings: &PostgresSettings) -> Result<Tables, StoreError> {
    let failed = |error| error::connecting(&settings.place, &error);
    let schema = find_or_make(client, settings).await?;
    let ask = format!("SELECT version, id FROM {schema}.tenure_schema");
    let found = client.query_typed_one(&ask, &[]).await.map_err(failed)?;
    let version: i32 = found.get(0);
    if version != CURRENT {
        return Err(refuse(
            settings,
            &format!(
                "the tables were made by another version of tenure (schema {version}; this one knows {CURRENT}): use \
                 that version, or another schema or database"
            ),
        ));
    }
    Ok(Tables { schema, id: found.get(1) })
}

/// Gives the schema, quoted. A node that another one disturbed while both made the tables looks again what is there.
async fn find_or_make(client: &Client, settings: &PostgresSettings) -> Result<String, StoreError> {
    let mut tries = 1;
    loop {
        if let Some(name) = find(client, settings).await?
            && is_complete(client, &name).await.map_err(|error| error::connecting(&settings.place, &error))?
        {
            return Ok(quoted(&name));
        }
        if !settings.create {
            return Err(StoreError::unused(STORE, &format!("{} has no tables of tenure", settings.place)));
        }
        match make(client, settings).await {
            Err(error) if tries < TRIES && error.retry() == Retry::Soon && !client.is_closed() => tries += 1,
            made => return made,
        }
    }
}

/// The schema that the URL names, or the only one with registers; none if there are none yet. Two logins with different
/// search paths never get two stores by accident: one of them is told to say which.
async fn find(client: &Client, settings: &PostgresSettings) -> Result<Option<String>, StoreError> {
    if let Some(named) = &settings.schema {
        return Ok(Some(named.clone()));
    }
    let found = client.query_typed(FIND, &[]).await;
    let found = found.map_err(|error| error::connecting(&settings.place, &error))?;
    let names: Vec<&str> = found.iter().map(|row| row.get(0)).collect();
    match (&names[..], found.first().is_some_and(|row| row.get(1))) {
        ([], _) => Ok(None),
        ([only], true) => Ok(Some((*only).to_owned())),
        ([only], false) => Err(refuse(
            settings,
            &format!(
                "the registers of this database are in schema {only:?}, to which the search_path of this login does not \
                 lead: add schema={only} to the URL, or schema=NAME for a store of its own"
            ),
        )),
        (several, _) => Err(refuse(
            settings,
            &format!(
                "there are registers in several schemas ({}): say which, with schema=NAME in the URL, the same for all \
                 nodes",
                several.join(", ")
            ),
        )),
    }
}

async fn is_complete(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_typed_one(COMPLETE, &[(&name, Type::TEXT)]).await?.get(0))
}

/// Makes the tables. Nodes that start at the same time do so one after the other, and the second finds those of the
/// first. Gives the schema, quoted.
async fn make(client: &Client, settings: &PostgresSettings) -> Result<String, StoreError> {
    let failed = |error| error::connecting(&settings.place, &error);
    let work = async {
        let begin = format!("BEGIN; {}; SET LOCAL client_min_messages = warning", turn());
        client.batch_execute(&begin).await.map_err(failed)?;
        let name = match find(client, settings).await? {
            Some(name) => name,
            None => first_of_path(client, settings).await?,
        };
        let schema = quoted(&name);
        let make = format!("SET LOCAL search_path = {schema}, pg_temp; {DDL} COMMIT");
        client.batch_execute(&make).await.map_err(failed)?;
        Ok(schema)
    };
    let made = work.await;
    if made.is_err() {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    made
}

async fn first_of_path(client: &Client, settings: &PostgresSettings) -> Result<String, StoreError> {
    let found = client.query_typed_one("SELECT current_schema()::text", &[]).await;
    let found = found.map_err(|error| error::connecting(&settings.place, &error))?;
    found.get::<_, Option<String>>(0).ok_or_else(|| {
        refuse(settings, "the search_path of this login leads to no schema: add schema=NAME to the URL")
    })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn refuse(settings: &PostgresSettings, why: &str) -> StoreError {
    StoreError::not_applied(STORE, format!("{}: {why}", settings.place)).permanent()
}

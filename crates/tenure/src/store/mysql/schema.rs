//! The tables, made on first use where this user may.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::super::StoreError;
use super::settings::Settings;
use super::{STORE, fault};

/// The tables, the view, the triggers, as the `mysql` client reads them.
pub(super) const DDL: &str = include_str!("schema.sql");

/// What a user needs who does not make them.
pub(super) const GRANTS: &str = include_str!("grants.sql");

/// The schema version that this build speaks.
const CURRENT: i64 = 1;

/// With the binary log on, only some may make triggers; the rest is worth having without them.
const NO_TRIGGERS: [u16; 3] = [1419, 1227, 1142];

/// Makes the tables if they are missing, and refuses those of a newer version. Gives the id of this memory, and the number
/// of the last ring.
pub(super) async fn ensure(conn: &mut Conn, settings: &Settings) -> Result<(String, u64), StoreError> {
    let failed = |error| fault::connecting(&settings.place, &error);
    let mut found = look(conn).await;
    let missing = |error: &mysql_async::Error| fault::code(error) == Some(fault::NO_TABLE);
    if found.as_ref().map_or_else(missing, Option::is_none) {
        make(conn, settings).await?;
        found = look(conn).await;
    }
    let found = found.map_err(failed)?;
    let Some((version, id, seq)) = found else {
        let message = format!("{}: tenure_schema or tenure_bell is empty: run the DDL again", settings.place);
        return Err(StoreError::not_applied(STORE, message).permanent());
    };
    if version != CURRENT {
        let message = format!(
            "{}: the tables were made by another version of tenure (schema {version}; this one knows {CURRENT}): use that \
             version, or another database",
            settings.place
        );
        return Err(StoreError::not_applied(STORE, message).permanent());
    }
    Ok((id, seq))
}

async fn look(conn: &mut Conn) -> mysql_async::Result<Option<(i64, String, u64)>> {
    conn.query_first("SELECT s.version, s.id, b.seq FROM tenure_schema s JOIN tenure_bell b").await
}

/// Nodes that start at the same time make them one after the other. The row that says that they are there comes late, so
/// that whoever finds it finds the rest.
async fn make(conn: &mut Conn, settings: &Settings) -> Result<(), StoreError> {
    let failed = |error| fault::connecting(&settings.place, &error);
    let turn = format!("DO GET_LOCK(CONCAT('tenure schema ', LEFT(DATABASE(), 40)), {})", WAIT);
    conn.query_drop(turn).await.map_err(failed)?;
    // Somebody may have made them meanwhile; making them again would hold up everybody who uses them.
    let made = if matches!(look(conn).await, Ok(Some(_))) { Ok(()) } else { carry_out(conn).await };
    conn.query_drop("DO RELEASE_ALL_LOCKS()").await.map_err(failed)?;
    made.map_err(failed)
}

async fn carry_out(conn: &mut Conn) -> mysql_async::Result<()> {
    for statement in statements(DDL) {
        if let Err(error) = conn.query_drop(&statement).await {
            let trigger = statement.contains("TRIGGER");
            if !(trigger && fault::code(&error).is_some_and(|code| NO_TRIGGERS.contains(&code))) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// How long others may take to make them, in seconds.
const WAIT: u32 = 10;

/// The statements of a script, which may change its delimiter on the way, as the `mysql` client reads it.
fn statements(script: &str) -> Vec<String> {
    let (mut found, mut statement, mut delimiter) = (Vec::new(), String::new(), ";");
    let is_text = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with("--");
    for line in script.lines().filter(is_text) {
        if let Some(other) = line.strip_prefix("DELIMITER ") {
            delimiter = other.trim();
            continue;
        }
        let whole = line.trim_end().strip_suffix(delimiter);
        statement.push_str(whole.unwrap_or(line));
        statement.push('\n');
        if whole.is_some() {
            found.push(std::mem::take(&mut statement));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_where_the_client_would_cut_it() {
        let cut = statements("-- x;\nA\n b;\nDELIMITER //\nC; d;\nE //\nDELIMITER ;\nF;\n");
        assert_eq!(cut, ["A\n b\n", "C; d;\nE \n", "F\n"]);
        assert!(statements(DDL).iter().all(|one| one.starts_with("CREATE")
            || one.starts_with("INSERT")
            || one.starts_with("DROP TRIGGER")));
        assert_eq!(statements(GRANTS).len(), 5);
    }
}

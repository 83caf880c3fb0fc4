//! The tables, made on first use where this user may.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::time::Instant;

use super::settings::MysqlSettings;
use super::{STORE, error};
use tenure_store::{SetupRequest, StoreError};

/// The tables, the view, the triggers, as the `mysql` client reads them.
const DDL: &str = include_str!("schema.sql");

/// What a user needs who does not make them.
const GRANTS: &str = include_str!("grants.sql");

/// What `tenure schema` prints. Without a database before the names, they are of the one that is in use.
pub(super) fn setup(request: &SetupRequest<'_>) -> String {
    let grants = GRANTS.replace("`DATABASE`.", "").replace("'USER'", &format!("'{}'", request.user));
    format!("{DDL}\n{grants}")
}

/// The schema version that this build speaks.
const CURRENT: i64 = 1;

/// With the binary log on, only some may make triggers; the rest is worth having without them.
const NO_TRIGGERS: [u16; 3] = [1419, 1227, 1142];
const TRIGGER_EXISTS: u16 = 1359;

/// Makes the tables if they are missing, and refuses those of a newer version. Gives the id of these tables, and the number
/// of the last notification.
pub(super) async fn ensure(
    conn: &mut Conn,
    settings: &MysqlSettings,
    is_galera: bool,
) -> Result<(String, u64), StoreError> {
    let failed = |error| error::connecting(&settings.place, &error);
    let mut found = look(conn).await;
    let missing = |error: &mysql_async::Error| error::code(error) == Some(error::NO_TABLE);
    if found.as_ref().map_or_else(missing, Option::is_none) {
        if !settings.create {
            return Err(StoreError::unused(STORE, &format!("{} has no tables of tenure", settings.place)));
        }
        make(conn, settings, is_galera).await?;
        found = look(conn).await;
    }
    let found = found.map_err(failed)?;
    let Some((version, id, seq)) = found else {
        let message = format!(
            "{}: tenure_schema or tenure_notifier is empty: run what `tenure schema --for mysql` prints again",
            settings.place
        );
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
    conn.query_first("SELECT s.version, s.id, b.seq FROM tenure_schema s JOIN tenure_notifier b").await
}

/// Nodes that start at the same time make them one after the other. The row that says that they are there comes late, so
/// that a node that finds it finds the rest.
async fn make(conn: &mut Conn, settings: &MysqlSettings, is_galera: bool) -> Result<(), StoreError> {
    let failed = |error| error::connecting(&settings.place, &error);
    wait_for_turn(conn, LONGEST_WAIT.min(settings.patience() / 2)).await.map_err(failed)?;
    // Another node may have made them meanwhile; making them again would hold up every node that uses them.
    let made = if matches!(look(conn).await, Ok(Some(_))) { Ok(()) } else { make_now(conn, is_galera).await };
    conn.query_drop("DO RELEASE_ALL_LOCKS()").await.map_err(failed)?;
    made.map_err(failed)
}

/// Waits for the lock under which they are made, or until another node has made them. Every login of the server can take that lock,
/// so no node waits for it for ever. It is asked for again and again: MySQL waits for a lock in whole seconds, and for as long
/// as it is told to, whatever limit statements have.
async fn wait_for_turn(conn: &mut Conn, longest: Duration) -> mysql_async::Result<()> {
    let until = Instant::now() + longest;
    while Instant::now() < until {
        let turn: Option<Option<u8>> = conn.query_first(TURN).await?;
        if turn.flatten() == Some(1) || matches!(look(conn).await, Ok(Some(_))) {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

const TURN: &str = "SELECT GET_LOCK(CONCAT('tenure schema ', LEFT(DATABASE(), 40)), 0)";

/// How long others may take to make them.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Locks are local to a member of a Galera cluster, and two members that make the view at the same time stand still for
/// good. What is in one order for all of them is the making of tables: the node that makes this one makes the rest.
async fn make_now(conn: &mut Conn, is_galera: bool) -> mysql_async::Result<()> {
    if !is_galera {
        return carry_out(conn).await;
    }
    loop {
        // Of a table that is being dropped just then the server tells no age.
        let age: Option<Option<i64>> = conn.query_first(AGE).await?;
        match age {
            Some(Some(age)) if age > ABANDONED => {
                conn.query_drop("DROP TABLE IF EXISTS tenure_making").await?
            }
            Some(_) => {}
            None => match conn.query_drop("CREATE TABLE tenure_making (one TINYINT) ENGINE = InnoDB").await {
                Err(error) if error::code(&error) == Some(error::TABLE_EXISTS) => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            },
        }
        tokio::time::sleep(AGAIN).await;
        if matches!(look(conn).await, Ok(Some(_))) {
            return Ok(());
        }
    }
    let made = carry_out(conn).await;
    let done = conn.query_drop("DROP TABLE IF EXISTS tenure_making").await;
    made.and(done)
}

/// For how many seconds a node has been making the tables.
const AGE: &str = "SELECT TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW()) FROM information_schema.TABLES \
    WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'tenure_making'";

/// A node that has not made them after so many seconds is gone.
const ABANDONED: i64 = 30;

const AGAIN: Duration = Duration::from_millis(50);

/// A node that could not wait for its turn may do this while another does. So it drops no trigger that the other has just
/// made, and that writes already run through: only people who run the script again renew triggers.
async fn carry_out(conn: &mut Conn) -> mysql_async::Result<()> {
    for statement in statements(DDL).iter().filter(|statement| !statement.starts_with("DROP TRIGGER")) {
        if let Err(error) = carry_out_one(conn, statement).await {
            let may_fail = |code| NO_TRIGGERS.contains(&code) || code == TRIGGER_EXISTS;
            if !(statement.contains("TRIGGER") && error::code(&error).is_some_and(may_fail)) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// A statement that meets the one of another node is given up by the server, and carried out again: each may be carried out twice.
async fn carry_out_one(conn: &mut Conn, statement: &str) -> mysql_async::Result<()> {
    loop {
        match conn.query_drop(statement).await {
            Err(error) if error::code(&error).is_some_and(error::met_another) => {}
            carried_out => return carried_out,
        }
        tokio::time::sleep(AGAIN).await;
    }
}

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
        assert_eq!(statements(GRANTS).len(), 6);
    }
}

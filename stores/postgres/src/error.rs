//! What the server and the network complain about, in words that say what to do.

use tenure_core::Fate;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use super::STORE;
use tenure_store::kit::connection;
use tenure_store::{StoreError, with_causes};

/// An error while connecting: nothing was sent.
pub(super) fn connecting(place: &str, error: &Error) -> StoreError {
    let (message, permanent) = match error.as_db_error() {
        Some(error) => explain(error),
        None => (reason(error), false),
    };
    StoreError::not_applied(STORE, format!("{place}: {message}")).permanent_if(permanent)
}

/// An error of an operation that was sent.
#[derive(Debug)]
pub(super) struct OperationError(pub(super) Error);

impl connection::OperationFailure for OperationError {
    fn ends_connection(&self) -> bool {
        self.0.as_db_error().is_none_or(|error| {
            let code = error.code();
            let missing = [
                SqlState::UNDEFINED_TABLE,
                SqlState::UNDEFINED_FUNCTION,
                SqlState::UNDEFINED_COLUMN,
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::INVALID_SQL_STATEMENT_NAME,
            ];
            missing.contains(code) || is_shutdown(code) || error.message().contains("cached plan")
        })
    }

    fn to_store_error(&self, place: &str) -> StoreError {
        let Some(answered) = self.0.as_db_error() else {
            return StoreError::unknown(STORE, format!("{place}: {}", reason(&self.0)));
        };
        let (message, permanent) = explain(answered);
        let message = format!("{place}: {message}");
        match fate(answered.code()) {
            Fate::NotApplied | Fate::Severed => {
                StoreError::not_applied(STORE, message).permanent_if(permanent)
            }
            Fate::Unknown => StoreError::unknown(STORE, message).permanent_if(permanent),
        }
    }
}

/// An error that the server answered has rolled the statement back: nothing happened, nor will. Only a server that
/// ends the connection may have committed just before, while it waited for its replicas.
fn fate(code: &SqlState) -> Fate {
    if is_shutdown(code) || code.code().starts_with("08") { Fate::Unknown } else { Fate::NotApplied }
}

fn is_shutdown(code: &SqlState) -> bool {
    code.code().starts_with("57P")
}

/// What the network said, without what was sent.
fn reason(error: &Error) -> String {
    let text = with_causes(error);
    if text.contains("does not allow writes") {
        return "the server is a standby or read-only: name the primary, or all hosts of the cluster"
            .to_owned();
    }
    format!("{text}; see whether the server runs there and can be reached")
}

/// The message, and whether a person has to do something first.
fn explain(error: &DbError) -> (String, bool) {
    let said = error.message();
    let code = error.code();
    let (advice, permanent) = match code {
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => (GRANTS, true),
        _ if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            ("see whether user and password are right and pg_hba.conf lets them in", true)
        }
        _ if *code == SqlState::INVALID_CATALOG_NAME => ("create the database, or name another one", true),
        _ if *code == SqlState::TOO_MANY_CONNECTIONS => {
            ("raise max_connections, or use fewer nodes: each needs two connections", false)
        }
        _ if *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE => {
            ("another writer came first; it is tried again", false)
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::QUERY_CANCELED => {
            ("something holds tenure_registers for too long: `SELECT * FROM pg_locks` names it", false)
        }
        _ if *code == SqlState::DISK_FULL => ("free some space on the server", false),
        _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            ("the server is a standby or read-only: name the primary, or all hosts of the cluster", false)
        }
        _ if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_FUNCTION => (
            "the tables were dropped, or lie in a schema that this user's search_path does not have: set it, or \
                 drop tenure_schema too, and they are made anew",
            false,
        ),
        _ => return (format!("{said} ({})", code.code()), false),
    };
    (format!("{said} ({}): {advice}", code.code()), permanent)
}

const GRANTS: &str = "let the owner of the database make the tables (`tenure schema --for postgres` prints them) and then GRANT SELECT, \
    INSERT, UPDATE, DELETE ON tenure_registers and SELECT ON tenure_schema, tenure_leaders to this user; or GRANT CREATE \
    ON SCHEMA to it, so that it can make them itself";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_server_rolled_back_is_proven() {
        for code in ["40001", "40P01", "55P03", "57014", "25006", "23000", "53100"] {
            assert_eq!(fate(&SqlState::from_code(code)), Fate::NotApplied, "{code}");
        }
        for code in ["57P01", "57P02", "08006"] {
            assert_eq!(fate(&SqlState::from_code(code)), Fate::Unknown, "{code}");
        }
    }
}

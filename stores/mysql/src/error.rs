//! What the server and the network complain about, in words that say what to do.

use mysql_async::{Error, ServerError};

use super::STORE;
use tenure_store::kit::connection;
use tenure_store::{StoreError, with_causes};

/// What went wrong with an operation, and whether it is proven that nothing happened nor will.
#[derive(Debug)]
pub(super) struct OperationError {
    pub(super) error: Error,
    pub(super) proven: bool,
}

/// Nothing is proven by default, except by what the server says itself.
impl From<Error> for OperationError {
    fn from(error: Error) -> Self {
        let proven = matches!(&error, Error::Server(answered) if is_rolled_back(answered.code));
        Self { error, proven }
    }
}

impl connection::OperationFailure for OperationError {
    fn ends_connection(&self) -> bool {
        ends_connection(&self.error)
    }

    fn to_store_error(&self, place: &str) -> StoreError {
        let (message, permanent) = said(&self.error);
        let message = format!("{place}: {message}");
        let error = match self.proven {
            true => StoreError::not_applied(STORE, message),
            false => StoreError::unknown(STORE, message),
        };
        error.permanent_if(permanent)
    }
}

/// An error while connecting: nothing was sent.
pub(super) fn connecting(place: &str, error: &Error) -> StoreError {
    let (message, permanent) = said(error);
    StoreError::not_applied(STORE, format!("{place}: {message}")).permanent_if(permanent)
}

fn ends_connection(error: &Error) -> bool {
    match code(error) {
        None => true,
        Some(NO_TABLE | READ_ONLY | READ_ONLY_MODE | READ_ONLY_TRANSACTION) => true,
        Some(code) => [1053, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1927].contains(&code),
    }
}

/// The number of what the server answered; none if it was not the server.
pub(super) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(answered) => Some(answered.code),
        _ => None,
    }
}

pub(super) const NO_TABLE: u16 = 1146;
pub(super) const TABLE_EXISTS: u16 = 1050;
/// A client said KILL QUERY, which is how listeners are woken.
pub(super) const INTERRUPTED: u16 = 1317;
const READ_ONLY: u16 = 1290;
const READ_ONLY_MODE: u16 = 1836;
const READ_ONLY_TRANSACTION: u16 = 1792;
const LOCK_WAIT: u16 = 1205;
const DEADLOCK: u16 = 1213;

/// Another transaction, or another change of the tables, was in the way.
pub(super) fn met_another(code: u16) -> bool {
    matches!(code, LOCK_WAIT | DEADLOCK)
}

/// Answers to a statement that is a transaction of its own which say by themselves that it was rolled back, or never
/// begun. Being interrupted does not: it may have come too late.
fn is_rolled_back(code: u16) -> bool {
    let refused = [1044, 1064, 1142, 1143, 1227, 1370, 1406, 1419, 1644, 1665];
    let never = [NO_TABLE, READ_ONLY, READ_ONLY_MODE, READ_ONLY_TRANSACTION, LOCK_WAIT, DEADLOCK];
    refused.contains(&code) || never.contains(&code)
}

/// What is told of an error, and whether a person has to do something first.
fn said(error: &Error) -> (String, bool) {
    match error {
        Error::Server(answered) => explain(answered),
        other => (reason(other), false),
    }
}

/// What the network said, without what was sent.
fn reason(error: &Error) -> String {
    format!("{}; see whether the server runs there and can be reached", with_causes(error))
}

fn explain(error: &ServerError) -> (String, bool) {
    let (code, said) = (error.code, &error.message);
    let (advice, permanent) = match code {
        1142 | 1143 | 1227 | 1370 | 1419 => (GRANTS, true),
        1045 | 1698 | 1130 => {
            ("see whether user and password are right, and from where the user may connect", true)
        }
        1044 | 1049 => ("create the database and let this user use it, or name another one", true),
        1040 | 1203 | 1226 => {
            ("raise max_connections, or use fewer nodes: each needs two connections", false)
        }
        LOCK_WAIT | 1969 | 3024 => (
            "something holds rows of tenure_registers, or the table, for too long: information_schema.innodb_trx or SHOW \
             PROCESSLIST names it",
            false,
        ),
        DEADLOCK => ("another writer came first; it is tried again", false),
        1021 | 1114 | 1030 => ("free some space on the server", false),
        READ_ONLY | READ_ONLY_MODE | READ_ONLY_TRANSACTION => {
            ("the server is a replica or read-only: name the primary", false)
        }
        NO_TABLE => ("the tables were dropped; they are made again if this user may", false),
        1665 => ("set binlog_format to ROW or MIXED", true),
        _ => return (format!("{said} ({code})"), false),
    };
    (format!("{said} ({code}): {advice}"), permanent)
}

const GRANTS: &str = "let an administrator who may create tables run what `tenure schema --for mysql` prints, and \
    then GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers, SELECT, INSERT, UPDATE ON tenure_deletions, SELECT, \
    UPDATE ON tenure_notifier and SELECT ON tenure_schema to this user; or GRANT CREATE, CREATE VIEW, REFERENCES, TRIGGER, \
    DROP on the database too, so that it can make them itself";

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(code: u16) -> Error {
        Error::Server(ServerError { code, message: "m".to_owned(), state: "HY000".to_owned() })
    }

    #[test]
    fn only_what_the_server_rolled_back_is_proven() {
        for code in [LOCK_WAIT, DEADLOCK, READ_ONLY, 1142, NO_TABLE, 1644] {
            assert!(OperationError::from(answered(code)).proven, "{code}");
        }
        for code in [INTERRUPTED, 1180, 1969, 1053, 2013] {
            assert!(!OperationError::from(answered(code)).proven, "{code}");
        }
        assert!(!OperationError::from(Error::from(std::io::Error::other("cut"))).proven);
    }
}

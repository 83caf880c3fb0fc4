//! What SQLite and the file system complain about, in words that say what to do.

use std::io;
use std::path::Path;

use rusqlite::{Error, ErrorCode};

use super::STORE;
use tenure_store::StoreError;

/// An error before anything was committed: it is proven that nothing happened.
pub(super) fn before_commit(path: &Path, error: Error) -> StoreError {
    let (message, permanent) = explain(path, &error);
    finish(StoreError::not_applied(STORE, message), permanent, error)
}

/// An error of the commit itself: the disk may have it or not.
pub(super) fn at_commit(path: &Path, error: Error) -> StoreError {
    let (message, permanent) = explain(path, &error);
    finish(StoreError::unknown(STORE, message), permanent, error)
}

/// An error of the file system, before SQLite was asked.
pub(super) fn of_io(doing: &str, path: &Path, error: io::Error) -> StoreError {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => "give this user write permission there, or name another file",
        io::ErrorKind::ReadOnlyFilesystem => "that file system is read-only: name a file on another one",
        io::ErrorKind::StorageFull => "the disk is full: free some space",
        io::ErrorKind::NotADirectory => "a part of the path is a file: name another one",
        _ => "see whether the path is right",
    };
    let message = format!("cannot {doing} {}: {error}; {advice}", path.display());
    StoreError::not_applied(STORE, message).permanent().caused_by(error)
}

fn finish(error: StoreError, permanent: bool, source: Error) -> StoreError {
    error.permanent_if(permanent).caused_by(source)
}

/// The message, and whether a person has to do something first.
fn explain(path: &Path, error: &Error) -> (String, bool) {
    let file = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            (format!("{file}: the disk is full; free some space, and it goes on by itself"), false)
        }
        Some(ErrorCode::NotADatabase) => {
            (format!("{file} is not a SQLite database; it was left untouched: name another file"), true)
        }
        Some(ErrorCode::DatabaseCorrupt) => (
            format!(
                "{file} is damaged ({error}) and was left as it is: stop everything that uses it, keep a copy, and \
                 recover it with `sqlite3 {file} .recover`, or name another file"
            ),
            true,
        ),
        Some(ErrorCode::ReadOnly) => (
            format!("{file} cannot be written: make the file and its directory writable for this user"),
            true,
        ),
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => (
            format!(
                "{file} cannot be opened ({error}): this user needs write permission for the file and its directory"
            ),
            true,
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            format!(
                "{file} is held by another program, or by a process that is frozen: `fuser {file}` names them"
            ),
            false,
        ),
        Some(ErrorCode::SystemIoFailure) => {
            (format!("{file}: the disk failed ({error}); see the kernel's log"), false)
        }
        _ => (format!("{file}: {error}"), false),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Fate;

    use super::*;
    use tenure_store::Retry;

    fn failure(code: i32) -> Error {
        Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn each_fault_has_its_own_words() {
        use rusqlite::ffi::*;
        let codes = [
            SQLITE_FULL,
            SQLITE_NOTADB,
            SQLITE_CORRUPT,
            SQLITE_READONLY,
            SQLITE_CANTOPEN,
            SQLITE_BUSY,
            SQLITE_IOERR,
        ];
        let path = Path::new("a.db");
        let mut messages: Vec<_> =
            codes.iter().map(|code| before_commit(path, failure(*code)).to_string()).collect();
        messages.sort();
        messages.dedup();
        assert_eq!(messages.len(), codes.len(), "{messages:#?}");
    }

    #[test]
    fn only_a_failed_commit_is_in_doubt() {
        let path = Path::new("a.db");
        assert_eq!(before_commit(path, failure(rusqlite::ffi::SQLITE_FULL)).fate(), Fate::NotApplied);
        assert_eq!(at_commit(path, failure(rusqlite::ffi::SQLITE_IOERR)).fate(), Fate::Unknown);
        assert_eq!(before_commit(path, failure(rusqlite::ffi::SQLITE_READONLY)).retry(), Retry::Never);
    }
}

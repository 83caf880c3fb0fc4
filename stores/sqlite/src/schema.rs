//! The tables, made to be read by people with `sqlite3`, and how a connection is opened.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Error, OpenFlags, params};
use tenure_core::Entropy;

use super::{STORE, error};
use tenure_store::StoreError;
use tenure_store::entropy::KernelEntropy;

/// "TENU": tells our files from those of other programs.
const APPLICATION: i32 = 0x5445_4E55;

/// How to get from each schema version to the next; the version of a file is its `user_version`.
const MIGRATIONS: [&str; 1] = [VERSION_1];

/// The schema version that this build writes.
const CURRENT: u32 = MIGRATIONS.len() as u32;

/// Epochs are decimal text, because they may exceed what SQLite keeps as an integer; `->` shows a JSON number as it
/// was written, so that the view can compare the two.
///
/// `seq` is the number of the last change that others were notified of: rising in the order of commits, because writers come
/// one after the other. A watcher that asks for everything above the last number it saw misses nothing.
const VERSION_1: &str = "
CREATE TABLE registers (
    namespace TEXT NOT NULL,
    epoch     TEXT NOT NULL,
    kind      TEXT NOT NULL,
    name      TEXT NOT NULL,
    version   TEXT NOT NULL,
    token     INTEGER,
    value     TEXT NOT NULL,
    seq       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, epoch, kind, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX registers_seq ON registers (seq) WHERE seq > 0;

CREATE TABLE tenure_meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE tenure_deletions (namespace TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;

CREATE TRIGGER registers_token_never_falls BEFORE UPDATE ON registers
WHEN OLD.token IS NOT NULL AND (NEW.token IS NULL OR NEW.token < OLD.token)
BEGIN SELECT RAISE(ABORT, 'tenure: the token of a register never falls'); END;

CREATE TRIGGER registers_token_never_replaced BEFORE INSERT ON registers
WHEN EXISTS (SELECT 1 FROM registers WHERE namespace = NEW.namespace AND epoch = NEW.epoch AND kind = NEW.kind
             AND name = NEW.name AND token > ifnull(NEW.token, 0))
BEGIN SELECT RAISE(ABORT, 'tenure: the token of a register never falls'); END;

CREATE TRIGGER registers_key_never_changes BEFORE UPDATE OF namespace, epoch, kind, name ON registers
WHEN (OLD.namespace, OLD.epoch, OLD.kind, OLD.name) IS NOT (NEW.namespace, NEW.epoch, NEW.kind, NEW.name)
BEGIN SELECT RAISE(ABORT, 'tenure: a register keeps its name'); END;

CREATE TRIGGER registers_role_never_deleted BEFORE DELETE ON registers WHEN OLD.kind = 'role'
BEGIN SELECT RAISE(ABORT, 'tenure: the register of a role is never deleted, so that its token never falls'); END;

CREATE VIEW tenure_leaders AS
SELECT r.namespace, r.name AS role, r.value ->> '$.holder.node' AS node, r.token,
       datetime((r.value ->> '$.since') / 1000000, 'unixepoch') AS since, r.value ->> '$.reason' AS reason,
       s.value ->> '$.state' AS session_state,
       datetime((s.value ->> '$.beat_at') / 1000000, 'unixepoch') AS last_beat,
       r.value ->> '$.holder.session' AS session
FROM registers c
JOIN registers r ON r.namespace = c.namespace AND r.epoch = c.value -> '$.epoch' AND r.kind = 'role'
LEFT JOIN registers s ON s.namespace = r.namespace AND s.epoch = r.epoch AND s.kind = 'session'
    AND s.name = r.value ->> '$.holder.session'
WHERE c.epoch = '0' AND c.kind = 'cluster' AND c.name = 'cluster';
";

/// How long opening waits for other programs.
const OPENING: Duration = Duration::from_secs(10);

/// Up to this size a file is looked through for damage when it is opened; it takes some milliseconds.
const LOOKED_THROUGH: i64 = 16 << 20;

/// Opens the file for writing, and makes or upgrades its tables. A file of another program is left untouched; one that
/// SQLite would quietly open for reading only is refused. The caller has the turn, which keeps two of us from making
/// the same file at once.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error| error::before_commit(path, error);
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE).map_err(failed)?;
    if connection.is_readonly("main").map_err(failed)? {
        let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(failed(Error::SqliteFailure(error, None)));
    }
    if check_owner(path, &connection)? < CURRENT {
        check_for_damage(path, &connection)?;
    }
    let mode: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        let message =
            format!("{} cannot keep a write-ahead log here: name a file on a local disk", path.display());
        return Err(StoreError::not_applied(STORE, message).permanent());
    }
    migrate(path, &mut connection)?;
    connection.busy_timeout(Duration::ZERO).map_err(failed)?;
    Ok(connection)
}

/// The tables as they are now.
pub(super) fn setup() -> String {
    let tables = MIGRATIONS.concat();
    format!(
        "-- The embedded store makes its file by itself, and a user who may write the file takes part. Only to look at:\n\
         {tables}\n"
    )
}

/// Opens the file for reading only, and looks it through for damage: now that no node waits for the turn.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let open = || {
        let connection = connect(path, OpenFlags::empty())?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    let connection = open().map_err(|error| error::before_commit(path, error))?;
    check_for_damage(path, &connection)?;
    Ok(connection)
}

/// The random identity that the file got when it was made.
pub(super) fn identity(connection: &Connection) -> Result<String, Error> {
    meta(connection, "id")
}

/// The number of the last change that others were notified of.
pub(super) fn last_change(connection: &Connection) -> Result<i64, Error> {
    meta(connection, "seq")
}

fn meta<T: rusqlite::types::FromSql>(connection: &Connection, key: &str) -> Result<T, Error> {
    let mut select = connection.prepare_cached("SELECT value FROM tenure_meta WHERE key = ?1")?;
    select.query_row([key], |row| row.get(0))
}

fn connect(path: &Path, extra: OpenFlags) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | extra;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(OPENING)?;
    connection.set_prepared_statement_cache_capacity(32);
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
    Ok(connection)
}

/// Looks without writing: another program's file and a newer schema are found here. Gives the version of the schema.
fn check_owner(path: &Path, connection: &Connection) -> Result<u32, StoreError> {
    let failed = |error| error::before_commit(path, error);
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(failed);
    let application = ask("SELECT application_id FROM pragma_application_id")?;
    let version = ask("SELECT user_version FROM pragma_user_version")?;
    let tables = ask("SELECT count(*) FROM sqlite_schema")?;
    let file = path.display();
    let refuse = |message: String| Err(StoreError::not_applied(STORE, message).permanent());
    if tables > 0 && application != i64::from(APPLICATION) {
        return refuse(format!(
            "{file} belongs to another program; it was left untouched: name another file"
        ));
    }
    if version > i64::from(CURRENT) {
        return refuse(format!(
            "{file} was written by a newer version of tenure (schema {version}; this one knows up to {CURRENT}): use \
             that version, or name another file"
        ));
    }
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Damage is better found now than by the write that meets it.
fn check_for_damage(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    let check = || {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        if connection.query_row(size, [], |row| row.get::<_, i64>(0))? > LOOKED_THROUGH {
            return Ok(());
        }
        match connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))? {
            sound if sound == "ok" => Ok(()),
            damage => {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
                Err(Error::SqliteFailure(code, Some(damage)))
            }
        }
    };
    check().map_err(|error| error::before_commit(path, error))
}

/// Brings the tables up to date in one transaction, so that a crash leaves the old ones. A node that comes second finds
/// nothing to do.
fn migrate(path: &Path, connection: &mut Connection) -> Result<(), StoreError> {
    let version = |connection: &Connection| {
        connection.query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get::<_, u32>(0))
    };
    let upgrade = |connection: &mut Connection| {
        if version(connection)? == CURRENT {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let from = version(&transaction)?;
        for step in MIGRATIONS.iter().skip(from as usize) {
            transaction.execute_batch(step)?;
        }
        if from == 0 {
            let id = format!("{:032x}", KernelEntropy.nonce());
            transaction.execute("INSERT INTO tenure_meta VALUES ('id', ?1), ('seq', 0)", params![id])?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", CURRENT)?;
        transaction.commit()
    };
    upgrade(connection).map_err(|error| error::before_commit(path, error))
}

//! The SQL of fences, all of it: one text for each database, whatever the driver.

use std::time::Duration;

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// SQLite.
    Sqlite,
}

/// Takes the row's lock also where it changes nothing, so that a refusal is about what is committed. Under REPEATABLE
/// READ and SERIALIZABLE, PostgreSQL refuses instead if the row has changed since the snapshot.
const UPSERT: &str = "INSERT INTO tenure_fence AS f (resource, role, token) VALUES ($1, $2, $3) \
    ON CONFLICT (resource) DO UPDATE SET token = \
        CASE WHEN f.role = excluded.role AND f.token < excluded.token THEN excluded.token ELSE f.token END \
    RETURNING role, token";

const MYSQL_UPSERT: &str = "INSERT INTO tenure_fence (resource, role, token) VALUES (?, ?, ?) \
    ON DUPLICATE KEY UPDATE token = IF(role = VALUES(role) AND token < VALUES(token), VALUES(token), token)";

/// A locking read sees what is there now, whatever the snapshot; row counts tell nothing here.
const MYSQL_LOOK: &str = "SELECT role, token FROM tenure_fence WHERE resource = ? FOR UPDATE";

impl Dialect {
    /// The statement that makes the table if it is missing.
    #[must_use]
    pub fn ddl(self) -> &'static str {
        match self {
            Self::Postgres => include_str!("postgres.sql"),
            Self::Mysql => include_str!("mysql.sql"),
            Self::Sqlite => include_str!("sqlite.sql"),
        }
    }

    /// The statement that grants `user` the rights to raise fences; none on SQLite, where the file has the rights.
    #[must_use]
    pub fn grants(self, user: &str) -> Option<String> {
        let user = match self {
            Self::Postgres => format!("\"{}\"", user.replace('"', "\"\"")),
            Self::Mysql => format!("'{}'@'%'", user.replace('\\', "\\\\").replace('\'', "''")),
            Self::Sqlite => return None,
        };
        Some(format!("GRANT SELECT, INSERT, UPDATE ON tenure_fence TO {user};\n"))
    }

    /// Raises a row if it may be raised. Takes resource, role and token.
    #[must_use]
    pub fn raise(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => UPSERT,
            Self::Mysql => MYSQL_UPSERT,
        }
    }

    /// Tells role and token of a row where [`raise`](Self::raise) does not. Takes the resource.
    #[must_use]
    pub fn read_back(self) -> Option<&'static str> {
        (self == Self::Mysql).then_some(MYSQL_LOOK)
    }

    /// The statement that limits waiting in this transaction; none where the driver has to do it.
    #[must_use]
    pub fn limit_waiting(self, left: Duration) -> Option<String> {
        match self {
            Self::Postgres => Some(postgres_limit(left)),
            Self::Mysql => Some(mysql_limit(left)),
            Self::Sqlite => None,
        }
    }

    /// The statement that undoes the part of [`limit_waiting`](Self::limit_waiting) that would outlive the transaction.
    #[must_use]
    pub fn restore_limit(self) -> Option<&'static str> {
        (self == Self::Mysql).then_some("SET innodb_lock_wait_timeout = @tenure_wait")
    }

    /// The statement that makes the transaction impossible to commit, even for code that ignores the error; none where the
    /// database has no such statement.
    #[must_use]
    pub fn refuse_commit(self) -> Option<&'static str> {
        let refuse = "DO $$ BEGIN RAISE EXCEPTION 'tenure: refused by its fence: roll back'; END $$";
        (self == Self::Postgres).then_some(refuse)
    }
}

/// No statement, no wait for a lock and no pause between statements longer than what is left; shorter limits of the
/// user's own stay. The last one is known from version 17 on.
fn postgres_limit(left: Duration) -> String {
    let left = left.as_millis().max(1);
    format!(
        "SELECT set_config(name, least({left}, nullif(extract(epoch FROM now_set::interval) * 1000, 0))::bigint::text, true) \
         FROM (SELECT name, current_setting(name, true) AS now_set FROM unnest(ARRAY['statement_timeout', 'lock_timeout', \
         'idle_in_transaction_session_timeout', 'transaction_timeout']) AS name) AS known WHERE now_set IS NOT NULL"
    )
}

/// MySQL limits the wait for a row only, in whole seconds, and only for a session: it is put back after the fence was
/// raised. (MySQL takes the smaller of the two numbers for a decimal without the cast, and no decimal for a limit.) MariaDB
/// alone ends a connection that pauses within a transaction; that limit has to outlast the fence.
fn mysql_limit(left: Duration) -> String {
    let seconds = left.as_secs() + 1;
    format!(
        "SET @tenure_wait = @@innodb_lock_wait_timeout, \
         innodb_lock_wait_timeout = CAST(LEAST({seconds}, @@innodb_lock_wait_timeout) AS UNSIGNED) \
         /*M!100300 , idle_transaction_timeout = \
         IF(@@idle_transaction_timeout = 0, {seconds}, LEAST({seconds}, @@idle_transaction_timeout)) */"
    )
}

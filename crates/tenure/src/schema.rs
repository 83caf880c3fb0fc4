//! What has to be set up on a server before a user with few rights can take part: tables, grants, and what people may
//! look at. Put together without asking any server.

use crate::Name;
use crate::fence::Dialect;

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// The embedded store, and files of your own.
    Sqlite,
    /// Redis and Valkey.
    Redis,
}

/// What is to be printed.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// For which kind of store.
    pub kind: Kind,
    /// Who is to get the rights.
    pub user: Name,
    /// Which cluster is looked at in the examples.
    pub namespace: Name,
    /// Fences only: for the database that the work writes to, which need not be the store.
    pub fence: bool,
}

impl Kind {
    /// The kind that a URL names, by its scheme alone.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        match url.split_once(':')?.0 {
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::Mysql),
            "sqlite" => Some(Self::Sqlite),
            "redis" | "rediss" | "valkey" | "valkeys" | "redis+unix" | "redis+sentinel"
            | "rediss+sentinel" => Some(Self::Redis),
            _ => None,
        }
    }

    fn dialect(self) -> Option<Dialect> {
        match self {
            Self::Postgres => Some(Dialect::Postgres),
            Self::Mysql => Some(Dialect::Mysql),
            Self::Sqlite => Some(Dialect::Sqlite),
            Self::Redis => None,
        }
    }
}

impl Wanted {
    /// The text, ready for `psql`, `mysql`, `sqlite3` or `redis-cli`. None if this build does not know that store.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self.kind.dialect() {
            Some(dialect) if self.fence => Some(self.sql_fence(dialect)),
            None if self.fence => Some(self.redis_fence()),
            _ => self.registers(),
        }
    }

    fn sql_fence(&self, dialect: Dialect) -> String {
        let grants = dialect.grants(self.user.as_str()).unwrap_or_default();
        format!("{}\n{grants}", dialect.ddl())
    }

    fn redis_fence(&self) -> String {
        format!(
            "# Fences need nothing made. Beside the rights for the keys and commands of your own:\n\
             ACL SETUSER {} on >PASSWORD ~tenure_fence:* +eval +evalsha +hmget +hset\n",
            self.user
        )
    }

    fn registers(&self) -> Option<String> {
        match self.kind {
            #[cfg(feature = "postgres")]
            Kind::Postgres => {
                let user = format!("\"{}\"", self.user);
                let grants = crate::store::Postgres::grants().replace("USER", &user);
                Some(format!("{}\n{grants}", crate::store::Postgres::ddl()))
            }
            // Without a database before the names, they are of the one that is in use.
            #[cfg(feature = "mysql")]
            Kind::Mysql => {
                let grants = crate::store::Mysql::grants().replace("`DATABASE`.", "");
                let grants = grants.replace("'USER'", &format!("'{}'", self.user));
                Some(format!("{}\n{grants}", crate::store::Mysql::ddl()))
            }
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => Some(format!(
                "-- The embedded store makes its file by itself, and whoever may write the file takes part. Only to look at:\n\
                 {}\n",
                crate::store::Sqlite::ddl()
            )),
            #[cfg(feature = "redis")]
            Kind::Redis => Some(self.redis()),
            #[allow(unreachable_patterns, reason = "a build with every store knows them all")]
            _ => None,
        }
    }

    #[cfg(feature = "redis")]
    fn redis(&self) -> String {
        use crate::store::Redis;
        let rights = Redis::grants().replace(" USER ", &format!(" {} ", self.user));
        let lines = Redis::leaders_script().lines().map(str::trim).filter(|line| !line.starts_with("--"));
        let script = lines.collect::<Vec<_>>().join(" ");
        format!(
            "# Nothing has to be made. The least rights, and those that tell how the server keeps its data:\n{rights}\n\
             # Who leads what, since when (role, node, token, seconds since 1970), in a shell:\n\
             # redis-cli EVAL '{script}' 1 'tenure:{{{}}}:0:cluster'\n",
            self.namespace
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_alone_tells_the_kind() {
        for (url, kind) in [
            ("postgres://u:hunter2@h/d", Some(Kind::Postgres)),
            ("mariadb://h", Some(Kind::Mysql)),
            ("sqlite:", Some(Kind::Sqlite)),
            ("redis+sentinel://h/n", Some(Kind::Redis)),
            ("memory:", None),
            ("hunter2", None),
        ] {
            assert_eq!(Kind::of_url(url), kind, "{url}");
        }
    }
}

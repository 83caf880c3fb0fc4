//! What has to be set up on a server before a user with few rights can take part: tables, grants, and what people may
//! look at. Put together without asking any server: each store of the registry says what it needs.

use crate::Name;
use crate::fence::Dialect;
use crate::store::{self, SetupRequest};

/// The databases that have fences, whether or not this build has a store on them.
const FENCED: &[(&str, Option<Dialect>)] = &[
    ("postgres", Some(Dialect::Postgres)),
    ("mysql", Some(Dialect::Mysql)),
    ("sqlite", Some(Dialect::Sqlite)),
    ("redis", None),
];

/// What `tenure schema` is asked for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SchemaRequest {
    /// The kind of store, by its [name](store::Backend::name).
    pub store: String,
    /// The login that gets the rights.
    pub user: Name,
    /// The namespace that is looked at in the examples.
    pub namespace: Name,
    /// Fences only: for the database that the work writes to, which need not be the store.
    pub fence: bool,
}

/// The names of the kinds of store that something can be printed for, in this build.
#[must_use]
pub fn stores() -> Vec<&'static str> {
    let set_up = store::BACKENDS.iter().filter(|backend| backend.setup.is_some()).map(|backend| backend.name);
    let mut names: Vec<_> = set_up.chain(FENCED.iter().map(|(name, _)| *name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl SchemaRequest {
    /// The registers of a store, for a login and a namespace.
    pub fn new(store: impl Into<String>, user: Name, namespace: Name) -> Self {
        Self { store: store.into(), user, namespace, fence: false }
    }

    /// The text, ready for `psql`, `mysql`, `sqlite3` or `redis-cli`. None if this build does not know that store, or if
    /// nothing has to be set up for it.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.fence {
            let (_, dialect) = FENCED.iter().find(|(name, _)| *name == self.store)?;
            return Some(dialect.map_or_else(|| self.redis_fence(), |dialect| self.sql_fence(dialect)));
        }
        let backend = store::BACKENDS.iter().find(|backend| backend.name == self.store)?;
        let request = SetupRequest::new(&self.user, &self.namespace);
        backend.setup.map(|setup| setup(&request))
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
}

//! Registers as rows, and questions about them.

use tenure_core::Token;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use tenure_store::kit::registers::split;
use tenure_store::{Entry, Epoch, Key, Name, Query, Value};

/// Everything that a query asks for, in one round trip and of one moment.
pub(super) const READ: &str = "
SELECT r.epoch, r.kind, r.name, r.version, r.token, r.value
FROM unnest($2::text[], $3::text[]) AS q (epoch, kind)
JOIN tenure_registers r ON r.namespace = $1 AND r.epoch = q.epoch AND r.kind = q.kind
UNION ALL
SELECT r.epoch, r.kind, r.name, r.version, r.token, r.value
FROM unnest($4::text[], $5::text[], $6::text[]) AS q (epoch, kind, name)
JOIN tenure_registers r ON r.namespace = $1 AND r.epoch = q.epoch AND r.kind = q.kind AND r.name = q.name";

/// Which advisory locks are free: those that we can have, until the statement is over.
pub(super) const FREE: &str =
    "SELECT t.key FROM unnest($1::bigint[]) AS t (key) WHERE pg_try_advisory_xact_lock_shared(t.key)";

/// A value with its type, because behind a pooler the server is not asked for types first.
pub(super) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// What [`READ`] is asked with.
#[derive(Debug)]
pub(super) struct Question {
    namespace: String,
    kinds: (Vec<String>, Vec<&'static str>),
    keys: (Vec<String>, Vec<&'static str>, Vec<String>),
}

impl Question {
    /// Each register is asked for once.
    pub(super) fn new(namespace: &Name, query: &Query) -> Self {
        let (kinds, keys) = split(query);
        let mut question =
            Self { namespace: namespace.to_string(), kinds: Default::default(), keys: Default::default() };
        for (epoch, kind) in &kinds {
            question.kinds.0.push(epoch.get().to_string());
            question.kinds.1.push(kind.as_str());
        }
        for key in keys {
            question.keys.0.push(key.epoch().get().to_string());
            question.keys.1.push(key.kind().as_str());
            question.keys.2.push(key.name().into_owned());
        }
        question
    }

    pub(super) fn params(&self) -> [Param<'_>; 6] {
        [
            (&self.namespace, Type::TEXT),
            (&self.kinds.0, Type::TEXT_ARRAY),
            (&self.kinds.1, Type::TEXT_ARRAY),
            (&self.keys.0, Type::TEXT_ARRAY),
            (&self.keys.1, Type::TEXT_ARRAY),
            (&self.keys.2, Type::TEXT_ARRAY),
        ]
    }
}

/// The register that a row holds; none if it holds none, or if this version cannot have written it, and so cannot name it.
pub(super) fn entry(row: &Row) -> Option<Entry> {
    let text = |column| row.try_get::<_, &str>(column).ok();
    let key = key(text("epoch")?, text("kind")?, text("name")?)?;
    Some(found(key, text("version")?, row.try_get("token").ok()?, text("value")?))
}

/// A register; unreadable if its version is none.
pub(super) fn found(key: Key, version: &str, token: Option<i64>, json: &str) -> Entry {
    let read = version.parse().ok().map(|version| (version, value(token, json)));
    let (version, value) = read.unwrap_or_else(Value::unreadable);
    Entry { key, version, value }
}

/// The key that three columns hold.
pub(super) fn key(epoch: &str, kind: &str, name: &str) -> Option<Key> {
    Key::from_parts(Epoch::new(epoch.parse().ok()?), kind.parse().ok()?, name).ok()
}

fn value(token: Option<i64>, json: &str) -> Value {
    Value { token: token.map(|token| Token::new(token.cast_unsigned())), json: json.into() }
}

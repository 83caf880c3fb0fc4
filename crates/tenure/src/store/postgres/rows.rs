//! Registers as rows, and a batch of writes as the arrays of one statement.

use std::collections::HashSet;

use tenure_core::Token;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::rules::{Verdict, judge};
use super::super::{Entry, Epoch, Key, Name, Outcome, Query, StoreError, Value, Version, Write};
use super::{STORE, witness};

/// Everything that a query asks for, in one round trip and of one moment.
pub(super) const READ: &str = "
SELECT r.epoch, r.kind, r.name, r.version, r.token, r.value
FROM unnest($2::text[], $3::text[]) AS q (epoch, kind)
JOIN tenure_registers r ON r.namespace = $1 AND r.epoch = q.epoch AND r.kind = q.kind
UNION ALL
SELECT r.epoch, r.kind, r.name, r.version, r.token, r.value
FROM unnest($4::text[], $5::text[], $6::text[]) AS q (epoch, kind, name)
JOIN tenure_registers r ON r.namespace = $1 AND r.epoch = q.epoch AND r.kind = q.kind AND r.name = q.name";

/// A batch of compare-and-sets.
pub(super) const WRITE: &str = "SELECT item, outcome, now_version, now_token, now_value
FROM tenure_write_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// Which advisory locks nobody else holds: those that we can have, until the statement is over.
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
        let kinds: HashSet<_> = query.kinds.iter().copied().collect();
        let keys: HashSet<_> = query.keys.iter().collect();
        let keys = keys.into_iter().filter(|key| !kinds.contains(&(key.epoch(), key.kind())));
        let mut question =
            Self { namespace: namespace.to_string(), kinds: Default::default(), keys: Default::default() };
        for (epoch, kind) in &kinds {
            question.kinds.0.push(epoch.0.to_string());
            question.kinds.1.push(kind.as_str());
        }
        for key in keys {
            question.keys.0.push(key.epoch().0.to_string());
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

/// What a row of [`READ`] says; none if this version cannot have written it, and so cannot name it.
pub(super) fn entry(row: &Row) -> Option<Entry> {
    let text = |column| row.try_get::<_, &str>(column).ok();
    let key = key(text(0)?, text(1)?, text(2)?)?;
    Some(Entry { key, version: text(3)?.parse().ok()?, value: value(row.try_get(4).ok()?, text(5)?) })
}

/// The key that three columns hold.
pub(super) fn key(epoch: &str, kind: &str, name: &str) -> Option<Key> {
    Key::from_parts(Epoch(epoch.parse().ok()?), kind.parse().ok()?, name).ok()
}

fn value(token: Option<i64>, json: &str) -> Value {
    Value { token: token.map(|token| Token(token.cast_unsigned())), json: json.into() }
}

/// What [`WRITE`] is asked with: the items that are worth asking about, in the order of their keys.
#[derive(Debug)]
pub(super) struct Batch {
    namespace: String,
    writes: Vec<Write>,
    /// What is known without asking, for each write.
    refused: Vec<Option<StoreError>>,
    /// Which write each item is.
    items: Vec<usize>,
    epochs: Vec<String>,
    kinds: Vec<&'static str>,
    names: Vec<String>,
    expects: Vec<Option<String>>,
    versions: Vec<Option<String>>,
    tokens: Vec<Option<i64>>,
    values: Vec<Option<String>>,
    rings: Vec<bool>,
    /// The lock that an item has to prove.
    locks: Vec<Option<i64>>,
    patience: i32,
}

impl Batch {
    pub(super) fn new(namespace: &Name, writes: &[Write], patience: i32) -> Self {
        let lock = |write: &Write| match &write.key {
            Key::Session(_, session) if write.witnessed => Some(witness::key(namespace, *session)),
            _ => None,
        };
        let plain =
            |write: &Write| Write { witnessed: write.witnessed && lock(write).is_none(), ..write.clone() };
        let locks: Vec<_> = writes.iter().map(lock).collect();
        let writes: Vec<_> = writes.iter().map(plain).collect();
        let refused: Vec<_> = writes.iter().map(hopeless).collect();
        let mut items: Vec<usize> = (0..writes.len()).filter(|nth| refused[*nth].is_none()).collect();
        items.sort_by(|a, b| writes[*a].key.cmp(&writes[*b].key));
        let each = || items.iter().map(|nth| &writes[*nth]);
        let put = |write: &Write| write.put.clone();
        Self {
            namespace: namespace.to_string(),
            refused,
            epochs: each().map(|write| write.key.epoch().0.to_string()).collect(),
            kinds: each().map(|write| write.key.kind().as_str()).collect(),
            names: each().map(|write| write.key.name().into_owned()).collect(),
            expects: each().map(|write| write.expect.map(|version| version.to_string())).collect(),
            versions: each().map(|write| put(write).map(|(version, _)| version.to_string())).collect(),
            tokens: each().map(|write| put(write)?.1.token.map(|token| token.0.cast_signed())).collect(),
            values: each().map(|write| put(write).map(|(_, value)| value.json.to_string())).collect(),
            rings: each().map(|write| write.ring).collect(),
            locks: items.iter().map(|nth| locks[*nth]).collect(),
            writes,
            items,
            patience,
        }
    }

    /// Whether there is nothing to ask the server.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn params(&self) -> [Param<'_>; 11] {
        [
            (&self.namespace, Type::TEXT),
            (&self.epochs, Type::TEXT_ARRAY),
            (&self.kinds, Type::TEXT_ARRAY),
            (&self.names, Type::TEXT_ARRAY),
            (&self.expects, Type::TEXT_ARRAY),
            (&self.versions, Type::TEXT_ARRAY),
            (&self.tokens, Type::INT8_ARRAY),
            (&self.values, Type::TEXT_ARRAY),
            (&self.rings, Type::BOOL_ARRAY),
            (&self.locks, Type::INT8_ARRAY),
            (&self.patience, Type::INT4),
        ]
    }

    /// One outcome for each write, in the order in which they were given.
    pub(super) fn outcomes(self, rows: &[Row]) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> =
            self.refused.into_iter().map(|refused| refused.map(Outcome::Failed)).collect();
        for row in rows {
            let item = row.try_get::<_, i64>(0).ok().and_then(|item| usize::try_from(item).ok());
            if let Some(nth) = item.and_then(|item| self.items.get(item.wrapping_sub(1))) {
                outcomes[*nth] = outcome(&self.writes[*nth], row);
            }
        }
        let silent = || Outcome::Failed(StoreError::unknown(STORE, "the server said nothing of this write"));
        outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(silent)).collect()
    }
}

/// What can never be applied, whatever is there: too large a value or token, the deletion of a role, text that the
/// server cannot keep. It would take the rest of the batch down with it.
fn hopeless(write: &Write) -> Option<StoreError> {
    if write.put.as_ref().is_some_and(|(_, value)| value.json.contains('\0')) {
        let message =
            format!("{} cannot be written: its value has a zero byte, which is not JSON", write.key);
        return Some(StoreError::not_applied(STORE, message).permanent());
    }
    match judge(STORE, write, write.expect.map(|version| (version, None))) {
        Verdict::Refuse(why) => Some(why),
        Verdict::Apply | Verdict::Conflict => None,
    }
}

fn outcome(write: &Write, row: &Row) -> Option<Outcome> {
    let found = || -> Option<Entry> {
        let version: Version = row.try_get::<_, &str>(2).ok()?.parse().ok()?;
        Some(Entry {
            key: write.key.clone(),
            version,
            value: value(row.try_get(3).ok()?, row.try_get(4).ok()?),
        })
    };
    match row.try_get(1).ok()? {
        "applied" => Some(Outcome::Applied),
        "severed" => Some(Outcome::Failed(StoreError::severed(STORE))),
        "absent" => Some(Outcome::Conflict(None)),
        "conflict" => Some(Outcome::Conflict(Some(found()?))),
        "refused" => {
            let found = found()?;
            match judge(STORE, write, Some((found.version, found.value.token))) {
                Verdict::Refuse(why) => Some(Outcome::Failed(why)),
                Verdict::Apply | Verdict::Conflict => None,
            }
        }
        _ => None,
    }
}

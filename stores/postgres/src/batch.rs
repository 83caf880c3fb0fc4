//! A batch of writes as the arrays of one statement.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::STORE;
use super::rows::{Param, READ, found};
use tenure_store::kit::liveness::LockNumber;
use tenure_store::kit::rules::{WriteDecision, decide, refused_outright};
use tenure_store::{Entry, Name, Outcome, StoreError, Write};

/// A batch of compare-and-sets.
pub(super) const WRITE: &str = "
SELECT item, outcome, now_version AS version, now_token AS token, now_value AS value
FROM tenure_write_v2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

/// A batch, and everything that a query asks for, in one statement: rows with an item tell of writes, the others are registers.
/// After the parameters of [`WRITE`] come those of [`READ`], without the namespace.
pub(super) fn exchange() -> String {
    let read = (2..=6)
        .rev()
        .fold(READ.to_owned(), |read, nth| read.replace(&format!("${nth}"), &format!("${}", nth + 10)));
    format!(
        "SELECT item, outcome, NULL::text AS epoch, NULL::text AS kind, NULL::text AS name, version, token, value
FROM ({WRITE}) AS written
UNION ALL
SELECT NULL::bigint, NULL::text, found.* FROM ({read}) AS found"
    )
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
    notifies: Vec<bool>,
    /// The lock that an item has to prove.
    locks: Vec<Option<i64>>,
    patience: i32,
}

impl Batch {
    pub(super) fn new(namespace: &Name, writes: &[Write], patience: i32) -> Self {
        let lock = |write: &Write| {
            LockNumber::of_key(namespace, &write.key).filter(|_| write.requires_lock).map(LockNumber::get)
        };
        let plain = |write: &Write| Write {
            requires_lock: write.requires_lock && lock(write).is_none(),
            ..write.clone()
        };
        let locks: Vec<_> = writes.iter().map(lock).collect();
        let writes: Vec<_> = writes.iter().map(plain).collect();
        let refused: Vec<_> = writes.iter().map(refused_without_asking).collect();
        let mut items: Vec<usize> = (0..writes.len()).filter(|nth| refused[*nth].is_none()).collect();
        items.sort_by(|a, b| writes[*a].key.cmp(&writes[*b].key));
        let each = || items.iter().map(|nth| &writes[*nth]);
        let put = |write: &Write| write.put.clone();
        Self {
            namespace: namespace.to_string(),
            refused,
            epochs: each().map(|write| write.key.epoch().get().to_string()).collect(),
            kinds: each().map(|write| write.key.kind().as_str()).collect(),
            names: each().map(|write| write.key.name().into_owned()).collect(),
            expects: each().map(|write| write.expect.map(|version| version.to_string())).collect(),
            versions: each().map(|write| put(write).map(|(version, _)| version.to_string())).collect(),
            tokens: each().map(|write| put(write)?.1.token.map(|token| token.get().cast_signed())).collect(),
            values: each().map(|write| put(write).map(|(_, value)| value.json.to_string())).collect(),
            notifies: each().map(|write| write.notify).collect(),
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
            (&self.notifies, Type::BOOL_ARRAY),
            (&self.locks, Type::INT8_ARRAY),
            (&self.patience, Type::INT4),
        ]
    }

    /// One outcome for each write, in the order in which they were given.
    pub(super) fn outcomes(&self, rows: &[Row]) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> =
            self.refused.iter().map(|refused| refused.clone().map(Outcome::Failed)).collect();
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
fn refused_without_asking(write: &Write) -> Option<StoreError> {
    if write.put.as_ref().is_some_and(|(_, value)| value.json.contains('\0')) {
        let message =
            format!("{} cannot be written: its value has a zero byte, which is not JSON", write.key);
        return Some(StoreError::not_applied(STORE, message).permanent());
    }
    refused_outright(STORE, write)
}

fn outcome(write: &Write, row: &Row) -> Option<Outcome> {
    let found = || -> Option<Entry> {
        let (version, token, json) =
            (row.try_get("version").ok()?, row.try_get("token").ok()?, row.try_get("value").ok()?);
        Some(found(write.key.clone(), version, token, json))
    };
    match row.try_get(1).ok()? {
        "applied" => Some(Outcome::Applied),
        "severed" => Some(Outcome::Failed(StoreError::severed(STORE))),
        "absent" => Some(Outcome::Conflict(None)),
        "conflict" => Some(Outcome::Conflict(Some(found()?))),
        "refused" => {
            let found = found()?;
            match decide(STORE, write, Some((found.version, found.value.token))) {
                WriteDecision::Refuse(why) => Some(Outcome::Failed(why)),
                WriteDecision::Apply | WriteDecision::Conflict => None,
            }
        }
        _ => None,
    }
}

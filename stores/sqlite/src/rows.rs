//! Registers as rows.

use rusqlite::{Connection, Error, OptionalExtension, Row, params};
use tenure_core::Token;

use super::STORE;
use tenure_store::kit::rules::{WriteDecision, decide};
use tenure_store::{Entry, Epoch, Key, Name, Outcome, Query, Value, Write};

const BY_KEY: &str = "SELECT epoch, kind, name, version, token, value FROM registers
    WHERE namespace = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4";
const BY_KIND: &str = "SELECT epoch, kind, name, version, token, value FROM registers
    WHERE namespace = ?1 AND epoch = ?2 AND kind = ?3";
const BY_CHANGE: &str = "SELECT epoch, kind, name, namespace FROM registers
    WHERE seq > ?1 AND seq > 0 ORDER BY seq LIMIT ?2";
const INSERT: &str = "INSERT INTO registers (namespace, epoch, kind, name, version, token, value, seq)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
const UPDATE: &str = "UPDATE registers SET version = ?5, token = ?6, value = ?7,
    seq = CASE WHEN ?8 > 0 THEN ?8 ELSE seq END
    WHERE namespace = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4";
const DELETE: &str = "DELETE FROM registers WHERE namespace = ?1 AND epoch = ?2 AND kind = ?3 AND name = ?4";
const DELETED: &str = "INSERT INTO tenure_deletions (namespace, seq) VALUES (?1, ?2)
    ON CONFLICT (namespace) DO UPDATE SET seq = excluded.seq";

/// Everything that a query asks for, each register once. The caller holds a transaction, so that it is one moment.
pub(super) fn select(connection: &Connection, namespace: &Name, query: &Query) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::new();
    let mut by_kind = connection.prepare_cached(BY_KIND)?;
    for (nth, (epoch, kind)) in query.kinds.iter().enumerate() {
        if query.kinds[..nth].contains(&(*epoch, *kind)) {
            continue;
        }
        let rows =
            by_kind.query_map(params![namespace.as_str(), epoch_text(*epoch), kind.as_str()], entry)?;
        found.extend(rows.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?);
    }
    let mut seen = std::collections::HashSet::new();
    for key in &query.keys {
        if !query.kinds.contains(&(key.epoch(), key.kind())) && seen.insert(key) {
            found.extend(lookup(connection, namespace, key)?);
        }
    }
    Ok(found)
}

/// What changed after a number, in order: at most `limit` registers.
pub(super) fn changed(connection: &Connection, after: i64, limit: u32) -> Result<Vec<(Name, Key)>, Error> {
    let mut select = connection.prepare_cached(BY_CHANGE)?;
    let rows = select.query_map(params![after, limit], |row| {
        let namespace = Name::new(row.get_ref(3)?.as_str()?).ok();
        Ok(namespace.zip(key(row)?))
    })?;
    rows.filter_map(Result::transpose).collect()
}

/// The namespaces in which something was deleted after a number.
pub(super) fn deleted(connection: &Connection, after: i64) -> Result<Vec<Name>, Error> {
    let mut select = connection.prepare_cached("SELECT namespace FROM tenure_deletions WHERE seq > ?1")?;
    let rows = select.query_map([after], |row| Ok(Name::new(row.get_ref(0)?.as_str()?).ok()))?;
    rows.filter_map(Result::transpose).collect()
}

/// Carries out one write inside a transaction that excludes other writers. `seq` is its number if it notifies.
pub(super) fn apply(
    connection: &Connection,
    namespace: &Name,
    write: &Write,
    seq: i64,
) -> Result<Outcome, Error> {
    let current = lookup(connection, namespace, &write.key)?;
    match decide(STORE, write, current.as_ref().map(|found| (found.version, found.value.token))) {
        WriteDecision::Conflict => Ok(Outcome::Conflict(current)),
        WriteDecision::Refuse(why) => Ok(Outcome::Failed(why)),
        WriteDecision::Apply => change(connection, namespace, write, seq).map(|()| Outcome::Applied),
    }
}

fn change(connection: &Connection, namespace: &Name, write: &Write, seq: i64) -> Result<(), Error> {
    let (space, key) = (namespace.as_str(), &write.key);
    let (epoch, kind, name) = (epoch_text(key.epoch()), key.kind().as_str(), key.name());
    let Some((version, value)) = &write.put else {
        if write.expect.is_some() {
            connection.prepare_cached(DELETE)?.execute(params![space, epoch, kind, name])?;
        }
        if write.notify {
            connection.prepare_cached(DELETED)?.execute(params![space, seq])?;
        }
        return Ok(());
    };
    let sql = if write.expect.is_some() { UPDATE } else { INSERT };
    let token = value.token.map(|token| token.get().cast_signed());
    let seq = if write.notify { seq } else { 0 };
    let row = params![space, epoch, kind, name, version.to_string(), token, &*value.json, seq];
    connection.prepare_cached(sql)?.execute(row).map(drop)
}

fn lookup(connection: &Connection, namespace: &Name, key: &Key) -> Result<Option<Entry>, Error> {
    let mut select = connection.prepare_cached(BY_KEY)?;
    let row = params![namespace.as_str(), epoch_text(key.epoch()), key.kind().as_str(), key.name()];
    select.query_row(row, entry).optional().map(Option::flatten)
}

/// A row; none if this version cannot have written it, and so cannot name it.
fn entry(row: &Row<'_>) -> Result<Option<Entry>, Error> {
    let text = |column| row.get_ref(column)?.as_str().map_err(Error::from);
    let Some(key) = key(row)? else { return Ok(None) };
    let token = row.get::<_, Option<i64>>(4)?.map(|token| Token::new(token.cast_unsigned()));
    let whole = text(3).ok().and_then(|version| version.parse().ok()).zip(text(5).ok());
    let (version, value) = whole
        .map(|(version, json)| (version, Value { token, json: json.into() }))
        .unwrap_or_else(Value::unreadable);
    Ok(Some(Entry { key, version, value }))
}

/// The key that the first three columns hold.
fn key(row: &Row<'_>) -> Result<Option<Key>, Error> {
    let text = |column| row.get_ref(column)?.as_str().map_err(Error::from);
    let (Ok(epoch), Ok(kind), Ok(name)) = (text(0), text(1), text(2)) else { return Ok(None) };
    let (Ok(epoch), Ok(kind)) = (epoch.parse().map(Epoch::new), kind.parse()) else { return Ok(None) };
    Ok(Key::from_parts(epoch, kind, name).ok())
}

fn epoch_text(epoch: Epoch) -> String {
    epoch.get().to_string()
}

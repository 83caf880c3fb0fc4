//! Registers as rows, and questions about them as text.
//!
//! Names, versions and epochs have no character that SQL could take for anything else; values are written in hexadecimal.
//! So no mode of the server, and no character set, can change what a statement means.

use std::collections::{BTreeMap, BTreeSet};

use mysql_async::Row;
use tenure_core::Token;

use super::connection::text_of;
use tenure_store::kit::registers::split;
use tenure_store::{Entry, Epoch, Key, Kind, Name, Query, Value};

const COLUMNS: &str = "epoch, kind, name, version, token, value";

/// Everything that a query asks for, in one statement and so of one moment.
pub(super) fn select(namespace: &Name, query: &Query) -> String {
    let (kinds, keys) = split(query);
    let of_kind =
        |(epoch, kind): &(Epoch, Kind)| format!("(epoch = '{}' AND kind = '{}')", epoch.get(), kind.as_str());
    let mut wanted: Vec<_> = kinds.iter().map(of_kind).collect();
    wanted.extend(by_name(keys));
    format!(
        "SELECT {COLUMNS} FROM tenure_registers FORCE INDEX (PRIMARY) WHERE namespace = '{namespace}' AND ({})",
        wanted.join(" OR ")
    )
}

/// Some registers by name; there is at least one.
pub(super) fn select_keys<'a>(namespace: &Name, keys: impl Iterator<Item = &'a Key>) -> String {
    select(namespace, &Query { keys: keys.cloned().collect(), kinds: Vec::new() })
}

/// Names of one kind make one list, which the server looks up by its index.
fn by_name(keys: BTreeSet<&Key>) -> Vec<String> {
    let mut lists: BTreeMap<(u64, &str), BTreeSet<String>> = BTreeMap::new();
    for key in keys {
        let list = lists.entry((key.epoch().get(), key.kind().as_str())).or_default();
        list.insert(format!("'{}'", key.name()));
    }
    let one = |((epoch, kind), names): (_, BTreeSet<String>)| {
        let names = names.into_iter().collect::<Vec<_>>().join(",");
        format!("(epoch = '{epoch}' AND kind = '{kind}' AND name IN ({names}))")
    };
    lists.into_iter().map(one).collect()
}

/// The condition that names one register.
pub(super) fn is(namespace: &Name, key: &Key) -> String {
    let (epoch, kind, name) = (key.epoch().get(), key.kind().as_str(), key.name());
    format!("namespace = '{namespace}' AND epoch = '{epoch}' AND kind = '{kind}' AND name = '{name}'")
}

/// What a row of [`select`] says; none if this version cannot have written it, and so cannot name it.
pub(super) fn entry(row: &Row) -> Option<Entry> {
    let text = |column| text_of(row, column);
    let token = text(4).map(|token| token.parse().map(Token::new)).transpose().ok()?;
    let whole = text(3).and_then(|version| version.parse().ok()).zip(text(5));
    let (version, value) = whole
        .map(|(version, json)| (version, Value { token, json: json.into() }))
        .unwrap_or_else(Value::unreadable);
    Some(Entry { key: key_at(row, 0)?, version, value })
}

/// The key that three columns hold.
pub(super) fn key_at(row: &Row, first: usize) -> Option<Key> {
    let text = |column| text_of(row, first + column);
    let kind: Kind = text(1)?.parse().ok()?;
    Key::from_parts(Epoch::new(text(0)?.parse().ok()?), kind, &text(2)?).ok()
}

/// A value as a literal.
pub(super) fn literal(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(2 * text.len() + 14);
    hex.push_str("_utf8mb4 x'");
    for byte in text.bytes() {
        hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    hex.push('\'');
    hex
}

pub(super) fn token_literal(token: Option<Token>) -> String {
    token.map_or_else(|| "NULL".to_owned(), |token| token.get().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_is_asked_for_once_and_values_are_harmless() {
        let name = |text| Name::new(text).unwrap();
        let node = |text| Key::Named(Epoch::new(7), Kind::Node, name(text));
        let query = Query {
            keys: vec![node("b"), node("a"), node("b"), Key::Named(Epoch::new(7), Kind::Role, name("r"))],
            kinds: vec![(Epoch::new(7), Kind::Role), (Epoch::new(7), Kind::Role)],
        };
        let text = select(&name("space"), &query);
        let wanted = "WHERE namespace = 'space' AND ((epoch = '7' AND kind = 'role') OR \
            (epoch = '7' AND kind = 'node' AND name IN ('a','b')))";
        assert!(text.ends_with(wanted), "{text}");
        assert_eq!(literal("'\\é"), "_utf8mb4 x'275cc3a9'");
        assert_eq!(token_literal(Some(Token::new((1 << 53) - 1))), "9007199254740991");
    }
}

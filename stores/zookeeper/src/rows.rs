//! Questions about registers: a barrier, and then the data of their znodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::PRODUCT;
use super::connection::ZooKeeperConnection;
use super::error::{self, code};
use super::operations::Operations;
use super::wire::{Answer, Part, Question, Reply, Stat, op};
use tenure_store::kit::connection::Connection as _;
use tenure_store::kit::packed::entry;
use tenure_store::{Entry, Epoch, Key, Kind, Name, Query, StoreError};

/// Znodes in one question.
const SEVERAL: usize = 200;

/// Reads registers; each that was asked for twice, by name and by kind, once.
pub(super) async fn read(
    operations: &Operations,
    namespace: &Name,
    query: &Query,
) -> Result<Vec<Entry>, StoreError> {
    let until = operations.until();
    loop {
        let connection = operations.connection(until).await?;
        match read_on(operations, &connection, namespace, query, until).await {
            Ok(found) => return Ok(found),
            // A connection that ended takes a question with it that may be asked again.
            Err(_) if connection.broken().is_cancelled() && Instant::now() < until => {}
            Err(error) => return Err(error.only_looked()),
        }
    }
}

async fn read_on(
    operations: &Operations,
    connection: &Arc<ZooKeeperConnection>,
    namespace: &Name,
    query: &Query,
    until: Instant,
) -> Result<Vec<Entry>, StoreError> {
    let barrier = operations.barrier(connection)?;
    let questions = ask(operations, connection, namespace, query);
    operations.passed(connection, barrier, until).await?;
    answers(operations, connection, namespace, questions, until).await
}

/// Registers that were asked for.
struct Asked {
    keys: Vec<Key>,
    reply: oneshot::Receiver<Reply>,
}

/// Questions about registers that were sent: first the names of all registers of some kinds, together with what is held by those
/// that are named, and by those that were there when a kind was last listed. Servers answer a connection in the order of its
/// questions.
pub(super) struct Questions {
    kinds: Vec<(Epoch, Kind)>,
    first: Asked,
    rest: Vec<Asked>,
}

/// Asks for registers: what follows a write on the same connection is answered from a state that has it.
pub(super) fn ask(
    operations: &Operations,
    connection: &ZooKeeperConnection,
    namespace: &Name,
    query: &Query,
) -> Questions {
    let kinds: BTreeSet<_> = query.kinds.iter().copied().collect();
    let places: Vec<_> =
        kinds.iter().map(|(epoch, kind)| operations.keys.kind(namespace, *epoch, *kind)).collect();
    let named = query.keys.iter().filter(|key| !kinds.contains(&(key.epoch(), key.kind()))).cloned();
    let keys: BTreeSet<_> = named.chain(places.iter().flat_map(|place| operations.listed(place))).collect();
    let mut keys: Vec<_> = keys.into_iter().collect();
    let rest = keys.split_off(keys.len().min(SEVERAL));
    let first = ask_for(operations, connection, namespace, &places, &keys);
    Questions {
        kinds: kinds.into_iter().collect(),
        first,
        rest: several(operations, connection, namespace, &rest),
    }
}

/// The answers. Registers that came since the last time are asked for now.
pub(super) async fn answers(
    operations: &Operations,
    connection: &Arc<ZooKeeperConnection>,
    namespace: &Name,
    questions: Questions,
    until: Instant,
) -> Result<Vec<Entry>, StoreError> {
    let Questions { kinds, first, mut rest } = questions;
    let mut found = Vec::new();
    let mut parts = parts(connection, operations.answer(connection, first.reply, until).await?)?.into_iter();
    for (epoch, kind) in kinds {
        let names = names(connection, parts.next())?;
        let listed: Vec<_> =
            names.iter().filter_map(|name| Key::from_parts(epoch, kind, name).ok()).collect();
        let asked: BTreeSet<_> = first.keys.iter().chain(rest.iter().flat_map(|asked| &asked.keys)).collect();
        let new: Vec<_> = listed.iter().filter(|key| !asked.contains(key)).cloned().collect();
        rest.extend(several(operations, connection, namespace, &new));
        let few = if listed.len() <= SEVERAL { listed } else { Vec::new() };
        operations.remember_listed(operations.keys.kind(namespace, epoch, kind), few);
    }
    take_in(connection, &first.keys, parts, &mut found)?;
    for Asked { keys, reply } in rest {
        let parts = self::parts(connection, operations.answer(connection, reply, until).await?)?;
        take_in(connection, &keys, parts.into_iter(), &mut found)?;
    }
    for entry in &found {
        let path = operations.keys.register(namespace, &entry.key);
        operations.remember(&path, Some((entry.version, entry.value.token)));
    }
    Ok(found)
}

/// Asks for the names of what these places hold, and for some registers.
fn ask_for(
    operations: &Operations,
    connection: &ZooKeeperConnection,
    namespace: &Name,
    places: &[String],
    keys: &[Key],
) -> Asked {
    let paths: Vec<_> = keys.iter().map(|key| operations.keys.register(namespace, key)).collect();
    Asked { keys: keys.to_vec(), reply: connection.ask(Question::several(places, &paths)) }
}

/// Asks for some registers.
fn several(
    operations: &Operations,
    connection: &ZooKeeperConnection,
    namespace: &Name,
    keys: &[Key],
) -> Vec<Asked> {
    keys.chunks(SEVERAL).map(|keys| ask_for(operations, connection, namespace, &[], keys)).collect()
}

/// What was found of several znodes.
fn parts(connection: &ZooKeeperConnection, reply: Reply) -> Result<Vec<Result<Part, i32>>, StoreError> {
    if reply.code != code::OK {
        return Err(error::of_code(&connection.link.place, reply.code));
    }
    Answer::new(reply.body).several().map_err(|_| PRODUCT.strange(&connection.link.place))
}

/// The names in a place; none if it is not there.
fn names(
    connection: &ZooKeeperConnection,
    part: Option<Result<Part, i32>>,
) -> Result<Vec<String>, StoreError> {
    match part {
        Some(Ok(Part::Names(names))) => Ok(names),
        Some(Err(code::NO_NODE)) => Ok(Vec::new()),
        Some(Err(code)) => Err(error::of_code(&connection.link.place, code)),
        Some(Ok(Part::Data(_))) | None => Err(PRODUCT.strange(&connection.link.place)),
    }
}

/// Takes in what registers hold; those that are not there hold nothing.
fn take_in(
    connection: &ZooKeeperConnection,
    keys: &[Key],
    parts: impl Iterator<Item = Result<Part, i32>>,
    found: &mut Vec<Entry>,
) -> Result<(), StoreError> {
    for (key, part) in keys.iter().zip(parts) {
        match part {
            Ok(Part::Data(data)) => found.push(entry(key, &data)),
            Ok(Part::Names(_)) => return Err(PRODUCT.strange(&connection.link.place)),
            Err(code::NO_NODE) => {}
            Err(code) => return Err(error::of_code(&connection.link.place, code)),
        }
    }
    Ok(())
}

/// The names of what a znode holds; none if it is not there.
fn children(connection: &ZooKeeperConnection, reply: Reply) -> Result<Vec<String>, StoreError> {
    match reply.code {
        code::OK => Answer::new(reply.body).texts().map_err(|_| PRODUCT.strange(&connection.link.place)),
        code::NO_NODE => Ok(Vec::new()),
        code => Err(error::of_code(&connection.link.place, code)),
    }
}

/// A register as it is now: what it holds, what its markers are called, and how often its data was changed.
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) markers: Vec<String>,
    pub(super) changes: i32,
}

/// Looks at one register; nothing if it is absent.
pub(super) async fn look(
    operations: &Operations,
    connection: &Arc<ZooKeeperConnection>,
    key: &Key,
    path: &str,
    until: Instant,
) -> Result<Option<Found>, StoreError> {
    loop {
        let barrier = operations.barrier(connection)?;
        let data = connection.ask(Question::about(op::GET_DATA, path).flag(false));
        let markers = connection.ask(Question::about(op::GET_CHILDREN, path).flag(false));
        let again = connection.ask(Question::about(op::GET_DATA, path).flag(false));
        operations.passed(connection, barrier, until).await?;
        let found = content(connection, key, operations.answer(connection, data, until).await?)?;
        let markers = children(connection, operations.answer(connection, markers, until).await?)?;
        let again = content(connection, key, operations.answer(connection, again, until).await?)?;
        match (found, again) {
            (None, None) => return Ok(None),
            // Data and markers belong together only if nothing was written between the two.
            (Some((entry, stat)), Some((_, later))) if stat == later => {
                return Ok(Some(Found { entry, markers, changes: stat.changes }));
            }
            _ => {}
        }
    }
}

fn content(
    connection: &ZooKeeperConnection,
    key: &Key,
    reply: Reply,
) -> Result<Option<(Entry, Stat)>, StoreError> {
    let strange = |_| PRODUCT.strange(&connection.link.place);
    match reply.code {
        code::OK => {
            let mut answer = Answer::new(reply.body);
            let data = answer.bytes().map_err(strange)?;
            Ok(Some((entry(key, &data), answer.stat().map_err(strange)?)))
        }
        code::NO_NODE => Ok(None),
        code => Err(error::of_code(&connection.link.place, code)),
    }
}

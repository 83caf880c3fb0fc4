//! Questions about registers: a barrier, and then the data of their znodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::Instant;

use super::PRODUCT;
use super::connection::ZooKeeperConnection;
use super::error::{self, code};
use super::operations::Operations;
use super::wire::{Answer, Question, Reply, Stat, op};
use tenure_store::kit::connection::Connection as _;
use tenure_store::kit::packed::entry;
use tenure_store::{Entry, Key, Name, Query, StoreError};

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
    let whole: BTreeSet<_> = query.kinds.iter().copied().collect();
    let named: BTreeSet<_> =
        query.keys.iter().filter(|key| !whole.contains(&(key.epoch(), key.kind()))).collect();
    // Everything is asked at once: servers answer a connection in the order of its questions.
    let barrier = operations.barrier(connection);
    let list = |(epoch, kind)| {
        let path = operations.keys.kind(namespace, epoch, kind);
        (epoch, kind, connection.ask(Question::about(op::GET_CHILDREN, &path).flag(false)))
    };
    let lists: Vec<_> = whole.into_iter().map(list).collect();
    let named: Vec<_> = named.into_iter().cloned().collect();
    let named = several(operations, connection, namespace, &named);
    operations.passed(connection, barrier, until).await?;
    let mut listed = Vec::new();
    for (epoch, kind, reply) in lists {
        let names = children(connection, operations.answer(connection, reply, until).await?)?;
        listed.extend(names.iter().filter_map(|name| Key::from_parts(epoch, kind, name).ok()));
    }
    let listed = several(operations, connection, namespace, &listed);
    let mut found = Vec::new();
    for (keys, reply) in named.into_iter().chain(listed) {
        let reply = operations.answer(connection, reply, until).await?;
        if reply.code != code::OK {
            return Err(error::of_code(&connection.link.place, reply.code));
        }
        let data = Answer::new(reply.body).several().map_err(|_| PRODUCT.strange(&connection.link.place))?;
        for (key, data) in keys.iter().zip(data) {
            match data {
                Ok(data) => found.push(entry(key, &data)),
                Err(code::NO_NODE) => {}
                Err(code) => return Err(error::of_code(&connection.link.place, code)),
            }
        }
    }
    for entry in &found {
        let path = operations.keys.register(namespace, &entry.key);
        operations.remember(&path, Some((entry.version, entry.value.token)));
    }
    Ok(found)
}

type Asked = (Vec<Key>, tokio::sync::oneshot::Receiver<Reply>);

/// Asks for some registers.
fn several(
    operations: &Operations,
    connection: &ZooKeeperConnection,
    namespace: &Name,
    keys: &[Key],
) -> Vec<Asked> {
    let ask = |keys: &[Key]| {
        let paths: Vec<_> = keys.iter().map(|key| operations.keys.register(namespace, key)).collect();
        (keys.to_vec(), connection.ask(Question::several(&paths)))
    };
    keys.chunks(SEVERAL).map(ask).collect()
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
        let barrier = operations.barrier(connection);
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

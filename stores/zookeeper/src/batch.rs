//! Writes: each one transaction, carried out only if the marker of the expected version is there to be deleted.

use std::sync::Arc;

use tokio::time::Instant;

use super::STORE;
use super::connection::ZooKeeperConnection;
use super::error::{self, code};
use super::keys::{marker, parent};
use super::operations::Operations;
use super::rows::{self, look};
use super::wire::{ANY, Step};
use tenure_core::Token;
use tenure_store::kit::batch::write_each;
use tenure_store::kit::packed::pack;
use tenure_store::kit::rules::{WriteDecision, decide};
use tenure_store::{Entry, Exchanged, Name, Outcome, Query, StoreError, Version, Write};

/// Carries out a batch: writes of different registers all at once, those of one register one after the other.
pub(super) async fn write(
    operations: &Operations,
    namespace: &Name,
    writes: &[Write],
) -> Result<Vec<Outcome>, StoreError> {
    let until = operations.until();
    let connection = &operations.connection(until).await?;
    let outcomes = write_each(STORE, usize::MAX, writes, |write| {
        compare_and_set(operations, connection, namespace, write, until)
    });
    Ok(outcomes.await)
}

/// One write, and a read whose barrier it is: a beat and its poll are two packets, which are sent together. None if the write is
/// refused, or is not known to be the one that will be applied: then nothing was changed.
pub(super) async fn write_then_read(
    operations: &Operations,
    namespace: &Name,
    writes: &[Write],
    query: &Query,
) -> Option<Exchanged> {
    let [write] = writes else { return None };
    let path = operations.keys.register(namespace, &write.key);
    let basis = guess(operations, write, &path)?;
    if !matches!(decide(STORE, write, basis.content), WriteDecision::Apply) {
        return None;
    }
    let until = operations.until();
    let both = async {
        let connection = operations.connection(until).await?;
        let steps = steps(operations, namespace, write, &path, &basis);
        let sent = operations.send_transaction(&connection, &steps)?;
        let questions = rows::ask(operations, &connection, namespace, query);
        if operations.outcome(&connection, sent, until).await?.is_err() {
            return Ok(None);
        }
        applied(operations, &path, write);
        let read = rows::answers(operations, &connection, namespace, questions, until).await;
        let read = read.map_err(StoreError::only_looked);
        Ok(Some(Exchanged { written: Ok(vec![Outcome::Applied]), read }))
    };
    both.await.unwrap_or_else(|error| Some(Exchanged::failed(&error)))
}

/// Keeps in mind what a register holds since that write.
fn applied(operations: &Operations, path: &str, write: &Write) {
    let content = write.put.as_ref().map(|(version, value)| (*version, value.token));
    operations.remember(path, content);
}

/// What a register is taken for while a write is prepared.
struct Basis {
    /// Version and token; none if it is absent.
    content: Option<(Version, Option<Token>)>,
    /// What it holds, if it was looked at.
    entry: Option<Entry>,
    /// The markers that have to go.
    markers: Vec<String>,
    /// How often its data must have been changed.
    changes: i32,
}

/// One request if this handle has seen the expected version; otherwise the register is looked at first.
async fn compare_and_set(
    operations: &Operations,
    connection: &Arc<ZooKeeperConnection>,
    namespace: &Name,
    write: &Write,
    until: Instant,
) -> Result<Outcome, StoreError> {
    let path = operations.keys.register(namespace, &write.key);
    let mut guess = guess(operations, write, &path);
    loop {
        let basis = match guess.take() {
            Some(basis) => basis,
            None => {
                basis(operations, connection, write, &path, until).await.map_err(StoreError::only_looked)?
            }
        };
        match decide(STORE, write, basis.content) {
            WriteDecision::Refuse(why) => return Ok(Outcome::Failed(why)),
            WriteDecision::Conflict => return Ok(Outcome::Conflict(basis.entry)),
            // What is absent need not be deleted.
            WriteDecision::Apply if write.put.is_none() && write.expect.is_none() => {
                return Ok(Outcome::Applied);
            }
            WriteDecision::Apply => {}
        }
        let steps = steps(operations, namespace, write, &path, &basis);
        match operations.transaction(connection, &steps, until).await? {
            Ok(()) => {
                applied(operations, &path, write);
                return Ok(Outcome::Applied);
            }
            Err(failed) if Instant::now() >= until => {
                let message =
                    format!("{} is being written by others all the time ({})", write.key, failed.code);
                return Err(StoreError::not_applied(STORE, message));
            }
            Err(failed)
                if failed.code == code::NO_NODE && matches!(steps[failed.nth], Step::Create { .. }) =>
            {
                let above = parent(steps[failed.nth].path()).unwrap_or_default();
                operations.make(connection, above, until).await.map_err(StoreError::only_looked)?;
                guess = Some(basis);
            }
            Err(failed)
                if [code::NO_NODE, code::NODE_EXISTS, code::BAD_VERSION, code::NOT_EMPTY]
                    .contains(&failed.code) => {}
            Err(failed) => return Err(error::of_code(&connection.link.place, failed.code)),
        }
    }
}

/// What the register must be for the write to be applied, if that is known.
fn guess(operations: &Operations, write: &Write, path: &str) -> Option<Basis> {
    let content = match write.expect {
        None if write.put.is_none() => return None,
        None => None,
        Some(expected) => Some(operations.recall(path).filter(|(version, _)| *version == expected)?),
    };
    let markers = content.map(|(version, _)| marker(path, version)).into_iter().collect();
    Some(Basis { content, entry: None, markers, changes: ANY })
}

/// What the register is. Its data and its marker name one version unless another program wrote there: then all that is found
/// counts.
async fn basis(
    operations: &Operations,
    connection: &Arc<ZooKeeperConnection>,
    write: &Write,
    path: &str,
    until: Instant,
) -> Result<Basis, StoreError> {
    let Some(found) = look(operations, connection, &write.key, path, until).await? else {
        return Ok(Basis { content: None, entry: None, markers: Vec::new(), changes: ANY });
    };
    let content = (found.entry.version, found.entry.value.token);
    operations.remember(path, Some(content));
    let markers = found.markers.iter().map(|name| format!("{path}/{name}")).collect();
    Ok(Basis { content: Some(content), entry: Some(found.entry), markers, changes: found.changes })
}

fn steps(operations: &Operations, namespace: &Name, write: &Write, path: &str, basis: &Basis) -> Vec<Step> {
    let delete = |path: String| Step::Delete { path };
    let create = |path: String, data: String| Step::Create { path, data };
    let set = |data: String| Step::Set { path: path.to_owned(), data, changes: basis.changes };
    let mut steps: Vec<_> = basis.markers.iter().cloned().map(delete).collect();
    match (&write.put, basis.content) {
        (Some((version, value)), None) => {
            steps.push(create(path.to_owned(), pack(*version, value)));
            steps.push(create(marker(path, *version), String::new()));
        }
        (Some((version, value)), Some(_)) => {
            steps.push(create(marker(path, *version), String::new()));
            steps.push(set(pack(*version, value)));
        }
        (None, _) => {
            steps.push(set(String::new()));
            steps.push(delete(path.to_owned()));
        }
    }
    if write.notify {
        let change = operations.keys.change(namespace, &write.key);
        steps.push(create(change.clone(), String::new()));
        steps.push(delete(change));
    }
    steps
}

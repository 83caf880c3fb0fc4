//! Writes: each one message to the stream, applied only if its subject has the sequence that the expected version had.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::STORE;
use super::bucket::MARKER_TTL;
use super::connection::NatsConnection;
use super::keys::named;
use super::operations::{Operations, Published, Seen};
use super::rows::read_one;
use tenure_store::kit::batch::write_each;
use tenure_store::kit::packed::pack;
use tenure_store::kit::rules::{WriteDecision, decide};
use tenure_store::{Entry, Name, Outcome, StoreError, Write};

/// While another write of a register is under way, and may yet fail, ours is refused: it is tried again after this.
const UNDER_WAY: Duration = Duration::from_millis(5);

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

/// One request if this connection has seen the expected version; otherwise the register is read first.
async fn compare_and_set(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    namespace: &Name,
    write: &Write,
    until: Instant,
) -> Result<Outcome, StoreError> {
    let subject = operations.keys.register(namespace, &write.key);
    let mut seen = operations.recall(connection, &subject);
    if write.put.is_none() && write.expect.is_none() {
        seen = None;
    }
    let mut looked = false;
    loop {
        let fits = seen.and_then(|seen| seen.content).map(|(version, _)| version) == write.expect;
        if !fits || (write.expect.is_none() && write.put.is_none()) {
            let (there, now) = read_one(operations, connection, &write.key, &subject, until).await?;
            (seen, looked) = (now, true);
            if let Some(outcome) = decided(write, there) {
                return Ok(outcome);
            }
        } else if let Some(refusal) = refused(write, seen) {
            return Ok(Outcome::Failed(refusal));
        }
        match send(operations, connection, namespace, write, &subject, seen, until).await? {
            Published::At(sequence) => {
                let content = write.put.as_ref().map(|(version, value)| (*version, value.token));
                operations.remember(connection, &subject, Seen { content, sequence });
                return Ok(Outcome::Applied);
            }
            Published::WrongSequence if Instant::now() + UNDER_WAY >= until => {
                let message = format!("{} is being written by others all the time", write.key);
                return Err(StoreError::not_applied(STORE, message));
            }
            Published::WrongSequence => {
                // What it holds now decides; if that is what was expected, another write is under way.
                if looked {
                    tokio::time::sleep(UNDER_WAY).await;
                }
                let (there, now) = read_one(operations, connection, &write.key, &subject, until).await?;
                (seen, looked) = (now, true);
                if let Some(outcome) = decided(write, there) {
                    return Ok(outcome);
                }
            }
        }
    }
}

/// What the register that was just read makes of a write; nothing if the write is to be sent.
fn decided(write: &Write, there: Option<Entry>) -> Option<Outcome> {
    match decide(STORE, write, there.as_ref().map(|there| (there.version, there.value.token))) {
        WriteDecision::Refuse(why) => Some(Outcome::Failed(why)),
        WriteDecision::Conflict => Some(Outcome::Conflict(there)),
        // What is absent need not be deleted.
        WriteDecision::Apply if write.put.is_none() && write.expect.is_none() => Some(Outcome::Applied),
        WriteDecision::Apply => None,
    }
}

/// The rules about tokens, by what the register holds if the write is applied.
fn refused(write: &Write, seen: Option<Seen>) -> Option<StoreError> {
    match decide(STORE, write, seen.and_then(|seen| seen.content)) {
        WriteDecision::Refuse(why) => Some(why),
        WriteDecision::Conflict | WriteDecision::Apply => None,
    }
}

async fn send(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    namespace: &Name,
    write: &Write,
    subject: &str,
    seen: Option<Seen>,
    until: Instant,
) -> Result<Published, StoreError> {
    let expected = seen.map_or(0, |seen| seen.sequence);
    let mut headers = vec![("Nats-Expected-Last-Subject-Sequence", expected.to_string())];
    let payload = match &write.put {
        Some((version, value)) => pack(*version, value),
        None => {
            headers.push(("KV-Operation", "DEL".to_owned()));
            if operations.facts().marker_ttl {
                headers.push(("Nats-TTL", MARKER_TTL.to_owned()));
            }
            String::new()
        }
    };
    let register = write.notify.then(|| named(namespace, &write.key));
    operations.publish(connection, subject, register.as_deref(), &headers, payload.as_bytes(), until).await
}

//! Questions about registers: the last messages of some subjects, from a replica that has everything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::PRODUCT;
use super::bucket::{AskSubjects, StreamInfo};
use super::connection::{Answer, NatsConnection};
use super::error;
use super::operations::{Operations, Seen};
use super::wire::Message;
use tenure_store::kit::connection::Connection as _;
use tenure_store::kit::packed::{entry, unpack};
use tenure_store::{Entry, Key, Name, Query, StoreError, Value};

/// Subjects in one question. A server refuses to answer with more than 1024 messages.
const SUBJECTS: usize = 500;

/// How long a replica that lags behind is left alone before it is asked again.
const LAG: Duration = Duration::from_millis(5);

/// Reads registers; each that was asked for twice, by name and by kind, once.
pub(super) async fn read(
    operations: &Operations,
    namespace: &Name,
    query: &Query,
) -> Result<Vec<Entry>, StoreError> {
    let keys = &operations.keys;
    let whole: BTreeSet<_> = query.kinds.iter().copied().collect();
    let kinds = whole.iter().map(|(epoch, kind)| keys.kind(namespace, *epoch, *kind));
    let named = query.keys.iter().filter(|key| !whole.contains(&(key.epoch(), key.kind())));
    let named: BTreeSet<_> = named.map(|key| keys.register(namespace, key)).collect();
    let subjects: Vec<String> = kinds.chain(named).collect();
    let until = operations.until();
    loop {
        let connection = operations.connection(until).await?;
        match last_of(operations, &connection, &subjects, until).await {
            Ok(found) => {
                return Ok(found
                    .iter()
                    .filter_map(|message| register(operations, namespace, message))
                    .collect());
            }
            // A connection that ended takes a question with it that may be asked again.
            Err(_) if connection.broken().is_cancelled() && Instant::now() < until => {}
            Err(error) => return Err(error.only_looked()),
        }
    }
}

/// One register as it is now: what it holds, and which sequence that has; nothing if it never was there, or long ago.
pub(super) async fn read_one(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    key: &Key,
    subject: &str,
    until: Instant,
) -> Result<(Option<Entry>, Option<Seen>), StoreError> {
    operations.forget(subject);
    let found = last_of(operations, connection, &[subject.to_owned()], until)
        .await
        .map_err(StoreError::only_looked)?;
    let Some(message) = found.first() else { return Ok((None, None)) };
    let there = (!is_deletion(message)).then(|| entry(key, &message.payload));
    Ok((there, operations.recall(connection, subject)))
}

/// The last message of each subject, wildcards included.
async fn last_of(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    subjects: &[String],
    until: Instant,
) -> Result<Vec<Message>, StoreError> {
    let barrier = operations.barrier(connection, until).await?;
    let mut found = Vec::new();
    for part in subjects.chunks(SUBJECTS) {
        match several(operations, connection, part, barrier, until).await? {
            Some(messages) => found.extend(messages),
            None => {
                let names = list(operations, connection, part, barrier, until).await?;
                for part in names.chunks(SUBJECTS) {
                    let messages = several(operations, connection, part, barrier, until).await?;
                    found.extend(messages.ok_or_else(|| PRODUCT.strange(&connection.link.place))?);
                }
            }
        }
    }
    found.iter().for_each(|message| note(operations, connection, message));
    Ok(found)
}

/// One question, until a replica answers it that has the barrier; nothing if there would be too many answers.
async fn several(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    subjects: &[String],
    barrier: Option<u64>,
    until: Instant,
) -> Result<Option<Vec<Message>>, StoreError> {
    let mark = operations.keys.barrier();
    let wanted: Vec<&str> =
        subjects.iter().map(String::as_str).chain(barrier.map(|_| mark.as_str())).collect();
    loop {
        let Some(found) = pages(operations, connection, &wanted, until).await? else { return Ok(None) };
        let (marks, found): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|message| subject(message) == Some(mark.as_str()));
        let reached = marks.iter().filter_map(sequence).max();
        if barrier.is_none_or(|barrier| reached.is_some_and(|reached| reached >= barrier)) {
            return Ok(Some(found));
        }
        if Instant::now() + LAG >= until {
            return Err(PRODUCT.late(&connection.link.place, operations.settings.timeout));
        }
        tokio::time::sleep(LAG).await;
    }
}

/// All answers to one question; nothing if there would be too many. A replica that says nothing is not waited for long: the next
/// question may go to another one.
async fn pages(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    subjects: &[&str],
    until: Instant,
) -> Result<Option<Vec<Message>>, StoreError> {
    let (mut found, mut from) = (Vec::new(), 0);
    let patient = operations.patient(until);
    loop {
        let before = found.len();
        let patience = until.min(Instant::now() + operations.settings.suspicion());
        match page(operations, connection, subjects, from, &mut found, (patience, until)).await {
            Ok(Page::Whole) => return Ok(Some(found)),
            Ok(Page::From(next)) => from = next,
            Ok(Page::TooMany) => return Ok(None),
            Ok(Page::Unheard(error)) => operations.wait_for_leader(error, patient).await?,
            Err(_)
                if patience < until && Instant::now() >= patience && !connection.broken().is_cancelled() =>
            {
                found.truncate(before);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What one question brought.
enum Page {
    Whole,
    /// The rest begins at this sequence.
    From(u64),
    TooMany,
    /// No server listened.
    Unheard(StoreError),
}

/// One question to one replica. Each answer says which one came before it, so that none is missed.
async fn page(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    subjects: &[&str],
    from: u64,
    found: &mut Vec<Message>,
    (first, until): (Instant, Instant),
) -> Result<Page, StoreError> {
    let mut question = json!({ "multi_last": subjects });
    if from > 0 {
        question["seq"] = from.into();
    }
    let subject = format!("$JS.API.DIRECT.GET.{}", operations.keys.stream());
    let mut answers = connection.ask(&subject, None, &[], question.to_string().as_bytes());
    let (mut last, strange) = (0, || PRODUCT.strange(&connection.link.place));
    loop {
        let limit = if last == 0 { first } else { until };
        let message = match operations.answer(connection, &mut answers, limit).await? {
            Answer::Forbidden => return Err(error::forbidden(&connection.link.place)),
            Answer::Message(message) => message,
        };
        let follows = message.number("Nats-Last-Sequence") == Some(last);
        match message.status {
            None if follows => {
                last = sequence(&message).ok_or_else(strange)?;
                found.push(message);
            }
            Some(204) if follows => {
                operations.works();
                return match message.number("Nats-Num-Pending") {
                    Some(0) => Ok(Page::Whole),
                    Some(_) if last >= from.max(1) => Ok(Page::From(last + 1)),
                    _ => Err(strange()),
                };
            }
            Some(404) if last == 0 => {
                operations.works();
                return Ok(Page::Whole);
            }
            Some(413) => return Ok(Page::TooMany),
            Some(503) => return Ok(Page::Unheard(operations.unheard(connection, until).await)),
            _ => return Err(strange()),
        }
    }
}

/// The subjects that there are, of some that may be wildcards, as the leader of the stream knows them.
async fn list(
    operations: &Operations,
    connection: &Arc<NatsConnection>,
    subjects: &[String],
    barrier: Option<u64>,
    until: Instant,
) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for filter in subjects {
        if !filter.ends_with('*') {
            names.push(filter.clone());
            continue;
        }
        let mut offset = 0;
        loop {
            let question = serde_json::to_string(&AskSubjects { subjects_filter: filter, offset });
            let question = question.expect("a question serialises");
            let info: StreamInfo = operations.api(connection, "STREAM.INFO", &question, until).await?;
            let refused = info.error.map(|refusal| error::of_refusal(&connection.link.place, &refusal));
            if let Some(error) = refused {
                return Err(error);
            }
            if barrier.is_some_and(|barrier| info.state.last_seq < barrier) {
                return Err(PRODUCT.late(&connection.link.place, operations.settings.timeout));
            }
            let found = info.state.subjects.unwrap_or_default();
            offset += found.len();
            let whole = found.is_empty();
            names.extend(found.into_keys());
            if whole {
                break;
            }
        }
    }
    Ok(names)
}

/// A register that was found; none if it was deleted, or if this version cannot name it.
fn register(operations: &Operations, namespace: &Name, message: &Message) -> Option<Entry> {
    let (space, key) = operations.keys.read_register(subject(message)?)?;
    (space == *namespace && !is_deletion(message)).then(|| entry(&key, &message.payload))
}

/// Remembers which sequence a version has.
fn note(operations: &Operations, connection: &Arc<NatsConnection>, message: &Message) {
    let (Some(subject), Some(sequence)) = (subject(message), sequence(message)) else { return };
    let content = (!is_deletion(message)).then(|| {
        let (version, value) = unpack(&message.payload).unwrap_or_else(Value::unreadable);
        (version, value.token)
    });
    operations.remember(connection, subject, Seen { content, sequence });
}

fn subject(message: &Message) -> Option<&str> {
    message.header("Nats-Subject")
}

fn sequence(message: &Message) -> Option<u64> {
    message.number("Nats-Sequence")
}

/// Deleted by us, by `nats kv del`, or because it expired.
fn is_deletion(message: &Message) -> bool {
    message.header("KV-Operation").is_some() || message.header("Nats-Marker-Reason").is_some()
}

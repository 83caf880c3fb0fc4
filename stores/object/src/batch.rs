//! A batch of writes: each is one conditional put, independent of the others and sent beside them.

use bytes::Bytes;
use object_store::UpdateVersion;
use object_store::path::Path;

use super::STORE;
use super::bucket::{Bucket, Put, SeenObject};
use super::rows::AT_ONCE;
use tenure_store::kit::batch::write_each;
use tenure_store::kit::packed::pack;
use tenure_store::kit::rules::{WriteDecision, decide};
use tenure_store::{Entry, Name, Outcome, StoreError, Write};

/// So often a put is refused although nothing has changed before the endpoint is not believed any more. S3 refuses one of two
/// puts that meet (409), whichever would have been applied.
const TRIES: usize = 4;

/// Carries out a batch. Writes of one register go one after the other.
pub(super) async fn write(bucket: &Bucket, namespace: &Name, writes: &[Write]) -> Vec<Outcome> {
    write_each(STORE, AT_ONCE, writes, |write| write_one(bucket, namespace, write)).await
}

async fn write_one(bucket: &Bucket, namespace: &Name, write: &Write) -> Result<Outcome, StoreError> {
    attempt(bucket, &bucket.keys.register(namespace, &write.key), write).await
}

async fn attempt(bucket: &Bucket, path: &Path, write: &Write) -> Result<Outcome, StoreError> {
    // A put on what was seen last is refused if that is not there any more, so that it need not be looked at first; only a
    // register that this handle never saw in that version has to be.
    let mut seen = bucket.seen(path);
    let mut looked = false;
    for _ in 0..TRIES {
        let current = seen.as_ref().and_then(|seen| seen.held.as_ref());
        let decision = decide(STORE, write, current.map(|(version, value)| (*version, value.token)));
        match decision {
            WriteDecision::Apply => {
                // To delete what is absent changes nothing, once it was seen to be absent.
                let is_nothing = write.put.is_none() && write.expect.is_none();
                let applied = match is_nothing {
                    true => looked,
                    false => put(bucket, path, write, seen.as_ref()).await?,
                };
                if applied {
                    return Ok(Outcome::Applied);
                }
            }
            WriteDecision::Conflict if looked => {
                let entry = current.map(|(version, value)| Entry {
                    key: write.key.clone(),
                    version: *version,
                    value: value.clone(),
                });
                return Ok(Outcome::Conflict(entry));
            }
            WriteDecision::Refuse(why) if looked => return Ok(Outcome::Failed(why)),
            WriteDecision::Conflict | WriteDecision::Refuse(_) => {}
        }
        seen = bucket.get(path).await.map_err(|error| nothing_sent(&error))?;
        looked = true;
    }
    let message = format!("{} was refused {TRIES} times although it had not changed: try again", write.key);
    Err(StoreError::not_applied(STORE, message))
}

/// Whether it was applied; otherwise the endpoint refused it.
async fn put(
    bucket: &Bucket,
    path: &Path,
    write: &Write,
    over: Option<&SeenObject>,
) -> Result<bool, StoreError> {
    let content = write.put.as_ref().map_or_else(Bytes::new, |(version, value)| pack(*version, value).into());
    match bucket.put(path, content, over.map(|over| &over.at)).await? {
        Put::Refused => Ok(false),
        Put::Done(done) => {
            let at = UpdateVersion { e_tag: done.e_tag, version: done.version };
            bucket.remember(path, Some(SeenObject { at, held: write.put.clone() }));
            Ok(true)
        }
    }
}

/// What looking failed with: no put is under way.
pub(super) fn nothing_sent(error: &StoreError) -> StoreError {
    let seen = StoreError::not_applied(STORE, error.message().to_owned());
    seen.permanent_if(error.retry() == tenure_store::Retry::Never)
}

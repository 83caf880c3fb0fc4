//! Whether an endpoint really refuses stale puts: elections rest on nothing else.
//!
//! Servers that speak the interface of S3 are many, and some ignore conditions, or check them before they write without
//! anything to keep another put out meanwhile. So it is tried, with puts that meet.

use bytes::Bytes;
use futures_util::future::join_all;
use object_store::UpdateVersion;
use object_store::path::Path;
use tenure_core::Entropy;

use super::STORE;
use super::bucket::{Bucket, Put, is_same};
use super::settings::Provider;
use tenure_store::entropy::KernelEntropy;
use tenure_store::kit::packed::pack;
use tenure_store::{StoreError, Value, Version};

/// Puts that meet.
const RIVALS: usize = 4;

/// How often they meet, each time on what the last winner wrote.
const ROUNDS: usize = 3;

/// What was seen on the way.
#[derive(Debug, Clone, Default)]
pub(super) struct Findings {
    /// The bucket keeps what was replaced.
    pub(super) keeps_versions: bool,
}

/// Why there are no findings.
pub(super) enum Stopped {
    /// The endpoint did what it must not.
    Broken(StoreError),
    /// A request failed, which shows nothing.
    Failed(StoreError),
}

/// Tries it on an object of its own, which is removed afterwards.
pub(super) async fn examine(bucket: &Bucket) -> Result<Findings, Stopped> {
    let path = bucket.keys.examination(KernelEntropy.nonce());
    let found = contest(bucket, &path).await;
    bucket.remove(&path).await;
    found
}

async fn contest(bucket: &Bucket, path: &Path) -> Result<Findings, Stopped> {
    let mut first = None;
    let mut last: Option<UpdateVersion> = None;
    let mut keeps_versions = false;
    for round in 0..=ROUNDS {
        let won = meet(bucket, path, last.as_ref(), round).await?;
        keeps_versions |= won.version.is_some() && bucket.settings.provider != Provider::Google;
        first.get_or_insert_with(|| won.clone());
        last = Some(won);
    }
    let refused = |what: &str, put: Put| match put {
        Put::Refused => Ok(()),
        Put::Done(_) => Err(broken(bucket, what)),
    };
    let stale = bucket.put(path, content(), first.as_ref()).await.map_err(Stopped::Failed)?;
    refused("a put on a version that was replaced long ago was applied", stale)?;
    let again = bucket.put(path, content(), None).await.map_err(Stopped::Failed)?;
    refused("a put that was to create an object replaced one", again)?;
    let nowhere = bucket.keys.examination(KernelEntropy.nonce());
    let absent = bucket.put(&nowhere, content(), first.as_ref()).await;
    if !matches!(absent, Ok(Put::Refused)) {
        bucket.remove(&nowhere).await;
    }
    refused("a put on a version was applied where no object was", absent.map_err(Stopped::Failed)?)?;
    Ok(Findings { keeps_versions })
}

/// Several puts on one version at once: one is applied, and what is read and listed afterwards is what it wrote.
async fn meet(
    bucket: &Bucket,
    path: &Path,
    over: Option<&UpdateVersion>,
    round: usize,
) -> Result<UpdateVersion, Stopped> {
    let contents: Vec<Bytes> = (0..RIVALS).map(|_| content()).collect();
    let puts = join_all(contents.iter().map(|content| bucket.put(path, content.clone(), over))).await;
    let mut winners = Vec::new();
    for (nth, put) in puts.into_iter().enumerate() {
        if let Put::Done(done) = put.map_err(Stopped::Failed)? {
            winners.push((nth, UpdateVersion { e_tag: done.e_tag, version: done.version }));
        }
    }
    let [(nth, won)] = &winners[..] else {
        return Err(match winners.len() {
            // S3 may refuse all of several puts that meet.
            0 => Stopped::Failed(StoreError::not_applied(
                STORE,
                "every one of some puts that met was refused: try again",
            )),
            many => broken(
                bucket,
                &format!("{many} of {RIVALS} puts on one version were applied (round {round})"),
            ),
        });
    };
    let found = bucket.get(path).await.map_err(Stopped::Failed)?;
    let read = found.as_ref().and_then(|found| found.held.as_ref());
    let is_read = read.is_some_and(|(version, value)| contents[*nth] == pack(*version, value));
    if !is_read || !found.is_some_and(|found| is_same(found.at.e_tag.as_ref(), won.e_tag.as_ref())) {
        return Err(broken(bucket, "a read did not show what was just written"));
    }
    let folder: Path = path.parts().take(path.parts().count() - 1).collect();
    let listed = bucket.list(&folder).await.map_err(Stopped::Failed)?;
    let is_listed = |(meta, _): &(object_store::ObjectMeta, _)| {
        meta.location == *path
            && meta.size == contents[*nth].len() as u64
            && is_same(meta.e_tag.as_ref(), won.e_tag.as_ref())
    };
    if !listed.iter().any(is_listed) {
        return Err(broken(bucket, "a list did not show what was just written"));
    }
    Ok(won.clone())
}

/// Something that no other program writes.
fn content() -> Bytes {
    pack(Version::new(KernelEntropy.nonce()), &Value::of(&"examination", None)).into()
}

fn broken(bucket: &Bucket, what: &str) -> Stopped {
    let message = format!(
        "{}: {what}: this endpoint cannot carry elections; use one with conditional puts that are atomic, and with reads and \
         lists that are strongly consistent",
        bucket.place()
    );
    Stopped::Broken(StoreError::not_applied(STORE, message).permanent())
}

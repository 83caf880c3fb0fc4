//! A bucket as a memory of registers: read one, list some, replace one if it is still the one that was seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult, UpdateVersion};
use tokio::sync::OnceCell;

use super::keys::Keys;
use super::settings::ObjectSettings;
use super::{connection, error, examine};
use tenure_store::kit::packed::unpack;
use tenure_store::kit::watches::lock;
use tenure_store::{MAX_VALUE, StoreError, Value, Version};

/// What is longer was not written by a node, and is not fetched.
const LONGEST: u64 = MAX_VALUE as u64 + 1024;

/// A bucket, and what this handle has seen of it.
pub(super) struct Bucket {
    pub(super) settings: ObjectSettings,
    pub(super) keys: Keys,
    client: Arc<dyn ObjectStore>,
    /// What was seen last of each object. It need not be true any more: what it is used for is refused then.
    seen: Mutex<HashMap<Path, SeenObject>>,
    /// Whether the endpoint refuses stale puts.
    examined: OnceCell<Result<examine::Findings, StoreError>>,
}

/// An object as it was: what a put has to name, and what it held. Nothing, if it is empty, which means deleted.
#[derive(Debug, Clone)]
pub(super) struct SeenObject {
    pub(super) at: UpdateVersion,
    pub(super) held: Option<(Version, Value)>,
}

/// What became of a put.
#[derive(Debug)]
pub(super) enum Put {
    Done(PutResult),
    /// The object is another one, or there, or not there: nothing was changed.
    Refused,
}

impl Bucket {
    pub(super) fn open(settings: ObjectSettings) -> Result<Self, StoreError> {
        let (client, keys) = (connection::open(&settings)?, Keys::new(&settings.prefix));
        Ok(Self { settings, keys, client, seen: Mutex::default(), examined: OnceCell::new() })
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        self.settings.to_string()
    }

    /// Fetches an object, and remembers it.
    pub(super) async fn get(&self, path: &Path) -> Result<Option<SeenObject>, StoreError> {
        let fetched = self.request(async {
            let found = self.client.get(path).await?;
            let at = UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
            let content = if found.meta.size > LONGEST { None } else { Some(found.bytes().await?) };
            Ok((at, content))
        });
        let found = match fetched.await {
            Ok((at, content)) => Some(SeenObject { at, held: read_content(content) }),
            Err(Failure::Answered(object_store::Error::NotFound { path, source })) => {
                let missing = object_store::Error::NotFound { path, source };
                if error::lacks_bucket(&missing) {
                    return Err(error::told(&self.place(), &missing));
                }
                None
            }
            Err(failure) => return Err(self.told(&failure)),
        };
        self.remember(path, found.clone());
        Ok(found)
    }

    /// The objects in a folder, and what this handle knows of each that has not changed since.
    pub(super) async fn list(
        &self,
        folder: &Path,
    ) -> Result<Vec<(ObjectMeta, Option<SeenObject>)>, StoreError> {
        let listed = self.request(self.client.list(Some(folder)).try_collect::<Vec<ObjectMeta>>());
        let listed = listed.await.map_err(|failure| self.told(&failure))?;
        let mut seen = lock(&self.seen);
        // What is gone is forgotten, so that what is remembered does not grow with the sessions that ever were.
        if seen.len() > 2 * listed.len() + 1000 {
            let there: std::collections::HashSet<&Path> = listed.iter().map(|meta| &meta.location).collect();
            seen.retain(|path, _| !path.prefix_matches(folder) || there.contains(path));
        }
        let known = |meta: &ObjectMeta| {
            seen.get(&meta.location)
                .filter(|seen| is_same(seen.at.e_tag.as_ref(), meta.e_tag.as_ref()))
                .cloned()
        };
        let known: Vec<_> = listed.iter().map(known).collect();
        drop(seen);
        Ok(listed.into_iter().zip(known).collect())
    }

    /// What was seen last of an object.
    pub(super) fn seen(&self, path: &Path) -> Option<SeenObject> {
        lock(&self.seen).get(path).cloned()
    }

    /// Replaces that very object, or makes one where none is.
    pub(super) async fn put(
        &self,
        path: &Path,
        content: Bytes,
        over: Option<&UpdateVersion>,
    ) -> Result<Put, StoreError> {
        let mode = over.map_or(PutMode::Create, |at| PutMode::Update(at.clone()));
        let sent = self.client.put_opts(path, content.into(), PutOptions::from(mode));
        match self.request(sent).await {
            Ok(done) => Ok(Put::Done(done)),
            // 412, 304, and 409: another put of this object was under way.
            Err(Failure::Answered(
                object_store::Error::Precondition { .. }
                | object_store::Error::AlreadyExists { .. }
                | object_store::Error::NotModified { .. },
            )) => Ok(Put::Refused),
            Err(failure) => Err(self.told(&failure)),
        }
    }

    /// Removes an object, whatever it is. Only for what no other node knows of.
    pub(super) async fn remove(&self, path: &Path) {
        let _ = self.request(self.client.delete(path)).await;
    }

    pub(super) fn remember(&self, path: &Path, found: Option<SeenObject>) {
        let mut seen = lock(&self.seen);
        match found {
            Some(found) => _ = seen.insert(path.clone(), found),
            None => _ = seen.remove(path),
        }
    }

    /// What an examination of the endpoint has shown, once for each handle; a failure on the way shows nothing.
    pub(super) async fn examined(&self) -> Result<examine::Findings, StoreError> {
        let examined = self.examined.get_or_try_init(|| async {
            match examine::examine(self).await {
                Ok(findings) => Ok(Ok(findings)),
                Err(examine::Stopped::Broken(error)) => Ok(Err(error)),
                Err(examine::Stopped::Failed(error)) => Err(error),
            }
        });
        examined.await?.clone()
    }

    async fn request<T>(&self, request: impl Future<Output = object_store::Result<T>>) -> Result<T, Failure> {
        match tokio::time::timeout(self.settings.timeout, request).await {
            Ok(answered) => answered.map_err(Failure::Answered),
            Err(_) => Err(Failure::Late),
        }
    }

    fn told(&self, failure: &Failure) -> StoreError {
        match failure {
            Failure::Late => error::late(&self.place()),
            Failure::Answered(failure) => error::told(&self.place(), failure),
        }
    }
}

/// Whether two ETags are one. Azure writes quotation marks around those in headers, and none around those in lists.
pub(super) fn is_same(one: Option<&String>, other: Option<&String>) -> bool {
    let bare = |etag: &String| etag.trim_matches('"').to_owned();
    one.is_some() && one.map(bare) == other.map(bare)
}

/// Why a request has no result.
enum Failure {
    Late,
    Answered(object_store::Error),
}

/// What an object holds; nothing if it is empty, and something unreadable if another program wrote it.
fn read_content(content: Option<Bytes>) -> Option<(Version, Value)> {
    match content {
        Some(content) if content.is_empty() => None,
        Some(content) => Some(unpack(&content).unwrap_or_else(Value::unreadable)),
        None => Some(Value::unreadable()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_the_same_with_quotation_marks_and_without() {
        let etag = |text: &str| Some(text.to_owned());
        assert!(is_same(etag("\"0x8D\"").as_ref(), etag("0x8D").as_ref()));
        assert!(!is_same(etag("\"0x8D\"").as_ref(), etag("\"0x8E\"").as_ref()));
        assert!(!is_same(None, None), "what has none is never known");
    }
}

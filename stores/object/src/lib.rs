//! Object storage: one object for each register, replaced by conditional puts.
//!
//! ```text
//!   write() ──▶ PUT, If-Match: the ETag that was seen with the expected version; If-None-Match: * where none was
//!   read()  ──▶ GET for each register; LIST for each kind, and GET for what has changed since
//! ```
//!
//! Amazon S3, Google Cloud Storage and Azure Blob Storage, and servers that speak the same. Nothing is pushed: nodes find
//! changes at their next beat. See `docs/stores/object.md` for what it guarantees and how to look into it, and
//! `docs/adr/0036-object-storage.md` for why it is so.

mod batch;
mod bucket;
mod connection;
mod cost;
mod error;
mod examine;
mod inspect;
mod keys;
mod rows;
mod schema;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use self::bucket::Bucket;
use self::settings::ObjectSettings;
use tenure_store::kit::rules::check_batch;
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, Signal, Store, StoreError, Write,
};

const STORE: &str = "object";

/// A request takes tens of milliseconds and costs money, so that leases last longer here.
const TTL: Duration = Duration::from_secs(20);

/// A handle on the registers in a bucket.
pub struct Object {
    bucket: Arc<Bucket>,
    watches: Watches,
    thread: ConnectionThread,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend {
    name: STORE,
    product: "Object storage (S3, Google Cloud Storage, Azure)",
    schemes: &["s3", "gs", "az"],
    usage: "s3://BUCKET/PREFIX?region=REGION",
    in_process: false,
    native_notifications: false,
    setup: Some(schema::setup),
    read: |url, _| {
        let opening = Opening::checked(url, |url| Ok(ObjectSettings::parse(url)?.warning()), Object::open)?;
        Ok(opening.with_ttl(TTL).with_cost(cost::said))
    },
};

impl Object {
    /// Prepares a handle on the bucket that a URL names; nothing is connected before the first operation.
    ///
    /// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, with the parameters `endpoint`, `region`, `account`,
    /// `credentials`, `ca`, `timeout`. Credentials are in the environment, or before the bucket: `KEY:SECRET@`.
    ///
    /// # Errors
    /// If the URL cannot be read, there are no credentials, or the process has no threads left. No message shows the URL.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let bucket = Arc::new(Bucket::open(ObjectSettings::parse(url)?)?);
        Ok(Self { bucket, watches: Watches::default(), thread: ConnectionThread::open(STORE)? })
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("settings", &self.bucket.settings)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bucket.settings, f)
    }
}

#[async_trait]
impl Store for Object {
    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        if query.keys.is_empty() && query.kinds.is_empty() {
            return self.thread.check_open().map(|()| Vec::new());
        }
        let (bucket, namespace, query) = (self.bucket.clone(), namespace.clone(), query.clone());
        self.thread.run(async move { rows::read(&bucket, &namespace, &query).await }).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        check_batch(STORE, writes)?;
        let (bucket, namespace, writes) = (self.bucket.clone(), namespace.clone(), writes.to_vec());
        self.thread
            .run(async move {
                // Providers keep their word; of another server it is tried before anything rests on it.
                if !bucket.settings.is_provider_itself() {
                    bucket.examined().await.map_err(|error| batch::nothing_sent(&error))?;
                }
                Ok(batch::write(&bucket, &namespace, &writes).await)
            })
            .await
    }

    fn watch(&self, namespace: &Name) -> BoxStream<'static, Signal> {
        self.watches.watch(namespace)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        let bucket = self.bucket.clone();
        self.thread.run(async move { inspect::describe(&bucket).await }).await
    }

    async fn close(&self) {
        self.watches.close();
        self.thread.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_server_everything_fails_at_once_and_is_proven() {
        let store = Object::open("s3://k:hunter2@b/x?endpoint=http://127.0.0.1:1").unwrap();
        let error = store.describe().await.unwrap_err();
        assert_eq!(error.fate(), tenure_store::Fate::NotApplied);
        assert!(error.to_string().contains("cannot be reached"), "{error}");
        assert!(!format!("{error} {error:?} {store:?} {store}").contains("hunter2"));
        store.close().await;
    }
}

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

use self::bucket::Bucket;
use self::settings::ObjectSettings;
use tenure_store::kit::handle::{Server, ServerHandle};
use tenure_store::kit::thread::ConnectionThread;
use tenure_store::kit::watches::Watches;
use tenure_store::{
    Backend, Description, Entry, Name, Opening, Outcome, Query, ServersInUrl, StoreError, Write,
};

const STORE: &str = "object";

/// A request takes tens of milliseconds and costs money, so that leases last longer here.
const TTL: Duration = Duration::from_secs(20);

/// A handle on the registers in a bucket.
///
/// `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX`, with the parameters `endpoint`, `region`, `account`,
/// `credentials`, `ca`, `timeout`. Credentials are in the environment, or before the bucket: `KEY:SECRET@`.
pub type Object = ServerHandle<ObjectServer>;

/// How a bucket is asked.
#[expect(missing_debug_implementations, reason = "its client shows passwords")]
pub struct ObjectServer {
    bucket: Bucket,
}

/// This store, by its URLs.
pub const BACKEND: Backend = Backend::new(
    STORE,
    "Object storage (S3, Google Cloud Storage, Azure)",
    &["s3", "gs", "az"],
    "s3://BUCKET/PREFIX?region=REGION",
    |url, _| {
        let opening = Opening::checked(url, |url| Ok(ObjectSettings::parse(url)?.warning()), Object::open)?;
        Ok(opening.with_ttl(TTL).with_cost(cost::said).with_secret_variables(connection::SECRETS))
    },
)
.without_native_notifications()
.with_setup(schema::setup)
.with_servers(ServersInUrl::several(&["s3", "gs", "az"], 80).after("endpoint=http://"));

impl fmt::Display for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bucket.settings.fmt(f)
    }
}

impl Server for ObjectServer {
    const STORE: &'static str = STORE;

    fn open(url: &str, _: &Arc<Watches>, _: &ConnectionThread) -> Result<Self, StoreError> {
        Ok(Self { bucket: Bucket::open(ObjectSettings::parse(url)?)? })
    }

    async fn read(&self, namespace: &Name, query: &Query) -> Result<Vec<Entry>, StoreError> {
        rows::read(&self.bucket, namespace, query).await
    }

    async fn write(&self, namespace: &Name, writes: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        // Providers keep their word; of another server it is tried before anything rests on it.
        if !self.bucket.settings.is_provider_itself() {
            self.bucket.examined().await.map_err(|error| batch::nothing_sent(&error))?;
        }
        Ok(batch::write(&self.bucket, namespace, writes).await)
    }

    async fn describe(&self) -> Result<Description, StoreError> {
        inspect::describe(&self.bucket).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_store::Store;

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

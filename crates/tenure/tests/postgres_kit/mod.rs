//! What the tests of PostgreSQL share: a private server, and SQL by hand.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::clock::KernelEntropy;
use tenure::conformance::Harness;
use tenure::store::{
    Entry, Epoch, Key, Kind, Name, Outcome, Postgres, Query, SharedStore, Signal, Store, Value, Version,
    Write,
};
use tenure_core::Entropy;
use tenure_testkit::servers::postgres::Postgres as Server;

/// Long enough for anything that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

pub fn key(kind: Kind, text: &str) -> Key {
    Key::Named(Epoch(5), kind, name(text))
}

/// A write that rings, of a text, under a new version.
pub fn put(key: &Key, expect: Option<Version>, text: &str) -> Write {
    let version = Version(KernelEntropy.nonce());
    Write { key: key.clone(), expect, put: Some((version, Value::of(&text, None))), ring: true }
}

pub fn version(write: &Write) -> Version {
    write.put.as_ref().expect("a write that puts").0
}

/// Writes what must succeed, and gives it back.
pub async fn must(store: &dyn Store, space: &Name, write: Write) -> Write {
    let outcomes = store.write(space, std::slice::from_ref(&write)).await.expect("the store takes writes");
    assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
    write
}

pub async fn get(store: &dyn Store, space: &Name, key: &Key) -> Option<Entry> {
    let query = Query { keys: vec![key.clone()], kinds: Vec::new() };
    store.read(space, &query).await.expect("the store can be read").pop()
}

/// Tries until the server is there again; a fault that a person has to see to is not waited for.
pub async fn until_it_works(store: &dyn Store) {
    let working = async {
        while let Err(error) = store.describe().await {
            assert_eq!(error.retry(), tenure::store::Retry::Soon, "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(working).await;
}

/// Waits for a signal of that sort.
pub async fn heard(watch: &mut BoxStream<'static, Signal>, wanted: impl Fn(&Signal) -> bool) -> Signal {
    loop {
        let signal = soon(watch.next()).await.expect("the watch goes on");
        if wanted(&signal) {
            return signal;
        }
    }
}

/// A server of its own for each test.
pub struct OneServer(pub Mutex<Server>);

impl OneServer {
    pub fn new() -> Self {
        Self::with(&[])
    }

    pub fn with(settings: &[&str]) -> Self {
        let small = ["shared_buffers=16MB", "max_connections=200", "max_wal_senders=4"];
        Self(Mutex::new(Server::start(&[&small, settings].concat())))
    }

    pub fn server(&self) -> std::sync::MutexGuard<'_, Server> {
        self.0.lock().expect("no test panicked with the server in hand")
    }

    pub fn url(&self) -> String {
        self.server().admin_url().replace("postgres@", "postgres:hunter2@")
    }

    pub fn store(&self) -> SharedStore {
        Arc::new(Postgres::open(&self.url()).expect("the URL can be read"))
    }

    /// A connection for SQL by hand.
    pub async fn admin(&self) -> tokio_postgres::Client {
        let url = self.server().admin_url();
        sql(&url).await
    }
}

/// A connection for SQL by hand.
pub async fn sql(url: &str) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

#[async_trait]
impl Harness for OneServer {
    async fn open(&self) -> SharedStore {
        self.store()
    }

    async fn restart(&self) {
        self.server().crash_and_restart();
    }

    fn secrets(&self) -> Vec<String> {
        vec!["hunter2".to_owned()]
    }
}

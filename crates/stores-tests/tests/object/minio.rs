//! The store on a real MinIO server: it keeps the contract, and says what is wrong with the server.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rustix::process::Signal as UnixSignal;
use tenure::conformance::Harness;
use tenure::store::{Epoch, Fate, Kind, Object, Query, Retry, SharedStore, Store};
use tenure_torture::servers::minio::{KEY, Minio, SECRET};

use crate::server_kit::{key, name, one, soon, until_it_works};

/// A server of its own, which may be killed.
struct Own(Mutex<Minio>);

impl Own {
    fn start() -> Self {
        Self(Mutex::new(Minio::start()))
    }
}

#[async_trait]
impl Harness for Own {
    async fn open(&self) -> SharedStore {
        let server = self.0.lock().unwrap();
        Arc::new(Object::open(&format!("{}&timeout=30s", server.url(server.address()))).unwrap())
    }

    async fn restart(&self) {
        let mut server = self.0.lock().unwrap();
        server.stop();
        server.launch();
    }

    fn secrets(&self) -> Vec<String> {
        vec![SECRET.to_owned()]
    }
}

tenure::conformance!(Own::start());

#[tokio::test]
async fn a_bucket_that_is_gone_is_no_empty_bucket() {
    let server = Minio::start();
    let url = server.url(server.address()).replace("@bucket/", "@missing/");
    let store = Object::open(&format!("{url}&timeout=30s")).unwrap();
    let whole = Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), Kind::Node)] };
    for query in [one(&key(Kind::Node, "n")), whole] {
        let error = store.read(&name("space"), &query).await.expect_err("there is no bucket");
        assert!(error.to_string().contains("bucket does not exist"), "{error}");
        assert_eq!(error.retry(), Retry::Never);
    }
    let error = store.describe().await.expect_err("there is no bucket");
    assert!(error.to_string().contains("bucket does not exist"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_frozen_or_refuses_the_credentials_is_told_and_used_again() {
    let mut server = Minio::start();
    let store = Object::open(&format!("{}&timeout=1s", server.url(server.address()))).unwrap();
    let node = key(Kind::Node, "n");
    until_it_works(&store).await;
    server.signal(UnixSignal::STOP);
    let error = store.read(&name("space"), &one(&node)).await.expect_err("it is frozen");
    assert_eq!(error.fate(), Fate::Unknown, "{error}");
    server.signal(UnixSignal::CONT);
    until_it_works(&store).await;
    server.restart_with("another-secret-of-it");
    let refused = async {
        loop {
            match store.read(&name("space"), &one(&node)).await {
                Err(error) if error.to_string().contains("refuses these credentials") => return error,
                Err(error) => assert_ne!(error.retry(), Retry::Never, "{error}"),
                Ok(_) => panic!("it takes credentials that are wrong"),
            }
        }
    };
    let error = soon(refused).await;
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(!error.to_string().contains(KEY), "{error}");
    server.restart_with(SECRET);
    until_it_works(&store).await;
}

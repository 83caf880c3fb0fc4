//! What the tests of stores on real servers share: registers by hand, and waiting for what happens.
#![allow(dead_code, unreachable_pub)]

pub mod stories;

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tenure::schema::SchemaRequest;
use tenure::store::entropy::KernelEntropy;
use tenure::store::{
    Entry, Epoch, Key, Kind, Name, Outcome, Query, Retry, Signal, Store, Value, Version, Write,
};
use tenure_core::Entropy;
use tenure_torture::proxy::{Direction, Proxy};

/// Long enough for anything that happens at all.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens in time")
}

pub fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// What `tenure schema` prints for a login.
pub fn printed_schema(store: &str, user: &str, fence: bool) -> String {
    let mut request = SchemaRequest::new(store, name(user), name("default"));
    request.fence = fence;
    request.text().expect("this build knows it")
}

pub fn key(kind: Kind, text: &str) -> Key {
    Key::Named(Epoch::new(5), kind, name(text))
}

/// A write that notifies others, of a text, under a new version.
pub fn put(key: &Key, expect: Option<Version>, text: &str) -> Write {
    let version = Version::new(KernelEntropy.nonce());
    Write {
        key: key.clone(),
        expect,
        put: Some((version, Value::of(&text, None))),
        notify: true,
        requires_lock: false,
    }
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

pub fn one(key: &Key) -> Query {
    Query { keys: vec![key.clone()], kinds: Vec::new() }
}

pub async fn get(store: &dyn Store, space: &Name, key: &Key) -> Option<Entry> {
    store.read(space, &one(key)).await.expect("the store can be read").pop()
}

/// Tries until the server is there again; a fault that a person has to see to is not waited for.
pub async fn until_it_works(store: &dyn Store) {
    let working = async {
        while let Err(error) = store.describe().await {
            assert_eq!(error.retry(), Retry::Soon, "{error}");
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

/// An authority (`ca.pem`) and a server's certificate and key (`server.pem`, `server.key`) for `localhost`. If this is
/// root, the key is given to the user that the server runs as.
pub fn certificates(user: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let script = "set -e; cd \"$1\"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout ca.key -out ca.pem \
            -subj /CN=authority -addext basicConstraints=critical,CA:TRUE
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=db
        printf 'subjectAltName=DNS:localhost\\n' > ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.pem -extfile ext
        chmod 755 . && chmod 600 server.key
        if [ \"$(id -u)\" = 0 ]; then chown \"$2\" server.key; fi";
    let made = std::process::Command::new("sh").args(["-c", script, "sh"]).arg(dir.path()).arg(user).output();
    let made = made.expect("a shell");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    dir
}

/// Writes until it works: what is refused is tried again, and what is unknown is looked at.
pub async fn written(store: &dyn Store, space: &Name, write: &Write) {
    let writing = async {
        loop {
            match store.write(space, std::slice::from_ref(write)).await.map(|mut outcomes| outcomes.remove(0))
            {
                Ok(Outcome::Applied) => return,
                Ok(Outcome::Conflict(Some(found))) if found.version == version(write) => return,
                Ok(Outcome::Conflict(other)) => panic!("another wrote: {other:?}"),
                Ok(Outcome::Failed(error)) | Err(error) => {
                    assert_eq!(error.retry(), Retry::Soon, "{error}");
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(writing).await;
}

/// What was not asked when the claim was carried out cannot be asked any more: the read was sent with it.
pub async fn a_claim_and_the_read_after_it_are_one_round_trip(
    direct: &dyn Store,
    linked: &dyn Store,
    link: &Proxy,
) {
    let space = name("one-trip");
    until_it_works(linked).await;
    // A handle that listens answers a write before other handles are notified.
    let _watch = linked.watch(&space);
    let role = must(direct, &space, put(&key(Kind::Node, "role"), None, "vacant")).await;
    let asked_for = must(direct, &space, put(&key(Kind::Node, "control"), None, "paused")).await;
    assert!(get(linked, &space, &role.key).await.is_some());
    let claim = put(&role.key, Some(version(&role)), "claimed");
    link.hold(Direction::Down);
    let carried_out = async {
        while get(direct, &space, &claim.key).await.map(|entry| entry.version) != Some(version(&claim)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        link.hold(Direction::Up);
        link.pass(Direction::Down);
    };
    let query = one(&asked_for.key);
    let answer = linked.write_then_read(&space, std::slice::from_ref(&claim), &query);
    let (exchanged, ()) = tokio::join!(answer, soon(carried_out));
    assert!(matches!(exchanged.written.as_deref(), Ok([Outcome::Applied])), "{exchanged:?}");
    assert_eq!(exchanged.read.expect("it was asked with the claim")[0].version, version(&asked_for));
    link.heal();
}

/// A copy of a folder, with everything in it.
pub fn copy(from: &std::path::Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let all = format!("{}/.", from.display());
    let done = std::process::Command::new("cp").arg("-a").arg(all).arg(dir.path()).status();
    assert!(done.expect("cp runs").success());
    dir
}

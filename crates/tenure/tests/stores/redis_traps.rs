//! What goes wrong with real Redis servers, and what the store makes of it.

use std::sync::Arc;
use std::time::Duration;

use crate::sqlite_kit::{EPOCH, answer, fresh_space, node, put};
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, StreamExt};
use rustix::process::Signal as Kill;
use tenure::store::{
    Class, Fate, Key, Kind, Name, Outcome, Query, Redis, Retry, Signal, Store, StoreError, Value, Version,
    Write,
};
use tenure::{Node, Token};
use tenure_torture::servers::redis::{DURABLE, FORGETFUL, command, durable, info, start, start_in};
use tenure_torture::servers::{Server, free_port};

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(180);

fn open(server: &Server, query: &str) -> Redis {
    Redis::open(&format!("redis://{}/0{query}", server.address())).unwrap()
}

async fn write(store: &Redis, space: &Name, write: &Write) -> Result<Outcome, StoreError> {
    store.write(space, std::slice::from_ref(write)).await.map(|mut outcomes| outcomes.remove(0))
}

/// Writes what must be applied, and gives its version.
async fn must(store: &Redis, space: &Name, wanted: &Write) -> Version {
    let outcome = write(store, space, wanted).await.unwrap();
    assert!(matches!(outcome, Outcome::Applied), "{outcome:?}");
    wanted.put.as_ref().unwrap().0
}

/// The error of a write, wherever it is.
async fn error_of(store: &Redis, space: &Name, wanted: &Write) -> StoreError {
    match write(store, space, wanted).await {
        Ok(Outcome::Failed(error)) | Err(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Looks until the store answers again.
async fn read_when_back(store: &Redis, space: &Name, key: &Key) -> Option<Version> {
    let query = Query { keys: vec![key.clone()], kinds: Vec::new() };
    let looking = async {
        loop {
            match store.read(space, &query).await {
                Ok(found) => return found.first().map(|entry| entry.version),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.expect("the store comes back")
}

/// Everything that a watch has told so far.
fn told(watch: &mut BoxStream<'static, Signal>) -> Vec<Signal> {
    std::iter::from_fn(|| watch.next().now_or_never().flatten()).collect()
}

fn forgot(signals: &[Signal]) -> bool {
    signals.iter().any(|signal| matches!(signal, Signal::Forgot))
}

fn role(token: u64, expect: Option<Version>) -> Write {
    let key = Key::Named(EPOCH, Kind::Role, Name::new("r").unwrap());
    let value = Value::of(&token, Some(Token::new(token)));
    Write {
        put: Some((put(&key, None, 0).put.unwrap().0, value)),
        key,
        expect,
        notify: true,
        requires_lock: false,
    }
}

#[tokio::test]
async fn the_class_is_what_the_server_can_keep_and_says_what_to_do() {
    let durable = open(&durable(), "");
    let described = durable.describe().await.err();
    assert!(described.is_some(), "a server that is gone is not described");
    let server = start(DURABLE);
    let store = open(&server, "");
    let described = store.describe().await.unwrap();
    assert_eq!(described.class, Class::B);
    assert!(
        matches!(&described.remarks[..], [excess] if excess.contains("wider than needed")),
        "{described:?}"
    );
    assert!(described.notifies && described.about.contains("redis"), "{}", described.about);
    for (setting, value, word) in [
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("appendfsync", "everysec", "appendfsync always"),
        ("appendonly", "no", "appendonly yes"),
    ] {
        command(server.address(), &["CONFIG", "SET", setting, value]);
        let described = store.describe().await.unwrap();
        assert_eq!(described.class, Class::C);
        assert!(described.remarks.iter().any(|remark| remark.contains(word)), "{:?}", described.remarks);
    }
}

#[tokio::test]
async fn a_durable_server_that_restarts_forgets_nothing_and_the_handle_finds_it_again() {
    let (server, space) = (start(DURABLE), fresh_space());
    let store = open(&server, "");
    store.describe().await.unwrap();
    let mut watch = store.watch(&space);
    let version = must(&store, &space, &put(&node("a"), None, 1)).await;
    let port = server.port();
    let server = start_in(server.crash(), port, DURABLE);
    assert_eq!(read_when_back(&store, &space, &node("a")).await, Some(version));
    let mut signals = told(&mut watch);
    while !signals.iter().any(|signal| matches!(signal, Signal::Resync)) {
        signals.extend(answer(&mut watch).await);
    }
    assert!(!forgot(&signals), "{signals:?}");
    let other = open(&server, "");
    must(&other, &space, &put(&node("a"), Some(version), 2)).await;
    while !matches!(answer(&mut watch).await, Some(Signal::Changed(changed)) if changed == node("a")) {}
}

#[tokio::test]
async fn a_forgetful_server_that_restarts_is_told_to_every_watch() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let store = open(&server, "");
    assert_eq!(store.describe().await.unwrap().class, Class::C);
    let mut watch = store.watch(&space);
    must(&store, &space, &put(&node("a"), None, 1)).await;
    let port = server.port();
    let _server = start_in(server.crash(), port, FORGETFUL);
    assert_eq!(read_when_back(&store, &space, &node("a")).await, None);
    assert!(forgot(&told(&mut watch)), "before anything that was read afterwards");
}

#[tokio::test]
async fn a_durable_server_with_other_data_is_told_to_every_watch() {
    let (server, space) = (start(DURABLE), fresh_space());
    let store = open(&server, "");
    let mut watch = store.watch(&space);
    must(&store, &space, &put(&node("a"), None, 1)).await;
    let port = server.port();
    drop(server);
    let server = start_in(tempfile::tempdir().unwrap(), port, DURABLE);
    assert_eq!(read_when_back(&store, &space, &node("a")).await, None);
    assert!(forgot(&told(&mut watch)), "the marker is gone");
    must(&store, &space, &put(&node("a"), None, 2)).await;
    assert!(!forgot(&told(&mut watch)), "once is enough");
    command(server.address(), &["FLUSHALL"]);
    must(&store, &space, &put(&node("a"), None, 3)).await;
    assert!(forgot(&told(&mut watch)), "a flush is noticed at the next operation");
}

#[tokio::test]
async fn tokens_are_exact_up_to_the_last_one() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let store = open(&server, "");
    let mut expect = None;
    for token in [9, 10, 1_763_230_000_123_456, 1_763_230_000_123_457, Token::MAX.get() - 1, Token::MAX.get()]
    {
        let version = must(&store, &space, &role(token, expect)).await;
        let lower = error_of(&store, &space, &role(token - 1, Some(version))).await;
        assert_eq!((lower.fate(), lower.retry()), (Fate::NotApplied, Retry::Never), "{lower}");
        assert!(lower.to_string().contains(&token.to_string()), "{lower}");
        expect = Some(version);
    }
    let beyond = error_of(&store, &space, &role(Token::MAX.get() + 1, expect)).await;
    assert_eq!(beyond.fate(), Fate::NotApplied);
}

#[tokio::test]
async fn losing_attempts_change_nothing_and_scripts_that_were_flushed_are_sent_again() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let store = open(&server, "");
    must(&store, &space, &put(&node("a"), None, 1)).await;
    let before = info(server.address(), "rdb_changes_since_last_save");
    for _ in 0..100 {
        let outcome = write(&store, &space, &put(&node("a"), None, 2)).await.unwrap();
        assert!(matches!(outcome, Outcome::Conflict(Some(_))));
    }
    assert_eq!(info(server.address(), "rdb_changes_since_last_save"), before);
    command(server.address(), &["SCRIPT", "FLUSH"]);
    must(&store, &space, &put(&node("b"), None, 1)).await;
}

#[tokio::test]
async fn a_replica_is_refused_and_a_demotion_is_noticed() {
    let (primary, other, space) = (start(FORGETFUL), start(FORGETFUL), fresh_space());
    let store = open(&other, "");
    let version = must(&store, &space, &put(&node("a"), None, 1)).await;
    let (host, port) = (primary.address().ip().to_string(), primary.port().to_string());
    command(other.address(), &["REPLICAOF", &host, &port]);
    let error = error_of(&store, &space, &put(&node("a"), Some(version), 2)).await;
    assert_eq!(error.fate(), Fate::NotApplied);
    assert!(error.to_string().contains("name the primary"), "{error}");
    let refused = open(&other, "").describe().await.unwrap_err();
    assert!(refused.to_string().contains("name the primary"), "{refused}");
    command(other.address(), &["REPLICAOF", "NO", "ONE"]);
    read_when_back(&store, &space, &node("a")).await;
}

#[tokio::test]
async fn waiting_for_replicas_leaves_a_write_in_doubt_if_they_lack_it() {
    let (primary, space) = (start(FORGETFUL), fresh_space());
    let store = open(&primary, "?wait=1&timeout=500ms");
    let error = error_of(&store, &space, &put(&node("a"), None, 1)).await;
    assert_eq!(error.fate(), Fate::Unknown, "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    let port = primary.port().to_string();
    let _replica = start(&["--replicaof", "127.0.0.1", &port]);
    let patient = open(&primary, "?wait=1&timeout=20s");
    must(&patient, &space, &put(&node("b"), None, 1)).await;
    let described = patient.describe().await.unwrap();
    assert_eq!(described.class, Class::C);
    assert!(described.remarks.iter().any(|remark| remark.contains("replicas")), "{:?}", described.remarks);
}

#[tokio::test]
async fn a_server_without_memory_refuses_each_write_by_itself() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let store = open(&server, "");
    must(&store, &space, &put(&node("a"), None, 1)).await;
    command(server.address(), &["CONFIG", "SET", "maxmemory", "1"]);
    let error = error_of(&store, &space, &put(&node("b"), None, 1)).await;
    assert_eq!(error.fate(), Fate::NotApplied);
    assert!(error.to_string().contains("maxmemory"), "{error}");
    command(server.address(), &["CONFIG", "SET", "maxmemory", "0"]);
    must(&store, &space, &put(&node("b"), None, 1)).await;
}

#[tokio::test]
async fn a_server_that_hangs_is_an_error_in_time_and_is_used_again_afterwards() {
    let (server, space) = (start(DURABLE), fresh_space());
    let store = open(&server, "?timeout=200ms");
    let version = must(&store, &space, &put(&node("a"), None, 1)).await;
    server.signal(Kill::STOP);
    let next = put(&node("a"), Some(version), 2);
    let error = error_of(&store, &space, &next).await;
    assert_eq!(error.fate(), Fate::Unknown, "{error}");
    let error = error_of(&store, &space, &put(&node("b"), None, 1)).await;
    assert_eq!(error.fate(), Fate::NotApplied, "no connection came about: {error}");
    server.signal(Kill::CONT);
    let there = read_when_back(&store, &space, &node("a")).await;
    assert!(there == Some(version) || there == Some(next.put.unwrap().0));
    assert_eq!(read_when_back(&store, &space, &node("b")).await, None, "it was never sent");
}

#[tokio::test]
async fn users_with_few_rights_work_and_are_told_what_they_lack() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let address = server.address();
    let rights =
        "+hello +eval +evalsha +get +set +hget +hset +hdel +hmget +hgetall +publish +subscribe +ping +select";
    let user = |name: &str, more: &[&str]| {
        let words: Vec<&str> = rights.split(' ').collect();
        let given =
            [&["ACL", "SETUSER", name, "on", ">hunter2", "~tenure:*", "&tenure:*"], words.as_slice(), more]
                .concat();
        command(address, &given);
        Redis::open(&format!("redis://{name}:hunter2@{address}/0")).unwrap()
    };
    let least = user("least", &[]);
    must(&least, &space, &put(&node("a"), None, 1)).await;
    let described = least.describe().await.unwrap();
    assert!(described.notifies && described.class == Class::C);
    assert!(described.remarks.iter().any(|remark| remark.contains("INFO")), "{:?}", described.remarks);
    let full = user("full", &["+info", "+config|get", "+wait"]);
    let remarks = full.describe().await.unwrap().remarks;
    assert!(
        remarks.iter().all(|remark| !remark.contains("INFO") && !remark.contains("wider")),
        "{remarks:?}"
    );
    let silent = user("silent", &["-publish"]);
    must(&silent, &space, &put(&node("b"), None, 1)).await;
    let described = silent.describe().await.unwrap();
    assert!(described.remarks.iter().any(|remark| remark.contains("+publish")), "{:?}", described.remarks);
    let deaf = user("deaf", &["-subscribe"]);
    let described = deaf.describe().await.unwrap();
    assert!(
        !described.notifies && described.remarks.iter().any(|remark| remark.contains("next beat")),
        "{:?}",
        described.remarks
    );
    let reader = user("reader", &["-hset"]);
    let error = error_of(&reader, &space, &put(&node("c"), None, 1)).await;
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never), "{error}");
    let reading = Node::builder_with_store(Arc::new(reader)).namespace(space.as_str()).name("reader");
    let reading = reading.start_without_waiting().unwrap();
    let refused = tokio::time::timeout(PATIENCE, reading.store_refused()).await.expect("it is told");
    assert!(refused.to_string().contains("this user may not do that"), "{refused}");
    let stranger = Redis::open(&format!("redis://least:hunter3@{address}/0")).unwrap();
    let error = stranger.describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never), "{error}");
    assert!(!format!("{error:?}").contains("hunter3"));
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    let (server, space) = (start(FORGETFUL), fresh_space());
    let store = open(&server, "");
    let marker = format!("tenure:{{{space}}}:store");
    command(server.address(), &["SET", &marker, "2:later"]);
    let error = error_of(&store, &space, &put(&node("a"), None, 1)).await;
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(error.to_string().contains("another version"), "{error}");
    command(server.address(), &["DEL", &marker]);
    let hash = format!("tenure:{{{space}}}:{}:node", EPOCH.get());
    command(server.address(), &["SET", &hash, "mine"]);
    let error = error_of(&store, &space, &put(&node("a"), None, 1)).await;
    assert_eq!(error.fate(), Fate::NotApplied);
    assert!(error.to_string().contains("another program"), "{error}");
}

#[tokio::test]
async fn a_socket_and_an_encrypted_connection_serve_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    make_certificate(dir.path());
    let (tls, socket) = (free_port().to_string(), path("redis.sock"));
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let tls_settings =
        ["--tls-port", &tls, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &cert];
    let settings = [["--unixsocket", &socket, "--tls-auth-clients", "no"].as_slice(), &tls_settings].concat();
    let server = start(&settings);
    let space = fresh_space();
    let by_socket = Redis::open(&format!("redis+unix://{socket}")).unwrap();
    let version = must(&by_socket, &space, &put(&node("a"), None, 1)).await;
    let by_tls = Redis::open(&format!("rediss://localhost:{tls}/0?ca={cert}")).unwrap();
    by_tls.describe().await.unwrap();
    let mut watch = by_tls.watch(&space);
    must(&by_socket, &space, &put(&node("a"), Some(version), 2)).await;
    assert!(matches!(answer(&mut watch).await, Some(Signal::Changed(_))));
    let untrusting = Redis::open(&format!("rediss://localhost:{tls}/0")).unwrap();
    assert_eq!(
        untrusting.describe().await.unwrap_err().fate(),
        Fate::NotApplied,
        "no authority vouches for it"
    );
    for (url, why) in [
        (format!("rediss://127.0.0.1:{tls}/0?ca={cert}"), "the certificate names another host"),
        (format!("rediss://localhost:{}/0?ca={cert}", server.address().port()), "never in clear"),
    ] {
        let _ = Redis::open(&url).unwrap().describe().await.expect_err(why);
    }
    drop(server);
}

/// A certificate that vouches for itself.
fn make_certificate(dir: &std::path::Path) {
    let made = std::process::Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .output()
        .expect("openssl is installed: run ./test, or `apt-get install openssl`");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A login that may write to the server may write anything: it stays that field's problem.
#[tokio::test]
async fn a_field_that_is_no_register_harms_no_other() {
    let server = start(DURABLE);
    let (store, space) = (open(&server, ""), fresh_space());
    must(&store, &space, &put(&node("sound"), None, 1)).await;
    let hash = format!("tenure:{{{space}}}:{}:node", EPOCH.get());
    for (field, value) in [("garbage", "garbage"), ("no name!", "x"), ("half", &"0".repeat(40))] {
        command(server.address(), &["HSET", &hash, field, value]);
    }
    let query = Query { keys: Vec::new(), kinds: vec![(EPOCH, Kind::Node)] };
    let found = store.read(&space, &query).await.unwrap();
    let (sound, strange): (Vec<_>, Vec<_>) =
        found.iter().partition(|entry| entry.value.parse::<u64>().is_ok());
    assert_eq!(sound.iter().map(|entry| entry.key.name()).collect::<Vec<_>>(), ["sound"]);
    assert_eq!(strange.len(), 2, "what cannot be read is not absent: {found:?}");
    let batch = [put(&node("garbage"), None, 2), put(&node("other"), None, 3)];
    let outcomes = store.write(&space, &batch).await.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Conflict(Some(_)), Outcome::Applied]), "{outcomes:?}");
}

//! What ZooKeeper servers can do to those who use them: servers that die, freeze or come back as deposed leaders, answers that are
//! lost, znodes that people touch, older data, rights that are missing, certificates.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::PASSWORD;
use crate::server_kit::{
    self, certificates, copy, get, heard, key, must, name, one, put, soon, until_it_works, version,
};
use futures_util::stream::BoxStream;
use rustix::process::Signal as UnixSignal;
use tenure::store::{
    Class, Epoch, Fate, Key, Kind, Name, Outcome, Query, Retry, Signal, Store, Value, Write, ZooKeeper,
};
use tenure::{Node, TimingSettings};
use tenure_torture::proxy::{Direction, Proxy};
use tenure_torture::servers::zookeeper::ZooKeeper as Server;

fn space() -> Name {
    name("space")
}

fn open(server: &Server) -> ZooKeeper {
    ZooKeeper::open(&format!("zookeeper://{}", server.hosts())).unwrap()
}

async fn written(store: &dyn Store, write: &Write) {
    server_kit::written(store, &space(), write).await;
}

async fn signalled(watch: &mut BoxStream<'static, Signal>, changed: &Key) {
    heard(watch, |signal| matches!(signal, Signal::Changed(key) if key == changed)).await;
}

fn all_of(kind: Kind) -> Query {
    Query { keys: Vec::new(), kinds: vec![(Epoch::new(5), kind)] }
}

#[tokio::test]
async fn the_class_is_what_the_voters_make_it() {
    let (ensemble, alone) = (Server::start(3, ""), Server::start(1, ""));
    for (server, class, part) in [(&ensemble, Class::A, "3 servers"), (&alone, Class::B, "1 server")] {
        let store = open(server);
        until_it_works(&store).await;
        must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
        let described = store.describe().await.unwrap();
        assert_eq!(described.class, class, "{described:?}");
        assert!(described.notifies && described.about.contains(part), "{described:?}");
        assert!(described.about.contains("ZooKeeper 3."), "{described:?}");
        let told = |part: &str| described.remarks.iter().any(|remark| remark.contains(part));
        assert!(told("rights wider than needed"), "{described:?}");
        assert_eq!(told("class B"), class == Class::B, "{described:?}");
    }
    let one_of_three = ZooKeeper::open(&format!("zookeeper://{}", ensemble.address(0))).unwrap();
    let remarks = one_of_three.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("names 1 of 3")), "{remarks:?}");
}

/// Each server dies in turn; every write that was acknowledged is there, and changes go on to arrive.
#[tokio::test]
async fn any_server_may_die() {
    let mut server = Server::start(3, "");
    let (writer, watcher) = (open(&server), open(&server));
    until_it_works(&watcher).await;
    let mut watch = watcher.watch(&space());
    let mut last: Option<Write> = None;
    for nth in 0..3 {
        server.stop(nth);
        for round in 0..5 {
            let key = key(Kind::Node, "n");
            let write = put(&key, last.as_ref().map(version), &format!("{nth}.{round}"));
            written(&writer, &write).await;
            last = Some(write);
        }
        // Whatever happened to the watch meanwhile, the next change arrives, by itself or by looking again.
        let extra = put(&key(Kind::Task, &format!("t{nth}")), None, "x");
        written(&writer, &extra).await;
        heard(&mut watch, |signal| match signal {
            Signal::Changed(changed) => *changed == extra.key,
            Signal::Resync => true,
            _ => false,
        })
        .await;
        server.launch_all();
        until_it_works(&watcher).await;
    }
    let found = get(&watcher, &space(), &key(Kind::Node, "n")).await.unwrap();
    assert_eq!(found.version, version(&last.unwrap()));
}

/// A frozen leader is replaced by the others. When it wakes up it still believes for a moment that it leads: what a client reads
/// there by itself is never what was replaced meanwhile.
#[tokio::test]
async fn a_leader_that_wakes_up_shows_nothing_old() {
    let server = Server::start(3, "");
    let writer = open(&server);
    let mut last = put(&key(Kind::Node, "n"), None, "0");
    until_it_works(&writer).await;
    written(&writer, &last).await;
    for _ in 0..3 {
        let leader = soon(async {
            loop {
                if let Some(leader) = server.leader() {
                    return leader;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let alone = ZooKeeper::open(&format!("zookeeper://{}", server.address(leader))).unwrap();
        until_it_works(&alone).await;
        assert!(get(&alone, &space(), &last.key).await.is_some());
        server.signal(leader, UnixSignal::STOP);
        let next = put(&last.key, Some(version(&last)), "next");
        written(&writer, &next).await;
        server.signal(leader, UnixSignal::CONT);
        for _ in 0..20 {
            if let Ok(found) = alone.read(&space(), &one(&next.key)).await {
                assert_eq!(found[0].version, version(&next), "what was replaced is not shown");
            }
        }
        until_it_works(&writer).await;
        last = next;
    }
}

/// An answer that is lost is unknown, and the write is never sent again.
#[tokio::test]
async fn a_write_without_an_answer_is_unknown_and_sent_once() {
    let server = Server::start(1, "");
    let link = Proxy::to(server.address(0));
    let store = ZooKeeper::open(&format!("zookeeper://{}?timeout=4s", link.address())).unwrap();
    until_it_works(&store).await;
    let write = put(&key(Kind::Node, "n"), None, "x");
    must(&store, &space(), put(&key(Kind::Node, "before"), None, "x")).await;
    link.lose(Direction::Down);
    match store.write(&space(), std::slice::from_ref(&write)).await.unwrap().remove(0) {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::Unknown, "{error}"),
        other => panic!("{other:?}"),
    }
    link.heal();
    until_it_works(&store).await;
    assert_eq!(get(&store, &space(), &write.key).await.unwrap().version, version(&write));
    // What never left does not arrive later, on another connection.
    let swallowed = put(&key(Kind::Node, "m"), None, "x");
    link.lose(Direction::Up);
    match store.write(&space(), std::slice::from_ref(&swallowed)).await.unwrap().remove(0) {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::Unknown, "{error}"),
        other => panic!("{other:?}"),
    }
    link.heal();
    until_it_works(&store).await;
    must(&store, &space(), put(&swallowed.key, None, "mine")).await;
}

/// With the rights that are printed, this login alone reads and writes; what others may not do is told with what to do.
#[tokio::test]
async fn missing_rights_are_told_and_nothing_is_made_by_those_who_look() {
    let server = Server::start(1, "");
    let url = |login: &str| format!("zookeeper://{login}{}", server.address(0));
    let nowhere = tenure::store::open_read_only(&url("")).unwrap();
    let error = nowhere.describe().await.unwrap_err();
    assert!(error.to_string().contains("no znode /tenure"), "{error}");
    assert_eq!(server.children(0, "", "/").unwrap(), ["zookeeper"]);
    let allowed = ZooKeeper::open(&url(&format!("app:{PASSWORD}@"))).unwrap();
    let mut watch = allowed.watch(&space());
    let write = must(&allowed, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    signalled(&mut watch, &write.key).await;
    let described = allowed.describe().await.unwrap();
    assert!(!described.remarks.iter().any(|remark| remark.contains("rights wider")), "{described:?}");
    for login in ["", "app:wrong@"] {
        let store = ZooKeeper::open(&url(login)).unwrap();
        let error = store.read(&space(), &one(&write.key)).await.unwrap_err();
        assert!(error.to_string().contains("tenure schema --for zookeeper"), "{error}");
        assert_eq!(error.retry(), Retry::Never, "{error}");
        let other = put(&key(Kind::Node, "m"), None, "x");
        let error = store.write(&space(), &[other]).await.unwrap_err();
        assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never), "{error}");
    }
}

/// Servers that went on with what they had earlier have forgotten.
#[tokio::test]
async fn older_data_is_noticed() {
    let mut server = Server::start(1, "");
    let store = open(&server);
    must(&store, &space(), put(&key(Kind::Node, "a"), None, "x")).await;
    server.stop(0);
    let kept = copy(server.data(0).unwrap().path());
    server.launch_all();
    until_it_works(&store).await;
    for nth in 0..50 {
        written(&store, &put(&key(Kind::Node, &format!("n{nth}")), None, "x")).await;
    }
    let mut watch = store.watch(&space());
    server.stop(0);
    *server.data(0).unwrap() = kept;
    server.launch_all();
    written(&store, &put(&key(Kind::Node, "b"), None, "x")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
}

/// Encrypted and verified, with and without a certificate of one's own; nothing falls back to plain text.
#[tokio::test]
async fn connections_are_encrypted_and_verified() {
    let dir = certificates("root");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (cert, key_file, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let both = [&key_file, &cert].map(|file| std::fs::read_to_string(file).unwrap()).concat();
    std::fs::write(dir.path().join("both.pem"), both).unwrap();
    let port = tenure_torture::servers::free_port();
    let tls = format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\nsecureClientPort={port}\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\nssl.trustStore.location={ca}\nssl.trustStore.type=PEM\n\
         ssl.clientAuth=need\nssl.hostnameVerification=false\n",
        file("both.pem")
    );
    let _server = Server::start(1, &tls);
    let good = format!("zookeepers://localhost:{port}?ca={ca}&cert={cert}&key={key_file}");
    let store = ZooKeeper::open(&good).unwrap();
    until_it_works(&store).await;
    let described = store.describe().await.unwrap();
    assert!(described.notifies && described.about.contains("zookeepers://"), "{described:?}");
    must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    for (url, part) in [
        (
            format!("zookeepers://127.0.0.1:{port}?ca={ca}&cert={cert}&key={key_file}"),
            "certificate not valid for name",
        ),
        (format!("zookeepers://localhost:{port}?cert={cert}&key={key_file}"), "UnknownIssuer"),
        (format!("zookeeper://localhost:{port}?timeout=2s"), "cannot be reached"),
        (format!("zookeepers://localhost:{port}?ca={ca}"), "cannot be reached"),
    ] {
        let error = ZooKeeper::open(&url).unwrap().describe().await.unwrap_err();
        assert!(error.to_string().contains(part), "{url}: {error}");
    }
}

/// Everything of a kind at once: long registers, and many of them.
#[tokio::test]
async fn long_and_many_answers_come_whole() {
    let server = Server::start(1, "");
    let store = ZooKeeper::open(&format!("zookeeper://{}?timeout=30s", server.address(0))).unwrap();
    for nth in 0..12 {
        let large = Value::of(&"x".repeat(1_000_000), None);
        let write = put(&key(Kind::History, &format!("h{nth}")), None, "");
        let put = Some((version(&write), large));
        must(&store, &space(), Write { put, ..write }).await;
    }
    assert_eq!(store.read(&space(), &all_of(Kind::History)).await.unwrap().len(), 12);
    for round in 0..6 {
        let many: Vec<_> =
            (0..256).map(|nth| put(&key(Kind::Role, &format!("r{round}.{nth}")), None, "x")).collect();
        let outcomes = store.write(&space(), &many).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied)));
    }
    assert_eq!(store.read(&space(), &all_of(Kind::Role)).await.unwrap().len(), 6 * 256);
    let too_long = put(&key(Kind::History, "l"), None, &"x".repeat(1 << 20));
    match store.write(&space(), &[too_long]).await.unwrap().remove(0) {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
        other => panic!("{other:?}"),
    }
}

/// What a person did to a register with a shell can be replaced by a node that has seen it, and by no other.
#[tokio::test]
async fn what_people_write_can_be_replaced() {
    let server = Server::start(1, "");
    let (store, other) = (open(&server), open(&server));
    let made = must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    let path = "/tenure/space/5/node/n";
    server.set(0, "", path, "hello").unwrap();
    for expect in [None, Some(version(&put(&made.key, None, "")))] {
        match other.write(&space(), &[put(&made.key, expect, "mine")]).await.unwrap().remove(0) {
            Outcome::Conflict(Some(there)) => assert_eq!(there.value, Value::unreadable().1),
            other => panic!("{other:?}"),
        }
    }
    let repaired = put(&made.key, Some(Value::unreadable().0), "mine");
    must(&other, &space(), repaired.clone()).await;
    let next = must(&store, &space(), put(&made.key, Some(version(&repaired)), "next")).await;
    assert_eq!(server.children(0, "", path).unwrap().len(), 1, "one marker");
    // Deleted with everything in it, and made again by another: what was seen before is not taken for it.
    server.delete_all(0, "", "/tenure").unwrap();
    must(&other, &space(), put(&made.key, None, "anew")).await;
    match store.write(&space(), &[put(&made.key, Some(version(&next)), "late")]).await.unwrap().remove(0) {
        Outcome::Conflict(Some(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// A register that was deleted can be made again, by a handle that knows of it and by one that does not; nothing is left.
#[tokio::test]
async fn a_register_is_made_deleted_and_made_again() {
    let server = Server::start(1, "");
    let (one, other) = (open(&server), open(&server));
    let mut watch = other.watch(&space());
    until_it_works(&other).await;
    for store in [&one, &other, &one] {
        let made = must(store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
        let gone = Write { expect: Some(version(&made)), put: None, ..made.clone() };
        must(&one, &space(), gone.clone()).await;
        signalled(&mut watch, &made.key).await;
        let again = store.write(&space(), std::slice::from_ref(&gone)).await.unwrap().remove(0);
        assert!(matches!(again, Outcome::Conflict(None)), "{again:?}");
    }
    assert_eq!(server.children(0, "", "/tenure/space/5/node").unwrap(), Vec::<String>::new());
    assert_eq!(server.children(0, "", "/tenure/_changed").unwrap(), Vec::<String>::new(), "nothing is left");
}

/// A leader on an ensemble goes on leading while servers freeze, one at a time: no server is a lease's only hope.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_servers_freeze_one_at_a_time() {
    let mut server = Server::start(3, "");
    let url = format!("zookeeper://{}", server.hosts());
    let settings = TimingSettings { ttl: Some(Duration::from_secs(40)), ..TimingSettings::default() };
    let node = Arc::new(Node::builder(&url).name("a").timing(settings).start().await.unwrap());
    let candidate = node.candidate("scheduler").await.unwrap();
    let lead = soon(candidate.elected()).await.unwrap();
    for nth in 0..3 {
        server.signal(nth, UnixSignal::STOP);
        for _ in 0..160 {
            assert!(lead.check(), "led on while server {nth} was frozen");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server.signal(nth, UnixSignal::CONT);
        server.launch_all();
    }
    assert!(lead.check());
    node.stop().await;
}

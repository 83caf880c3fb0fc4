//! What ZooKeeper servers can do to those who use them: servers that die, freeze or come back as deposed leaders, answers that are
//! lost, znodes that people touch, older data, rights that are missing, certificates.

use std::time::Duration;

use crate::conformance::PASSWORD;
use crate::groups::{self, Failing, Group as _, is_told, signalled, space, written};
use crate::server_kit::{self, certificates, get, heard, key, must, one, put, soon, until_it_works, version};
use rustix::process::Signal as UnixSignal;
use tenure::store::{Class, Fate, Kind, Outcome, Query, Retry, Signal, Store, Value, Write, ZooKeeper};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::zookeeper::ZooKeeper as Server;

crate::group_of_members!(Server, |server| format!("zookeeper://{}", server.hosts()));

#[tokio::test]
async fn the_class_is_what_the_voters_make_it() {
    let (ensemble, alone) = (Server::start(3, ""), Server::start(1, ""));
    for (server, class, part) in [(&ensemble, Class::A, "3 servers"), (&alone, Class::B, "1 server")] {
        let store = server.open();
        until_it_works(&*store).await;
        must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
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

#[tokio::test]
async fn any_server_may_die() {
    groups::any_server_may_die(&mut Server::start(3, "")).await;
}

/// A frozen leader is replaced by the others. When it wakes up it still believes for a moment that it leads: what a client reads
/// there by itself is never what was replaced meanwhile.
#[tokio::test]
async fn a_leader_that_wakes_up_shows_nothing_old() {
    let server = Server::start(3, "");
    let writer = server.open();
    let mut last = put(&key(Kind::Node, "n"), None, "0");
    until_it_works(&*writer).await;
    written(&*writer, &last).await;
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
        let mut own = must(&alone, &space(), put(&key(Kind::Session, "5"), None, "beat")).await;
        server.signal(leader, UnixSignal::STOP);
        let next = put(&last.key, Some(version(&last)), "next");
        written(&*writer, &next).await;
        server.signal(leader, UnixSignal::CONT);
        for _ in 0..20 {
            if let Ok(found) = alone.read(&space(), &one(&next.key)).await {
                assert_eq!(found[0].version, version(&next), "what was replaced is not shown");
            }
            let beat = put(&own.key, Some(version(&own)), "beat");
            let exchanged = alone.exchange(&space(), std::slice::from_ref(&beat), &one(&next.key)).await;
            if let Ok(found) = exchanged.read {
                assert_eq!(found[0].version, version(&next), "nor together with a beat");
            }
            if matches!(exchanged.written.as_deref(), Ok([Outcome::Applied])) {
                own = beat;
            }
        }
        let delete = Write { put: None, ..put(&own.key, Some(version(&own)), "") };
        written(&*writer, &delete).await;
        until_it_works(&*writer).await;
        last = next;
    }
}

#[tokio::test]
async fn a_write_without_an_answer_is_unknown_and_sent_once() {
    let server = Server::start(1, "");
    let link = Proxy::to(server.address(0));
    let store = ZooKeeper::open(&format!("zookeeper://{}?timeout=4s", link.address())).unwrap();
    until_it_works(&store).await;
    must(&store, &space(), put(&key(Kind::Node, "before"), None, "x")).await;
    groups::a_write_without_an_answer_is_unknown_and_sent_once(&store, &link).await;
}

#[tokio::test]
async fn a_claim_and_the_read_after_it_are_one_round_trip() {
    let server = Server::start(1, "");
    let link = Proxy::to(server.address(0));
    let linked = ZooKeeper::open(&format!("zookeeper://{}?timeout=20s", link.address())).unwrap();
    server_kit::a_claim_and_the_read_after_it_are_one_round_trip(&*server.open(), &linked, &link).await;
}

/// What the poll reads follows the beat on the same connection, and needs no barrier of its own: each barrier is a write that
/// a majority has to sync. Registers that came since the last poll are asked for once more.
#[tokio::test]
async fn a_beat_and_its_poll_are_two_packets() {
    const BEATS: u64 = 40;
    let server = Server::start(1, "");
    let (store, other) = (server.open(), server.open());
    let session = |nth| key(Kind::Node, nth);
    let mut own = must(&*store, &space(), put(&session("1"), None, "beat")).await;
    let leader = must(&*other, &space(), put(&session("2"), None, "beat")).await;
    let query = Query { keys: vec![key(Kind::Role, "r")], kinds: vec![(own.key.epoch(), Kind::Node)] };
    let mut poll = async || {
        let beat = put(&own.key, Some(version(&own)), "beat");
        let exchanged = store.exchange(&space(), std::slice::from_ref(&beat), &query).await;
        assert!(matches!(exchanged.written.as_deref(), Ok([Outcome::Applied])), "{exchanged:?}");
        own = beat;
        let mut read = exchanged.read.expect("it is read");
        read.sort_by_key(|entry| entry.key.to_string());
        read.into_iter().map(|entry| entry.version).collect::<Vec<_>>()
    };
    assert_eq!(poll().await.len(), 2);
    let before = server.received(0).expect("it serves");
    for _ in 0..BEATS {
        assert_eq!(poll().await.len(), 2);
    }
    let packets = server.received(0).expect("it serves") - before;
    // Now and then a ping comes on top.
    println!("{packets} packets of {BEATS} beats");
    assert!(packets <= 2 * BEATS + 10, "{packets} packets of {BEATS} beats");
    let next = must(&*other, &space(), put(&leader.key, Some(version(&leader)), "beat")).await;
    assert!(poll().await.contains(&version(&next)), "a beat of another is seen");
    must(&*other, &space(), put(&session("3"), None, "beat")).await;
    assert_eq!(poll().await.len(), 3, "so is another session");
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
    let (store, mut watch) = groups::set_back(&mut server, 50).await;
    written(&*store, &put(&key(Kind::Node, "b"), None, "x")).await;
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
        is_told(&url, part).await;
    }
}

/// Everything of a kind at once: long registers, and many of them.
#[tokio::test]
async fn long_and_many_answers_come_whole() {
    let server = Server::start(1, "");
    let store = ZooKeeper::open(&format!("zookeeper://{}?timeout=30s", server.address(0))).unwrap();
    groups::long_answers_come_whole(&store).await;
    groups::many_answers_come_whole(&store, 6, 256).await;
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
    let (store, other) = (server.open(), server.open());
    let made = must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    let path = "/tenure/space/5/node/n";
    server.set(0, "", path, "hello").unwrap();
    for expect in [None, Some(version(&put(&made.key, None, "")))] {
        match other.write(&space(), &[put(&made.key, expect, "mine")]).await.unwrap().remove(0) {
            Outcome::Conflict(Some(there)) => assert_eq!(there.value, Value::unreadable().1),
            other => panic!("{other:?}"),
        }
    }
    let repaired = put(&made.key, Some(Value::unreadable().0), "mine");
    must(&*other, &space(), repaired.clone()).await;
    let next = must(&*store, &space(), put(&made.key, Some(version(&repaired)), "next")).await;
    assert_eq!(server.children(0, "", path).unwrap().len(), 1, "one marker");
    // Deleted with everything in it, and made again by another: what was seen before is not taken for it.
    server.delete_all(0, "", "/tenure").unwrap();
    must(&*other, &space(), put(&made.key, None, "anew")).await;
    match store.write(&space(), &[put(&made.key, Some(version(&next)), "late")]).await.unwrap().remove(0) {
        Outcome::Conflict(Some(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_register_is_made_deleted_and_made_again() {
    let server = Server::start(1, "");
    drop(groups::what_was_deleted_can_be_made_again(&server).await);
    assert_eq!(server.children(0, "", "/tenure/space/5/node").unwrap(), Vec::<String>::new());
    assert_eq!(server.children(0, "", "/tenure/_changed").unwrap(), Vec::<String>::new(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_servers_freeze_one_at_a_time() {
    let failing = Failing { frozen: Duration::from_secs(8), down: None, rest: Duration::ZERO };
    groups::a_leader_goes_on_while_servers_fail_one_at_a_time(
        &mut Server::start(3, ""),
        Duration::from_secs(40),
        failing,
    )
    .await;
}

//! What NATS servers can do to those who use them: servers that die, freeze or are cut off, streams that change their leader,
//! acknowledgements that are lost, buckets that are full, forget or vanish, rights that are missing, certificates.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::conformance::{PASSWORD, rights};
use crate::groups::{self, Failing, Group as _, all_of, is_told, signalled, space, written};
use crate::server_kit::{certificates, get, heard, key, must, one, put, soon, until_it_works, version};
use futures_util::StreamExt;
use tenure::store::{Class, Entry, Fate, Key, Kind, Nats, Outcome, Retry, Signal, Store, Value};
use tenure_torture::proxy::Proxy;
use tenure_torture::servers::nats::Nats as Server;
use tenure_torture::servers::scratch;

crate::group_of_members!(Server, |server| format!("nats://{}/tenure?sync=always", server.hosts()));

/// What is there. While the stream elects another leader, a server says that it knows none, and is asked again.
async fn found(store: &dyn Store, key: &Key) -> Option<Entry> {
    let reading = async {
        loop {
            match store.read(&space(), &one(key)).await {
                Ok(mut found) => break found.pop(),
                Err(error) => assert_eq!(error.retry(), Retry::Soon, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(reading).await
}

#[tokio::test]
async fn the_class_is_what_the_disks_and_the_replicas_make_it() {
    let (group, alone) = (Server::start(3, ""), Server::start(1, ""));
    for (server, synced, class) in [
        (&group, true, Class::A),
        (&group, false, Class::C),
        (&alone, true, Class::B),
        (&alone, false, Class::C),
    ] {
        let sync = if synced { "?sync=always" } else { "" };
        let store = Nats::open(&format!("nats://{}/tenure{sync}", server.hosts())).unwrap();
        until_it_works(&store).await;
        let described = store.describe().await.unwrap();
        assert_eq!(described.class, class, "{described:?}");
        assert!(described.notifies && described.about.contains("replica"), "{described:?}");
        let told = |part: &str| described.remarks.iter().any(|remark| remark.contains(part));
        assert_eq!(told("sync_interval: always"), !synced, "{described:?}");
        assert!(told("no login"), "{described:?}");
    }
    let one_of_three = Nats::open(&format!("nats://{}", group.address(0))).unwrap();
    let remarks = one_of_three.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("names 1 of at least 3")), "{remarks:?}");
}

#[tokio::test]
async fn any_server_may_die() {
    groups::any_server_may_die(&mut Server::start(3, "")).await;
}

#[tokio::test]
async fn a_frozen_server_is_left() {
    let server = Server::start(3, "");
    until_it_works(&*server.open()).await;
    groups::a_frozen_server_is_left(&server, |_| server.open()).await;
}

/// The links between three servers, each of which can be cut off from the others.
struct Linked {
    server: Server,
    links: Vec<(usize, usize, Proxy)>,
}

impl Linked {
    fn start() -> Self {
        let mut links = Vec::new();
        let link = |from: usize, to: usize, port: u16| {
            let proxy = Proxy::to(SocketAddr::from(([127, 0, 0, 1], port)));
            let address = proxy.address();
            links.push((from, to, proxy));
            address
        };
        let server = Server::start_with(3, "", "", link, scratch);
        Self { server, links }
    }

    fn of(&self, nth: usize) -> impl Iterator<Item = &Proxy> {
        self.links.iter().filter(move |(from, to, _)| [*from, *to].contains(&nth)).map(|(_, _, link)| link)
    }
}

/// A server that is cut off from the others has an old state, and may still believe that it leads: it is never believed.
#[tokio::test]
async fn a_server_that_is_cut_off_shows_nothing_old() {
    let group = Linked::start();
    let writer = group.server.open();
    let mut last = put(&key(Kind::Node, "n"), None, "0");
    until_it_works(&*writer).await;
    written(&*writer, &last).await;
    for nth in 0..3 {
        let alone = Nats::open(&format!("nats://{}/tenure", group.server.address(nth))).unwrap();
        until_it_works(&alone).await;
        assert!(found(&alone, &last.key).await.is_some());
        group.of(nth).for_each(Proxy::black_hole);
        let next = put(&last.key, Some(version(&last)), "next");
        written(&*writer, &next).await;
        for _ in 0..3 {
            if let Ok(found) = alone.read(&space(), &one(&next.key)).await {
                assert_eq!(found[0].version, version(&next), "what was replaced is not shown");
            }
        }
        group.of(nth).for_each(Proxy::heal);
        until_it_works(&*writer).await;
        last = next;
    }
}

/// The stream changes its leader again and again, under writes: each is applied once.
#[tokio::test]
async fn the_leader_of_the_stream_may_change() {
    let server = Server::start(3, "");
    let store = server.open();
    until_it_works(&*store).await;
    let writing = groups::sixty_writes(store.clone());
    for _ in 0..5 {
        // While another leader is being elected there is none to step down.
        let _ = server.step_down("tenure");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let last = writing.await.unwrap();
    assert_eq!(found(&*store, &last.key).await.unwrap().version, version(&last));
}

#[tokio::test]
async fn a_write_without_an_acknowledgement_is_unknown_and_sent_once() {
    let server = Server::start(1, "");
    let link = Proxy::to(server.address(0));
    let store = Nats::open(&format!("nats://{}/tenure?timeout=1s", link.address())).unwrap();
    until_it_works(&store).await;
    let asked = server.listen(0, "$KV.tenure.>");
    groups::a_write_without_an_answer_is_unknown_and_sent_once(&store, &link).await;
    assert_eq!(asked.lock().unwrap().len(), 2, "the one that was applied was sent once: {asked:?}");
}

/// What a user may not do, or a wrong login, is told at once, with what to do; the least rights are enough.
#[tokio::test]
async fn missing_rights_are_told_and_the_least_ones_are_enough() {
    let server = Server::start_as(1, &rights(), "\"user\":\"root\",\"pass\":\"root\"");
    let url = |login: &str, bucket: &str| format!("nats://{login}{}/{bucket}?sync=always", server.address(0));
    let allowed = Nats::open(&url(&format!("app:{PASSWORD}@"), "tenure")).unwrap();
    let described = allowed.describe().await.unwrap();
    assert!(described.notifies && described.class == Class::B, "{described:?}");
    assert!(!described.remarks.iter().any(|remark| remark.contains("rights wider")), "{described:?}");
    let mut watch = allowed.watch(&space());
    let write = must(&allowed, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    signalled(&mut watch, &write.key).await;
    for (url, part) in [
        (url(&format!("app:{PASSWORD}@"), "elsewhere"), "tenure schema --for nats"),
        (url("app:wrong@", "tenure"), "refuses this login"),
        (url("", "tenure"), "refuses this login"),
    ] {
        let store = Nats::open(&url).unwrap();
        let error = store.describe().await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains(PASSWORD) && !error.to_string().contains("wrong@"), "{error}");
        let write = put(&key(Kind::Node, "n"), None, "x");
        let error = store.write(&space(), &[write]).await.unwrap_err();
        assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    }
}

/// A key of NATS signs what the server asks to be signed; a token is enough where the server has one.
#[tokio::test]
async fn keys_and_tokens_are_logins() {
    // Made for this test; they open nothing else.
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("user.nk");
    std::fs::write(&file, format!("{seed}\n")).unwrap();
    let permit = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    permit(0o644);
    let exposed = Nats::open(&format!("nats://127.0.0.1:1/tenure?nkey={}", file.display())).unwrap_err();
    assert!(exposed.to_string().contains("chmod 600"), "{exposed}");
    permit(0o600);
    let users =
        format!("authorization {{ users = [ {{ user: root, password: root }}, {{ nkey: {public} }} ] }}");
    let keyed = Server::start_as(1, &users, "\"user\":\"root\",\"pass\":\"root\"");
    let store = Nats::open(&format!("nats://{}/tenure?nkey={}", keyed.address(0), file.display())).unwrap();
    must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    assert!(Nats::open(&format!("nats://{}", keyed.address(0))).unwrap().describe().await.is_err());
    let tokened = Server::start_as(1, "authorization { token: s3cret }", "\"auth_token\":\"s3cret\"");
    let store = Nats::open(&format!("nats://s3cret@{}", tokened.address(0))).unwrap();
    must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    assert!(Nats::open(&format!("nats://other@{}", tokened.address(0))).unwrap().describe().await.is_err());
}

/// A bucket that an operator made.
fn bucket(server: &Server, name: &str, settings: &str) {
    let config = format!(
        "{{\"name\":\"KV_{name}\",\"subjects\":[\"$KV.{name}.>\"],\"max_msgs_per_subject\":1,\"allow_direct\":true,\
         \"discard\":\"new\",\"storage\":\"file\",\"num_replicas\":1{settings}}}"
    );
    let made = server.api(&format!("STREAM.CREATE.KV_{name}"), &config);
    assert!(made.is_ok(), "{made:?}");
}

#[tokio::test]
async fn a_bucket_that_forgets_is_refused() {
    let server = Server::start(1, "");
    for (name, settings, part) in [
        ("aged", ",\"max_age\":60000000000", "max_age"),
        ("limited", ",\"max_msgs\":10", "max_msgs"),
        ("old", ",\"max_bytes\":100000,\"discard\":\"old\"", "discard"),
        ("blind", ",\"allow_direct\":false", "allow_direct"),
    ] {
        bucket(&server, name, settings);
        let store = Nats::open(&format!("nats://{}/{name}", server.address(0))).unwrap();
        let error = store.describe().await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.retry(), Retry::Never, "{error}");
    }
    let nowhere = tenure::store::open_read_only(&format!("nats://{}/nowhere", server.address(0))).unwrap();
    let error = nowhere.describe().await.unwrap_err();
    assert!(error.to_string().contains("no bucket"), "{error}");
    assert!(server.api("STREAM.INFO.KV_nowhere", "").is_err(), "reading makes no bucket");
}

/// A bucket that is full refuses writes, says what to do, and goes on once there is room.
#[tokio::test]
async fn a_full_bucket_is_told_and_goes_on_when_there_is_room() {
    let server = Server::start(1, "");
    bucket(&server, "tenure", ",\"max_bytes\":1000000");
    let store = server.open();
    let mut full = None;
    for nth in 0..20 {
        let write = put(&key(Kind::History, &format!("h{nth}")), None, &"x".repeat(100_000));
        match store.write(&space(), std::slice::from_ref(&write)).await.unwrap().remove(0) {
            Outcome::Applied => {}
            Outcome::Failed(error) => {
                assert!(get(&*store, &space(), &write.key).await.is_none(), "what was refused is not there");
                full = Some(error);
                break;
            }
            Outcome::Conflict(found) => panic!("{found:?}"),
        }
    }
    let error = full.expect("it is full");
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon), "{error}");
    assert!(error.to_string().contains("is full"), "{error}");
    server.purge("tenure", "space.5.history.*").unwrap();
    must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
}

/// Servers that went on with what they had earlier have forgotten, and so has a bucket that was made anew.
#[tokio::test]
async fn older_data_and_other_data_are_noticed() {
    let mut server = Server::start(1, "");
    let (store, mut watch) = groups::set_back(&mut server, 5).await;
    until_it_works(&*store).await;
    written(&*store, &put(&key(Kind::Node, "b"), None, "x")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    let identity = store.describe().await.unwrap().identity;
    server.api("STREAM.DELETE.KV_tenure", "").unwrap();
    written(&*store, &put(&key(Kind::Node, "c"), None, "x")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    assert_ne!(store.describe().await.unwrap().identity, identity);
}

/// Encrypted and verified, with and without a certificate of one's own; nothing falls back to plain text.
#[tokio::test]
async fn connections_are_encrypted_and_verified() {
    let dir = certificates("root");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (cert, key_file, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let tls =
        format!("tls {{ cert_file: \"{cert}\", key_file: \"{key_file}\", ca_file: \"{ca}\", verify: true }}");
    let server = Server::start(1, &tls);
    let port = server.address(0).port();
    let good = format!("tls://localhost:{port}/tenure?ca={ca}&cert={cert}&key={key_file}");
    let store = Nats::open(&good).unwrap();
    until_it_works(&store).await;
    let described = store.describe().await.unwrap();
    assert!(described.notifies && described.about.contains("tls://"), "{described:?}");
    must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    for (url, part) in [
        (format!("nats://localhost:{port}"), "write tls://"),
        (
            format!("tls://127.0.0.1:{port}?ca={ca}&cert={cert}&key={key_file}"),
            "certificate not valid for name",
        ),
        (format!("tls://localhost:{port}?cert={cert}&key={key_file}"), "UnknownIssuer"),
    ] {
        is_told(&url, part).await;
    }
    let naked = Nats::open(&format!("tls://localhost:{port}?ca={ca}")).unwrap();
    assert!(naked.describe().await.is_err(), "a certificate is asked for");
}

/// Everything of a kind at once: long registers, and more of them than a server gives in one answer.
#[tokio::test]
async fn long_and_many_answers_come_whole() {
    let server = Server::start(1, "");
    let store = Nats::open(&format!("nats://{}?timeout=30s", server.address(0))).unwrap();
    groups::long_answers_come_whole(&store).await;
    groups::many_answers_come_whole(&store, 6, 256).await;
}

/// A key that Tenure did not write harms no other, and a forged acknowledgement means nothing.
#[tokio::test]
async fn strange_keys_and_strange_changes_mean_nothing() {
    let server = Server::start(1, "");
    let store = server.open();
    until_it_works(&*store).await;
    let mut watch = store.watch(&space());
    until_it_works(&*store).await;
    for strange in ["", "x.1", "x.1.space.7.what.r", "x.1.space.5.node.n"] {
        let _ = server.request(
            0,
            &format!("tenure.tenure.changed.{strange}"),
            b"{\"stream\":\"other\",\"seq\":1}",
        );
    }
    let good = must(&*store, &space(), put(&key(Kind::Node, "good"), None, "x")).await;
    heard(&mut watch, |signal| match signal {
        Signal::Changed(changed) => {
            assert_eq!(*changed, good.key);
            true
        }
        _ => false,
    })
    .await;
    for strange in ["space.5.node.strange", "space.5.node.strange.deeper", "space.5.node._x", "hello"] {
        server.request(0, &format!("$KV.tenure.{strange}"), b"hello").unwrap();
    }
    let found = store.read(&space(), &all_of(Kind::Node)).await.unwrap();
    let mut names: Vec<_> = found.iter().map(|entry| entry.key.clone()).collect();
    names.sort();
    assert_eq!(names, [good.key.clone(), key(Kind::Node, "strange")]);
    for expect in [None, Some(version(&good))] {
        let write = put(&key(Kind::Node, "strange"), expect, "mine");
        match store.write(&space(), &[write]).await.unwrap().remove(0) {
            Outcome::Conflict(Some(there)) => assert_eq!(there.value, Value::unreadable().1),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_was_deleted_can_be_made_again() {
    let server = Server::start(1, "");
    let (store, mut watch) = groups::what_was_deleted_can_be_made_again(&server).await;
    // As people do it.
    must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    server.purge("tenure", "space.5.node.n").unwrap();
    must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    assert!(watch.next().await.is_some());
}

/// Replicas elect another leader of the stream within four to nine seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_servers_fail_one_at_a_time() {
    let failing = Failing { frozen: Duration::from_secs(8), down: None, rest: Duration::from_secs(2) };
    groups::a_leader_goes_on_while_servers_fail_one_at_a_time(
        &mut Server::start(3, ""),
        Duration::from_secs(40),
        failing,
    )
    .await;
}

//! What an etcd cluster can do to those who use it: members that die, freeze, lose their leader or hand it on, histories that
//! are compacted, tokens that expire, databases that are full, rights that are missing, certificates.

use std::time::Duration;

use crate::groups::{self, Failing, Group as _, all_of, is_told, signalled, space, written};
use crate::server_kit::{
    self, certificates, get, heard, key, must, one, printed_schema, put, soon, until_it_works, version,
};
use futures_util::StreamExt;
use tenure::store::{self, Class, Etcd, Fate, Key, Kind, Outcome, Query, Retry, Signal, Store, Value, Write};
use tenure_torture::proxy::{Direction, Proxy};
use tenure_torture::servers::etcd::Etcd as Server;

crate::group_of_members!(
    Server,
    |server| format!("etcd://{}", server.hosts()),
    fn wait_for_leader(&self) {
        Self::wait_for_leader(self);
    }
);

/// A user with the rights that `tenure schema` prints, which are set as it prints them, and one who may only read.
fn with_users(server: &Server) {
    for line in printed_schema("etcd", "app", false).lines().filter(|line| line.starts_with("etcdctl ")) {
        let line = line.replace("user add app", "user add app:secret");
        let _ = server.ctl(&line.split(' ').skip(1).collect::<Vec<_>>());
    }
    for words in [
        "role add reader",
        "role grant-permission reader --prefix=true read tenure/",
        "user add reader:secret",
        "user grant-role reader reader",
        "user add root:root",
        "user grant-role root root",
        "auth enable",
    ] {
        let _ = server.ctl(&words.split(' ').collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_group_is_class_a_and_says_what_it_is() {
    let server = Server::start(3, &[]);
    let described = server.open().describe().await.unwrap();
    assert_eq!(described.class, Class::A);
    assert!(described.notifies, "{described:?}");
    assert!(described.about.contains("3 members"), "{described:?}");
    assert!(
        described.remarks.len() == 1 && described.remarks[0].contains("authentication is off"),
        "{described:?}"
    );
    let one_of_three = Etcd::open(&format!("etcd://{}", server.address(0))).unwrap();
    let remarks = one_of_three.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("names 1 of 3 members")), "{remarks:?}");
}

#[tokio::test]
async fn one_member_is_class_b_and_a_group_without_one_of_its_members_says_which() {
    let server = Server::start(1, &[]);
    let described = server.open().describe().await.unwrap();
    assert_eq!(described.class, Class::B);
    assert!(described.remarks[0].contains("one member"), "{described:?}");
    let mut group = Server::start(3, &[]);
    group.stop(1);
    let store = group.open();
    until_it_works(&*store).await;
    let down = format!("{} does not answer", group.address(1));
    let remarks = store.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains(&down)), "{remarks:?}");
}

#[tokio::test]
async fn any_member_may_die() {
    groups::any_server_may_die(&mut Server::start(3, &[])).await;
}

/// Long before a lease of five seconds is over.
#[tokio::test]
async fn a_frozen_member_is_left() {
    let server = Server::start(3, &[]);
    // The frozen member is the only one that a handle has asked.
    let open = |nth: usize| {
        let hosts = [nth, (nth + 1) % 3, (nth + 2) % 3].map(|nth| server.address(nth).to_string());
        store::open(&format!("etcd://{}", hosts.join(","))).unwrap()
    };
    groups::a_frozen_server_is_left(&server, open).await;
}

/// A member that is alone has no leader: it says so, nothing is written, and its watches end instead of keeping silent.
#[tokio::test]
async fn a_member_without_the_others_serves_nothing() {
    let mut server = Server::start(3, &[]);
    let store = Etcd::open(&format!("etcd://{}", server.address(0))).unwrap();
    until_it_works(&store).await;
    let mut watch = store.watch(&space());
    server.stop(1);
    server.stop(2);
    let told = soon(async {
        loop {
            let error = store.read(&space(), &one(&Key::Cluster)).await;
            if let Err(error) = error
                && error.to_string().contains("has no leader")
            {
                return error;
            }
        }
    })
    .await;
    assert_eq!((told.fate(), told.retry()), (Fate::NotApplied, Retry::Soon), "{told}");
    let write = put(&key(Kind::Node, "n"), None, "x");
    match store.write(&space(), std::slice::from_ref(&write)).await.unwrap().remove(0) {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
        other => panic!("{other:?}"),
    }
    server.launch_all();
    // The stream was ended, and is opened again: that is a resync.
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    written(&store, &write).await;
    signalled(&mut watch, &write.key).await;
}

/// The members hand their leadership on, again and again, under writes: each is applied once.
#[tokio::test]
async fn leaders_of_the_members_may_change() {
    let server = Server::start(3, &[]);
    let store = server.open();
    let writing = groups::sixty_writes(store.clone());
    for _ in 0..6 {
        let leader = server.leader().expect("they have one");
        let next = server.id((leader + 1) % 3).expect("it answers");
        let mut command = server.etcdctl(&server.address(leader).to_string());
        let moved = command.args(["move-leader", &format!("{next:x}")]).output().expect("etcdctl runs");
        assert!(moved.status.success(), "{moved:?}");
        server.wait_for_leader();
    }
    let last = writing.await.unwrap();
    let found = get(&*store, &space(), &last.key).await.unwrap();
    assert_eq!(found.version, version(&last));
}

#[tokio::test]
async fn a_claim_and_the_read_after_it_are_one_round_trip() {
    let server = Server::start(1, &[]);
    let link = Proxy::to(server.address(0));
    let linked = Etcd::open(&format!("etcd://{}?timeout=20s", link.address())).unwrap();
    server_kit::a_claim_and_the_read_after_it_are_one_round_trip(&*server.open(), &linked, &link).await;
}

/// A watch that is far behind, whose history is compacted away, says that it missed something.
#[tokio::test]
async fn a_history_that_is_compacted_under_a_watch_means_looking_again() {
    let server = Server::start(1, &[]);
    let link = Proxy::to(server.address(0));
    let watcher = Etcd::open(&format!("etcd://{}", link.address())).unwrap();
    until_it_works(&watcher).await;
    let mut watch = watcher.watch(&space());
    link.hold(Direction::Down);
    let writer = server.open();
    let mut write = put(&key(Kind::History, "h"), None, "first");
    written(&*writer, &write).await;
    for _ in 0..40 {
        let expect = Some(version(&write));
        write = put(&key(Kind::History, "h"), expect, &"x".repeat(200_000));
        written(&*writer, &write).await;
    }
    let revision = server.ctl(&["get", "x", "-w", "fields"]);
    let revision = revision.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    let _ = server.ctl(&["compact", revision]);
    link.heal();
    let missed = |signal: &Signal| match signal {
        Signal::Changed(changed) => *changed == write.key,
        Signal::Resync => true,
        _ => false,
    };
    heard(&mut watch, missed).await;
    let last = put(&key(Kind::Task, "last"), None, "x");
    written(&*writer, &last).await;
    signalled(&mut watch, &last.key).await;
}

/// A token that has expired, or that the members forgot when they died, is replaced by another one.
#[tokio::test]
async fn tokens_that_expire_are_renewed() {
    let mut server = Server::start(1, &["--auth-token-ttl", "1"]);
    with_users(&server);
    let store = Etcd::open(&format!("etcd://app:secret@{}", server.address(0))).unwrap();
    until_it_works(&store).await;
    let mut watch = store.watch(&space());
    let mut last: Option<Write> = None;
    for round in 0..3 {
        // Longer than a token lasts without being used.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let write = put(&key(Kind::Node, "n"), last.as_ref().map(version), &round.to_string());
        let outcomes = store.write(&space(), std::slice::from_ref(&write)).await.unwrap();
        assert!(matches!(outcomes[0], Outcome::Applied), "{outcomes:?}");
        signalled(&mut watch, &write.key).await;
        last = Some(write);
    }
    server.stop(0);
    server.launch_all();
    let write = put(&key(Kind::Task, "t"), None, "x");
    written(&store, &write).await;
    let later = put(&key(Kind::Task, "u"), None, "x");
    until_it_works(&store).await;
    written(&store, &later).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
}

/// What a user may not do, or a wrong password, is told at once, with what to do, and not tried again.
#[tokio::test]
async fn missing_rights_are_told_and_the_least_ones_are_enough() {
    let server = Server::start(1, &[]);
    with_users(&server);
    let url = |login: &str, prefix: &str| format!("etcd://{login}{}/{prefix}", server.address(0));
    let allowed = Etcd::open(&url("app:secret@", "tenure")).unwrap();
    let described = allowed.describe().await.unwrap();
    assert!(described.notifies && described.class == Class::B, "{described:?}");
    assert!(!described.remarks.iter().any(|remark| remark.contains("rights wider")), "{described:?}");
    must(&allowed, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    let reader = Etcd::open(&url("reader:secret@", "tenure")).unwrap();
    let query = Query { keys: vec![key(Kind::Node, "n")], kinds: Vec::new() };
    let seen = reader.read(&space(), &query).await.unwrap();
    assert_eq!(seen.len(), 1, "who may read sees all");
    let forged = Write { expect: Some(seen[0].version), ..put(&key(Kind::Node, "n"), None, "forged") };
    match reader.write(&space(), &[forged]).await.unwrap().remove(0) {
        Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
        other => panic!("who may only read wrote: {other:?}"),
    }
    assert_eq!(allowed.read(&space(), &query).await.unwrap(), seen, "and changes nothing");
    for (url, part) in [
        (url("app:secret@", "elsewhere"), "tenure schema --for etcd"),
        (url("app:wrong@", "tenure"), "refuses this user or password"),
        (url("", "tenure"), "asks for a user"),
    ] {
        let store = Etcd::open(&url).unwrap();
        let error = store.describe().await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(!error.to_string().contains("secret") && !error.to_string().contains("wrong@"), "{error}");
        let write = put(&key(Kind::Node, "n"), None, "x");
        match store.write(&space(), &[write]).await.unwrap().remove(0) {
            Outcome::Failed(error) => assert_eq!(error.fate(), Fate::NotApplied, "{error}"),
            other => panic!("{other:?}"),
        }
    }
    let root = Etcd::open(&url("root:root@", "tenure")).unwrap();
    let remarks = root.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("this user is root")), "{remarks:?}");
    let off = Server::start(1, &[]);
    let needless = Etcd::open(&format!("etcd://app:secret@{}", off.address(0))).unwrap();
    let remarks = needless.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("authentication is off")), "{remarks:?}");
}

/// A database that is full refuses writes, says what to do, and goes on once that was done.
#[tokio::test]
async fn a_full_database_is_told_and_goes_on_when_there_is_room() {
    let server = Server::start(1, &["--quota-backend-bytes", "4194304"]);
    let store = server.open();
    let (mut last, mut full) = (None, None);
    while full.is_none() {
        let write = put(&key(Kind::History, "h"), last, &"x".repeat(300_000));
        match store.write(&space(), std::slice::from_ref(&write)).await.unwrap().remove(0) {
            Outcome::Applied => last = Some(version(&write)),
            Outcome::Failed(error) => full = Some(error),
            Outcome::Conflict(found) => panic!("{found:?}"),
        }
    }
    let error = full.unwrap();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon), "{error}");
    assert!(error.to_string().contains("alarm disarm"), "{error}");
    let remarks = store.describe().await.unwrap().remarks;
    assert!(remarks.iter().any(|remark| remark.contains("alarm NOSPACE")), "{remarks:?}");
    let found = get(&*store, &space(), &key(Kind::History, "h")).await.unwrap();
    assert_eq!(Some(found.version), last, "what was refused is not there");
    let revision = server.ctl(&["get", "x", "-w", "fields"]);
    let revision = revision.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).unwrap();
    for words in [&["compact", revision][..], &["defrag"], &["alarm", "disarm"]] {
        let _ = server.ctl(words);
    }
    written(&*store, &put(&key(Kind::Node, "n"), None, "x")).await;
}

/// Members that went on with what they had earlier have forgotten, and so has another cluster at the same place.
#[tokio::test]
async fn older_data_and_other_data_are_noticed() {
    let mut server = Server::start(1, &[]);
    let (store, mut watch) = groups::set_back(&mut server, 5).await;
    until_it_works(&*store).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    let identity = store.describe().await.unwrap().identity;
    server.stop(0);
    *server.data() = tempfile::tempdir().unwrap();
    server.launch_all();
    until_it_works(&*store).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    // Made from the same names and addresses, it even has the same number.
    assert_eq!(store.describe().await.unwrap().identity, identity);
}

/// Encrypted and verified, with and without a certificate of one's own; nothing falls back to plain text.
#[tokio::test]
async fn connections_are_encrypted_and_verified() {
    let dir = certificates("root");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (cert, key_file, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
    let server = Server::start(
        1,
        &["--cert-file", &cert, "--key-file", &key_file, "--client-cert-auth", "--trusted-ca-file", &ca],
    );
    let port = server.address(0).port();
    let good = format!("etcds://localhost:{port}/tenure?ca={ca}&cert={cert}&key={key_file}");
    let store = Etcd::open(&good).unwrap();
    let described = store.describe().await.unwrap();
    assert!(described.notifies && described.about.contains("etcds://"), "{described:?}");
    must(&store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    for (url, part) in [
        (format!("etcd://localhost:{port}"), "write etcds://"),
        (format!("etcds://localhost:{port}?ca={ca}"), "add cert= and key="),
        (
            format!("etcds://127.0.0.1:{port}?ca={ca}&cert={cert}&key={key_file}"),
            "certificate not valid for name",
        ),
        (format!("etcds://localhost:{port}?cert={cert}&key={key_file}"), "UnknownIssuer"),
    ] {
        is_told(&url, part).await;
    }
}

/// In an answer that is far larger than etcd's limit for requests.
#[tokio::test]
async fn long_answers_come_whole() {
    let server = Server::start(1, &[]);
    let store = Etcd::open(&format!("etcd://{}?timeout=30s", server.address(0))).unwrap();
    groups::long_answers_come_whole(&store).await;
}

/// A hint is put where watches look, and names a register; what another program puts there means nothing.
#[tokio::test]
async fn people_can_read_what_is_there_and_strange_changes_mean_nothing() {
    let server = Server::start(1, &[]);
    let store = server.open();
    until_it_works(&*store).await;
    let mut watch = store.watch(&space());
    for strange in ["", "x", "space/7/what/r", "space/7/role/r/x", " not a name/5/node/n"] {
        let _ = server.ctl(&["put", "tenure/_changed/000", "--", strange]);
    }
    let write = must(&*store, &space(), put(&key(Kind::Node, "n"), None, "x")).await;
    match soon(watch.next()).await {
        Some(Signal::Changed(changed)) => assert_eq!(changed, write.key),
        other => panic!("{other:?}"),
    }
    let shown = server.ctl(&["get", "--prefix", "tenure/space/"]);
    let expected = format!("tenure/space/5/node/n\n{} ---------------- \"x\"\n", version(&write));
    assert_eq!(shown, expected);
}

/// A key that Tenure did not write harms no other: it is left alone, and what cannot be named is not there.
#[tokio::test]
async fn a_key_that_is_no_register_harms_no_other() {
    let server = Server::start(1, &[]);
    let store = server.open();
    let good = must(&*store, &space(), put(&key(Kind::Node, "good"), None, "x")).await;
    for (strange, value) in [("strange", "hello"), ("strange/deeper", "x"), ("not a name", "x"), ("", "x")] {
        let _ = server.ctl(&["put", &format!("tenure/space/5/node/{strange}"), value]);
    }
    let found = store.read(&space(), &all_of(Kind::Node)).await.unwrap();
    let names: Vec<_> = found.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(names, [good.key.clone(), key(Kind::Node, "strange")]);
    assert_eq!(found[1].value, Value::unreadable().1);
    for expect in [None, Some(version(&good))] {
        let write = put(&key(Kind::Node, "strange"), expect, "mine");
        match store.write(&space(), &[write]).await.unwrap().remove(0) {
            Outcome::Conflict(Some(there)) => assert_eq!(there, found[1]),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_goes_on_while_members_fail_one_at_a_time() {
    let [frozen, down] = [6, 3].map(Duration::from_secs);
    groups::a_leader_goes_on_while_servers_fail_one_at_a_time(
        &mut Server::start(3, &[]),
        Duration::from_secs(15),
        Failing { frozen, down: Some(down), rest: Duration::ZERO },
    )
    .await;
}

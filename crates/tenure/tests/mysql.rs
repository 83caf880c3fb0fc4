//! MySQL keeps the contract, on a real MariaDB that is really killed; and says what is wrong with it.

mod mysql_kit;
mod server_kit;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_kit::{OneServer, kill_connections, patient, row};
use server_kit::{certificates, get, heard, key, must, name, put, soon, until_it_works, version};
use tenure::Node;
use tenure::store::{Class, Fate, Kind, Mysql, Outcome, Retry, SharedStore, Signal, Write, open};
use tenure_testkit::servers::free_port;
use tenure_testkit::servers::mysql::DATABASE;

mod mysql {
    use super::*;

    tenure::conformance!(OneServer::new());
}

fn store(url: &str) -> SharedStore {
    open(&patient(url)).expect("the URL can be read")
}

#[tokio::test]
async fn a_healthy_server_is_class_b_and_rings_and_connections_are_witnesses() {
    let server = OneServer::new();
    let described = server.store().describe().await.unwrap();
    assert_eq!((described.class, described.rings), (Class::B, true), "{described:?}");
    assert!(described.witnesses_disconnect && !described.witnesses_death);
    assert_eq!(described.remarks, [""; 0]);
    assert!(described.about.contains("MariaDB 1"), "{}", described.about);
    assert_eq!(server.store().describe().await.unwrap().identity, described.identity);
}

#[tokio::test]
async fn what_the_server_can_lose_makes_it_class_c_and_missing_guards_are_told() {
    let weak =
        ["--innodb-flush-log-at-trx-commit=2", "--skip-innodb-doublewrite", "--log-bin", "--sync-binlog=0"];
    let server = OneServer::with(&weak);
    let store = server.store();
    let described = store.describe().await.unwrap();
    assert_eq!(described.class, Class::C);
    for part in ["innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog", "triggers"] {
        assert!(described.remarks.iter().any(|remark| remark.contains(part)), "{part}: {described:?}");
    }
    let (space, place) = (name("weak"), key(Kind::Node, "a"));
    let first = must(&*store, &space, put(&place, None, "1")).await;
    must(&*store, &space, put(&place, Some(version(&first)), "2")).await;
}

/// Any node of it takes writes, and one that crashes takes what it had acknowledged with it. It is told so, and works.
#[tokio::test]
async fn a_galera_cluster_is_class_c_and_elects() {
    let listen = format!("--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{}", free_port());
    let server = OneServer::with(&[
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-new-cluster",
        "--wsrep-node-address=127.0.0.1",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        &listen,
    ]);
    let described = server.store().describe().await.unwrap();
    assert_eq!(described.class, Class::C, "{described:?}");
    assert!(described.remarks.iter().any(|remark| remark.contains("Galera")), "{described:?}");
    let node = |name: &'static str| Node::with_store(server.store()).name(name).ttl(Duration::from_secs(2));
    let (one, two) = (node("one").start().await.unwrap(), node("two").start().await.unwrap());
    let first = soon(one.candidate("job").await.unwrap().elected()).await.expect("elected");
    let waiting = two.candidate("job").await.unwrap();
    let token = first.token();
    drop(first);
    soon(one.stop()).await;
    assert!(soon(waiting.elected()).await.expect("elected").token() > token);
}

#[tokio::test]
async fn hands_cannot_lower_a_token_nor_delete_a_role() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("hands"));
    let value = tenure::store::Value::of(&7, Some(tenure::Token(7)));
    let write =
        Write { put: Some((tenure::store::Version(1), value)), ..put(&key(Kind::Role, "r"), None, "") };
    must(&*store, &space, write.clone()).await;
    let mut admin = server.admin().await;
    for sql in [
        "DELETE FROM tenure_registers",
        "TRUNCATE tenure_registers",
        "UPDATE tenure_registers SET token = 6",
        "UPDATE tenure_registers SET token = NULL",
        "UPDATE tenure_registers SET name = 'other'",
        "REPLACE INTO tenure_registers SELECT namespace, epoch, kind, name, version, 1, value, seq FROM tenure_registers",
    ] {
        let refused = admin.query_drop(sql).await.expect_err(sql).to_string();
        assert!(refused.contains("tenure: ") || refused.contains("tenure_never_truncated"), "{refused}");
    }
    assert_eq!(get(&*store, &space, &write.key).await.unwrap().version, version(&write));
}

#[tokio::test]
async fn a_user_who_may_not_make_tables_is_told_which_grants_it_needs_and_they_suffice() {
    let server = OneServer::new();
    let mut admin = server.admin().await;
    admin.query_drop("CREATE USER 'ann'@'%' IDENTIFIED BY 'hunter2'").await.unwrap();
    // A user who may do nothing at all in a database may not even use it.
    admin.query_drop(format!("GRANT SHOW VIEW ON {DATABASE}.* TO 'ann'@'%'")).await.unwrap();
    let url = server.server().url("ann");
    let error = store(&url).describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never), "{error}");
    assert!(error.to_string().contains("GRANT SELECT, INSERT"), "{error}");
    run_script(&server, Mysql::ddl());
    run_script(&server, Mysql::ddl());
    run_script(&server, &Mysql::grants().replace("DATABASE", DATABASE).replace("USER", "ann"));
    let (one, other) = (store(&url), store(&url));
    for ann in [&one, &other] {
        let described = ann.describe().await.unwrap();
        assert!(described.class == Class::B && described.rings, "{described:?}");
        assert_eq!(described.remarks, [""; 0]);
    }
    let mut watch = other.watch(&name("least"));
    let place = key(Kind::Node, "a");
    let first = must(&*one, &name("least"), put(&place, None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(found) if found.version == version(&first)))
        .await;
    must(&*one, &name("least"), Write { put: None, ..put(&place, Some(version(&first)), "") }).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
}

/// As people do, with the client that comes with the server.
fn run_script(server: &OneServer, script: &str) {
    let port = server.server().port().to_string();
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-h127.0.0.1", "-P", &port, "-uroot", DATABASE]);
    let mut client =
        client.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("mariadb is installed");
    client.stdin.take().expect("its input").write_all(script.as_bytes()).expect("it reads");
    let done = client.wait_with_output().expect("it ends");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn a_read_only_server_a_replica_and_a_newer_schema_are_refused() {
    let server = OneServer::new();
    let mut admin = server.admin().await;
    let (url, root) = (server.url(), server.server().admin_url());
    store(&url).describe().await.unwrap();
    admin.query_drop("SET GLOBAL read_only = 1").await.unwrap();
    let error = store(&url).describe().await.unwrap_err();
    assert!(error.to_string().contains("read_only is on") && error.retry() == Retry::Never, "{error}");
    admin.query_drop("SET GLOBAL read_only = 0").await.unwrap();
    admin.query_drop("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_USER = 'x'").await.unwrap();
    let error = store(&root).describe().await.unwrap_err();
    assert!(error.to_string().contains("replicates another one"), "{error}");
    admin.query_drop("RESET REPLICA ALL").await.unwrap();
    admin.query_drop("UPDATE tenure_schema SET version = 2").await.unwrap();
    let error = store(&url).describe().await.unwrap_err();
    assert!(error.to_string().contains("another version of tenure"), "{error}");
}

#[tokio::test]
async fn a_write_stuck_behind_a_lock_is_given_up_by_the_server_and_never_comes_later() {
    let server = OneServer::new();
    let (space, place) = (name("stuck"), key(Kind::Node, "a"));
    let store = store(&format!("{}?timeout=4s", server.url()));
    let first = must(&*store, &space, put(&place, None, "1")).await;
    let mut admin = server.admin().await;
    admin.query_drop("START TRANSACTION").await.unwrap();
    admin.query_drop("SELECT 1 FROM tenure_registers FOR UPDATE").await.unwrap();
    for ring in [true, false] {
        let write = Write { ring, ..put(&place, Some(version(&first)), "2") };
        let error = store.write(&space, &[write]).await.unwrap_err();
        assert!(error.fate() == Fate::NotApplied || !ring, "{error}");
        assert!(error.to_string().contains("innodb_trx"), "{error}");
    }
    admin.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(get(&*store, &space, &place).await.unwrap().version, version(&first));
    must(&*store, &space, put(&place, Some(version(&first)), "3")).await;
}

#[tokio::test]
async fn batches_in_opposite_order_never_wait_for_each_other_in_a_circle() {
    let server = OneServer::new();
    let space = name("circle");
    let keys: Vec<_> = (0..64).map(|nth| key(Kind::Node, &format!("n{nth}"))).collect();
    let writers = (0..4).map(|nth| {
        let (store, space, mut keys) = (server.store(), space.clone(), keys.clone());
        if nth % 2 == 1 {
            keys.reverse();
        }
        tokio::spawn(async move {
            let (mut applied, mut expect) = (0, vec![None; keys.len()]);
            for round in 0..10 {
                let ring = (round + nth) % 3 == 0;
                let each = keys.iter().zip(&expect);
                let batch: Vec<_> =
                    each.map(|(key, expect)| Write { ring, ..put(key, *expect, "x") }).collect();
                for (nth, outcome) in store.write(&space, &batch).await.unwrap().into_iter().enumerate() {
                    expect[nth] = match outcome {
                        Outcome::Applied => Some(version(&batch[nth])).inspect(|_| applied += 1),
                        Outcome::Conflict(found) => found.map(|found| found.version),
                        Outcome::Failed(error) => panic!("{error}"),
                    };
                }
            }
            applied
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut applied = 0;
    for writer in writers {
        applied += soon(writer).await.unwrap();
    }
    assert!(applied > 0);
}

#[tokio::test]
async fn after_a_crash_the_same_memory_goes_on_and_dropped_tables_are_another_one() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("crash"));
    let identity = store.describe().await.unwrap().identity;
    let mut watch = store.watch(&space);
    let first = must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    let dir = server.server().crash();
    let gone = async {
        loop {
            if let Err(error) = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await
                && error.fate() == Fate::NotApplied
            {
                return error;
            }
        }
    };
    assert!(soon(gone).await.to_string().contains("see whether the server runs"));
    server.server().launch(dir);
    until_it_works(&*store).await;
    assert_eq!(store.describe().await.unwrap().identity, identity, "the same memory");
    assert_eq!(get(&*store, &space, &first.key).await.unwrap().version, version(&first));
    let signal = heard(&mut watch, |signal| matches!(signal, Signal::Resync | Signal::Forgot)).await;
    assert!(matches!(signal, Signal::Resync), "nothing was forgotten");
    let drop = "DROP VIEW tenure_leaders; DROP TABLE tenure_guard, tenure_registers, tenure_bell, tenure_deletions, \
        tenure_schema";
    server.admin().await.query_drop(drop).await.unwrap();
    let error = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    until_it_works(&*store).await;
    assert!(get(&*store, &space, &key(Kind::Node, "a")).await.is_none());
}

#[tokio::test]
async fn killed_connections_are_replaced_at_once_and_none_is_left_behind() {
    let server = OneServer::new();
    let (store, other, space) = (server.store(), server.store(), name("killed"));
    assert!(store.describe().await.unwrap().rings && other.describe().await.unwrap().rings);
    let mut watch = store.watch(&space);
    let mut admin = server.admin().await;
    assert_eq!(kill_connections(&mut admin, "app").await, 4, "two connections for each handle");
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    until_it_works(&*other).await;
    let rung = must(&*other, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(found) if found.version == version(&rung)))
        .await;
    other.close().await;
    drop(store);
    let left = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app'";
    let gone = async {
        while row(&mut admin, left).await != [Some("0".to_owned())] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(gone).await;
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_host_are_said_without_showing_secrets() {
    let server = OneServer::new();
    let wrong = server.url().replace("hunter2", "hunter3");
    let error = store(&wrong).describe().await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", store(&wrong));
    assert!(shown.contains("password are right") && !shown.contains("hunter"), "{shown}");
    assert_eq!(error.retry(), Retry::Never);
    let nowhere = format!("mysql://ann:hunter2@127.0.0.1:{}/x", tenure_testkit::servers::free_port());
    let error = store(&nowhere).describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon));
    let shown = format!("{error} {error:?} {:?}", store(&nowhere));
    assert!(shown.contains("see whether the server runs") && !shown.contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn an_encrypted_connection_is_verified_by_the_authority_that_was_named() {
    let dir = certificates("root");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let settings = [
        format!("--ssl-ca={}", file("ca.pem")),
        format!("--ssl-cert={}", file("server.pem")),
        format!("--ssl-key={}", file("server.key")),
    ];
    let server = OneServer::with(&settings.each_ref().map(String::as_str));
    let mut admin = server.admin().await;
    admin.query_drop("ALTER USER 'app'@'%' REQUIRE SSL").await.unwrap();
    let at = |host: &str| server.url().replace("127.0.0.1", host);
    store(&format!("{}?ca={}", at("localhost"), file("ca.pem"))).describe().await.unwrap();
    let plain = store(&at("localhost")).describe().await.unwrap_err();
    assert_eq!(plain.retry(), Retry::Never, "this user may only come encrypted: {plain}");
    let wrong_name =
        store(&format!("{}?ca={}", at("127.0.0.1"), file("ca.pem"))).describe().await.unwrap_err();
    assert!(wrong_name.to_string().contains("certificate"), "{wrong_name}");
    let stranger = format!("{}?ca=/etc/ssl/certs/ca-certificates.crt", at("localhost"));
    let stranger = store(&stranger).describe().await.unwrap_err();
    assert!(stranger.to_string().contains("certificate"), "{stranger}");
}

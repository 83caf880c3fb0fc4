//! PostgreSQL keeps the contract, on a real server that is really killed; and says what is wrong with it.

mod postgres_kit;
mod server_kit;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use postgres_kit::{OneServer, sql};
use server_kit::{certificates, get, heard, key, must, name, put, soon, until_it_works, version};
use tenure::store::{Class, Fate, Kind, Outcome, Postgres, Retry, SharedStore, Signal, Store, Write, open};
use tenure_testkit::servers::postgres::pgbouncer;

mod postgres {
    use super::*;

    tenure::conformance!(OneServer::new());
}

fn store(url: &str) -> SharedStore {
    open(url).expect("the URL can be read")
}

#[tokio::test]
async fn a_healthy_server_is_class_b_and_rings() {
    let server = OneServer::new();
    let described = server.store().describe().await.unwrap();
    assert_eq!((described.class, described.rings), (Class::B, true));
    assert_eq!(described.remarks, [""; 0]);
    assert!(described.about.contains("PostgreSQL 1"), "{}", described.about);
    assert_eq!(server.store().describe().await.unwrap().identity, described.identity);
}

#[tokio::test]
async fn behind_a_transaction_pooler_all_but_the_bell_works() {
    let server = OneServer::new();
    let pooler = pgbouncer(&server.server());
    let store = store(&format!("postgres://postgres@{}/postgres", pooler.address()));
    let described = store.describe().await.unwrap();
    assert!(!described.rings && described.class == Class::B, "{described:?}");
    assert!(described.remarks.iter().any(|remark| remark.contains("pooler")), "{described:?}");
    let (space, place) = (name("pooled"), key(Kind::Node, "a"));
    let first = must(&*store, &space, put(&place, None, "1")).await;
    let second = must(&*store, &space, put(&place, Some(version(&first)), "2")).await;
    assert_eq!(get(&*server.store(), &space, &place).await.unwrap().version, version(&second));
    let outcomes = store.write(&space, &[put(&place, None, "3")]).await.unwrap();
    assert!(matches!(&outcomes[0], Outcome::Conflict(Some(found)) if found.version == version(&second)));
    let leaked = sql(&format!("postgres://postgres@{}/postgres", pooler.address())).await;
    let timeouts = leaked.query_typed_one(
        "SELECT current_setting('statement_timeout') || current_setting('lock_timeout')",
        &[],
    );
    assert_eq!(
        timeouts.await.unwrap().get::<_, &str>(0),
        "00",
        "nothing of ours stays in a session that others use"
    );
}

#[tokio::test]
async fn what_the_server_can_lose_makes_it_class_c() {
    let server = OneServer::with(&["fsync=off"]);
    let described = server.store().describe().await.unwrap();
    assert_eq!(described.class, Class::C);
    assert!(described.remarks[0].contains("fsync is off"), "{described:?}");

    let server = OneServer::new();
    let store = server.store();
    assert_eq!(store.describe().await.unwrap().class, Class::B);
    let dir = tempfile::tempdir().unwrap();
    let mut replica = Command::new("pg_receivewal");
    replica.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &server.server().port().to_string(), "-D"]);
    let mut replica =
        replica.arg(dir.path()).stderr(Stdio::null()).spawn().expect("pg_receivewal is installed");
    let admin = server.admin().await;
    let attached = async {
        let senders = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'";
        while admin.query(senders, &[]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(attached).await;
    let described = store.describe().await.unwrap();
    replica.kill().unwrap();
    replica.wait().unwrap();
    assert_eq!(described.class, Class::C);
    assert!(described.remarks[0].contains("synchronous_standby_names"), "{described:?}");
}

#[tokio::test]
async fn hands_cannot_lower_a_token_nor_delete_a_role() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("hands"));
    let value = tenure::store::Value::of(&7, Some(tenure::Token(7)));
    let write =
        Write { put: Some((tenure::store::Version(1), value)), ..put(&key(Kind::Role, "r"), None, "") };
    must(&*store, &space, write.clone()).await;
    let admin = server.admin().await;
    for sql in [
        "DELETE FROM tenure_registers",
        "TRUNCATE tenure_registers",
        "UPDATE tenure_registers SET token = 6",
        "UPDATE tenure_registers SET token = NULL",
        "UPDATE tenure_registers SET name = 'other'",
    ] {
        let refused = admin.batch_execute(sql).await.expect_err(sql);
        assert!(refused.as_db_error().unwrap().message().starts_with("tenure: "), "{refused:?}");
    }
    assert_eq!(get(&*store, &space, &write.key).await.unwrap().version, version(&write));
}

#[tokio::test]
async fn a_user_who_may_not_make_tables_is_told_which_grants_it_needs() {
    let server = OneServer::new();
    let admin = server.admin().await;
    admin.batch_execute("CREATE ROLE app LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.unwrap();
    let url = server.server().url("app", "postgres");
    let error = store(&url).describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(error.to_string().contains("GRANT SELECT, INSERT"), "{error}");
    admin.batch_execute(Postgres::ddl()).await.unwrap();
    let grants = "GRANT SELECT, INSERT, UPDATE, DELETE ON tenure_registers TO app;
        GRANT SELECT ON tenure_schema, tenure_leaders TO app";
    admin.batch_execute(grants).await.unwrap();
    let app = store(&url);
    let described = app.describe().await.unwrap();
    assert!(described.class == Class::B && described.rings, "{described:?}");
    must(&*app, &name("least"), put(&key(Kind::Node, "a"), None, "1")).await;
}

#[tokio::test]
async fn a_read_only_server_is_refused_and_the_primary_is_found_among_several() {
    let (standby, primary) = (OneServer::with(&["default_transaction_read_only=on"]), OneServer::new());
    let error = standby.store().describe().await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    let (first, second) = (standby.server().port(), primary.server().port());
    let url = format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres");
    let both = store(&url);
    assert_eq!(both.describe().await.unwrap().identity, primary.store().describe().await.unwrap().identity);
    assert_eq!(both.to_string(), format!("postgres://127.0.0.1:{first},127.0.0.1:{second}/postgres"));
}

#[tokio::test]
async fn a_newer_schema_and_a_wrong_isolation_level_are_refused() {
    let server = OneServer::new();
    let (old, admin) = (server.store(), server.admin().await);
    old.describe().await.unwrap();
    admin.batch_execute("UPDATE tenure_schema SET version = 2").await.unwrap();
    let error = server.store().describe().await.unwrap_err();
    assert!(error.to_string().contains("another version of tenure"), "{error}");
    assert_eq!(error.retry(), Retry::Never);
    let call = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT tenure_write_v2('a','{}','{}','{}','{}','{}','{}','{}','{}','{}',1000)";
    let error = admin.batch_execute(call).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("read committed"), "{error:?}");
}

#[tokio::test]
async fn a_write_stuck_behind_a_lock_is_given_up_by_the_server_and_never_comes_later() {
    let server = OneServer::new();
    let (space, place) = (name("stuck"), key(Kind::Node, "a"));
    let store = store(&format!("{}?timeout=1s", server.url()));
    let first = must(&*store, &space, put(&place, None, "1")).await;
    let mut admin = server.admin().await;
    let transaction = admin.transaction().await.unwrap();
    transaction.batch_execute("SELECT 1 FROM tenure_registers FOR UPDATE").await.unwrap();
    let error = store.write(&space, &[put(&place, Some(version(&first)), "2")]).await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    assert!(error.to_string().contains("pg_locks"), "{error}");
    transaction.rollback().await.unwrap();
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
            let mut applied = 0;
            let mut expect = vec![None; keys.len()];
            for _ in 0..20 {
                let batch: Vec<_> =
                    keys.iter().zip(&expect).map(|(key, expect)| put(key, *expect, "x")).collect();
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
async fn after_a_crash_the_same_memory_goes_on_and_watches_look_again() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("crash"));
    let identity = store.describe().await.unwrap().identity;
    let mut watch = store.watch(&space);
    let first = must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    let dir = server.server().crash();
    let gone = soon(async {
        loop {
            if let Err(error) = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await
                && error.fate() == Fate::NotApplied
            {
                return error;
            }
        }
    });
    assert!(gone.await.to_string().contains("see whether the server runs"));
    server.server().launch(dir);
    until_it_works(&*store).await;
    assert_eq!(store.describe().await.unwrap().identity, identity, "the same memory");
    assert_eq!(get(&*store, &space, &first.key).await.unwrap().version, version(&first));
    let signal = heard(&mut watch, |signal| matches!(signal, Signal::Resync | Signal::Forgot)).await;
    assert!(matches!(signal, Signal::Resync), "nothing was forgotten");
}

#[tokio::test]
async fn killed_server_processes_are_replaced_at_once() {
    let server = OneServer::new();
    let (store, other, space) = (server.store(), server.store(), name("killed"));
    assert!(store.describe().await.unwrap().rings && other.describe().await.unwrap().rings);
    let mut watch = store.watch(&space);
    let admin = server.admin().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
    assert_eq!(admin.query(kill, &[]).await.unwrap().len(), 4, "two connections for each handle");
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    until_it_works(&*other).await;
    let rung = must(&*other, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(found) if found.version == version(&rung)))
        .await;
}

#[tokio::test]
async fn tables_that_were_dropped_are_another_memory() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("dropped"));
    store.describe().await.unwrap();
    let mut watch = store.watch(&space);
    must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    server.admin().await.batch_execute("DROP TABLE tenure_registers, tenure_schema CASCADE").await.unwrap();
    let error = store.write(&space, &[put(&key(Kind::Node, "b"), None, "1")]).await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotApplied, "{error}");
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    until_it_works(&*store).await;
    assert!(get(&*store, &space, &key(Kind::Node, "a")).await.is_none());
}

#[tokio::test]
async fn what_is_too_large_for_a_notification_is_read() {
    let server = OneServer::new();
    let (writer, watcher, space) = (server.store(), server.store(), name("large"));
    assert!(watcher.describe().await.unwrap().rings);
    let mut watch = watcher.watch(&space);
    for size in [7_000, 7_900, 8_000, 100_000] {
        let write = put(&key(Kind::Node, &format!("n{size}")), None, &"é".repeat(size / 2));
        let write = must(&*writer, &space, write).await;
        let signal = heard(&mut watch, |_| true).await;
        assert!(
            matches!(&signal, Signal::Changed(found) if found.version == version(&write)),
            "{size}: {signal:?}"
        );
    }
}

/// Beats leave nothing behind in the index, and what is refused leaves nothing at all.
#[tokio::test]
async fn beats_are_heap_only_updates_and_conflicts_write_nothing() {
    let server = OneServer::new();
    let (store, space, admin) = (server.store(), name("beats"), server.admin().await);
    let mut last = must(&*store, &space, put(&key(Kind::Node, "a"), None, "0")).await;
    for beat in 0..200 {
        let next = put(&last.key, Some(version(&last)), &beat.to_string());
        last = must(&*store, &space, Write { ring: false, ..next }).await;
    }
    let row = "SELECT xmin::text, ctid::text FROM tenure_registers";
    let before: (String, String) =
        admin.query_one(row, &[]).await.map(|row| (row.get(0), row.get(1))).unwrap();
    for _ in 0..50 {
        let outcomes = store.write(&space, &[put(&last.key, None, "late")]).await.unwrap();
        assert!(matches!(&outcomes[0], Outcome::Conflict(Some(found)) if found.version == version(&last)));
    }
    let after = admin.query_one(row, &[]).await.map(|row| (row.get(0), row.get(1))).unwrap();
    assert_eq!(before, after, "not touched");
    // A server process hands in its counts when it ends.
    store.close().await;
    let counted = async {
        loop {
            let counts =
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'tenure_registers'";
            let counts = admin.query_one(counts, &[]).await.unwrap();
            if counts.get::<_, i64>(0) >= 200 {
                return (counts.get::<_, i64>(0), counts.get::<_, i64>(1));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (updates, hot) = soon(counted).await;
    assert!(hot * 100 >= updates * 95, "{hot} of {updates} updates were heap-only");
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_host_are_said_without_showing_secrets() {
    let server = OneServer::new();
    let admin = server.admin().await;
    admin.batch_execute("CREATE ROLE ann LOGIN PASSWORD 'right'").await.unwrap();
    let file: String = admin.query_one("SHOW hba_file", &[]).await.unwrap().get(0);
    std::fs::write(&file, "host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n")
        .unwrap();
    admin.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let url = |secret: &str| server.server().url(&format!("ann:{secret}"), "postgres");
    let refused = async {
        loop {
            match sql_fails(&url("hunter2")).await {
                Some(error) => return error,
                None => tokio::task::yield_now().await,
            }
        }
    };
    let error = soon(refused).await;
    assert!(error.contains("pg_hba.conf") && !error.contains("hunter2"), "{error}");
    let nowhere = format!("postgres://ann:hunter2@127.0.0.1:{}/x", tenure_testkit::servers::free_port());
    let error = store(&nowhere).describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Soon));
    let shown = format!("{error} {error:?} {:?}", store(&nowhere));
    assert!(shown.contains("see whether the server runs") && !shown.contains("hunter2"), "{shown}");
}

async fn sql_fails(url: &str) -> Option<String> {
    store(url)
        .describe()
        .await
        .err()
        .map(|error| format!("{error} {error:?}"))
        .filter(|error| error.contains("password"))
}

#[tokio::test]
async fn an_encrypted_connection_is_verified_by_the_authority_that_was_named() {
    let dir = certificates("postgres");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (cert, key) =
        (format!("ssl_cert_file={}", file("server.pem")), format!("ssl_key_file={}", file("server.key")));
    let server = OneServer::with(&["ssl=on", &cert, &key]);
    let at = |host: &str| format!("postgres://postgres@{host}:{}/postgres?ca=", server.server().port());
    let good = Arc::new(Postgres::open(&(at("localhost") + &file("ca.pem"))).unwrap());
    good.describe().await.unwrap();
    let admin = server.admin().await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'tenure' AND ssl";
    assert_eq!(admin.query_one(encrypted, &[]).await.unwrap().get::<_, i64>(0), 2);
    let wrong_name = store(&(at("127.0.0.1") + &file("ca.pem"))).describe().await.unwrap_err();
    assert!(wrong_name.to_string().contains("certificate"), "{wrong_name}");
    let stranger = store(&format!(
        "postgres://postgres@localhost:{}/postgres?sslmode=verify-full&ca=/etc/ssl/certs/ca-certificates.crt",
        server.server().port()
    ));
    assert!(stranger.describe().await.unwrap_err().to_string().contains("certificate"));
}

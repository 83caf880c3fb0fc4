//! MySQL keeps the contract, on a real MariaDB that is really killed; and says what is wrong with it.

use std::time::Duration;

use crate::mysql_kit::{OneServer, connect, kill_connections, patient, replicate, row, run_script};
use crate::server_kit::stories::Stage;
use crate::server_kit::{certificates, get, heard, key, must, name, printed_schema, put, soon, version};
use async_trait::async_trait;
use mysql_async::Row;
use mysql_async::prelude::Queryable;
use tempfile::TempDir;
use tenure::Node;
use tenure::store::{Class, Fate, Kind, Mysql, Retry, SharedStore, Signal, Write, open};
use tenure_torture::servers::free_port;
use tenure_torture::servers::mysql::{DATABASE, PASSWORD, dialect};

mod conformance {
    use super::*;

    tenure::conformance!(OneServer::new());
}

mod stories {
    use super::*;

    crate::stories!(OneServer::new());
}

impl OneServer {
    async fn count(&self, ask: &str) -> usize {
        self.admin().await.query_first(ask).await.expect("an answer").expect("a count")
    }
}

#[async_trait]
impl Stage for OneServer {
    fn store(&self) -> SharedStore {
        Self::store(self)
    }

    fn crash(&self) -> TempDir {
        self.server().crash()
    }

    fn launch(&self, dir: TempDir) {
        self.server().launch(dir);
    }

    async fn kill_connections(&self) -> usize {
        kill_connections(&mut self.admin().await, "app").await
    }

    async fn by_hand(&self, sql: &str) -> Result<(), String> {
        self.admin().await.query_drop(sql).await.map_err(|error| error.to_string())
    }

    async fn make_login(&self, login: &str) {
        let make = format!("CREATE USER {login}@'%' IDENTIFIED BY '{PASSWORD}'");
        self.by_hand(&make).await.expect("a superuser may");
    }

    async fn said_to(&self, login: &str, sql: &str) -> Result<usize, String> {
        let url = self.server().url(login);
        let told: Result<Vec<Row>, _> = connect(&url).await.query(sql).await;
        told.map(|rows| rows.len()).map_err(|error| error.to_string())
    }

    fn store_of(&self, login: &str) -> SharedStore {
        let url = self.server().url(login);
        std::sync::Arc::new(Mysql::open(&patient(&url)).expect("the URL can be read"))
    }

    fn drop_tables(&self) -> &'static str {
        "DROP VIEW tenure_leaders; DROP TABLE tenure_guard, tenure_registers, tenure_notifier, tenure_deletions, tenure_schema"
    }

    async fn leader(&self) -> (String, u64, String) {
        let ask = "SELECT node, token, session_state FROM tenure_leaders WHERE namespace = 'default' \
            AND since <= UTC_TIMESTAMP(6)";
        let row = row(&mut self.admin().await, ask).await;
        let text = |nth: usize| row[nth].clone().expect("a leader");
        (text(0), text(1).parse().expect("a token"), text(2))
    }

    /// Those that are ending are asleep until the server notices that no node is there: they are not counted twice.
    async fn connections(&self) -> usize {
        self.count(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app' AND COMMAND <> 'Killed'",
        )
        .await
    }

    async fn memories(&self) -> usize {
        self.count("SELECT COUNT(DISTINCT id) FROM tenure_schema").await
    }
}

fn store(url: &str) -> SharedStore {
    open(&patient(url)).expect("the URL can be read")
}

#[tokio::test]
async fn a_healthy_server_is_class_b_and_notifies_and_connections_hold_liveness_locks() {
    let server = OneServer::new();
    let described = server.store().describe().await.unwrap();
    assert_eq!((described.class, described.notifies), (Class::B, true), "{described:?}");
    assert!(described.connection_liveness_locks && !described.process_liveness_locks);
    assert_eq!(described.remarks, [""; 0]);
    let admin = server.server().admin_url();
    let admin = store(&admin).describe().await.unwrap();
    assert!(matches!(&admin.remarks[..], [excess] if excess.contains("wider than needed")), "{admin:?}");
    assert!(described.about.contains(dialect("MariaDB 1", "MySQL ")), "{}", described.about);
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

#[tokio::test]
async fn a_server_that_logs_statements_is_refused_with_what_to_set() {
    let server = OneServer::with(&["--log-bin", "--binlog-format=STATEMENT"]);
    let store = server.store();
    let write = put(&key(Kind::Node, "a"), None, "1");
    let error = store.write(&name("logged"), &[write]).await.unwrap_err();
    assert!(error.to_string().contains("set binlog_format to ROW or MIXED"), "{error}");
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
    let node =
        |name: &'static str| Node::builder_with_store(server.store()).name(name).ttl(Duration::from_secs(2));
    let (one, two) = (node("one").start().await.unwrap(), node("two").start().await.unwrap());
    let first = soon(one.candidate("job").await.unwrap().elected()).await.expect("elected");
    let waiting = two.candidate("job").await.unwrap();
    let token = first.token();
    drop(first);
    soon(one.stop()).await;
    assert!(soon(waiting.elected()).await.expect("elected").token() > token);
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
    run_script(&server.server(), &printed_schema("mysql", "ann", false));
    let (one, other) = (store(&url), store(&url));
    for ann in [&one, &other] {
        let described = ann.describe().await.unwrap();
        assert!(described.class == Class::B && described.notifies, "{described:?}");
        assert_eq!(described.remarks, [""; 0]);
    }
    let mut watch = other.watch(&name("least"));
    let place = key(Kind::Node, "a");
    let first = must(&*one, &name("least"), put(&place, None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(changed) if *changed == first.key)).await;
    must(&*one, &name("least"), Write { put: None, ..put(&place, Some(version(&first)), "") }).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
}

/// As people do, with the client that comes with the server.
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
    admin.query_drop(replicate(1)).await.unwrap();
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
    for notify in [true, false] {
        let write = Write { notify, ..put(&place, Some(version(&first)), "2") };
        let error = store.write(&space, &[write]).await.unwrap_err();
        assert!(error.fate() == Fate::NotApplied || !notify, "{error}");
        assert!(error.to_string().contains("innodb_trx"), "{error}");
    }
    admin.query_drop("ROLLBACK").await.unwrap();
    assert_eq!(get(&*store, &space, &place).await.unwrap().version, version(&first));
    must(&*store, &space, put(&place, Some(version(&first)), "3")).await;
}

/// MySQL limits the time of questions only, and not how long a write waits for a table: such a write came when the table was
/// let go, long after its node had given it up.
#[tokio::test]
async fn a_write_stuck_behind_a_locked_table_is_given_up_by_the_server_and_never_comes_later() {
    let server = OneServer::new();
    let (space, place) = (name("stuck"), key(Kind::Node, "a"));
    let store = store(&format!("{}?timeout=4s", server.url()));
    let first = must(&*store, &space, put(&place, None, "1")).await;
    let mut admin = server.admin().await;
    admin.query_drop("LOCK TABLES tenure_registers WRITE").await.unwrap();
    for notify in [true, false] {
        let write = Write { notify, ..put(&place, Some(version(&first)), "2") };
        let error = store.write(&space, &[write]).await.unwrap_err();
        assert!(error.to_string().contains("SHOW PROCESSLIST"), "{error}");
    }
    admin.query_drop("UNLOCK TABLES").await.unwrap();
    let stuck =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'app' AND INFO LIKE 'UPDATE%'";
    soon(async { while server.count(stuck).await > 0 {} }).await;
    assert_eq!(get(&*store, &space, &place).await.unwrap().version, version(&first));
    must(&*store, &space, put(&place, Some(version(&first)), "3")).await;
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_host_are_said_without_showing_secrets() {
    let server = OneServer::new();
    let wrong = server.url().replace("hunter2", "hunter3");
    let error = store(&wrong).describe().await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", store(&wrong));
    assert!(shown.contains("password are right") && !shown.contains("hunter"), "{shown}");
    assert_eq!(error.retry(), Retry::Never);
    let nowhere = format!("mysql://ann:hunter2@127.0.0.1:{}/x", tenure_torture::servers::free_port());
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

/// A replacement is a deletion and an insertion, and neither the one nor the other falls.
#[tokio::test]
async fn a_replaced_row_cannot_lower_a_token() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("hands"));
    let value = tenure::store::Value::of(&7, Some(tenure::Token::new(7)));
    let write =
        Write { put: Some((tenure::store::Version::new(1), value)), ..put(&key(Kind::Role, "r"), None, "") };
    must(&*store, &space, write.clone()).await;
    let sql = "REPLACE INTO tenure_registers SELECT namespace, epoch, kind, name, version, 1, value, seq FROM \
        tenure_registers";
    let refused = server.admin().await.query_drop(sql).await.expect_err(sql).to_string();
    assert!(refused.contains("tenure: "), "{refused}");
    assert_eq!(get(&*store, &space, &write.key).await.unwrap().version, version(&write));
}

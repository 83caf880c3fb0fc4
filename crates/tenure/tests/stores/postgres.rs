//! PostgreSQL keeps the contract, on a real server that is really killed; and says what is wrong with it.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::postgres_kit::{OneServer, sql};
use crate::server_kit::stories::Stage;
use crate::server_kit::{
    certificates, get, heard, key, must, name, one, printed_schema, put, soon, until_it_works, version,
};
use async_trait::async_trait;
use tempfile::TempDir;
use tenure::store::{Class, Fate, Kind, Outcome, Postgres, Retry, SharedStore, Signal, Store, Write, open};
use tenure_torture::servers::postgres::pgbouncer;

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
        let count: i64 = self.admin().await.query_one(ask, &[]).await.expect("an answer").get(0);
        usize::try_from(count).expect("a count")
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
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tenure'";
        self.admin().await.query(kill, &[]).await.expect("an answer").len()
    }

    async fn by_hand(&self, sql: &str) -> Result<(), String> {
        let told = self.admin().await.batch_execute(sql).await;
        told.map_err(|error| error.as_db_error().map_or(error.to_string(), |told| told.message().to_owned()))
    }

    async fn make_login(&self, login: &str) {
        self.by_hand(&format!("CREATE ROLE {login} LOGIN")).await.expect("a superuser may");
    }

    async fn said_to(&self, login: &str, sql: &str) -> Result<usize, String> {
        let url = self.server().url(login, "postgres");
        let told = crate::postgres_kit::sql(&url).await.query(sql, &[]).await;
        let told = told.map(|rows| rows.len());
        told.map_err(|error| error.as_db_error().map_or(error.to_string(), |told| told.message().to_owned()))
    }

    fn store_of(&self, login: &str) -> SharedStore {
        store(&self.server().url(login, "postgres"))
    }

    fn drop_tables(&self) -> &'static str {
        "DROP TABLE tenure_registers, tenure_schema CASCADE"
    }

    async fn leader(&self) -> (String, u64, String) {
        let ask = "SELECT node, token, session_state FROM tenure_leaders WHERE namespace = 'default' AND since <= now()";
        let row = self.admin().await.query_one(ask, &[]).await.expect("one leader");
        (row.get(0), row.get::<_, i64>(1).cast_unsigned(), row.get(2))
    }

    async fn connections(&self) -> usize {
        self.count("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure'").await
    }

    async fn memories(&self) -> usize {
        self.count("SELECT count(DISTINCT id) FROM tenure_schema").await
    }
}

fn store(url: &str) -> SharedStore {
    open(url).expect("the URL can be read")
}

#[tokio::test]
async fn a_healthy_server_is_class_b_and_notifies() {
    let server = OneServer::new();
    let described = server.store().describe().await.unwrap();
    assert_eq!((described.class, described.notifies), (Class::B, true));
    assert!(
        matches!(&described.remarks[..], [excess] if excess.contains("wider than needed")),
        "{described:?}"
    );
    assert!(described.about.contains("PostgreSQL 1"), "{}", described.about);
    assert_eq!(server.store().describe().await.unwrap().identity, described.identity);
}

#[tokio::test]
async fn behind_a_transaction_pooler_all_but_notifications_works() {
    let server = OneServer::new();
    let pooler = pgbouncer(&server.server());
    let store = store(&format!("postgres://postgres@{}/postgres", pooler.address()));
    let described = store.describe().await.unwrap();
    assert!(!described.notifies && described.class == Class::B, "{described:?}");
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
    server.admin().await.batch_execute("ALTER TABLE tenure_registers DISABLE TRIGGER USER").await.unwrap();
    let described = store.describe().await.unwrap();
    assert!(
        described.remarks.concat().contains("triggers that guard tokens are missing or disabled"),
        "{described:?}"
    );
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
async fn a_user_who_may_not_make_tables_is_told_which_grants_it_needs() {
    let server = OneServer::new();
    let admin = server.admin().await;
    admin.batch_execute("CREATE ROLE app LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC").await.unwrap();
    let url = server.server().url("app", "postgres");
    let error = store(&url).describe().await.unwrap_err();
    assert_eq!((error.fate(), error.retry()), (Fate::NotApplied, Retry::Never));
    assert!(error.to_string().contains("GRANT SELECT, INSERT"), "{error}");
    admin.batch_execute(&printed_schema("postgres", "app", false)).await.unwrap();
    let app = store(&url);
    let described = app.describe().await.unwrap();
    assert!(described.class == Class::B && described.notifies, "{described:?}");
    assert_eq!(described.remarks, [""; 0]);
    admin.batch_execute("GRANT INSERT ON tenure_registers TO PUBLIC").await.unwrap();
    let remarks = app.describe().await.unwrap().remarks;
    assert!(matches!(&remarks[..], [excess] if excess.contains("every login can write")), "{remarks:?}");
    must(&*app, &name("least"), put(&key(Kind::Node, "a"), None, "1")).await;
}

/// Two logins whose search paths lead elsewhere, and who may make tables there.
async fn ann_and_bob(server: &OneServer) -> [String; 2] {
    let setup = "CREATE SCHEMA a; CREATE SCHEMA b; CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN;
        GRANT ALL ON SCHEMA a, b TO ann, bob; ALTER ROLE ann SET search_path = a; ALTER ROLE bob SET search_path = b;
        ALTER DEFAULT PRIVILEGES FOR ROLE ann GRANT ALL ON TABLES TO bob";
    server.admin().await.batch_execute(setup).await.unwrap();
    ["ann", "bob"].map(|user| server.server().url(user, "postgres"))
}

#[tokio::test]
async fn two_search_paths_are_never_two_stores_by_accident() {
    let server = OneServer::new();
    let [ann, bob] = ann_and_bob(&server).await;
    let (space, place) = (name("one"), key(Kind::Node, "a"));
    let first = must(&*store(&ann), &space, put(&place, None, "1")).await;
    let refused = store(&bob).write(&space, &[put(&place, None, "2")]).await.unwrap_err();
    assert!(refused.to_string().contains("schema=a"), "{refused}");
    assert_eq!((refused.fate(), refused.retry()), (Fate::NotApplied, Retry::Never));
    let told = store(&format!("{bob}?schema=a"));
    assert_eq!(get(&*told, &space, &place).await.unwrap().version, version(&first), "one store");
    // A store of its own is one that was asked for. It is another login's, and troubles no login whose path leads elsewhere;
    // of two that could be meant by one and the same login, every login has to say which.
    let own = store(&format!("{bob}?schema=b"));
    must(&*own, &space, put(&place, None, "2")).await;
    store(&ann).describe().await.expect("its path leads to a");
    server.admin().await.batch_execute("ALTER TABLE b.tenure_schema OWNER TO ann").await.unwrap();
    let refused = store(&ann).describe().await.unwrap_err();
    assert!(refused.to_string().contains("several schemas (a, b)"), "{refused}");
    let both = [store(&format!("{ann}?schema=a")), told];
    assert_eq!(both[0].describe().await.unwrap().identity, both[1].describe().await.unwrap().identity);
    assert_ne!(own.describe().await.unwrap().identity, both[0].describe().await.unwrap().identity);
}

/// A login whose search path leads to a table of the same name first.
#[tokio::test]
async fn functions_write_to_the_tables_beside_them() {
    let server = OneServer::new();
    let [ann, _] = ann_and_bob(&server).await;
    let (space, place) = (name("one"), key(Kind::Node, "a"));
    must(&*store(&ann), &space, put(&place, None, "1")).await;
    let admin = server.admin().await;
    admin.batch_execute("CREATE TABLE b.tenure_registers (LIKE a.tenure_registers)").await.unwrap();
    let call = "SET search_path = b, a; SELECT tenure_write_v2('one', '{1}', '{node}', '{b}', '{NULL}', '{v}', '{NULL}',
        '{x}', '{f}', '{NULL}', 1000)";
    admin.batch_execute(call).await.unwrap();
    let count = async |table: &str| {
        let ask = format!("SELECT count(*) FROM {table}");
        admin.query_one(&ask, &[]).await.unwrap().get::<_, i64>(0)
    };
    assert_eq!((count("a.tenure_registers").await, count("b.tenure_registers").await), (2, 0));
}

/// A setting of the login that weakens a commit is overruled to the end of the transaction.
#[tokio::test]
async fn a_login_that_does_not_wait_for_the_disk_waits_for_ours() {
    let server = OneServer::new();
    server.store().describe().await.unwrap();
    let admin = server.admin().await;
    let call = "SET synchronous_commit = off; BEGIN;
        SELECT tenure_write_v2('one', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 1000)";
    admin.batch_execute(call).await.unwrap();
    let shown = admin.query_one("SHOW synchronous_commit", &[]).await.unwrap();
    assert_eq!(shown.get::<_, &str>(0), "on");
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

/// A notification names a register; PostgreSQL would refuse a payload of 8000 bytes, and with it the write.
#[tokio::test]
async fn a_register_of_any_size_is_notified() {
    let server = OneServer::new();
    let (writer, watcher, space) = (server.store(), server.store(), name("large"));
    assert!(watcher.describe().await.unwrap().notifies);
    let mut watch = watcher.watch(&space);
    for size in [7_000, 8_000, 100_000] {
        let write = put(&key(Kind::Node, &format!("n{size}")), None, &"é".repeat(size / 2));
        let write = must(&*writer, &space, write).await;
        let signal = heard(&mut watch, |_| true).await;
        assert!(matches!(&signal, Signal::Changed(changed) if *changed == write.key), "{size}: {signal:?}");
    }
}

/// Tables that were made anew are another memory, with another channel: the connection that listens follows.
#[tokio::test]
async fn changes_are_heard_on_the_channel_of_the_memory_that_there_is() {
    let server = OneServer::new();
    let (writer, watcher, space) = (server.store(), server.store(), name("anew"));
    assert!(watcher.describe().await.unwrap().notifies);
    let mut watch = watcher.watch(&space);
    must(&*writer, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    server.admin().await.batch_execute("DROP TABLE tenure_registers, tenure_schema CASCADE").await.unwrap();
    let noticed = async {
        while watcher.read(&space, &one(&key(Kind::Node, "a"))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(noticed).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    // The connection that listens was opened anew, and says so.
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    until_it_works(&*writer).await;
    let write = must(&*writer, &space, put(&key(Kind::Node, "b"), None, "1")).await;
    heard(&mut watch, |signal| matches!(signal, Signal::Changed(changed) if *changed == write.key)).await;
}

/// Beats leave nothing behind in the index, and what is refused leaves nothing at all.
#[tokio::test]
async fn beats_are_heap_only_updates_and_conflicts_write_nothing() {
    let server = OneServer::new();
    let (store, space, admin) = (server.store(), name("beats"), server.admin().await);
    let mut last = must(&*store, &space, put(&key(Kind::Node, "a"), None, "0")).await;
    for beat in 0..200 {
        let next = put(&last.key, Some(version(&last)), &beat.to_string());
        last = must(&*store, &space, Write { notify: false, ..next }).await;
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
    let nowhere = format!("postgres://ann:hunter2@127.0.0.1:{}/x", tenure_torture::servers::free_port());
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

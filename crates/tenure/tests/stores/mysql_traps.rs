//! The traps of the `locks` design, a lock table with an expiry by the server's clock: each was a way to lose a lease or to
//! have two leaders. Here no clock of the server is asked, and no count of rows believed.

use std::time::Duration;

use crate::mysql_kit::{OneServer, connect, patient, row};
use crate::server_kit::{get, heard, key, must, name, put, soon, until_it_works, version};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tenure::store::{Kind, Mysql, Outcome, Signal, Store, Write};
use tenure_torture::servers::mysql::{DATABASE, dialect, is_mysql};

/// Everything that a setting of the server could do to a connection before we have a word.
fn hostile(moment: u64) -> String {
    let isolation = dialect("tx_isolation", "transaction_isolation");
    format!(
        "SET autocommit = 0, sql_mode = '', time_zone = '+02:00', character_set_client = latin1, \
         character_set_results = latin1, collation_connection = latin1_general_ci, {isolation} = 'REPEATABLE-READ', \
         timestamp = {moment}"
    )
}

/// Around the ends of daylight saving time, and one minute with all its seconds.
fn moments() -> impl Iterator<Item = u64> {
    [1_761_440_395, 1_761_442_200, 1_743_296_395].into_iter().chain(1_763_229_600..1_763_229_660)
}

#[tokio::test]
async fn no_second_of_the_minute_no_time_zone_and_no_sql_mode_changes_anything() {
    let server = OneServer::new();
    let (space, place, mut admin) = (name("clock"), key(Kind::Node, "Node-A"), server.admin().await);
    let first = server.store();
    let mut last = must(&*first, &space, put(&place, None, "é 0")).await;
    for moment in moments() {
        admin.query_drop(format!("SET GLOBAL init_connect = \"{}\"", hostile(moment))).await.unwrap();
        let store = server.store();
        let beat = put(&place, Some(version(&last)), &format!("é {moment}"));
        last = must(&*store, &space, Write { notify: moment % 2 == 0, ..beat }).await;
        assert_eq!(get(&*first, &space, &place).await.unwrap().version, version(&last), "at once, for all");
        assert_eq!(get(&*store, &space, &place).await.unwrap().value, last.put.clone().unwrap().1);
        store.close().await;
    }
    for other in ["node-a", "NODE-A", "Node-A."] {
        assert!(get(&*first, &space, &key(Kind::Node, other)).await.is_none(), "{other} is another node");
    }
}

#[tokio::test]
async fn beats_within_one_second_are_all_applied_however_the_client_counts_rows() {
    let server = OneServer::new();
    for (nth, counting) in ["", "?client_found_rows=true"].into_iter().enumerate() {
        let store = Mysql::open(&patient(&format!("{}{counting}", server.url()))).unwrap();
        let (space, place) = (name("rows"), key(Kind::Node, &format!("n{nth}")));
        let mut last = must(&store, &space, put(&place, None, "same")).await;
        for _ in 0..100 {
            // The very same value: only the version is another.
            let beat = put(&place, Some(version(&last)), "same");
            last = must(&store, &space, Write { notify: false, ..beat }).await;
        }
        for notify in [false, true] {
            let late = Write { notify, ..put(&place, None, "late") };
            let wrong = Write { notify, ..put(&place, Some(version(&late)), "wrong") };
            for write in [late, wrong] {
                let outcome = store.write(&space, &[write]).await.unwrap().remove(0);
                assert!(
                    matches!(&outcome, Outcome::Conflict(Some(found)) if found.version == version(&last)),
                    "{outcome:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn attempts_that_lose_change_nothing_at_all() {
    let server = OneServer::new();
    let (store, space, mut admin) = (server.store(), name("losers"), server.admin().await);
    let places: Vec<_> = (0..20).map(|nth| key(Kind::Node, &format!("n{nth}"))).collect();
    for place in &places {
        must(&*store, &space, put(place, None, "mine")).await;
    }
    let sums = "SELECT (SELECT BIT_XOR(CRC32(CONCAT_WS('|', name, version, token, value, seq))) FROM tenure_registers), \
        (SELECT seq FROM tenure_notifier), (SELECT COUNT(*) FROM tenure_deletions)";
    let before = row(&mut admin, sums).await;
    for _ in 0..50 {
        let mut attempts: Vec<_> = places.iter().map(|place| put(place, None, "theirs")).collect();
        let other = attempts.iter().map(version).collect::<Vec<_>>();
        attempts
            .extend(places.iter().zip(&other).map(|(place, version)| put(place, Some(*version), "theirs")));
        attempts.extend(
            places.iter().zip(&other).map(|(place, v)| Write { put: None, ..put(place, Some(*v), "") }),
        );
        let outcomes = store.write(&space, &attempts).await.unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Conflict(Some(_)))), "{outcomes:?}");
    }
    assert_eq!(row(&mut admin, sums).await, before, "byte for byte");
}

/// Reads are current although a login keeps an old snapshot open, and nothing of ours keeps one open or is in the way of
/// those who change tables.
#[tokio::test]
async fn old_snapshots_are_not_looked_at_and_none_is_left_open() {
    let server = OneServer::new();
    let (store, other, space) = (server.store(), server.store(), name("snapshot"));
    let mut admin = server.admin().await;
    assert!(store.describe().await.unwrap().notifies && other.describe().await.unwrap().notifies);
    let place = key(Kind::Node, "a");
    let mut last = must(&*store, &space, put(&place, None, "0")).await;
    admin.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    for round in 1..20 {
        last = must(&*other, &space, put(&place, Some(version(&last)), &round.to_string())).await;
        assert_eq!(get(&*store, &space, &place).await.unwrap().version, version(&last));
    }
    let old = row(&mut admin, "SELECT value FROM tenure_registers WHERE name = 'a'").await;
    assert_eq!(old, [Some("\"0\"".to_owned())], "it was old indeed");
    admin.query_drop("COMMIT").await.unwrap();
    // Those who listen sleep by now; if they held anything, this would wait for them.
    let change = async { admin.query_drop("ALTER TABLE tenure_notifier ADD COLUMN note INT NULL").await };
    soon(change).await.unwrap();
    // A login that looks at this very moment keeps nothing open. InnoDB fills this table anew only if it was not read for 0.1 s:
    // a login that asks without a pause sees for ever what was open at first.
    let open = "SELECT COUNT(*) FROM information_schema.INNODB_TRX";
    let none_open = async {
        while row(&mut admin, open).await != [Some("0".to_owned())] {
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    };
    soon(none_open).await;
    must(&*other, &space, put(&place, Some(version(&last)), "after")).await;
}

/// An administrator puts an older copy of the data back: every watch is told that the store forgot.
#[tokio::test]
async fn an_older_copy_of_the_data_is_noticed() {
    let server = OneServer::new();
    let (store, space) = (server.store(), name("restored"));
    must(&*store, &space, put(&key(Kind::Node, "a"), None, "1")).await;
    let dir = server.server().crash();
    let copy = tempfile::tempdir().unwrap();
    let copied = |from: &std::path::Path, to: &std::path::Path| {
        let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
        assert!(done.expect("cp runs").success());
    };
    copied(&dir.path().join("data"), copy.path());
    server.server().launch(dir);
    until_it_works(&*store).await;
    let mut watch = store.watch(&space);
    for nth in 0..5 {
        must(&*store, &space, put(&key(Kind::Node, &format!("n{nth}")), None, "1")).await;
    }
    // The handle meets the server once more as it is, and then as it was.
    server.server().crash_and_restart();
    until_it_works(&*store).await;
    let dir = server.server().crash();
    std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    copied(&copy.path().join("data"), dir.path());
    server.server().launch(dir);
    heard(&mut watch, |signal| matches!(signal, Signal::Forgot)).await;
    until_it_works(&*store).await;
    assert!(get(&*store, &space, &key(Kind::Node, "n0")).await.is_none(), "it did forget");
}

/// A login of the same server without any grant: locks have no rights, and a login that can guess a name can have it.
async fn stranger(server: &OneServer) -> Conn {
    server.admin().await.query_drop("CREATE USER stranger@'%'").await.unwrap();
    let port = server.server().port();
    let mut stranger = connect(&format!("mysql://stranger@127.0.0.1:{port}/")).await;
    let seen = stranger.query_drop(format!("SELECT * FROM {DATABASE}.tenure_schema")).await;
    assert!(seen.is_err(), "it has no grant");
    stranger
}

async fn take(stranger: &mut Conn, lock: &str) {
    let taken = row(stranger, &format!("SELECT GET_LOCK('{lock}', 0)")).await;
    assert_eq!(taken, [Some("1".to_owned())], "{lock}");
}

#[tokio::test]
async fn a_neighbour_keeps_no_node_from_making_the_tables() {
    let server = OneServer::new();
    let mut stranger = stranger(&server).await;
    take(&mut stranger, &format!("tenure schema {DATABASE}")).await;
    let store = Mysql::open(&server.url()).unwrap();
    until_it_works(&store).await;
}

/// It held the lock of the notifier, whose name followed from those of the user and the database, and no listener was woken any
/// more.
#[tokio::test]
async fn a_neighbour_keeps_no_node_from_notifying() {
    let server = OneServer::new();
    let (store, space, mut admin) = (server.store(), name("notifier"), server.admin().await);
    let mut stranger = stranger(&server).await;
    let guess = format!("SELECT CONCAT('tenure-notifier-', LEFT(SHA2('app@{DATABASE}', 256), 32))");
    let guess = row(&mut stranger, &guess).await.remove(0).unwrap();
    take(&mut stranger, &guess).await;
    let mut watch = store.watch(&space);
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    let mut kills = async || row(&mut admin, "SHOW GLOBAL STATUS LIKE 'Com_kill'").await[1].clone();
    let (before, mut last) = (kills().await, None);
    let woken = async {
        while kills().await == before {
            last = Some(version(&must(&*store, &space, put(&key(Kind::Node, "a"), last, "1")).await));
        }
    };
    soon(woken).await;
}

/// On MariaDB a listener sleeps by waiting for a lock, whose name followed from the number of a connection. A stranger that
/// had taken the next thousand could wake all listeners at will, each of which then connects anew. On MySQL it waits for none.
#[tokio::test]
async fn a_neighbour_has_no_lock_that_a_listener_waits_for() {
    let server = OneServer::new();
    let mut stranger = stranger(&server).await;
    for id in 1..200 {
        take(&mut stranger, &format!("tenure-listener-{id}")).await;
    }
    let (store, mut admin) = (server.store(), server.admin().await);
    let mut watch = store.watch(&name("listener"));
    heard(&mut watch, |signal| matches!(signal, Signal::Resync)).await;
    let asleep = "SELECT INFO FROM information_schema.PROCESSLIST WHERE INFO LIKE '%/* tenure%listener */ %' \
        AND ID <> CONNECTION_ID()";
    let statement = async {
        loop {
            if let Some(statement) = admin.query_first::<String, _>(asleep).await.unwrap() {
                return statement;
            }
        }
    };
    let statement = soon(statement).await;
    if is_mysql() {
        return assert!(statement.contains(" SLEEP(") && !statement.contains("LOCK"), "{statement}");
    }
    let lock = statement.split('\'').nth(1).expect("a name").to_owned();
    let holder = row(&mut stranger, &format!("SELECT IS_USED_LOCK('{lock}')")).await.remove(0);
    assert!(holder.is_some(), "the connection for operations holds {lock}");
    assert_ne!(holder, Some(stranger.id().to_string()), "{lock}");
}

/// A login that may read may also lock what it reads, on this server: writers wait, until the server ends a transaction in which
/// nothing happens. Nothing of ours can help it, and `docs/stores/neighbours.md` says what does. MySQL ends only connections.
#[tokio::test]
async fn a_reader_who_locks_what_it_reads_is_ended_by_a_server_that_was_told_to() {
    let server = OneServer::new();
    let (store, space, place) = (Mysql::open(&server.url()).unwrap(), name("lock"), key(Kind::Node, "a"));
    let first = must(&store, &space, put(&place, None, "1")).await;
    let mut admin = server.admin().await;
    for sql in [
        dialect("SET GLOBAL idle_transaction_timeout = 1", "SET GLOBAL wait_timeout = 1"),
        "CREATE USER reader@'%'",
        "GRANT SELECT ON * TO reader@'%'",
    ] {
        admin.query_drop(sql).await.unwrap();
    }
    let port = server.server().port();
    let mut reader = connect(&format!("mysql://reader@127.0.0.1:{port}/{DATABASE}")).await;
    for sql in ["BEGIN", "SELECT * FROM tenure_registers LOCK IN SHARE MODE"] {
        reader.query_drop(sql).await.unwrap();
    }
    let beat = put(&place, Some(version(&first)), "2");
    let written = async {
        loop {
            match store.write(&space, std::slice::from_ref(&beat)).await.as_deref() {
                Ok([Outcome::Applied]) => return,
                Ok([Outcome::Conflict(Some(found))]) if found.version == version(&beat) => return,
                Ok([Outcome::Failed(_)]) | Err(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    soon(written).await;
    assert!(reader.query_drop("SELECT 1").await.is_err(), "its connection was ended");
}

/// Nodes that used a database first at the same moment, and could not wait for their turn, dropped and made each other's
/// triggers: some of their first operations failed ("Trigger … already exists", "has an error in its body").
#[tokio::test]
async fn nodes_that_make_the_tables_at_once_all_find_them() {
    let server = OneServer::new();
    let url = server.server().url("other");
    let mut neighbour = connect(&url).await;
    take(&mut neighbour, &format!("tenure schema {DATABASE}")).await;
    for round in 0..2 {
        let nodes: Vec<_> = (0..12).map(|_| server.store()).collect();
        let first_uses = nodes.iter().enumerate().map(async |(nth, node)| {
            let identity = node.describe().await.expect("its first use").identity;
            must(&**node, &name("first"), put(&key(Kind::Node, &format!("n{nth}")), None, "x")).await;
            identity
        });
        let identities = soon(futures_util::future::join_all(first_uses)).await;
        assert!(identities.iter().all(|identity| *identity == identities[0]), "{round}: {identities:?}");
        let mut admin = server.admin().await;
        admin.query_drop(format!("DROP DATABASE {DATABASE}")).await.unwrap();
        admin.query_drop(format!("CREATE DATABASE {DATABASE}")).await.unwrap();
    }
}
